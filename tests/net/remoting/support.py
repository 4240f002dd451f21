"""Both ends of remoting connections, without sockets."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode


@define
class Peer:
    """A connection whose other side is the test."""

    limits: ConnectionLimits = field(factory=ConnectionLimits)
    close_on_timeout: bool = False
    clock: Clock = field(factory=Clock)
    registry: Registry = field(factory=Registry)
    transport: StringTransport = field(factory=StringTransport)
    connections: Connections = field(init=False)
    connection: RemotingProtocol = field(init=False)
    _decoder: FrameDecoder = field(init=False, factory=FrameDecoder)

    def __attrs_post_init__(self) -> None:
        self.connections = Connections(self.clock, self.registry, self.limits)
        self.connection = RemotingProtocol(self.connections, close_on_timeout=self.close_on_timeout)
        self.connection.makeConnection(self.transport)

    def send(self, *commands: Command) -> None:
        self.connection.dataReceived(b"".join(map(encode, commands)))

    def sent(self) -> list[Command]:
        """What our side sent since the last time."""
        data = self.transport.value()
        self.transport.clear()
        return self._decoder.receive(data)

    @property
    def aborted(self) -> bool:
        """Whether our side closed without a word."""
        return bool(self.transport.disconnected)


@define
class PuppetEndpoint:
    """An endpoint whose connections the test makes, or fails."""

    tries: list[tuple[IProtocolFactory, Deferred[RemotingProtocol]]] = field(factory=list)

    def connect(self, factory: IProtocolFactory) -> Deferred[RemotingProtocol]:
        connecting: Deferred[RemotingProtocol] = Deferred()
        self.tries.append((factory, connecting))
        return connecting

    def accept(self, number: int = -1) -> StringTransport:
        factory, connecting = self.tries[number]
        protocol = factory.buildProtocol(None)  # type: ignore[arg-type]
        assert isinstance(protocol, RemotingProtocol)
        transport = StringTransport()
        protocol.makeConnection(transport)
        connecting.callback(protocol)
        return transport
