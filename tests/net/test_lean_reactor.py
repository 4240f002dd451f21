"""A node's reactor."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.lean_reactor import LeanReactor, at_turn_end
from tests.support.commands import ended


class _End(FileDescriptor):
    """One end of a pair of sockets, what was read, and why it ended."""

    def __init__(self, end: socket.socket, reactor: Any) -> None:
        super().__init__(reactor)
        end.setblocking(False)
        self.end, self.came = end, b""
        self.lost: Failure | None = None
        self.fileno = end.fileno  # type: ignore[method-assign]
        self.startReading()

    def doRead(self) -> Exception | None:
        """Read; C{!} is a bug of ours, and nothing the end."""
        data = self.end.recv(100)
        if data == b"!":
            raise ZeroDivisionError("a bug")
        self.came += data
        return None if data else ConnectionDone()

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self.lost = reason


class LeanReactorTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A reactor that nobody else has, and two ends in it."""
        self.reactor = LeanReactor()
        self.far, self.ends = [], []
        for _ in range(2):
            near, far = socket.socketpair()
            self.addCleanup(near.close)
            self.addCleanup(far.close)
            self.far.append(far)
            self.ends.append(_End(near, self.reactor))
        self.addCleanup(self.reactor.removeAll)

    def test_reads(self) -> None:
        """What is ready is read; what is not, waits no longer than it may."""
        self.far[0].send(b"one")
        self.reactor.iterate(0)
        self.reactor.iterate(0)
        self.assertEqual([b"one", b""], [end.came for end in self.ends])

    def test_bug(self) -> None:
        """A handler that fails is logged and ends its connection, not the others'."""
        for far, data in zip(self.far, (b"!", b"two"), strict=True):
            far.send(data)
        self.reactor.iterate(0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        lost = self.ends[0].lost
        assert lost is not None
        self.assertIsInstance(lost.value, ZeroDivisionError)
        self.assertEqual(b"two", self.ends[1].came)
        self.assertIsNone(self.ends[1].lost)

    def test_bug_at_the_end(self) -> None:
        """A handler that fails when it is told of its end is logged, and others are served."""

        def lost(reason: Failure) -> None:
            raise ZeroDivisionError("a bug")

        for end in self.ends:
            self.patch(end, "connectionLost", lost)
        for far in self.far:
            far.close()
        self.reactor.iterate(0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
        self.assertEqual(len(self.reactor.getReaders()), self._wakers())

    def test_end(self) -> None:
        """One that says it is over is told so, and not called again."""
        self.far[0].close()
        self.reactor.iterate(0)
        self.reactor.iterate(0)
        lost = self.ends[0].lost
        assert lost is not None
        self.assertIsInstance(lost.value, ConnectionDone)

    def test_closed_by_another(self) -> None:
        """What was ready, and is closed by what was served before it, is not called."""
        for end, other in zip(self.ends, reversed(self.ends), strict=True):
            self.patch(end, "doRead", other.stopReading)
        for far in self.far:
            far.send(b"x")
        self.reactor.iterate(0)
        self.assertEqual(len(self.reactor.getReaders()), 1 + self._wakers())

    def test_turn_end(self) -> None:
        """What is to leave at a turn's end does when all was read, before timers that are due; if
        a timer asks for it, before the reactor waits.
        """
        seen: list[str] = []
        for far, end in zip(self.far, self.ends, strict=True):
            far.send(b"x")
            self.patch(end, "doRead", lambda: at_turn_end(self.reactor, self._told(seen, "end")))
        self.reactor.callLater(0, seen.append, "timer")
        self.reactor.doPoll(0)
        self.assertEqual(seen, ["end", "end"])
        self.reactor.callLater(0, at_turn_end, self.reactor, self._told(seen, "its end"))
        for end in self.ends:
            end.stopReading()
        self.reactor.iterate(0)
        self.assertEqual(seen[2:], ["timer", "its end"])

    def test_bug_at_turn_end(self) -> None:
        """One that fails is logged, and others are called."""
        seen: list[str] = []
        at_turn_end(self.reactor, lambda: 1 // 0)
        at_turn_end(self.reactor, self._told(seen, "end"))
        self.reactor.iterate(0)
        self.assertEqual((len(self.flushLoggedErrors(ZeroDivisionError)), seen), (1, ["end"]))

    def test_turn_end_elsewhere(self) -> None:
        """Another reactor calls it in its next turn."""
        seen: list[str] = []
        clock = Clock()
        at_turn_end(clock, self._told(seen, "end"))
        clock.advance(0)
        self.assertEqual(seen, ["end"])

    def _told(self, seen: list[str], what: str) -> Callable[[], None]:
        return lambda: seen.append(what)

    def _wakers(self) -> int:
        return len(LeanReactor().getReaders())


class ChoiceTests(SynchronousTestCase):
    def chosen(self, *before: str) -> str:
        """The name of the reactor's class, in a process that did something before."""
        lines = (
            *before,
            "from rmqha.roles import tap",
            "from rmqha.net import lean_reactor",
            "lean_reactor.install()",
            "from twisted.internet import reactor",
            "print(type(reactor).__name__)",
        )
        run = [sys.executable, "-c", "\n".join(lines)]
        return ended(*run, check=True).stdout.strip()

    def test_ours(self) -> None:
        """Ours, if nobody has chosen; what C{twistd rmqha} imports chooses none."""
        self.assertEqual(self.chosen(), "LeanReactor")

    def test_chosen_before(self) -> None:
        """Whatever was chosen before."""
        line = "from twisted.internet import selectreactor; selectreactor.install()"
        self.assertEqual(self.chosen(line), "SelectReactor")
