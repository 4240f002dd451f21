"""Jobs without Spark: the same work, piece after piece in this process.

One test of each job runs it on a session; what a job finds is tried here, where a dozen cases
take a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.jobs.spark_work import Stores, options_for
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range, plan
from rmqha.pipeline.log.stores import open_stores
from tests.support.memorylog import MemoryLog

Rows = Iterable[pa.RecordBatch]


def spread(
    spark: Any, count: int, piece: Callable[[int], Rows], schema: pa.Schema, shown: Shown = silent
) -> pa.Table:
    """As L{rmqha.pipeline.jobs.spark_work.spread}."""
    batches = [batch for number in range(count) for batch in piece(number)]
    return pa.Table.from_batches(batches, schema)


def ranges_of(spark: Any, stores: Stores, **options: object) -> list[Range]:
    """As L{rmqha.pipeline.jobs.spark_work.ranges_of}, the ranges themselves."""
    given = {name: value for name, value in options.items() if value is not None}
    parsed = ReadOptions.parse({"table": "ranges", **options_for(stores), **given})
    return plan(open_stores(parsed), parsed)


def run(
    ranges: list[Range], work: Callable[[Range], Rows], schema: pa.Schema, shown: Shown = silent
) -> pa.Table:
    """As L{rmqha.pipeline.jobs.spark_work.run}; the last range comes first, because any may."""
    batches = [batch for each in reversed(ranges) for batch in work(each)]
    return pa.Table.from_batches(batches, schema)


def change(file: Path, position: int, data: bytes) -> None:
    """Write into a file."""
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def log_files(store: Path) -> list[Path]:
    """The files of a store's log."""
    return sorted((store / "commitlog").iterdir())


def stored(log: MemoryLog, root: Path) -> Path:
    """Write a log in memory as a store's files, and return the store's root."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    for start in range(0, len(log.data), log.file_size):
        data = bytes(log.data[start : start + log.file_size]).ljust(log.file_size, b"\0")
        (folder / f"{log.min_offset + start:020d}").write_bytes(data)
    return root
