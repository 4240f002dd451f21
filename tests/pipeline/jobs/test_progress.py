"""Tests for L{rmqha.pipeline.jobs.progress}: what is said while tasks run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from io import StringIO
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

try:
    from rmqha.pipeline.jobs import progress
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class FakeTimer:
    """A timer whose time comes when a test says so."""

    daemon = False

    def __init__(self, wait: float, call: Callable[..., object], given: Any, named: Any) -> None:
        self._call = call
        self._given, self._named = given, named
        self.due = False
        FakeTimer.last = self

    last: FakeTimer

    def start(self) -> None:
        self.due = True

    def cancel(self) -> None:
        self.due = False

    def pass_time(self) -> None:
        if self.due:
            self._call(*self._given, **self._named)


class WaitingTests(SynchronousTestCase):
    """A job that does not get on says so, where nobody sees a bar too."""

    def said(self, done: int) -> str:
        """What is said when so many tasks have finished at the end of the time."""
        err = StringIO()
        self.patch(sys, "stderr", err)
        self.patch(progress, "Timer", FakeTimer)
        taken: list[progress.Told] = []

        def counted(spark: object, told: progress.Told) -> Any:
            taken.append(told)
            return nullcontext()

        self.patch(progress, "counted", counted)
        with progress.bar("exporting")(None):
            taken[0](done, 4)
            FakeTimer.last.pass_time()
        FakeTimer.last.pass_time()
        return err.getvalue()

    def test_nothing_done(self) -> None:
        """After half a minute without a finished task one line names what helps."""
        said = self.said(0)
        self.assertEqual(1, said.count("exporting: no task has finished in 30 s"))
        self.assertIn("--priority normal", said)

    def test_some_done(self) -> None:
        """A job that gets on says nothing."""
        self.assertEqual("", self.said(1))
