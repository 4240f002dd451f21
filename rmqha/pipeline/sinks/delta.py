"""A Delta table, committed to by C{deltalake}: no Java, no package of Spark's.

How far the table is stands in what each commit says of itself, beside its files.  A C{RESTORE}
takes the table back to a version, so the last commit of ours counts from which that left the
rows.  A table's history is cleaned some day; then Delta's own application transactions tell,
which a commit sets too: for each selection and store one with the end as its version, and
beside it where that begins, the record below the end and the last row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field
from deltalake.transaction import AddAction

from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.log.positions import Position
from rmqha.pipeline.sinks.columns import STORE
from rmqha.pipeline.sinks.commits import COMMITS
from rmqha.pipeline.sinks.parquet import Shape
from rmqha.pipeline.sinks.position import Source, TablePosition, as_json, of_json
from rmqha.pipeline.sinks.rewrite import place_column
from rmqha.pipeline.sinks.table import (
    LakeTable,
    Taken,
    fitting,
    folder_columns,
    refused_for,
    require_same,
)
from rmqha.pipeline.sinks.written import WrittenFile

LOG = "_delta_log"

_SOURCES = "rmqha.sources"
"""Property of the table with the selections and stores there are: transactions can be
asked for only by name."""

_REWINDS = "rmqha/rewinds"
"""Application whose version is how often rows were taken off."""

_HELD = "rmqha.held"
"""What a commit calls how far the table is with it."""

_MOVED, _SEEN = "rmqha.moved", "rmqha.seen"
"""What it calls the sources that it moved, and the version of the table that it goes on from."""

_ANYWHERE = TablePosition(0, Position(1 << 62))
"""The position of a source of which only the name is known."""

_SUM_BYTES = 8

_APPEND_ONLY = "delta.appendOnly"
_MAPPING = "delta.columnMapping.mode"
_PHYSICAL = "delta.columnMapping.physicalName"

_ASKED = ("delta.constraints.", "delta.invariants", "delta.generationExpression", "delta.identity.")
"""How properties of a table and its columns begin whose writers have to check or compute something.
C{deltalake} takes whole files unseen."""

_FEATURES = {
    *("appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"),
    *("timestampNtz", "variantType", "variantType-preview"),
}
"""Those of a protocol that C{deltalake} reads and adds files under, where no L{_ASKED} is there."""

_IDENTITY = 6
"""Version of a writer that has to know identity columns, which C{deltalake} does not."""


def application(selection: str, store: str) -> str:
    """The application id of what comes from a store; its version is the end."""
    return f"rmqha/{selection}/{store}"


@define
class DeltaSink(LakeTable):
    """A Delta table that rows are appended to and taken off."""

    shape: Shape
    _table: DeltaTable

    @classmethod
    def open(cls, shape: Shape, schema: pa.Schema | None = None) -> Self:
        """Open a table, or make it.

        @param schema: Of files that are to come; without it the table has to be there.
        @raise TableRefused: If it has other columns, or is none.
        """
        root = shape.place
        there = DeltaTable.is_deltatable(root)
        if schema is None or there or (shape.root / LOG).is_dir():
            if not there:
                maybe = f"; if another job makes it now, wait until it has: {LOG} has no commit yet"
                more = "" if schema is None else maybe
                raise TableRefused(root, f"it is not a Delta table{more}")
            table = DeltaTable(root)
            if schema is not None:
                wanted = fitting(schema, shape.by)
                require_same(root, wanted.names, [each.name for each in table.schema().fields])
                require_same(root, folder_columns(shape.by), table.metadata().partition_columns)
                if asked := [*_asked(table), *_of_columns(table, Schema.from_arrow(wanted))]:
                    raise refused_for(root, asked)
            return cls(shape, table)
        if _has_files(shape):
            raise TableRefused(root, "it has files, but is not a Delta table")
        made = DeltaTable.create(
            root,
            Schema.from_arrow(fitting(schema, shape.by)),
            mode="ignore",
            partition_by=folder_columns(shape.by),
            commit_properties=_said_of({}, {}, -1),
        )
        return cls(shape, made)

    @property
    def generation(self) -> int:
        return self._version(_REWINDS) or 0

    def sources(self) -> dict[Source, TablePosition]:
        told, restored = self._told()
        if told is not None:
            return told
        found = self._transactions()
        if found and restored:
            stores = (store for _, store in found)
            raise self._forgot(stores, "it was restored to an earlier version")
        lost = [store for selection, store in self._known() if (selection, store) not in found]
        if lost:
            raise self._forgot(lost, "its application transactions have expired")
        return found

    def _said(self) -> dict[Source, TablePosition]:
        known = dict.fromkeys(self._known(), _ANYWHERE)
        return {**known, **self._transactions(), **(self._told()[0] or {})}

    def commit(self, files: Iterable[WrittenFile], moved: Mapping[Source, TablePosition]) -> None:
        files = list(files)

        def commit(held: Mapping[Source, TablePosition]) -> None:
            self._declare(held, moved)
            self._append(files, _said_of(held, moved, self._table.version()))

        self._committed(moved, self._table.update_incremental, commit, CommitFailedError)

    def take_off(self, store: str, to: int) -> Taken:
        moved = self._cut_back(store, to)
        if self._table.metadata().configuration.get(_APPEND_ONLY, "").lower() == "true":
            raise TableRefused(
                self.shape.place, f"its property {_APPEND_ONLY} forbids that rows are taken off"
            )
        rewinds = Transaction(_REWINDS, self.generation + 1, _now())
        # What is known of no store but this one is not said: it would be believed.
        others = {source: held for source, held in self._said().items() if held != _ANYWHERE}
        version = self._table.version()
        said = _said_of({**others, **moved}, moved, version, rewinds)
        names = [each.name for each in self._table.schema().fields]
        rows = f'store = {_quoted(store)} AND "{place_column(names)}" >= {to}'
        try:
            told = self._delete(rows, said)
        except Exception as error:
            self._require_done(error, self._table.update_incremental, moved)
            told = self._table.history(1)[0].get("operationMetrics") or {}
        self._table.update_incremental()
        if self._table.version() == version:  # without rows nothing is committed
            self._append([], said)
        return Taken(int(told.get("num_deleted_rows") or 0), {store: to})

    def _delete(self, rows: str, said: CommitProperties) -> dict[str, Any]:
        return self._table.delete(rows, commit_properties=said)

    def _append(self, files: Iterable[WrittenFile], said: CommitProperties) -> None:
        self._table.create_write_transaction(
            [_added(each) for each in files],
            "append",
            self._table.schema(),
            folder_columns(self.shape.by),
            commit_properties=said,
        )
        self._table.update_incremental()

    def places(self, store: str, start: int, end: int) -> pa.Array:
        place = place_column([each.name for each in self._table.schema().fields])
        column = pc.field(place)
        chosen = (pc.field(STORE) == store) & (column >= start) & (column < end)
        found = self._table.to_pyarrow_table(columns=[place], filters=chosen)
        return found.column(place).combine_chunks()

    def close(self) -> None:
        pass

    # --- what commits say ---------------------------------------------------

    def _told(self) -> tuple[dict[Source, TablePosition] | None, bool]:
        """What the last commit of ours says that is still in force; C{None} if none does.

        @return: It, and whether the table was restored since.
        """
        restored: int | None = None
        found: dict[Source, TablePosition] = {}
        base: dict[Source, TablePosition] | None = None
        seen = -1
        for commit in self._commits():
            version = commit["version"]
            if base is not None and version <= seen:
                break
            if restored is not None and version > restored:
                continue
            if commit.get("operation") == "RESTORE":
                base = None
                restored = self._restored(commit)
                if restored is None:
                    return None, True
            elif _HELD in commit:
                held = of_json(json.loads(commit[_HELD]))
                for selection, store in json.loads(commit[_MOVED]):
                    found.setdefault((selection, store), held[selection, store])
                if base is None:
                    # Of other sources it says what it saw: jobs may commit at the same time.
                    base, seen = held, int(commit[_SEEN])
        return None if base is None else {**base, **found}, restored is not None

    def _commits(self) -> Iterator[dict[str, Any]]:
        """What each commit says of itself, newest first, as far back as the log was not cleaned.

        C{DeltaTable.history} counts versions from that of a table which is not the newest.
        """
        for version, actions in self._log(self._table.version()):
            said: list[Any] = [each["commitInfo"] for each in actions if "commitInfo" in each]
            yield {**(said[0] if said else {}), "version": version}

    def _log(self, newest: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """The actions of each commit, newest first, as far back as the log was not cleaned."""
        for version in range(newest, -1, -1):
            try:
                lines = self.shape.folder.read(f"{LOG}/{version:020d}.json").splitlines()
            except FileNotFoundError:
                return
            yield version, [json.loads(line) for line in lines if line.strip()]

    def _restored(self, commit: Mapping[str, Any]) -> int | None:
        """The version that a C{RESTORE} went back to, C{None} if the log does not have it any more.

        To a moment it goes back by the times that the log's files have, and those of a copied
        table are others: then it is the newest version with the files that the table has since.
        """
        told = str(commit.get("operationParameters", {}).get("version"))
        if told.isdigit():
            return int(told)
        version = commit["version"]
        more: set[object] = set()
        fewer: set[object] = set()
        # Files that an older version has and the restored one has not, and the other way round.
        for number, actions in self._log(version):
            if number < version and not more and not fewer:
                return number
            for action in actions:
                if "add" in action:
                    _undo(_file_of(action["add"]), more, fewer)
            for action in actions:
                if "remove" in action:
                    _undo(_file_of(action["remove"]), fewer, more)
        return None

    # --- transactions -------------------------------------------------------

    def _version(self, name: str) -> int | None:
        return self._table.transaction_version(name)

    def _transactions(self) -> dict[Source, TablePosition]:
        found = {}
        for selection, store in self._known():
            name = application(selection, store)
            end = self._version(name)
            if end is not None:
                last, total = self._version(f"{name}/last"), self._version(f"{name}/sum")
                row = self._version(f"{name}/row")
                position = (
                    Position(end)
                    if last is None or last < 0
                    else Position(end, last, _text(total or 0))
                )
                found[selection, store] = TablePosition(
                    self._version(f"{name}/first") or 0, position, -1 if row is None else row
                )
        return found

    def _known(self) -> list[Source]:
        text = self._table.metadata().configuration.get(_SOURCES) or "[]"
        return [(selection, store) for selection, store in json.loads(text)]

    def _declare(self, held: Mapping[Source, TablePosition], moved: Iterable[Source]) -> None:
        """Name sources that are new, before anything comes from them."""
        known = self._known()
        all_of_them = sorted({*known, *moved})
        if len(all_of_them) > len(known):
            now = {source: each for source, each in held.items() if source not in set(moved)}
            self._table.alter.set_table_properties(
                {_SOURCES: json.dumps(all_of_them)},
                raise_if_not_exists=False,
                commit_properties=_said_of(now, {}, self._table.version()),
            )
            self._table.update_incremental()


def _asked(table: DeltaTable) -> Iterator[str]:
    """What a table asks of its writers that nothing here sees to."""
    for name in table.metadata().configuration:
        if name.startswith(_ASKED):
            yield name
    if table.metadata().configuration.get(_MAPPING) == "id":
        yield f"{_MAPPING}=id"
    protocol = table.protocol()
    for name in protocol.writer_features or ():
        if name not in _FEATURES:
            yield f"the feature {name}"
    if protocol.min_writer_version == _IDENTITY:
        yield f"version {_IDENTITY} of its protocol"


def _of_columns(table: DeltaTable, wanted: Schema) -> Iterator[str]:
    """The same of its columns: files have others, or may have empty ones."""
    ours: dict[str, Field] = {each.name: each for each in wanted.fields}
    for each in table.schema().fields:
        name, mine = each.name, ours[each.name].type
        if not each.nullable:
            yield f"column {name} is NOT NULL"
        if each.type != mine:
            yield f"column {name} is {each.type}, not {mine}"
        for key, value in each.metadata.items():
            if key.startswith(_ASKED):
                yield f"{key} of column {name}"
            elif key == _PHYSICAL and value != name:
                yield f"column {name} is {value} in files"


def _has_files(shape: Shape) -> bool:
    """Whether something lies where a table is to be made."""
    folder = shape.folder
    return folder.has(COMMITS) or any(name.endswith(".parquet") for name in folder.names(""))


def _now() -> int:
    return round(time.time() * 1000)


def _text(total: int) -> str:
    return total.to_bytes(_SUM_BYTES, "big", signed=True).hex()


def _undo(file: object, one: set[object], other: set[object]) -> None:
    """Take a file out of one set; if it is not there, it belongs to the other."""
    if file in one:
        one.remove(file)
    else:
        other.add(file)


def _file_of(action: Mapping[str, Any]) -> tuple[str, str]:
    """What makes a file of a version: its path, and which of its rows are deleted."""
    deleted = action.get("deletionVector") or {}
    return action["path"], f"{deleted.get('pathOrInlineDv')}@{deleted.get('offset')}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _said_of(
    held: Mapping[Source, TablePosition],
    moved: Mapping[Source, TablePosition],
    seen: int,
    *more: Transaction,
) -> CommitProperties:
    """What a commit says of how far the table is.

    @param held: All of it.
    @param moved: What is new of it.
    @param seen: The version of the table that the rest was seen in.
    """
    transactions = [*more]
    for (selection, store), each in moved.items():
        name = application(selection, store)
        total = int.from_bytes(bytes.fromhex(each.position.sum), "big", signed=True)
        values = {
            name: each.end,
            f"{name}/first": each.first,
            f"{name}/last": each.position.last,
            f"{name}/row": each.row,
            f"{name}/sum": total,
        }
        transactions += [Transaction(key, value, _now()) for key, value in values.items()]
    said = {_HELD: json.dumps(as_json(held)), _MOVED: json.dumps(sorted(moved)), _SEEN: str(seen)}
    return CommitProperties(custom_metadata=said, app_transactions=transactions)


def _added(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.bytes,
        partition_values=file.values,
        modification_time=_now(),
        data_change=True,
        # As UTF-8: delta-rs joins the halves of an escaped character beyond U+FFFF wrongly.
        stats=json.dumps(file.stats, ensure_ascii=False),
    )
