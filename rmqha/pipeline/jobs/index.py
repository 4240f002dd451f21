"""The split index of a store, made from its log: where records begin every some MiB; and with it
the topic index.

    >>> index(spark, "/data/store")

A node of rmqha makes its own as its log grows.  This is for stores that have none, those of
Java brokers, or whose own begins late; every log file is walked by a task of its own.

Source: docs/protocol/store.rst, The split index and The topic index; docs/guide/jobs.rst, Index.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path as LocalPath
from typing import Any

import pyarrow as pa
from attrs import asdict, evolve, frozen
from pyspark.sql import SparkSession

from rmqha.errors import StoreLocked
from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import read_point, topic_index_of
from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.jobs.proven_records import proved
from rmqha.pipeline.jobs.spark_work import Path, spread
from rmqha.pipeline.log.cached_splits import replace, write_positions
from rmqha.pipeline.log.fields import numbers
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.positions import Position, make
from rmqha.pipeline.log.ranges import Range, range_in
from rmqha.pipeline.log.stores import StoreView
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.log.published import Span, render_spans
from rmqha.wire.log.split_spans import SpanMaker
from rmqha.wire.log.topic_runs import TopicRunsMaker
from rmqha.wire.store_layout import LOCK, OWN_FOLDER, SPLITS

_log = getLogger(__name__)

SPANS = pa.schema(numbers("start", "end", "count", "earliest", "latest", "last"))
"""A row a span, whose records are counted from the start of its file; C{last} is the physical
offset of its last record, -1 without one."""


@frozen(kw_only=True)
class Indexed:
    """What was made.

    @ivar files: How many log files it is of.
    @ivar spans: How many spans it has.
    @ivar records: How many records lie in them.
    @ivar start: Physical offset of the first span.
    @ivar end: Just past the last one.
    """

    path: str
    files: int
    spans: int
    records: int
    start: int
    end: int

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object, for C{--json}."""
        return asdict(self)


@frozen(kw_only=True)
class Walking:
    """The work of a task by its number: the spans of one file.

    @ivar wanted: What is read of each.
    @ivar options: How stores are read.
    """

    wanted: tuple[Range, ...]
    options: ReadOptions

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        wanted = self.wanted[number]
        maker, topics, entries = SpanMaker(wanted.start), TopicRunsMaker(), b""
        rows: list[dict[str, int]] = []
        last = -1
        for walked in proved(wanted, self.options):
            block = walked.block
            heads = FixedFields(walked.view, block.start - block.base, block.size)
            spans = maker.add(block.start + block.size, heads.store_timestamp)
            if block.end == wanted.file_end > maker.start:
                spans.append(maker.close(wanted.file_end))
            entries += topics.add(block.start, block.size, heads.topics, spans)
            for span in spans:
                inside = block.start[block.start < span.end]
                last = int(inside[-1]) if len(inside) else last
                rows.append(_row(span, last if last >= span.start else -1))
            last = int(block.start[-1]) if len(block.start) else last
        # Of a log that was not cut meanwhile, or this is not reached.
        _write_topics(topic_index_of(LocalPath(wanted.root), wanted.start), entries)
        yield pa.RecordBatch.from_pylist(rows, SPANS)


def index(
    spark: SparkSession, store: Path, *, point_file: str = "use", shown: Shown = silent
) -> Indexed:
    """Make the split index of a store.

    @param store: Its root; the index lies in its folder C{rmqha}, nothing else is touched.
    @param point_file: The option C{pointFile}.
    @param shown: Shows how far the tasks are.
    @raise StoreLocked: If a node of rmqha runs on the store: it makes its own.
    @raise LogCutBack: If the log was cut meanwhile.
    """
    options = ReadOptions.parse({"path": store, "pointFile": point_file})
    ((name, path),) = options.stores
    found = StoreView.open(name, path, options)
    root = found.files.root
    with _alone(root) as free:
        _refuse(root, free)
    files, first = found.files, _unbroken(found.files)
    wanted = tuple(
        evolve(range_in(found, file, file.start, min(found.end, file.end), ()), pointed=False)
        for file in files.files[first:]
        if file.start < found.end
    )
    work = Walking(wanted=wanted, options=options)
    rows = spread(spark, len(wanted), work, SPANS, shown).to_pylist()
    rows.sort(key=lambda row: int(row["start"]))
    spans: list[Span] = []
    positions: dict[int, Position] = {}
    ordinal = 0
    for row in rows:
        last = row.pop("last")
        span = evolve(Span(ordinal=0, **row), ordinal=ordinal)
        spans.append(span)
        ordinal += span.count
        file = files.at(span.start)
        if last >= 0 and file is not None:
            positions[file.start] = make(files, span.end, last)
    folder = root / OWN_FOLDER
    with _alone(root) as free:
        _refuse(root, free)
        folder.mkdir(exist_ok=True)
        # The fingerprints first: an index whose fingerprints are another's is not believed.
        write_positions(root, positions.items())
        replace(folder / SPLITS, render_spans(spans))
    return Indexed(
        path=str(folder / SPLITS),
        files=len(wanted),
        spans=len(spans),
        records=ordinal,
        start=spans[0].start if spans else found.first,
        end=spans[-1].end if spans else found.first,
    )


def _write_topics(path: LocalPath, entries: bytes) -> None:
    """Replace the topic index of a file of the log, if that can be done where the task runs."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, entries)
    except OSError as error:
        _log.warning("cannot write the topic index, topics will be looked for: %s", error)


def _row(span: Span, last: int) -> dict[str, int]:
    row: dict[str, int] = asdict(span)
    del row["ordinal"]
    return {**row, "last": last}


def _unbroken(files: LogFiles) -> int:
    """The number of the first file behind which none is missing: spans follow each other."""
    first = 0
    for number in range(1, len(files.files)):
        if files.files[number].start != files.files[number - 1].end:
            first = number
    return first


@contextmanager
def _alone(root: LocalPath) -> Iterator[bool]:
    """Keep nodes away from a store for a moment.

    @return: Whether that worked: no node runs on it.
    """
    try:
        fd = os.open(root / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            free = True
        except (BlockingIOError, PermissionError):
            free = False
        yield free
    finally:
        os.close(fd)


def _refuse(root: LocalPath, free: bool) -> None:
    """Leave the index alone that a running node appends to; a Java broker has none.

    @raise StoreLocked: If it is such a node.
    """
    if not free and read_point(root) is not None:
        raise StoreLocked(str(root / LOCK))
