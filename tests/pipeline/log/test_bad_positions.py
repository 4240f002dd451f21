"""What says how far a log may be read, where it was read up to, and where its records begin:
none of it is believed because it is there.

What L{tests.pipeline.test_scan} and L{tests.pipeline.spark.test_stream} try is not tried again.
"""

from __future__ import annotations

import json
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.errors import PointInvalid
from rmqha.pipeline.log.errors import (
    DataLost,
    LogCutBack,
    LogEndsBefore,
    LogOfAnotherBroker,
    NotThisLog,
    PositionInvalid,
    PublishedPointStale,
    RangeBroken,
)
from rmqha.wire.log.encode import blank
from rmqha.wire.log.published import SPAN_SIZE, CutReason, Span, parse_point, render_spans
from rmqha.wire.store_layout import OWN_FOLDER, POINT, SPLITS
from tests.support.damaged_stores import SIZE, BadInputTestCase, change, offsets
from tests.support.effort import tries
from tests.support.rows import publish
from tests.support.spark_needs import need_java
from tests.wire.records import PLAIN, stored

try:
    from pyspark.errors import PySparkException
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

    from rmqha.logfiles.log_files import LogFiles
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.log.positions import from_json, to_json
    from rmqha.pipeline.log.stores import open_stores
    from rmqha.pipeline.spark import stream
    from rmqha.pipeline.spark.stream import BatchLimits, advance
    from tests.pipeline.spark.test_stream import reader_of, rows_between
    from tests.support.spark import folder, session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class PointTests(BadInputTestCase):
    """What is published may be garbled, stale or another log's."""

    def test_garbled(self) -> None:
        """A file that is no point is an error that names it."""
        publish(self.store, self.end)
        file = self.store / OWN_FOLDER / POINT
        good = json.loads(file.read_bytes())
        for bad in (
            b"",
            b"\0" * 300,
            b"\xff\xfe",
            b"null",
            b"[]",
            b"{}",
            b"[" * 100_000,
            file.read_bytes()[:-20],
            *(
                json.dumps(good | more).encode()
                for more in (
                    {"version": 2},
                    {"confirm": -1},
                    {"confirm": 1.5},
                    {"confirm": True},
                    {"confirm": "7"},
                    {"confirm": 1 << 63, "durable": 1 << 63},
                    {"confirm": self.end + 1},
                    {"cuts": 7},
                    {"cuts": [7]},
                    {"cuts": [{"at": 0, "time": 0, "why": "whim"}]},
                    {"cuts": [{"at": "0", "time": 0, "why": "cut"}]},
                    {"tail": "7"},
                )
            ),
        ):
            file.write_bytes(bad)
            error = self.assertRaises(PointInvalid, offsets, self.store)
            self.assertIn(str(file), str(error))
            self.assertEqual(self.all, offsets(self.store, pointFile="ignore"))

    def test_split_index_of_anything(self) -> None:
        """A damaged index makes other ranges, or none, but no other rows."""
        publish(self.store, self.end)
        ends = [*self.all[::100], self.end]
        spans = [
            Span(start, end, 100 * row, 100, 0, 1 << 50)
            for row, (start, end) in enumerate(pairwise(ends))
        ]
        spans[-1] = evolve(spans[-1], count=len(self.all) - spans[-1].ordinal)
        good = render_spans(spans)
        file = self.store / OWN_FOLDER / SPLITS
        time = self.records[700]["storeTimestamp"]
        first = next(r for r in self.records if r["storeTimestamp"] >= time)["physicalOffset"]
        for raw in (
            good,
            good[: -SPAN_SIZE // 2],
            good[SPAN_SIZE * 3 :],
            b"",
            b"\xff" * len(good),
            bytes(len(good)),
            *(
                good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1 :]
                for place in range(0, len(good), 37)
            ),
        ):
            file.write_bytes(raw)
            self.assertEqual(self.all, offsets(self.store, maxPartitionBytes=1))
            found = offsets(self.store, startingOffsets={"store": self.all[500] - 1})
            self.assertEqual(self.all[500:], found)
            self.assertEqual(first, offsets(self.store, startingTimestamp=time)[0])

    def test_split_index_of_another_log(self) -> None:
        """An index that speaks of places where no record begins is found out."""
        publish(self.store, self.end)
        middle = self.all[500] + 10
        spans = [Span(0, middle, 0, 500, 0, 1), Span(middle, self.end, 500, 500, 0, 1)]
        (self.store / OWN_FOLDER / SPLITS).write_bytes(render_spans(spans))
        error = self.assertRaises(RangeBroken, offsets, self.store, maxPartitionBytes=1)
        self.assertIn(str(self.file_of(middle)), error.path)

    def test_stale_behind_a_blank(self) -> None:
        """Another broker's records show that a point is stale in the next file too."""
        first = stored(PLAIN)
        left = 4096 - len(first)
        root = self.made(PLAIN, size=4096)
        publish(root, len(first), closed=True)
        self.assertEqual([0], offsets(root))
        change(root / "commitlog" / f"{0:020d}", len(first), blank(left))
        next_file = root / "commitlog" / f"{4096:020d}"
        next_file.write_bytes(bytes(4096))
        self.assertEqual([0], offsets(root))
        next_file.write_bytes(stored(PLAIN, offset=4096).ljust(4096, b"\0"))
        error = self.assertRaises(PublishedPointStale, offsets, root)
        self.assertEqual((len(first), 4096 + len(first)), (error.confirmed, error.end))
        self.assertEqual([0, 4096], offsets(root, pointFile="ignore"))
        self.assertRaises(PublishedPointStale, reader_of(path=root).initialOffset)

    def test_old_index_is_not_believed(self) -> None:
        """Without the point the index beside it is not used, whatever it says."""
        publish(self.store, self.end)
        spans = [Span(0, self.all[500] + 10, 0, 1, 0, 1)]
        (self.store / OWN_FOLDER / SPLITS).write_bytes(render_spans(spans))
        change(self.file_of(0), self.all[3] + 1, b"\xff")
        given = {"pointFile": "ignore", "mode": "DROPMALFORMED", "maxPartitionBytes": 1}
        left = self.all[:3] + [offset for offset in self.all if offset >= SIZE]
        self.assertEqual(left, offsets(self.store, **given))


class PositionTests(BadInputTestCase):
    def setUp(self) -> None:
        super().setUp()
        publish(self.store, self.all[500])
        self.reader = reader_of(path=self.store)
        self.start = self.reader.initialOffset()
        self.middle = self.reader.latestOffset(self.start, ReadAllAvailable())
        publish(self.store, self.end)

    def next(self, **given: object) -> Any:
        reader = reader_of(**({"path": self.store} | given))
        return reader.latestOffset(self.middle, ReadAllAvailable())

    def test_corrupt(self) -> None:
        """Every kind of wrong value is refused, wherever it stands."""
        mark = self.middle["stores"]["store"]
        odd = (None, True, -2, 1.5, float("nan"), "1", "", [], {}, 1 << 63, [[]] * 100)
        wrong: list[Any] = [None, 7, "{}", [], [{}], {"offset": 5}, {"v": 1}]
        wrong += [{"v": v, "stores": {"store": mark}} for v in (None, "1", 0, 2)]
        wrong += [{"v": 1, "stores": value} for value in (None, 7, "store", [mark])]
        wrong += [{"v": 1, "stores": {"store": value}} for value in odd]
        for key in ("offset", "last", "sum", "log"):
            wrong += [
                {"v": 1, "stores": {"store": mark | {key: value}}}
                for value in odd
                if not (isinstance(value, str) and key in ("sum", "log"))
            ]
        for key in ("offset", "last", "sum"):
            left = {name: value for name, value in mark.items() if name != key}
            wrong.append({"v": 1, "stores": {"store": left}})
        for bad in wrong:
            self.assertRaises(PositionInvalid, self.reader.latestOffset, bad, ReadAllAvailable())
            for pair in ((bad, self.middle), (self.start, bad)):
                self.assertRaises(PositionInvalid, self.reader.partitions, *pair)
            self.assertRaises(PositionInvalid, reader_of(path=self.store).commit, bad)

    def test_forged(self) -> None:
        """One that contradicts the log is refused as another log's."""
        mark = self.middle["stores"]["store"]
        for more in ({"sum": "00" * 8}, {"last": mark["last"] - 1}, {"last": self.all[1]}):
            bad = {"v": 1, "stores": {"store": mark | more}}
            self.assertRaises(NotThisLog, self.reader.latestOffset, bad, ReadAllAvailable())
            self.assertRaises(NotThisLog, self.reader.partitions, self.start, bad)
        # The right record and a wrong place behind it.
        for offset in (mark["offset"] + 1, self.all[501] - 1):
            bad = {"v": 1, "stores": {"store": mark | {"offset": offset}}}
            try:
                found = self.reader.latestOffset(bad, ReadAllAvailable())
                rows_between(self.reader, bad, found)
            except RangeBroken:
                continue
            self.fail("rows were read from the middle of a record")

    def test_copied_anew_with_other_bytes(self) -> None:
        """A stream does not go on with a new copy that has other bytes where it was."""
        self.cut(0, CutReason.COPY)
        self.assertEqual(self.middle, self.next())
        change(self.file_of(self.all[499]), self.all[499] % SIZE + 60, b"\xff")
        point = parse_point((self.store / OWN_FOLDER / POINT).read_bytes())
        publish(self.store, self.end, cuts=point.cuts)
        self.assertRaises(NotThisLog, self.next)

    def test_cut_before_it_was_copied(self) -> None:
        """If it was cut too, that is the reason, once the copy is there."""
        change(self.file_of(self.all[499]), self.all[499] % SIZE + 60, b"\xff")
        self.cut(self.all[400])
        self.cut(0, CutReason.COPY)
        self.assertEqual(self.middle, self.next())
        point = parse_point((self.store / OWN_FOLDER / POINT).read_bytes())
        publish(self.store, self.end, cuts=point.cuts)
        self.assertEqual(self.all[400], self.assertRaises(LogCutBack, self.next).at)

    def test_another_broker(self) -> None:
        """When a position's record has been deleted the broker's name decides."""
        for file in sorted(self.folder.iterdir()):
            if int(file.name) <= self.all[500]:
                file.unlink()
        self.assertRaises(DataLost, self.next)
        publish(self.store, self.end, broker_name="another")
        error = self.assertRaises(LogOfAnotherBroker, self.next, failOnDataLoss=False)
        self.assertEqual(("golden", "another"), (error.expected, error.found))

    def test_another_broker_with_the_record(self) -> None:
        """It decides too where the record is there: a copy that grows under another name is another
        log.  What says no name is not held against it.
        """
        publish(self.store, self.end, broker_name="another", cluster="c")
        error = self.assertRaises(LogOfAnotherBroker, self.next)
        self.assertEqual(("golden", "another of cluster c"), (error.expected, error.found))
        publish(self.store, self.end, broker_name="", cluster="c")
        self.next()

    def end_at(self, row: int) -> None:
        """Make the log end before a record."""
        publish(self.store, self.all[row])
        for file in sorted(self.folder.iterdir()):
            kept = max(0, self.all[row] - int(file.name))
            file.write_bytes(file.read_bytes()[:kept].ljust(SIZE, b"\0"))

    def test_another_log_that_is_shorter(self) -> None:
        """A log short of the position is told by its first record, and not waited for."""
        self.end_at(100)
        reader = reader_of(path=self.store)
        self.assertEqual(self.middle, reader.latestOffset(self.middle, ReadAllAvailable()))
        held = reader.reportLatestOffset()["stores"]["store"]["state"]
        self.assertIn(f"ends at byte {self.all[100]}, before byte {self.all[500]}", held)
        change(self.file_of(0), 60, b"\xff")
        error = self.assertRaises(NotThisLog, self.next)
        self.assertEqual((self.all[500], 0), (error.offset, error.last))

    def test_behind_and_at_its_end(self) -> None:
        """A stream that ends with what is there now does not end well before its position."""
        self.end_at(100)
        reader = reader_of(path=self.store)
        reader.prepareForTriggerAvailableNow()
        error = self.assertRaises(
            LogEndsBefore, reader.latestOffset, self.middle, ReadAllAvailable()
        )
        self.assertEqual((self.all[100], self.all[500]), (error.end, error.offset))


class AdvancingTests(BadInputTestCase):
    """A stream never says that it is where no later run of it can begin."""

    def setUp(self) -> None:
        super().setUp()
        publish(self.store, self.end)

    def test_record_goes_meanwhile(self) -> None:
        """Where retention or a cut takes the record that a position would name, the log is looked
        at again: the stream goes on behind it, or says that the log is broken there.
        """
        walked = stream.boundary
        waiting: list[Path] = []

        def racing(files: LogFiles, *args: Any, **more: Any) -> Any:
            found = walked(files, *args, **more)
            while waiting:
                self.take(waiting.pop())
            return found

        self.patch(stream, "boundary", racing)
        kept = [offset for offset in self.all if offset >= SIZE]
        for take in (Path.unlink, lambda file: os.truncate(file, 100)):
            self.take = take
            whole = self.file_of(0).read_bytes()
            reader = reader_of(path=self.store, failOnDataLoss=False)
            start = reader.initialOffset()
            waiting.append(self.file_of(0))
            if take is Path.unlink:
                end = reader.latestOffset(start, ReadMaxBytes(30_000))
                found = rows_between(reader, start, json.loads(json.dumps(end)))
                self.assertEqual(kept[: len(found)], found)
                self.assertNotEqual([], found)
            else:
                limit = ReadMaxBytes(30_000)
                error = self.assertRaises(RangeBroken, reader.latestOffset, start, limit)
                self.assertEqual("the file ends here", error.reason)
            self.file_of(0).write_bytes(whole)

    @settings(max_examples=tries(60), deadline=None)
    @given(st.data())
    def test_every_position_can_be_read(self, data: st.DataObject) -> None:
        """Whatever is damaged, each position that a stream reaches can be read back."""
        row, place = data.draw(st.integers(0, len(self.all) - 1)), data.draw(st.integers(0, 90))
        file, at = self.file_of(self.all[row]), self.all[row] % SIZE + place
        whole = file.read_bytes()
        change(file, at, bytes([whole[at] ^ data.draw(st.integers(1, 255))]))
        try:
            options = ReadOptions.parse({"path": self.store, "mode": "DROPMALFORMED"})
            limits = BatchLimits(data.draw(st.none() | st.integers(1, self.end)), None)
            (store,) = open_stores(options)
            position, before = store.position(store.first), -1
            while position.offset > before:
                self.assertEqual({"s": position}, from_json(to_json({"s": position})))
                before = position.offset
                position = advance(store, position, store.end, limits, options)
        finally:
            file.write_bytes(whole)

    def test_old_one(self) -> None:
        """A position that an earlier version should not have written says how to go on."""
        bad = {"v": 1, "stores": {"store": {"offset": 900, "last": 700, "sum": "", "log": ""}}}
        reader = reader_of(path=self.store)
        error = self.assertRaises(PositionInvalid, reader.latestOffset, bad, ReadAllAvailable())
        self.assertIn("--resume-from-table", str(error))
        self.assertIn("startingOffsets", str(error))


class CheckpointTests(BadInputTestCase):
    """The same inside Spark: what it hands on of a checkpoint, and what it makes of an error."""

    def setUp(self) -> None:
        super().setUp()
        need_java()
        self.place = Path(tempfile.mkdtemp(dir=folder()))

    def run_stream(self) -> None:
        reader = session().readStream.format("rmqha").option("columns", "physical_offset")
        writer = reader.option("visibility", "log").load(str(self.store)).writeStream
        writer = writer.option("checkpointLocation", str(self.place / "checkpoint"))
        query = writer.format("parquet").trigger(availableNow=True).start(str(self.place / "rows"))
        query.awaitTermination(240)

    def test_garbled(self) -> None:
        """A stream with a checkpoint that was changed stops with the reason, and writes nothing."""
        publish(self.store, self.all[800])
        self.run_stream()
        publish(self.store, self.end)
        log = self.place / "checkpoint" / "offsets"
        last = max((path for path in log.iterdir() if path.name.isdigit()), key=lambda p: p.name)
        (log / f".{last.name}.crc").unlink()
        head, position = last.read_text().rsplit("\n", 1)
        mark = json.loads(position)["stores"]["store"]
        for bad, reason in (
            ({"offset": 5}, "it is not an object with stores"),
            ({"v": 1, "stores": {"store": mark | {"sum": "00"}}}, "belongs to another log"),
            ({"v": 1, "stores": {"other": mark}}, "store other is in the checkpoint"),
        ):
            last.write_text(f"{head}\n{json.dumps(bad)}")
            self.assertIn(reason, str(self.assertRaises(PySparkException, self.run_stream)))
        last.write_text(f"{head}\n{position}")
        self.run_stream()
        found = session().read.parquet(str(self.place / "rows")).collect()
        self.assertEqual(self.all, sorted(row["physical_offset"] for row in found))
