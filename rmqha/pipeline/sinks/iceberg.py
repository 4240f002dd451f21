"""
An Iceberg table, committed to by C{pyiceberg}: by a catalog in a file beside the table, or
one that its configuration names.

How far the table is lies in the table's properties, which are set in the transaction that
adds the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from logging import getLogger
from pathlib import Path
from typing import Self

import pyarrow as pa
from attrs import define
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as Iceberg
from pyiceberg.transforms import DayTransform, IdentityTransform

from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.sinks.parquet import OURS, Shape
from rmqha.pipeline.sinks.position import TablePosition
from rmqha.pipeline.sinks.rewrite import left_of, place_column, write
from rmqha.pipeline.sinks.table import LakeTable, Source, Taken, require_same
from rmqha.pipeline.sinks.table_layout import DATE, By
from rmqha.pipeline.sinks.target import IcebergPlace
from rmqha.pipeline.sinks.written import WrittenFile

CATALOG = "catalog.db"
"""The catalog that is made when none is named, below L{OURS} of the table's folder."""

_SCHEME = "file://"
_HELD = "rmqha.held."
_GENERATION = "rmqha.generation"

_PROPERTIES = {
    # Each commit is a new list of files and a new description of the table.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}

# It warns of each column that a file has no statistics of, as we want for bodies.
getLogger("pyiceberg.io.pyarrow").addFilter(
    lambda record: "statistics missing" not in record.getMessage()
)


def catalog_of(place: IcebergPlace, root: Path) -> Catalog:
    """
    The catalog that lists a table.
    """
    if place.catalog is not None or place.properties:
        return load_catalog(place.catalog or "rmqha", **dict(place.properties))
    (root / OURS).mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{root / OURS / CATALOG}"
    return load_catalog("rmqha", type="sql", uri=uri, warehouse=f"{_SCHEME}{root}")


@define
class IcebergSink(LakeTable):
    """
    An Iceberg table that rows are appended to and taken off.
    """

    shape: Shape
    _table: Iceberg

    @classmethod
    def open(cls, shape: Shape, place: IcebergPlace, schema: pa.Schema | None = None) -> Self:
        """
        Open a table, or make it.

        @param schema: Of files that are to come; without it the table has to be there.
        @raise TableRefused: If it has other columns, or is none.
        """
        catalog = catalog_of(place, shape.root)
        try:
            table = catalog.load_table(place.table)
        except NoSuchTableError:
            if schema is None:
                raise TableRefused(
                    str(shape.root), f"the catalog has no table {place.table}"
                ) from None
            table = _made(catalog, place, shape, schema)
        if schema is not None:
            found = [each.name for each in table.schema().fields]
            require_same(place.table, schema.names, found)
        return cls(shape, table)

    @property
    def generation(self) -> int:
        return int(self._table.properties.get(_GENERATION, 0))

    def sources(self) -> dict[Source, TablePosition]:
        found = {}
        for name, text in self._table.properties.items():
            if name.startswith(_HELD):
                selection, _, store = name[len(_HELD) :].partition(".")
                found[selection, store] = TablePosition.from_json(json.loads(text))
        return found

    def commit(self, files: Iterable[WrittenFile], moved: Mapping[Source, TablePosition]) -> None:
        before = {source: held for source, held in self.sources().items() if source in moved}
        self._table.refresh()
        now = {source: held for source, held in self.sources().items() if source in moved}
        if before != now:
            raise TableRefused(str(self.shape.root), "another job has added the same rows")
        paths = [f"{_SCHEME}{self.shape.root / each.path}" for each in files]
        try:
            with self._table.transaction() as transaction:
                transaction.set_properties(_properties(moved))
                if paths:
                    transaction.add_files(paths, check_duplicate_files=False)
        except CommitFailedException as error:
            raise TableRefused(str(self.shape.root), str(error)) from error

    def take_off(self, store: str, to: int) -> Taken:
        moved = self._cut_back(store, to)
        generation = self.generation + 1
        properties = {**_properties(moved), _GENERATION: str(generation)}
        removed, added, rows = [], [], 0
        for file in self._files(store, to):
            path = Path(file.file_path.removeprefix(_SCHEME))
            left, gone = left_of(path, store, to)
            rows += gone
            if gone:
                removed.append(file)
            if gone and left.num_rows:
                name = path.with_name(f"{path.stem}-r{generation}.parquet")
                write(left, name, self.shape.encoding)
                added.append(f"{_SCHEME}{name}")
        with self._table.transaction() as transaction:
            transaction.set_properties(properties)
            if removed:
                with transaction.update_snapshot().overwrite() as snapshot:
                    for file in removed:
                        snapshot.delete_data_file(file)
            if added:
                transaction.add_files(added, check_duplicate_files=False)
        return Taken(rows, {store: to})

    def _files(self, store: str, to: int) -> list[DataFile]:
        """
        The files that may have rows of a store from an offset on.
        """
        place = place_column([each.name for each in self._table.schema().fields])
        # Its annotations are those of another class.
        wanted = And(
            EqualTo("store", store),  # type: ignore[call-arg, arg-type]
            GreaterThanOrEqual(place, to),  # type: ignore[call-arg, arg-type]
        )
        return [task.file for task in self._table.scan(wanted).plan_files()]

    def close(self) -> None:
        pass


def _properties(moved: Mapping[Source, TablePosition]) -> dict[str, str]:
    """
    What says how far the table is: a property each, so that jobs do not meet in one.
    """
    return {
        f"{_HELD}{selection}.{store}": json.dumps(held.to_json(), sort_keys=True)
        for (selection, store), held in moved.items()
    }


def _made(catalog: Catalog, place: IcebergPlace, shape: Shape, schema: pa.Schema) -> Iceberg:
    """
    A new table, with a partition a day, and a topic if folders are by topic.
    """
    catalog.create_namespace_if_not_exists(place.table.rpartition(".")[0])
    time = "store_timestamp" if "store_timestamp" in schema.names else "storeTimestamp"
    with (
        catalog.create_table_transaction(
            place.table, schema, location=f"{_SCHEME}{shape.root}", properties=_PROPERTIES
        ) as made,
        made.update_spec() as spec,
    ):
        if time in schema.names:
            spec.add_field(time, DayTransform(), DATE)
        if shape.by is By.TOPIC and "topic" in schema.names:
            spec.add_field("topic", IdentityTransform(), "topic")
    return catalog.load_table(place.table)
