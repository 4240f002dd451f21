"""Tests for L{rmqha.shutdown}."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import DiskFull, ShutdownFailed
from rmqha.shutdown import NOTICE, Shutdown
from tests.support.log_lines import log_lines


class ShutdownTests(SynchronousTestCase):
    """Steps that fail, and those behind them."""

    def setUp(self) -> None:
        self.lines = log_lines(self)

    def broken(self) -> None:
        raise ZeroDivisionError

    def test_every_step_is_taken(self) -> None:
        """A step that raises and one whose Deferred fails skip none; both are logged and told."""
        taken: list[int] = []
        shutdown = Shutdown("the test")
        self.successResultOf(shutdown.step("first", self.broken))
        self.successResultOf(shutdown.step("second", lambda: fail(DiskFull("/here", 7))))
        self.successResultOf(shutdown.step("third", taken.append, 3))
        self.assertEqual(taken, [3])
        error = self.assertRaises(ShutdownFailed, shutdown.finish)
        self.assertEqual(error.steps, ("first", "second"))
        self.assertEqual(str(error), "shutdown of the test: failed steps: first, second")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertIn("Shutdown of the test: first failed", self.lines[0])
        self.assertIn("Shutdown of the test: second failed: ", self.lines[1])
        self.assertIn("/here", self.lines[1])

    def test_waits(self) -> None:
        """A step is over when its Deferred has fired."""
        shutdown, slow = Shutdown("the test"), Deferred[None]()
        step = shutdown.step("slow", lambda: slow)
        self.assertNoResult(step)
        slow.callback(None)
        self.successResultOf(step)
        shutdown.finish()

    def test_inner_shutdown(self) -> None:
        """The steps of a part that failed are logged once, by the part."""
        outer = Shutdown("the whole")
        self.successResultOf(
            outer.step("a part", lambda: fail(ShutdownFailed("a part", ("its step",))))
        )
        self.assertEqual(self.lines, [])
        self.assertRaises(ShutdownFailed, outer.finish)

    def test_says_what_it_waits_for(self) -> None:
        """A step that takes long is named every ten seconds, until it is over."""
        clock, slow = Clock(), Deferred[None]()
        shutdown = Shutdown("the store", clock)
        step = shutdown.step("flushing the log", lambda: slow)
        clock.pump([NOTICE, NOTICE])
        self.assertEqual(
            self.lines[1], "Shutdown of the store: still waiting for flushing the log after 20 s"
        )
        slow.callback(None)
        self.successResultOf(step)
        shutdown.finish()
        self.assertEqual(clock.getDelayedCalls(), [])

    def test_deadline(self) -> None:
        """A step that is not over within the deadline has failed, and the next one is taken."""
        clock = Clock()
        shutdown = Shutdown("the broker", clock, deadline=5.0)
        step = shutdown.step("tables", Deferred)
        clock.advance(4.9)
        self.assertNoResult(step)
        clock.advance(0.1)
        self.successResultOf(step)
        self.assertEqual(
            self.lines, ["Shutdown of the broker: tables was not over within 5 s, and is left"]
        )
        self.assertRaises(ShutdownFailed, shutdown.finish)
        self.assertEqual(clock.getDelayedCalls(), [])
