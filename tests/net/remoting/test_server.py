"""Who may connect, and one conversation of both ends."""

from __future__ import annotations

from ipaddress import ip_network

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.test.iosim import connect, makeFakeClient, makeFakeServer
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.settings import TlsMode
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.net.remoting.server import RemotingFactory
from rmqha.net.tls.gate import HANDSHAKE_TIMEOUT, TlsGate
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import encode

NEAR = IPv4Address("TCP", "10.0.0.1", 40000)
FAR = IPv4Address("TCP", "192.0.2.1", 40000)
FRAME = encode(Command(code=30_000))
HELLO = b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03"


class AdmissionTests(SynchronousTestCase):
    def join(self, factory: RemotingFactory, address: IPv4Address = NEAR) -> StringTransport | None:
        protocol = factory.buildProtocol(address)
        if protocol is None:
            return None
        transport = StringTransport(peerAddress=address)
        protocol.makeConnection(transport)
        self.protocol = protocol
        return transport

    def test_not_allowed(self) -> None:
        """Who is not on the list is refused before anything is read."""
        factory = RemotingFactory(Registry(), Clock(), allowed=[ip_network("10.0.0.0/8")])
        self.assertIsNone(self.join(factory, FAR))
        self.assertIsNotNone(self.join(factory, NEAR))
        self.assertEqual(factory.connections.closed, {"not-allowed": 1})

    def test_too_many(self) -> None:
        """One connection too many is refused; the others, which have asked something, stay."""
        limits = ConnectionLimits(connections=lambda: 2)
        factory = RemotingFactory(Registry(), Clock(), limits=limits)
        for _ in range(2):
            self.assertIsNotNone(self.join(factory))
            self.protocol.dataReceived(FRAME)
        self.assertIsNone(self.join(factory))
        self.assertEqual(factory.connections.status()["connections"], 2)
        self.assertEqual(factory.connections.closed, {"too-many": 1})

    def test_silent_ones_make_room(self) -> None:
        """Connections that have sent no request keep nobody out: the oldest of them goes."""
        limits = ConnectionLimits(connections=lambda: 2)
        factory = RemotingFactory(Registry(), Clock(), limits=limits)
        self.join(factory)
        self.protocol.dataReceived(FRAME[:-1])
        silent = self.protocol
        self.join(factory)
        self.assertIsNotNone(self.join(factory))
        self.assertFalse(silent.opened)
        self.assertEqual(factory.connections.closed, {"crowded-out": 1})

    def test_stopped(self) -> None:
        """After a stop nobody is taken."""
        factory = RemotingFactory(Registry(), Clock())
        self.successResultOf(factory.connections.stop())
        self.assertIsNone(self.join(factory))

    def first_bytes(self, gate: TlsGate | None, data: bytes) -> str:
        """What becomes of a connection that begins so: why closed, or what was answered."""
        factory = RemotingFactory(Registry(), Clock(), gate=gate)
        transport = self.join(factory)
        assert transport is not None
        self.protocol.dataReceived(data)
        if factory.connections.closed:
            self.assertTrue(transport.disconnected)
            return next(iter(factory.connections.closed))
        return "answered" if transport.value() else "silence"

    def test_first_byte(self) -> None:
        """The first byte tells TLS from clear text, and the mode which of them may stay."""
        context = object()
        for gate, clear, hello in (
            (None, "answered", "tls-disabled"),
            (TlsGate(TlsMode.DISABLED, context), "answered", "tls-disabled"),
            (TlsGate(TlsMode.PERMISSIVE), "answered", "tls-disabled"),
            (TlsGate(TlsMode.ENFORCING, context), "clear-text", "tls"),
        ):
            self.assertEqual(self.first_bytes(gate, FRAME), clear)
            if hello != "tls":
                self.assertEqual(self.first_bytes(gate, HELLO), hello)

    def test_silence(self) -> None:
        """Where only TLS may stay silence has a handshake's time, else the idle limit."""
        for mode, closed in ((TlsMode.ENFORCING, {"tls-handshake": 1}), (TlsMode.PERMISSIVE, {})):
            clock = Clock()
            factory = RemotingFactory(Registry(), clock, gate=TlsGate(mode, object()))
            self.join(factory)
            clock.pump([1.0] * int(HANDSHAKE_TIMEOUT + 2))
            self.assertEqual(factory.connections.closed, closed, mode)

    def test_enforcing_needs_a_certificate(self) -> None:
        """A port that takes TLS alone and has no certificate would take nobody."""
        self.assertRaises(ValueError, TlsGate, TlsMode.ENFORCING)


class BothEndsTests(SynchronousTestCase):
    def test_both_ask(self) -> None:
        """Both ends ask the other at the same time over one connection."""
        clock = Clock()
        registry = Registry()
        registry.register(1, lambda connection, command: command.answer(body=command.body))
        server = RemotingFactory(registry, clock).buildProtocol(NEAR)
        assert server is not None
        client = RemotingProtocol(Connections(clock, registry, ConnectionLimits()))
        pump = connect(server, makeFakeServer(server), client, makeFakeClient(client))
        asked: list[tuple[bytes, Deferred[Command]]] = []
        for number in range(50):
            for end in (server, client):
                body = bytes([number]) * number
                asked.append((body, end.request(Command(code=1, body=body))))
        clock.advance(0)
        pump.flush()
        for body, answered in asked:
            self.assertEqual(self.successResultOf(answered).body, body)
