"""The replication transports on real loopback sockets under the real reactor."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from twisted.application.internet import ClientService
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import (
    CannotListenError,
    ConnectBindError,
    ConnectionAborted,
    ConnectionDone,
    ConnectionRefusedError,
)
from twisted.internet.interfaces import IOpenSSLContextFactory, IProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import deferLater
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from rmqha.net.zero_copy_receive import ZeroCopyClient, scatter, zero_copy_endpoint
from rmqha.net.zero_copy_send import AT_ONCE, TURN, ZeroCopyServer, listen, regions
from tests.support.ha_frames import encode_header
from tests.support.sinks import MemorySink

reactor: Any = _reactor

FRESH = (b"", 0, 0, 0)
MAX = 4 << 20


class End(Protocol):
    """One end of a connection, driven by the test until it has the C{wanted} bytes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.wanted = -1
        self.enough: Deferred[bytes] = Deferred()
        self.lost: Deferred[None] = Deferred()
        self.reason = connectionDone
        self.made: Callable[[End], None] = lambda end: None

    def connectionMade(self) -> None:
        """Whatever the test has to do first."""
        self.made(self)

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        self._tell()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.reason = reason
        self.lost.callback(None)

    def until(self, count: int) -> Deferred[bytes]:
        """@return: Fires with all that came once it is C{count} bytes."""
        self.wanted = count
        self._tell()
        return self.enough

    def _tell(self) -> None:
        if 0 <= self.wanted <= len(self.data) and not self.enough.called:
            self.enough.callback(bytes(self.data))


class Once(Factory):
    """Hand out one protocol."""

    noisy = False

    def __init__(self, end: IProtocol) -> None:
        self.end = end

    def buildProtocol(self, addr: object) -> IProtocol:
        return self.end


class LoopbackTestCase(TestCase):
    """A master's end and a slave's end, connected."""

    timeout = 10

    async def serve(self, factory: Factory) -> int:
        """Listen with L{ZeroCopyServer}s, and return the port."""
        port = listen(reactor, factory, 0, "127.0.0.1")
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def join(
        self, made: Callable[[End], None] = lambda end: None, *, portable: bool = True
    ) -> tuple[ZeroCopyServer, End, End]:
        """Connect a server and a client, which may have Twisted's own transport: the server's
        transport, its
        protocol and the client's.
        """
        server, client = End(), End()
        client.made = made
        accepted: Deferred[None] = Deferred()
        server.made = lambda end: accepted.callback(None)
        port = await self.serve(Once(server))
        endpoint = TCP4ClientEndpoint if portable else zero_copy_endpoint
        await endpoint(reactor, "127.0.0.1", port).connect(Once(client))
        await accepted
        self.addCleanup(self._leave, server, client)
        transport = regions(server.transport)
        assert transport is not None
        return transport, server, client

    def _leave(self, *ends: End) -> Deferred[Any]:
        for end in ends:
            assert end.transport is not None
            end.transport.abortConnection()  # type: ignore[attr-defined]
        return DeferredList([end.lost for end in ends])


def small_buffer(transport: ZeroCopyServer) -> None:
    """Let the kernel take little, so that most writes are partial."""
    transport.getHandle().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


class Supply:
    """A push producer that writes what it has, a turn's worth a call, and counts its pauses."""

    def __init__(self, transport: ZeroCopyServer, parts: Sequence[bytes | memoryview]) -> None:
        self.transport = transport
        self.parts = list(parts)
        self.paused = self.resumed = self.full = 0
        self.stopped = False

    def resumeProducing(self) -> None:
        self.resumed += 1
        self.full = max(self.full, self.transport.queued)
        batch: list[bytes | memoryview] = []
        size = 0
        while self.parts and size < TURN:
            batch.append(self.parts.pop(0))
            size += len(batch[-1])
        if batch:
            self.transport.writeParts(batch)
        if not self.parts:
            self.transport.unregisterProducer()

    def pauseProducing(self) -> None:
        self.paused += 1

    def stopProducing(self) -> None:
        self.stopped = True


class RegionTests(LoopbackTestCase):
    async def test_order(self) -> None:
        """Whatever the sizes and the calls, bytes arrive in the order they were written."""
        source = random.Random(3)
        log = memoryview(bytearray(source.randbytes(3 << 20)))
        for tiny in (False, True):
            transport, _, client = await self.join()
            if tiny:
                small_buffer(transport)
            expected = bytearray()
            limit = 20_000 if tiny else 600_000
            for _ in range(60):
                call = source.choice(["write", "sequence", "parts"])
                views: list[memoryview] = []
                for _ in range(1 if call == "write" else source.randrange(5)):
                    start = source.randrange(len(log) - limit)
                    top = source.choice([1, 20, 9000, limit])
                    views.append(log[start : start + source.randrange(top)])
                expected += b"".join(views)
                if call == "parts":
                    transport.writeParts(views)
                elif call == "sequence":
                    transport.writeSequence([bytes(view) for view in views])
                else:
                    transport.write(bytes(views[0]))
            got = await client.until(len(expected))
            self.assertTrue(got == expected, f"tiny={tiny}")
            self.assertEqual(transport.queued, 0)

    async def test_at_once(self) -> None:
        """A frame that fits is with the kernel when the call returns; no writer is armed."""
        transport, _, client = await self.join()
        transport.writeParts([b"header", memoryview(b"body" * 300)])
        transport.writeParts([b"header", memoryview(b"body" * 5000)])
        self.assertEqual(transport.queued, 0)
        self.assertNotIn(transport, reactor.getWriters())
        got = await client.until(21212)
        self.assertEqual(got, b"header" + b"body" * 300 + b"header" + b"body" * 5000)

    async def test_bulk_is_left_to_turns(self) -> None:
        """More than L{AT_ONCE} bytes wait for the reactor, whatever the socket would take."""
        transport, _, client = await self.join()
        body = memoryview(bytes(AT_ONCE + 1))
        transport.writeParts([body])
        self.assertEqual(transport.queued, len(body))
        await client.until(len(body))

    async def test_many_parts(self) -> None:
        """More parts than one system call takes, nothings among them."""
        transport, _, client = await self.join()
        parts = [bytes([n % 256]) * (n % 7) * 20 for n in range(3000)]
        transport.writeParts(parts)
        transport.writeParts([])
        transport.writeParts([b"", memoryview(b"")])
        expected = b"".join(parts)
        self.assertEqual(await client.until(len(expected)), expected)

    async def test_views_are_let_go(self) -> None:
        """What is sent is not held: the memory behind it can be given back."""
        transport, _, client = await self.join()
        log = bytearray(2 << 20)
        transport.writeParts([b"x" * 12, memoryview(log)])
        self.assertRaises(BufferError, log.append, 0)
        await client.until(len(log) + 12)
        log.append(0)

    async def test_lose_connection_flushes(self) -> None:
        """C{loseConnection} sends everything first."""
        transport, server, client = await self.join()
        log = memoryview(random.Random(4).randbytes(9 << 20))
        for start in range(0, len(log), 32768):
            transport.writeParts([log[start : start + 32768]])
        transport.loseConnection()
        await client.lost
        client.reason.trap(ConnectionDone)
        await server.lost
        server.reason.trap(ConnectionDone)
        self.assertTrue(client.data == log)

    async def test_lose_write_connection_flushes(self) -> None:
        """So does closing one direction, and nothing can be written after it."""
        transport, _, client = await self.join()
        log = memoryview(bytes(3 << 20))
        transport.writeParts([log])
        transport.loseWriteConnection()
        await client.lost
        transport.writeParts([b"late"])
        self.assertEqual((len(client.data), transport.queued), (len(log), 0))

    async def test_producer(self) -> None:
        """A push producer is paused above C{bufferSize} and resumed at nothing, without a timer."""
        for tiny in (False, True):
            transport, _, client = await self.join()
            if tiny:
                small_buffer(transport)
            log = memoryview(random.Random(5).randbytes((2 << 20) + 77))
            parts = [log[start : start + 32768] for start in range(0, len(log), 32768)]
            supply = Supply(transport, parts)
            transport.registerProducer(supply, True)
            supply.resumeProducing()
            got = await client.until(len(log))
            self.assertTrue(got == log)
            self.assertEqual((supply.paused, supply.resumed, supply.full), (2, 3, 0))

    async def test_small_writes_do_not_pause(self) -> None:
        """A producer that writes little is left alone."""
        transport, _, client = await self.join()
        supply = Supply(transport, [])
        transport.registerProducer(supply, True)
        for _ in range(100):
            transport.writeParts([b"header", memoryview(b"record")])
        await client.until(1200)
        self.assertEqual((supply.paused, supply.resumed), (0, 0))
        transport.unregisterProducer()

    async def test_abort(self) -> None:
        """An abort drops what is queued at once, sends nothing more and stops the producer."""
        transport, server, _ = await self.join()
        log = bytearray(8 << 20)
        supply = Supply(transport, [memoryview(log)])
        supply.parts.append(b"")  # so that it stays registered
        transport.registerProducer(supply, True)
        supply.resumeProducing()
        self.assertGreater(transport.queued, 0)
        transport.abortConnection()
        log.append(0)
        transport.writeParts([b"late"])
        transport.write(b"late")
        self.assertEqual(transport.queued, 0)
        await server.lost
        server.reason.trap(ConnectionAborted)
        self.assertTrue(supply.stopped)
        transport.writeParts([b"later still"])

    async def test_peer_leaves(self) -> None:
        """A peer that goes ends the connection; its queue goes, and late writes are no error."""
        transport, server, client = await self.join()
        log = bytearray(16 << 20)
        transport.writeParts([memoryview(log)])
        client.transport.abortConnection()  # type: ignore[union-attr]
        await server.lost
        log.append(0)
        transport.writeParts([b"late"])
        self.assertEqual(transport.queued, 0)

    async def test_error_at_once(self) -> None:
        """An error met by a write at once reaches the protocol from the reactor, not the writer."""
        transport, server, _ = await self.join()
        transport.socket.shutdown(socket.SHUT_WR)
        transport.writeParts([b"into the void"])
        self.assertFalse(server.lost.called)
        await server.lost

    async def test_only_bytes(self) -> None:
        """As with any transport C{write} takes only C{bytes}."""
        transport, _, _ = await self.join()
        for wrong in (bytearray(2), memoryview(b"ab"), "ab"):
            self.assertRaises(TypeError, transport.write, wrong)

    async def test_port_in_use(self) -> None:
        """A port that is taken cannot be listened on."""
        port = await self.serve(Once(End()))
        with self.assertRaises(CannotListenError):
            listen(reactor, Once(End()), port, "127.0.0.1")

    async def test_name(self) -> None:
        """A name is looked up for each connection: its host may have another address by then."""
        server, client, asked = End(), End(), []
        port = listen(reactor, Once(server), 0, "127.0.0.2")
        self.addCleanup(port.stopListening)
        addresses = iter(["127.0.0.1", "127.0.0.2"])

        def resolve(name: str, *_: object) -> Deferred[str]:
            asked.append(name)
            return succeed(next(addresses))

        self.patch(reactor, "resolve", resolve)
        endpoint = zero_copy_endpoint(reactor, "broker-a-ha.test", port.getHost().port)
        with self.assertRaises(ConnectionRefusedError):
            await endpoint.connect(Once(client))
        await endpoint.connect(Once(client))
        self.assertEqual(["broker-a-ha.test"] * 2, asked)
        await self._leave(server, client)

    async def test_ipv6(self) -> None:
        """Both endpoints take IPv6 addresses."""
        server, client = End(), End()
        try:
            port = listen(reactor, Once(server), 0, "::1")
        except CannotListenError:
            self.skipTest("no IPv6 here")
        self.addCleanup(port.stopListening)
        endpoint = zero_copy_endpoint(reactor, "::1", port.getHost().port)
        client.made = lambda end: end.transport.write(b"hello")  # type: ignore[union-attr]
        await endpoint.connect(Once(client))
        await server.until(5)
        self.assertIsNotNone(regions(server.transport))
        await self._leave(server, client)


class BothEndsTests(LoopbackTestCase):
    def start(self, sink: MemorySink) -> Callable[[End], None]:
        """What a client does that scatters from the first byte."""

        def begin(end: End) -> None:
            client = scatter(end.transport)
            assert client is not None
            client.start_scatter(sink, FRESH, MAX)

        return begin

    async def test_copy(self) -> None:
        """A log copied by both, with rooms that end at files, is the same; tiny buffers too."""
        for tiny in (False, True):
            size = (1 << 20) + 5 if tiny else (20 << 20) + 5
            log = memoryview(random.Random(6).randbytes(size))
            sink = MemorySink(size=size, file_size=100_003)
            done: Deferred[None] = Deferred()

            def check(
                sink: MemorySink = sink, size: int = size, done: Deferred[None] = done
            ) -> None:
                if sink.received == size:
                    done.callback(None)

            sink.on["turn_ends"] = check
            transport, _, _ = await self.join(self.start(sink), portable=False)
            if tiny:
                small_buffer(transport)
            parts: list[bytes | memoryview] = []
            for start in range(0, size, 32768):
                body = log[start : start + 32768]
                parts += [encode_header(start, len(body)), body]
            supply = Supply(transport, parts)
            transport.registerProducer(supply, True)
            supply.resumeProducing()
            await done
            self.assertTrue(sink.log == log)
            steps = [b - a for a, b in zip([0, *sink.turns], sink.turns, strict=False)]
            self.assertLessEqual(max(steps), TURN + 32768)

    async def test_random_chunks(self) -> None:
        """A stream sent in chunks of any size, each as its own segment, arrives whole."""
        source = random.Random(7)
        stream = bytearray()
        expected: list[object] = []
        log = bytearray(1 << 20)
        end = 0
        while end < 500_000:
            body = source.randbytes(source.choice([0, 1, 13, 1000, 40_000]))
            stream += encode_header(end, len(body)) + body
            expected += [("frame", end, len(body)), ("end",)] if body else [("heartbeat", end)]
            log[end : end + len(body)] = body
            end += len(body)
        sink = MemorySink(file_size=65_537)
        transport, _, _ = await self.join(self.start(sink), portable=False)
        transport.setTcpNoDelay(True)
        done: Deferred[None] = Deferred()
        place = 0

        def send() -> None:
            nonlocal place
            size = source.choice([1, 5, 12, 13, 100, 5000, 60_000])
            transport.write(bytes(stream[place : place + size]))
            place += size
            if place < len(stream):
                reactor.callLater(0, send)

        def check() -> None:
            if sink.received == end and len(sink.events) == len(expected):
                done.callback(None)

        sink.on["turn_ends"] = check
        send()
        await done
        self.assertEqual(sink.events, expected)
        self.assertTrue(sink.log == log)

    async def test_pause(self) -> None:
        """A paused client reads nothing until resumed, and the sender feels it."""
        sink = MemorySink(size=32 << 20)
        paused: Deferred[None] = Deferred()
        done: Deferred[None] = Deferred()
        transport, _, client = await self.join(self.start(sink), portable=False)
        end: Any = client.transport

        def first() -> None:
            end.pauseProducing()
            del sink.on["frame_ends"]
            paused.callback(None)

        def check() -> None:
            if sink.received == len(body):
                done.callback(None)

        sink.on["frame_ends"] = first
        sink.on["turn_ends"] = check
        body = bytes(30 << 20)
        frames: list[bytes | memoryview] = []
        for start in range(0, len(body), 1 << 20):
            part = memoryview(body)[start : start + (1 << 20)]
            frames += [encode_header(start, len(part)), part]
        supply = Supply(transport, frames)
        transport.registerProducer(supply, True)
        supply.resumeProducing()
        await paused
        before = sink.received
        # Some turns of the reactor, in which the sender fills the socket's buffers.
        for _ in range(50):
            await deferLater(reactor, 0)
        self.assertEqual(sink.received, before)
        self.assertGreater(transport.queued + sum(map(len, supply.parts)), 0)
        end.resumeProducing()
        await done

    async def test_handover(self) -> None:
        """C{start_scatter} inside C{dataReceived} takes effect with the next byte."""
        sink = MemorySink()
        done: Deferred[None] = Deferred()
        sink.on["frame_ends"] = lambda: done.callback(None)

        class Switching(End):
            def dataReceived(self, data: bytes) -> None:
                super().dataReceived(data)
                client = scatter(self.transport)
                assert client is not None
                client.start_scatter(sink, (data, 0, 0, 0), MAX)

        client, server = Switching(), End()
        accepted: Deferred[None] = Deferred()
        server.made = lambda end: accepted.callback(None)
        port = await self.serve(Once(server))
        await zero_copy_endpoint(reactor, "127.0.0.1", port).connect(Once(client))
        await accepted
        frame = encode_header(3, 3) + b"abc"
        transport: Any = server.transport
        transport.write(frame[:5])
        await client.until(5)
        transport.write(frame[5:])
        await done
        self.assertEqual((bytes(client.data), sink.log[:6]), (frame[:5], b"\0\0\0abc"))
        await self._leave(server, client)

    async def test_lost_in_the_middle(self) -> None:
        """A connection that ends inside a frame has told what came, and writes nothing later."""
        sink = MemorySink()
        transport, _, client = await self.join(self.start(sink), portable=False)
        transport.write(encode_header(0, 100) + b"part")
        transport.loseConnection()
        await client.lost
        self.assertEqual((sink.turns[-1], sink.events), (4, [("frame", 0, 100)]))
        sink.log.append(0)  # nobody holds a view

    async def test_abort_in_a_frame(self) -> None:
        """A sink that aborts is not called again."""
        sink = MemorySink()
        transport, _, client = await self.join(self.start(sink), portable=False)
        sink.on["frame_starts"] = client.transport.abortConnection  # type: ignore[union-attr]
        transport.write(encode_header(0, 3) + b"abc" + encode_header(3, 3) + b"def")
        await client.lost
        client.reason.trap(ConnectionAborted)
        self.assertEqual((sink.events, sink.received), ([("frame", 0, 3)], 0))

    async def test_client_service(self) -> None:
        """C{ClientService}, which wraps protocols, leaves the transport as it is."""
        server, client = End(), End()
        port = await self.serve(Once(server))
        service = ClientService(
            zero_copy_endpoint(reactor, "127.0.0.1", port), Once(client), clock=reactor
        )
        service.startService()
        await service.whenConnected()
        # Its state machine must not be stopped from inside its own announcement.
        await deferLater(reactor, 0)
        self.assertIsInstance(scatter(client.transport), ZeroCopyClient)
        await service.stopService()
        await server.lost

    async def test_no_connection(self) -> None:
        """A port nobody listens on, and an address nobody may bind, fail the C{connect}."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with self.assertRaises(ConnectionRefusedError):
            await zero_copy_endpoint(reactor, "127.0.0.1", port).connect(Once(End()))
        bind = ("192.0.2.1", 0)
        with self.assertRaises(ConnectBindError):
            await zero_copy_endpoint(reactor, "127.0.0.1", port, 5.0, bind).connect(Once(End()))

    async def test_bind_address(self) -> None:
        """The master sees the address the client was told to connect from."""
        server, client = End(), End()
        port = await self.serve(Once(server))
        endpoint = zero_copy_endpoint(reactor, "127.0.0.1", port, bind_address=("127.0.0.9", 0))
        client.made = lambda end: end.transport.write(b"hi")  # type: ignore[union-attr]
        await endpoint.connect(Once(client))
        await server.until(2)
        self.assertEqual(server.transport.getPeer().host, "127.0.0.9")  # type: ignore[union-attr]
        await self._leave(server, client)


@implementer(IOpenSSLContextFactory)
class SelfSigned:
    """A TLS server with a certificate that signs itself."""

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), 1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .sign(key, hashes.SHA256())
        )
        self.context = SSL.Context(SSL.TLS_METHOD)
        self.context.use_privatekey(key)
        self.context.use_certificate(certificate)

    def getContext(self) -> SSL.Context:
        return self.context


class WrappedTests(LoopbackTestCase):
    """Transports that only look like ours: what is written there must go through the wrapper."""

    async def test_tls(self) -> None:
        """Behind TLS neither end says it can do without copies, though attributes are forwarded;
        nor after C{startTLS}, where C{writeParts} itself goes through TLS.
        """
        server, client = End(), End()
        options = SelfSigned()
        port = await self.serve(TLSMemoryBIOFactory(options, False, Once(server)))
        endpoint = zero_copy_endpoint(reactor, "127.0.0.1", port)
        wrapped = TLSMemoryBIOFactory(CertificateOptions(), True, Once(client))
        await endpoint.connect(wrapped)
        client.transport.write(b"hello")  # type: ignore[union-attr]
        await server.until(5)
        self.assertTrue(hasattr(server.transport, "writeParts"))
        self.assertTrue(hasattr(client.transport, "start_scatter"))
        self.assertIsNone(regions(server.transport))
        self.assertIsNone(scatter(client.transport))
        await self._leave(server, client)

    async def test_start_tls(self) -> None:
        """After C{startTLS} the very same object is no region transport any more, what was written
        before goes out in clear and first, and parts written by an old reference are encrypted.
        """
        transport, _, client = await self.join()
        options = SelfSigned()
        log = memoryview(random.Random(8).randbytes(500_000))
        transport.writeParts([log])
        transport.startTLS(options)
        self.assertIsNone(regions(transport))
        transport.writeParts([b"secret", memoryview(b" parts")])
        transport.write(b" and bytes")
        clear = await client.until(len(log))
        self.assertTrue(clear == log)
        client.data.clear()
        client.enough = Deferred()
        client.transport.startTLS(CertificateOptions())  # type: ignore[union-attr]
        self.assertEqual(await client.until(22), b"secret parts and bytes")

    async def test_scatter_after_start_tls(self) -> None:
        """Ciphertext is never scattered into a log."""
        _, _, client = await self.join(portable=False)
        transport: Any = client.transport
        transport.startTLS(CertificateOptions())
        self.assertIsNone(scatter(transport))
        self.assertRaises(RuntimeError, transport.start_scatter, MemorySink(), FRESH, MAX)

    async def test_wrapper(self) -> None:
        """Any other wrapping factory hides the transport as well."""
        server, client = End(), End()
        port = await self.serve(WrappingFactory(Once(server)))
        client.made = lambda end: end.transport.write(b"x")  # type: ignore[union-attr]
        await zero_copy_endpoint(reactor, "127.0.0.1", port).connect(Once(client))
        await server.until(1)
        self.assertIsInstance(server.transport, ProtocolWrapper)
        self.assertIsNone(regions(server.transport))
        await self._leave(server, client)

    def test_anything_else(self) -> None:
        """Other objects are no such transports."""
        for other in (None, object(), self):
            self.assertIsNone(regions(other))
            self.assertIsNone(scatter(other))
