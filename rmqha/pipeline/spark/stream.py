"""A log as a stream of Spark's: where it stands, how far the next batch goes.

A batch is planned again from its two positions after a restart, maybe on another machine
and from another copy of the log, so both are proved before a range is made of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rmqha.errors import NotAStore, RmqhaError
from rmqha.logfiles.listing import root_of
from rmqha.logfiles.log_files import settling
from rmqha.pipeline.log.errors import (
    CopyBehind,
    LogEndsBefore,
    PositionInvalid,
    RangeBroken,
    StoresDiffer,
)
from rmqha.pipeline.log.log_walk import boundary
from rmqha.pipeline.log.options import ROWS_MAX, MissingStores, ReadOptions
from rmqha.pipeline.log.positions import Position, from_json, make, to_json
from rmqha.pipeline.log.ranges import at_least, hint_at_topics, pass_over, ranges_between, starting
from rmqha.pipeline.log.reading import PATIENCE
from rmqha.pipeline.log.stores import StoreView, open_stores
from rmqha.pipeline.spark.batch import RangePartition, TaskRows
from rmqha.tier.joined_log import only_tier
from rmqha.wire.store_layout import OWN_FOLDER, READERS

_log = getLogger(__name__)


def tell_offset(path: Path, name: str, offset: int) -> None:
    """Tell a store how far a named reader is, for its node to show.  Nothing of the reader depends
    on it, so a store that cannot be written to is read all the same.

    @param path: The store.
    @param name: The reader's.
    @param offset: Physical offset up to which its rows are where they belong.
    """
    file = root_of(path) / OWN_FOLDER / READERS / f"{name}.json"
    text = json.dumps({"offset": offset, "time": round(time.time() * 1000)}, sort_keys=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        _log.warning("cannot write the offset of reader %s: %s", name, error)


_POLL = 0.1
"""Seconds between two looks at a copy that is behind."""


@frozen
class BatchLimits:
    """The most a batch may hold; C{None} is no limit.

    @ivar size: Bytes of the log.
    @ivar rows: Records, before any selection.
    """

    size: int | None = None
    rows: int | None = None


def shares(limits: BatchLimits, backlog: Mapping[str, int]) -> dict[str, BatchLimits]:
    """Divide limits among logs.

    @param backlog: Bytes that each log has left.
    """
    total = sum(max(0, left) for left in backlog.values())

    def part(whole: int | None, left: int) -> int | None:
        return None if whole is None else max(1, whole * max(0, left) // max(1, total))

    return {
        name: BatchLimits(part(limits.size, left), part(limits.rows, left))
        for name, left in backlog.items()
    }


def advance(
    store: StoreView, position: Position, end: int, limits: BatchLimits, options: ReadOptions
) -> Position:
    """The position at the end of the next batch.

    @param position: The position at its start.
    @param end: How far the log may be read.
    @return: C{position} itself if there is nothing more.
    @raise DataLost: If what comes next is deleted, and that is not allowed.
    """
    start = position.offset
    if end <= start:
        return position
    for low, high in store.files.missing(start, end):
        if low > start:
            end = low
            break
        pass_over(store, low, high, options)
        start = high
    alone = options.missing_stores is MissingStores.FAIL
    if limits.size is None and limits.rows is None and alone:
        # Nothing has to be counted, so only the last records have to be walked.
        start = max(start, store.anchor(end - 1))
    walked = partial(boundary, store.files, start, size=limits.size, rows=limits.rows)
    # Damage that a task met would fail the batch of all stores: it must not get there.
    careful = partial(walked, behind=store.behind, crc=not alone and not store.tolerant)
    try:
        found = careful(end)
    except RangeBroken as error:
        if alone or error.offset <= start:
            raise
        found = careful(error.offset)
    if not found.rows:
        return evolve(position, offset=max(start, found.offset))
    made = make(store.files, found.offset, found.last, store.identity)
    # What an older release began ends its beginning here.
    seen = store.end if position.seen < 0 else position.seen
    return evolve(made, begun=position.begun, seen=seen)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the batches of a stream."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows = TaskRows(options, schema)
        self._targets: dict[str, int] | None = None
        self._planned_to: dict[str, Position] = {}
        self._held_up: dict[str, Exception] = {}
        self._states: dict[str, str] = {}
        self._batch_at: float | None = None
        self._views: dict[str, StoreView] = {}

    @settling
    def initialOffset(self) -> dict[str, Any]:
        """Where a stream without a checkpoint begins."""
        stores = self._stores()
        hint_at_topics(stores, self._options)
        found = self._with_new({}, stores)
        ends = self._ends(stores)
        return to_json({name: evolve(each, seen=ends[name]) for name, each in found.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        """The bytes of a batch, or its rows: for both Spark has no name, and rows are counted here
        in any case.  It is never all there is: by that Spark says that it looks once.
        """
        size, rows = self._options.max_bytes_per_trigger, self._options.max_rows_per_trigger
        return ReadMaxRows(rows or ROWS_MAX) if size is None else ReadMaxBytes(size)

    @settling
    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where the logs end now."""
        self._targets = self._ends(self._stores())

    @settling
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes; the start itself if there is nothing new."""
        positions = from_json(start)
        stores = self._looked(positions)
        positions = {name: each for name, each in positions.items() if not self._gone(name)}
        ends = self._ends(stores)
        known = []
        for store in stores:
            with self._held(store.name):
                if store.name in ends and self._reached(store, positions):
                    known.append(store)
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        once = isinstance(limit, ReadAllAvailable)
        limits = BatchLimits(size, None if once else self._options.max_rows_per_trigger)
        backlog = {store.name: ends[store.name] - positions[store.name].offset for store in known}
        if not once and self._targets is None and self._too_few(backlog):
            known = []
        parts = shares(limits, backlog)
        after = dict(positions)
        for store in known:
            name = store.name
            with self._held(name):
                after[name] = advance(
                    store, positions[name], ends[name], parts[name], self._options
                )
        self._planned_to = self._with_new(after, stores)
        before, self._states = self._states, {n: str(e) for n, e in self._held_up.items()}
        for name, state in self._states.items():
            if state != before.get(name):
                _log.warning("store %s is held up: %s", name, state)
        return to_json(self._planned_to)

    def _too_few(self, backlog: Mapping[str, int]) -> bool:
        """Whether more should come before there is a batch."""
        least, now = self._options.min_bytes_per_trigger, time.monotonic()
        since = now if self._batch_at is None else self._batch_at
        late = now - since >= self._options.max_trigger_delay
        few = least is not None and sum(backlog.values()) < least and not late
        self._batch_at = since if few else now
        return few

    def _with_new(
        self, positions: dict[str, Position], stores: list[StoreView]
    ) -> dict[str, Position]:
        """Positions with those of stores that have none yet, pinned where they begin."""
        found = dict(positions)
        for store in stores:
            if store.name not in found:
                with self._held(store.name):
                    found[store.name] = self._initial(store)
        return found

    @settling
    def reportLatestOffset(self) -> dict[str, Any]:
        """Where the logs end, for Spark's progress."""
        # From where the last batch ends: what is below was followed already.
        ends = self._ends(self._looked(self._planned_to))
        states = {**self._states, **{name: str(error) for name, error in self._held_up.items()}}
        places = {name: each.offset for name, each in self._planned_to.items()}
        known = {**dict.fromkeys(states, 0), **places, **ends}
        return to_json({name: Position(offset) for name, offset in known.items()}, states)

    @settling
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks between two positions."""
        before, after = from_json(start), from_json(end)
        stores = self._stores(after)
        moved = {
            name: (before.get(name), last)
            for name, last in after.items()
            if before.get(name) != last
        }
        found: list[InputPartition] = []
        pairs = moved.values()
        size = sum(last.offset - first.offset for first, last in pairs if first is not None)
        options = at_least(self._options, size)
        for store in stores:
            first, last = moved.pop(store.name, (None, None))
            if first is None or last is None:
                continue
            if first.offset > last.offset:
                raise PositionInvalid(str(after), f"the position of store {store.name} moves back")
            store = self._proved(store, first, last)
            ranges = ranges_between(store, first.offset, last.offset, options, last)
            found += [RangePartition(each) for each in ranges]
        for name, (first, last) in moved.items():
            if first is None:
                continue
            if not self._gone(name):
                raise self._held_up[name]
            _log.warning("skipping store %s up to byte %d", name, last.offset)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.of(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the store how far this reader is, if it has a name."""
        name, positions = self._options.reader_name, from_json(end)
        if name is not None:
            for store, path in self._options.now(positions).stores:
                if store in positions and path != only_tier(self._options.tier_of(store)):
                    tell_offset(path, name, positions[store].offset)

    def stop(self) -> None:
        """Called by Spark; nothing is open between batches."""

    # --- stores -------------------------------------------------------------

    def _looked(self, positions: dict[str, Position]) -> list[StoreView]:
        """The stores for who only asks what is new: those without anything new as they were."""
        stores = self._stores(positions, self._views)
        self._views = {store.name: store for store in stores}
        return stores

    def _stores(
        self,
        positions: dict[str, Position] | None = None,
        before: Mapping[str, StoreView] | None = None,
    ) -> list[StoreView]:
        """The stores as they are now, and what holds others up.

        @param before: As L{open_stores} takes it.
        @raise StoresDiffer: If a position is of a store that is not given any more.
        @raise NoPublishedPoint: If a store has no published point.
        """
        self._held_up = {}
        options = self._options.now(positions or ())
        for name in (positions or {}).keys() - set(options.names):
            self._hold(name, StoresDiffer(name, options.names))
        waits = options.missing_stores is not MissingStores.FAIL
        stores = []
        for store in open_stores(options, positions, self._hold if waits else None, before):
            with self._held(store.name):
                store.require_point(options)
                stores.append(store)
        return stores

    def _hold(self, name: str, error: Exception) -> None:
        if self._options.missing_stores is MissingStores.FAIL:
            raise error
        self._held_up[name] = error

    def _gone(self, name: str) -> bool:
        """Whether a store is not there, and is to be forgotten then."""
        skips = self._options.missing_stores is MissingStores.SKIP
        return skips and isinstance(self._held_up.get(name), (NotAStore, StoresDiffer))

    @contextmanager
    def _held(self, name: str) -> Iterator[None]:
        """Let what is wrong with a store hold up that store alone, if that is wanted."""
        try:
            yield
        except (RmqhaError, PermissionError) as error:
            self._hold(name, error)

    def _ends(self, stores: list[StoreView]) -> dict[str, int]:
        """How far stores may be read."""
        ends = {}
        for store in stores:
            with self._held(store.name):
                ends[store.name] = self._end(store)
        return ends

    def _reached(self, store: StoreView, positions: dict[str, Position]) -> bool:
        position = positions.get(store.name)
        if position is None:
            return False
        if store.verify(position):
            return True
        behind = LogEndsBefore(store.name, position.offset, store.end)
        if self._targets is not None:
            raise behind  # what ends with what is there now would never come to it
        self._held_up[store.name] = behind
        return False

    def _initial(self, store: StoreView) -> Position:
        start = starting(store, self._options)
        # What a stream has met only since it began is new to it.
        return evolve(store.position(start), begun=start, seen=0)

    def _end(self, store: StoreView) -> int:
        if self._targets is None:
            return store.end
        return min(store.end, self._targets.get(store.name, store.end))

    def _proved(self, store: StoreView, start: Position, end: Position) -> StoreView:
        """Wait until a copy reaches a position, and prove both.

        @raise CopyBehind: If it does not in time.
        """
        limit = time.monotonic() + PATIENCE
        while not (store.verify(start) and store.verify(end) and store.end >= end.offset):
            if time.monotonic() >= limit:
                raise CopyBehind(store.name, end.offset, store.end)
            time.sleep(_POLL)
            store = store.again(self._options)
        return store
