"""Tests for L{rmqha.store.files.one_thread}."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, get_ident
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rmqha.store.files import one_thread
from rmqha.store.files.one_thread import OneThread, ThreadNotStarted


class Here:
    """A reactor that is told everything where it is said."""

    def callFromThread(self, function: Callable[..., Any], *args: Any) -> None:
        function(*args)


class OneThreadTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.one = OneThread(Here(), "test")  # type: ignore[arg-type]
        self.addCleanup(self.one.stop)

    def test_results(self) -> None:
        """What a function returns or raises is told, and it ran elsewhere; a stop waits for it."""
        where = self.one.call(get_ident)
        number = self.one.call(int, "12", base=8)
        wrong = self.one.call(int, "x")
        self.one.stop()
        self.assertNotEqual(self.successResultOf(where), get_ident())
        self.assertEqual(self.successResultOf(number), 10)
        self.failureResultOf(wrong, ValueError)

    def test_one_after_the_other(self) -> None:
        """Nothing begins before what was asked for earlier has ended."""
        go, seen = Event(), []

        def first() -> None:
            go.wait(10.0)
            seen.append("first")

        done = self.one.call(first)
        self.one.call(seen.append, "second")
        self.assertEqual(seen, [])
        self.assertNoResult(done)
        go.set()
        self.one.stop()
        self.assertEqual(seen, ["first", "second"])

    def test_stop_without_work(self) -> None:
        """Where nothing was asked for there is nothing to end, and a stop is a stop twice."""
        self.one.stop()
        self.one.stop()

    def test_no_thread(self) -> None:
        """Without a thread the call fails and a stop does not wait; a later call has one."""

        def start(thread: object) -> None:
            raise RuntimeError("can't start new thread")

        patched = self.patch(one_thread.Thread, "start", start)
        for _ in range(2):
            error = self.failureResultOf(self.one.call(get_ident), ThreadNotStarted).value
            self.assertIn("test: can't start", str(error))
        self.one.stop()
        patched.restore()
        done = self.one.call(int, "12")
        self.one.stop()
        self.assertEqual(self.successResultOf(done), 12)
