"""An Iceberg table, committed to by C{pyiceberg}: by a catalog in a file beside the table, or
one that its configuration names.

How far the table is stands in the summary of the snapshot that adds the files, so it goes back
with them in a rollback.  Properties of the table, which do not, say so too, for when that
snapshot has expired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from logging import getLogger
from pathlib import Path
from typing import Self

import pyarrow as pa
from attrs import define
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ResolveError
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile
from pyiceberg.schema import promote
from pyiceberg.table import Table as Iceberg
from pyiceberg.table import TableProperties
from pyiceberg.transforms import (
    DayTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)

from rmqha.errors import RmqhaError
from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.sinks.columns import STORE
from rmqha.pipeline.sinks.parquet import OURS, Shape
from rmqha.pipeline.sinks.position import Source, TablePosition, as_json, of_json
from rmqha.pipeline.sinks.rewrite import left_of, place_column, write
from rmqha.pipeline.sinks.table import (
    IcebergPlace,
    LakeTable,
    Taken,
    local,
    refused_for,
    require_same,
)
from rmqha.pipeline.sinks.table_layout import DATE, By
from rmqha.pipeline.sinks.written import WrittenFile
from rmqha.tier.objects import ANSWER_MOST

CATALOG = "catalog.db"
"""The catalog that is made when none is named, below L{OURS} of the table's folder."""

_SCHEME = "file://"
_HELD = "rmqha.held"
_SEQUENCE = "rmqha.sequence"
"""Property: the sequence number of our last snapshot, when its properties were set."""

_GENERATION = "rmqha.generation"

_TRIES = 5
"""How often a table is looked for, while other jobs make it."""

_TIMES = ("store_timestamp", "storeTimestamp")
"""The column of the store time, by the styles."""

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


def catalog_of(place: IcebergPlace, shape: Shape) -> Catalog:
    """The catalog that lists a table.

    @raise TableRefused: If none is named, and there is no folder where one could be.
    """
    root = shape.root
    if place.catalog is not None or place.properties:
        catalog = load_catalog(place.catalog or "rmqha", **dict(place.properties))
        catalog.properties.setdefault("s3.request-timeout", str(ANSWER_MOST))
        return catalog
    if shape.url:
        raise TableRefused(
            shape.url, "an Iceberg table in an object store needs a catalog: name it (--catalog)"
        )
    (root / OURS).mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{root / OURS / CATALOG}"
    return load_catalog("rmqha", type="sql", uri=uri, warehouse=f"{_SCHEME}{root}")


@define
class IcebergSink(LakeTable):
    """An Iceberg table that rows are appended to and taken off."""

    shape: Shape
    _table: Iceberg

    @classmethod
    def open(cls, shape: Shape, place: IcebergPlace, schema: pa.Schema | None = None) -> Self:
        """Open a table, or make it.

        @param schema: Of files that are to come; without it the table has to be there.
        @raise TableRefused: If it has other columns, or is none.
        """
        try:
            table = _found(place, shape, schema)
        except FileNotFoundError as error:
            if shape.url:
                shape.folder.names("metadata")  # which says so if there is no bucket
            raise TableRefused(
                shape.place,
                f"{error}: an Iceberg table names its files by whole paths; if it was moved, move "
                "it back",
            ) from error
        if not _same(table.location(), shape):
            raise TableRefused(
                shape.place,
                f"table {place.table} of its catalog is in {table.location()}, and an Iceberg "
                "table names its files by whole paths, so that a copy is no table of its own: "
                f"say --out {table.location()}, or write to a new folder",
            )
        if schema is not None:
            found = [each.name for each in table.schema().fields]
            require_same(place.table, schema.names, found)
            if asked := [*_of_spec(table, shape.by), *_of_columns(table, schema)]:
                raise refused_for(place.table, asked)
        return cls(shape, table)

    @property
    def generation(self) -> int:
        return int(self._table.properties.get(_GENERATION, 0))

    def sources(self) -> dict[Source, TablePosition]:
        snapshot = now = self._table.current_snapshot()
        while snapshot is not None:
            text = None if snapshot.summary is None else snapshot.summary.get(_HELD)
            if text is not None:
                return of_json(json.loads(text))
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        found = self._said()
        reached = int(self._table.properties.get(_SEQUENCE, 0))
        if found and reached > (-1 if now is None else now.sequence_number or 0):
            raise self._forgot((store for _, store in found), "it was rolled back")
        return found

    def _said(self) -> dict[Source, TablePosition]:
        found = {}
        for name, text in self._table.properties.items():
            if name.startswith(f"{_HELD}."):
                selection, _, store = name[len(_HELD) + 1 :].partition(".")
                found[selection, store] = TablePosition.from_json(json.loads(text))
        return found

    def commit(self, files: Iterable[WrittenFile], moved: Mapping[Source, TablePosition]) -> None:
        paths = [f"{_location(self.shape)}/{each.path}" for each in files]

        def commit(held: Mapping[Source, TablePosition]) -> None:
            self._change(held, {}, [], paths)

        self._committed(moved, self._table.refresh, commit, CommitFailedException)

    def take_off(self, store: str, to: int) -> Taken:
        if self.shape.url:
            raise TableRefused(
                self.shape.url,
                "rows of an Iceberg table in an object store are not taken off: roll it back to a "
                "snapshot",
            )
        moved = self._cut_back(store, to)
        generation = self.generation + 1
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
        try:
            self._change({**self._said(), **moved}, {_GENERATION: str(generation)}, removed, added)
        except ValueError as error:
            asked = [f"what is left of its files does not fit: {error}"]
            raise refused_for(self.shape.place, asked) from error
        except Exception as error:
            self._require_done(error, self._table.refresh, moved)
        return Taken(rows, {store: to})

    def _change(
        self,
        held: Mapping[Source, TablePosition],
        properties: Mapping[str, str],
        removed: Iterable[DataFile],
        added: list[str],
    ) -> None:
        """Change files, and say how far the table is then.  There is a snapshot in any case: only
        one is taken back together with what it says.
        """
        said = {_HELD: json.dumps(as_json(held))}
        # A commit that is tried again by the library would say what was true before another's.
        self._table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        with self._table.transaction() as transaction:
            if removed:
                with transaction.update_snapshot(said).overwrite() as snapshot:
                    for file in removed:
                        snapshot.delete_data_file(file)
            if added:
                transaction.add_files(added, said, check_duplicate_files=False)
            elif not removed:
                with transaction.update_snapshot(said).fast_append():
                    pass
            # A table of the first format has no numbers, and a transaction with a change of both
            # kinds is two snapshots.
            last = int(getattr(self._table.metadata, "last_sequence_number", 0))
            reached = last + (2 if removed and added else 1)
            transaction.set_properties({**_properties(held), **properties, _SEQUENCE: str(reached)})

    def _files(self, store: str, to: int) -> list[DataFile]:
        """The files that may have rows of a store from an offset on."""
        return [task.file for task in self._table.scan(self._behind(store, to)).plan_files()]

    def _behind(self, store: str, start: int) -> And:
        # Its annotations are those of another class.
        return And(
            EqualTo("store", store),  # type: ignore[call-arg, arg-type]
            GreaterThanOrEqual(self._place, start),  # type: ignore[call-arg, arg-type]
        )

    @property
    def _place(self) -> str:
        return place_column([each.name for each in self._table.schema().fields])

    def places(self, store: str, start: int, end: int) -> pa.Array:
        below = LessThan(self._place, end)  # type: ignore[call-arg, arg-type]
        found = self._table.scan(And(self._behind(store, start), below), (self._place,))
        return found.to_arrow().column(self._place).combine_chunks()

    def close(self) -> None:
        pass


def _same(location: str, shape: Shape) -> bool:
    """Whether a table's files are where it is looked for."""
    if shape.url:  # Hadoop's names for S3 are others
        return re.sub("^s3[an]:", "s3:", location.rstrip("/")) == shape.url
    return local(location).resolve() == shape.root.resolve()


def _of_spec(table: Iceberg, by: By) -> Iterator[str]:
    """The fields of a table's partition spec that a file has several values of: it is of a store
    and a day, and maybe of a topic.
    """
    texts, days = (
        (IdentityTransform, TruncateTransform),
        (DayTransform, MonthTransform, YearTransform),
    )
    kept: dict[str, tuple[type, ...]] = {STORE: texts, **dict.fromkeys(_TIMES, days)}
    if by is By.TOPIC:
        kept["topic"] = texts
    for each in table.spec().fields:
        name = table.schema().find_column_name(each.source_id) or ""
        if not isinstance(each.transform, (VoidTransform, *kept.get(name, ()))):
            yield f"partition field {each.name} is {each.transform} of {name}"


def _of_columns(table: Iceberg, schema: pa.Schema) -> Iterator[str]:
    """The columns that files do not have so, or not in each row."""
    ours = pyarrow_to_schema(schema, name_mapping=table.schema().name_mapping)
    for each in table.schema().fields:
        if each.required:
            yield f"column {each.name} is NOT NULL"
        mine = ours.find_type(each.name)
        try:
            if mine != each.field_type:
                promote(mine, each.field_type)
        except ResolveError:
            yield f"column {each.name} is {each.field_type}, not {mine}"


def _location(shape: Shape) -> str:
    """Where a table's files are, as Iceberg says it."""
    return shape.url or f"{_SCHEME}{shape.root}"


def _properties(moved: Mapping[Source, TablePosition]) -> dict[str, str]:
    """What says how far the table is: a property each, so that jobs do not meet in one."""
    return {
        f"{_HELD}.{selection}.{store}": json.dumps(held.to_json(), sort_keys=True)
        for (selection, store), held in moved.items()
    }


def _found(place: IcebergPlace, shape: Shape, schema: pa.Schema | None) -> Iceberg:
    """The table, made if it is not there.  Another job may make it at the same time, or what the
    catalog itself needs: who is second finds it.

    @raise TableRefused: If it is not there, and not to be made.
    """
    left = _TRIES
    while True:
        left -= 1
        try:
            catalog = catalog_of(place, shape)
            try:
                return catalog.load_table(place.table)
            except NoSuchTableError:
                if schema is None:
                    wanted = f"the catalog has no table {place.table}"
                    raise TableRefused(shape.place, wanted) from None
                return _made(catalog, place, shape, schema)
        except (RmqhaError, OSError):
            raise
        except Exception:  # of the catalog's database or service: there are many kinds
            if not left:
                raise


def _made(catalog: Catalog, place: IcebergPlace, shape: Shape, schema: pa.Schema) -> Iceberg:
    """A new table, with a partition a day, and a topic if folders are by topic."""
    catalog.create_namespace_if_not_exists(place.table.rpartition(".")[0])
    time = next((each for each in _TIMES if each in schema.names), "")
    with (
        catalog.create_table_transaction(
            place.table, schema, location=_location(shape), properties=_PROPERTIES
        ) as made,
        made.update_spec() as spec,
    ):
        if time:
            spec.add_field(time, DayTransform(), DATE)
        if shape.by is By.TOPIC and "topic" in schema.names:
            spec.add_field("topic", IdentityTransform(), "topic")
    return catalog.load_table(place.table)
