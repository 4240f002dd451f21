"""Tests for L{rmqha.pipeline.jobs.index}: the split index of stores that have none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import StoreLocked
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.pipeline.log.errors import LogCutBack
from rmqha.store.files.lock import StoreLock
from rmqha.store.published.split_index import SplitIndex
from rmqha.wire.log import split_spans
from rmqha.wire.log.published import Cut, parse_spans
from rmqha.wire.store_layout import OWN_FOLDER, SPLITS, TOPIC_INDEX
from tests.cli.command import CommandTestCase
from tests.support.rows import expected, publish
from tests.support.spark_needs import need_java

try:
    from rmqha.pipeline.jobs import index
    from rmqha.pipeline.log import topic_parts
    from rmqha.pipeline.scan import scan
    from rmqha.wire.store_layout import SPLIT_FINGERPRINTS
    from tests.support import jobs
    from tests.support.spark import session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"

NO_SPARK: Any = None
VERSION = "5.3.3"
SPAN = 20_000


def offsets(store: Path, **options: object) -> list[int]:
    """Physical offsets of all rows."""
    table = scan(store, visibility="log", columns="physical_offset", **options).read_all()
    found: list[int] = table["physical_offset"].to_pylist()
    return found


def range_starts(store: Path, **options: object) -> list[int]:
    """Where the ranges begin that a query would read."""
    table = scan(store, table="ranges", maxPartitionBytes=1, **options).read_all()
    found: list[int] = table["start_offset"].to_pylist()
    return found


class IndexTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(index, "spread", jobs.spread)
        self.patch(split_spans, "SPAN", SPAN)
        self.store = golden.store(VERSION)
        self.records = expected(VERSION, "store")
        self.all = [record["physicalOffset"] for record in self.records]
        self.end = self.all[-1] + self.records[-1]["size"]

    def make(self, store: Path | None = None, **more: Any) -> Any:
        return index.index(NO_SPARK, store or self.store, **more)

    def raw(self, store: Path) -> bytes:
        return (store / OWN_FOLDER / SPLITS).read_bytes()

    def topics(self, store: Path) -> dict[str, bytes]:
        """The topic index as it lies there."""
        folder = store / OWN_FOLDER / TOPIC_INDEX
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
        return {name: raw for name, raw in found.items() if raw}

    def test_as_a_node_makes_it(self) -> None:
        """It is, byte for byte, what a node makes of the same log."""
        for version, name in golden.ARCHIVES:
            store, other = golden.store(version, name), golden.store(version, name)
            made = self.make(store)
            log = OfflineLog(other)
            (other / OWN_FOLDER).mkdir()
            node = SplitIndex.open(other, log)
            while node.position < log.confirmed:
                end = log.file_end(node.position)
                view = log.read(node.position, min(end, log.confirmed) - node.position)
                self.assertTrue(node.advance(view, end))
            self.assertEqual(self.raw(other), self.raw(store), (version, name))
            self.assertEqual(self.topics(other), self.topics(store), (version, name))
            found = parse_spans(self.raw(store))
            self.assertEqual((len(found), found[-1].end), (made.spans, made.end))
            self.assertEqual(sum(span.count for span in found), made.records)

    def test_java_store_is_divided(self) -> None:
        """A store that nobody publishes a point for is divided by the index, and its rows stay."""
        before = offsets(self.store)
        self.assertEqual(11, len(range_starts(self.store)))
        self.make()
        starts = range_starts(self.store)
        self.assertGreater(len(starts), 30)
        self.assertLessEqual(set(starts), set(self.all))
        self.assertEqual(before, offsets(self.store, maxPartitionBytes=1))
        middle = self.all[700] + 1
        self.assertEqual(self.all[701:], offsets(self.store, startingOffsets={"store": middle}))

    def test_topics(self) -> None:
        """A topic's rows are those without an index; most of a log without it is not planned."""
        names = {record["topic"] for record in self.records}
        before = {name: offsets(self.store, topic=name) for name in names}
        self.make()
        self.patch(topic_parts, "GAP", 1)
        after = {name: offsets(self.store, topic=name) for name in names}
        self.assertEqual(before, after)
        self.assertEqual([], offsets(self.store, topic="absent"))

    def test_unwritable(self) -> None:
        """Where a task cannot write the topic index, there is a split index all the same."""
        (self.store / OWN_FOLDER).mkdir(exist_ok=True)
        (self.store / OWN_FOLDER / TOPIC_INDEX).write_text("")
        self.assertGreater(self.make().spans, 10)

    def test_other_log_since(self) -> None:
        """Where the log is another one than was indexed, the index is not believed."""
        self.make()
        wanted = range_starts(self.store)
        file = jobs.log_files(self.store)[5]
        last = max(each for each in self.all if each < 6 * golden.LOG_FILE_SIZE)
        jobs.change(file, last % golden.LOG_FILE_SIZE + 50, b"\x01\x02")
        low, high = 5 * golden.LOG_FILE_SIZE, 6 * golden.LOG_FILE_SIZE
        self.assertEqual(
            [start for start in wanted if not low < start < high], range_starts(self.store)
        )
        self.assertEqual(self.all, offsets(self.store))
        for text in ("", "{}", "[]", '{"version": 2, "files": []}', '{"version":1,"files":[1]}'):
            (self.store / OWN_FOLDER / SPLIT_FINGERPRINTS).write_text(text)
            self.assertEqual(11, len(range_starts(self.store)), text)

    def test_published(self) -> None:
        """In a store with a point the index ends below it, and its readers use it."""
        publish(self.store, self.all[500])
        self.assertLessEqual(self.make().end, self.all[500])
        self.assertGreater(len(range_starts(self.store)), 10)
        self.assertEqual(self.all[:500], offsets(self.store, maxPartitionBytes=1))

    def test_running(self) -> None:
        """The index of a node that runs is left alone; a Java broker that runs has none."""
        lock = StoreLock(self.store / "lock")
        lock.take()
        self.addCleanup(lock.release)
        self.make()
        before = self.raw(self.store)
        publish(self.store, self.end)
        self.assertRaises(StoreLocked, self.make)
        self.assertEqual(before, self.raw(self.store))
        lock.release()
        self.make()

    def test_started_meanwhile(self) -> None:
        """A node that was started while the log was walked keeps its index."""
        publish(self.store, self.end)
        lock = StoreLock(self.store / "lock")
        self.addCleanup(lock.release)

        def spread(*args: Any) -> Any:
            lock.take()
            return jobs.spread(*args)

        self.patch(index, "spread", spread)
        self.assertRaises(StoreLocked, self.make)
        self.assertFalse((self.store / OWN_FOLDER / SPLITS).exists())

    def test_cut_meanwhile(self) -> None:
        """A log that is cut while it is walked is an error."""
        publish(self.store, self.end)

        def spread(*args: Any) -> Any:
            publish(self.store, self.end, cuts=(Cut(1000, 5),))
            return jobs.spread(*args)

        self.patch(index, "spread", spread)
        self.assertRaises(LogCutBack, self.make)

    def test_hole(self) -> None:
        """Behind a file that is missing the index begins anew: spans follow each other."""
        jobs.log_files(self.store)[4].unlink()
        made = self.make()
        self.assertEqual(5 * golden.LOG_FILE_SIZE, made.start)
        self.assertEqual(made.spans, len(parse_spans(self.raw(self.store))))

    def test_empty(self) -> None:
        """A log without files has an index without spans."""
        for file in jobs.log_files(self.store):
            file.unlink()
        self.assertEqual((0, 0, 0), (self.make().spans, self.make().files, self.make().end))

    def test_only_our_folder(self) -> None:
        """Nothing else of the store is touched."""

        def others() -> dict[Path, float]:
            return {
                path: path.stat().st_mtime_ns
                for path in self.store.rglob("*")
                if OWN_FOLDER not in path.parts and path != self.store
            }

        before = others()
        self.make()
        self.assertEqual(before, others())
        self.assertEqual(
            {SPLITS, SPLIT_FINGERPRINTS, TOPIC_INDEX}, set(os.listdir(self.store / OWN_FOLDER))
        )


class CommandTests(CommandTestCase):
    def test_command(self) -> None:
        """The index is made in tasks."""
        need_java()
        session()
        store = golden.store(VERSION)
        answer = json.loads(self.succeed("spark", "index", store, "--json"))
        self.assertEqual((11, 10), (answer["files"], answer["spans"]))
        self.assertEqual(10, len(parse_spans(Path(answer["path"]).read_bytes())))
