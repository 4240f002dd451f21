"""Rows of a log: a block of its bytes in, an Arrow batch of the columns asked for out.

What is a record is decided by L{rmqha.wire.columnar.record_blocks.walk}, as for dispatch and
recovery; odd properties are read as RocketMQ reads them.  Only what is asked for is computed.
Importing this module needs no pyarrow, making a L{Decoder} does (the extra C{pipeline}).

Source: docs/protocol/store.rst, Records and Rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from rmqha.errors import ColumnUnknown, RecordCorrupt
from rmqha.wire.columnar import kernels
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.record_blocks import Block, walk
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from rmqha.wire.log.layout import MAGIC_BLANK, MIN_BLANK
from rmqha.wire.log.record import Fault, magic_at
from rmqha.wire.log.sys_flag import COMPRESSED
from rmqha.wire.remoting.fields import camel

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (
    *("broker_name", "topic", "queue_id", "queue_offset", "physical_offset", "store_size"),
    *("store_timestamp", "born_timestamp", "born_host", "store_host"),
    *("flag", "sys_flag", "body_crc", "reconsume_times", "prepared_transaction_offset"),
    *("body", "properties", "tags", "keys", "uniq_key", "offset_msg_id"),
    *("real_topic", "real_queue_id", "deliver_timestamp"),
)
"""What a row has, in this order."""

MORE_COLUMNS = ("raw_properties", "first_pop_timestamp")
"""What it has only when asked by name."""

KAFKA = {
    "key": "key",
    "value": "body",
    "topic": "topic",
    "partition": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
"""The names of Spark's Kafka source, and what they are here."""

DECOMPRESSED_MOST = 64 << 20
"""Bytes a body may become: sixteen times the C{maxMessageSize} of stock brokers."""

DECOMPRESSED_LIMIT = 512 << 20
"""The most that this may be set to: an Arrow column of bytes holds less than 2 GiB."""

DAMAGED_BODY = "body cannot be decompressed"

_NO_END = 1 << 62
"""Behind every file, where it is not known where this one ends."""

_LARGEST = (1 << 31) - 1


STYLES: Mapping[str, Mapping[str, str]] = {
    "rmqha": {name: name for name in (*COLUMNS, *MORE_COLUMNS)},
    "rocketmq": {camel(name): name for name in (*COLUMNS, *MORE_COLUMNS)},
    "kafka": KAFKA,
}
"""What each style calls the columns."""


def all_columns(style: str = "rmqha") -> tuple[str, ...]:
    """The columns of a style that come unasked, in order."""
    return tuple(name for name, column in STYLES[style].items() if column not in MORE_COLUMNS)


def columns_of(names: Sequence[str], style: str = "rmqha") -> dict[str, str]:
    """What each name means in a style.

    @raise ColumnUnknown: If a name means nothing there.
    """
    known = STYLES[style]
    for name in names:
        if name not in known:
            near = {other.lower(): other for other in known}
            found = get_close_matches(name.lower(), near, n=1, cutoff=0.6)
            raise ColumnUnknown(name, near[found[0]] if found else "")
    return {name: known[name] for name in names}


class Decoder:
    """Makes rows of blocks of a log.

    @ivar schema: The schema of every batch.
    @ivar last: Where the last record starts that was passed, chosen or not; -1 if none was.
    """

    schema: pa.Schema
    last: int

    def __init__(
        self,
        columns: Sequence[str],
        *,
        verify_crc: bool = False,
        decompress: bool = False,
        style: str = "rmqha",
        broker_name: str | None = None,
        delay_levels: str = DEFAULT_DELAY_LEVELS,
        max_decompressed: int = DECOMPRESSED_MOST,
        keep: Callable[[FixedFields], Array] | None = None,
    ) -> None:
        """@param columns: Names of the style, in the order of the schema.
        @param verify_crc: Whether bodies are checked.
        @param decompress: Whether compressed bodies are made whole; their other columns
            stay as they are stored.
        @param style: A key of L{STYLES}.
        @param broker_name: Whose log it is, as far as known.
        @param delay_levels: C{messageDelayLevel} of the broker.
        @param max_decompressed: The most bytes a body may become.
        @param keep: Says which records become rows, a truth value each.
        @raise ColumnUnknown: If a name means nothing in the style.
        """
        from rmqha.wire.columnar.arrow_columns import BatchMaker

        self._columns = columns_of(columns, style)
        self._verify_crc = verify_crc
        self._keep = keep
        self._decompress = decompress and "body" in self._columns.values()
        self._most = max_decompressed
        self._copied = keep is None and "body" in self._columns.values()
        self._maker = BatchMaker(
            list(self._columns.values()), broker_name, DelayLevels.parse(delay_levels)
        )
        self.schema = self._maker.schema(list(self._columns))
        self.last = -1

    def decode(
        self,
        block: memoryview,
        base: int,
        *,
        file_end: int | None = None,
        nul_is_torn: bool = False,
    ) -> tuple[pa.RecordBatch, int]:
        """Make rows of the whole records at the front of a block.

        A blank that ends the file is passed over without its bytes being asked for, so
        that more may be consumed than the block has.  Rows before damage are given first;
        the next call begins at the damage and raises.

        @param block: Bytes of the log, less than 2 GiB; nothing of the batch refers to them.
        @param base: Physical offset of the first one, where a record starts.
        @param file_end: Physical offset of the end of this log file.
        @param nul_is_torn: Whether properties that end in NUL are damage.
        @return: The rows, and how many bytes they and what was passed over take; 0 asks
            for a longer block.
        @raise RecordCorrupt: If there is no whole, valid record at C{base}.
        """
        view = memoryview(block)
        last = _NO_END if file_end is None else file_end
        fields = None
        if kernels.chosen().compiled:
            stop, crc = min(len(view), last - base), self._verify_crc
            fields = kernels.heads(view, base, stop, crc, _LARGEST, nul_is_torn, self._copied)
        found = walk(
            view,
            base,
            base + len(view),
            last,
            crc=self._verify_crc,
            max_size=_LARGEST,
            nul_is_torn=nul_is_torn,
            sound=None if fields is None else fields.chain,
        )
        used = found.end - base
        if found.fault is not None:
            blank = _blank(view, used, base, file_end)
            if not used + blank and found.fault is not Fault.INCOMPLETE:
                raise _damage(view, found)
            used += blank
        if fields is not None and len(fields.chain) != len(found.start) + 1:
            fields = None
        heads = FixedFields(view, found.start - base, found.size, fields)
        if self._keep is not None and len(heads):
            kept = self._keep(heads)
            whole = bool(kept.all())
            # What the last block was, this one will be.
            self._copied = whole and "body" in self._columns.values()
            if not whole:
                heads = heads.only(kept)
        bodies = None
        if self._decompress:
            bodies, count = self._inflated(heads, base)
            if count < len(heads):
                used = int(heads.start[count])
                heads = heads.only(np.arange(count))
        passed = int(np.searchsorted(found.start, base + used))
        if passed:
            self.last = int(found.start[passed - 1])
        return self._maker.batch(self.schema, heads, base, bodies), used

    def _inflated(self, heads: FixedFields, base: int) -> tuple[dict[int, bytes], int]:
        """Decompress bodies.

        @return: The bodies by row, and how many rows go with them: up to the first that
            cannot be decompressed, and no more than as many bytes as one body may have
            and another one.
        @raise RecordCorrupt: If it is that of the very first record.
        """
        from rmqha.wire.log.inflate import inflate

        bodies: dict[int, bytes] = {}
        total = 0
        for row in np.flatnonzero(heads.sys_flag & COMPRESSED).tolist():
            if total > self._most:
                return bodies, row
            start, size, flags = (int(a[row]) for a in (heads.start, heads.size, heads.sys_flag))
            body = heads.buf[int(heads.layout.body[row]) : int(heads.body_end[row])]
            try:
                bodies[row] = inflate(flags, body, self._most)
            except ValueError as error:
                if start:
                    return bodies, row
                raise RecordCorrupt(base, DAMAGED_BODY, str(error), size) from error
            total += len(bodies[row])
        return bodies, len(heads)


def _blank(view: memoryview, position: int, base: int, file_end: int | None) -> int:
    """Size of the blank at a position, 0 if there is none."""
    if len(view) - position < MIN_BLANK or magic_at(view, position) != MAGIC_BLANK:
        return 0
    size = int.from_bytes(view[position : position + 4], "big", signed=True)
    whole = size >= MIN_BLANK if file_end is None else base + position + size == file_end
    return size if whole else 0


def _damage(view: memoryview, found: Block) -> RecordCorrupt:
    """What is wrong at the end of a block; where the next record is, if that is sure."""
    assert found.fault is not None, "there is damage"
    position = found.end - found.base
    announced = int.from_bytes(view[position : position + 4], "big", signed=True)
    size = announced if found.fault is Fault.CRC else 0
    return RecordCorrupt(found.end, found.fault.value, f"{announced} bytes announced", size)
