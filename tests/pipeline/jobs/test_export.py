"""Tests for L{rmqha.pipeline.jobs.export}, and for how commands of Spark's jobs end."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.pipeline.errors import JobFailed, OptionInvalid, OptionUnknown
from tests.support.rows import expected, publish
from tests.support.spark_needs import why_no_java

try:
    import deltalake
    import pyiceberg
    from pyspark.errors import PySparkException

    from rmqha.cli.main import main
    from rmqha.pipeline.jobs.export import export
    from rmqha.pipeline.spark.failures import reason_of, reasons
    from tests.support.lake import files, found
    from tests.support.spark import session

    _ = (deltalake, pyiceberg)
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why

TASK = """
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "reading.py", line 1, in read
rmqha.errors.RecordCorrupt: at byte 7: body CRC

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "reading.py", line 2, in read
rmqha.pipeline.log.errors.RangeBroken: /log at byte 7: body CRC; the range ends at 9
 SQLSTATE: 38000
"""

OTHER = """[UDF] failed
Traceback (most recent call last):
  File "work.py", line 1, in work
    raise ValueError("x")
ValueError: x: y

\tat org.apache.spark.Task(Task.java)
"""


class ReasonTests(SynchronousTestCase):
    """What failed in Spark is told in one line."""

    def test_reasons(self) -> None:
        """Our own error, or Python's, or the first line of Spark's."""
        self.assertEqual(
            "/log at byte 7: body CRC; the range ends at 9", reason_of(PySparkException(TASK))
        )
        self.assertEqual("ValueError: x: y", reason_of(PySparkException(OTHER)))
        plain = PySparkException("[NO_SUCH_COLUMN] There is none.\n more")
        self.assertEqual("There is none.", reason_of(plain))
        self.assertEqual("PySparkException", reason_of(PySparkException("")))

    def test_typed(self) -> None:
        """A job's exception is one of ours; others pass."""

        def fail(error: Exception) -> None:
            with reasons():
                raise error

        error = self.assertRaises(JobFailed, fail, PySparkException(OTHER))
        self.assertEqual("ValueError: x: y", str(error))
        self.assertRaises(KeyError, fail, KeyError())


class ExportTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.all = [each["physicalOffset"] for each in expected("5.3.3", "store")]
        self.place = Path(tempfile.mkdtemp(prefix="export-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    def offsets(self, format: str) -> list[int]:
        """Physical offsets of a table's rows, ascending."""
        table = found(self.place / format, format)
        return sorted(table.column("physical_offset").to_pylist())

    def test_formats(self) -> None:
        """Every kind of table gets every row once, and only what is new later."""
        for format in ("parquet", "delta", "iceberg"):
            out = self.place / format
            publish(self.store, self.all[500])
            first = export(session(), self.store, out, format=format, visibility="log")
            self.assertEqual((500, {"store": self.all[500]}), (first.rows, first.ends))
            self.assertEqual(len(files(out)), first.files)
            self.assertEqual(first.rows, sum(rows for rows, _ in first.topics.values()))
            publish(self.store, self.all[600])
            again = export(session(), self.store, out, format=format, visibility="log")
            self.assertEqual(100, again.rows)
            self.assertEqual(self.all[:600], self.offsets(format))
            none = export(session(), self.store, out, format=format, visibility="log")
            self.assertEqual((0, 0), (none.files, none.rows))

    def test_spark_reads_it(self) -> None:
        """Spark sees the rows, the columns of folders, and none of what lies beside them."""
        out = self.place / "parquet"
        export(session(), self.store, out, partition_by_topic=True, compression="snappy")
        frame = session().read.parquet(str(out))
        wanted = session().read.format("rmqha").load(str(self.store))
        self.assertEqual(wanted.count(), frame.count())
        self.assertEqual(
            {tuple(row) for row in wanted.groupBy("topic").count().collect()},
            {tuple(row) for row in frame.groupBy("topic").count().collect()},
        )

    def test_stock_writer(self) -> None:
        """Spark's own writers take our rows as well."""
        frame = session().read.format("rmqha").option("topic", "GoldenA").load(str(self.store))
        frame.write.partitionBy("queue_id").parquet(str(self.place / "stock"))
        self.assertEqual(frame.count(), session().read.parquet(str(self.place / "stock")).count())

    def test_options(self) -> None:
        """Options that choose rows choose them; one that nobody knows is an error."""
        done = export(
            session(), self.store, self.place / "parquet", topic="GoldenA,GoldenB", columns="keys"
        )
        self.assertEqual({"GoldenA", "GoldenB"}, set(done.topics))
        self.assertRaises(
            OptionUnknown, export, session(), self.store, self.place / "other", topik="a"
        )
        for wrong in (
            {"format": "csv"},
            {"compression": "gzip"},
            {"level": 30},
            {"compression": "snappy", "level": 1},
            {"partition_by_topic": True, "table_per_topic": True},
        ):
            self.assertRaises(
                OptionInvalid, export, session(), self.store, self.place / "other", **wrong
            )

    def test_command(self) -> None:
        """The command ends with one line that says what it did, or why it did not."""
        session()
        run = CliRunner().invoke
        out = ["--out", str(self.place / "table"), "--option", "visibility=log"]
        told = run(main, ["spark", "export", str(self.store), *out, "--topics"])
        self.assertEqual(0, told.exit_code, told.output)
        self.assertIn("1291 rows in 11 files", told.stdout.splitlines()[-1])
        self.assertIn("GoldenA\t", told.stdout)
        told = run(main, ["spark", "rewind", "--table", out[1], "--to", str(self.all[100])])
        self.assertIn(f"{len(self.all) - 100} rows removed", told.stdout)
        missing = run(main, ["spark", "export", str(self.place / "none"), *out])
        self.assertEqual(1, missing.exit_code)
        self.assertIn("is not a RocketMQ store: it does not exist", missing.stderr.splitlines()[-1])
