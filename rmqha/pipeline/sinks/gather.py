"""Layouts by topic: rows that belong together are brought together, whatever range they are from.

A task that reads a range cannot have a file open for each of thousands of topics, nor should it
write one of a few KiB for each.  So it lays its rows aside in one file, in small runs of one
folder each; then other tasks take some topics each, and gather their runs into files of a good
size.  Bodies stay out of the JVM on that way too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
from attrs import frozen

from rmqha.pipeline.sinks.table_layout import Partition, parts
from rmqha.pipeline.sinks.written import Written, file_row

if TYPE_CHECKING:
    from rmqha.pipeline.sinks.columns import TableColumns
    from rmqha.pipeline.sinks.parquet import WriteRanges

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
    place = work.scratch(store) / f"{uuid4().hex}.arrow"
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
        """Gather the topics of one task."""
        runs: dict[Folder, list[tuple[str, int]]] = {}
        for store, path in self.asides:
            index = json.loads(Path(path).with_suffix(_INDEX).read_text())
            for row, (bucket, topic, date) in enumerate(index):
                if bucket % self.count == number:
                    runs.setdefault((store, topic, date), []).append((path, row))
        opened = lru_cache(_OPEN)(_opened)
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


def _opened(path: str) -> Any:
    return pa.ipc.open_file(pa.memory_map(path))


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
