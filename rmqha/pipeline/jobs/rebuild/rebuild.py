"""
Consume queues made from a log, in a folder of their own.

    >>> rebuild(spark, "/data/store", "/data/new")

Every range is read by a task that writes the units of its records where their queue offsets
say; which queues have to be written once more is known when all have.  What a node's own
dispatch would make of the log comes out, unit by unit.

Source: docs/guide/jobs.rst, Rebuild.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from attrs import asdict, evolve, frozen
from pyspark.sql import SparkSession

from rmqha.errors import Refused
from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.jobs.proven_records import proved
from rmqha.pipeline.jobs.rebuild.deleted_topics import deleted_topics
from rmqha.pipeline.jobs.rebuild.queue_files import FILE_SIZE, QueueFiles
from rmqha.pipeline.jobs.rebuild.queue_runs import Problem, Queue, Run, queues_of
from rmqha.pipeline.jobs.spark_work import Path as AnyPath
from rmqha.pipeline.jobs.spark_work import ranges_of, run
from rmqha.pipeline.log.files import COMMITLOG
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.wire.columnar.decoder import DEFAULT_LEVELS
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.queue_units import (
    OFFSET_MAX,
    UNIT,
    UNIT_SIZE,
    UNIT_TYPE,
    fileable,
    grouped_units,
)
from rmqha.wire.log.delay_levels import DelayLevels

FOLDER = "consumequeue"
"""What the queues' folder is called below a store's root."""

RUNS = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("first", pa.int64()),
        ("count", pa.int64()),
        ("start", pa.int64()),
        ("last", pa.int64()),
        ("records", pa.int64()),
    ]
)
"""A row a run; the range's records are counted in its first row."""


@frozen(kw_only=True)
class RebuiltQueues:
    """
    What was made.

    @ivar folder: Where the queues are.
    @ivar records: Records read.
    @ivar queues: Queues made.
    @ivar units: Units of records.
    @ivar blanks: Units of no record.
    @ivar files: Files made.
    @ivar problems: What the log lacks or contradicts.
    """

    folder: str
    records: int
    queues: int
    units: int
    blanks: int
    files: int
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        """
        The result as a JSON object, for C{--json}.
        """
        return asdict(self)


@frozen(kw_only=True)
class Writing:
    """
    The work of a task: the units of a range's records.

    @ivar files: Where they go.
    @ivar delay_levels: C{messageDelayLevel} of the broker.
    @ivar options: How stores are read.
    @ivar deleted: Topics that were deleted, and up to which physical offset their records
        have no units.
    @ivar only: The queues to write, and of each the queue offsets that count with the
        physical offset of the first one's record; C{None} for all.
    """

    files: QueueFiles
    delay_levels: str
    options: ReadOptions
    deleted: Mapping[str, int]
    only: Mapping[Queue, tuple[Run, ...]] | None = None

    def __call__(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        """
        Write them.

        @return: The runs they are.
        """
        levels = DelayLevels.parse(self.delay_levels)
        runs: dict[Queue, list[Run]] = {}
        records = 0
        for walked in proved(wanted, self.options):
            block = walked.block
            records += len(block.start)
            if not len(block.start):
                continue
            for queue, first, raw in grouped_units(block, fields(walked.view, block, levels)):
                first, raw = self._living(queue, first, raw)
                if not raw:
                    continue
                if self.only is None:
                    self._write(queue, first, raw)
                    _add(runs.setdefault(queue, []), _run(queue, first, raw))
                elif queue in self.only:
                    self._write_kept(queue, _run(queue, first, raw), raw)
        rows = [asdict(each) for found in runs.values() for each in found]
        rows = rows or [dict.fromkeys(RUNS.names)]
        for row in rows:
            row["records"] = 0
        rows[0]["records"] = records
        yield pa.RecordBatch.from_pylist(rows, RUNS)

    def _living(self, queue: Queue, first: int, raw: bytes) -> tuple[int, bytes]:
        """
        Leave out the units of a deleted topic.
        """
        end = self.deleted.get(queue[0])
        if end is None:
            return first, raw
        offsets = np.frombuffer(raw, UNIT_TYPE)["offset"].astype(np.int64)
        gone = int(np.searchsorted(offsets, end))
        return first + gone, raw[gone * UNIT_SIZE :]

    def _write(self, queue: Queue, first: int, raw: bytes) -> None:
        if fileable(*queue) and 0 <= first < OFFSET_MAX:
            self.files.write(queue, first, raw)

    def _write_kept(self, queue: Queue, found: Run, raw: bytes) -> None:
        """
        Write what counts of a run.
        """
        assert self.only is not None, "some queues are written again"
        for kept in self.only[queue]:
            if kept.start <= found.last and found.start <= kept.last:
                first, end = max(kept.first, found.first), min(kept.end, found.end)
                if first < end:
                    part = slice((first - found.first) * UNIT_SIZE, (end - found.first) * UNIT_SIZE)
                    self.files.write(queue, first, raw[part])


def _run(queue: Queue, first: int, raw: bytes) -> Run:
    start, last = (UNIT.unpack_from(raw, at)[0] for at in (0, len(raw) - UNIT_SIZE))
    count = len(raw) // UNIT_SIZE
    return Run(topic=queue[0], queue_id=queue[1], first=first, count=count, start=start, last=last)


def _add(runs: list[Run], found: Run) -> None:
    """
    Add a run behind others of its queue, to the last one if it goes on there.
    """
    if runs and runs[-1].end == found.first:
        runs[-1] = evolve(runs[-1], count=runs[-1].count + found.count, last=found.last)
    else:
        runs.append(found)


def rebuild(
    spark: SparkSession,
    store: AnyPath,
    out: AnyPath,
    *,
    file_size: int = FILE_SIZE,
    delay_levels: str = DEFAULT_LEVELS,
    point_file: str = "use",
    shown: Shown = silent,
) -> RebuiltQueues:
    """
    Make the consume queues of a store in another folder.

    The folder of queues is there when all of it is, and on the disk.

    @param store: The store's root.
    @param out: Where the C{consumequeue} folder is made; it may not lie in a store.
    @param file_size: Bytes of a queue file, a multiple of 20.
    @param delay_levels: C{messageDelayLevel} of the broker.
    @param point_file: The option C{pointFile}.
    @param shown: Shows how far the tasks are.
    @raise Refused: If C{out} is no place for them.
    @raise PipelineError: If the log cannot be read to its end.
    """
    place = Path(out).absolute()
    _refuse(place, file_size)
    options = ReadOptions.parse({"path": store, "pointFile": point_file})
    files = QueueFiles(str(place / f".{FOLDER}-{uuid4().hex}"), file_size)
    Path(files.root).mkdir(parents=True)
    try:
        made = _made(spark, options, files, delay_levels, shown)
        os.rename(files.root, place / FOLDER)
    except BaseException:
        shutil.rmtree(files.root, ignore_errors=True)
        raise
    return evolve(made, folder=str(place / FOLDER))


def _refuse(place: Path, file_size: int) -> None:
    if file_size <= 0 or file_size % UNIT_SIZE:
        raise Refused(
            "rebuild", f"queue files of {file_size} bytes would not hold whole units of 20 bytes"
        )
    real = place.resolve()
    for folder in (real, *real.parents):
        if (folder / COMMITLOG).is_dir():
            raise Refused("rebuild", f"{place} lies in the store {folder}")
    if (place / FOLDER).exists():
        raise Refused("rebuild", f"{place / FOLDER} exists already")


def _made(
    spark: SparkSession,
    options: ReadOptions,
    files: QueueFiles,
    delay_levels: str,
    shown: Shown,
) -> RebuiltQueues:
    ((_, path),) = options.stores
    ranges = ranges_of(spark, path, pointFile=options.point_file.value)
    work = Writing(
        files=files,
        delay_levels=delay_levels,
        options=options,
        deleted=deleted_topics(path, options),
    )
    rows = run(ranges, work, RUNS, shown).to_pylist()
    records = sum(row.pop("records") for row in rows)
    runs = [Run(**row) for row in rows if row["topic"] is not None]
    queues, problems = queues_of(runs, files.per_file)
    again = {queue: made.kept for queue, made in queues.items() if not made.as_written}
    for queue in again:
        files.remove(queue)
    if any(again.values()):
        run(ranges, evolve(work, only=again), RUNS, shown)
    blanks = sum(files.fill(queue, made.kept) for queue, made in queues.items())
    return RebuiltQueues(
        folder=files.root,
        records=records,
        queues=sum(bool(made.kept) for made in queues.values()),
        units=sum(each.count for made in queues.values() for each in made.kept),
        blanks=blanks,
        files=files.flush(),
        problems=tuple(problems),
    )
