"""Export messages to Parquet files, a Delta or an Iceberg table.

It may be run again, after a kill too: what the table has is not added to it again, and
what has come to the logs since is.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from enum import StrEnum
from functools import partial
from typing import TypeVar

from attrs import frozen
from pyspark.sql import DataFrame, SparkSession

from rmqha.errors import RmqhaError
from rmqha.logfiles.log_files import settled
from rmqha.pipeline.errors import OptionInvalid
from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.jobs.spark_work import Path, Stores, options_for, ranges_of, run, spread
from rmqha.pipeline.log.errors import LogEndsBefore
from rmqha.pipeline.log.options import OF_ROWS, MissingStores, ReadOptions
from rmqha.pipeline.log.stores import StoreView
from rmqha.pipeline.sinks.encoding import Compression, Encoding
from rmqha.pipeline.sinks.parquet import Gather
from rmqha.pipeline.sinks.position import TablePosition
from rmqha.pipeline.sinks.table import IcebergPlace
from rmqha.pipeline.sinks.table_layout import By
from rmqha.pipeline.sinks.target import Appending, Format, Target
from rmqha.pipeline.sinks.written import WRITTEN, WrittenFile, files_from_rows, files_of, from_rows

Choice = TypeVar("Choice", bound=StrEnum)

_OF_ROWS = frozenset(name.lower() for name in OF_ROWS)


@frozen
class Exported:
    """What an export did.

    @ivar files: Files it added.
    @ivar topics: Rows, and bytes of their records in the log, by topic.
    @ivar ends: How far the table is now, physical offsets by store.
    """

    files: int
    rows: int
    bytes: int
    topics: Mapping[str, tuple[int, int]]
    ends: Mapping[str, int]


def export(
    spark: SparkSession,
    stores: Stores,
    out: Path,
    *,
    format: str = Format.PARQUET.value,
    compression: str = Compression.ZSTD.value,
    level: int | None = None,
    partition_by_topic: bool = False,
    table_per_topic: bool = False,
    iceberg: IcebergPlace | None = None,
    shown: Shown = silent,
    **options: object,
) -> Exported:
    """Write the messages of stores to a table.

    @param out: The table's folder; tasks and the caller see it under the same path.
    @param format: C{parquet}, C{delta} or C{iceberg}.
    @param compression: C{zstd}, C{snappy}, C{lz4} or C{none}.
    @param level: The codec's level.
    @param partition_by_topic: Whether there is a folder for each topic, and not only for
        each day.
    @param table_per_topic: Whether each topic is a table of its own, in a folder of its name.
    @param iceberg: Where the table is listed, if it is an Iceberg table.
    @param shown: Shows how far the tasks are.
    @param options: Options of the data source.
    @raise OptionInvalid: If an argument or an option cannot be used; also its siblings.
    @raise NotNext: If the rows would not continue those of the table.
    @raise TableRefused: If the table cannot be written to.
    @raise LogEndsBefore: As L{require_logs}; and what else that raises.
    """
    target = target_for(
        out, format, compression, level, partition_by_topic, table_per_topic, iceberg
    )
    chosen = given(options)
    with closing(Appending(target, ReadOptions.parse({**options_for(stores), **chosen}))) as table:
        require_logs(table)
        files = add(ranges_of(spark, stores, **of_ranges(chosen)), table, shown)
        return _summary(files, table.held)


def require_logs(table: Appending, *, reach: bool = True) -> None:
    """Refuse logs that are not those that a table has the first part of: where nothing of them
    would be added, nothing else would tell.

    @param reach: Whether they have to go at least as far as the table.
    @raise LogEndsBefore: If one does not.
    @raise NotThisLog: If one is another log.
    @raise LogOfAnotherBroker: If one is another broker's.
    @raise LogCutBack: If one was cut back since.
    """
    held, options = table.held, table.options
    waits = options.missing_stores is not MissingStores.FAIL

    def look(name: str) -> None:
        path, position = dict(options.stores)[name], held[name].position
        try:
            store = StoreView.open(name, path, options, position.offset)
        except (RmqhaError, PermissionError):
            if waits:
                return
            raise
        if not store.verify(position) and reach:
            raise LogEndsBefore(name, position.offset, store.end)

    for name in options.names:
        if name in held:
            settled(partial(look, name))


def add(ranges: DataFrame, table: Appending, shown: Shown = silent) -> list[WrittenFile]:
    """Write ranges and commit them."""
    work = table.work()
    written = from_rows(run(ranges, work, WRITTEN, shown))
    gather = Gather.of(work, written)
    rows = spread(ranges.sparkSession, gather.count, gather, WRITTEN, shown)
    gathered = files_from_rows(rows)
    table.commit(written, gathered)
    gather.clear()
    return [*files_of(written), *gathered]


def target_for(
    out: Path,
    format: str,
    compression: str,
    level: int | None,
    partition_by_topic: bool,
    table_per_topic: bool,
    iceberg: IcebergPlace | None,
) -> Target:
    """The table that arguments describe.

    @raise OptionInvalid: If one is not known, or two exclude each other.
    """
    if partition_by_topic and table_per_topic:
        raise OptionInvalid("table_per_topic", "true", "cannot be combined with partition_by_topic")
    by = By.TOPIC if partition_by_topic else By.TABLE if table_per_topic else By.DATE
    return Target.at(
        out,
        format=_one("format", format, Format),
        by=by,
        encoding=Encoding(_one("compression", compression, Compression), level),
        iceberg=iceberg or IcebergPlace(),
    )


def _one(name: str, text: str, kind: type[Choice]) -> Choice:
    try:
        return kind(text)
    except ValueError as error:
        raise OptionInvalid(name, text, ", ".join(kind)) from error


def given(options: Mapping[str, object]) -> dict[str, object]:
    """Options without those that are C{None}."""
    return {name: value for name, value in options.items() if value is not None}


def of_ranges(options: Mapping[str, object]) -> dict[str, object]:
    """The options that ranges are planned with."""
    return {name: value for name, value in options.items() if name.lower() not in _OF_ROWS}


def _summary(files: list[WrittenFile], held: Mapping[str, TablePosition]) -> Exported:
    topics: dict[str, tuple[int, int]] = {}
    for file in files:
        for topic, (rows, size) in file.topics.items():
            before = topics.get(topic, (0, 0))
            topics[topic] = (before[0] + rows, before[1] + size)
    return Exported(
        len(files),
        sum(file.rows for file in files),
        sum(file.bytes for file in files),
        dict(sorted(topics.items())),
        {store: each.end for store, each in held.items()},
    )
