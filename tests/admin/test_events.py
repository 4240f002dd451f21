"""What happened to a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.admin.events import LOOK, MOST, Events
from rmqha.event_file import Event, append, read


class EventsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.facts: dict[str, tuple[str, str]] = {"state": ("recovering", "reading")}
        self.events = self.made()
        self.path = Path(self.mktemp()) / "events.jsonl"

    def made(self, in_thread: Any = maybeDeferred) -> Events:
        return Events(
            lambda: self.facts,
            self.clock,
            in_thread,
            now_ms=lambda: int(self.clock.seconds() * 1000),
        )

    def told(self) -> list[tuple[str, str]]:
        return [(row["kind"], row["text"]) for row in self.events.rows()]

    def test_edges(self) -> None:
        """A changed state is an event, with what it was before; a changed reason is none."""
        self.events.start()
        for facts in (
            {"state": ("recovering", "still reading")},
            {"state": ("serving", "")},
            {"state": ("serving", ""), "replica a": ("in-sync", ""), "lost": ("0", "")},
            {
                "state": ("disk-full", "no room for 5 bytes"),
                "replica a": ("in-sync", ""),
                "lost": ("0", ""),
            },
            {"state": ("disk-full", "no room for 6 bytes"), "lost": ("7", "")},
        ):
            self.facts = facts
            self.clock.advance(LOOK)
        self.assertEqual(
            self.told(),
            [
                ("state", "recovering -> serving"),
                ("replica a", "in-sync"),
                ("state", "serving -> disk-full: no room for 5 bytes"),
                ("lost", "0 -> 7"),
                ("replica a", "in-sync -> gone"),
            ],
        )
        self.assertEqual(self.events.rows()[0]["time"], 2000)

    def test_bounded(self) -> None:
        """Memory has the latest."""
        for n in range(2 * MOST):
            self.events.note("repair", str(n))
        self.assertEqual(len(self.told()), MOST)
        self.assertEqual(self.told()[-1], ("repair", str(2 * MOST - 1)))

    def test_restart(self) -> None:
        """A restart keeps what was before it, and what happened before the store was open."""
        append(self.path, [Event(-5, "promotion", "by a command")])
        self.events.note("start", "first")
        self.successResultOf(self.events.keep_in(self.path))
        self.events.note("stop", "first")
        self.successResultOf(self.events.leave())
        self.events.note("late", "the store is closed")
        before = [("promotion", "by a command"), ("start", "first"), ("stop", "first")]
        self.assertEqual(self.told()[:3], before)
        self.events = self.made()
        self.successResultOf(self.events.keep_in(self.path))
        self.assertEqual(self.told(), before)

    def test_one_write_at_a_time(self) -> None:
        """What happens during a write is in the next one, and leaving waits for that."""
        jobs: list[Any] = []

        def in_thread(function: Any, *args: Any) -> Deferred[Any]:
            jobs.append((done := Deferred(), function, args))
            return done

        def work() -> None:
            done, function, args = jobs.pop(0)
            done.callback(function(*args))

        self.events = self.made(in_thread)
        kept = self.events.keep_in(self.path)
        work()
        self.successResultOf(kept)
        for n in range(3):
            self.events.note("repair", str(n))
        self.assertEqual(len(jobs), 1)
        left = self.events.leave()
        work()
        self.assertNoResult(left)
        work()
        self.successResultOf(left)
        self.assertEqual([event.text for event in read(self.path)], ["0", "1", "2"])

    def test_no_room(self) -> None:
        """A disk that takes nothing costs only what a restart would have kept."""
        self.path.mkdir(parents=True)
        self.successResultOf(self.events.keep_in(self.path))
        self.events.note("state", "disk-full")
        self.events.note("state", "serving")
        self.successResultOf(self.events.leave())
        self.assertEqual(len(self.told()), 2)
