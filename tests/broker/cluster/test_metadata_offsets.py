"""Offsets of a slave and of its master, whatever they are: none gets lower but by a reset."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from rmqha.broker.cluster.metadata_offsets import SLICE, OffsetSync, merge, taken_back
from rmqha.broker.cluster.offsets_owed import WINDOW, Owed
from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.errors import RemotingTimeout
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable
from rmqha.wire.remoting.command import Command
from tests.support.effort import tries
from tests.support.logs import LogTestCase, now

KEYS = st.sampled_from(["A@g", "A@h", "B@g", "%RETRY%g@g"])
QUEUES = st.dictionaries(st.integers(0, 3), st.integers(0, 50), max_size=4)
TABLES = st.dictionaries(KEYS, QUEUES, max_size=4)

#: Rounds: what the master gives, whether its process is another one, and whether it says so.
ROUNDS = st.lists(st.tuples(TABLES, st.booleans(), st.booleans()), min_size=1, max_size=6)


class OffsetTestCase(LogTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.begin()

    def begin(self) -> None:
        self.offsets = ConsumerOffsetTable(CheckedTables(self.folder()), self.clock, now)
        self.sync = OffsetSync(
            self.offsets,
            self.clock,
            now,
            known=lambda topic, group: True,
            owed=Owed(self.clock, lambda topic, queue_id: 1000),
        )

    def ours(self) -> dict[str, dict[int, int]]:
        return {key: queues for key, queues in self.offsets.table().offset_table.items() if queues}

    def done(self, awaitable: Any) -> Any:
        """Let the reactor turn until it is done."""
        result = Deferred.fromCoroutine(awaitable)
        for _ in range(200):
            self.clock.advance(0)
        return self.successResultOf(result)

    def fill(self, table: dict[str, dict[int, int]]) -> None:
        """Let the slave have some."""
        self.done(merge(self.offsets, table.items(), self.clock))


class MergeTests(OffsetTestCase):
    @given(TABLES, TABLES)
    @run_settings(max_examples=tries(100), deadline=None)
    def test_highest(
        self, one: dict[str, dict[int, int]], other: dict[str, dict[int, int]]
    ) -> None:
        """Afterwards each offset is the higher of both, and nothing else; moves are counted."""
        self.begin()
        self.fill(one)
        moved = self.done(merge(self.offsets, other.items(), self.clock))
        expected: dict[str, dict[int, int]] = {}
        for table in (one, other):
            for key, queues in table.items():
                for queue_id, offset in queues.items():
                    mine = expected.setdefault(key, {})
                    mine[queue_id] = max(offset, mine.get(queue_id, -1))
        self.assertEqual(expected, self.ours())
        before = {key: queues for key, queues in one.items() if queues}
        changed = sum(
            before.get(key, {}).get(queue_id) != offset
            for key, queues in expected.items()
            for queue_id, offset in queues.items()
        )
        self.assertEqual(changed, moved)

    @given(ROUNDS)
    @run_settings(max_examples=tries(150), deadline=None)
    def test_never_lower(self, rounds: list[tuple[dict[str, dict[int, int]], bool, bool]]) -> None:
        """An offset is lowered only as the same process of the master gave it, to what it gives."""
        self.begin()
        boot, given_by, last = 0, -1, {}
        for table, restarted, says in rounds:
            boot += restarted
            before = self.ours()
            self.done(self.sync.adopt(OffsetTable(offset_table=table), boot if says else None, "m"))
            after = self.ours()
            for key, queues in before.items():
                for queue_id, offset in queues.items():
                    found = after.get(key, {}).get(queue_id)
                    told = table.get(key, {}).get(queue_id)
                    was = last.get(key, {}).get(queue_id)
                    if found is not None and found < offset:
                        self.assertTrue(says and given_by == boot)
                        self.assertIsNotNone(was)
                        self.assertEqual(told, found)
                        self.assertLess(found, was or 0)
            for key, queues in table.items():
                for queue_id, offset in queues.items():
                    self.assertGreaterEqual(after[key][queue_id], offset)
            if says or not last:
                given_by, last = (boot if says else -1), table

    def test_in_slices(self) -> None:
        """A large table is merged over several turns of the reactor."""
        table = {f"T@g{n}": {0: n} for n in range(SLICE * 3)}
        result = Deferred.fromCoroutine(merge(self.offsets, table.items(), self.clock))
        self.assertEqual(SLICE, len(self.offsets.table().offset_table))
        for _ in range(5):
            self.clock.advance(0)
        self.assertEqual(SLICE * 3, self.successResultOf(result))

    def test_taken_back(self) -> None:
        """What is lower and what is gone; queues that are new or gone are neither."""
        change = taken_back(
            {"A@g": {0: 5, 1: 5, 2: 5}, "B@g": {0: 1}, "C@g": {0: 1}},
            {"A@g": {0: 4, 1: 6, 3: 1}, "C@g": {0: 1}, "D@g": {0: 9}},
        )
        self.assertEqual(["g in queue 0 of A from 5 to 4"], [str(step) for step in change.back])
        self.assertEqual(("B@g",), change.gone)


class GiveBackTests(OffsetTestCase):
    """Many offsets that the master is owed."""

    def test_windows(self) -> None:
        """They are told some at a time; what is not answered is kept for the next round."""
        for n in range(WINDOW + 5):
            self.sync.owed.note("g", f"T{n:03}", 0, 7)
        asked: list[Command] = []
        waiting: list[Deferred[Command]] = []

        def ask(command: Command) -> Deferred[Command]:
            asked.append(command)
            waiting.append(Deferred())
            return waiting[-1]

        result = Deferred.fromCoroutine(self.sync.owed.give_back(OffsetTable(), ask, "m"))
        self.assertEqual(WINDOW, len(asked))
        for command, answer in zip(asked[:], waiting[:], strict=True):
            answer.callback(command.answer())
        self.assertEqual(WINDOW + 5, len(asked))
        waiting[WINDOW].errback(RemotingTimeout(15, 3.0, "m"))
        for command, answer in list(zip(asked, waiting, strict=True))[WINDOW + 1 :]:
            answer.callback(command.answer())
        self.failureResultOf(result, RemotingTimeout)
        self.assertIn(f"T{WINDOW:03}@g", self.sync.owed.committed)
        self.assertNotIn("T000@g", self.sync.owed.committed)

    def test_committed_meanwhile(self) -> None:
        """What is committed while an offset is on its way is owed still."""
        self.sync.owed.note("g", "T", 0, 7)

        def ask(command: Command) -> Deferred[Command]:
            self.sync.owed.note("g", "T", 0, 8)
            return succeed(command.answer())

        self.done(self.sync.owed.give_back(OffsetTable(), ask, "m"))
        self.assertEqual({"T@g": {0: 8}}, self.sync.owed.committed)
