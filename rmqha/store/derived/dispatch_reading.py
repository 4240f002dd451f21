"""Reading records for dispatch: a few one by one, many as columns.

Either way what they bring comes sorted by queue, and each queue and the index are
written once for all of them: near the log's end a record costs less to read than the
way to its queue and to the index and back.

Source: docs/protocol/store.rst, Dispatch.
"""

from __future__ import annotations

from attrs import define, field

from rmqha.errors import RecordFault
from rmqha.logfiles.reader import LogReader
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.kernels_numpy import DispatchRows
from rmqha.wire.columnar.queue_units import UNIT, QueueRun, grouped_units
from rmqha.wire.columnar.record_blocks import Block, walk
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import key_hash
from rmqha.wire.log.record import Fault, dispatch_fields
from rmqha.wire.log.sys_flag import indexable
from rmqha.wire.store_layout import UNIT_SIZE


@define(eq=False)
class ScalarRun:
    """What records that follow one another bring to queues and index.

    @ivar levels: The broker's delay levels.
    @ivar records: How many were added.
    @ivar last_timestamp: Store time of the last of them, milliseconds.
    @ivar hashes: Of the index keys, in the order of the log.
    @ivar offsets: Physical offset of each key's record.
    @ivar timestamps: Store time of each key's record, milliseconds.
    """

    levels: DelayLevels
    records: int = field(init=False, default=0)
    last_timestamp: int = field(init=False, default=0)
    hashes: list[int] = field(init=False, factory=list)
    offsets: list[int] = field(init=False, factory=list)
    timestamps: list[int] = field(init=False, factory=list)
    # By queue: queue offset of the first unit, and the units of that and the next queue offsets.
    _open: dict[tuple[str, int], tuple[int, list[bytes]]] = field(init=False, factory=dict)
    _closed: list[QueueRun] = field(init=False, factory=list)

    def add(self, buf: memoryview, place: int, size: int, offset: int) -> None:
        """Read a record that was found whole.

        @param place: Where it is in C{buf}.
        @param offset: Its physical offset.
        """
        row = dispatch_fields(buf, place, size, offset, self.levels)
        if row.has_unit:
            self._add_unit(
                (row.topic, row.queue_id), row.queue_offset, UNIT.pack(offset, size, row.tags_code)
            )
        if row.indexable:
            for key in row.keys:
                self.hashes.append(key_hash(row.topic, key))
                self.offsets.append(offset)
                self.timestamps.append(row.store_timestamp)
        self.records += 1
        self.last_timestamp = row.store_timestamp

    def _add_unit(self, queue: tuple[str, int], queue_offset: int, unit: bytes) -> None:
        found = self._open.get(queue)
        if found is not None:
            first, units = found
            if queue_offset == first + len(units):
                units.append(unit)
                return
            self._closed.append((queue, first, b"".join(units)))
        self._open[queue] = queue_offset, [unit]

    def units(self) -> list[QueueRun]:
        """Units by queue, in the order of the log for each."""
        opened = [(queue, first, b"".join(units)) for queue, (first, units) in self._open.items()]
        return self._closed + opened


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
    @raise RecordFault: There is no valid record where one must be.
    """
    found: dict[tuple[str, int], int] = {}
    while position < log.confirmed:
        buf, block = read_block(log, position, log.confirmed, window)
        if block.end == position:
            reason = (block.fault or Fault.INCOMPLETE).value
            raise RecordFault(position, reason, f"below the confirmed end {log.confirmed}")
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
