"""What queues ask of runs of units.

A few are looked at one by one: most of many queues have few, and arrays for them cost ten times
as much.

Source: docs/protocol/store.rst, Consume queues.
"""

from __future__ import annotations

import numpy as np

from rmqha.wire.columnar.queue_units import UNIT, UNIT_TYPE
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

FEW = 16
"""Units up to which arrays are not worth it."""


def sound_prefix(raw: bytes, reached: int) -> tuple[int, int]:
    """Count the leading units that can be true: each follows the one before it in the log.

    @param raw: Whole units.
    @param reached: Physical offset just past the record of the unit before them.
    @return: How many, and where the last of them reaches.
    """
    # Behind the last byte that is not zero there is no unit: none has size 0.
    raw = raw[: -(-len(raw.rstrip(b"\0")) // UNIT_SIZE) * UNIT_SIZE]
    if len(raw) <= FEW * UNIT_SIZE:
        return _sound_few(raw, reached)
    units = np.frombuffer(raw, UNIT_TYPE)
    starts = units["offset"].astype(np.int64)
    sizes = units["size"].astype(np.int64)
    blank = (sizes == BLANK_SIZE) & (starts == 0)
    ends = np.maximum.accumulate(np.where(blank, reached, starts + sizes))
    before = np.concatenate(([reached], ends[:-1]))
    good = blank | ((sizes > 0) & (starts >= before))
    count = len(good) if good.all() else int(good.argmin())
    return count, int(ends[count - 1]) if count else reached


def _sound_few(raw: bytes, reached: int) -> tuple[int, int]:
    count = 0
    for start, size, _ in UNIT.iter_unpack(raw):
        if size != BLANK_SIZE or start != 0:
            if size <= 0 or start < reached:
                break
            reached = start + size
        count += 1
    return count, reached


def last_below(raw: bytes, limit: int) -> int:
    """Count the units up to the last real one whose record ends at or below C{limit}."""
    if len(raw) <= FEW * UNIT_SIZE:
        count = 0
        for number, (start, size, _) in enumerate(UNIT.iter_unpack(raw), 1):
            if start + size <= limit and size != BLANK_SIZE:
                count = number
        return count
    units = np.frombuffer(raw, UNIT_TYPE)
    sizes = units["size"].astype(np.int64)
    good = (units["offset"] + sizes <= limit) & (sizes != BLANK_SIZE)
    return len(good) - int(good[::-1].argmax()) if good.any() else 0


def first_from(raw: bytes, log_min: int) -> int | None:
    """The number of the first real unit whose record starts at or above C{log_min}."""
    if len(raw) <= FEW * UNIT_SIZE:
        for number, (start, size, _) in enumerate(UNIT.iter_unpack(raw)):
            if start >= log_min and size != BLANK_SIZE:
                return number
        return None
    units = np.frombuffer(raw, UNIT_TYPE)
    good = (units["offset"] >= log_min) & (units["size"] != BLANK_SIZE)
    return int(good.argmax()) if good.any() else None


def first_difference(held: bytes, wanted: bytes, count: int) -> int | None:
    """The number of the first of C{count} units that is not the same in both."""
    size = count * UNIT_SIZE
    if held[:size] == wanted[:size] and len(held) >= size:
        return None
    there = min(count, len(held) // UNIT_SIZE)
    differs = np.frombuffer(held, UNIT_TYPE, there) != np.frombuffer(wanted, UNIT_TYPE, there)
    return int(differs.argmax()) if differs.any() else there
