"""Tests for L{rmqha.pipeline.scan}: a log read without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import ColumnUnknown, NotAStore
from rmqha.pipeline.log.errors import (
    CopyBehind,
    DataLost,
    LogCutBack,
    PublishedPointStale,
    RangeBroken,
    SameLog,
)
from rmqha.wire.log.published import (
    Cut,
    CutReason,
    Point,
    Span,
    parse_point,
    render_point,
    render_spans,
)
from rmqha.wire.store_layout import OWN_FOLDER, POINT, SPLITS
from tests.support.rows import COLUMNS, TORN, comparable, expected, publish, row_of

try:
    from rmqha.pipeline.log.options import Mode, ReadOptions
    from rmqha.pipeline.log.ranges import Range, plan
    from rmqha.pipeline.log.reading import MessageReader, RangeProof, chosen_columns
    from rmqha.pipeline.log.stores import open_stores
    from rmqha.pipeline.scan import scan, snapshot
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


def rows(path: Path, **options: object) -> list[dict[str, Any]]:
    """All rows of a scan."""
    found: list[dict[str, Any]] = scan(path, **options).read_all().to_pylist()
    return found


def offsets(path: Path, **options: object) -> list[int]:
    """Physical offsets of the rows of a scan that leaves nothing out by itself."""
    given = {"visibility": "log", "columns": "physical_offset", **options}
    return [row["physical_offset"] for row in rows(path, **given)]


class GoldenTests(SynchronousTestCase):
    """Every golden store reads to what RocketMQ's own classes read."""

    def test_every_archive(self) -> None:
        """All records are rows, in order, with everything the truth knows of them; but not
        the record of C{slave-torn-props} that is torn where no check sees it.
        """
        for version, name in golden.ARCHIVES:
            store = golden.store(version, name, into=Path(self.mktemp()))
            found = map(comparable, rows(store, visibility="log", columns=COLUMNS))
            wanted = map(row_of, expected(version, name))
            self.assertEqual(list(wanted), list(found), f"{version} {name}")

    def test_torn_properties(self) -> None:
        """The store whose last record has only its property bytes torn ends before it."""
        version = next(version for version, name in golden.ARCHIVES if name == TORN)
        store = golden.store(version, TORN)
        lines = list(golden.jsonl(version, golden.truth(TORN, "expected.jsonl")))
        torn = [line for line in lines if "topic" in line][-1]
        self.assertEqual({"store": torn["physicalOffset"]}, snapshot(store))

    def test_small_partitions(self) -> None:
        """However the log is divided, the rows are the same."""
        store = golden.store("5.3.3")
        self.assertEqual(offsets(store), offsets(store, maxPartitionBytes=1))

    def test_consumers_view(self) -> None:
        """Without options there are the records that a consumer could get."""
        store = golden.store("5.3.3")
        seen = {row["physical_offset"] for row in rows(store, columns="physical_offset")}
        system = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX")
        for record in expected("5.3.3", "store"):
            hidden = record["topic"].startswith("rmq_sys_") or record["topic"] in system
            hidden = hidden or record["sysFlag"] & 0xC in (0x4, 0xC)
            self.assertEqual(not hidden, record["physicalOffset"] in seen, record)


class SelectionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.records = expected("5.3.3", "store")

    def check(self, wanted: Any, **options: object) -> None:
        """Compare a scan with the records that a rule takes."""
        taken = [record["physicalOffset"] for record in self.records if wanted(record)]
        self.assertTrue(taken)
        self.assertLess(len(taken), len(self.records))
        self.assertEqual(taken, offsets(self.store, **options))

    def test_topics(self) -> None:
        """One topic, several, or those a pattern matches as a whole."""
        self.check(lambda record: record["topic"] == "GoldenA", topic="GoldenA")
        names = sorted({record["topic"] for record in self.records})[:2]
        self.check(lambda record: record["topic"] in names, topic=names)
        self.check(lambda record: record["topic"].startswith("Gold"), subscribePattern="Gold.*")

    def test_tags(self) -> None:
        """Tags are compared as text, as in a subscription."""
        wanted = ("TagA", "TagB")
        self.check(lambda each: each["properties"].get("TAGS") in wanted, tags="TagA || TagB")
        self.check(
            lambda each: each["properties"].get("TAGS") in wanted and "KEYS" in each["properties"],
            tags="TagA || TagB",
            propertyFilter="KEYS IS NOT NULL",
        )

    def test_queue_ids(self) -> None:
        """Queues by their ids."""
        self.check(lambda record: record["queueId"] in (1, 2), queueIds=[1, 2])

    def test_offsets(self) -> None:
        """A read begins and ends at physical offsets; one inside a record is rounded up."""
        low, high = self.records[300]["physicalOffset"], self.records[700]["physicalOffset"]
        for inside in (0, 1):
            self.check(
                lambda record, more=inside: low + more <= record["physicalOffset"] < high + more,
                startingOffsets={"store": low + inside},
                endingOffsets={"store": high + inside},
            )

    def test_queue_offsets(self) -> None:
        """A batch may begin and end at places in queues; other queues are read whole."""
        first, last = {"GoldenA": {"0": 1}}, {"GoldenA": {"0": 3, "1": 0}}

        def wanted(record: dict[str, Any]) -> bool:
            if record["topic"] != "GoldenA" or record["queueId"] > 1:
                return True
            return record["queueId"] == 0 and 1 <= record["queueOffset"] < 3

        self.check(wanted, startingOffsets=first, endingOffsets=last)

    def test_times(self) -> None:
        """A read begins at the first record stored at a time or later, and ends before one."""
        times = [record["storeTimestamp"] for record in self.records]
        low, high = sorted(times)[400], sorted(times)[800]
        first = next(at for at, time in enumerate(times) if time >= low)
        last = next(at for at, time in enumerate(times) if time >= high)
        wanted = [record["physicalOffset"] for record in self.records[first:last]]
        found = offsets(self.store, startingTimestamp=low, endingTimestamp=high)
        self.assertEqual(wanted, found)

    def test_latest(self) -> None:
        """From the end on there is nothing, and the schema is there all the same."""
        table = scan(self.store, startingOffsets="latest", columns="topic").read_all()
        self.assertEqual((0, ["topic"]), (table.num_rows, table.schema.names))

    def test_columns(self) -> None:
        """Columns come in the order they are asked for, and a wrong one names the nearest."""
        self.assertEqual(
            ["queueOffset", "topic"],
            scan(self.store, columns="queueOffset,topic", columnStyle="rocketmq").schema.names,
        )
        error = self.assertRaises(ColumnUnknown, scan, self.store, columns="topic,queue_ids")
        self.assertEqual("unknown column queue_ids; did you mean queue_id?", str(error))

    def test_kafka(self) -> None:
        """In Kafka's style a row has the names of Spark's Kafka source."""
        found = rows(self.store, columnStyle="kafka", visibility="log")
        self.assertEqual(
            [(each["topic"], each["queueId"], each["queueOffset"]) for each in self.records],
            [(row["topic"], row["partition"], row["offset"]) for row in found],
        )

    def test_decompress(self) -> None:
        """Compressed bodies can be had as they were before."""
        found = rows(self.store, decompress=True, visibility="log", columns="body,sys_flag")
        for row in found:
            if row["sys_flag"] & 1:
                self.assertNotIn(row["body"][:4], (b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"))


class SystemTopicTests(SynchronousTestCase):
    """A store of a stock 5.3.3 broker, with timer messages and check points of POP."""

    def test_left_out(self) -> None:
        """What brokers keep for themselves is read only if asked for; earlier handouts say so."""
        store = Path(self.mktemp())
        golden.unpack(golden.DATA / "pop" / "store-killed.tar.xz", store)
        own = {"rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_C"}
        (root,) = store.iterdir()
        found = rows(root, columns="topic,properties,first_pop_timestamp")
        self.assertEqual([row for row in found if row["topic"] in own], [])
        again = [row for row in found if row["topic"] == "%RETRY%G_T"]
        told = [int(dict(row["properties"])["1ST_POP_TIME"]) for row in again]
        popped = [round(row["first_pop_timestamp"].timestamp() * 1000) for row in again]
        self.assertTrue(told)
        self.assertEqual(popped, told)
        everything = {row["topic"] for row in rows(root, columns="topic", visibility="log")}
        self.assertLessEqual(own, everything)


class TableTests(SynchronousTestCase):
    def test_files(self) -> None:
        """Each file is a row with what is used of it."""
        store = golden.store("4.9.7")
        found = rows(store, table="files")
        self.assertEqual(
            sorted(str(path) for path in (store / "commitlog").iterdir()),
            [row["path"] for row in found],
        )
        self.assertEqual(snapshot(store)["store"], sum(row["used_bytes"] for row in found))

    def test_ranges(self) -> None:
        """Ranges follow each other from the log's start to its end."""
        store = golden.store("4.9.7")
        found = rows(store, table="ranges")
        ends = [0, *(row["end_offset"] for row in found)]
        self.assertEqual(ends[:-1], [row["start_offset"] for row in found])
        self.assertEqual(snapshot(store)["store"], ends[-1])

    def test_ranges_can_be_read(self) -> None:
        """A range's row is enough to read it, and no longer for a log that was cut often."""
        store = golden.store("4.9.7")
        publish(store, snapshot(store)["store"], cuts=(Cut(5, 6), Cut(7, 8, CutReason.COPY)))
        options = ReadOptions.parse({"path": store, "visibility": "log", "columns": "topic"})
        ranges = plan(open_stores(options), options)
        found = [Range.from_json(row["range"]) for row in rows(store, table="ranges")]
        self.assertEqual(ranges, found)
        reader = MessageReader(options, ("topic",))
        count = sum(batch.num_rows for each in found for batch in reader.read(each))
        self.assertEqual(len(offsets(store)), count)


class PointTests(SynchronousTestCase):
    """What a node published is kept to."""

    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.records = expected("5.3.3", "store")
        self.all = [record["physicalOffset"] for record in self.records]
        self.end = self.all[-1] + self.records[-1]["size"]

    def test_reads_to_the_point(self) -> None:
        """Nothing above the point is read, and rows name the broker."""
        publish(self.store, self.all[500])
        self.assertEqual(self.all[:500], offsets(self.store))
        self.assertEqual({"golden"}, {row["broker_name"] for row in rows(self.store)})

    def test_split_index(self) -> None:
        """With a split index there are more ranges, and times need not be walked for."""
        publish(self.store, self.end)
        spans, count = [], 50
        for row in range(0, len(self.all), count):
            part = self.records[row : row + count]
            times = [record["storeTimestamp"] for record in part]
            ends = [*self.all, self.end]
            stop = ends[min(row + count, len(self.all))]
            spans.append(Span(self.all[row], stop, row, len(part), min(times), max(times)))
        (self.store / OWN_FOLDER / SPLITS).write_bytes(render_spans(spans))
        found = rows(self.store, table="ranges", maxPartitionBytes=1)
        self.assertLessEqual({span.start for span in spans}, {row["start_offset"] for row in found})
        self.assertEqual(self.all, offsets(self.store, maxPartitionBytes=1))
        middle = self.records[700]["storeTimestamp"]
        first = next(r for r in self.records if r["storeTimestamp"] >= middle)["physicalOffset"]
        found_first = offsets(self.store, startingTimestamp=middle)[0]
        self.assertEqual(first, found_first)
        # An index that was not carried on yet says nothing of what follows it.
        (self.store / OWN_FOLDER / SPLITS).write_bytes(render_spans(spans[:3]))
        found_first = offsets(self.store, startingTimestamp=middle)[0]
        self.assertEqual(first, found_first)
        self.assertEqual(self.all, offsets(self.store, maxPartitionBytes=1))

    def test_stale_point(self) -> None:
        """A store that grew after it was closed by us is refused, unless that is wanted."""
        publish(self.store, self.all[500], closed=True)
        error = self.assertRaises(PublishedPointStale, offsets, self.store)
        self.assertIn("pointFile=ignore", str(error))
        self.assertEqual(self.all, offsets(self.store, pointFile="ignore"))

    def test_point_beyond_the_files(self) -> None:
        """A copy that lacks files its point speaks of is refused."""
        publish(self.store, self.end)
        sorted((self.store / "commitlog").iterdir())[-1].unlink()
        self.assertRaises(CopyBehind, offsets, self.store)

    def test_cut_while_it_is_read(self) -> None:
        """A log that is cut below the end of a range gives no row of it afterwards."""
        publish(self.store, self.end)
        options = ReadOptions.parse({"path": self.store, "visibility": "log"})
        ranges = plan(open_stores(options), options)
        reader = MessageReader(options, chosen_columns(options))
        before = Point(
            confirm=self.end, durable=self.end, min_offset=0, broker_name="golden", generation="i"
        )
        cut = before.cut_at(self.all[-1], 1)
        (self.store / OWN_FOLDER / POINT).write_bytes(render_point(cut))
        self.assertTrue(list(reader.read(ranges[0])))
        error = self.assertRaises(LogCutBack, list, reader.read(ranges[-1]))
        self.assertEqual(self.all[-1], error.at)

    def test_cut_explains_damage(self) -> None:
        """Zeros that the guard left while a range was read are told as the cut they are."""
        publish(self.store, self.end)
        for mode in Mode:
            options = ReadOptions.parse({"path": self.store, "visibility": "log", "mode": mode})
            wanted = plan(open_stores(options), options)[-1]
            found = MessageReader(options, chosen_columns(options)).read(wanted)
            with self.patched_after_waiting(wanted):
                self.assertRaises(LogCutBack, list, found)
            publish(self.store, self.end)

    @contextmanager
    def patched_after_waiting(self, wanted: Range) -> Iterator[None]:
        """Cut the log as soon as a task has found that it is all there."""
        file = Path(wanted.path)
        whole = file.read_bytes()
        wait = RangeProof.await_copy

        def cut(guard: RangeProof) -> None:
            wait(guard)
            point = self.store / OWN_FOLDER / POINT
            point.write_bytes(render_point(parse_point(point.read_bytes()).cut_at(wanted.start, 7)))
            file.write_bytes(whole[:300] + bytes(len(whole) - 300))

        patch = self.patch(RangeProof, "await_copy", cut)
        try:
            yield
        finally:
            patch.restore()
            file.write_bytes(whole)


class BadInputTests(SynchronousTestCase):
    """Damage is told, and never read over."""

    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.files = sorted((self.store / "commitlog").iterdir())

    def test_deleted_files(self) -> None:
        """Files that retention deleted, before or during a read, are an error or are skipped."""
        whole = offsets(self.store)
        options = ReadOptions.parse({"path": self.store, "visibility": "log"})
        ranges = plan(open_stores(options), options)
        self.files[0].unlink()
        reader = MessageReader(options, ("physical_offset",))
        error = self.assertRaises(DataLost, list, reader.read(ranges[0]))
        self.assertEqual((0, 262144), (error.start, error.end))
        kept = [offset for offset in whole if offset >= 262144]
        self.assertEqual(kept, offsets(self.store))
        start = {"startingOffsets": {"store": 0}}
        self.assertRaises(DataLost, offsets, self.store, **start)
        self.assertEqual(kept, offsets(self.store, failOnDataLoss=False, **start))

    def test_hole(self) -> None:
        """A file missing between others is lost data."""
        whole = offsets(self.store)
        self.files[2].unlink()
        error = self.assertRaises(DataLost, offsets, self.store)
        self.assertEqual((2 * 262144, 3 * 262144), (error.start, error.end))
        kept = [offset for offset in whole if not error.start <= offset < error.end]
        self.assertEqual(kept, offsets(self.store, failOnDataLoss=False))

    def test_zeros_in_an_earlier_file(self) -> None:
        """What would be the end of the last file is damage in any other."""
        record = expected("5.3.3", "store")[10]
        with self.files[0].open("r+b") as file:
            file.seek(record["physicalOffset"])
            file.write(bytes(record["size"]))
        error = self.assertRaises(RangeBroken, offsets, self.store)
        self.assertEqual(record["physicalOffset"], error.offset)

    def test_short_file(self) -> None:
        """A file that was cut short is not taken for a whole one."""
        for size in (1000, 0):
            os.truncate(self.files[0], size)
            error = self.assertRaises(
                (RangeBroken, DataLost), offsets, self.store, startingOffsets={"store": 0}
            )
            self.assertIn("bytes 0 to 262144" if not size else "the file ends here", str(error))

    def test_crc(self) -> None:
        """A changed body is found, unless nobody asks."""
        record = next(each for each in expected("5.3.3", "store") if each["bodyLength"] > 100)
        self.damage(record["physicalOffset"] + 100)
        self.assertRaises(RangeBroken, offsets, self.store)
        self.assertEqual(len(expected("5.3.3", "store")), len(offsets(self.store, verifyCrc=False)))

    def test_crc_and_on(self) -> None:
        """A read that is to go on has one row that tells of a changed body, or none."""
        records = expected("5.3.3", "store")
        record = next(each for each in records if each["bodyLength"] > 100)
        self.damage(record["physicalOffset"] + 100)
        found = rows(self.store, mode="PERMISSIVE", visibility="log")
        self.assertEqual(len(records), len(found))
        (bad,) = [row for row in found if row["_corrupt_record"] is not None]
        self.assertIn(f"at byte {record['physicalOffset']}", bad["_corrupt_record"])
        self.assertEqual((record["physicalOffset"], None), (bad["physical_offset"], bad["topic"]))
        self.assertEqual(len(records) - 1, len(offsets(self.store, mode="DROPMALFORMED")))

    def test_broken_chain_and_on(self) -> None:
        """Behind a record whose size is damaged a read goes on in the next file, or where the
        split index says that a record begins; it never searches.
        """
        records = expected("5.3.3", "store")
        every = [record["physicalOffset"] for record in records]
        self.damage(every[3] + 1)
        left = every[:3] + [offset for offset in every if offset >= 262144]
        self.assertEqual(left, offsets(self.store, mode="DROPMALFORMED"))
        found = rows(self.store, mode="PERMISSIVE", visibility="log", columns="_corrupt_record")
        self.assertEqual(1, sum(row["_corrupt_record"] is not None for row in found))
        end = every[-1] + records[-1]["size"]
        publish(self.store, end)
        spans = [Span(0, every[9], 0, 9, 0, 1), Span(every[9], end, 9, len(every) - 9, 0, 1)]
        (self.store / OWN_FOLDER / SPLITS).write_bytes(render_spans(spans))
        self.assertEqual(every[:3] + every[9:], offsets(self.store, mode="DROPMALFORMED"))

    def damage(self, place: int) -> None:
        """Flip a bit of the first file."""
        with self.files[0].open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))

    def test_two_copies(self) -> None:
        """One log is not read twice in one query, two logs are."""
        stores = {"a": self.store, "b": golden.store("5.3.3")}
        self.assertRaises(SameLog, scan(stores=stores).read_all)
        stores["b"] = golden.store("4.9.7")
        table = scan(stores=stores, visibility="log", columns="broker_name").read_all()
        counts = {name: len(offsets(path)) for name, path in stores.items()}
        names = table["broker_name"].to_pylist()
        self.assertEqual(counts, {name: names.count(name) for name in counts})

    def test_wrong_folder(self) -> None:
        """A folder without a log is no store, and an empty log has no rows."""
        empty = Path(self.mktemp())
        self.assertRaises(NotAStore, offsets, empty)
        (empty / "commitlog").mkdir(parents=True)
        self.assertEqual([], offsets(empty))

    def test_commitlog_folder(self) -> None:
        """The log's own folder may be named too."""
        self.assertEqual(offsets(self.store), offsets(self.store / "commitlog"))

    def test_snapshot(self) -> None:
        """A snapshot's offsets end later reads where the log ended then."""
        end = snapshot(self.store)
        self.assertEqual(json.dumps(end), json.dumps(snapshot(self.store, endingOffsets=end)))
