"""Derived files of the golden stores, and messages found in them by queue offset, time and key."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.index import Index
from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.rebuild import open_derived
from rmqha.store.derived.record_at import RecordReader
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import key_hash
from tests.support import damage
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


VERSION = golden.VERSIONS[0]


def units(version: str, name: str = "store") -> list[dict[str, Any]]:
    """The queues of a store as RocketMQ reads them."""
    return list(golden.jsonl(version, golden.truth(name, "expected-cq.jsonl")))


class LookupTests(SynchronousTestCase):
    def lookup(self, store: Path) -> Lookup:
        """A way to look things up in a store on disk."""
        log, given = OfflineLog(store), settings(store)
        queues, index = open_derived(store, given, read_only=True)
        assert index is not None
        self.addCleanup(queues.close)
        self.addCleanup(index.close)
        queues.load()
        queues.inspect(log.min_offset)
        index.load()
        return Lookup(RecordReader(log, DelayLevels.parse(given.delay_levels)), queues, index)

    def test_by_queue_offset(self) -> None:
        """Every unit of every queue leads to its own record, and nothing else does."""
        for version in golden.VERSIONS:
            look = self.lookup(golden.store(version))
            for queue in units(version):
                topic, number = queue["topic"], queue["queueId"]
                low, high = queue["minOffset"], queue["maxOffset"]
                self.assertEqual(look.bounds(topic, number) or (0, 0), (low, high))
                for offset, unit in enumerate(queue["units"], low):
                    found = look.by_queue_offset(topic, number, offset)
                    assert found is not None
                    self.assertEqual((found.offset, found.size), tuple(unit[:2]))
                for outside in (low - 1, high):
                    self.assertIsNone(look.by_queue_offset(topic, number, outside))

    def test_late_queue(self) -> None:
        """A queue that does not begin at 0 has a smallest offset, and nothing below it."""
        look = self.lookup(golden.store("5.3.3", "slave-late"))
        low, _ = look.bounds("FloodA", 0) or (0, 0)
        self.assertEqual(low, 107)
        self.assertIsNone(look.by_queue_offset("FloodA", 0, 106))
        found = look.by_queue_offset("FloodA", 0, 107)
        assert found is not None
        self.assertEqual(found.queue_offset, 107)

    def test_no_queue(self) -> None:
        """A queue that does not exist has nothing."""
        look = self.lookup(golden.store(VERSION, "ipv6"))
        self.assertIsNone(look.bounds("nobody", 0))
        self.assertIsNone(look.by_queue_offset("nobody", 0, 0))
        self.assertEqual(look.by_time("nobody", 0, 0), 0)

    def test_wrong_unit(self) -> None:
        """A unit that points to another record gives nothing."""
        store = golden.store(VERSION)
        path = sorted((store / "consumequeue" / "GoldenBulk" / "0").iterdir())[0]
        damage.overwrite(path, 20, path.read_bytes()[40:60])
        self.assertIsNone(self.lookup(store).by_queue_offset("GoldenBulk", 0, 1))
        damage.flip(path, 40 + 11)
        self.assertIsNone(self.lookup(store).by_queue_offset("GoldenBulk", 0, 2))

    def test_by_time(self) -> None:
        """The first message of a time, the nearest one otherwise."""
        look = self.lookup(golden.store(VERSION))
        times = []
        low, high = look.bounds("GoldenBulk", 0) or (0, 0)
        for offset in range(low, high):
            found = look.by_queue_offset("GoldenBulk", 0, offset)
            assert found is not None
            times.append(found.store_timestamp)
        self.assertEqual(times, sorted(times))
        for time in {times[0], times[7], times[-1]}:
            self.assertEqual(look.by_time("GoldenBulk", 0, time), low + times.index(time))
        self.assertEqual(look.by_time("GoldenBulk", 0, 0), low)
        self.assertEqual(look.by_time("GoldenBulk", 0, times[-1] + 10_000), high)

    def test_by_key(self) -> None:
        """A key gives exactly the records that have it, where RocketMQ compares hashes only."""
        store = golden.store(VERSION)
        look = self.lookup(store)
        having: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for row in golden.jsonl(VERSION, "expected.jsonl"):
            if "blank" in row or row["sysFlag"] & 0xC == 0xC:
                continue
            properties = row["properties"]
            keys = {properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")} - {""}
            for key in keys:
                having[row["topic"], key].append(row["physicalOffset"])
        for (topic, key), offsets in having.items():
            found = [record.offset for record in look.by_key(topic, key, max_num=64).records]
            self.assertEqual(found, offsets[-64:], (topic, key))
        self.assertEqual(look.by_key("GoldenA", "no-such-key").records, ())
        self.assertEqual(look.by_key("GoldenA", "k1", max_num=0).records, ())

    def test_by_key_and_time(self) -> None:
        """Times bound what is found, to the millisecond."""
        look = self.lookup(golden.store(VERSION))
        (record,) = look.by_key("GoldenA", "k1").records
        time = record.store_timestamp
        self.assertEqual(len(look.by_key("GoldenA", "k1", begin=time, end=time).records), 1)
        self.assertEqual(look.by_key("GoldenA", "k1", begin=time + 1).records, ())
        self.assertEqual(look.by_key("GoldenA", "k1", end=time - 1).records, ())

    def test_hash_collision(self) -> None:
        """Another key of the same hash does not find the record."""
        look = self.lookup(golden.store(VERSION))
        # Java: "Aa" and "BB" hash alike, so do keys that differ in just that.
        self.assertEqual(key_hash("t", "xAa"), key_hash("t", "xBB"))
        real = Index.query
        (record,) = look.by_key("GoldenA", "k1").records

        def colliding(index: Index, *args: Any) -> list[int]:
            return [record.offset] if args[1] == "other" else real(index, *args)

        self.patch(Index, "query", colliding)
        self.assertEqual(look.by_key("GoldenA", "other").records, ())
        self.assertEqual(look.by_key("GoldenA", "other", max_num=1).records, ())

    def test_without_index(self) -> None:
        """Without an index no key is found."""
        look = self.lookup(golden.store(VERSION, "ipv6"))
        look.index = None
        self.assertEqual(look.by_key("GoldenA", "k1").records, ())

    def test_record(self) -> None:
        """A physical offset gives its record, a place inside one nothing."""
        look = self.lookup(golden.store(VERSION))
        found = look.record(208)
        assert found is not None
        self.assertEqual(found.properties["TAGS"], "标签")
        self.assertIsNone(look.record(209))
        self.assertIsNone(look.record(look.records.log.end))
