"""Units of a consume queue: 20 bytes that say where a message lies in the log.

Physical offset (i64), size (i32), tags code (i64).  A pre-blank unit stands where a
queue has no message.

Source: docs/protocol/store.rst, Consume queues and Dispatch.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

from rmqha.wire.columnar.kernels_numpy import DispatchRows
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.sys_flag import has_unit
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

UNIT = Struct(">qiq")
"""A unit of a consume queue: its record's offset in the log, its size in bytes, and the code of its
tags."""
UNIT_TYPE = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
"""L{UNIT} as numpy reads it."""

# What RocketMQ writes where a queue has no message (its fillPreBlank).
BLANK_UNIT = UNIT.pack(0, BLANK_SIZE, 0)

OFFSET_MAX = 1 << 58
"""Queue offsets lie below: 20 times one must fit 63 bits."""

SIZES = tuple(1024 * size for size in (1, 4, 512, 1024, 2048, 4096))
"""What RocketMQ 5.x shows sizes of messages by, in bytes."""

QueueRun = tuple[tuple[str, int], int, bytes]
"""Topic and queue id, queue offset of the first unit, raw units of consecutive queue offsets."""

FEW = 16
"""Units up to which arrays are not worth it: most of many queues have few, and arrays for them cost
ten times as much."""

# A folder's name is limited by the file system.
_NAME_MAX = 255


def fileable(topic: str, queue_id: int) -> bool:
    """Whether a queue can have a folder: any text can stand in a record."""
    return (
        queue_id >= 0
        and topic not in ("", ".", "..")
        and "/" not in topic
        and "\0" not in topic
        and len(topic.encode("utf-8", "surrogateescape")) <= _NAME_MAX
    )


def grouped_units(block: Block, rows: DispatchRows) -> list[QueueRun]:
    """Sort a block's units by queue.

    @return: Topic and queue id, queue offset of the first unit, and the raw units of
        one run of consecutive queue offsets, in the order of the log for each queue.
    """
    chosen = np.flatnonzero(has_unit(rows.sys_flag))
    if not len(chosen):
        return []
    queue = (rows.topic.astype(np.int64) << 32) | (rows.queue_id.astype(np.int64) & 0xFFFFFFFF)
    order = chosen[np.argsort(queue[chosen], kind="stable")]
    queue = queue[order]
    offset = rows.queue_offset[order]
    units = np.empty(len(order), UNIT_TYPE)
    units["offset"] = block.start[order]
    units["size"] = block.size[order]
    units["tags"] = rows.tags_code[order]
    raw = units.tobytes()
    breaks = (queue[1:] != queue[:-1]) | (offset[1:] != offset[:-1] + 1)
    starts = [0, *(np.flatnonzero(breaks) + 1).tolist()]
    ends = [*starts[1:], len(order)]
    heads = order[starts]
    topics = rows.topic[heads].tolist()
    ids = rows.queue_id[heads].tolist()
    firsts = rows.queue_offset[heads].tolist()
    return [
        ((rows.topics[topic], queue_id), first, raw[start * UNIT_SIZE : end * UNIT_SIZE])
        for topic, queue_id, first, start, end in zip(
            topics, ids, firsts, starts, ends, strict=True
        )
    ]


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
