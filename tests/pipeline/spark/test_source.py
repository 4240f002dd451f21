"""Tests for L{rmqha.pipeline.spark.source} inside Spark: one local session for all of them."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.wire.log.published import parse_point, render_point
from rmqha.wire.store_layout import OWN_FOLDER, POINT
from tests.support.rows import COLUMNS, comparable, expected, publish, row_of
from tests.support.spark_needs import why_no_java

try:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    from rmqha.pipeline.read import read as read_where
    from rmqha.pipeline.scan import snapshot
    from tests.support.spark import folder, session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why


def read(**options: object) -> DataFrame:
    """A DataFrame with options."""
    reader = session().read.format("rmqha")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def offsets(frame: DataFrame) -> list[int]:
    """Physical offsets of all rows, ascending."""
    return sorted(row["physical_offset"] for row in frame.select("physical_offset").collect())


class LostWorkerTests(SynchronousTestCase):
    """A local session is no worse than a cluster."""

    def test_task_is_tried_again(self) -> None:
        """A worker that is killed costs its task a try, and not the query."""
        mark = str(Path(tempfile.mkdtemp(dir=folder())) / "killed")

        def dies_once(batches: Any) -> Any:
            import os

            if not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), 9)
            yield from batches

        self.assertEqual(7, session().range(7).mapInArrow(dies_once, "id long").count())


class BatchTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.records = expected("5.3.3", "store")
        self.all = [record["physicalOffset"] for record in self.records]

    def test_golden(self) -> None:
        """Rows are what RocketMQ's own classes read, whatever wrote the store."""
        for version in golden.VERSIONS:
            frame = read(path=str(golden.store(version)), visibility="log")
            rows = [row.asDict() for row in frame.select(*COLUMNS).toLocalIterator()]
            for row in rows:  # Spark's rows have naive times in the session's zone
                for name in ("store_timestamp", "born_timestamp"):
                    row[name] = row[name].astimezone()
            rows.sort(key=lambda row: int(row["physical_offset"]))
            self.assertEqual(
                list(map(row_of, expected(version, "store"))), list(map(comparable, rows)), version
            )

    def test_one_plan_for_many_queries(self) -> None:
        """Spark keeps the plan of a relation: filters of one query are not another's."""
        frame = read(path=str(self.store), visibility="log", columns="topic,physical_offset")
        one, other = frame.filter("topic = 'GoldenA'"), frame.filter("topic <> 'GoldenA'")
        wanted = [each["physicalOffset"] for each in self.records if each["topic"] == "GoldenA"]
        self.assertEqual(len(wanted), one.count())
        self.assertEqual(len(self.all), frame.count())
        self.assertEqual(self.all, offsets(one.union(other)))
        rest = frame.join(one, "physical_offset", "left_anti")
        self.assertEqual(sorted(set(self.all) - set(wanted)), offsets(rest))
        self.assertEqual(wanted, offsets(frame.filter("topic = 'GoldenA'")))
        frame.createOrReplaceTempView("kept")
        self.assertEqual(
            len(wanted), session().sql("SELECT * FROM kept WHERE topic = 'GoldenA'").count()
        )
        self.assertEqual(len(self.all), session().sql("SELECT * FROM kept").count())

    def test_filter_as_options(self) -> None:
        """A filter that is given to C{read} chooses the rows it would choose in Spark."""
        frame = read(path=str(self.store), visibility="log")
        for where in (
            "topic IN ('GoldenA') AND queue_id = 1 AND store_size > 150",
            "topic = 'GoldenA' OR queue_id = 1",
        ):
            found = read_where(session(), self.store, where=where, visibility="log")
            self.assertTrue(offsets(found))
            self.assertEqual(offsets(frame.where(where)), offsets(found), where)

    def test_end_is_frozen(self) -> None:
        """A DataFrame ends where the log was first, a table now, a snapshot where it was taken."""
        publish(self.store, self.all[100])
        frame = read(path=str(self.store), visibility="log")
        self.assertEqual(100, frame.count())
        end = json.dumps(snapshot(self.store))
        session().sql("DROP TABLE IF EXISTS log")
        session().sql(
            f"CREATE TABLE log USING rmqha OPTIONS (visibility 'log') LOCATION '{self.store}'"
        )
        try:
            self.assertEqual(100, session().table("log").count())
            publish(self.store, self.all[200])
            self.assertEqual(100, frame.count())
            self.assertEqual(200, session().table("log").count())
            self.assertEqual(200, read(path=str(self.store), visibility="log").count())
            fixed = read(path=str(self.store), visibility="log", endingOffsets=end)
            self.assertEqual(100, fixed.count())
        finally:
            session().sql("DROP TABLE log")

    def test_sql(self) -> None:
        """SQL reads a table with options, and its columns are those asked for."""
        session().sql("DROP TABLE IF EXISTS orders")
        session().sql(
            "CREATE TABLE orders USING rmqha "
            f"OPTIONS (path '{self.store}', topic 'GoldenA', columns 'topic,body,queue_id')"
        )
        try:
            self.assertEqual(["topic", "body", "queue_id"], session().table("orders").columns)
            found = (
                session().sql("SELECT topic, count(*) AS n FROM orders GROUP BY topic").collect()
            )
            wanted = sum(each["topic"] == "GoldenA" for each in self.records)
            self.assertEqual([("GoldenA", wanted)], [tuple(row) for row in found])
            wider = session().sql("SELECT * FROM orders WITH (topic='GoldenA,GoldenB')")
            self.assertLess(wanted, wider.count())
        finally:
            session().sql("DROP TABLE orders")

    def test_schema_given(self) -> None:
        """A schema chooses columns as an option does; one that does not fit is told."""
        reader = session().read.format("rmqha").option("visibility", "log")
        frame = reader.schema("body binary, topic string").load(str(self.store))
        self.assertEqual(["body", "topic"], frame.columns)
        self.assertEqual(len(self.all), len(frame.collect()))
        wrong = reader.schema("topic binary").load(str(self.store))
        error = self.assertRaises(PySparkException, wrong.collect)
        self.assertIn("column topic has type string", str(error))

    def test_errors(self) -> None:
        """What is wrong with an option reaches who gave it."""
        error = self.assertRaises(PySparkException, read, path=str(self.store), topik="a")
        self.assertIn("unknown option topik; did you mean topic?", str(error))
        error = self.assertRaises(PySparkException, read, path=str(self.store), columns="topics")
        self.assertIn("unknown column topics; did you mean topic?", str(error))

    def test_styles_and_tables(self) -> None:
        """Every style and table has a schema that Spark takes."""
        for style in ("rocketmq", "kafka"):
            frame = read(path=str(self.store), visibility="log", columnStyle=style)
            self.assertEqual(len(self.all), len(frame.collect()), style)
        for table in ("files", "ranges"):
            self.assertEqual(11, len(read(path=str(self.store), table=table).collect()), table)

    def test_list_of_stores(self) -> None:
        """A list of folders is several stores, called as their folders are."""
        paths = []
        for version in golden.VERSIONS:
            store = golden.store(version)
            paths.append(str(store.rename(store.with_name(f"broker-{version}"))))
        frame = session().read.format("rmqha").option("table", "ranges").load(paths)
        found = {row["store"] for row in frame.select("store").collect()}
        self.assertEqual({f"broker-{version}" for version in golden.VERSIONS}, found)

    def test_nothing(self) -> None:
        """A read of nothing has no rows."""
        self.assertEqual([], read(path=str(self.store), startingOffsets="latest").collect())


class StreamTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.records = expected("5.3.3", "store")
        self.all = [record["physicalOffset"] for record in self.records]
        self.end = self.all[-1] + self.records[-1]["size"]
        self.place = Path(tempfile.mkdtemp(dir=folder()))

    def run_stream(self, trigger: str = "availableNow", **options: object) -> Any:
        """Run a stream of what is there into Parquet files, and return the query, ended."""
        reader = session().readStream.format("rmqha").option("columns", "physical_offset,topic")
        for name, value in {"visibility": "log", "path": str(self.store), **options}.items():
            reader = reader.option(name, str(value))
        writer = reader.load().writeStream.format("parquet").trigger(**{trigger: True})
        writer = writer.option("checkpointLocation", str(self.place / "checkpoint"))
        query = writer.start(str(self.place / "rows"))
        query.awaitTermination(120)
        return query

    def found(self) -> list[int]:
        """Physical offsets of the rows written so far."""
        return offsets(session().read.parquet(str(self.place / "rows")))

    def test_once(self) -> None:
        """A stream that looks once reads all there is, whatever a batch's least and most."""
        publish(self.store, self.end)
        self.run_stream("once", maxRowsPerTrigger=64, minBytesPerTrigger="1g")
        self.assertEqual(self.all, self.found())

    def test_restart(self) -> None:
        """A stream goes on by its checkpoint, in limits, from a copy too; each record once."""
        publish(self.store, self.all[800])
        query = self.run_stream(maxBytesPerTrigger="400k")
        self.assertGreater(len([each for each in query.recentProgress if each.numInputRows]), 2)
        self.assertEqual(self.all[:800], self.found())
        publish(self.store, self.end)
        moved = self.place / "moved"
        shutil.move(self.store, moved)
        self.run_stream(path=moved)
        self.assertEqual(self.all, self.found())

    def test_cut_back(self) -> None:
        """A stream that read what was cut away stops with the reason."""
        publish(self.store, self.all[800])
        self.run_stream()
        for file in sorted((self.store / "commitlog").iterdir()):
            keep = max(0, min(262144, self.all[700] - int(file.name)))
            with file.open("r+b") as opened:
                opened.seek(keep)
                opened.write(bytes(262144 - keep))
        file = self.store / OWN_FOLDER / POINT
        file.write_bytes(render_point(parse_point(file.read_bytes()).cut_at(self.all[700], 5)))
        error = self.assertRaises(PySparkException, self.run_stream)
        self.assertIn(f"cut back to byte {self.all[700]}", str(error))
        self.assertEqual(self.all[:800], self.found())

    def test_no_point(self) -> None:
        """A store that nobody publishes a point for is refused, and read if that is wanted."""
        error = self.assertRaises(PySparkException, self.run_stream)
        self.assertIn("allowUnconfirmedTail=true", str(error))
        shutil.rmtree(self.place / "checkpoint")
        self.run_stream(allowUnconfirmedTail="true")
        self.assertEqual(self.all, self.found())
