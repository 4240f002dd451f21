"""Write ranges as Parquet files, in the task that reads them: rows never leave Python.

A file is written under a name of its own and then renamed to one that says what is in it:
the store, where its records lie, and a digest of all that decides its content.  So a task that
runs twice makes the same file twice.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, evolve, field, frozen

from rmqha.logfiles.log_files import LogFiles
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.positions import Position, make
from rmqha.pipeline.log.ranges import Range
from rmqha.pipeline.log.reading import Passed
from rmqha.pipeline.sinks.columns import STORE, TableColumns
from rmqha.pipeline.sinks.encoding import Encoding
from rmqha.pipeline.sinks.position import digest_of, selection_of
from rmqha.pipeline.sinks.table_layout import By, Partition, encoded, parts
from rmqha.pipeline.sinks.written import Written, WrittenFile, file_row, to_row
from rmqha.tier.objects import ObjectFolder, put_file

OURS = "_rmqha"
"""Folder below a table's for what is no table; readers pass over what begins so."""

STAGED = f"{OURS}/staged"
"""Where files wait that become part of a table by being moved, in a folder for each batch."""

WAITING = ".part"
"""What their names end with there."""

_CHUNK = 64 << 20
"""Bytes of rows that are sorted and written at once."""

_LONGEST = 128
"""Characters of a text that is worth a place in Delta's log."""

_MS = timedelta(milliseconds=1)


@frozen(kw_only=True)
class Shape:
    """What tasks have to know of a table.

    @ivar root: Its folder; where it is in an object store, one of each host for what is not
        finished.
    @ivar url: Where it is in an object store, C{""} if it is on a file system.
    @ivar by: What there is a folder for.
    @ivar encoding: How files are written.
    @ivar staged: The folder where files of the next batch wait until it is committed, C{""} if
        they do not.
    @ivar whole: Whether a file has the columns too that folders stand for.
    """

    root: Path
    url: str = ""
    by: By = By.DATE
    encoding: Encoding = field(factory=Encoding)
    staged: str = ""
    whole: bool = False

    @property
    def place(self) -> str:
        """Where it is, for libraries and for people."""
        return self.url or str(self.root)

    @property
    def folder(self) -> ObjectFolder:
        return ObjectFolder.at(self.url or self.root.as_uri())

    def bring(self, file: Path, path: str) -> str:
        """Bring a file that is whole where it belongs, or to where it waits.  There it has a name
        of its own: who still writes what another one has written too cannot spoil that.

        @param path: Below the table's folder.
        @return: Where it waits, C{""} if it does not.
        """
        waiting = f"{self.staged}/{uuid.uuid4().hex}{WAITING}" if self.staged else ""
        name = waiting or path
        if self.url:
            put_file(file, self.url, name)
        else:
            final = self.root / name
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, final)
        return waiting


@frozen(kw_only=True)
class WriteRanges:
    """The work of a task: a range becomes files.

    @ivar shape: Where it goes, and how.
    @ivar floors: How far the table is, by store: what is below is left out.
    @ivar generation: How often rows were taken off the table; files of before keep their
        names.
    """

    options: ReadOptions
    shape: Shape
    floors: Mapping[str, Position] = field(factory=dict)
    generation: int = 0

    def __call__(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        trimmed = above(wanted, self.floors.get(wanted.store))
        if trimmed is None:
            yield to_row(Written(wanted.store, wanted.start, Position(wanted.end)))
            return
        columns = TableColumns.of(self.options)
        passed = Passed()
        batches = columns.reader.read(trimmed, passed)
        rows = (chunk.combine_chunks() for chunk in chunks(batches, _CHUNK))
        aside, done = "", list[WrittenFile]()
        if self.shape.by is By.DATE:
            with self.files() as files:
                for chunk in rows:
                    for part in parts(chunk, columns.topic, columns.time, self.shape.by):
                        files.add(wanted.store, part)
                files.close()
            done = files.done
        else:
            aside = lay_aside(self, wanted.store, rows, columns)
        position = position_at_end(
            trimmed, trimmed.files(self.options.tier_of(trimmed.store)), passed.last
        )
        position = evolve(position, log=wanted.log, seen=trimmed.seen)
        yield to_row(Written(wanted.store, wanted.start, position, tuple(done), aside))

    def files(self) -> Files:
        return Files(work=self, columns=TableColumns.of(self.options))

    def name(self, store: str, start: int, end: int) -> str:
        """What a file is called.

        @param start: Where its first record begins, a physical offset.
        @param end: Where its last one ends.
        """
        options = self.options
        content = [
            selection_of(options),
            TableColumns.of(options).kept,
            options.column_style,
            options.mode,
            options.column_name_of_corrupt_record,
            options.decompress and options.max_decompressed_bytes,
            options.message_delay_level,
            repr(self.shape.encoding),
            self.generation,
        ]
        token = digest_of(content)
        return f"{encoded(store)}-{start:020d}-{end:020d}-{token}.parquet"

    def scratch(self, store: str) -> Path:
        """Where this job's files are written before they are renamed."""
        return scratch(self.shape.root, store, selection_of(self.options))


def scratch(root: Path, store: str, selection: str) -> Path:
    """The folder for unfinished files of one store and selection."""
    return root / OURS / "unfinished" / f"{encoded(store)}-{selection}"


def above(wanted: Range, floor: Position | None) -> Range | None:
    """The part of a range that a table does not hold, to be read only if the log is the one
    that the table has the rest of.
    """
    if floor is None:
        return wanted
    if floor.seen >= 0:
        wanted = evolve(wanted, seen=min(wanted.seen, floor.seen))
    if wanted.start > floor.offset:
        return wanted
    if wanted.end <= floor.offset:
        return None
    proofs = ((floor.last, floor.sum), *wanted.proofs) if floor.sum else wanted.proofs
    return evolve(wanted, start=floor.offset, proofs=proofs)


def position_at_end(wanted: Range, files: LogFiles, last: int) -> Position:
    """The position at a range's end.

    @param files: Those of the log, or the range's alone.
    @param last: Where the last whole record of it begins, -1 if there is none.
    """
    for offset, total in wanted.proofs[1:]:  # it was planned with one
        if wanted.start < offset < wanted.end:
            return Position(wanted.end, offset, total)
    try:
        return make(files, wanted.end, last)
    except FileNotFoundError:  # deleted as soon as it was read
        return Position(wanted.end)


@define(kw_only=True)
class _Open:
    """A file that is being written."""

    store: str
    part: Partition
    place: Path
    writer: Any
    told: list[Any]
    topics: dict[str, tuple[int, int]] = field(factory=dict)
    rows: int = 0
    start: int = 1 << 62
    end: int = 0

    def add(self, rows: pa.Table, columns: TableColumns, schema: pa.Schema) -> None:
        starts = rows.column(columns.place)
        # What is damaged has no size.
        sizes = pc.fill_null(rows.column(columns.size), 1).cast(pa.int64())
        self.start = min(self.start, pc.min(starts).as_py())
        self.end = max(self.end, pc.max(pc.add(starts, sizes)).as_py())
        self.rows += rows.num_rows
        for topic, (count, size) in columns.topics(rows).items():
            before = self.topics.get(topic, (0, 0))
            self.topics[topic] = (before[0] + count, before[1] + size)
        store = pa.repeat(self.store, rows.num_rows)
        self.writer.write_table(rows.append_column(STORE, store).select(schema.names).cast(schema))


@define(kw_only=True)
class Files:
    """Files that get their names when they are whole."""

    work: WriteRanges
    columns: TableColumns
    done: list[WrittenFile] = field(factory=list)
    _schema: pa.Schema = field(init=False)
    _open: dict[tuple[str, PurePosixPath], _Open] = field(factory=dict)
    _cleared: ExitStack = field(factory=ExitStack)

    def __attrs_post_init__(self) -> None:
        shape = self.work.shape
        self._schema = self.columns.schema(shape.by, shape.whole)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        with self._cleared:
            for opened in self._open.values():
                opened.writer.close()

    @property
    def bytes(self) -> int:
        """Of the files that are open, on the disk."""
        return sum(opened.place.stat().st_size for opened in self._open.values())

    def add(self, store: str, part: Partition) -> None:
        """Write rows of one folder to a file of it."""
        key = store, part.folder(self.work.shape.by)
        if key not in self._open:
            self._open[key] = self._begin(store, part)
        self._open[key].add(part.rows, self.columns, self._schema)

    def close(self) -> None:
        for opened in self._open.values():
            opened.writer.close()
        self.done += [self._named(folder, each) for (_, folder), each in self._open.items()]
        self._open.clear()

    def _begin(self, store: str, part: Partition) -> _Open:
        place = self.work.scratch(store) / uuid.uuid4().hex
        place.parent.mkdir(parents=True, exist_ok=True)
        self._cleared.callback(place.unlink, missing_ok=True)
        told: list[Any] = []
        style = self.work.options.column_style.value
        writer = self.work.shape.encoding.writer(place, self._schema, told, style)
        return _Open(store=store, part=part, place=place, writer=writer, told=told)

    def _named(self, folder: PurePosixPath, opened: _Open) -> WrittenFile:
        shape = self.work.shape
        path = str(folder / self.work.name(opened.store, opened.start, opened.end))
        size = opened.place.stat().st_size
        waiting = shape.bring(opened.place, path)
        return WrittenFile(
            path=path,
            waiting=waiting,
            values=opened.part.values(shape.by),
            rows=opened.rows,
            bytes=size,
            topics=opened.topics,
            stats=stats_of(opened.told[0]),
            table=opened.part.topic if shape.by is By.TABLE else None,
        )


def stats_of(metadata: Any) -> dict[str, Any]:
    """What Delta's log says of a file: least and greatest values, and how many are missing.

    @param metadata: A C{FileMetaData} of pyarrow.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    missing: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            name, found = column.path_in_schema, column.statistics
            if "." in name:
                continue
            if found is None or not found.has_null_count:
                unknown.add(name)
                continue
            missing[name] = missing.get(name, 0) + found.null_count
            if found.has_min_max and _useful(found.min) and _useful(found.max):
                least[name] = min(least.get(name, found.min), found.min)
                most[name] = max(most.get(name, found.max), found.max)
            elif found.num_values:  # which does not count those that are missing
                unknown.add(name)
    for name in unknown:
        least.pop(name, None)
        most.pop(name, None)
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _shown(value, False) for name, value in least.items()},
        "maxValues": {name: _shown(value, True) for name, value in most.items()},
        "nullCount": missing,
    }


def _useful(value: Any) -> bool:
    return isinstance(value, (int, datetime)) or (isinstance(value, str) and len(value) <= _LONGEST)


def _shown(value: Any, up: bool) -> Any:
    """A value in JSON; times there have milliseconds, and years four digits: C{%Y} does not pad."""
    if not isinstance(value, datetime):
        return value
    if up and value.microsecond % 1000:
        value += _MS
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


# --- rows laid aside, and gathered --------------------------------------------
#
# In layouts by topic rows that belong together are brought together, whatever range they are from.
# A task that reads a range cannot have a file open for each of thousands of topics, nor should it
# write one of a few KiB for each.  So it lays its rows aside in one file, in small runs of one
# folder each; then other tasks take some topics each, and gather their runs into files of a good
# size.  Bodies stay out of the JVM on that way too.

TARGET = 128 << 20
"""Bytes at which a file is closed, and another one begun."""

CHUNK = 32 << 20
"""Bytes of rows that become a row group."""

_BUCKETS = 64
"""Parts that topics are divided into; a task gathers one or more."""

_SPARE = 32 << 20
"""Bytes laid aside that are worth a task."""

_OPEN = 32
"""Files with rows laid aside that a task has open."""

_INDEX = ".json"

Folder = tuple[str, str | None, str | None]
"""Store, topic and day."""


def bucket_of(topic: str | None) -> int:
    """The part that a topic is in."""
    return crc32((topic or "").encode("utf-8", "surrogateescape")) % _BUCKETS


def lay_aside(
    work: WriteRanges, store: str, rows: Iterable[pa.Table], columns: TableColumns
) -> str:
    """Write rows where the job has its unfinished files.

    @return: The path, C{""} if there were none.
    """
    place = work.scratch(store) / f"{uuid.uuid4().hex}.arrow"
    place.parent.mkdir(parents=True, exist_ok=True)
    index: list[tuple[int, str | None, str | None]] = []
    writer: pa.ipc.RecordBatchFileWriter | None = None
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    try:
        for chunk in rows:
            if writer is None:
                writer = pa.ipc.new_file(str(place), chunk.schema, options=options)
            for part in parts(chunk, columns.topic, columns.time, work.shape.by):
                for batch in part.rows.combine_chunks().to_batches():
                    writer.write_batch(batch)
                    index.append((bucket_of(part.topic), part.topic, part.date))
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        return ""
    place.with_suffix(_INDEX).write_text(json.dumps(index))
    return str(place)


@frozen(kw_only=True)
class Gather:
    """The work of a task: runs that were laid aside become files.

    @ivar work: What laid them aside.
    @ivar asides: Stores and paths, in the order of the log.
    @ivar count: How many tasks there are.
    """

    work: WriteRanges
    asides: tuple[tuple[str, str], ...]
    count: int

    @classmethod
    def of(cls, work: WriteRanges, written: Iterable[Written]) -> Gather:
        """What has to be done with what tasks laid aside."""
        order = sorted(written, key=lambda each: (each.store, each.planned))
        asides = tuple((each.store, each.aside) for each in order if each.aside)
        size = sum(Path(path).stat().st_size for _, path in asides)
        count = min(_BUCKETS, 1 + size // _SPARE) if asides else 0
        return cls(work=work, asides=asides, count=count)

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        runs: dict[Folder, list[tuple[str, int]]] = {}
        for store, path in self.asides:
            index = json.loads(Path(path).with_suffix(_INDEX).read_text())
            for row, (bucket, topic, date) in enumerate(index):
                if bucket % self.count == number:
                    runs.setdefault((store, topic, date), []).append((path, row))
        opened = lru_cache(_OPEN)(lambda path: pa.ipc.open_file(pa.memory_map(path)))
        with self.work.files() as files:
            for (store, topic, date), found in runs.items():
                for rows in chunks((opened(path).get_batch(row) for path, row in found), CHUNK):
                    files.add(store, Partition(topic, date, rows))
                    if files.bytes >= TARGET:
                        files.close()
                files.close()
        for file in files.done:
            yield file_row(file)

    def clear(self) -> None:
        """Remove what was laid aside."""
        for _, path in self.asides:
            Path(path).unlink(missing_ok=True)
            Path(path).with_suffix(_INDEX).unlink(missing_ok=True)


def chunks(batches: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.Table]:
    """Batches put together, so that few are sorted and written, and row groups are not small.

    @param least: Bytes of each, but of the last.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= least:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)
