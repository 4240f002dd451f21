"""
Blocks of the log as columns: what queues and index take from many records at once.

Source: docs/protocol/store.rst, Dispatch.
"""

from __future__ import annotations

import numpy as np

from rmqha.store.interfaces import ILogReader
from rmqha.store.unit import UNIT_SIZE, UNIT_TYPE
from rmqha.wire.blocks import Block, walk
from rmqha.wire.fields import Fields
from rmqha.wire.record import Fault
from rmqha.wire.vectors import Array


def read_block(
    log: ILogReader, position: int, window: int, max_record: int
) -> tuple[memoryview, Block]:
    """
    Read whole confirmed records from a record start on, without checking bodies.

    @param window: About how many bytes; more when the first record is longer.
    @return: The bytes and the records in them; a block without records, blank and
        progress has its fault set.
    """
    file_end = log.file_end(position)
    while True:
        limit = min(log.confirmed, file_end, position + window)
        buf = log.read(position, limit - position)
        block = walk(buf, position, position + len(buf), file_end, crc=False, max_size=max_record)
        whole = limit == min(log.confirmed, file_end)
        if block.end > position or block.fault is not Fault.INCOMPLETE or whole:
            return buf, block
        # Only the first record or blank matters: it says how much there has to be.
        window = max(window + 8, int.from_bytes(buf[:4], "big", signed=True))


def grouped_units(block: Block, rows: Fields) -> list[tuple[tuple[str, int], int, bytes]]:
    """
    Sort a block's units by queue.

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


def keys(block: Block, rows: Fields) -> tuple[Array, Array, Array]:
    """
    Key hash, physical offset and store time of every index entry of a block.
    """
    record, hashes = rows.key_record, rows.key_hash
    if not rows.indexable.all():
        kept = rows.indexable[record]
        record, hashes = record[kept], hashes[kept]
    return hashes, block.start[record], rows.store_timestamp[record]
