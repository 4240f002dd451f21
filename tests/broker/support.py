"""A broker over a real store, asked through connections without sockets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, evolve, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from rmqha.broker.access.acl_file import AclFile
from rmqha.broker.broker import Broker, RequestHandler
from rmqha.config.broker_settings import BrokerSettings
from rmqha.config.settings import Settings
from rmqha.config.vocabulary import SECTIONS
from rmqha.errors import FlushFailed, NotWritable
from rmqha.ha.master.put_service import PutResult
from rmqha.ha.master.transfer import Done, PutStatus
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.store.log.record_run import RequestRun
from rmqha.store.store import Store
from rmqha.wire.log.record import Message, Record
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.frame import FrameDecoder, encode
from rmqha.wire.remoting.headers.send import SendMessageRequest, SendMessageV2Request
from tests.support.logs import LogTestCase, now

NOW = 1_700_000_000_000
"""The time, in milliseconds since 1970."""

BORN = NOW - 5
PEER = IPv4Address("TCP", "10.1.2.3", 40_000)


@define
class FakeWriter:
    """Stores in a real store; what became of the waiting is the test's to say.

    @ivar outcome: What the waiting ends with: a status, or a Deferred; an error refuses the write.
    """

    store: Store
    outcome: Any = PutStatus.PUT_OK
    waited: list[bool] = field(factory=list)

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        self._may()
        receipt = self.store.put(message, batch=batch)
        self.waited.append(wait)
        outcome = self.outcome
        done = outcome if isinstance(outcome, Deferred) else succeed(outcome)
        return done.addCallback(PutResult, receipt)

    def put_run(self, run: RequestRun, born_host: bytes, done: Done) -> None:
        self._may()
        self.store.put_run(run, born_host)
        self.waited += [True] * run.waits
        if not run.waits:
            return
        outcome = self.outcome
        waited = outcome if isinstance(outcome, Deferred) else succeed(outcome)
        waited.addErrback(self._disk_failed).addCallback(lambda status: done(status) or status)

    def _disk_failed(self, failure: Failure) -> PutStatus:
        if isinstance(failure.value, FlushFailed):
            self.store.flusher.failure = failure.value
        return PutStatus.SERVICE_NOT_AVAILABLE

    def _may(self) -> None:
        if isinstance(self.outcome, NotWritable):
            raise self.outcome


@define
class Client:
    connections: Connections
    transport: StringTransport = field(factory=lambda: StringTransport(peerAddress=PEER))
    connection: RemotingProtocol = field(init=False)
    _decoder: FrameDecoder = field(init=False, factory=FrameDecoder)
    _opaque: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.connection = RemotingProtocol(self.connections)
        self.connection.makeConnection(self.transport)

    def send(self, *commands: Command) -> None:
        self.connection.dataReceived(b"".join(map(encode, commands)))

    def heard(self) -> list[Command]:
        """What came since the last time."""
        if self.connection.opened:
            self.connection._outbox.flush()
        data = self.transport.value()
        self.transport.clear()
        return self._decoder.receive(data)

    def ask(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        version: int = 407,
        oneway: bool = False,
    ) -> Command | None:
        """One request and its answer, C{None} where there is none yet."""
        self._opaque += 1
        # A binary header has 16 bits for it.
        binary = self._opaque % 2 and code < 1 << 15
        request = Command(
            code=code,
            opaque=self._opaque,
            flag=2 if oneway else 0,
            version=version,
            ext=dict(ext or {}),
            body=body,
            serialize=SerializeType.ROCKETMQ if binary else SerializeType.JSON,
        )
        self.send(request)
        answers = self.heard()
        if not answers:
            return None
        (answer,) = answers
        assert answer.opaque == self._opaque, "an answer to something else"
        return answer


def properties(**pairs: str) -> str:
    """A property string as clients write it."""
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def sending(topic: str, **more: Any) -> dict[str, str]:
    """The fields of a send, short names, with other values; C{properties} may be a C{dict}."""
    given = more.pop("properties", {"UNIQ_KEY": "U1", "WAIT": "true", "TAGS": "A"})
    fields: dict[str, Any] = {
        "producer_group": "pg",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": BORN,
        "flag": 0,
        "properties": properties(**given) if isinstance(given, dict) else given,
        "reconsume_times": 0,
        "max_reconsume_times": None,
    } | more
    return to_ext(SendMessageV2Request(**fields))


def long_names(ext: Mapping[str, str]) -> dict[str, str]:
    """The same fields by their long names."""
    from rmqha.wire.remoting.fields import from_ext

    short = from_ext(SendMessageV2Request, ext)
    return to_ext(
        SendMessageRequest(
            **{name.name: getattr(short, name.name) for name in short.__attrs_attrs__}
        )
    )


def batch(*items: tuple[bytes, str]) -> bytes:
    """The body of a batch: bodies and property strings."""
    out = b""
    for body, text in items:
        raw = text.encode()
        size = 22 + len(body) + len(raw)
        out += size.to_bytes(4, "big") + bytes(12) + len(body).to_bytes(4, "big") + body
        out += len(raw).to_bytes(2, "big") + raw
    return out


class BrokerTestCase(LogTestCase):
    broker_settings: BrokerSettings = BrokerSettings(
        name="broker-a", cluster="C", ip1="10.0.0.9", ip2="10.0.0.9"
    )

    def setUp(self) -> None:
        self.clock = Clock()
        self.root = self.folder() / "store"

    def broker(
        self,
        *,
        slave: bool = False,
        sizes: Mapping[str, Any] | None = None,
        accounts: AclFile | None = None,
        more: tuple[RequestHandler, ...] = (),
        **settings: Any,
    ) -> Broker:
        """A broker that serves.

        @param more: Other parts that answer requests.
        @param settings: Fields of C{BrokerSettings}; or whole sections.
        """
        # The field of that name is the broker's.
        names = SECTIONS.keys() - {"namesrv"}
        sections = {name: settings.pop(name) for name in names if name in settings}
        store = self.opened(
            self.root,
            clock=self.clock,
            master=not slave,
            settings={"file_size": 1 << 20, "max_message_size": 100_000, **(sizes or {})},
            now_ms=self.now,
        )
        self.writer = FakeWriter(store)
        self.serving = Broker(
            Settings(
                broker=evolve(self.broker_settings, **settings), store=store.settings, **sections
            ),
            store,
            None if slave else self.writer,
            self.clock,
            now,
            accounts=accounts,
            more=more,
        )
        self.addCleanup(self.serving.offsets.journal.stop)
        self.connections = Connections(self.clock, self.serving.registry, ConnectionLimits())
        return self.serving

    def now(self) -> int:
        """The wall clock, in milliseconds since 1970."""
        return NOW + int(self.clock.seconds() * 1000)

    def client(self) -> Client:
        return Client(self.connections)

    def record(self, topic: str, queue_id: int = 0, offset: int = 0) -> Record:
        """What stands at a place of a queue."""
        self.clock.advance(0.01)
        found = self.serving.lookup.by_queue_offset(topic, queue_id, offset)
        assert found is not None, f"nothing at {offset} of {topic}/{queue_id}"
        return found

    def table(self, name: str) -> Path:
        return self.root / "config" / name


SEND, SEND_V2, SEND_BATCH = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
