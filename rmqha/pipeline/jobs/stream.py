"""Go on adding messages to a table as they come, each once.

A batch is a set of ranges.  Tasks write them as files, and then the files and the table's
new position are committed together, so the checkpoint of Spark is only a help: a batch
that comes again, after a kill or with a new checkpoint, is left out or trimmed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path as LocalPath

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rmqha.pipeline.errors import NotNext, TableRefused
from rmqha.pipeline.jobs.export import add, given, of_ranges, require_logs, target_for
from rmqha.pipeline.jobs.lag import Listener, Told
from rmqha.pipeline.jobs.spark_work import Path, Stores, options_for
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.positions import Position, from_json
from rmqha.pipeline.log.stores import StoreView
from rmqha.pipeline.sinks.encoding import Compression
from rmqha.pipeline.sinks.parquet import OURS
from rmqha.pipeline.sinks.position import selection_of
from rmqha.pipeline.sinks.table import IcebergPlace, local
from rmqha.pipeline.sinks.target import Appending, Format, Target
from rmqha.pipeline.spark.source import NAME

CHECKPOINT = "checkpoint"
"""Folder of Spark's own position, below L{OURS} of the table's, unless another is named."""

EVERY = "1 second"


def write_batch(table: Appending, ranges: DataFrame, number: int) -> None:
    """Write a batch of ranges and commit it.

    @param number: The batch's, which says nothing: a table knows what it has.
    """
    try:
        add(ranges, table)
    finally:
        table.rest()


def stream(
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
    checkpoint: Path | None = None,
    every: str | None = EVERY,
    resume_from_table: bool = False,
    told: Told | None = None,
    **options: object,
) -> StreamingQuery:
    """Begin a stream of the messages of stores into a table; arguments are those of
    L{rmqha.pipeline.jobs.export.export} and these:

    @param checkpoint: Where Spark keeps its position; beside the table if not said.
    @param every: The time between two batches, as Spark says it; C{None} for what is there
        now, in as many batches as the limits ask for, and then the end.
    @param resume_from_table: Begin where the table ends, with a new checkpoint.
    @param told: Is told after each batch how far the stream is behind.
    @return: The query: C{awaitTermination} waits for its end, C{stop} ends it.
    @raise TableRefused: If the table cannot be written to.
    @raise NotNext: If the table was taken back behind what the checkpoint says, or made anew.
    @raise LogEndsBefore: As L{require_logs}, if it ends with what is there now; and what else
        that raises.
    """
    target = target_for(
        out, format, compression, level, partition_by_topic, table_per_topic, iceberg
    )
    chosen = given(options)
    parsed = ReadOptions.parse({**options_for(stores), **chosen}, streaming=True)
    table = Appending(target, parsed)
    if target.url and checkpoint is None:
        raise TableRefused(target.url, "say where Spark's checkpoint is to be (--checkpoint)")
    place = checkpoint_of(target, checkpoint, resume_from_table)
    if resume_from_table:
        chosen["startingOffsets"] = json.dumps(next_offsets(table))
        chosen.pop("startingTimestamp", None)
    try:  # what is wrong with the table or the logs is told here
        require_held(table, place)
        require_logs(table, reach=every is None)
    finally:
        table.rest()
    listener = None if told is None else Listener(parsed, told)
    if listener is not None:
        spark.streams.addListener(listener)
    reader = spark.readStream.format(NAME).option("table", "ranges").options(**options_for(stores))
    for name, value in of_ranges(chosen).items():
        reader = reader.option(name, value)  # type: ignore[arg-type]
    writer = reader.load().writeStream.foreachBatch(partial(write_batch, table))
    writer = writer.option("checkpointLocation", str(place)).queryName(_name(parsed, target))
    writer = (
        writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    )
    query = writer.start()
    if listener is not None:
        listener.run = str(query.runId)
    return query


def _name(options: ReadOptions, target: Target) -> str:
    """What Spark's pages call a stream; no two that run at once have one name."""
    chosen = options.topic or sorted(options.assign or ())
    pattern = options.subscribe_pattern
    topics = ", ".join(chosen) or (pattern.pattern if pattern else "all topics")
    place, selection = target.shape.place, selection_of(options)
    return f"rmqha {', '.join(options.names)}: {topics} into {place} ({selection})"


def checkpoint_of(target: Target, given: Path | None, fresh: bool) -> LocalPath:
    """Where Spark keeps its position.

    @param fresh: Whether it has to be new; what lies at our own place is put aside.
    @raise TableRefused: If it has to be new, and the one that was named is not.
    """
    place = local(given) if given is not None else target.root / OURS / CHECKPOINT
    if fresh and place.exists():
        if given is not None:
            raise TableRefused(target.shape.place, f"the checkpoint {place} exists already")
        place.rename(place.with_name(f"{CHECKPOINT}-{time.time_ns()}"))
    return place


def require_held(table: Appending, checkpoint: LocalPath) -> None:
    """Refuse a checkpoint that says of more than the table holds that it was added: the table was
    taken back since, or dropped.  Without new records nothing else would tell.

    @raise NotNext: If it does.
    """
    held = table.held
    for name, position in committed(checkpoint).items():
        # Of a store without a record below its position nothing was ever added.
        begun = max(position.begun, 0) if position.last >= 0 else position.offset
        first, end = (held[name].first, held[name].end) if name in held else (begun, begun)
        if position.offset > end:
            raise NotNext(name, first, end, position.offset)


def committed(checkpoint: LocalPath) -> Mapping[str, Position]:
    """Up to where a checkpoint of Spark's says that batches are done."""
    done = [int(each.name) for each in checkpoint.glob("commits/*") if each.name.isdigit()]
    try:
        text = (checkpoint / f"offsets/{max(done, default=-1)}").read_text()
    except FileNotFoundError:
        return {}
    return from_json(json.loads(text.splitlines()[-1]))


def next_offsets(table: Appending) -> Mapping[str, int]:
    """Where a stream goes on that a table has the first part of: a store it has nothing of
    begins at its first record.
    """
    held, options = table.held, table.options
    return {
        name: held[name].end if name in held else StoreView.open(name, path, options).first
        for name, path in options.stores
    }
