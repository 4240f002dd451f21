"""
Finding a place in a queue by time.

Source: docs/protocol/store.rst, Consume queues.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.wire.store_layout import BLANK_SIZE


def offset_by_time(
    queue: ConsumeQueue, timestamp: int, store_time: Callable[[int], int | None]
) -> int:
    """
    Give the queue offset whose message was stored nearest to a time.

    @param timestamp: Milliseconds since the epoch.
    @param store_time: Store time in milliseconds of the record at a physical offset,
        C{None} when it cannot be read (taken for "too early").
    @return: The first message of exactly that time; else the nearer neighbour, the
        earlier one on a tie; 0 in an empty queue.
    """
    times: dict[int, int] = {}

    def early(offset: int) -> bool:
        unit = queue.unit(offset)
        time = store_time(unit[0]) if unit is not None and unit[1] != BLANK_SIZE else None
        if time is None:
            return True
        times[offset] = time
        return time < timestamp

    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        if early(middle):
            low = middle + 1
        else:
            high = middle
    before, after = times.get(low - 1), times.get(low)
    if after is None:
        return 0 if before is None else low - 1
    if before is not None and timestamp - before <= after - timestamp:
        return low - 1
    return low
