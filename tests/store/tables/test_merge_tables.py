"""Two nodes' tables made one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st

from rmqha.errors import Refused
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.merge_tables import MergedTables, merge_tables, write_merged
from rmqha.store.tables.offset_segments import OffsetChange, SegmentWriter
from rmqha.store.tables.order_table import record_of
from rmqha.wire.remoting.bodies.pop_order import OrderedBatch
from tests.support.effort import tries
from tests.support.logs import LogTestCase

KEYS = st.sampled_from(["A@g", "B@g", "%RETRY%g@g"])
TABLES = st.dictionaries(KEYS, st.dictionaries(st.integers(0, 2), st.integers(0, 9)), max_size=3)
LEVELS = st.dictionaries(st.integers(1, 4), st.integers(0, 9), max_size=4)

OFFSETS, DELAYS = "consumerOffset.json", "delayOffset.json"
TOPICS, GROUPS = "topics.json", "subscriptionGroup.json"
MODES, ORDERS = "messageRequestMode.json", "consumerOrderInfo.json"


class MergeTestCase(LogTestCase):
    def setUp(self) -> None:
        self.patch(os, "fdatasync", lambda fd: None)
        self.ours, self.theirs = self.folder(), self.folder()

    def write(self, root: Path, name: str, **members: Any) -> None:
        tables = CheckedTables(root)
        tables.replace(tables.path(name), dict(members))
        tables.settle()

    def read(self, name: str) -> Any:
        """The store's table; C{None} if there is none."""
        found = CheckedTables(self.ours).read(self.ours / "config" / name)
        self.assertEqual(found.fault.replace(f"{name} is missing", ""), "")
        return found.table

    def merge(self) -> MergedTables:
        """Merge twice, as after a crash."""
        merged = merge_tables(self.ours, self.theirs)
        write_merged(self.ours, merged)
        again = merge_tables(self.ours, self.theirs)
        self.assertEqual((again.moved, again.moved_delays, again.changed), (0, 0, {}))
        return merged

    def rows(self, *names: str, version: int, **more: Any) -> dict[str, Any]:
        """The members of a table of topics."""
        return {
            "dataVersion": {"counter": version, "timestamp": 1000 + version, "stateVersion": 0},
            "topicConfigTable": {name: {"topicName": name, **more} for name in names},
        }


class OffsetTests(MergeTestCase):
    @given(TABLES, TABLES, LEVELS, LEVELS)
    @run_settings(max_examples=tries(60), deadline=None)
    def test_highest(self, one: Any, other: Any, levels: Any, others: Any) -> None:
        """Afterwards each is the higher of both, and nothing else is there."""
        self.setUp()
        self.write(self.ours, OFFSETS, offsetTable=one)
        self.write(self.theirs, OFFSETS, offsetTable=other)
        self.write(self.ours, DELAYS, offsetTable=levels)
        self.write(self.theirs, DELAYS, offsetTable=others)
        self.merge()
        expected: dict[str, dict[int, int]] = {}
        for table in (one, other):
            for key, queues in table.items():
                mine = expected.setdefault(key, {})
                for queue_id, offset in queues.items():
                    mine[queue_id] = max(offset, mine.get(queue_id, 0))
        found = self.read(OFFSETS)["offsetTable"]
        self.assertEqual(
            {key: queues for key, queues in found.items() if queues},
            {key: queues for key, queues in expected.items() if queues},
        )
        self.assertEqual(
            self.read(DELAYS)["offsetTable"],
            {level: max(levels.get(level, 0), others.get(level, 0)) for level in levels | others},
        )

    def test_counted(self) -> None:
        """What was taken is counted; other members stay."""
        self.write(self.ours, OFFSETS, offsetTable={"A@g": {0: 5, 1: 5}}, more=[1])
        self.write(self.theirs, OFFSETS, offsetTable={"A@g": {0: 4, 1: 6, 2: 1}, "B@g": {0: 0}})
        self.assertEqual(self.merge().moved, 3)
        self.assertEqual(
            self.read(OFFSETS),
            {"offsetTable": {"A@g": {0: 5, 1: 6, 2: 1}, "B@g": {0: 0}}, "more": [1]},
        )

    def test_journals(self) -> None:
        """What only the journals have counts, of both."""
        for root, queue_id in ((self.ours, 0), (self.theirs, 1)):
            tables = CheckedTables(root)
            tables.replace(tables.path(OFFSETS), {"offsetTable": {"A@g": {0: 1, 1: 1}}}, journal=1)
            writer = SegmentWriter(root / "rmqha" / "offsets")
            writer.append(1, [OffsetChange(0, "A@g", queue_id, 9)])
            writer.close()
        for place in (self.theirs, self.theirs / "config"):
            self.assertEqual(merge_tables(self.ours, place).moved, 1)
        self.merge()
        self.assertEqual(self.read(OFFSETS)["offsetTable"], {"A@g": {0: 9, 1: 9}})

    def test_none_here(self) -> None:
        """A store without a table gets the other's."""
        self.write(self.theirs, OFFSETS, offsetTable={"A@g": {0: 4}})
        self.write(self.theirs, DELAYS, offsetTable={3: 7})
        merged = self.merge()
        self.assertEqual((merged.moved, merged.moved_delays), (1, 1))
        self.assertEqual(self.read(OFFSETS)["offsetTable"], {"A@g": {0: 4}})
        self.assertEqual(self.read(DELAYS)["offsetTable"], {3: 7})


class RowTests(MergeTestCase):
    def test_newer(self) -> None:
        """Of a row in both the newer table's counts; rows of either stay, in a newer table."""
        for ours, theirs, perm in ((3, 5, 2), (5, 3, 6)):
            self.setUp()
            self.write(self.ours, TOPICS, **self.rows("A", "Ours", version=ours, perm=6))
            self.write(self.theirs, TOPICS, **self.rows("A", "Theirs", version=theirs, perm=2))
            self.assertEqual(self.merge().topics, ("Theirs",))
            found = self.read(TOPICS)
            self.assertEqual(set(found["topicConfigTable"]), {"A", "Ours", "Theirs"})
            self.assertEqual(found["topicConfigTable"]["A"]["perm"], perm)
            self.assertEqual(found["dataVersion"]["counter"], 6)

    def test_same(self) -> None:
        """Equal tables are not written; a newer one that has all is taken with its version."""
        self.write(self.ours, TOPICS, **self.rows("A", version=3))
        self.write(self.theirs, TOPICS, **self.rows("A", version=3))
        before = (self.ours / "config" / TOPICS).read_bytes()
        self.assertEqual(self.merge().changed, {})
        self.assertEqual((self.ours / "config" / TOPICS).read_bytes(), before)
        self.write(self.theirs, TOPICS, **self.rows("A", "B", version=4))
        self.merge()
        self.assertEqual(self.read(TOPICS)["dataVersion"]["counter"], 4)

    def test_groups(self) -> None:
        """The same of groups."""
        for root, name, counter in ((self.ours, "g", 2), (self.theirs, "h", 1)):
            self.write(
                root,
                GROUPS,
                dataVersion={"counter": counter, "timestamp": 9, "stateVersion": 0},
                subscriptionGroupTable={name: {"groupName": name}},
            )
        self.assertEqual(self.merge().groups, ("h",))
        self.assertEqual(set(self.read(GROUPS)["subscriptionGroupTable"]), {"g", "h"})

    def test_modes(self) -> None:
        """The same of how groups consume topics: no group of a topic is left out."""

        def row(group: str, share: int) -> dict[str, Any]:
            told = {"topic": "T", "mode": "POP", "popShareQueueNum": share}
            return {group: told | {"consumerGroup": group}}

        for root, rows, version in (
            (self.ours, row("g", 1) | row("both", 1), {"dataVersion": {"counter": 2}}),
            (self.theirs, row("h", 2) | row("both", 2), {}),
        ):
            self.write(root, MODES, messageRequestModeMap={"T": rows}, **version)
        self.assertEqual(set(self.merge().changed), {MODES})
        found = self.read(MODES)["messageRequestModeMap"]["T"]
        self.assertEqual(
            {group: row["popShareQueueNum"] for group, row in found.items()},
            {"g": 1, "both": 1, "h": 2},
        )

    def test_orders(self) -> None:
        """Popped in order: of each queue the later pop, with what either, or a journal, knows."""

        def row(at: int, bits: int) -> dict[str, Any]:
            return {"popTime": at, "i": 9, "l": at, "o": [4, 1], "cm": bits, "a": "x"}

        self.write(self.ours, ORDERS, table={"T@g": {0: row(5, 1), 1: row(7, 0), 2: row(3, 0)}})
        self.write(self.theirs, ORDERS, table={"T@g": {0: row(5, 2), 1: row(6, 3)}})
        writer = SegmentWriter(self.theirs / "rmqha" / "offsets")
        later = OrderedBatch(pop_time=8, invisible=9, places=(6,))
        writer.append(1, [record_of("T@g", 2, later), record_of("U@g", 0, later)])
        writer.close()
        tables = CheckedTables(self.theirs)
        path = tables.path(ORDERS)
        tables.replace(path, {"table": {"T@g": {0: row(5, 2), 1: row(6, 3)}}}, journal=1)
        tables.settle()
        self.assertIsNotNone(self.merge().orders)
        found = self.read(ORDERS)["table"]
        self.assertEqual(
            {
                key: {at: (b["popTime"], b["cm"]) for at, b in rows.items()}
                for key, rows in found.items()
            },
            {"T@g": {0: (5, 3), 1: (7, 0), 2: (8, 0)}, "U@g": {0: (8, 0)}},
        )
        self.assertIsNone(merge_tables(self.ours, self.theirs).orders)


class OtherTests(MergeTestCase):
    def test_a_copy(self) -> None:
        """A folder with copies of the tables alone will do, also one of a broker in Java."""
        self.write(self.ours, OFFSETS, offsetTable={"A@g": {0: 5}})
        (self.theirs / OFFSETS).write_text('{"offsetTable":{"A@g":{0:7}}}')
        self.merge()
        self.assertEqual(self.read(OFFSETS)["offsetTable"], {"A@g": {0: 7}})

    def test_damaged(self) -> None:
        """A table of the other that is damaged gives way to its C{.bak}, and that is said."""
        for number in (4, 800):
            self.write(self.theirs, OFFSETS, offsetTable={"A@g": {0: number}})
        path = self.theirs / "config" / OFFSETS
        path.write_bytes(path.read_bytes().replace(b"8", b"9"))
        merged = merge_tables(self.ours, self.theirs)
        self.assertEqual(merged.offsets and merged.offsets.offset_table, {"A@g": {0: 4}})
        self.assertIn("does not match its checksum", merged.faults[0])
        self.assertTrue(path.exists(), "the other's files stay as they are")

    def test_refused(self) -> None:
        """A folder without tables, and the store itself, are refused."""
        with self.assertRaises(Refused):
            merge_tables(self.ours, self.theirs)
        self.write(self.ours, OFFSETS, offsetTable={})
        for own in (self.ours, self.ours / "config"):
            with self.assertRaises(Refused):
                merge_tables(self.ours, own)
