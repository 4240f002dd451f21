"""A master played by hand: an endpoint that connects when told to, and what it can send."""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.logfiles.reader import LogReader
from tests.support.ha_frames import encode_header

MASTER = IPv4Address("TCP", "10.0.0.1", 10912)


class PuppetTransport(StringTransport):
    """Keeps what is written; a close is told a reactor turn later, as real ones do."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(peerAddress=MASTER)
        self.clock = clock
        self.gone = False
        self.protocol: IProtocol | None = None

    def setTcpNoDelay(self, enabled: bool) -> None:
        """TLS asks for it, as it does for the next."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Nothing of it can be seen here."""

    def loseConnection(self) -> None:
        self._close_later(ConnectionDone())

    def abortConnection(self) -> None:
        self._close_later(ConnectionAborted())

    def _close_later(self, error: Exception) -> None:
        if not self.disconnecting:
            self.disconnecting = True
            self.clock.callLater(0, self.lost, error)

    def lost(self, error: Exception) -> None:
        if not self.gone:
            self.gone = self.disconnecting = True
            assert self.protocol is not None, "it was connected"
            self.protocol.connectionLost(Failure(error))


class Connection:
    """The master's end of one connection."""

    def __init__(self, protocol: IProtocol, clock: Clock) -> None:
        self.protocol = protocol
        self.transport = PuppetTransport(clock)
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)

    @property
    def open(self) -> bool:
        return not self.transport.disconnecting

    def reports(self) -> list[int]:
        data = self.transport.value()
        return [int.from_bytes(data[i : i + 8], "big") for i in range(0, len(data), 8)]

    def send(self, data: bytes) -> None:
        """Send bytes, if the slave is there to read them."""
        if self.open:
            self.protocol.dataReceived(data)

    def frame(self, offset: int, body: bytes) -> None:
        self.send(frame(offset, body))

    def heartbeat(self, offset: int) -> None:
        self.send(encode_header(offset, 0))

    def feed(self, log: LogReader, start: int, end: int | None = None, batch: int = 1000) -> None:
        """Send a log's bytes, as a master does, each frame in one piece."""
        for piece in frames(log, start, end, batch):
            self.send(piece)

    def close(self) -> None:
        """End it from the master's side."""
        self.transport.lost(ConnectionDone())


@implementer(IStreamClientEndpoint)
class PuppetEndpoint:
    """Connections happen when a test says so."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.waiting: list[tuple[IProtocolFactory, Deferred[IProtocol]]] = []
        self.cancelled = 0

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        def cancel(done: Deferred[IProtocol]) -> None:
            self.cancelled += 1
            self.waiting = [pair for pair in self.waiting if pair[1] is not done]

        done: Deferred[IProtocol] = Deferred(cancel)
        self.waiting.append((protocolFactory, done))
        return done

    def accept(self) -> Connection:
        factory, done = self.waiting.pop(0)
        protocol = factory.buildProtocol(MASTER)
        assert protocol is not None, "it has no protocol for us"
        connection = Connection(protocol, self.clock)
        done.callback(protocol)
        return connection

    def refuse(self) -> None:
        self.waiting.pop(0)[1].errback(Failure(ConnectionRefusedError()))


def frame(offset: int, body: bytes) -> bytes:
    """One frame."""
    return encode_header(offset, len(body)) + body


def frames(
    log: LogReader, start: int, end: int | None = None, batch: int = 1000
) -> Iterator[bytes]:
    """The frames a master sends from C{start} on: none spans two files."""
    stop = log.end if end is None else end
    while start < stop:
        body = bytes(log.read(start, min(batch, stop - start)))
        yield frame(start, body)
        start += len(body)
