"""The tables about a log: its files, and the ranges that a query's tasks would read.

Jobs are made of ranges; their results are small and what is read never leaves its task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from rmqha.pipeline.log.damage import corrupt_column
from rmqha.pipeline.log.fields import numbers, texts
from rmqha.pipeline.log.options import ReadOptions, RowKind
from rmqha.pipeline.log.ranges import Range, bounds
from rmqha.pipeline.log.reading import MessageReader, chosen_columns
from rmqha.pipeline.log.stores import StoreView
from rmqha.wire.columnar.decoder import STYLES

RANGES = pa.schema(
    [
        *texts("store", "broker_name", "path"),
        *numbers("start_offset", "end_offset", "bytes"),
        *texts("range"),
    ]
)
"""One row a range; offsets are physical.  C{range} is all that a task needs to read it, for
L{Range.from_json}."""

FILES = pa.schema(
    [
        *texts("store", "broker_name", "path"),
        *numbers("start_offset", "end_offset", "used_bytes"),
    ]
)
"""One row a file; what is used of it is what the query may read."""


def schema_of(options: ReadOptions) -> pa.Schema:
    """The schema of the table that is asked for.

    @raise ColumnUnknown: If a column is asked for that it does not have.
    """
    if options.table is RowKind.RANGES:
        return RANGES
    if options.table is RowKind.FILES:
        return FILES
    return MessageReader(options, chosen_columns(options)).schema


def all_of(options: ReadOptions) -> pa.Schema:
    """All columns the table can have, those too that come only when they are asked for."""
    if options.table is not RowKind.MESSAGES:
        return schema_of(options)
    columns = (*STYLES[options.column_style.value], *corrupt_column(options))
    return MessageReader(options, columns).schema


def range_rows(ranges: Iterable[Range]) -> pa.RecordBatch:
    """The rows of C{table=ranges}: one for each range."""
    rows = [
        {
            "store": found.store,
            "broker_name": found.broker,
            "path": found.path,
            "start_offset": found.start,
            "end_offset": found.end,
            "bytes": found.size,
            "range": found.to_json(),
        }
        for found in ranges
    ]
    return pa.RecordBatch.from_pylist(rows, RANGES)


def file_rows(stores: Iterable[StoreView], options: ReadOptions) -> pa.RecordBatch:
    """The files of stores as rows."""
    return pa.RecordBatch.from_pylist(
        [row for store in stores for row in _files(store, options)], FILES
    )


def _files(store: StoreView, options: ReadOptions) -> Iterator[dict[str, Any]]:
    start, end = bounds(store, options)
    for file in store.files.files:
        yield {
            "store": store.name,
            "broker_name": store.broker,
            "path": file.where,
            "start_offset": file.start,
            "end_offset": file.end,
            "used_bytes": max(0, min(end, file.end) - max(start, file.start)),
        }
