"""Tests for what a demo waits for, and for how it says what came out."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

from rich.console import Console
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import demo_end, nodes


class UntilTests(SynchronousTestCase):
    """What gets on is waited for longer than what does not."""

    def waited(self, moves_for: float, true_at: float = 1e9) -> float:
        """How long a condition is waited for, with 10 s of patience, in seconds.

        @param moves_for: How long there is progress.
        """
        clock = Clock()
        self.patch(nodes, "time", SimpleNamespace(monotonic=clock.seconds, sleep=clock.advance))
        try:
            nodes.until(
                lambda: clock.seconds() >= true_at,
                "it begins",
                10.0,
                pause=0.5,
                progress=lambda: min(clock.seconds(), moves_for),
            )
        except AssertionError as error:
            self.assertIn("it begins", str(error))
        return clock.seconds()

    def test_no_progress(self) -> None:
        """What does not get on has its time."""
        self.assertEqual(10.5, self.waited(0.0))

    def test_progress(self) -> None:
        """As long as it gets on it has that time again, but not for ever."""
        self.assertEqual(32.0, self.waited(1e9, true_at=32.0))
        self.assertLess(25.0, self.waited(25.0))
        self.assertLess(self.waited(25.0), 50.0)
        self.assertLess(self.waited(1e9), 70.0)


class ToldTests(SynchronousTestCase):
    """A demo that did not come so far does not say that messages are missing."""

    def told(self, error: str) -> str:
        """What is said at the end of a demo that fails, or finds something wrong."""
        self.patch(demo_end, "end_all", lambda: None)
        shown = StringIO()

        def run() -> bool:
            assert not error, error
            return False

        story = SimpleNamespace(run=run, folder=SimpleNamespace(remove=lambda: None))
        console = Console(file=shown, width=120)
        self.assertEqual(1, demo_end.told(console, story, "All is well."))
        return shown.getvalue()

    def test_said(self) -> None:
        """It names what did not begin; only what was compared is said to differ."""
        said = self.told("not within 60 s: names: open")
        self.assertIn("names: open", said)
        self.assertIn("It did not get to its end", said)
        self.assertNotIn("differs", said)
        self.assertIn("Something differs or is missing", self.told(""))
