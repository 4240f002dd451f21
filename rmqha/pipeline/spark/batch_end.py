"""How far the next batch of a stream goes.

A batch ends between two records, holds at least one, and keeps to the limits.  Several
logs share a limit by what each has left, so that none starves and all end together.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from logging import getLogger

from attrs import evolve, frozen

from rmqha.pipeline.log.errors import DataLost, RangeBroken
from rmqha.pipeline.log.log_walk import boundary
from rmqha.pipeline.log.options import MissingStores, ReadOptions
from rmqha.pipeline.log.positions import Position, make
from rmqha.pipeline.log.stores import StoreView

_log = getLogger(__name__)


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
        lost = DataLost(store.name, low, high)
        if options.fail_on_data_loss:
            raise lost
        _log.warning("skipping bytes of the log: %s", lost)
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
