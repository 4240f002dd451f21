"""A batch read by Spark: ranges are planned once, tasks read them.

Memory that a task's process uses again and again.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqha.logfiles.log_files import settling
from rmqha.pipeline.errors import ColumnOfOtherType
from rmqha.pipeline.log.options import ReadOptions, RowKind
from rmqha.pipeline.log.ranges import Range, plan
from rmqha.pipeline.log.reading import MessageReader
from rmqha.pipeline.log.stores import open_stores
from rmqha.pipeline.log.tables import all_of, file_rows, range_rows
from rmqha.pipeline.spark.types import arrow_schema, columns_for
from rmqha.priority import step_back

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of glibc's C{mallopt}."""

KEPT = 128 << 20
"""Bytes that are kept at most when all is freed."""

LARGEST = 32 << 20
"""Bytes of the largest piece that is kept; more is not allowed."""


def keep_freed() -> bool:
    """Do not give freed memory back at once: the arrays of each block are as large as those of
    the last one, and pages that the system takes back have to be cleared and mapped anew
    (measured: a fifth of a decoder's time).

    It changes the whole process, so it is for processes that only run tasks.

    @return: Whether the C library knows how.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))


_SETTLED = 2
"""Tasks after which a worker has imported what it needs."""

_tasks = 0


class RangePartition(InputPartition):
    """One task's partition, as Spark calls it: a range."""

    value: Range


class TaskRows:
    """Makes the batches of one task, in the schema that Spark expects."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """@raise ColumnUnknown: If the schema asks for a column that there is not.
        @raise ColumnOfOtherType: If it asks for one by another type.
        """
        table = all_of(options)
        self.options = options
        self.columns = columns_for(schema, table)
        self.schema = arrow_schema(schema, table)

    def of(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition; of the empty one that Spark makes of none, none.

        @raise ColumnOfOtherType: If a column is to have no nulls, and has some.
        """
        step_back(self.options.priority)
        if isinstance(partition, RangePartition):
            for batch in self._of_range(partition.value):
                yield self._fitted(batch)
        elif isinstance(partition.value, pa.RecordBatch):
            yield self._fitted(partition.value)
        settle()

    def _of_range(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        if self.options.table is RowKind.RANGES:
            return iter((range_rows([wanted]),))
        return MessageReader(self.options, self.columns).read(wanted)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema):
            return batch
        columns = [batch.column(name) for name in self.schema.names]
        for field, column in zip(self.schema, columns, strict=True):
            if column.null_count and not field.nullable:
                raise ColumnOfOtherType(field.name, "never null", "null in some rows")
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def settle() -> None:
    """Take what a worker has imported out of the collector's sight: Spark collects after
    every task, and would walk all of it each time.  And let it keep the memory of a block
    for the next one.
    """
    global _tasks
    _tasks += 1
    if _tasks == 1:
        keep_freed()
    if _tasks == _SETTLED:
        gc.collect()
        gc.freeze()


class BatchReader(DataSourceReader):
    """Plans and reads one batch."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows = TaskRows(options, schema)

    @settling
    def partitions(self) -> Sequence[InputPartition]:
        """The tasks.  What Spark made of them once it keeps, so that a DataFrame ends where
        the log ended when it was first used.
        """
        stores = open_stores(self._options)
        if self._options.table is RowKind.FILES:
            return [InputPartition(file_rows(stores, self._options))]
        return [RangePartition(found) for found in plan(stores, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.of(partition)
