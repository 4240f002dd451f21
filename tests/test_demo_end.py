"""Tests for what a demo waits for, and for how it says what came out."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from types import SimpleNamespace

from rich.console import Console
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import demo_end, nodes


class UntilTests(SynchronousTestCase):
    """What gets on is waited for longer than what does not."""

    def waited(self, moves_for: float, true_at: float = 1e9) -> float:
        """For how many seconds a condition with 10 s of patience is waited for, as it moves so."""
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

        def run() -> bool:
            assert not error, error
            return False

        return self.told_of(run)

    def told_of(self, run: Callable[[], bool], ledger: tuple[str, ...] = (), code: int = 1) -> str:
        """What is said at the end of a demo that runs so, and whose clients were told that."""
        self.did: list[object] = []
        self.patch(demo_end, "end_all", lambda: self.did.append("ended"))
        self.patch(demo_end, "keep_evidence", lambda *given: self.did.append(given))
        shown = StringIO()
        folder = SimpleNamespace(path="there", remove=lambda: self.did.append("removed"))
        story = SimpleNamespace(run=run, folder=folder, processes=("node",), ledger=ledger)
        console = Console(file=shown, width=120)
        self.assertEqual(code, demo_end.told(console, story, "All is well."))
        return shown.getvalue()

    def test_said(self) -> None:
        """It names what did not begin; only what was compared is said to differ."""
        said = self.told("not within 60 s: names: open")
        self.assertIn("names: open", said)
        self.assertIn("It did not get to its end", said)
        self.assertNotIn("differs", said)
        self.assertIn("Something differs or is missing", self.told(""))

    def test_evidence(self) -> None:
        """What tells why is kept if something acknowledged is not well, but not at interrupts."""
        self.told_of(lambda: False, ("m",))
        self.assertEqual(self.did, ["ended", ("there", ("node",), ("m",)), "removed"])

        def fail() -> bool:
            raise AssertionError("not consumed")

        self.told_of(fail, ("m",))
        self.assertEqual(self.did, ["ended", ("there", ("node",), ("m",)), "removed"])

        def interrupt() -> bool:
            raise KeyboardInterrupt

        self.told_of(interrupt, ("m",))
        self.assertEqual(self.did, ["ended", "removed"])
        self.told_of(lambda: False)
        self.assertEqual(self.did, ["ended", "removed"])
        self.told_of(lambda: True, ("m",), code=0)
        self.assertEqual(self.did, ["ended", "removed"])
