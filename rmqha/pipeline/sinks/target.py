"""Where rows are to go, as a caller says it, and how a table goes on."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from enum import StrEnum
from os import PathLike, fspath
from pathlib import Path
from typing import Self

import pyarrow as pa
from attrs import evolve, field, frozen

from rmqha.errors import ExtraMissing, RmqhaError
from rmqha.pipeline.errors import NotNext, TableRefused
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.sinks.columns import TableColumns
from rmqha.pipeline.sinks.encoding import Encoding
from rmqha.pipeline.sinks.folder import FolderTable
from rmqha.pipeline.sinks.parquet import OURS, Shape, WriteRanges
from rmqha.pipeline.sinks.position import TablePosition, advanced, selection_of
from rmqha.pipeline.sinks.table import IcebergPlace, LakeTable, local
from rmqha.pipeline.sinks.table_layout import By, encoded
from rmqha.pipeline.sinks.written import Written, WrittenFile, files_of, range_of
from rmqha.tier.joined_log import find_log
from rmqha.tier.objects import shown_url, told_if_slow, unreachable, words_of

_S3, _HDFS = "s3://", "hdfs://"


class Format(StrEnum):
    """The formats of tables."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


_QUOTED = "%[0-9A-Fa-f]{2}"
_ODD = {
    Format.DELTA: rf"[\x00-\x1f\x7f\[\\\]^|]|{_QUOTED}",
    Format.ICEBERG: rf"[\x00-\x1f#?]|{_QUOTED}",
}
"""What the formats' libraries take for something else in a path."""

_ODD_URL = {Format.ICEBERG: _QUOTED}
"""The same in a URL: pyarrow, which writes the files, decodes it, and pyiceberg does not."""


@frozen(kw_only=True)
class Target:
    """A table that is written to.

    @ivar root: Its folder; where it is in an object store, one of each host for what is not
        finished.
    @ivar url: Where it is in an object store, C{""} if it is on a file system.
    @ivar format: What kind it is.
    @ivar by: What there is a folder for.
    @ivar encoding: How files are written.
    @ivar iceberg: Where it is listed, if it is an Iceberg table.
    """

    root: Path
    url: str = ""
    format: Format = Format.PARQUET
    by: By = By.DATE
    encoding: Encoding = field(factory=Encoding)
    iceberg: IcebergPlace = field(factory=IcebergPlace)

    @classmethod
    def at(cls, out: str | PathLike[str], **more: object) -> Self:
        """A table in a folder.

        @param out: The folder, which tasks see under the same path, or a URL of S3 or HDFS.
        @raise TableRefused: If it is elsewhere.
        """
        url = object_url(out)
        root = scratch_root(url) if url else local(out)
        return cls(root=root, url=url, **more)  # type: ignore[arg-type]

    @property
    def shape(self) -> Shape:
        """What tasks have to know of it."""
        return Shape(
            root=self.root,
            url=self.url,
            by=self.by,
            encoding=self.encoding,
            whole=self.format is Format.ICEBERG,
        )

    def open(self, schema: pa.Schema | None = None) -> LakeTable:
        """Open it, or make it.

        @param schema: Of files that are to come; without it the table has to be there.
        @raise TableRefused: If it is something else.
        @raise ExtraMissing: If what knows its format is not installed.
        @raise TierUnreachable: If an object store does not give it.
        """
        odd = _ODD_URL if self.url else _ODD
        found = re.search(odd.get(self.format, "$^"), self.shape.place)
        if found is not None:
            raise TableRefused(
                self.shape.place,
                f"the library of the format takes {found[0]!r} for something else than a part of a "
                "folder's name: give the folder another one",
            )
        if self.url and self.by is not By.DATE:
            raise TableRefused(
                self.url,
                "tasks gather folders by topic through files that all of them see: write it to a "
                "file system, or with folders by day",
            )
        if self.format is Format.ICEBERG and self.url.startswith(_HDFS):
            raise TableRefused(
                self.url,
                "pyiceberg needs a library of Hadoop's to go there: write a Delta table, or "
                "Parquet files",
            )
        if self.format is Format.PARQUET:
            return FolderTable.open(self.shape, schema)
        if self.by is By.TABLE:
            raise TableRefused(
                self.shape.place, "a table for each topic is only possible with Parquet files"
            )
        try:
            with told_if_slow(self.shape.place):
                if self.format is Format.DELTA:
                    from rmqha.pipeline.sinks.delta import DeltaSink

                    return DeltaSink.open(self.shape, schema)
                from rmqha.pipeline.sinks.iceberg import IcebergSink

                return IcebergSink.open(self.shape, self.iceberg, schema)
        except OSError as error:
            if self.url:
                raise unreachable(self.url, error) from error
            raise
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("rmqha"):
                raise
            name = self.format.value
            raise ExtraMissing(f"a {name} table", name, error.name or "") from error
        except RmqhaError:
            raise
        except Exception as error:  # of a catalog, a database, a format's library
            raise TableRefused(self.shape.place, words_of(error)) from error


def object_url(out: str | PathLike[str]) -> str:
    """The URL of a place in S3 or in HDFS, C{""} if it is none.

    @raise TableRefused: If it has options, which only one of the libraries that go there knows, or
        what they would cut off.
    """
    text = fspath(out).rstrip("/")
    if not text.startswith((_S3, _HDFS)):
        return ""
    if "?" in text or "@" in text:
        raise TableRefused(
            shown_url(text),
            "keys, accounts and options are given in the environment, as AWS_... or HADOOP_...",
        )
    if "#" in text:
        raise TableRefused(text, "a # in a URL would cut off what is behind it: say %23")
    return text


def scratch_root(url: str) -> Path:
    """Where a host has what is not finished of a table in an object store."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"rmqha-{os.getuid()}", digest)


def found_at(out: str | PathLike[str], iceberg: IcebergPlace | None = None) -> LakeTable:
    """Open a table that is there, whatever its kind.

    @param iceberg: Where it is listed, if that is not beside its files.
    @raise TableRefused: If there is none of ours.
    """
    target = Target.at(out)
    folder = target.shape.folder
    if folder.has("_delta_log"):
        return evolve(target, format=Format.DELTA).open()
    if iceberg is not None or folder.has(f"{OURS}/catalog.db"):
        place = iceberg or IcebergPlace()
        return evolve(target, format=Format.ICEBERG, iceberg=place).open()
    return target.open()


class Appending:
    """A table that batches of ranges are added to, each once.

    It travels to where a batch is committed, and opens the table there.
    """

    def __init__(self, target: Target, options: ReadOptions) -> None:
        """@param options: What is read, and how."""
        self.target = target
        self.options = options
        self._table: LakeTable | None = None
        self._before: Mapping[str, TablePosition] = {}
        self._proven = False

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_table": None}

    @property
    def selection(self) -> str:
        """What the table calls the records that are chosen."""
        return selection_of(self.options)

    @property
    def table(self) -> LakeTable:
        """The table, opened when it is first asked for."""
        if self._table is None:
            schema = TableColumns.of(self.options).schema(self.target.by, self.target.shape.whole)
            self._table = self.target.open(schema)
            if not self._proven:
                self._table.require_rows(self.selection)
                self._proven = True
            self._table.sweep(self.selection, self.options.names)
        return self._table

    @property
    def held(self) -> Mapping[str, TablePosition]:
        """How far the table is, by store."""
        return self.table.held(self.selection)

    def work(self) -> WriteRanges:
        """What tasks have to do with the ranges of the next batch."""
        return WriteRanges(
            options=self.options,
            shape=self.table.shape,
            floors={store: held.position for store, held in self.held.items()},
            generation=self.table.generation,
        )

    def commit(
        self, written: Iterable[Written], gathered: Iterable[WrittenFile] = ()
    ) -> dict[str, TablePosition]:
        """Add what tasks wrote.

        @param gathered: Files of what they laid aside.
        @return: How far the table is now, by store, as far as it moved.
        @raise NotNext: If rows between are missing, or the table was made anew since the last.
        """
        written, held = list(written), self.held
        for store in self._before.keys() - held.keys():
            first, end = self._before[store].first, self._before[store].end
            raise NotNext(store, first, first, end)
        moved = advanced(held, written, self._lost)
        if moved:
            files = [*files_of(written), *gathered]
            last = self._last_rows(files)
            sources = {
                (self.selection, store): evolve(held, row=last.get(encoded(store), held.row))
                for store, held in moved.items()
            }
            self.table.commit(files, sources)
        self._before = {**held, **moved}
        return moved

    def _last_rows(self, files: Iterable[WrittenFile]) -> dict[str, int]:
        """Physical offset of the last row that files have of each store, by its name in theirs."""
        place, last = TableColumns.of(self.options).place, dict[str, int]()
        for each in files:
            name, _, _ = range_of(each.path) or ("", 0, 0)
            last[name] = max(last.get(name, -1), each.stats["maxValues"][place])
        return last

    def _lost(self, store: str, start: int, end: int) -> bool:
        """Whether a part of a log is gone, and may be passed over."""
        path = dict(self.options.now([store]).stores).get(store)
        if self.options.fail_on_data_loss or path is None:
            return False
        return find_log(path, self.options.tier_of(store)).missing(start, end) == [(start, end)]

    def rest(self) -> None:
        """Let others have a table that only one may have open, until the next batch."""
        if self.target.format is Format.PARQUET:
            self.close()

    def close(self) -> None:
        """Let others have the table."""
        if self._table is not None:
            self._table.close()
            self._table = None
