"""Run a piece of work over every range of logs, in Spark's tasks.

Spark moves only ranges and small results: what a range holds is read, used and dropped, or
written, where the task runs.  The same code runs on C{local[*]}, on a cluster and over Spark
Connect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike, fspath

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.pipeline.spark.batch import settle
from rmqha.pipeline.spark.source import NAME
from rmqha.pipeline.spark.types import spark_schema
from rmqha.priority import Priority, step_back

Path = str | PathLike[str]
Stores = Path | Mapping[str, Path]
"""One store's root, or several by name, or C{@} and a file that names them (C{storesFile})."""

_LIST = "@"

Work = Callable[[Range], Iterable[pa.RecordBatch]]
"""What a task does with one range: it may be called again for the same one, on another
machine, at the same time.  It travels to the tasks, so it is a function or a frozen value of
a module that they can import."""


def options_for(stores: Stores) -> dict[str, str]:
    """The options that say which stores to read."""
    if isinstance(stores, Mapping):
        named = {name: fspath(path) for name, path in stores.items()}
        return {"stores": json.dumps(named, sort_keys=True)}
    path = fspath(stores)
    return {"storesFile": path[1:]} if path.startswith(_LIST) else {"path": path}


def ranges_of(spark: SparkSession, stores: Stores, **options: object) -> DataFrame:
    """The ranges of logs, a row and a task each.

    @param options: Options of the data source that choose ranges; those that are C{None}
        are left out.
    """
    return read_of(spark, stores, {"table": "ranges", **options})


def read_of(spark: SparkSession, stores: Stores, options: Mapping[str, object]) -> DataFrame:
    """What the data source gives of logs.

    @param options: Its options; those that are C{None} are left out.
    """
    reader = spark.read.format(NAME).options(**options_for(stores))
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)  # type: ignore[arg-type]
    return reader.load()


def run(ranges: DataFrame, work: Work, schema: pa.Schema, shown: Shown = silent) -> pa.Table:
    """Do the work of every range, and bring its results.

    @param ranges: Rows of L{ranges_of}, or of a stream's batch.
    @param schema: Of every batch that the work gives.
    @param shown: Shows how far the tasks are.
    """
    done = working(ranges, work, schema)
    with shown(done.sparkSession):
        return done.toArrow()


def working(ranges: DataFrame, work: Work, schema: pa.Schema) -> DataFrame:
    """The results of the work as a DataFrame, for more of Spark to follow."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step_back(_priority(work))
        for batch in batches:
            for text in batch.column("range").to_pylist():
                yield from work(Range.from_json(text))
        settle()

    return ranges.select("range").mapInArrow(each, spark_schema(schema))


def _priority(work: object) -> Priority:
    options = getattr(work, "options", None)
    return options.priority if isinstance(options, ReadOptions) else Priority.IDLE


Piece = Callable[[int], Iterable[pa.RecordBatch]]
"""What a task does with the number it is given; the same holds for it as for L{Work}."""


def spread(
    spark: SparkSession, count: int, piece: Piece, schema: pa.Schema, shown: Shown = silent
) -> pa.Table:
    """Do numbered pieces of work that are no ranges, a task each, and bring their results.

    @param count: How many there are; their numbers begin at 0.
    @param schema: Of every batch that the work gives.
    @param shown: Shows how far the tasks are.
    """
    if not count:
        return schema.empty_table()

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step_back(_priority(piece))
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from piece(number)
        settle()

    numbers = spark.range(0, count, 1, count)
    with shown(spark):
        return numbers.mapInArrow(each, spark_schema(schema)).toArrow()
