"""Units of a consume queue: 20 bytes that say where a message lies in the log.

Physical offset (i64), size (i32), tags code (i64).  A pre-blank unit stands where a
queue has no message.

Source: docs/protocol/store.rst, Consume queues and Dispatch.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

from rmqha.wire.columnar.dispatch_fields import DispatchRows
from rmqha.wire.columnar.record_blocks import Block
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
    chosen = np.flatnonzero(rows.has_unit)
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
