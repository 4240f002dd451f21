"""Consumers' offsets between two writes of their table: what a crash at any moment leaves."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from rmqha.broker.tables import offset_journal
from rmqha.broker.tables.consumer_offsets import INTERVAL, ConsumerOffsetTable
from rmqha.broker.tables.offset_journal import RETRY, OffsetJournal
from rmqha.logfiles.json_table import Table
from rmqha.store.tables import offset_segments
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.offset_segments import SegmentWriter
from rmqha.store.tables.table_verdict import Source
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable
from rmqha.wire.store_layout import CONSUMER_OFFSETS
from tests.support.effort import tries
from tests.support.health import unhealthy
from tests.support.logs import Held, LogTestCase, now

PAUSE = 0.15

WHO = "10.0.0.1:1"

Offsets = dict[str, dict[int, int]]

#: What may happen: offsets that change in any way, time that passes, a clean restart, a crash.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "advance", "reset", "merge", "group", "topic", "wait", "later"]),
        st.sampled_from("AB"),
        st.sampled_from("gh"),
        st.integers(0, 1),
        st.integers(0, 60),
    ),
    max_size=25,
)


class Killed(BaseException):
    """The process is gone."""


class JournalTestCase(LogTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.root = self.folder()
        self.offsets = self.made()

    def made(self, in_thread: Any = now, root: Path | None = None) -> ConsumerOffsetTable:
        """The table as a new process has it."""
        files = CheckedTables(root or self.root)
        table = ConsumerOffsetTable(files, self.clock, in_thread, PAUSE)
        table.load()
        self.addCleanup(table.journal.stop)
        return table

    def crashed(self) -> ConsumerOffsetTable:
        """The table after a crash at this moment."""
        root = self.folder()
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return self.made(root=root)

    def commit(self, offset: int, queue_id: int = 0, topic: str = "T", group: str = "g") -> None:
        self.offsets.commit(group, topic, queue_id, offset, WHO)

    def held(self, table: ConsumerOffsetTable) -> Offsets:
        found = table.table().offset_table
        return {key: queues for key, queues in found.items() if queues}

    @property
    def segments(self) -> list[int]:
        return offset_segments.numbers_in(self.root / "rmqha" / "offsets")


class DurableTests(JournalTestCase):
    def test_at_once_then_paced(self) -> None:
        """After a pause a commit is written in the next turn; then there is one write in each
        interval, with all that was committed meanwhile, and none while nothing is.
        """
        written: list[int] = []
        real = SegmentWriter.append

        def append(writer: SegmentWriter, number: int, changes: Any) -> None:
            changes = list(changes)
            written.append(len(changes))
            real(writer, number, changes)

        self.patch(SegmentWriter, "append", append)
        self.commit(1)
        self.assertEqual(written, [])
        self.clock.advance(0)
        self.assertEqual(written, [1])
        for offset in range(2, 50):
            self.commit(offset)
            self.commit(offset, queue_id=1)
        self.clock.advance(PAUSE - 0.01)
        self.assertEqual(written, [1])
        self.clock.advance(0.02)
        self.assertEqual(written, [1, 2])
        self.clock.pump([1.0] * 3)
        self.assertEqual(written, [1, 2])
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 49, 1: 49}})

    def test_lost(self) -> None:
        """A crash costs what was committed since the last write of the journal, and no more."""
        self.commit(1)
        self.clock.advance(PAUSE)
        self.commit(2)
        self.clock.advance(PAUSE)
        self.commit(3)
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 2}})

    def test_set_back(self) -> None:
        """An offset set back stays so after a crash, though the table has the higher one."""
        self.commit(50)
        self.clock.advance(INTERVAL + 1)
        self.commit(10)
        self.clock.advance(PAUSE)
        self.commit(12)
        self.clock.advance(PAUSE)
        self.assertIn("50", (self.root / "config" / "consumerOffset.json").read_text())
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 12}})

    def test_deleted(self) -> None:
        """What was deleted stays so, and what came to its place since counts."""
        self.commit(50)
        self.commit(60, queue_id=1)
        self.commit(7, topic="U")
        self.clock.advance(INTERVAL + 1)
        self.offsets.remove_topic("T")
        self.offsets.remove_topic("U")
        self.clock.advance(PAUSE)
        self.assertEqual(self.held(self.crashed()), {})
        self.commit(3)
        self.clock.advance(PAUSE)
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 3}})

    def test_deleted_and_back_at_once(self) -> None:
        """The same where both come into one batch."""
        self.commit(50)
        self.commit(60, queue_id=1)
        self.clock.advance(INTERVAL + 1)
        self.offsets.remove_group("g")
        self.commit(3)
        self.clock.advance(PAUSE)
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 3}})

    @given(STEPS, st.integers(0, 3))
    @run_settings(max_examples=tries(120), deadline=None)
    def test_any_crash(self, steps: list[tuple[Any, ...]], torn: int) -> None:
        """Whatever happens, a torn one too, a crash finds one moment, an interval back at most."""
        self.setUp()
        states = [self.held(self.offsets)]
        for what, topic, group, queue_id, offset in steps:
            if what == "commit":
                self.commit(offset, queue_id, topic, group)
            elif what == "advance":
                self.offsets.advance(group, topic, queue_id, offset)
            elif what == "reset":
                self.offsets.reset(group, topic, queue_id, offset)
            elif what == "merge":
                table = OffsetTable(offset_table={f"{topic}@{group}": {0: offset, 1: offset}})
                self.offsets.merge_max(table)
            elif what == "group":
                self.offsets.remove_group(group)
            elif what == "topic":
                self.offsets.remove_topic(topic)
            else:
                self.clock.advance(INTERVAL if what == "later" else PAUSE)
                self.clock.advance(0)
                states = [self.held(self.offsets)]
            states.append(self.held(self.offsets))
            self.assertIn(self.held(self.crashed()), states)
        self.clock.advance(PAUSE)
        self.assertEqual(self.held(self.crashed()), self.held(self.offsets))


class CompactTests(JournalTestCase):
    def test_files_go(self) -> None:
        """Each generation of the table begins a file; those before it stay, for its C{.bak}."""
        for offset in range(1, 5):
            self.commit(offset)
            self.clock.advance(PAUSE)
            self.commit(100 + offset, queue_id=1)
            self.clock.advance(INTERVAL)
        self.assertEqual(self.segments, [4])
        self.commit(9)
        self.clock.advance(PAUSE)
        self.assertEqual(self.segments, [4, 5])

    def test_damaged_table(self) -> None:
        """A table that the disk changed costs no offset: an older one and its journal have all."""
        path = self.root / "config" / "consumerOffset.json"
        for offset in (100, 200, 300):
            self.commit(offset)
            self.clock.advance(PAUSE)
            self.clock.advance(INTERVAL)
        self.commit(305)
        self.clock.advance(PAUSE)
        whole = path.read_bytes()
        for damaged in (whole.replace(b"300", b"390"), whole[:20], b""):
            path.write_bytes(damaged)
            found = self.crashed()
            assert found.read is not None
            self.assertIs(found.read.file.source, Source.BACKUP)
            self.assertEqual(self.held(found), {"T@g": {0: 305}})
        path.write_bytes(whole)
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 305}})

    def test_killed_in_the_first_write(self) -> None:
        """A new table that was to be there already costs no offset: the journal has them all."""
        self.commit(5)
        self.clock.advance(PAUSE)
        whole = False
        for place in range(99):
            root = self.folder()
            shutil.copytree(self.root, root, dirs_exist_ok=True)
            left = iter(range(place))

            def step(name: str, left: Any = left) -> None:
                if next(left, None) is None:
                    raise Killed

            tables = CheckedTables(root)
            path = tables.path(CONSUMER_OFFSETS)
            tables.load(path)
            table: Table = {"offsetTable": {"T@g": {0: 5}}}
            try:
                tables.replace(path, table, journal=2, step=step)
            except Killed:
                pass
            else:
                whole = True
            self.assertEqual(self.held(self.made(root=root)), {"T@g": {0: 5}}, place)
            if whole:
                break
        self.assertTrue(whole)
        self.assertGreater(place, 5)

    def test_another_broker(self) -> None:
        """When another broker has written the table since, the journal is history."""
        path = self.root / "config" / "consumerOffset.json"
        for offset in (100, 200):
            self.commit(offset)
            self.clock.advance(INTERVAL + 1)
        self.commit(500)
        self.clock.advance(PAUSE)
        path.with_name(path.name + ".bak").write_bytes(path.read_bytes())
        path.write_text('{"offsetTable":{"T@g":{0:7}}}')
        found = self.crashed()
        self.assertEqual(self.held(found), {"T@g": {0: 7}})
        found.commit("g", "T", 0, 8, WHO)
        self.clock.advance(PAUSE)
        self.assertEqual(found.journal.status()["batches"], 1)

    def test_clean_stop(self) -> None:
        """After a clean stop the table has everything, and nothing is replayed."""
        self.commit(5)
        self.successResultOf(self.offsets.stop())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        again = self.crashed()
        assert again.read is not None
        self.assertEqual((self.held(again), again.read.replayed), ({"T@g": {0: 5}}, 0))

    def test_replayed_is_written(self) -> None:
        """What was replayed is in the table soon, also if nothing is committed any more."""
        self.commit(5)
        self.clock.advance(0)
        path = self.crashed().file.path
        self.assertFalse(path.exists())
        self.clock.advance(INTERVAL + 1)
        self.assertIn("5", path.read_text())

    def test_torn_tail(self) -> None:
        """A journal that a crash tore loses the batch that was not whole, and says so."""
        self.commit(5)
        self.clock.advance(PAUSE)
        self.commit(6)
        self.clock.advance(PAUSE)
        (number,) = self.segments
        path = self.root / "rmqha" / "offsets" / f"{number:020}.journal"
        path.write_bytes(path.read_bytes()[:-1])
        found = self.crashed()
        assert found.read is not None
        self.assertEqual(self.held(found), {"T@g": {0: 5}})
        self.assertGreater(found.read.torn, 0)
        self.assertEqual(found.read.damaged, ())

    def test_off(self) -> None:
        """Without a journal only the table is written; one that was left is replayed and goes."""
        self.commit(5)
        self.clock.advance(PAUSE)
        self.offsets = ConsumerOffsetTable(CheckedTables(self.root), self.clock, now, 0.0)
        self.offsets.load()
        self.assertEqual(self.offsets.get("g", "T", 0), 5)
        for offset in (6, 7, 8):
            self.commit(offset)
            self.clock.advance(INTERVAL + 1)
        self.assertEqual((self.segments, list(self.offsets.journal.jobs())), ([], []))
        self.assertEqual(self.offsets.journal.status()["pending"], 0)


def full(writer: SegmentWriter, number: int, changes: Any) -> None:
    """A disk without room."""
    raise OSError(errno.ENOSPC, "No space left on device")


class LostMessagesTests(JournalTestCase):
    """A log that lost its last messages, of which the journal still has the commits."""

    def test_brought_back(self) -> None:
        """An offset above its queue is set to its end, durably; lower or unknown ones stay."""
        self.commit(50)
        self.commit(20, queue_id=1)
        self.commit(7, topic="Elsewhere")
        self.clock.advance(PAUSE)
        again = self.offsets = self.made()
        ends = {("T", 0): 45, ("T", 1): 30}
        for _ in again.bring_back(lambda topic, queue_id, _: ends.get((topic, queue_id))):
            pass
        self.clock.advance(PAUSE)
        expected = {"T@g": {0: 45, 1: 20}, "Elsewhere@g": {0: 7}}
        self.assertEqual((self.held(again), self.held(self.crashed())), (expected, expected))


class TroubleTests(JournalTestCase):
    """Disks that fail, and threads that are slow."""

    def test_failing_disk(self) -> None:
        """A batch that cannot be written is tried again, in a new file, with newer ones."""
        real = SegmentWriter.append
        broken = self.patch(SegmentWriter, "append", full)
        self.commit(5)
        self.clock.advance(0)
        self.commit(6, queue_id=1)
        self.clock.advance(1.0)
        self.assertEqual(self.held(self.crashed()), {})
        broken.restore()
        self.assertIs(SegmentWriter.append, real)
        self.clock.advance(RETRY)
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 5, 1: 6}})
        self.assertEqual(unhealthy(self.offsets.journal.job), "")

    def test_trouble(self) -> None:
        """A journal that cannot be written again and again makes its node unhealthy."""
        self.patch(SegmentWriter, "append", full)
        self.commit(5)
        self.clock.pump([0.0, RETRY, RETRY])
        self.assertIn(
            '"adding to the offset journal" failed 3 times in a row',
            unhealthy(self.offsets.journal.job),
        )

    def test_slow(self) -> None:
        """What is committed while a batch is being written is in the next one, and what is in the
        table that is written meanwhile is not lost if that is not.
        """
        thread = Held()
        self.offsets = self.made(thread)
        self.commit(1)
        self.clock.advance(0)
        for offset in range(2, 5):
            self.commit(offset)
            self.clock.advance(PAUSE)
        self.assertEqual(len(thread.calls), 1)
        thread.work()
        self.clock.advance(0)
        self.assertEqual(len(thread.calls), 1)
        self.assertIn(self.held(self.crashed()), ({"T@g": {0: 1}}, {"T@g": {0: 4}}))
        thread.work()
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 4}})

    def test_stop_while_writing(self) -> None:
        """A stop waits for the batch that is being written, and writes what came after it."""
        thread = Held()
        self.offsets = self.made(thread)
        self.commit(1)
        self.clock.advance(0)
        self.commit(2)
        stopped = self.offsets.stop()
        self.assertNoResult(stopped)
        thread.work()
        thread.work()
        self.assertEqual(self.held(self.crashed()), {"T@g": {0: 2}})
        thread.work()
        self.successResultOf(stopped)


class VersionTests(JournalTestCase):
    def journal(self, *offsets: int) -> OffsetJournal:
        """A journal with a batch for each offset."""
        for offset in offsets:
            self.commit(offset, queue_id=offset)
            self.clock.advance(PAUSE)
        return self.offsets.journal

    def test_since(self) -> None:
        """All that came after the batch, and nothing of what was before."""
        journal = self.journal(1, 2, 3)
        self.assertEqual(journal.version, 3)
        self.assertEqual(set(journal.changes_since(1) or ()), {("T@g", 2), ("T@g", 3)})
        self.assertEqual(journal.changes_since(3), {})
        for unknown in (4, -1):
            self.assertIsNone(journal.changes_since(unknown))

    def test_forgotten(self) -> None:
        """Not more than some changes are remembered."""
        self.patch(offset_journal, "REMEMBERED", 2)
        journal = self.journal(1, 2, 3)
        self.assertIsNone(journal.changes_since(0))
        self.assertEqual(set(journal.changes_since(1) or ()), {("T@g", 2), ("T@g", 3)})

    def test_told(self) -> None:
        """Each batch is told when it is durable."""
        told: list[int] = []
        self.offsets.journal.flushed.append(lambda: told.append(self.offsets.journal.version))
        self.journal(1, 2)
        self.assertEqual(told, [1, 2])
