"""Messages found by queue offset, time and key in the stores of stock brokers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.store.derived.index import Index
from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.rebuild import open_derived
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import key_hash
from tests.support import damage
from tests.support.derived import settings

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
        return Lookup(log, queues, index, DelayLevels.parse(given.delay_levels))

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
        self.assertIsNone(look.record(look.log.end))
