"""Tests of tables in an S3 server and in HDFS."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from lab.harness import golden
from rmqha.tier import objects
from tests.support.effort import slow, tries
from tests.support.object_servers import HdfsCase, S3Case
from tests.support.rows import expected, publish
from tests.support.tiers import END, SIZE

try:
    import deltalake
    import pyiceberg  # noqa: F401

    from rmqha.pipeline.errors import TableRefused
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.sinks.folder import FolderTable
    from rmqha.pipeline.sinks.parquet import STAGED
    from rmqha.pipeline.sinks.table import IcebergPlace
    from rmqha.pipeline.sinks.table_layout import By
    from rmqha.pipeline.sinks.target import Appending, Format, Target, found_at, object_url
    from rmqha.tier.errors import TierError
    from tests.support.lake import append, offsets, written
except ImportError as missing:  # without the extras
    skip = f"an extra is not installed: {missing}"

WRITE = """
import sys
from pathlib import Path
from tests.support.lake import append
from rmqha.pipeline.sinks.target import Format, Target
append(Target.at(sys.argv[1], format=Format(sys.argv[3])), Path(sys.argv[2]))
"""


class ObjectTables:
    """Tables whose files are objects."""

    def setUp(self) -> None:
        super().setUp()
        every = expected(golden.VERSIONS[0], "store")
        self.all = [record["physicalOffset"] for record in every]
        self.out = self.url.partition("?")[0]

    def delta(self) -> list[int]:
        """Physical offsets of the rows of a Delta table, as its own library reads it."""
        found = deltalake.DeltaTable(self.out).to_pyarrow_table(columns=["physical_offset"])
        return sorted(found.column(0).to_pylist())

    def test_delta(self) -> None:
        """Each record is a row once, when a table is added to and when a batch is repeated; it
        knows how far it is, and rows can be taken off it.
        """
        target = Target.at(self.out, format=Format.DELTA)
        publish(self.store, self.all[500])
        append(target, self.store)
        self.assertEqual(self.all[:500], self.delta())
        publish(self.store, END)
        append(target, self.store, commit=False)
        append(target, self.store)
        append(target, self.store)
        self.assertEqual(self.all, self.delta())
        with found_at(self.out) as table:
            self.assertEqual(END, next(iter(table.sources().values())).end)
            table.take_off("store", self.all[300])
        self.assertEqual(self.all[:300], self.delta())
        append(target, self.store)
        self.assertEqual(self.all, self.delta())

    def test_parquet(self) -> None:
        """So it is with a folder of Parquet files, for a reader who only lists it."""
        target = Target.at(self.out)
        publish(self.store, self.all[500])
        append(target, self.store)
        publish(self.store, END)
        append(target, self.store, commit=False)
        self.assertEqual(self.all[:500], offsets(target))
        patched = self.patch(FolderTable, "_apply", lambda table: None)
        append(target, self.store)
        self.assertEqual(self.all[:500], offsets(target))
        patched.restore()
        append(target, self.store)
        self.assertEqual(self.all, offsets(target))
        with found_at(self.out) as table:
            self.assertEqual(END, next(iter(table.sources().values())).end)
            table.take_off("store", self.all[300])
        self.assertEqual(self.all[:300], offsets(target))
        append(target, self.store)
        self.assertEqual(self.all, offsets(target))
        self.assertEqual([], list(target.shape.folder.walk(STAGED)))
        self.assertRaises(
            TableRefused, append, Target.at(self.out, format=Format.DELTA), self.store
        )

    def test_two_jobs(self) -> None:
        """Of two jobs that wrote a batch for a folder of Parquet files one commits, and the other
        is told.  This server looks before it writes, so they do not commit in the same moment here.
        """
        target = Target.at(self.out)
        append(target, self.store, endingOffsets={"store": self.all[100]})
        options = ReadOptions.parse({"path": self.store, "visibility": "log"})
        jobs = [Appending(target, options) for _ in range(2)]
        batches = [written(job.work(), options) for job in jobs]
        jobs[1].commit(batches[1])
        error = self.assertRaises(TableRefused, jobs[0].commit, batches[0])
        self.assertIn("another job has committed", str(error))
        self.assertEqual(self.all, offsets(target))
        self.assertEqual([], list(target.shape.folder.walk(STAGED)))

    def test_file_that_waits_no_longer(self) -> None:
        """What another job has moved meanwhile is not there, which is no fault of the server's."""
        folder = Target.at(self.out).shape.folder
        self.assertRaises(FileNotFoundError, folder.show, "waiting", "date=2026-01-31/a.parquet")
        folder.write("waiting", [b"rows"])
        folder.show("waiting", "date=2026-01-31/a%20b.parquet")
        for _ in range(2):
            folder.remove("waiting")
        folder.write("batch/a", [b""])
        for _ in range(2):
            folder.remove_folder("batch")
        self.assertEqual({"date=2026-01-31/a%20b.parquet": 4}, folder.walk())
        self.assertEqual([True, False], [folder.has("date=2026-01-31"), folder.has("date")])

    def test_from_the_tier(self) -> None:
        """From one bucket into another table of it: what retention deleted is a row too."""
        self.url = self.server.url(f"{self.name}/tier")
        self.upload()
        self.retention(6)
        self.out += "/table"
        append(Target.at(self.out, format=Format.DELTA), self.store, tier=self.url)
        self.assertEqual(self.all, self.delta())
        self.assertGreater(self.all[-1], 6 * SIZE)

    def test_killed(self) -> None:
        """After kill -9 at any moment each row is there once."""
        self.killed(Format.DELTA)
        self.assertEqual(self.all, self.delta(), f"seed {self.seed}")

    def test_killed_parquet(self) -> None:
        """So it is in a folder of Parquet files, and no row is there twice at any time."""

        def check() -> None:
            names = target.shape.folder.walk()
            if any(name.startswith("date=") for name in names):
                seen = offsets(target)
                self.assertEqual(len(set(seen)), len(seen), f"seed {self.seed}")

        target = Target.at(self.out)
        self.killed(Format.PARQUET, check)
        self.assertEqual(self.all, offsets(target), f"seed {self.seed}")
        self.assertEqual([], list(target.shape.folder.walk(STAGED)))

    def killed(self, format: Format, check: Callable[[], None] = lambda: None) -> None:
        """Add in processes that are killed, checking each time, and at last in this one."""
        self.seed = random.SystemRandom().getrandbits(32)
        moments = random.Random(self.seed)
        command = [sys.executable, "-c", WRITE, self.out, str(self.store), format.value]
        for part in range(1, tries(6) + 1):
            publish(self.store, self.all[part * 100])
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                process.wait(moments.uniform(1.0, 5.0))
            except subprocess.TimeoutExpired:
                process.kill()
            process.wait()
            check()
        publish(self.store, END)
        append(Target.at(self.out, format=format), self.store)


@slow
class S3TableTests(ObjectTables, S3Case):
    def test_iceberg(self) -> None:
        """So it is with an Iceberg table of a catalog that was named; without one it is refused."""
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{self.folder() / 'catalog.db'}",
            "warehouse": self.out,
            **self.server.iceberg,
        }
        place = IcebergPlace("tests", tuple(catalog.items()))
        target = Target.at(self.out, format=Format.ICEBERG, iceberg=place)
        publish(self.store, self.all[500])
        append(target, self.store)
        publish(self.store, END)
        append(target, self.store, commit=False)
        append(target, self.store)
        from pyiceberg.catalog import load_catalog

        table = load_catalog("tests", **catalog).load_table("rmqha.messages")
        found = table.scan(selected_fields=("physical_offset",)).to_arrow().column(0).to_pylist()
        self.assertEqual(self.all, sorted(found))
        with found_at(self.out, place) as opened:
            self.assertRaises(TableRefused, opened.take_off, "store", 0)
        bare = Target.at(self.out, format=Format.ICEBERG)
        self.assertIn("needs a catalog", str(self.assertRaises(TableRefused, bare.open)))

    def test_wrong_keys(self) -> None:
        """Keys that the server does not take make no table, and are told."""
        append(Target.at(self.out, format=Format.DELTA), self.store)
        before = self.delta()
        self.patch_environment("AWS_SECRET_ACCESS_KEY", "expired")
        objects._file_system.cache_clear()
        self.addCleanup(objects._file_system.cache_clear)
        for format in (Format.DELTA, Format.PARQUET):
            found: Any = None
            try:
                append(Target.at(self.out, format=format), self.store)
            except (TierError, TableRefused, OSError) as error:
                found = error
            self.assertIsNotNone(found, format)
        self.patch_environment("AWS_SECRET_ACCESS_KEY", self.server.secret)
        objects._file_system.cache_clear()
        self.assertEqual(before, self.delta())


@slow
class HdfsTableTests(ObjectTables, HdfsCase):
    """In HDFS."""


class RefusedTests(S3Case):
    """What is not exact in an object store is refused, without any server."""

    def setUp(self) -> None:
        pass

    def test_refused(self) -> None:
        """Folders by topic, and keys or options in the URL."""
        out = "s3://bucket/table"
        for more, word in (
            ({"format": Format.PARQUET, "by": By.TOPIC}, "by topic"),
            ({"format": Format.PARQUET, "by": By.TABLE}, "by topic"),
            ({"format": Format.DELTA, "by": By.TOPIC}, "by topic"),
            ({"format": Format.ICEBERG, "by": By.TOPIC}, "by topic"),
        ):
            error = self.assertRaises(TableRefused, Target.at(out, **more).open)
            self.assertIn(word, str(error))
        iceberg = Target.at("hdfs://host/table", format=Format.ICEBERG)
        self.assertIn("pyiceberg", str(self.assertRaises(TableRefused, iceberg.open)))
        for url in ("s3://bucket/table?region=x", "s3://key:hidden@bucket/table"):
            error = self.assertRaises(TableRefused, object_url, url)
            self.assertNotIn("hidden", str(error))
        for url in ("s3://bucket/a#b", "s3://bucket/a#", "hdfs://host/a#b/c"):
            self.assertIn("%23", str(self.assertRaises(TableRefused, Target.at, url)))
        encoded = Target.at("s3://bucket/a%20b", format=Format.ICEBERG)
        self.assertIn("%20", str(self.assertRaises(TableRefused, encoded.open)))
        for url in ("gs://bucket/table", "s3a://bucket/table"):
            self.assertRaises(TableRefused, Target.at, url)
