"""What becomes of damaged records in a read that is to go on.

If only the body is damaged, the next record is where the size says.  If the chain of
records is broken, only the split index knows where the next one begins, or the end
of the file: there is no searching, for a body may hold what looks like a record.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from rmqha.errors import RecordCorrupt
from rmqha.logfiles.published import read_splits
from rmqha.pipeline.log.options import Mode, ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.wire.columnar.decoder import STYLES


def corrupt_column(options: ReadOptions) -> tuple[str, ...]:
    """The name of the column that tells damage; none unless damage becomes rows."""
    if options.mode is Mode.PERMISSIVE:
        return (options.column_name_of_corrupt_record,)
    return ()


def with_corrupt(schema: pa.Schema, columns: Iterable[str]) -> pa.Schema:
    """A decoder's schema with the column of damage at its place among all columns."""
    return pa.schema(
        [
            schema.field(name) if name in schema.names else pa.field(name, pa.string())
            for name in columns
        ]
    )


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A decoder's batch in the schema of L{with_corrupt}."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        batch.column(name) if name in batch.schema.names else pa.nulls(len(batch), pa.string())
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def corrupt_row(error: RecordCorrupt, schema: pa.Schema, options: ReadOptions) -> pa.RecordBatch:
    """The row of a damaged record: where it is and what is wrong, and nothing else."""
    style = STYLES[options.column_style.value]
    known = {options.column_name_of_corrupt_record: str(error)}
    row = {
        name: error.offset if style.get(name) == "physical_offset" else known.get(name)
        for name in schema.names
    }
    return pa.RecordBatch.from_pylist([row], schema)


def behind(error: RecordCorrupt, wanted: Range) -> int:
    """Where to go on behind damage, at most at the range's end."""
    if error.size:
        return min(error.offset + error.size, wanted.end)
    if not wanted.pointed:
        return wanted.end  # an index without a point may be another log's
    splits = read_splits(Path(wanted.root), error.offset + 1, wanted.end)
    return splits[0].start if splits else wanted.end
