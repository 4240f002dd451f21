"""What dispatch needs from many records at once.

The results are those of L{rmqha.wire.log.record.dispatch_fields}, row by row.  Rows that
are unusual go through it: properties that are not ASCII (Java hashes UTF-16 units,
not bytes) and delayed messages (their tags code is a time).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import field, frozen

from rmqha.wire.columnar.kernels import chosen
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import key_hash
from rmqha.wire.log.record import DispatchFields, dispatch_fields
from rmqha.wire.log.sys_flag import has_unit, indexable
from rmqha.wire.names import SCHEDULE_TOPIC


@frozen(kw_only=True, eq=False)
class DispatchRows:
    """The dispatch fields of a block's records, one row a record.

    @ivar topics: The topics that occur, each once.
    @ivar topic: Index into C{topics}, C{int32}.
    @ivar queue_id: C{int32}.
    @ivar queue_offset: C{int64}.
    @ivar sys_flag: C{int32}.
    @ivar store_timestamp: Milliseconds since the epoch, C{int64}.
    @ivar tags_code: Hash of the tags, or when a delayed message is due, in
        milliseconds since the epoch; C{int64}.
    @ivar has_unit: Whether the record gets a queue unit (no transaction, or COMMIT).
    @ivar indexable: Whether its keys are indexed (anything but ROLLBACK).
    @ivar key_record: The row of each key, C{int32}: rows ascend, and in a row comes
        UNIQ_KEY, then the words of KEYS.  Rows that are not indexable are here too.
    @ivar key_hash: The hash an index entry holds for that key, C{int64}.
    """

    topics: list[str]
    topic: Array = field(repr=False)
    queue_id: Array = field(repr=False)
    queue_offset: Array = field(repr=False)
    sys_flag: Array = field(repr=False)
    store_timestamp: Array = field(repr=False)
    tags_code: Array = field(repr=False)
    has_unit: Array = field(repr=False)
    indexable: Array = field(repr=False)
    key_record: Array = field(repr=False)
    key_hash: Array = field(repr=False)


def fields(buf: memoryview, block: Block, levels: DelayLevels) -> DispatchRows:
    """Read the dispatch fields of a block's records.

    @param buf: The buffer that was given to L{walk<rmqha.wire.columnar.record_blocks.walk>}.
    @param levels: The broker's delay levels.
    """
    loops = chosen()
    if loops.columns is None or len(block.start) <= loops.few:
        return _few(buf, block, levels)
    start = block.start - block.base
    found = loops.columns(buf, start, start + block.size)
    tags_code, record, hashes = found.tags, found.key_record, found.key_hash
    unusual = ~found.ascii
    if SCHEDULE_TOPIC in found.topics:
        unusual |= found.topic == found.topics.index(SCHEDULE_TOPIC)
    rows = np.flatnonzero(unusual)
    if len(rows):
        slow = _scalar(buf, block, rows, levels)
        tags_code[rows] = [row.tags_code for row in slow]
        usual = ~unusual[record]
        slow_record, slow_hashes = _keys(rows, slow)
        record = np.concatenate((record[usual], slow_record))
        order = np.argsort(record, kind="stable")
        record, hashes = record[order], np.concatenate((hashes[usual], slow_hashes))[order]
    return DispatchRows(
        topics=found.topics,
        topic=found.topic,
        queue_id=found.queue_id,
        queue_offset=found.queue_offset,
        sys_flag=found.sys_flag,
        store_timestamp=found.store_timestamp,
        tags_code=tags_code,
        has_unit=has_unit(found.sys_flag),
        indexable=indexable(found.sys_flag),
        key_record=record.astype(np.int32, copy=False),
        key_hash=hashes,
    )


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
        has_unit=np.array([row.has_unit for row in slow], np.bool_),
        indexable=np.array([row.indexable for row in slow], np.bool_),
        key_record=record.astype(np.int32),
        key_hash=hashes,
    )
