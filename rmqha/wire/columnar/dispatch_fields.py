"""What dispatch needs from many records at once.

The results are those of L{rmqha.wire.log.record.dispatch_fields}, row by row.  Rows that
are unusual go through it: properties that are not ASCII (Java hashes UTF-16 units,
not bytes) and delayed messages (their tags code is a time).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqha.wire.columnar.kernels import chosen, columns
from rmqha.wire.columnar.kernels_numpy import DispatchRows
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import key_hash
from rmqha.wire.log.record import DispatchFields, dispatch_fields
from rmqha.wire.names import SCHEDULE_TOPIC


def fields(buf: memoryview, block: Block, levels: DelayLevels) -> DispatchRows:
    """Read the dispatch fields of a block's records.

    @param buf: The buffer that was given to L{walk<rmqha.wire.columnar.record_blocks.walk>}.
    @param levels: The broker's delay levels.
    """
    loops = chosen()
    if not loops.compiled or len(block.start) <= loops.few:
        return _few(buf, block, levels)
    start = block.start - block.base
    found, is_ascii = columns(buf, start, start + block.size)
    unusual = ~is_ascii
    if SCHEDULE_TOPIC in found.topics:
        unusual |= found.topic == found.topics.index(SCHEDULE_TOPIC)
    rows = np.flatnonzero(unusual)
    if not len(rows):
        return found
    slow = _scalar(buf, block, rows, levels)
    found.tags_code[rows] = [row.tags_code for row in slow]
    usual = ~unusual[found.key_record]
    slow_record, slow_hashes = _keys(rows, slow)
    record = np.concatenate((found.key_record[usual], slow_record))
    hashes = np.concatenate((found.key_hash[usual], slow_hashes))
    order = np.argsort(record, kind="stable")
    return found._replace(key_record=record[order].astype(np.int32), key_hash=hashes[order])


def _scalar(
    buf: memoryview, block: Block, rows: Array, levels: DelayLevels
) -> list[DispatchFields]:
    starts, sizes = block.start[rows].tolist(), block.size[rows].tolist()
    return [
        dispatch_fields(buf, start - block.base, size, start, levels)
        for start, size in zip(starts, sizes, strict=True)
    ]


def _keys(rows: Array, fields: Sequence[DispatchFields]) -> tuple[Array, Array]:
    pairs = [
        (row, key_hash(record.topic, key))
        for row, record in zip(rows.tolist(), fields, strict=True)
        for key in record.keys
    ]
    record, hashes = np.array(pairs, np.int64).reshape(-1, 2).T
    return record, hashes


def _few(buf: memoryview, block: Block, levels: DelayLevels) -> DispatchRows:
    """Do with the scalar codec what would not repay a call's fixed cost, and all where nothing is
    compiled.
    """
    rows = np.arange(len(block.start))
    slow = _scalar(buf, block, rows, levels)
    numbers = {name: number for number, name in enumerate({row.topic: None for row in slow})}
    record, hashes = _keys(rows, slow)
    return DispatchRows(
        topics=list(numbers),
        topic=np.array([numbers[row.topic] for row in slow], np.int32),
        queue_id=np.array([row.queue_id for row in slow], np.int32),
        queue_offset=np.array([row.queue_offset for row in slow], np.int64),
        sys_flag=np.array([row.sys_flag for row in slow], np.int32),
        store_timestamp=np.array([row.store_timestamp for row in slow], np.int64),
        tags_code=np.array([row.tags_code for row in slow], np.int64),
        key_record=record.astype(np.int32),
        key_hash=hashes,
    )
