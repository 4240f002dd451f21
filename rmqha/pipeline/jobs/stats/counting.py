"""Counting a range's messages by topic, queue and time, in Spark's tasks.

A task gives back a few hundred rows, whatever its range holds: time is counted in steps that
grow until there are not too many of them.  Steps are a width times a power of two, so those
of all tasks fit together.

Source: docs/guide/jobs.rst, Stats.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field, frozen

from rmqha.pipeline.jobs.proven_records import proved
from rmqha.pipeline.jobs.stats.tally import CELLS, buckets, records, tallied
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
        ("what", pa.string()),
        ("store", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int64()),
        ("key", pa.int64()),
        ("step", pa.int64()),
        ("count", pa.int64()),
        ("total", pa.int64()),
        ("low", pa.int64()),
        ("high", pa.int64()),
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
        """Count the records of a range."""
        counts = RangeCounts(self.step or FINEST, self.step is None)
        selection = Selection.of(self.options)
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
