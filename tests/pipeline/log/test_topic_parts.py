"""Tests for L{rmqha.pipeline.log.topic_parts}: of a log only what some topics have is read."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rmqha.store.published import topic_index
from rmqha.wire.log import split_spans
from rmqha.wire.store_layout import OWN_FOLDER, TOPIC_INDEX
from tests.support.topic_store import FILE, TopicStore

try:
    from rmqha.pipeline.log import topic_parts
    from rmqha.pipeline.log.errors import DataLost
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.log.ranges import plan
    from rmqha.pipeline.log.reading import MessageReader, Passed, chosen_columns
    from rmqha.pipeline.log.stores import open_stores
    from rmqha.pipeline.scan import scan
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class TopicPartsTests(SynchronousTestCase):
    """Rows are those of a read of everything, and fewer bytes are read."""

    def store(self, topics: list[str], span: int = 1 << 20, began: int = 1000) -> TopicStore:
        """A store with spans of so many bytes."""
        self.patch(split_spans, "SPAN", span)
        return TopicStore(Path(self.mktemp()), topics, began)

    def offsets(self, store: TopicStore, **options: Any) -> list[int]:
        """Where the rows of a read begin."""
        given = {"columns": "physical_offset", **options}
        found: list[int] = scan(store.root, **given).read_all()["physical_offset"].to_pylist()
        return found

    def bytes_read(self, store: TopicStore, **options: Any) -> int:
        """The bytes that a read takes from the files of the log and from its index."""
        counted, preadv, pread = [], os.preadv, os.pread
        self.patch(os, "preadv", lambda *args: (counted.append(got := preadv(*args)), got)[1])
        self.patch(os, "pread", lambda *args: (counted.append(len(got := pread(*args))), got)[1])
        self.offsets(store, **options)
        self.patch(os, "preadv", preadv)
        self.patch(os, "pread", pread)
        return sum(counted)

    def test_one_of_a_thousand(self) -> None:
        """Where a thousand topics are mixed evenly, one of them costs less than 3 % of the log."""
        topics = [f"topic-{number * 7 % 1000:03}" for number in range(38_500)]
        store = self.store(topics, span=16 << 20)  # ten whole files: what follows has no index
        self.assertEqual(store.of("topic-123"), self.offsets(store, topic="topic-123"))
        self.assertGreater(self.bytes_read(store), store.end)
        self.assertLess(self.bytes_read(store, topic="topic-123"), 0.03 * store.end)
        self.assertLess(self.bytes_read(store, topic="absent"), 0.015 * store.end)

    def test_planned(self) -> None:
        """What has no wanted topic is no task, and what has little of it is few tasks."""
        topics = ["busy"] * 12_000
        topics[5000], topics[9000], topics[9500] = "rare", "rare", "rare"
        store = self.store(topics)
        options = ReadOptions.parse(
            {"path": store.root, "topic": "rare", "endingOffsets": {"store": 3 * FILE}}
        )
        self.assertEqual(2, len(plan(open_stores(options), options)))
        whole = evolve(options, topic=("busy",), max_partition_bytes=1 << 20)
        self.assertGreater(len(plan(open_stores(whole), whole)), 5)

    def test_rows(self) -> None:
        """Any topics give the rows that a store without an index gives, for any part of the log."""
        topics = [("a", "b", "b", "c", "%RETRY%g")[number * number % 5] for number in range(9000)]
        store = self.store(topics)
        reads: list[dict[str, Any]] = [
            {"topic": "a"},
            {"topic": "b,c"},
            {"subscribePattern": "a|%RETRY%.*"},
            {"topic": "a", "tags": "none"},
            {"topic": "c", "mode": "DROPMALFORMED"},
            {"topic": "c", "mode": "PERMISSIVE"},
            {"topic": "b", "startingOffsets": {"store": store.starts[4001]}},
            {"topic": "b", "endingOffsets": {"store": store.starts[4001]}},
            {"topic": "b", "startingTimestamp": 5000, "endingTimestamp": 7000},
            {"topic": "a", "maxPartitionBytes": 1},
        ]
        found = [self.offsets(store, **options) for options in reads]
        self.assertEqual(store.of("a"), found[0])
        topic_index.remove(store.root)
        self.assertEqual([self.offsets(store, **options) for options in reads], found)

    def test_last_record(self) -> None:
        """A task knows its range's last record unread: a table's position names it."""
        store = self.store(["a", "b"] * 4000)
        options = ReadOptions.parse({"path": store.root, "topic": "a"})
        every = evolve(options, topic=None)
        for wanted in plan(open_stores(every), every):
            passed = Passed()
            list(MessageReader(options, ("topic",)).read(wanted, passed))
            inside = [start for start in store.starts if wanted.start <= start < wanted.end]
            self.assertEqual(inside[-1], passed.last)

    def test_index_of_another_log(self) -> None:
        """What the index says of a log that was cut and has grown again is not believed."""
        store = self.store(["a"] * 6000)
        before = (store.root / OWN_FOLDER / TOPIC_INDEX / f"{0:020d}").read_bytes()
        other = self.store(["a", "b"] * 3000, began=2000)
        (other.root / OWN_FOLDER / TOPIC_INDEX / f"{0:020d}").write_bytes(before)
        self.assertEqual(other.of("b"), self.offsets(other, topic="b"))

    def test_damaged_index(self) -> None:
        """A damaged index costs time, not rows."""
        store = self.store(["a", "b"] * 2000)
        path = store.root / OWN_FOLDER / TOPIC_INDEX / f"{0:020d}"
        good = path.read_bytes()
        for place in range(0, len(good), len(good) // 20):
            path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            self.assertEqual(store.of("b"), self.offsets(store, topic="b"), place)

    def test_index_that_changes(self) -> None:
        """Whatever becomes of the index between the plan of a read and its tasks, its rows are
        those of the plan; the first file that goes meanwhile is a loss with a name.
        """
        store = self.store(["a", "b", "b"] * 3000)
        folder = store.root / OWN_FOLDER / TOPIC_INDEX
        whole = {path.name: path.read_bytes() for path in folder.iterdir()}
        options = ReadOptions.parse({"path": store.root, "topic": "a", "maxPartitionBytes": 1})

        def give(size: int) -> None:
            for name, data in whole.items():
                folder.mkdir(exist_ok=True)
                (folder / name).write_bytes(data[: len(data) * size // 3])

        changes = (
            lambda: give(3),
            lambda: give(1),
            lambda: topic_index.remove(store.root),
            lambda: topic_index.forget_below(store.root, FILE),
        )
        for before, after in product(changes, repeat=2):
            before()
            ranges = plan(open_stores(options), options)
            found: list[int] = []
            for row, wanted in enumerate(ranges):
                if row == 1:
                    after()
                for batch in MessageReader(options, ("physical_offset",)).read(wanted):
                    found += batch.column(0).to_pylist()
            self.assertEqual(store.of("a"), found)
        (store.root / "commitlog" / f"{0:020d}").unlink()
        self.assertRaises(DataLost, list, MessageReader(options, ("topic",)).read(ranges[0]))

    def test_cut(self) -> None:
        """A cut of the log takes the entries above it, and a start those that it does not know."""
        store = self.store(["a", "b"] * 6000)
        folder = store.root / OWN_FOLDER / TOPIC_INDEX
        self.assertEqual([0, FILE, 2 * FILE], sorted(map(int, os.listdir(folder))))
        whole = (folder / f"{FILE:020d}").read_bytes()
        topic_index.truncate_to(store.root, FILE + 3 * FILE // 4)
        self.assertEqual([0, FILE], sorted(map(int, os.listdir(folder))))
        kept = (folder / f"{FILE:020d}").read_bytes()
        self.assertTrue(whole.startswith(kept) and len(kept) < len(whole))
        self.assertEqual(store.of("b"), self.offsets(store, topic="b"))
        topic_index.forget_below(store.root, FILE)
        self.assertEqual([FILE], sorted(map(int, os.listdir(folder))))

    def test_no_columns_missed(self) -> None:
        """Rows of many small runs are the same rows."""
        self.patch(topic_parts, "GAP", 1)
        store = self.store([f"t{number % 50}" for number in range(9000)])
        found = scan(store.root, topic="t7").read_all()
        options = ReadOptions.parse({"path": store.root, "topic": "t7"})
        self.assertEqual(list(chosen_columns(options)), found.column_names)
        topic_index.remove(store.root)
        self.assertTrue(found.equals(scan(store.root, topic="t7").read_all()))
