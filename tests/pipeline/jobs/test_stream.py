"""Tests for L{rmqha.pipeline.jobs.stream}: a log that goes on into a table."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.pipeline.errors import NotNext, TableRefused
from rmqha.pipeline.log.errors import LogCutBack, LogEndsBefore
from rmqha.wire.log.published import parse_point, render_point
from rmqha.wire.store_layout import OWN_FOLDER, POINT
from tests.support.rows import expected, publish
from tests.support.spark_needs import why_no_java

try:
    import deltalake
    import pyiceberg
    from pyspark.errors import StreamingQueryException

    from rmqha.cli.spark import stream as cli
    from rmqha.cli.spark.stream import line
    from rmqha.pipeline.jobs.lag import Lag, lag_of
    from rmqha.pipeline.jobs.rewind import rewind
    from rmqha.pipeline.jobs.stream import checkpoint_of, require_held, stream
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.log.positions import Position, to_json
    from rmqha.pipeline.sinks.target import Appending, Format, Target
    from tests.support.lake import found
    from tests.support.spark import session

    _ = (deltalake, pyiceberg)
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why


class StreamTests(SynchronousTestCase):
    """A stream adds every record once."""

    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        records = expected("5.3.3", "store")
        self.all = [each["physicalOffset"] for each in records]
        self.end = records[-1]["physicalOffset"] + records[-1]["size"]
        self.place = Path(tempfile.mkdtemp(prefix="stream-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.told: list[Lag] = []

    def run_stream(self, format: str, **more: Any) -> Any:
        """Stream what is there now, and return the query, ended."""
        given = {"visibility": "log", "every": None, "told": self.told.append, **more}
        stores = given.pop("stores", self.store)
        query = stream(session(), stores, self.place / format, format=format, **given)
        query.awaitTermination(120)
        return query

    def offsets(self, format: str) -> list[int]:
        """Physical offsets of a table's rows, ascending."""
        table = found(self.place / format, format)
        return sorted(table.column("physical_offset").to_pylist())

    def test_table_taken_back(self) -> None:
        """A table taken back is told before anything is read: no new records, no batch."""
        for row in (500, 600):
            publish(self.store, self.all[row])
            self.run_stream("delta")
        table = deltalake.DeltaTable(self.place / "delta")
        table.restore(table.version() - 1)
        error = self.assertRaises(NotNext, self.run_stream, "delta")
        self.assertEqual((self.all[500], self.all[600]), (error.end, error.start))
        self.run_stream("delta", resume_from_table=True)
        self.assertEqual(self.all[:600], self.offsets("delta"))

    def test_table_dropped(self) -> None:
        """A table dropped and made again is told before reading: its checkpoint has records."""
        checkpoint = self.place / "checkpoint"
        publish(self.store, self.all[500])
        self.run_stream("parquet", checkpoint=checkpoint)
        shutil.rmtree(self.place / "parquet")
        publish(self.store, self.all[600])
        error = self.assertRaises(NotNext, self.run_stream, "parquet", checkpoint=checkpoint)
        self.assertEqual((0, 0, self.all[500]), (error.first, error.end, error.start))

    def test_table_without_what_was_added(self) -> None:
        """So it is in every format, and of checkpoints that do not say where their stream began; of
        one that began there nothing was added.
        """
        options = ReadOptions.parse({"path": self.store, "visibility": "log"})
        checkpoint = self.place / "checkpoint"
        for name in ("commits", "offsets"):
            (checkpoint / name).mkdir(parents=True)
            (checkpoint / name / "7").touch()
        here = Position(self.all[500], self.all[499], "00" * 8)
        for format in Format:
            table = Appending(Target.at(self.place / format, format=format), options)
            self.addCleanup(table.close)
            for position, added in (
                (here, True),
                (evolve(here, begun=0), True),
                (evolve(here, begun=here.offset), False),
                (Position(0), False),
            ):
                text = json.dumps(to_json({"store": position}))
                (checkpoint / "offsets" / "7").write_text(f"v1\n{{}}\n{text}")
                if added:
                    self.assertRaises(NotNext, require_held, table, checkpoint)
                else:
                    require_held(table, checkpoint)

    def test_nothing_added_yet(self) -> None:
        """A stream that began at the log's end goes on from its checkpoint, with an empty table."""
        publish(self.store, self.all[500])
        for row in (500, 500, 600):
            publish(self.store, self.all[row])
            self.run_stream("delta", startingOffsets="latest")
        self.assertEqual(self.all[500:600], self.offsets("delta"))

    def test_another_log(self) -> None:
        """A log that ends before what the table has is told, with a new checkpoint too."""
        publish(self.store, self.all[500])
        self.run_stream("parquet")
        for file in sorted((self.store / "commitlog").iterdir())[1:]:
            file.unlink()
        os.truncate(next((self.store / "commitlog").iterdir()), self.all[100])
        publish(self.store, self.all[100])
        for more in ({}, {"checkpoint": self.place / "new"}):
            error = self.assertRaises(LogEndsBefore, self.run_stream, "parquet", **more)
            self.assertEqual((self.all[500], self.all[100]), (error.offset, error.end))

    def test_list_of_stores(self) -> None:
        """A broker joins a stream by a line in a file, and a repeated batch adds nothing."""
        other = golden.store("4.9.7")
        records = expected("4.9.7", "store")
        publish(other, records[-1]["physicalOffset"] + records[-1]["size"], broker_name="b")
        publish(self.store, self.end)
        stores = self.place / "stores.json"
        for names in ({"a": self.store}, {"a": self.store, "b": other}):
            stores.write_text(json.dumps({name: str(path) for name, path in names.items()}))
            self.run_stream("delta", stores=f"@{stores}", missingStores="wait")
            self.run_stream("delta", stores=f"@{stores}", missingStores="wait")
        shutil.rmtree(self.place / "delta" / "_rmqha" / "checkpoint")
        shutil.rmtree(other)
        query = self.run_stream("delta", stores=f"@{stores}", missingStores="wait")
        names = found(self.place / "delta", "delta").column("store").to_pylist()
        self.assertEqual((len(self.all), len(records)), (names.count("a"), names.count("b")))
        lag = lag_of(query.lastProgress, {})
        self.assertIn("does not exist", lag.held_up["b"] if lag is not None else "")

    def test_goes_on(self) -> None:
        """In batches within a limit; with the checkpoint, and with a new one."""
        publish(self.store, self.all[500])
        query = self.run_stream("parquet", maxBytesPerTrigger="200k")
        batches = [each for each in query.recentProgress if each.numInputRows]
        self.assertGreater(len(batches), 1)
        self.assertEqual(self.all[:500], self.offsets("parquet"))
        publish(self.store, self.all[600])
        self.run_stream("parquet")
        self.assertEqual(self.all[:600], self.offsets("parquet"))
        publish(self.store, self.all[700])
        self.run_stream("parquet", checkpoint=self.place / "new")
        self.assertEqual(self.all[:700], self.offsets("parquet"))

    def test_resumes(self) -> None:
        """Where the table ends, whatever wrote it."""
        for format in ("delta", "iceberg"):
            publish(self.store, self.all[500])
            self.run_stream(format)
            self.assertEqual(self.all[:500], self.offsets(format))
            publish(self.store, self.end)
            self.run_stream(format, resume_from_table=True)
            self.assertEqual(self.all, self.offsets(format))

    def test_lag(self) -> None:
        """Each batch tells how far the stream is behind."""
        publish(self.store, self.all[500])
        self.run_stream("parquet", maxBytesPerTrigger="200k")
        limit = time.monotonic() + 20
        while not (self.told and not self.told[-1].bytes) and time.monotonic() < limit:
            time.sleep(0.1)
        first, last = self.told[0], self.told[-1]
        self.assertEqual(self.all[500] - first.ends["store"], first.bytes)
        self.assertGreater(first.seconds or 0, 0)
        self.assertEqual((0, 0.0, {"store": self.all[500]}), (last.bytes, last.seconds, last.ends))
        shown = Lag(ranges=2, bytes=70, seconds=1.26, ends={"a": 5}, took=0.31)
        self.assertEqual(
            "a at 5: 70 bytes and 1.3 s behind; last batch 2 ranges in 0.3 s", line(shown)
        )

    def test_rewind(self) -> None:
        """A stream stops at a cut, and goes on after the rows are taken off."""
        publish(self.store, self.all[800])
        self.run_stream("delta")
        file = self.store / OWN_FOLDER / POINT
        cut = parse_point(file.read_bytes()).cut_at(self.all[700], 5)
        file.write_bytes(render_point(cut))
        for path in sorted((self.store / "commitlog").iterdir()):
            keep = max(0, min(262144, self.all[700] - int(path.name)))
            with path.open("r+b") as opened:
                opened.seek(keep)
                opened.write(bytes(262144 - keep))
        error = self.assertRaises(LogCutBack, self.run_stream, "delta")
        self.assertIn(f"was cut back to byte {self.all[700]}", str(error))
        self.assertEqual(100, rewind(self.place / "delta", self.all[700]).rows)
        self.assertEqual(self.all[:700], self.offsets("delta"))
        self.run_stream("delta", resume_from_table=True)
        self.assertEqual(self.all[:700], self.offsets("delta"))

    def test_refused(self) -> None:
        """A checkpoint that exists already cannot begin where a table ends."""
        publish(self.store, self.end)
        used = self.place / "used"
        used.mkdir()
        self.assertRaises(
            TableRefused, self.run_stream, "parquet", checkpoint=used, resume_from_table=True
        )

    def test_refused_by_its_name(self) -> None:
        """The table of such a refusal is named as it was given, in an object store too."""
        target = Target.at("s3://lake/messages")
        used = self.place / "used"
        used.mkdir()
        error = self.assertRaises(TableRefused, checkpoint_of, target, used, True)
        self.assertEqual(error.table, "s3://lake/messages")


class BegunAgainTests(SynchronousTestCase):
    """The command goes on when Spark has lost a process."""

    def follow(self, *ends: BaseException | None) -> list[bool]:
        """Follow a stream that ends so, each minute: whether it was to resume from its table."""
        now, begun, left = [0.0], [], list(ends)

        class Query:
            def awaitTermination(self) -> None:
                now[0] += 60
                error = left.pop(0)
                if error is not None:
                    raise error

        def begin(resume_from_table: bool) -> Any:
            begun.append(resume_from_table)
            return Query()

        self.patch(cli.time, "monotonic", lambda: now[0])
        cli.follow(begin, True)
        return begun

    def test_lost_process(self) -> None:
        """It is begun again, but no other checkpoint is."""
        lost = StreamingQueryException("[X] the Python worker exited unexpectedly (crashed)")
        self.assertEqual([True, False, False], self.follow(lost, lost, None))

    def test_our_reasons(self) -> None:
        """What rmqha refuses ends it, and so does what comes at once."""
        ours = StreamingQueryException("rmqha.pipeline.log.errors.DataLost: store: bytes")
        self.assertRaises(StreamingQueryException, self.follow, ours)
        self.patch(cli, "STEADY", 61.0)
        other = StreamingQueryException("[X] no room")
        self.assertRaises(StreamingQueryException, self.follow, other)
