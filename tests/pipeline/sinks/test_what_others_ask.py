"""Tables of which others ask something: checks, keys, a way to lie.  Each is kept, or refused by
name when the table is opened: not in the middle of a write, and never passed over.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqha.pipeline.errors import TableRefused
from tests.pipeline.sinks.test_tables import LakeTestCase
from tests.support.rows import publish

try:
    from deltalake import DeltaTable, Field, Schema, TableFeatures
    from pyiceberg.transforms import (
        BucketTransform,
        HourTransform,
        IdentityTransform,
        MonthTransform,
        TruncateTransform,
    )
    from pyiceberg.types import IntegerType, LongType, StringType

    from rmqha.pipeline.jobs.rewind import rewind
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.sinks.columns import TableColumns
    from rmqha.pipeline.sinks.table import fitting, folder_columns
    from rmqha.pipeline.sinks.table_layout import By
    from rmqha.pipeline.sinks.target import Appending, Target, found_at
    from tests.support.lake import append, files, offsets
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"


class AskedTestCase(LakeTestCase):
    """Tables that are opened, and what is said then."""

    def setUp(self) -> None:
        super().setUp()
        self.options = ReadOptions.parse({"path": self.store, "visibility": "log"})

    def opened(self, target: Target) -> None:
        """Open a table to add to it, and make it if it is not there."""
        job = Appending(target, self.options)
        try:
            _ = job.table
        finally:
            job.close()

    def assert_refused(self, target: Target, *words: str) -> None:
        """It is refused before anything is written, and what is asked is named."""
        error = self.assertRaises(TableRefused, self.opened, target)
        for word in words:
            self.assertIn(word, str(error))

    def add(self, target: Target, row: int) -> None:
        """Add what the log has up to a record."""
        publish(self.store, self.all[row])
        append(target, self.store)


class DeltaTests(AskedTestCase):
    """What the writers of a Delta table have to see to."""

    def made(self, changed: dict[str, Callable[[Any], Any]]) -> Target:
        """A table that somebody made with other fields."""
        target = self.target("delta")
        columns = TableColumns.of(self.options).schema(By.DATE, False)
        fields = Schema.from_arrow(fitting(columns, By.DATE)).fields
        fields = [changed.get(each.name, lambda same: same)(each) for each in fields]
        DeltaTable.create(str(target.root), Schema(fields), partition_by=folder_columns(By.DATE))
        return target

    def with_metadata(self, key: str, value: str) -> Callable[[Any], Any]:
        """A field with an entry as Spark makes it."""
        return lambda field: Field(field.name, field.type, field.nullable, {key: value})

    def test_constraint(self) -> None:
        """A check is the writer's to make."""
        target = self.target("delta")
        self.opened(target)
        DeltaTable(target.root).alter.add_constraint({"low": "physical_offset < 10"})
        self.assert_refused(target, "delta.constraints.low")
        DeltaTable(target.root).alter.drop_constraint("low")
        self.add(target, 100)
        self.assertEqual(self.all[:100], offsets(target))

    def test_columns(self) -> None:
        """So are those of columns, and values that are computed."""
        invariant = json.dumps({"expression": {"expression": "queue_id > 1"}})
        for key, value in (
            ("delta.invariants", invariant),
            ("delta.generationExpression", "CAST(store_timestamp AS DATE)"),
            ("delta.identity.start", "1"),
        ):
            target = self.made({"queue_id": self.with_metadata(key, value)})
            self.assert_refused(target, key, "queue_id")
        target = self.made({"keys": lambda each: Field(each.name, each.type, nullable=False)})
        self.assert_refused(target, "NOT NULL", "keys")

    def test_types(self) -> None:
        """A column of another type is no column of ours."""
        target = self.made({"body": lambda each: Field(each.name, "string")})
        self.assert_refused(target, "body", "string", "binary")

    def test_mapped_columns(self) -> None:
        """A column that files have under another name would come out empty."""
        target = self.target("delta")
        self.opened(target)
        self.remap(target, "name", {})
        self.add(target, 100)
        self.add(target, 200)
        self.assertEqual(self.all[:200], offsets(target))
        self.remap(target, "name", {"keys": "col-5f0c"})
        self.assert_refused(target, "keys", "col-5f0c")
        self.remap(target, "id", {})
        self.assert_refused(target, "delta.columnMapping.mode")

    def remap(self, target: Target, mode: str, names: dict[str, str]) -> None:
        """Add a commit in which columns are mapped, as Spark writes it."""
        log = target.root / "_delta_log"
        first = (log / f"{0:020d}.json").read_text().splitlines()
        (found,) = (json.loads(line)["metaData"] for line in first if "metaData" in line)
        schema = json.loads(found["schemaString"])
        for number, each in enumerate(schema["fields"], 1):
            each["metadata"] = {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": names.get(each["name"], each["name"]),
            }
        found["schemaString"] = json.dumps(schema)
        found["configuration"] = {
            **DeltaTable(target.root).metadata().configuration,
            "delta.columnMapping.mode": mode,
            "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
        }
        protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
        lines = [{"metaData": found}, {"protocol": protocol}]
        number = DeltaTable(target.root).version() + 1
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (log / f"{number:020d}.json").write_text(text)

    def test_features(self) -> None:
        """A feature of tables is one that a commit is possible with, or is named at once."""
        refused = 0
        for name in (each for each in dir(TableFeatures) if each[0].isupper()):
            target = self.target("delta")
            self.opened(target)
            try:
                DeltaTable(target.root).alter.add_feature(
                    getattr(TableFeatures, name), allow_protocol_versions_increase=True
                )
            except Exception:
                continue  # which the library itself does not know
            try:
                self.opened(target)
            except TableRefused as error:
                self.assertIn(f"{name[0].lower()}{name[1:]}", str(error))
                refused += 1
            else:
                self.add(target, 20)
                self.add(target, 30)
                self.assertEqual(self.all[:30], offsets(target), name)
        self.assertLess(0, refused)

    def test_append_only(self) -> None:
        """What may only grow is not rewound."""
        target = self.target("delta")
        self.add(target, 100)
        DeltaTable(target.root).alter.set_table_properties({"delta.appendOnly": "true"})
        error = self.assertRaises(TableRefused, rewind, target.root, self.all[50])
        self.assertIn("delta.appendOnly", str(error))
        self.add(target, 200)
        self.assertEqual(self.all[:200], offsets(target))


class IcebergTests(AskedTestCase):
    """How others divide an Iceberg table, and what they ask of its columns."""

    def changed(self, change: Callable[[Any], object], **more: Any) -> Target:
        """A table with rows that somebody changed."""
        target = self.target("iceberg", **more)
        self.add(target, 100)
        with target.open() as opened:
            change(opened._table)  # type: ignore[attr-defined]
        return target

    def divided(self, *fields: tuple[str, Any], **more: Any) -> Target:
        """A table with more in its partition spec."""

        def change(table: Any) -> None:
            with table.update_spec() as spec:
                for column, transform in fields:
                    spec.add_field(column, transform, f"{column}_more")

        return self.changed(change, **more)

    def test_spec(self) -> None:
        """A file is of a day and a store, and maybe a topic: who wants less is refused."""
        by_topic = {"by": By.TOPIC}
        for column, transform, more in (
            ("topic", IdentityTransform(), {}),
            ("topic", TruncateTransform(3), {}),
            ("keys", BucketTransform(4), {}),
            ("store", BucketTransform(4), {}),
            ("store_timestamp", HourTransform(), {}),
            ("born_timestamp", MonthTransform(), {}),
            ("queue_id", IdentityTransform(), by_topic),
        ):
            target = self.divided((column, transform), **more)
            self.assert_refused(target, f"{column}_more", str(transform))
        for column, transform, more in (
            ("store", IdentityTransform(), {}),
            ("store_timestamp", MonthTransform(), {}),
            ("topic", TruncateTransform(3), by_topic),
        ):
            target = self.divided((column, transform), **more)
            self.add(target, 200)
            self.assertEqual(self.all[:200], offsets(target), column)

    def test_fields_removed(self) -> None:
        """Files that are of less than the table wants belong to it."""

        def change(table: Any) -> None:
            with table.update_spec() as spec:
                spec.remove_field("date")

        target = self.changed(change)
        self.add(target, 200)
        self.assertEqual(self.all[:200], offsets(target))

    def test_rewind(self) -> None:
        """Rows are not taken off where what is left of a file would not fit."""
        target = self.divided(("topic", IdentityTransform()))
        error = self.assertRaises(TableRefused, rewind, target.root, self.all[50])
        self.assertIn("topic", str(error))
        self.assertEqual(self.all[:100], offsets(target))

    def test_columns(self) -> None:
        """A column that may not be empty, or is of another type, is named.  A wider one is kept."""

        def required(table: Any) -> None:
            with table.update_schema(allow_incompatible_changes=True) as change:
                change.update_column("keys", required=True)

        def other(table: Any) -> None:
            with table.update_schema() as change:
                change.delete_column("flag")
            with table.update_schema() as change:
                change.add_column("flag", StringType())

        def wider(table: Any) -> None:
            with table.update_schema() as change:
                change.update_column("queue_id", LongType())

        self.assert_refused(self.changed(required), "keys", "NOT NULL")
        self.assert_refused(self.changed(other), "flag", str(StringType()), str(IntegerType()))
        target = self.changed(wider)
        self.add(target, 200)
        self.assertEqual(self.all[:200], offsets(target))

    def test_elsewhere(self) -> None:
        """A table moved or copied names its old files: it is neither written nor rewound."""
        target = self.target("iceberg")
        self.add(target, 100)
        original = sorted(target.root.rglob("*"))
        copy = target.root.with_name("copy")
        shutil.copytree(target.root, copy)
        self.assert_refused(Target.at(copy, format=target.format), str(target.root), "--out")
        self.assertRaises(TableRefused, found_at, copy)
        self.assertEqual(original, sorted(target.root.rglob("*")))
        link = target.root.with_name("link")
        link.symlink_to(target.root)
        publish(self.store, self.all[200])
        append(Target.at(link, format=target.format), self.store)
        self.assertEqual(self.all[:200], offsets(target))
        os.rename(target.root, moved := target.root.with_name("moved"))
        self.assert_refused(
            Target.at(moved, format=target.format), str(target.root), "move it back"
        )


class FolderTests(AskedTestCase):
    """Folders of Parquet files name no place, and may be moved."""

    def test_elsewhere(self) -> None:
        """A folder that was copied goes on by itself, as does a Delta table."""
        for format in ("parquet", "delta"):
            target = self.target(format)
            self.add(target, 100)
            copy = Target.at(target.root.with_name("copy"), format=target.format)
            shutil.copytree(target.root, copy.root)
            before = files(target.root)
            self.add(copy, 200)
            self.assertEqual(self.all[:200], offsets(copy), format)
            self.assertEqual(before, files(target.root), format)
            shutil.move(copy.root, moved := Path(f"{copy.root}-moved"))
            self.add(Target.at(moved, format=target.format), 300)
            self.assertEqual(self.all[:300], offsets(Target.at(moved, format=target.format)))
