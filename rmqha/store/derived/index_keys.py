"""
Blocks of the log as columns: what the index takes from many records at once.

Source: docs/protocol/store.rst, Dispatch.
"""

from __future__ import annotations

from rmqha.logfiles.reader import LogReader
from rmqha.wire.columnar.dispatch_fields import DispatchRows
from rmqha.wire.columnar.record_blocks import Block, walk
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.record import Fault


def read_block(
    log: LogReader, position: int, window: int, max_record: int
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


def keys(block: Block, rows: DispatchRows) -> tuple[Array, Array, Array]:
    """
    Key hash, physical offset and store time of every index entry of a block.
    """
    record, hashes = rows.key_record, rows.key_hash
    if not rows.indexable.all():
        kept = rows.indexable[record]
        record, hashes = record[kept], hashes[kept]
    return hashes, block.start[record], rows.store_timestamp[record]
