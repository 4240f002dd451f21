"""Read a log without Spark, as Arrow batches.

    >>> from rmqha.pipeline.scan import scan
    >>> scan("/data/store", topic="orders", columns="queue_offset,body").read_all()

What comes is a C{pyarrow.RecordBatchReader}, which DuckDB, Polars and pandas read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike

import pyarrow as pa

from rmqha.logfiles.log_files import settled
from rmqha.pipeline.log.options import ReadOptions, RowKind
from rmqha.pipeline.log.ranges import bounds, plan
from rmqha.pipeline.log.reading import MessageReader, chosen_columns
from rmqha.pipeline.log.stores import open_stores
from rmqha.pipeline.log.tables import file_rows, range_rows, schema_of

Path = str | PathLike[str]


def scan(path: Path | None = None, **options: object) -> pa.RecordBatchReader:
    """Read a store, or several, in the order of the log.

    @param path: The store's root; or none, and C{stores} says which there are.
    @param options: As for Spark, by the same names; values may be Python's.
    @raise OptionInvalid: If the options cannot be used; also its siblings.
    @raise StoreError: If there is no such store.
    """
    parsed = parse(path, options)
    return pa.RecordBatchReader.from_batches(schema_of(parsed), _batches(parsed))


def snapshot(path: Path | None = None, **options: object) -> dict[str, int]:
    """Where the logs end now: C{endingOffsets} for reads that shall all see the same.

    @return: Physical offsets by store.
    """
    parsed = parse(path, options)
    return settled(lambda: {store.name: bounds(store, parsed)[1] for store in open_stores(parsed)})


def parse(path: Path | None, options: Mapping[str, object]) -> ReadOptions:
    """The options of a call."""
    return ReadOptions.parse(options if path is None else {**options, "path": path})


def _batches(options: ReadOptions) -> Iterator[pa.RecordBatch]:
    if options.table is RowKind.FILES:
        yield settled(lambda: file_rows(open_stores(options), options))
        return
    ranges = settled(lambda: plan(open_stores(options), options))
    if options.table is RowKind.RANGES:
        yield range_rows(ranges)
        return
    reader = MessageReader(options, chosen_columns(options))
    for found in ranges:
        yield from reader.read(found)
