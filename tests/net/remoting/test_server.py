"""Who may connect, one conversation of both ends, and servers by their names."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from attrs import define, field
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.test.iosim import connect, makeFakeClient, makeFakeServer
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.settings import TlsMode
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.net.remoting.server import RemotingFactory
from rmqha.net.remoting.server_names import PERIOD, ServerNames, look_up
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


A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.10"
NAMES = "names.test:9876"


@define
class Resolver:
    """The reactor's, which is the test: addresses by host."""

    known: dict[str, tuple[str, ...]] = field(factory=dict)

    @property
    def nameResolver(self) -> Resolver:
        return self

    def resolveHostName(self, receiver: Any, hostName: str) -> None:
        receiver.resolutionBegan(None)
        for host in self.known.get(hostName, ()):
            kind: Any = IPv6Address if ":" in host else IPv4Address
            receiver.addressResolved(kind("TCP", host, 0))
        receiver.resolutionComplete()


class LookUpTests(SynchronousTestCase):
    def found(self, *known: str) -> tuple[str, ...]:
        """What is found of a host with these addresses."""
        return self.successResultOf(look_up(Resolver({"names.test": known}), "names.test"))

    def test_all(self) -> None:
        """Each address is told once, by number, in whatever order they come."""
        self.assertEqual(self.found(C, A, B, A), (A, B, C))
        self.assertEqual(self.found("fd00::2", "fd00::1"), ("fd00::1", "fd00::2"))

    def test_both_kinds(self) -> None:
        """Of both kinds it is IPv4 that counts, as with stock brokers."""
        self.assertEqual(self.found("fd00::1", B), (B,))

    def test_none(self) -> None:
        """A host that is not known has none."""
        self.assertEqual(self.found(), ())


class NamesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {"names.test": (A, B)}
        self.changes: list[tuple[str, ...]] = []
        self.configured = [NAMES, "10.0.0.9:9876", "localhost:9876", "[::1]:9876"]
        self.names = ServerNames(
            self.answer,
            self.clock,
            lambda: self.configured,
            lambda: self.changes.append(self.names.servers),
        )
        self.addCleanup(self.names.stop)

    def answer(self, host: str) -> Deferred[tuple[str, ...]]:
        self.asked.append(host)
        found = self.answers.get(host, ())
        if isinstance(found, Deferred):
            return found
        return fail(found) if isinstance(found, Exception) else succeed(found)

    def test_all(self) -> None:
        """A name counts as all its addresses, in its place; what is none is not looked up."""
        self.names.start()
        rest = ("10.0.0.9:9876", "localhost:9876", "[::1]:9876")
        self.assertEqual(self.names.servers, (f"{A}:9876", f"{B}:9876", *rest))
        self.assertEqual(self.asked, ["names.test"])

    def test_again(self) -> None:
        """After a while it is looked up again, and only what is other is told."""
        self.names.start()
        self.configured = [NAMES]
        for found in ((A, B), (B, C)):
            self.answers["names.test"] = found
            self.clock.advance(PERIOD)
        self.assertEqual(self.names.servers, (f"{B}:9876", f"{C}:9876"))
        self.assertEqual((len(self.asked), len(self.changes)), (3, 2))

    def test_once(self) -> None:
        """An address that is listed too, or has two names, is one name server."""
        self.configured = [NAMES, f"{A}:9876", "other.test:9876"]
        self.answers["other.test"] = (B, C)
        self.names.start()
        self.assertEqual(self.names.servers, (f"{A}:9876", f"{B}:9876", f"{C}:9876"))

    def test_six(self) -> None:
        """Addresses of IPv6 are put in brackets."""
        self.answers["names.test"] = ("fd00::1",)
        self.names.start()
        self.assertEqual(self.names.servers[0], "[fd00::1]:9876")

    def test_failed(self) -> None:
        """What was known stays when a lookup fails, and that is said once; so is its end."""
        said: list[str] = []

        def observe(event: LogEvent) -> None:
            said.append(formatEvent(event))

        self.patch(ServerNames, "_log", Logger(observer=observe))
        self.names.start()
        known = self.names.servers
        for answer in ((), OSError("no resolver"), ()):
            self.answers["names.test"] = answer
            self.clock.advance(PERIOD)
            self.assertEqual(self.names.servers, known)
        found = f"Addresses of names.test: {A}, {B}"
        lost = f"Cannot look up names.test, going on with {A}, {B}"
        for answer in ((A, B), OSError("no resolver")):
            self.answers["names.test"] = answer
            self.clock.advance(PERIOD)
        expected = [found, f"{lost}: no address is known", found, f"{lost}: no resolver"]
        self.assertEqual((said, len(self.changes)), (expected, 1))

    def test_unknown(self) -> None:
        """A name that was never found stands for itself."""
        self.answers.clear()
        self.names.start()
        self.assertEqual(self.names.servers[0], NAMES)

    def test_slow(self) -> None:
        """A lookup that takes long delays no other, and is not begun twice."""
        slow: Deferred[tuple[str, ...]] = Deferred()
        self.configured = ["slow.test:9876", NAMES]
        self.answers["slow.test"] = slow
        self.names.start()
        self.clock.advance(PERIOD)
        self.assertEqual(self.names.servers, ("slow.test:9876", f"{A}:9876", f"{B}:9876"))
        self.assertEqual(self.asked.count("slow.test"), 1)
        slow.callback((C,))
        self.assertEqual(self.names.servers[0], f"{C}:9876")

    def test_look(self) -> None:
        """Who waits for the answers may give up."""
        slow = self.answers["names.test"] = Deferred()
        looking = self.names.looked()
        self.assertNoResult(looking)
        looking.addTimeout(3.0, self.clock, lambda result, _: None)
        self.clock.advance(3.0)
        self.successResultOf(looking)
        slow.callback((A,))
        self.assertEqual(self.names.servers[0], f"{A}:9876")

    def test_dialled(self) -> None:
        """Whoever is found by a name is known by it, whoever is listed by an address is not."""
        self.names.start()
        told = [self.names.dialled(each) for each in (f"{A}:9876", f"{A}:10911", "10.0.0.9:9876")]
        self.assertEqual(told, ["names.test", "", ""])
