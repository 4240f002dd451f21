"""Tables on disk: when they are written, and what becomes of one that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from rmqha.broker.tables.persisted import RETRY, Persisted
from rmqha.logfiles import json_table
from rmqha.store.tables.checked_table import CheckedTables
from tests.support.health import unhealthy
from tests.support.logs import Held, LogTestCase, now


class PersistedTests(LogTestCase):
    """L{Persisted}, with threads and time played by hand."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.path = self.folder() / "config" / "numbers.json"
        self.number = 0

    def made(self, in_thread: Any = now, interval: float = 0.0) -> Persisted:
        return Persisted(
            self.path,
            lambda: {"n": self.number},
            self.clock,
            in_thread,
            interval,
            tables=CheckedTables(self.path.parent.parent),
        )

    def on_disk(self) -> object:
        table = json_table.read(self.path)
        return None if table is None else table["n"]

    def test_coalesced(self) -> None:
        """Many changes are one write, at most the interval after the first."""
        table = self.made(now, 1.0)
        written: list[Path] = []
        real = json_table.replace
        self.patch(
            json_table, "replace", lambda path, *more: (written.append(path), real(path, *more))
        )
        for self.number in range(1, 6):
            table.dirty()
            self.clock.advance(0.1)
        self.assertIsNone(self.on_disk())
        self.clock.advance(0.5)
        self.assertEqual((self.on_disk(), len(written)), (5, 1))
        self.clock.advance(100)
        self.assertEqual(len(written), 1)

    def test_load(self) -> None:
        """What was written is read; where nothing was there is nothing."""
        table = self.made()
        self.assertIsNone(table.load())
        self.number = 7
        table.dirty()
        self.successResultOf(table.save_now())
        self.assertEqual(self.made().load(), {"n": 7})

    def test_generation_before(self) -> None:
        """A table that is cut short is not silently an older one; it is kept, and written anew."""
        table = self.made()
        for self.number in (1, 2):
            table.dirty()
            self.successResultOf(table.save_now())
        self.path.write_bytes(self.path.read_bytes()[:3])
        again = self.made()
        self.assertEqual(again.load(), {"n": 1})
        assert again.read is not None
        self.assertTrue(again.read.older)
        self.assertIn("numbers.json: ", again.read.fault)
        (aside,) = (self.path.parent.parent / "rmqha" / "aside").iterdir()
        self.assertEqual(len(aside.read_bytes()), 3)
        self.number = 1
        self.clock.advance(0)
        self.assertEqual(self.on_disk(), 1)
        well = self.made()
        self.assertEqual(well.load(), {"n": 1})
        assert well.read is not None
        self.assertEqual(well.read.fault, "")

    def test_gone(self) -> None:
        """A table whose file is gone is the generation before it."""
        table = self.made()
        for self.number in (1, 2):
            table.dirty()
            self.successResultOf(table.save_now())
        self.path.unlink()
        again = self.made()
        self.assertEqual(again.load(), {"n": 1})
        assert again.read is not None
        self.assertEqual(again.read.fault, "numbers.json is missing")

    def test_at_once(self) -> None:
        """Without an interval a change is written in the reactor's next turn."""
        table = self.made()
        self.number = 3
        table.dirty()
        self.assertIsNone(self.on_disk())
        self.clock.advance(0)
        self.assertEqual(self.on_disk(), 3)

    def test_changed_meanwhile(self) -> None:
        """A change during a write is written after it."""
        thread = Held()
        table = self.made(thread)
        self.number = 1
        table.dirty()
        saving = table.save_now()
        self.number = 2
        table.dirty()
        again = table.save_now()
        thread.work()
        self.successResultOf(saving)
        self.assertEqual(self.on_disk(), 1)
        self.assertNoResult(again)
        thread.work()
        self.successResultOf(again)
        self.assertEqual(self.on_disk(), 2)

    def test_stop(self) -> None:
        """A stop writes what is left, and nothing is written afterwards."""
        table = self.made()
        self.number = 3
        table.dirty()
        self.successResultOf(table.stop())
        self.assertEqual((self.on_disk(), self.clock.getDelayedCalls()), (3, []))
        table.dirty()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nothing_to_write(self) -> None:
        """A table nobody changed is not written."""
        self.successResultOf(self.made().stop())
        self.assertFalse(self.path.exists())

    def test_failing_disk(self) -> None:
        """A table that cannot be written is tried again, and who waits for it is told."""
        table = self.made()
        self.path.parent.write_text("in the way", encoding="ascii")
        self.number = 4
        table.dirty()
        self.failureResultOf(table.save_now(), OSError)
        self.path.parent.unlink()
        self.clock.advance(RETRY)
        self.assertEqual(self.on_disk(), 4)

    def test_trouble(self) -> None:
        """A table that cannot be written again and again is a trouble of its node, until it is."""
        table = self.made()
        self.path.parent.write_text("in the way", encoding="ascii")
        table.dirty()
        self.clock.pump([0.0, RETRY])
        self.assertEqual(unhealthy(table.job), "")
        self.clock.advance(RETRY)
        self.assertIn("failed 3 times in a row: ", unhealthy(table.job))
        self.path.parent.unlink()
        self.clock.advance(RETRY)
        self.assertEqual((table.job.runs, unhealthy(table.job)), (4, ""))

    def test_failing_at_stop(self) -> None:
        """A stop ends all the same."""
        table = self.made()
        self.path.parent.write_text("in the way", encoding="ascii")
        table.dirty()
        self.successResultOf(table.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_burst_during_a_slow_write(self) -> None:
        """Five thousand changes during one write are one more write, and nothing waits for ever."""
        thread = Held()
        table = self.made(thread)
        self.number = 1
        table.dirty()
        self.clock.advance(0)
        waiting = []
        for self.number in range(2, 5_002):
            table.dirty()
            self.clock.advance(0)
            waiting.append(table.save_now())
        thread.work()
        self.assertEqual(self.on_disk(), 1)
        thread.work()
        self.assertEqual(self.on_disk(), 5_001)
        for saved in waiting:
            self.successResultOf(saved)
        self.number += 1
        table.dirty()
        stopped = table.stop()
        thread.work()
        self.successResultOf(stopped)
        self.assertEqual(self.on_disk(), 5_002)
