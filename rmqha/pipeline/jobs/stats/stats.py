"""What a log holds: how many messages of which topics, how fast they came, how large they are
and how long they were on their way.

    >>> stats(spark, "/data/store").topics

Counting a range's messages by topic, queue and time, in Spark's tasks.

A task gives back a few hundred rows, whatever its range holds: time is counted in steps that
grow until there are not too many of them.  Steps are a width times a power of two, so those
of all tasks fit together.

Source: docs/guide/jobs.rst, Stats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import asdict, define, field, frozen
from pyspark.sql import SparkSession

from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.jobs.proven_records import proved
from rmqha.pipeline.jobs.spark_work import Stores, options_for, ranges_of, run
from rmqha.pipeline.jobs.stats.tally import CELLS, buckets, percentile, records, tallied
from rmqha.pipeline.log.fields import numbers, texts
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.pipeline.log.selection import Selection
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.vectors import Array

MOST_STEPS, MOST_CELLS = 1000, 50_000
"""Steps of time that a task tells apart, and counts it has of all queues in them."""

FINEST = 1000
"""Milliseconds of a step, unless there are too many."""


class Counted(StrEnum):
    """What a row of counts is about."""

    QUEUE = "queue"
    """By queue: weight is stored bytes, values are queue offsets."""
    STORED = "stored"
    """By queue: weight is bodies' bytes, values are store times in milliseconds."""
    TIME = "time"
    """By queue and step of store time: weight is stored bytes."""
    SIZE = "size"
    """By bucket of the body's bytes."""
    DELAY = "delay"
    """By bucket of store time minus born time, in milliseconds."""
    RETRY = "retry"
    """By how often a message was delivered before."""


COUNTS = pa.schema(
    [
        *texts("what", "store", "topic"),
        *numbers("queue_id", "key", "step", "count", "total", "low", "high"),
    ]
)
"""A row a cell; C{step} is the width of a step of time in milliseconds, 0 for other rows."""


@frozen(kw_only=True)
class Counting:
    """The work of a task.

    @ivar options: How stores are read, and which records count.
    @ivar step: Milliseconds of a step of time; C{None} begins with L{FINEST} and lets it grow.
    """

    options: ReadOptions
    step: int | None = None

    def __call__(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        counts = RangeCounts(self.step or FINEST, self.step is None)
        selection = Selection(self.options)
        keep = None if selection.everything else selection.keep
        for walked in proved(wanted, self.options):
            block = walked.block
            heads = FixedFields(walked.view, block.start - block.base, block.size)
            if keep is not None and len(heads):
                heads = heads.only(keep(heads))
            if len(heads):
                counts.take(heads)
        yield from counts.rows(wanted.store).to_batches()


@define
class RangeCounts:
    """What was counted of one range.

    @ivar step: Milliseconds of a step of time, now.
    @ivar grows: Whether it may become longer.
    """

    step: int
    grows: bool
    topics: dict[str, int] = field(factory=dict)
    cells: dict[Counted, pa.Table] = field(
        factory=lambda: dict.fromkeys(Counted, CELLS.empty_table())
    )

    def take(self, heads: FixedFields) -> None:
        """Count the records of one batch."""
        names, numbers = heads.topics
        known = [self.topics.setdefault(name, len(self.topics)) for name in names]
        topic = np.array(known, np.int64)[numbers]
        queue = heads.column("queue_id")
        stored = heads.store_timestamp
        size = heads.size
        body = heads.column("body_length").astype(np.int64)
        # A born time is its producer's word, and may be anything.
        delay = stored - np.clip(heads.column("born_timestamp"), 0, 1 << 52)
        retry = heads.column("reconsume_times")
        none = np.zeros(len(heads), np.int64)
        self._add(Counted.QUEUE, [topic, queue, none], size, heads.column("queue_offset"))
        self._add(Counted.STORED, [topic, queue, none], body, stored)
        self._add(Counted.TIME, [topic, queue, stored // self.step], size, stored)
        self._add(Counted.SIZE, [topic, none, buckets(body)], body, body)
        self._add(Counted.DELAY, [topic, none, buckets(delay)], none, delay)
        self._add(Counted.RETRY, [topic, none, retry], none, retry)
        while self.grows and self._too_fine():
            self._coarsen()

    def _add(self, what: Counted, kinds: list[Array], weights: Array, values: Array) -> None:
        self.cells[what] = tallied(self.cells[what], records(kinds, weights, values))

    def _too_fine(self) -> bool:
        cells = self.cells[Counted.TIME]
        steps = pc.count_distinct(cells["key"]).as_py()
        return steps > MOST_STEPS or (len(cells) > MOST_CELLS and steps > 1)

    def _coarsen(self) -> None:
        self.step *= 2
        cells = self.cells[Counted.TIME]
        wider = pa.array(cells["key"].to_numpy() // 2)
        place = CELLS.get_field_index("key")
        self.cells[Counted.TIME] = tallied(cells.set_column(place, CELLS.field(place), wider))

    def rows(self, store: str) -> pa.Table:
        """All counts as rows of the schema C{COUNTS}."""
        names, found = pa.array(list(self.topics), pa.string()), []
        for what, cells in self.cells.items():
            step = self.step if what is Counted.TIME else 0
            same = {"what": what.value, "store": store, "step": step}
            columns = {name: pa.repeat(value, len(cells)) for name, value in same.items()}
            columns["topic"] = names.take(cells["topic"].combine_chunks())
            columns = {**dict(zip(cells.column_names, cells.columns, strict=True)), **columns}
            found.append(pa.table(columns).select(COUNTS.names).cast(COUNTS))
        return pa.concat_tables(found)


POINTS = 200
"""Steps of time of a result, at most about, unless a width is asked for."""

_OF_RANGES = {
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "failondataloss",
    "pointfile",
    "maxpartitionbytes",
}
"""The options that choose ranges; the others choose records."""


@frozen(kw_only=True)
class Spread:
    """How a number is spread.

    @ivar low: The least; exact, as L{high}.
    @ivar p50: What half of all are not above; within 3 %, as L{p90} and L{p99}.
    @ivar high: The greatest.
    """

    low: int
    p50: int
    p90: int
    p99: int
    high: int

    @classmethod
    def of(cls, counts: dict[int, int], low: int, high: int) -> Self:
        """Make it from a histogram's buckets, by their numbers."""
        middles = (percentile(counts, part) for part in (0.5, 0.9, 0.99))
        p50, p90, p99 = (min(max(each, low), high) for each in middles)
        return cls(low=low, p50=p50, p90=p90, p99=p99, high=high)


@frozen(kw_only=True)
class QueueStats:
    """One queue.

    @ivar first: The least queue offset; halves and rollbacks have 0.
    @ivar last: The greatest.
    @ivar earliest: The first store time, in milliseconds since 1970.
    @ivar latest: The last one.
    @ivar bytes: Of records.
    """

    store: str
    topic: str
    queue_id: int
    messages: int
    bytes: int
    first: int
    last: int
    earliest: int
    latest: int


@frozen(kw_only=True)
class TopicSummary:
    """One topic, of all stores.

    @ivar queues: How many queues it has messages in.
    @ivar bytes: Of records.
    @ivar body_bytes: Of bodies.
    @ivar per_second: Messages a second between the first and the last; 0 for one moment.
    @ivar sizes: Of bodies, in bytes.
    @ivar delays: Store time minus born time, in milliseconds.
    @ivar retries: How many messages were delivered so often before, by how often.
    """

    topic: str
    queues: int
    messages: int
    bytes: int
    body_bytes: int
    earliest: int
    latest: int
    per_second: float
    sizes: Spread
    delays: Spread
    retries: dict[int, int]

    @property
    def retried(self) -> int:
        """Messages that were delivered before."""
        return sum(count for times, count in self.retries.items() if times > 0)


@frozen(kw_only=True)
class TimeStep:
    """What a queue got in one step of time.

    @ivar time: When it began, in milliseconds since 1970.
    """

    store: str
    topic: str
    queue_id: int
    time: int
    messages: int
    bytes: int


@frozen(kw_only=True)
class Stats:
    """What a log holds.

    @ivar step: Milliseconds of a step of time.
    @ivar topics: The most messages first.
    @ivar queues: By store, topic and queue id.
    @ivar steps: By time; those without messages are left out.
    @ivar sizes: Messages by topic and bucket of body size, for plots.
    @ivar delays: The same of delays.
    """

    step: int
    messages: int
    bytes: int
    topics: tuple[TopicSummary, ...]
    queues: tuple[QueueStats, ...]
    steps: tuple[TimeStep, ...]
    sizes: dict[str, dict[int, int]]
    delays: dict[str, dict[int, int]]

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        del found["sizes"], found["delays"]
        return found


def stats(
    spark: SparkSession,
    stores: Stores,
    *,
    step: int | None = None,
    shown: Shown = silent,
    **options: object,
) -> Stats:
    """Count what logs hold.

    @param stores: One store's root, or several by name.
    @param step: Milliseconds of a step of time; without it there are about L{POINTS} of them.
    @param shown: Shows how far the tasks are.
    @param options: Options of the data source that choose records: C{topic},
        C{startingTimestamp}, ...  Without C{visibility} every record counts.
    @raise PipelineError: If a log cannot be read to its end.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given.setdefault("visibility", "log")
    parsed = ReadOptions.parse({**options_for(stores), **given})
    of_ranges = {name: value for name, value in given.items() if name.lower() in _OF_RANGES}
    ranges = ranges_of(spark, stores, **of_ranges)
    table = run(ranges, Counting(options=parsed, step=step), COUNTS, shown)
    return summed(table.to_pylist(), step)


Row = dict[str, Any]


def summed(rows: Iterable[Row], step: int | None) -> Stats:
    """Put together what the tasks counted."""
    by_what: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_what[row["what"]].append(row)
    steps, width = _steps(by_what[Counted.TIME], step)
    queues = _queues(by_what[Counted.QUEUE], by_what[Counted.STORED])
    sizes, delays, retries = (
        _by_topic(by_what[what]) for what in (Counted.SIZE, Counted.DELAY, Counted.RETRY)
    )
    bodies = _totals(by_what[Counted.STORED])
    topics = []
    for topic in sizes:
        mine = [queue for queue in queues if queue.topic == topic]
        messages = sum(queue.messages for queue in mine)
        earliest = min(queue.earliest for queue in mine)
        latest = max(queue.latest for queue in mine)
        seconds = (latest - earliest) / 1000
        found = TopicSummary(
            topic=topic,
            queues=len(mine),
            messages=messages,
            bytes=sum(queue.bytes for queue in mine),
            body_bytes=bodies[topic],
            earliest=earliest,
            latest=latest,
            per_second=messages / seconds if seconds > 0 else 0.0,
            sizes=_spread(sizes[topic], by_what[Counted.SIZE], topic),
            delays=_spread(delays[topic], by_what[Counted.DELAY], topic),
            retries=dict(sorted(retries[topic].items())),
        )
        topics.append(found)
    topics.sort(key=lambda each: (-each.messages, each.topic))
    return Stats(
        step=width,
        messages=sum(each.messages for each in topics),
        bytes=sum(each.bytes for each in topics),
        topics=tuple(topics),
        queues=tuple(queues),
        steps=tuple(steps),
        sizes=sizes,
        delays=delays,
    )


def _steps(rows: list[Row], asked: int | None) -> tuple[list[TimeStep], int]:
    """The steps of all tasks in the width of the widest, or wider for fewer of them."""
    width = asked or max((row["step"] for row in rows), default=FINEST)
    times = [row["low"] for row in rows] + [row["high"] for row in rows]
    while asked is None and times and (max(times) - min(times)) // width > POINTS:
        width *= 2
    found: dict[tuple[int, str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        time = row["key"] * row["step"] // width * width
        cell = found[time, row["store"], row["topic"], row["queue_id"]]
        cell[0] += row["count"]
        cell[1] += row["total"]
    steps = [
        TimeStep(
            store=store, topic=topic, queue_id=queue, time=time, messages=cell[0], bytes=cell[1]
        )
        for (time, store, topic, queue), cell in sorted(found.items())
    ]
    return steps, width


def _queues(rows: list[Row], stored: list[Row]) -> list[QueueStats]:
    found: dict[tuple[str, str, int], QueueStats] = {}
    offsets, times = _grouped(rows), _grouped(stored)
    for key in sorted(offsets):
        mine, when = offsets[key], times[key]
        found[key] = QueueStats(
            store=key[0],
            topic=key[1],
            queue_id=key[2],
            messages=sum(row["count"] for row in mine),
            bytes=sum(row["total"] for row in mine),
            first=min(row["low"] for row in mine),
            last=max(row["high"] for row in mine),
            earliest=min(row["low"] for row in when),
            latest=max(row["high"] for row in when),
        )
    return list(found.values())


def _grouped(rows: list[Row]) -> dict[tuple[str, str, int], list[Row]]:
    found: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["store"], row["topic"], row["queue_id"]].append(row)
    return found


def _by_topic(rows: list[Row]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        found[row["topic"]][row["key"]] += row["count"]
    return {topic: dict(counts) for topic, counts in found.items()}


def _totals(rows: list[Row]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in rows:
        found[row["topic"]] += row["total"]
    return found


def _spread(counts: dict[int, int], rows: list[Row], topic: str) -> Spread:
    mine = [row for row in rows if row["topic"] == topic]
    return Spread.of(counts, min(row["low"] for row in mine), max(row["high"] for row in mine))
