"""Derived files of the golden stores: ours from the log alone, and a stock broker's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.harness import golden
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.index import Index
from rmqha.store.derived.rebuild import open_derived
from rmqha.store.derived.record_at import RecordReader
from rmqha.wire.log.delay_levels import DelayLevels
from tests.support.derived import (
    DerivedTestCase,
    dispatcher,
    drain,
    index_files,
    queue_files,
    settings,
)
from tests.support.effort import slow
from tests.support.memorylog import MemoryLog

# Stores whose broker was stopped, and so has written all its units.
CLEAN = ("store", "ipv6")


class GoldenTestCase(DerivedTestCase):
    def log_of(self, version: str, name: str, store: Path) -> MemoryLog:
        """The store's log up to the end a stock broker recovers to."""
        lines = golden.jsonl(version, golden.truth(name, "expected.jsonl"))
        end = max(line["physicalOffset"] + line["size"] for line in lines if "torn" not in line)
        return MemoryLog.of_store(store, end, golden.LOG_FILE_SIZE)

    def opened(self, root: Path, log: MemoryLog) -> tuple[ConsumeQueues, Index]:
        queues, index = open_derived(root, settings(root), read_only=True)
        assert index is not None
        self.addCleanup(queues.close)
        self.addCleanup(index.close)
        queues.load()
        queues.inspect(log.min_offset)
        index.load()
        return queues, index

    def assert_units(self, version: str, name: str, queues: ConsumeQueues) -> None:
        seen = 0
        for line in golden.jsonl(version, golden.truth(name, "expected-cq.jsonl")):
            if not line["units"]:
                continue  # a queue 4.9.7 has in memory only
            seen += 1
            queue = queues.get(line["topic"], line["queueId"])
            assert queue is not None, line["topic"]
            bounds = queue.min_offset, queue.max_offset, queue.end_physical
            self.assertEqual(
                bounds, (line["minOffset"], line["maxOffset"], line["maxPhysicOffset"])
            )
            units = [queue.unit(offset) for offset in range(*bounds[:2])]
            self.assertEqual(units, [tuple(unit) for unit in line["units"]])
        self.assertEqual(seen, len(queues))

    def wrong_lookups(self, version: str, name: str, index: Index) -> list[Any]:
        """The keys for which a query gives something else than the stock broker's."""
        truth = golden.document(version, golden.truth(name, "expected-index.json"))
        return [
            look
            for look in truth["lookups"]
            if index.query(
                look["topic"], look["key"], truth["maxNum"], truth["begin"], truth["end"]
            )
            != look["physicalOffsets"]
        ]


class FromTheLogTests(GoldenTestCase):
    def test_rebuilt(self) -> None:
        """From the log alone come the units and the lookups of the stock broker."""
        for version, name in golden.ARCHIVES:
            store = golden.store(version, name)
            log = self.log_of(version, name, store)
            root = self.rebuilt(log)
            queues, index = self.opened(root, log)
            self.assert_units(version, name, queues)
            self.assertEqual(self.wrong_lookups(version, name, index), [], (version, name))
            self.assertEqual(self.differences(log, root), [])

    def test_queue_files_are_the_brokers(self) -> None:
        """After a clean stop the broker's queue files equal ours byte for byte."""
        for version, name in golden.ARCHIVES:
            store = golden.store(version, name)
            root = self.rebuilt(self.log_of(version, name, store))
            ours, theirs = queue_files(root), queue_files(store)
            if name in CLEAN:
                self.assertEqual(list(ours), list(theirs))
            for path in ours.keys() & theirs.keys():
                # a broker that was killed lacks units at the end, nothing else
                filled = theirs[path] if name in CLEAN else theirs[path].rstrip(b"\0")
                self.assertEqual(ours[path][: len(filled)] == filled, True, path)

    def test_index_entries_are_the_brokers(self) -> None:
        """After a clean stop the broker's index files equal ours but for their names."""
        for version, name in golden.ARCHIVES:
            if name in CLEAN:
                store = golden.store(version, name)
                root = self.rebuilt(self.log_of(version, name, store))
                self.assertEqual(index_files(root) == index_files(store), True, (version, name))


class BrokersOwnFilesTests(GoldenTestCase):
    @slow
    def test_go_on_with_them(self) -> None:
        """A stock broker's store opens as it is: what was not dispatched is, as from the log."""
        for version, name in golden.ARCHIVES:
            for clean in {False, name in CLEAN}:
                store = golden.store(version, name)
                log = self.log_of(version, name, store)
                made = dispatcher(log, store)
                made.recover(clean=clean)
                drain(made)
                self.assertEqual((made.rebuilds, made.faults), (0, []), (version, name))
                made.queues.close()
                assert made.index is not None
                self.assertEqual(self.wrong_lookups(version, name, made.index), [])
                made.index.close()
                queues, _ = self.opened(store, log)
                self.assert_units(version, name, queues)
                self.assertEqual(self.differences(log, store), [], (version, name))
                self.assert_like_rebuild(log, store)

    def test_read_as_they_are(self) -> None:
        """Java's own index files answer as Java does, where the broker was stopped cleanly."""
        for version, name in golden.ARCHIVES:
            if name in CLEAN:
                store = golden.store(version, name)
                log = self.log_of(version, name, store)
                queues, index = self.opened(store, log)
                self.assert_units(version, name, queues)
                self.assertEqual(self.wrong_lookups(version, name, index), [])
                peek = RecordReader(log, DelayLevels.parse(settings(store).delay_levels))
                before = index_files(store)
                index.recover(peek, clean=True)
                self.assertEqual(index_files(store) == before, True)
