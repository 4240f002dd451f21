"""What every kind of table can do: say how far it is, take a batch, give rows back."""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from rmqha.errors import RmqhaError
from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.sinks.parquet import Shape, scratch
from rmqha.pipeline.sinks.position import Source, TablePosition
from rmqha.pipeline.sinks.table_layout import DATE, By
from rmqha.pipeline.sinks.written import WrittenFile
from rmqha.tier.objects import told_if_slow, unreachable, words_of

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_FILE = "file:"

_TRIES = 5
"""How often a commit is tried that others are faster than."""


@frozen
class IcebergPlace:
    """Where an Iceberg table is listed.

    @ivar catalog: The catalog's name in pyiceberg's configuration, C{None} for one of our
        own beside the files.
    @ivar properties: The catalog's properties, besides those.
    @ivar table: The table's name with its namespace.
    """

    catalog: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    table: str = "rmqha.messages"


def local(out: str | PathLike[str]) -> Path:
    """A folder of a file system, as a path or as Spark's C{file:} name.

    @raise TableRefused: If it is elsewhere.
    """
    text = fspath(out)
    if text.lower().startswith(_FILE):
        text = re.sub("^/{2,}", "/", text[len(_FILE) :])
    elif _SCHEME.match(text):
        raise TableRefused(
            text, "it is neither on a mounted file system nor an s3:// or hdfs:// URL"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TableRefused(ascii(text), "the name of its folder is not UTF-8") from error
    return Path(text).expanduser().absolute()


@frozen
class Taken:
    """What was taken off a table.

    @ivar rows: How many rows.
    @ivar to: Where each of its sources ends now, physical offsets by store.
    """

    rows: int
    to: Mapping[str, int]


class LakeTable(ABC):
    """A table that is open.

    @ivar shape: How its files lie.
    @ivar generation: How often rows were taken off it.
    """

    shape: Shape

    @property
    @abstractmethod
    def generation(self) -> int: ...

    @abstractmethod
    def sources(self) -> dict[Source, TablePosition]:
        """The position of each source, a selection and a store, that the table has rows of.

        @raise TableRefused: If the table does not say any more how far it is.
        """

    @abstractmethod
    def commit(self, files: Iterable[WrittenFile], moved: Mapping[Source, TablePosition]) -> None:
        """Add files and say how far the table is, both or none.

        @raise TableRefused: If another job has done so since L{sources}.
        """

    @abstractmethod
    def take_off(self, store: str, to: int) -> Taken:
        """Remove the rows of a store from a physical offset on, and go back there."""

    @abstractmethod
    def places(self, store: str, start: int, end: int) -> pa.Array:
        """Physical offsets of the rows of a store, from one offset up to another, in any order:
        what the table's files have, whatever its commits say.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what an open table holds: a lock, or its catalog."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what they share ----------------------------------------------------

    def held(self, selection: str) -> dict[str, TablePosition]:
        """What it holds of a selection, by stores."""
        return {store: held for (name, store), held in self.sources().items() if name == selection}

    def require_rows(self, selection: str) -> None:
        """Refuse a table that has not the last row which it says was added: it goes on behind that.

        @raise TableRefused: If somebody else took rows off.
        """
        for store, held in self.held(selection).items():
            if held.row < 0 or len(self.places(store, held.row, held.row + 1)):
                continue
            left = pc.max(self.places(store, held.first, held.row)).as_py()
            rewind = f"rmqha spark rewind --table {self.shape.place} --store {store} --to"
            raise TableRefused(
                self.shape.place,
                f"rows were taken off: its files do not have the row of byte {held.row} of store "
                f"{store}, which was added last; have what is missing at the end added again with "
                f"{rewind} {held.first if left is None else left}, or, if it went on purpose, go "
                f"on behind it with {rewind} {held.end}",
            )

    def sweep(self, selection: str, stores: Iterable[str]) -> None:
        """Remove files that a job left unfinished."""
        for store in stores:
            shutil.rmtree(scratch(self.shape.root, store, selection), ignore_errors=True)

    def _committed(
        self,
        moved: Mapping[Source, TablePosition],
        refresh: Callable[[], object],
        commit: Callable[[Mapping[Source, TablePosition]], object],
        conflict: type[Exception],
    ) -> None:
        """Commit beside other jobs: again, if one was faster that moved other sources.  An answer
        may be lost: after an error a commit is done where the table says that it is so far.

        @param moved: The sources that move.
        @param refresh: Looks at the table as it is now.
        @param commit: Is given how far the table is then.
        @param conflict: What it raises if another one was faster.
        @raise TableRefused: If that one moved the same sources, or others are faster all the time,
            or if neither the commit nor a look at the table is answered.
        @raise TierUnreachable: If an object store does not take it.
        """
        before = self.sources()
        for tries in range(_TRIES, 0, -1):
            refresh()
            now = self.sources()
            if any(before.get(source) != now.get(source) for source in moved):
                raise TableRefused(self.shape.place, "another job has added the same rows")
            try:
                with told_if_slow(self.shape.place):
                    commit({**now, **moved})
                return
            except conflict as error:
                if tries == 1:
                    raise TableRefused(self.shape.place, str(error)) from error
            except Exception as error:
                self._require_done(error, refresh, moved)
                return

    def _require_done(
        self, error: Exception, refresh: Callable[[], object], moved: Mapping[Source, TablePosition]
    ) -> None:
        """Look whether a commit that failed is in the table: its answer may be lost.

        @param error: How it failed; raised if the table has it not.
        @raise TableRefused: If the table cannot be read either.
        @raise TierUnreachable: If an object store did not take it.
        """
        try:
            refresh()
            now = self.sources()
        except Exception as unseen:
            raise TableRefused(
                self.shape.place,
                f"whether it was changed is not known: {words_of(error)}; nor can the table be "
                f"read: {words_of(unseen)}. The next run goes on from what it holds, and rmqha "
                f"spark check STORE --table {self.shape.place} says what that is",
            ) from error
        if any(now.get(source) != held for source, held in moved.items()):
            if isinstance(error, OSError) and self.shape.url:
                raise unreachable(self.shape.url, error) from error
            if isinstance(error, OSError | RmqhaError):
                raise error
            raise TableRefused(self.shape.place, words_of(error)) from error

    def _said(self) -> dict[Source, TablePosition]:
        """The sources, and how far the table once was where it is not known how far it is."""
        return self.sources()

    def _forgot(self, stores: Iterable[str], why: str) -> TableRefused:
        """The error of a table that does not say any more how far it is."""
        name, root = " ".join(sorted(set(stores))), self.shape.place
        return TableRefused(
            root,
            f"{why}, and it does not say how far it is now; find the end of its last row (offset "
            f"plus size) and say so: rmqha spark rewind --table {root} --store {name} --to OFFSET",
        )

    def _cut_back(self, store: str, to: int) -> dict[Source, TablePosition]:
        """The sources of a store after a cut.

        @raise TableRefused: If the table holds nothing of the store.
        """
        every = self._said()
        found = {source: held for source, held in every.items() if source[1] == store}
        if not found:
            known = ", ".join(sorted({name for _, name in every})) or "nothing"
            raise TableRefused(
                self.shape.place, f"it has no rows of store {store}, only of {known}"
            )
        return {source: held.cut(to) for source, held in found.items()}


def folder_columns(by: By) -> list[str]:
    """The columns that folders stand for."""
    return ["topic", DATE] if by is By.TOPIC else [DATE]


def require_same(table: str, wanted: Iterable[str], found: Iterable[str]) -> None:
    """@raise TableRefused: If a table has other columns."""
    wanted, found = list(wanted), list(found)
    if sorted(wanted) != sorted(found):
        raise TableRefused(
            table, f"its columns are {', '.join(found)}, but the rows have {', '.join(wanted)}"
        )


def refused_for(table: str, asked: Iterable[str]) -> TableRefused:
    """The error of a table of which others ask what its new files would not keep."""
    return TableRefused(
        table,
        f"rows are added to it as whole files, which do not keep what it asks: {'; '.join(asked)}; "
        "take that back, or write to another table",
    )


def fitting(schema: pa.Schema, by: By) -> pa.Schema:
    """The schema of a table whose files have another one: with the columns of its folders."""
    kinds = {DATE: pa.date32(), "topic": pa.string()}
    folders = folder_columns(by)
    more = [pa.field(name, kinds[name]) for name in folders]
    return pa.schema([*(each for each in schema if each.name not in folders), *more])
