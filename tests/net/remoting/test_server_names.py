"""Tests for L{rmqha.net.remoting.server_names}."""

from __future__ import annotations

from typing import Any

from attrs import define, field
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.remoting.server_names import PERIOD, ServerNames, look_up

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
