"""Reading records for dispatch as columns.

What they bring comes sorted by queue, and each queue and the index are written once for all of
them.

Source: docs/protocol/store.rst, Dispatch.
"""

from __future__ import annotations

from rmqha.errors import RecordCorrupt
from rmqha.logfiles.reader import LogReader
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.kernels_numpy import DispatchRows
from rmqha.wire.columnar.queue_units import grouped_units
from rmqha.wire.columnar.record_blocks import Block, walk
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.record import Fault
from rmqha.wire.log.sys_flag import indexable
from rmqha.wire.store_layout import UNIT_SIZE


def read_block(log: LogReader, position: int, end: int, window: int) -> tuple[memoryview, Block]:
    """Read whole confirmed records from a record start on, without checking bodies.

    @param end: Physical offset up to which to read, at most the log's confirmed end.
    @param window: About how many bytes; more when the first record is longer.
    @return: The bytes and the records in them; a block without records, blank and
        progress has its fault set.
    """
    file_end = log.file_end(position)
    while True:
        limit = min(end, file_end, position + window)
        buf = log.read(position, limit - position)
        block = walk(
            buf, position, position + len(buf), file_end, crc=False, max_size=log.file_size
        )
        whole = limit == min(end, file_end)
        if block.end > position or block.fault is not Fault.INCOMPLETE or whole:
            return buf, block
        # Only the first record or blank matters: it says how much there has to be.
        window = max(window + 8, int.from_bytes(buf[:4], "big", signed=True))


def offsets_from(
    log: LogReader, position: int, window: int, levels: DelayLevels
) -> dict[tuple[str, int], int]:
    """Read a log from a record start to its confirmed end.  Blocking.

    @return: The queue offset just past the last that its records have, by topic and queue id.
    @raise RecordCorrupt: There is no valid record where one must be.
    """
    found: dict[tuple[str, int], int] = {}
    while position < log.confirmed:
        buf, block = read_block(log, position, log.confirmed, window)
        if block.end == position:
            reason = (block.fault or Fault.INCOMPLETE).value
            raise RecordCorrupt(position, reason, f"below the confirmed end {log.confirmed}")
        if len(block.start):
            for queue, first, raw in grouped_units(block, fields(buf, block, levels)):
                found[queue] = max(found.get(queue, 0), first + len(raw) // UNIT_SIZE)
        position = block.end
    return found


def keys(block: Block, rows: DispatchRows) -> tuple[Array, Array, Array]:
    """Key hash, physical offset and store time of every index entry of a block."""
    record, hashes = rows.key_record, rows.key_hash
    indexed = indexable(rows.sys_flag)
    if not indexed.all():
        kept = indexed[record]
        record, hashes = record[kept], hashes[kept]
    return hashes, block.start[record], rows.store_timestamp[record]
