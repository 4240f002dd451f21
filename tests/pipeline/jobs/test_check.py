"""Tests for L{rmqha.pipeline.jobs.check}, without Spark."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from rmqha.cli.main import main
from tests.pipeline.sinks.test_tables import LakeTestCase
from tests.support.rows import publish

try:
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from rmqha.pipeline.errors import TableRefused
    from rmqha.pipeline.jobs.check import check
    from rmqha.pipeline.log.errors import CopyBehind
    from rmqha.pipeline.sinks.target import Format, Target
    from tests.support.lake import append
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"


class CheckTests(LakeTestCase):
    """A table is held against the log that it was made of."""

    def added(self, target: Target, **options: Any) -> Target:
        append(target, self.store, **options)
        return target

    def checked(self, target: Target, **options: Any) -> Any:
        """What is found of the only store."""
        (found,) = check(self.store, target.root, visibility="log", **options)
        return found

    def test_right(self) -> None:
        """All rows of each format are told as right, with their number; a choice of topics too."""
        for format in Format:
            target = self.target(format)
            publish(self.store, self.all[500])
            self.added(target)
            found = self.checked(target)
            self.assertTrue(found.right, found)
            self.assertEqual((500, 0, self.all[500]), (found.rows, found.start, found.end), format)
        target = self.added(self.target(), topic="GoldenA")
        self.assertTrue(self.checked(target, topic="GoldenA").right)

    def test_missing_and_double(self) -> None:
        """A row deleted, one twice, and one that no record has are named by their offsets."""
        target = self.target("delta")
        publish(self.store, self.all[500])
        self.added(target)
        table = DeltaTable(target.root)
        row = table.to_pyarrow_table(filters=[("physical_offset", "=", self.all[300])])
        table.delete(f"physical_offset = {self.all[200]}")
        strange = row.set_column(
            row.schema.get_field_index("physical_offset"),
            row.schema.field("physical_offset"),
            [[self.all[300] + 1]],
        )
        for rows in (row, strange):
            self.write(target, rows)
        found = self.checked(target)
        self.assertEqual(
            ((self.all[200],), (self.all[300],), (self.all[300] + 1,)),
            (found.missing, found.double, found.foreign),
        )

    def write(self, target: Target, rows: Any) -> None:
        from deltalake import write_deltalake

        write_deltalake(target.root, rows, mode="append")

    def test_rows_of_others(self) -> None:
        """Rows that another choice of records added to the same table are not strange."""
        target = self.target()
        publish(self.store, self.all[500])
        self.added(target, topic="GoldenA")
        self.added(target, topic="GoldenB")
        self.assertTrue(self.checked(target, topic="GoldenA").right)
        error = self.assertRaises(TableRefused, self.checked, target)
        self.assertIn("give each --option", str(error))

    def test_shorter_log(self) -> None:
        """A log that ends before the table proves nothing."""
        target = self.target()
        publish(self.store, self.all[500])
        self.added(target)
        for path in sorted((self.store / "commitlog").iterdir())[1:]:
            path.unlink()
        self.assertRaises(CopyBehind, self.checked, target)

    def test_deleted_part(self) -> None:
        """What retention deleted is named as not compared, and the rest is compared."""
        target = self.target()
        publish(self.store, self.all[-1])
        self.added(target)
        first, second = sorted((self.store / "commitlog").iterdir())[:2]
        first.unlink()
        found = self.checked(target)
        self.assertEqual(((0, int(second.name)),), found.uncompared)
        self.assertTrue(found.right, found)

    def test_command(self) -> None:
        """The command says what is wrong, and its exit code does."""
        target = self.target()
        publish(self.store, self.all[500])
        self.added(target)
        line = ["spark", "check", str(self.store), "--table", str(target.root)]
        line += ["--option", "visibility=log"]
        told = CliRunner().invoke(main, line)
        self.assertEqual((0, ""), (told.exit_code, told.stderr), told.output)
        self.assertIn(f"store: right; 500 rows, bytes 0 to {self.all[500]}", told.stdout)
        lost = 0
        for path in sorted(target.root.glob("date=*/*.parquet"))[:1]:
            lost = pq.ParquetFile(path).metadata.num_rows
            path.unlink()
        told = CliRunner().invoke(main, line)
        self.assertEqual(1, told.exit_code, told.output)
        self.assertIn(f"store: {lost} have no row: ", told.stdout)
