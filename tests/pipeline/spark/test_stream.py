"""Tests for L{rmqha.pipeline.spark.stream}: positions, limits and what stops a stream.

A stream is driven here as Spark drives it, without Spark.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.bench.corpus import write_log
from lab.harness import golden
from rmqha.errors import NotAStore
from rmqha.pipeline.errors import OptionInvalid
from rmqha.pipeline.log.errors import (
    CopyBehind,
    DataLost,
    LogCutBack,
    NoPublishedPoint,
    NotThisLog,
    PositionInvalid,
    StoresDiffer,
)
from rmqha.pipeline.remoting import name_servers
from rmqha.pipeline.remoting.errors import NameServersSilent
from rmqha.wire.log.published import CutReason, Point, parse_point, render_point
from rmqha.wire.store_layout import OWN_FOLDER, POINT
from tests.support.opened_files import opened_files
from tests.support.own_name_server import OwnNameServer
from tests.support.rows import expected, publish

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.log.tables import schema_of
    from rmqha.pipeline.spark import stream
    from rmqha.pipeline.spark.stream import StreamReader
    from rmqha.pipeline.spark.types import spark_schema
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


def reader_of(**given: object) -> StreamReader:
    """A stream's reader."""
    options = ReadOptions.parse(
        {"visibility": "log", "columns": "physical_offset", **given}, streaming=True
    )
    return StreamReader(options, spark_schema(schema_of(options)))


def rows_between(reader: StreamReader, start: Any, end: Any) -> list[int]:
    """Physical offsets of the rows of one batch."""
    found: list[int] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += batch.column(0).to_pylist()
    return found


def drain(reader: StreamReader) -> list[list[int]]:
    """Run a stream until it has nothing more: the rows of each batch."""
    batches = []
    position = reader.initialOffset()
    while True:
        limit = reader.getDefaultReadLimit()
        # Spark keeps positions as text.
        latest = json.loads(json.dumps(reader.latestOffset(position, limit)))
        if json.dumps(latest) == json.dumps(position):
            return batches
        batches.append(rows_between(reader, position, latest))
        position = latest


class StreamTestCase(SynchronousTestCase):
    """A golden store with a published point."""

    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.records = expected("5.3.3", "store")
        self.all = [record["physicalOffset"] for record in self.records]
        self.end = self.all[-1] + self.records[-1]["size"]
        publish(self.store, self.end)
        self.patch(stream, "PATIENCE", 0.0)

    def reader(self, **given: object) -> StreamReader:
        return reader_of(path=self.store, **given)

    def cut(self, at: int, why: CutReason = CutReason.CUT) -> None:
        """Tell that the log was cut back."""
        file = self.store / OWN_FOLDER / POINT
        file.write_bytes(render_point(parse_point(file.read_bytes()).cut_at(at, 5, why)))

    def confirm(self, offset: int) -> None:
        file = self.store / OWN_FOLDER / POINT
        point = parse_point(file.read_bytes())
        more = Point(
            confirm=offset,
            durable=offset,
            min_offset=0,
            broker_name=point.broker_name,
            generation=point.generation,
            cuts=point.cuts,
        )
        file.write_bytes(render_point(more))


class AdvancingTests(StreamTestCase):
    """A stream gives every record once, in batches within its limits."""

    def test_everything(self) -> None:
        """Without limits one batch has all there is."""
        self.assertEqual([self.all], drain(self.reader()))

    def test_bytes(self) -> None:
        """A batch keeps to its bytes, but for a single longer record."""
        sizes = {record["physicalOffset"]: record["size"] for record in self.records}
        batches = drain(self.reader(maxBytesPerTrigger="30k"))
        self.assertEqual(self.all, [offset for batch in batches for offset in batch])
        self.assertGreater(len(batches), 20)
        for batch in batches:
            if len(batch) > 1:
                self.assertLessEqual(sum(sizes[offset] for offset in batch), 30 << 10)

    def test_rows(self) -> None:
        """A batch keeps to its rows."""
        batches = drain(self.reader(maxRowsPerTrigger=100))
        self.assertEqual(self.all, [offset for batch in batches for offset in batch])
        self.assertEqual({100}, {len(batch) for batch in batches[:-1]})

    def test_rows_before_selection(self) -> None:
        """What is not selected counts too, so that a stream of a rare topic goes on."""
        batches = drain(self.reader(maxRowsPerTrigger=200, topic="GoldenA"))
        wanted = [each["physicalOffset"] for each in self.records if each["topic"] == "GoldenA"]
        self.assertEqual(wanted, [offset for batch in batches for offset in batch])
        self.assertEqual(-(-len(self.all) // 200), len(batches))

    def test_growing(self) -> None:
        """What is published later comes in the next batch."""
        self.confirm(self.all[100])
        reader = self.reader()
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadAllAvailable())
        self.assertEqual(self.all[:100], rows_between(reader, start, first))
        self.assertEqual(first, reader.latestOffset(first, ReadAllAvailable()))
        self.confirm(self.end)
        second = reader.latestOffset(first, ReadAllAvailable())
        self.assertEqual(self.all[100:], rows_between(reader, first, second))

    def test_available_now(self) -> None:
        """What is published after a stream of what is there began is not of it."""
        self.confirm(self.all[100])
        reader = self.reader(maxRowsPerTrigger=30)
        reader.prepareForTriggerAvailableNow()
        self.confirm(self.end)
        self.assertEqual(self.all[:100], [offset for batch in drain(reader) for offset in batch])

    def test_latest(self) -> None:
        """A stream may begin at the end."""
        reader = self.reader(startingOffsets="latest")
        start = reader.initialOffset()
        self.assertEqual(start, reader.latestOffset(start, ReadMaxBytes(1)))

    def test_places_in_queues(self) -> None:
        """A place in a queue to begin with is about what was there when the stream began: what
        comes later is read, though its queue begins anew, after a restart too.
        """
        topic = self.records[120]["topic"]
        queues = {each["queueId"] for each in self.records if each["topic"] == topic}
        places = {"startingOffsets": json.dumps({topic: dict.fromkeys(queues, 1 << 40)})}
        others = [each["physicalOffset"] for each in self.records if each["topic"] != topic]
        self.confirm(self.all[100])
        reader = self.reader(maxRowsPerTrigger=60, **places)
        start = json.loads(json.dumps(reader.initialOffset()))
        self.confirm(self.all[150])
        limit = reader.getDefaultReadLimit()
        middle = json.loads(json.dumps(reader.latestOffset(start, limit)))
        self.confirm(self.end)
        again = self.reader(maxRowsPerTrigger=80, **places)
        after = again.latestOffset(middle, limit)
        self.assertEqual(self.all[140], after["stores"]["store"]["offset"])
        found = rows_between(again, start, middle) + rows_between(again, middle, after)
        wanted = [at for at in self.all[:100] if at in others] + self.all[100:140]
        self.assertEqual(wanted, found)

    def test_places_in_queues_of_before(self) -> None:
        """With a checkpoint that lacks the log's end, what is there now is what it was about."""
        topic = self.records[120]["topic"]
        queues = {each["queueId"] for each in self.records if each["topic"] == topic}
        places = {"startingOffsets": json.dumps({topic: dict.fromkeys(queues, 1 << 40)})}
        others = {each["physicalOffset"] for each in self.records if each["topic"] != topic}
        self.confirm(self.all[100])
        reader = self.reader(maxRowsPerTrigger=60, **places)
        limit = reader.getDefaultReadLimit()
        old = [reader.initialOffset()]
        old.append(reader.latestOffset(old[0], limit))
        for each in old:
            del each["stores"]["store"]["seen"]
        self.assertEqual(
            [at for at in self.all[:60] if at in others], rows_between(reader, old[0], old[1])
        )
        middle = reader.latestOffset(old[1], limit)
        self.confirm(self.end)
        after = self.reader(**places).latestOffset(middle, ReadAllAvailable())
        wanted = [at for at in self.all[60:100] if at in others] + self.all[100:]
        found = rows_between(reader, old[1], middle) + rows_between(reader, middle, after)
        self.assertEqual(wanted, found)

    def test_several(self) -> None:
        """Several logs share the limit and end in the same batch or so."""
        other = golden.store("4.9.7")
        records = expected("4.9.7", "store")
        publish(other, records[-1]["physicalOffset"] + records[-1]["size"])
        reader = reader_of(
            stores={"a": self.store, "b": other},
            maxBytesPerTrigger="200k",
            columns="physical_offset",
        )
        batches = drain(reader)
        wanted = sorted(self.all + [record["physicalOffset"] for record in records])
        self.assertEqual(wanted, sorted(offset for batch in batches for offset in batch))
        self.assertGreater(len(batches), 5)

    def test_new_store(self) -> None:
        """A store that is new to a checkpoint gets a position first, then rows, all there are."""
        start = reader_of(stores={"a": self.store}).initialOffset()
        other = golden.store("4.9.7")
        records = expected("4.9.7", "store")
        publish(other, records[-1]["physicalOffset"] + records[-1]["size"])
        places = {records[0]["topic"]: {records[0]["queueId"]: 1 << 40}}
        reader = reader_of(stores={"a": self.store, "b": other}, startingOffsets=json.dumps(places))
        first = reader.latestOffset(start, ReadAllAvailable())
        plain = reader_of(stores={"a": self.store, "b": other})
        self.assertEqual(self.all, rows_between(plain, start, first))
        second = reader.latestOffset(first, ReadAllAvailable())
        self.assertEqual(
            [record["physicalOffset"] for record in records], rows_between(reader, first, second)
        )

    def test_named_reader(self) -> None:
        """A reader with a name tells the store where it is."""
        reader = self.reader(readerName="lake")
        reader.commit(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
        told = json.loads((self.store / OWN_FOLDER / "readers" / "lake.json").read_text())
        self.assertEqual(self.end, told["offset"])


class PositionTests(StreamTestCase):
    """A position is believed only where it belongs."""

    def setUp(self) -> None:
        super().setUp()
        self.confirm(self.all[500])
        reader = self.reader()
        self.start = reader.initialOffset()
        self.middle = reader.latestOffset(self.start, ReadAllAvailable())
        self.confirm(self.end)

    def next(self, **given: object) -> Any:
        return self.reader(**given).latestOffset(self.middle, ReadAllAvailable())

    def test_text_is_canonical(self) -> None:
        """A position is always the same text: keys are sorted, and it holds no time."""
        text = json.dumps(self.middle)
        self.assertEqual(json.dumps(json.loads(text), sort_keys=True), text)
        mark = self.middle["stores"]["store"]
        self.assertEqual((self.all[500], self.all[499]), (mark["offset"], mark["last"]))

    def test_another_copy(self) -> None:
        """A stream goes on with another copy of the same log, wherever it lies."""
        moved = Path(self.mktemp()) / "elsewhere"
        shutil.copytree(self.store, moved)
        reader = reader_of(path=moved)
        latest = reader.latestOffset(self.middle, ReadAllAvailable())
        self.assertEqual(self.all[500:], rows_between(reader, self.middle, latest))

    def test_another_log(self) -> None:
        """It does not go on with another log, be that as long as it will."""
        other = golden.store("5.3.3", "killed")
        publish(other, expected("5.3.3", "killed")[-1]["physicalOffset"])
        reader = reader_of(path=other)
        self.assertRaises(NotThisLog, reader.latestOffset, self.middle, ReadAllAvailable())
        self.assertRaises(NotThisLog, reader.partitions, self.start, self.middle)

    def test_cut_back(self) -> None:
        """A stream that read what was cut away stops and says so."""
        self.wipe(self.all[400])
        self.cut(self.all[400])
        error = self.assertRaises(LogCutBack, self.next)
        self.assertEqual((self.all[400], self.all[500]), (error.at, error.position))

    def test_cut_and_grown(self) -> None:
        """It stops too if the log is longer again, with other records."""
        self.cut(self.all[400])
        with self.file_at(self.all[499]).open("r+b") as file:
            file.seek(self.all[499] % 262144 + 60)
            file.write(b"\xff")
        self.confirm(self.end)
        self.assertRaises(LogCutBack, self.next)

    def test_cut_above(self) -> None:
        """A cut above the position is none of its business."""
        self.cut(self.all[600])
        reader = self.reader()
        latest = reader.latestOffset(self.middle, ReadAllAvailable())
        self.assertEqual(self.all[500:600], rows_between(reader, self.middle, latest))

    def test_copied_anew(self) -> None:
        """While the log is copied anew the stream waits, and goes on when its bytes are back."""
        whole = self.file_at(self.all[499]).read_bytes()
        self.wipe(0)
        self.cut(0, CutReason.COPY)
        self.assertEqual(self.middle, self.next())
        self.file_at(self.all[499]).write_bytes(whole)
        self.confirm(self.all[550])
        latest = self.next()
        self.assertEqual(self.all[500:550], rows_between(self.reader(), self.middle, latest))

    def test_behind(self) -> None:
        """On a copy that is behind a stream waits; a batch that is planned already fails."""
        self.confirm(self.all[300])
        self.assertEqual(self.middle, self.next())
        error = self.assertRaises(CopyBehind, self.reader().partitions, self.start, self.middle)
        self.assertEqual((self.all[500], self.all[300]), (error.wanted, error.end))

    def test_deleted(self) -> None:
        """Files deleted before they were read stop a stream, or are skipped."""
        files = sorted((self.store / "commitlog").iterdir())
        gone = next(row for row, file in enumerate(files) if int(file.name) > self.all[500])
        for file in files[: gone + 1]:
            file.unlink()
        first = int(files[gone + 1].name)
        error = self.assertRaises(DataLost, self.next)
        self.assertEqual((self.all[500], first), (error.start, error.end))
        reader = self.reader(failOnDataLoss=False)
        latest = reader.latestOffset(self.middle, ReadAllAvailable())
        kept = [offset for offset in self.all if offset >= first]
        self.assertEqual(kept, rows_between(reader, self.middle, latest))

    def test_store_gone(self) -> None:
        """A store of the checkpoint that is not given any more is an error."""
        reader = reader_of(stores={"b": self.store})
        self.assertRaises(StoresDiffer, reader.latestOffset, self.middle, ReadAllAvailable())

    def test_corrupt(self) -> None:
        """A position that is none is refused."""
        mark = {"offset": 10, "last": 5, "sum": "00"}
        for bad in (
            {},
            {"v": 1, "stores": []},
            {"v": 2, "stores": {"store": mark}},
            {"v": 1, "stores": {"store": 7}},
            {"v": 1, "stores": {"store": {**mark, "offset": "10"}}},
            {"v": 1, "stores": {"store": {**mark, "last": 11}}},
            {"v": 1, "stores": {"store": {**mark, "sum": ""}}},
        ):
            reader = self.reader()
            self.assertRaises(PositionInvalid, reader.latestOffset, bad, ReadAllAvailable())

    def test_backwards(self) -> None:
        """A batch never goes back."""
        self.assertRaises(PositionInvalid, self.reader().partitions, self.middle, self.start)

    def test_no_point(self) -> None:
        """A store that nobody publishes a point for is tailed only if that is wanted."""
        (self.store / OWN_FOLDER / POINT).unlink()
        self.assertRaises(NoPublishedPoint, self.reader().initialOffset)
        self.assertEqual([self.all], drain(self.reader(allowUnconfirmedTail=True)))

    def wipe(self, start: int) -> None:
        """Zero the log from a place on, as the guard does."""
        for file in sorted((self.store / "commitlog").iterdir()):
            keep = max(0, min(262144, start - int(file.name)))
            with file.open("r+b") as open_file:
                open_file.seek(keep)
                open_file.write(bytes(262144 - keep))

    def file_at(self, offset: int) -> Path:
        return self.store / "commitlog" / f"{offset // 262144 * 262144:020d}"


class SeveralTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(stream, "PATIENCE", 0.0)
        self.place = Path(self.mktemp()).absolute()
        self.place.mkdir()
        self.stores: dict[str, Path] = {}
        self.all: dict[str, list[int]] = {}
        for name, version, kind in (("a", "5.3.3", "store"), ("b", "4.9.7", "store")):
            records = expected(version, kind)
            self.stores[name] = self.place / name
            shutil.copytree(golden.store(version, kind), self.stores[name])
            self.all[name] = [record["physicalOffset"] for record in records]
            publish(self.stores[name], self.all[name][100], broker_name=name)
        self.list = self.place / "stores.json"
        self.give("a", "b")

    def give(self, *names: str) -> None:
        self.list.write_text(json.dumps({name: str(self.stores[name]) for name in names}))

    def grow(self, row: int, *names: str) -> None:
        for name in names:
            publish(self.stores[name], self.all[name][row], broker_name=name)

    def reader(self, missing: str = "wait", **given: object) -> StreamReader:
        columns = "broker_name,physical_offset"
        return reader_of(storesFile=self.list, missingStores=missing, columns=columns, **given)

    def rows(self, reader: StreamReader, start: Any, end: Any) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                for row in batch.to_pylist():
                    found.setdefault(row["broker_name"], []).append(row["physical_offset"])
        return found

    def next(self, reader: StreamReader, start: Any) -> Any:
        """The next position, as Spark keeps it."""
        return json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))


class SeveralTests(SeveralTestCase):
    """Several brokers in one stream: what befalls one holds up that one."""

    def test_absent(self) -> None:
        """A broker away for a while loses nothing, others go on; unless that is to fail."""
        reader = self.reader()
        first = self.next(reader, reader.initialOffset())
        away = self.place / "away"
        self.stores["b"].rename(away)
        self.grow(200, "a")
        self.assertRaises(NotAStore, self.next, self.reader("fail"), first)
        second = self.next(reader, first)
        self.assertEqual({"a": self.all["a"][100:200]}, self.rows(reader, first, second))
        state = reader.reportLatestOffset()["stores"]["b"]
        self.assertIn("it does not exist", state["state"])
        self.assertEqual(self.all["b"][100], state["offset"])
        away.rename(self.stores["b"])
        self.grow(150, "b")
        third = self.next(reader, second)
        self.assertEqual({"b": self.all["b"][100:150]}, self.rows(reader, second, third))
        self.assertNotIn("state", reader.reportLatestOffset()["stores"]["b"])

    def test_absent_at_the_start(self) -> None:
        """One that is not there yet begins when it comes."""
        away = self.place / "away"
        self.stores["b"].rename(away)
        reader = self.reader()
        begun = reader.initialOffset()
        self.assertEqual(["a"], sorted(begun["stores"]))
        away.rename(self.stores["b"])
        first = self.next(reader, begun)
        second = self.next(reader, first)
        self.assertEqual({"b": self.all["b"][:100]}, self.rows(reader, first, second))

    def test_damaged(self) -> None:
        """A broker with a damaged record gives what is before it, and then holds up itself alone:
        also where only the body is damaged, which planning otherwise leaves to the tasks.
        """
        for place in (4, 92):
            bad = self.all["b"][50]
            name, at = divmod(bad, golden.LOG_FILE_SIZE)
            file = self.stores["b"] / "commitlog" / f"{name * golden.LOG_FILE_SIZE:020d}"
            whole = file.read_bytes()
            file.write_bytes(whole[: at + place] + b"\xff\xfe" + whole[at + place + 2 :])
            reader = self.reader(maxBytesPerTrigger="1g")
            start = reader.initialOffset()
            first = self.next(reader, start)
            wanted = {"a": self.all["a"][:100], "b": self.all["b"][:50]}
            self.assertEqual(wanted, self.rows(reader, start, first))
            self.grow(200, "a")
            second = self.next(reader, first)
            self.assertEqual({"a": self.all["a"][100:200]}, self.rows(reader, first, second))
            told = reader.reportLatestOffset()["stores"]["b"]
            self.assertIn(f"at byte {bad}", told["state"])
            self.assertEqual(self.all["b"][100], told["offset"])
            file.write_bytes(whole)
            third = self.next(reader, second)
            self.assertEqual({"b": self.all["b"][50:100]}, self.rows(reader, second, third))
            self.grow(100, "a")

    def test_idle(self) -> None:
        """An idle stream notices what comes, what goes and what is cut all the same."""
        reader = self.reader("fail")
        first = self.next(reader, reader.initialOffset())

        def idle() -> None:
            for _ in range(3):
                self.assertEqual(first, self.next(reader, first))
                reader.reportLatestOffset()

        idle()
        self.grow(150, "b")
        second = self.next(reader, first)
        self.assertEqual({"b": self.all["b"][100:150]}, self.rows(reader, first, second))
        self.grow(100, "b")
        idle()
        away = self.place / "away"
        self.stores["a"].rename(away)
        self.assertRaises(NotAStore, self.next, reader, first)
        away.rename(self.stores["a"])
        idle()
        file = self.stores["b"] / OWN_FOLDER / POINT
        cut = parse_point(file.read_bytes()).cut_at(self.all["b"][60], 5, CutReason.CUT)
        file.write_bytes(render_point(cut))
        start = self.all["b"][60] // golden.LOG_FILE_SIZE * golden.LOG_FILE_SIZE
        log = self.stores["b"] / "commitlog" / f"{start:020d}"
        data = log.read_bytes()
        log.write_bytes(data[: self.all["b"][60] - start].ljust(len(data), b"\0"))
        self.assertRaises(LogCutBack, self.next, reader, first)

    def test_join_and_leave(self) -> None:
        """Brokers come and go while the stream runs, as the list says that names them."""
        self.give("a")
        reader = self.reader()
        begun = reader.initialOffset()
        self.give("a", "b")
        first = self.next(reader, begun)
        second = self.next(reader, first)
        self.assertEqual({"b": self.all["b"][:100]}, self.rows(reader, first, second))
        self.give("b")
        self.grow(200, "a", "b")
        third = self.next(reader, second)
        self.assertEqual({"b": self.all["b"][100:200]}, self.rows(reader, second, third))
        self.assertRaises(StoresDiffer, self.next, self.reader("fail"), second)
        self.give("a", "b")
        fourth = self.next(reader, third)
        self.assertEqual({"a": self.all["a"][100:200]}, self.rows(reader, third, fourth))

    def test_skip(self) -> None:
        """One that is gone for good can be forgotten; it would begin anew."""
        reader = self.reader("skip")
        first = self.next(reader, reader.initialOffset())
        self.give("a")
        second = self.next(reader, first)
        self.assertEqual(["a"], sorted(second["stores"]))
        self.assertEqual({}, self.rows(reader, first, second))

    def test_in_a_planned_batch(self) -> None:
        """A batch planned with a broker waits for it, or is done without if that is skipped."""
        reader = self.reader()
        start = reader.initialOffset()
        first = self.next(reader, start)
        shutil.rmtree(self.stores["b"])
        self.assertRaises(NotAStore, reader.partitions, start, first)
        found = self.rows(self.reader("skip"), start, first)
        self.assertEqual({"a": self.all["a"][:100]}, found)

    def test_available_now(self) -> None:
        """A stream of what is there does what is there."""
        shutil.rmtree(self.stores["b"])
        reader = self.reader()
        reader.prepareForTriggerAvailableNow()
        begun = reader.initialOffset()
        self.assertEqual(
            {"a": self.all["a"][:100]}, self.rows(reader, begun, self.next(reader, begun))
        )

    def test_lists_that_are_none(self) -> None:
        """A bad list of stores is refused when a stream begins; later the last one counts."""
        reader = self.reader()
        begun = reader.initialOffset()
        self.list.write_text("{")
        self.assertRaises(OptionInvalid, self.reader)
        self.assertEqual(
            self.all["a"][:100], self.rows(reader, begun, self.next(reader, begun))["a"]
        )

    def test_looks(self) -> None:
        """Whether stores are copies of one log is found out once, not at every trigger."""
        reader = self.reader()
        begun = self.next(reader, reader.initialOffset())
        opens: list[object] = []
        real = os.open
        self.patch(os, "open", lambda *args, **more: (opens.append(args), real(*args, **more))[1])
        self.next(reader, begun)
        self.assertLess(len(opens), 7)


class RegisteredTests(SeveralTestCase):
    """The brokers that a name server knows, in one stream."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(name_servers, "FRESH", 0.0)
        self.server = OwnNameServer()
        self.addCleanup(self.server.close)
        self.server.register("a", host="10.0.0.1")

    def reader(self, missing: str = "wait", **given: object) -> StreamReader:
        return reader_of(
            path=f"{self.place}/{{broker}}",
            nameServer=self.server.address,
            missingStores=missing,
            columns="broker_name,physical_offset",
            **given,
        )

    def test_join(self) -> None:
        """A broker that registers meanwhile is read from its beginning, wherever others began."""
        begin = self.all["a"][50]
        reader = self.reader("fail", startingOffsets={"a": begin})
        begun = reader.initialOffset()
        self.server.register("b", host="10.0.0.2")
        first = self.next(reader, begun)
        self.assertEqual({"a": self.all["a"][50:100]}, self.rows(reader, begun, first))
        second = self.next(reader, first)
        self.assertEqual({"b": self.all["b"][:100]}, self.rows(reader, first, second))

    def test_leave(self) -> None:
        """One that is not registered any more is read to the end of its log, after a restart too,
        and gone on with when it is back: to be away is not to be empty.
        """
        self.server.register("b", host="10.0.0.2")
        reader = self.reader("fail")
        first = self.next(reader, reader.initialOffset())
        self.grow(150, "b")
        self.server.unregister("b", host="10.0.0.2")
        second = self.next(reader, first)
        self.assertEqual({"b": self.all["b"][100:150]}, self.rows(reader, first, second))
        again = self.reader("skip")
        self.grow(170, "b")
        third = self.next(again, second)
        self.assertEqual({"b": self.all["b"][150:170]}, self.rows(again, second, third))
        self.server.register("b", host="10.0.0.2")
        self.grow(180, "b")
        fourth = self.next(again, third)
        self.assertEqual({"b": self.all["b"][170:180]}, self.rows(again, third, fourth))

    def test_dismissed(self) -> None:
        """One whose store is gone too is forgotten with C{missingStores=skip}, else an error."""
        self.server.register("b", host="10.0.0.2")
        reader = self.reader("skip")
        first = self.next(reader, reader.initialOffset())
        self.server.unregister("b", host="10.0.0.2")
        shutil.rmtree(self.stores["b"])
        self.assertRaises(NotAStore, self.next, self.reader("fail"), first)
        self.assertEqual(["a"], sorted(self.next(reader, first)["stores"]))

    def test_name_server_away(self) -> None:
        """A stream that runs does not need the name server to go on."""
        reader = self.reader()
        first = self.next(reader, reader.initialOffset())
        self.server.close()
        self.grow(200, "a")
        second = self.next(reader, first)
        self.assertEqual({"a": self.all["a"][100:200]}, self.rows(reader, first, second))
        self.assertRaises(NameServersSilent, self.reader)

    def test_many(self) -> None:
        """Fifty brokers of which eight have something are one stream, and one position a batch."""
        busy = [f"b{number:02}" for number in range(0, 48, 6)]
        for number in range(50):
            name = f"b{number:02}"
            self.server.register(name, host=f"10.0.1.{number}")
            log, end = self.place / name / "commitlog", 0
            if name in busy:
                end = write_log(log, 20_000, file_size=1 << 16, bodies=(200,))
            log.mkdir(parents=True, exist_ok=True)
            publish(self.place / name, end, broker_name=name)
        reader = self.reader("fail")
        begun = reader.initialOffset()
        first = self.next(reader, begun)
        rows = self.rows(reader, begun, first)
        self.assertEqual(["a", *busy], sorted(rows))
        self.assertEqual(1, len({len(rows[name]) for name in busy}))
        self.assertEqual(51, len(first["stores"]))
        self.assertEqual(first, self.next(reader, first))
        with opened_files() as opened:
            self.assertEqual(first, self.next(reader, first))
            reader.reportLatestOffset()
        self.assertLess(len(opened), 150, "an idle trigger opens little")
