"""The sending side on real transports: sockets, with and without zero copies, and in memory."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock, deferLater
from twisted.test.iosim import FakeTransport, IOPump
from twisted.trial.unittest import SynchronousTestCase, TestCase

from rmqha.config.ha_settings import HASettings
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.tls.gate import CLEAR_TEXT, TlsGate
from rmqha.net.zero_copy_send import listen
from rmqha.wire.ha_frame import BodyPart, TransferDecoder, encode_report
from tests.support.effort import slow
from tests.support.masters import feeding
from tests.support.sending_log import MemoryLog


class Copier(Protocol):
    """The smallest slave: it keeps a digest of what it gets, and reports each frame."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.digest = sha256()
        self.copied = 0
        self.decoder = TransferDecoder()
        self.until = -1
        self.reached: Deferred[None] = Deferred()
        self.closed: Deferred[None] = Deferred()

    def connectionMade(self) -> None:
        self.transport.write(encode_report(self.offset))

    def dataReceived(self, data: bytes) -> None:
        for event in self.decoder.receive(data):
            if isinstance(event, BodyPart):
                assert event.offset == self.offset
                self.offset += len(event.data)
                self.copied += len(event.data)
                self.digest.update(event.data)
                if not event.left:
                    self.transport.write(encode_report(self.offset))
        if self.offset == self.until and not self.reached.called:
            self.reached.callback(None)

    def connectionLost(self, reason: Any = None) -> None:
        self.closed.callback(None)


def master(
    log: MemoryLog, clock: Any, *, gate: TlsGate = CLEAR_TEXT, **settings: Any
) -> MasterFactory:
    """A master of a log in memory."""
    return feeding(log, clock, HASettings(**settings), gate=gate)


class SocketTests(TestCase):
    timeout = 60

    async def copy(self, *, zero_copy: bool, slaves: int = 2) -> None:
        """Some slaves copy 20 MB, then follow SYNC writes, and leave."""
        from twisted.internet import reactor

        log = MemoryLog(file_size=3_000_000)
        log.put(random.Random(1).randbytes(20_000_000))
        factory = master(log, reactor, zero_copy=zero_copy)
        port = listen(reactor, factory, 0, "127.0.0.1")
        try:
            copiers = [Copier() for _ in range(slaves)]
            for copier in copiers:
                copier.until = log.end
                endpoint = HostnameEndpoint(reactor, b"127.0.0.1", port.getHost().port)
                await connectProtocol(endpoint, copier)
            await gatherResults([copier.reached for copier in copiers])
            for size in (1, 300, 70_000, 4_000_000, 5):
                # Acknowledged is what a report covered, and those may be under way.
                status = await factory.transfer.wait(*log.put(random.Random(2).randbytes(size)))
                self.assertEqual(status, PutStatus.PUT_OK)
            self.assertEqual(len(factory.replicas()), slaves)
            for copier in copiers:
                copier.until, copier.reached = log.end, Deferred()
                if copier.offset < log.end:
                    await copier.reached
        finally:
            await port.stopListening()
            await factory.stop()
            await gatherResults([copier.closed for copier in copiers])
        expected = sha256(log.content(0, log.end)).hexdigest()
        for copier in copiers:
            self.assertEqual(copier.digest.hexdigest(), expected)

    def test_zero_copy(self) -> Deferred[None]:
        """Views of the log arrive as the log."""
        return Deferred.fromCoroutine(self.copy(zero_copy=True))

    def test_portable(self) -> Deferred[None]:
        """So do bytes."""
        return Deferred.fromCoroutine(self.copy(zero_copy=False))

    @slow
    def test_slow_reader(self) -> Deferred[None]:
        """A slave that does not read costs a bounded queue, and no other slave's time."""
        return Deferred.fromCoroutine(self.slow_reader())

    async def slow_reader(self) -> None:
        from twisted.internet import reactor

        log = MemoryLog(file_size=1 << 20)
        factory = master(log, reactor)
        port = listen(reactor, factory, 0, "127.0.0.1")
        slow, good = Copier(), Copier()
        try:
            for copier in (slow, good):
                endpoint = HostnameEndpoint(reactor, b"127.0.0.1", port.getHost().port)
                await connectProtocol(endpoint, copier)
                await deferLater(reactor, 0.01, lambda: None)
            slow.transport.pauseProducing()
            for _ in range(50):
                status = await factory.transfer.wait(*log.put(bytes(1 << 20)))
                self.assertEqual(status, PutStatus.PUT_OK)
            queued = max(each.transport.queued for each in factory.door.inside)
            self.assertLessEqual(queued, (1 << 20) + (1 << 16))
            self.assertLess(slow.offset, log.end)
        finally:
            slow.transport.abortConnection()
            await port.stopListening()
            await factory.stop()
            await gatherResults([slow.closed, good.closed])


class MemoryTests(SynchronousTestCase):
    def test_pair(self) -> None:
        """A copy, a SYNC write, and a wrong report that ends it."""
        clock = Clock()
        log = MemoryLog(file_size=10_000)
        log.put(random.Random(3).randbytes(123_456))
        factory = master(log, clock)
        factory.start()
        server = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 5))
        client = Copier(100)
        server_side = FakeTransport(server, isServer=True)
        client_side = FakeTransport(client, isServer=False)
        pump = IOPump(client, server, client_side, server_side, False)
        server.makeConnection(server_side)
        client.makeConnection(client_side)
        pump.flush()
        self.assertEqual(client.offset, 123_456)
        write = factory.transfer.wait(*log.put(bytes(5_000)))
        pump.flush()
        self.assertEqual(self.successResultOf(write), PutStatus.PUT_OK)
        self.assertEqual(client.digest.hexdigest(), sha256(log.content(100, log.end)).hexdigest())
        client.transport.write(encode_report(5))
        pump.flush()
        self.successResultOf(client.closed)
        self.assertEqual((factory.closed, factory.connections), ({"decreasing": 1}, 0))
