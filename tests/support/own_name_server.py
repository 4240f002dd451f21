"""A name server of ours, served by threads, for those without a reactor."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from rmqha.config.settings import NamesrvSettings
from rmqha.namesrv.kv import KvConfig
from rmqha.namesrv.service import NameServer
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import encode
from tests.support.fake_broker import Answering


@define(eq=False)
class OwnNameServer:
    """One, with the brokers that a test registers."""

    requests: list[int] = field(factory=list)
    server: Answering = field(init=False)
    _asked: NameServer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._asked = NameServer(NamesrvSettings(), Clock(), KvConfig(lambda table: succeed(None)))
        self.server = Answering(self._counted)

    @property
    def address(self) -> str:
        return self.server.address

    def close(self) -> None:
        self.server.close()

    def register(
        self, name: str, number: int = 0, host: str = "10.0.0.1", cluster: str = "c"
    ) -> None:
        self._tell(
            RequestCode.REGISTER_BROKER,
            brokerName=name,
            brokerAddr=f"{host}:10911",
            clusterName=cluster,
            haServerAddr=f"{host}:10912",
            brokerId=str(number),
        )

    def unregister(self, name: str, number: int = 0, host: str = "10.0.0.1") -> None:
        self._tell(
            RequestCode.UNREGISTER_BROKER,
            brokerName=name,
            brokerAddr=f"{host}:10911",
            clusterName="c",
            brokerId=str(number),
        )

    def _tell(self, code: RequestCode, **ext: str) -> None:
        self._answer(Command(code=code, opaque=1, ext=ext))

    def _counted(self, request: Command) -> bytes:
        self.requests.append(request.code)
        return self._answer(request)

    def _answer(self, request: Command) -> bytes:
        address = IPv4Address("TCP", "127.0.0.1", 5000)
        protocol = self._asked.factory.buildProtocol(address)
        assert protocol is not None
        transport = StringTransport(peerAddress=address)
        protocol.makeConnection(transport)
        protocol.dataReceived(encode(request))
        answer: bytes = transport.value()
        return answer
