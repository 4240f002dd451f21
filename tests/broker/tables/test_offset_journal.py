"""Consumers' offsets between two writes of their table: what a crash at any moment leaves."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
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
from tests.support.health import unhealthy
from tests.support.logs import Held, LogTestCase, now
from tests.support.machines import run_machine

PAUSE = 0.15

WHO = "10.0.0.1:1"

Offsets = dict[str, dict[int, int]]


class Killed(BaseException):
    """The process is gone."""


def no_room(writer: SegmentWriter, number: int, changes: Any) -> None:
    """A disk without room."""
    raise OSError(errno.ENOSPC, "No space left on device")


class JournalTestCase(LogTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.root = self.folder()
        self.offsets = self.made()

    def made(
        self, in_thread: Any = now, root: Path | None = None, clock: Clock | None = None
    ) -> ConsumerOffsetTable:
        """The table as a new process has it."""
        files = CheckedTables(root or self.root)
        table = ConsumerOffsetTable(files, clock or self.clock, in_thread, PAUSE)
        table.load()
        self.addCleanup(table.journal.stop)
        return table

    def copy(self) -> Path:
        """What the disk has at this moment."""
        root = self.folder()
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return root

    def crashed(self) -> ConsumerOffsetTable:
        """The table after a crash at this moment."""
        return self.made(root=self.copy())

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


class JournalMachine(RuleBasedStateMachine):
    """Offsets that change in any way, time, a full disk, stops and crashes, in any order."""

    case: JournalTestCase
    TOPICS, GROUPS = st.sampled_from("AB"), st.sampled_from("gh")
    QUEUES, OFFSETS = st.integers(0, 1), st.integers(0, 60)
    PAUSES = st.sampled_from([PAUSE, 0.0, RETRY, INTERVAL + 1])

    @initialize()
    def begin(self) -> None:
        """A new store."""
        self.full = False
        self.case.setUp()
        # What there was since the journal last had all, and before that.
        self.states: list[Offsets] = [{}]
        self.before: list[Offsets] = []
        self.batches = 0

    @property
    def offsets(self) -> ConsumerOffsetTable:
        return self.case.offsets

    def teardown(self) -> None:
        """A disk with room loses nothing."""
        if hasattr(self, "states"):
            self.disk(full=False)
            self.wait(RETRY)
            assert self.case.held(self.case.crashed()) == self.case.held(self.offsets)
            assert unhealthy(self.offsets.journal.job) == ""

    # --- what happens ---------------------------------------------------------

    @rule(rows=st.lists(st.tuples(OFFSETS, QUEUES, TOPICS, GROUPS), max_size=6), seconds=PAUSES)
    def commit(self, rows: list[tuple[int, int, str, str]], seconds: float) -> None:
        """Clients commit, also lower offsets, and some time passes."""
        for row in rows:
            self.case.commit(*row)
        self.wait(seconds)

    @rule(topic=TOPICS, group=GROUPS, queue_id=QUEUES, offset=OFFSETS, back=st.booleans())
    def move(self, topic: str, group: str, queue_id: int, offset: int, back: bool) -> None:
        """A master says where a group is, or only that it is further."""
        (self.offsets.reset if back else self.offsets.advance)(group, topic, queue_id, offset)

    @rule(topic=TOPICS, group=GROUPS, offset=OFFSETS)
    def merge(self, topic: str, group: str, offset: int) -> None:
        """Another broker's table."""
        table = OffsetTable(offset_table={f"{topic}@{group}": {0: offset, 1: offset}})
        self.offsets.merge_max(table)

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.offsets.remove_topic(topic)

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.offsets.remove_group(group)

    @rule(topic=TOPICS, end=OFFSETS)
    def lose_messages(self, topic: str, end: int) -> None:
        """The log lost a topic's last ones: no offset of it is above its queue, others stay."""
        expected = self.case.held(self.offsets)
        for key in expected:
            if key.startswith(topic):
                expected[key] = {at: min(offset, end) for at, offset in expected[key].items()}
        for _ in self.offsets.bring_back(lambda name, *_: end if name == topic else None):
            pass
        assert self.case.held(self.offsets) == expected

    @rule(seconds=PAUSES)
    def wait(self, seconds: float) -> None:
        """Time passes: with room on the disk the journal has all after its pause."""
        self.case.clock.advance(seconds)
        self.case.clock.advance(0)
        journal = self.offsets.journal
        pending = journal.status()["pending"]
        assert self.full or not pending or seconds < RETRY, pending
        if journal.version > self.batches:
            self.before, self.batches = self.states, journal.version
        if not pending:
            self.states = [self.case.held(self.offsets)]

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        """It has no room for the journal, or has some again."""
        if full is not self.full:
            self.full = full
            if full:
                self.patched = self.case.patch(SegmentWriter, "append", no_room)
            else:
                self.patched.restore()

    @rule(torn=st.integers(0, 20))
    def crash(self, torn: int) -> None:
        """It may tear the end of the last batch, which is lost then, and no other."""
        root = self.case.copy()
        folder = root / "rmqha" / "offsets"
        for number in offset_segments.numbers_in(folder)[-1:] if self.batches and torn else ():
            path = offset_segments.path_of(folder, number)
            path.write_bytes(path.read_bytes()[:-torn])
            self.states += self.before
        self.start(root)
        # What one crash tore may still be there after the next one, behind which others are.
        assert self.offsets.read is not None and not self.offsets.journal_damage()

    @precondition(lambda self: not self.full)
    @rule()
    def stop(self) -> None:
        """After a clean stop the table has everything, and nothing is replayed."""
        self.case.successResultOf(self.offsets.stop())
        assert self.case.clock.getDelayedCalls() == []
        self.states = [self.case.held(self.offsets)]
        self.start(self.case.root)
        assert self.offsets.read is not None and not self.offsets.read.replayed

    def start(self, root: Path) -> None:
        """Another process: what it finds is durable."""
        self.case.root, self.case.clock = root, Clock()
        self.case.offsets = self.case.made()
        found = self.case.held(self.offsets)
        assert found in self.states, (found, self.states)
        self.states, self.before, self.batches = [found], [], 0

    # --- what has to hold -----------------------------------------------------

    @invariant()
    def one_moment(self) -> None:
        """A crash finds one moment, none before the journal last had all."""
        if hasattr(self, "states"):
            self.states.append(self.case.held(self.offsets))
            found = self.case.held(self.case.made(root=self.case.copy(), clock=Clock()))
            assert found in self.states, (found, self.states)


class AnyOrderTests(JournalTestCase):
    def test_any_order(self) -> None:
        """What was durable once is found by every later start."""
        run_machine(type("Machine", (JournalMachine,), {"case": self}), count=60, steps=30)


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
        self.assertEqual((self.segments, self.offsets.journal.job.running), ([], False))
        self.assertEqual(self.offsets.journal.status()["pending"], 0)


class TroubleTests(JournalTestCase):
    """Disks that fail, and threads that are slow."""

    def test_trouble(self) -> None:
        """A journal that cannot be written again and again makes its node unhealthy."""
        self.patch(SegmentWriter, "append", no_room)
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
