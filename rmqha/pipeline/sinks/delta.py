"""
A Delta table, committed to by C{deltalake}: no Java, no package of Spark's.

How far the table is lies in Delta's own application transactions, which a commit sets
together with its files: for each selection and store one with the end as its version, and
beside it where that begins and the record below the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import pyarrow as pa
from attrs import define
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.log.positions import Position
from rmqha.pipeline.sinks.parquet import Shape
from rmqha.pipeline.sinks.position import TablePosition
from rmqha.pipeline.sinks.rewrite import place_column
from rmqha.pipeline.sinks.table import (
    LakeTable,
    Source,
    Taken,
    fitting,
    folder_columns,
    require_same,
)
from rmqha.pipeline.sinks.written import WrittenFile

LOG = "_delta_log"

_SOURCES = "rmqha.sources"
"""Property of the table with the selections and stores there are: transactions can be
asked for only by name."""

_REWINDS = "rmqha/rewinds"
"""Application whose version is how often rows were taken off."""

_SUM_BYTES = 8


def application(selection: str, store: str) -> str:
    """
    The application id of what comes from a store; its version is the end.
    """
    return f"rmqha/{selection}/{store}"


@define
class DeltaSink(LakeTable):
    """
    A Delta table that rows are appended to and taken off.
    """

    shape: Shape
    _table: DeltaTable

    @classmethod
    def open(cls, shape: Shape, schema: pa.Schema | None = None) -> Self:
        """
        Open a table, or make it.

        @param schema: Of files that are to come; without it the table has to be there.
        @raise TableRefused: If it has other columns, or is none.
        """
        root = str(shape.root)
        if schema is None or (shape.root / LOG).is_dir():
            if not DeltaTable.is_deltatable(root):
                raise TableRefused(root, "it is not a Delta table")
            table = DeltaTable(root)
            if schema is not None:
                wanted = fitting(schema, shape.by)
                require_same(root, wanted.names, [each.name for each in table.schema().fields])
                require_same(root, folder_columns(shape.by), table.metadata().partition_columns)
            return cls(shape, table)
        if next(Path(root).glob("*.parquet"), None) or (shape.root / "_rmqha" / "commits").exists():
            raise TableRefused(root, "it has files, but is not a Delta table")
        made = DeltaTable.create(
            root,
            Schema.from_arrow(fitting(schema, shape.by)),
            mode="ignore",
            partition_by=folder_columns(shape.by),
        )
        return cls(shape, made)

    @property
    def generation(self) -> int:
        return self._version(_REWINDS) or 0

    def sources(self) -> dict[Source, TablePosition]:
        found = {}
        for selection, store in self._known():
            name = application(selection, store)
            end = self._version(name)
            if end is not None:
                last, total = self._version(f"{name}/last"), self._version(f"{name}/sum")
                position = (
                    Position(end)
                    if last is None or last < 0
                    else Position(end, last, _text(total or 0))
                )
                found[selection, store] = TablePosition(
                    self._version(f"{name}/first") or 0, position
                )
        return found

    def commit(self, files: Iterable[WrittenFile], moved: Mapping[Source, TablePosition]) -> None:
        before = {source: held for source, held in self.sources().items() if source in moved}
        self._table.update_incremental()
        now = {source: held for source, held in self.sources().items() if source in moved}
        if before != now:
            raise TableRefused(str(self.shape.root), "another job has added the same rows")
        self._declare(moved)
        try:
            self._table.create_write_transaction(
                [_added(each) for each in files],
                "append",
                self._table.schema(),
                folder_columns(self.shape.by),
                commit_properties=CommitProperties(app_transactions=_transactions(moved)),
            )
        except CommitFailedError as error:
            raise TableRefused(str(self.shape.root), str(error)) from error
        self._table.update_incremental()

    def take_off(self, store: str, to: int) -> Taken:
        moved = self._cut_back(store, to)
        names = [each.name for each in self._table.schema().fields]
        place = place_column(names)
        told = self._table.delete(
            f'store = {_quoted(store)} AND "{place}" >= {to}',
            commit_properties=CommitProperties(
                app_transactions=[
                    *_transactions(moved),
                    Transaction(_REWINDS, self.generation + 1, _now()),
                ]
            ),
        )
        self._table.update_incremental()
        return Taken(int(told.get("num_deleted_rows") or 0), {store: to})

    def close(self) -> None:
        pass

    # --- transactions -------------------------------------------------------

    def _version(self, name: str) -> int | None:
        return self._table.transaction_version(name)

    def _known(self) -> list[Source]:
        text = self._table.metadata().configuration.get(_SOURCES) or "[]"
        return [(selection, store) for selection, store in json.loads(text)]

    def _declare(self, moved: Mapping[Source, TablePosition]) -> None:
        """
        Name sources that are new, before anything comes from them.
        """
        known = self._known()
        all_of_them = sorted({*known, *moved})
        if len(all_of_them) > len(known):
            self._table.alter.set_table_properties(
                {_SOURCES: json.dumps(all_of_them)}, raise_if_not_exists=False
            )
            self._table.update_incremental()


def _now() -> int:
    return round(time.time() * 1000)


def _text(total: int) -> str:
    return total.to_bytes(_SUM_BYTES, "big", signed=True).hex()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _transactions(moved: Mapping[Source, TablePosition]) -> list[Transaction]:
    """
    What says how far the table is.
    """
    found = []
    now = _now()
    for (selection, store), held in moved.items():
        name = application(selection, store)
        total = int.from_bytes(bytes.fromhex(held.position.sum), "big", signed=True)
        values = {
            name: held.end,
            f"{name}/first": held.first,
            f"{name}/last": held.position.last,
            f"{name}/sum": total,
        }
        found += [Transaction(key, value, now) for key, value in values.items()]
    return found


def _added(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.bytes,
        partition_values=file.values,
        modification_time=_now(),
        data_change=True,
        stats=json.dumps(file.stats),
    )
