"""The columns of rows, each with its type and how it is made of records: Arrow's, from the places
of strings and numbers in a block of the log.

Compiled code copies strings one behind the other.  Without it Arrow does so: the block is taken
for one long column in which every second item is wanted.

Importing this module needs pyarrow, from the extra C{pipeline}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from rmqha.wire.columnar import kernels
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.kernels_numpy import Properties
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.layout import IP6_EXTRA
from rmqha.wire.log.sys_flag import BORN_IP6, STORE_IP6
from rmqha.wire.names import (
    DELAY,
    FIRST_POP_TIME,
    KEYS,
    REAL_QUEUE,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TAGS,
    TIMER_OUT,
    TIMER_TOPIC,
    UNIQUE_KEY,
)

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.columns_run import gather

TIME = pa.timestamp("us", tz="UTC")

EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999
"""First and last millisecond of years 1 to 9999, from 1970 on: what SQL has dates for."""

# --- columns of places --------------------------------------------------------


def binaries(
    buf: memoryview, start: Array, end: Array, present: Array | None = None, *, utf8: bool = False
) -> Any:
    """Copy parts of a buffer into a column of bytes.

    @param start: Where each part starts.
    @param end: Where it ends; where it starts in rows that have none.
    @param present: Which rows have one; the others become null.
    @param utf8: Whether they are known to be UTF-8, and the column is to be text.
    """
    rows, kind = len(start), pa.string() if utf8 else pa.binary()
    if present is not None and not present.any():
        return pa.nulls(rows, kind)
    if present is not None and present.all():
        present = None
    if kernels.chosen().compiled:
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(end - start, out=offsets[1:])
        data = pa.allocate_buffer(int(offsets[-1]))
        gather(buf, start, end, np.frombuffer(data, np.uint8))
        bits = None
        if present is not None:
            bits = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(offsets), data])
    places = np.empty(2 * rows, np.int32)
    places[0::2], places[1::2] = start, end
    if present is not None:
        # Places have to ascend all the same.
        np.maximum.accumulate(places, out=places)
    wanted = np.arange(0, 2 * rows, 2, dtype=np.int32)
    whole = pa.Array.from_buffers(
        kind, 2 * rows - 1, [None, pa.py_buffer(places), pa.py_buffer(buf)]
    )
    return whole.take(pa.array(wanted, mask=None if present is None else ~present))


def strung(ends: Array, letters: Array, kind: Any) -> Any:
    """A column of texts that stand one behind the other.

    @param ends: Where each begins, and where the last one ends, C{int32}.
    @param letters: The texts, C{uint8}.
    """
    parts = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    return pa.Array.from_buffers(kind, len(ends) - 1, parts, 0)


def as_text(column: Any) -> Any:
    """Take bytes for text: what is not UTF-8 becomes U+FFFD, as in RocketMQ."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        rows = column.to_pylist()
        return pa.array(
            [None if row is None else row.decode("utf-8", "replace") for row in rows], pa.string()
        )


def times(milliseconds: Array, present: Array | None = None) -> Any:
    """A column of times; one outside years 1 to 9999 is null: it is a producer's word."""
    good = (milliseconds >= EARLIEST) & (milliseconds <= LATEST)
    if present is not None:
        good &= present
    mask = None if good.all() else ~good
    micros = np.where(good, milliseconds, 0) * 1000
    return pa.array(micros, pa.int64(), mask=mask).cast(TIME)


# --- columns of hosts ---------------------------------------------------------


@lru_cache(maxsize=4096)
def _address(key: int) -> str:
    ip, port = key >> 32 & 0xFFFFFFFF, (key & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
    return f"{ip >> 24}.{ip >> 16 & 255}.{ip >> 8 & 255}.{ip & 255}:{port}"


@lru_cache(maxsize=4096)
def _address6(host: bytes) -> str:
    port = int.from_bytes(host[16:], "big", signed=True)
    return f"[{IPv6Address(host[:16])}]:{port}"


def hosts(heads: FixedFields, which: str) -> Any:
    """A column of addresses, C{1.2.3.4:5} or C{[::1]:5}.

    @param which: C{born} or C{store}.
    """
    ip, port = heads.column(f"{which}_ip"), heads.column(f"{which}_port")
    rows = _longer(heads, which)
    if kernels.chosen().compiled and not len(rows):
        return strung(*kernels.hosts(ip, port), pa.string())
    key = ip.astype(np.int64) << 32 | port.astype(np.int64) & 0xFFFFFFFF
    key[rows] = 0
    found = pa.array(key).dictionary_encode()
    texts = [_address(one) for one in found.dictionary.to_pylist()]
    numbers = found.indices.to_numpy(zero_copy_only=False).copy()
    numbers[rows] = len(texts) + np.arange(len(rows))
    texts += [_address6(_host6(heads, which, row)) for row in rows.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(numbers))


def _longer(heads: FixedFields, which: str) -> Array:
    """The rows whose host is of IPv6."""
    return np.flatnonzero(heads.sys_flag & (BORN_IP6 if which == "born" else STORE_IP6))


def _host6(heads: FixedFields, which: str, row: int) -> bytes:
    start = int(heads.start[row]) + 48
    if which == "store":
        start += 16 + (IP6_EXTRA if heads.sys_flag[row] & BORN_IP6 else 0)
    return bytes(heads.buf[start : start + 20])


def _offset_ids(ip: Array, port: Array, places: Array) -> Array:
    """Ids of store host and physical offset, 32 letters each."""
    ids = np.empty(len(ip), [("ip", ">u4"), ("port", ">i4"), ("offset", ">i8")])
    ids["ip"], ids["port"], ids["offset"] = ip, port, places
    halves = ids.view(np.uint8).reshape(-1, 16)
    letters = np.empty((len(ip), 32), np.uint8)
    letters[:, 0::2], letters[:, 1::2] = halves >> 4, halves & 15
    letters += 48 + 7 * (letters > 9).view(np.uint8)
    return letters


def offset_ids(heads: FixedFields, base: int) -> Any:
    """A column of ids that tell where a record is: store host and physical offset."""
    ip, port, places = heads.column("store_ip"), heads.column("store_port"), heads.start + base
    letters = (kernels.offset_ids if kernels.chosen().compiled else _offset_ids)(ip, port, places)
    short = strung(np.arange(0, 32 * len(heads) + 1, 32, dtype=np.int32), letters, pa.string())
    rows = _longer(heads, "store")
    if not len(rows):
        return short
    longer = [
        _host6(heads, "store", row).hex().upper() + f"{base + int(heads.start[row]):016X}"
        for row in rows.tolist()
    ]
    numbers = np.arange(len(heads))
    numbers[rows] = len(heads) + np.arange(len(rows))
    return pa.concat_arrays([short, pa.array(longer, pa.string())]).take(pa.array(numbers))


HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

PROPERTIES = pa.map_(pa.string(), pa.string())

_STORED = 1
"""C{timestampType} of Spark's Kafka source for a time that the broker gave."""


@frozen(eq=False, kw_only=True)
class ColumnSource:
    """What columns are made of.

    @ivar heads: The records.
    @ivar base: Physical offset of their buffer's first byte.
    @ivar found: The properties that are needed.
    @ivar bodies: Bodies that were decompressed, by row.
    @ivar broker_name: Whose log it is, as far as known.
    """

    heads: FixedFields
    base: int
    found: Properties | None
    names: Sequence[bytes]
    bodies: dict[int, bytes] | None
    broker_name: str | None
    levels: DelayLevels

    @property
    def ascii(self) -> bool:
        """Whether it is sure that all properties are ASCII."""
        return self.found is not None and self.found.ascii

    def value(self, name: bytes, utf8: bool = False) -> Any:
        """A property as a column of bytes, null where there is none.

        @param utf8: Whether it is a column of text, known to be UTF-8.
        """
        assert self.found is not None, "a wanted property is looked for"
        row = self.names.index(name)
        start, end = self.found.start[row], self.found.end[row]
        return binaries(self.heads.buf, start, end, end > 0, utf8=utf8)

    def texts(self, name: bytes, rows: Array) -> list[bytes]:
        """A property of some rows, empty where there is none."""
        assert self.found is not None, "a wanted property is looked for"
        row = self.names.index(name)
        starts, ends = self.found.start[row][rows], self.found.end[row][rows]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return [bytes(self.heads.buf[start:end]) for start, end in spans]


def _number(text: bytes) -> int | None:
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    return int(text) if digits.isdigit() and len(digits) < 19 else None


def _body(rows: ColumnSource) -> Any:
    heads = rows.heads
    if heads.fields is not None and heads.fields.bodies is not None:
        column = strung(*heads.fields.bodies, pa.binary())
    else:
        column = binaries(heads.buf, heads.layout.body, heads.body_end)
    if not rows.bodies:
        return column
    numbers = np.arange(len(heads))
    numbers[list(rows.bodies)] = len(heads) + np.arange(len(rows.bodies))
    whole = pa.array(list(rows.bodies.values()), pa.binary())
    return pa.concat_arrays([column, whole]).take(pa.array(numbers))


def _topic(rows: ColumnSource) -> Any:
    at = rows.heads.layout
    if kernels.chosen().compiled:
        # Sound records have topics of UTF-8.
        return binaries(rows.heads.buf, at.topic, at.topic + at.topic_length, utf8=True)
    names, number = rows.heads.topics
    return pa.array(names, pa.string()).take(pa.array(number))


def _pairs(rows: ColumnSource) -> tuple[Any, Any, Any]:
    """Where each row's pairs start, all names, all values: as bytes, or as text if that is
    sure to be the same.
    """
    assert rows.found is not None, "pairs are looked for"
    counts, places = rows.found.counts, rows.found.pairs
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    if rows.found.copies:
        kind = pa.string() if rows.ascii else pa.binary()
        return pa.array(offsets), *(strung(*copy, kind) for copy in rows.found.copies)
    buf, places = rows.heads.buf, places.reshape(-1, 4).astype(np.int64)
    if not len(places):
        none = pa.array([], pa.binary())
        return pa.array(offsets), none, none
    columns = np.ascontiguousarray(places.T)
    names, values = binaries(buf, *columns[:2]), binaries(buf, *columns[2:])
    return pa.array(offsets), names, values


def _properties(rows: ColumnSource) -> Any:
    offsets, names, values = _pairs(rows)
    if names.type == pa.string():
        return pa.MapArray.from_arrays(offsets, names, values)
    keys, values = as_text(names), as_text(values)
    if not keys.cast(pa.binary()).equals(names):
        return _merged(offsets, keys, values)
    return pa.MapArray.from_arrays(offsets, keys, values)


def _merged(offsets: Any, names: Any, values: Any) -> Any:
    """A map of pairs whose names may be equal now that they are text; the last one counts."""
    places = offsets.to_pylist()
    pairs = list(zip(names.to_pylist(), values.to_pylist(), strict=True))
    maps = [dict(pairs[start:end]) for start, end in pairwise(places)]
    return pa.array([list(each.items()) for each in maps], PROPERTIES)


def _headers(rows: ColumnSource) -> Any:
    offsets, names, values = _pairs(rows)
    fields = list(HEADERS.value_type)
    columns = [as_text(names), values.view(pa.binary())]
    pairs = pa.StructArray.from_arrays(columns, fields=fields)
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS)


def _raw_properties(rows: ColumnSource) -> Any:
    heads = rows.heads
    column = binaries(heads.buf, heads.layout.properties, heads.end, utf8=rows.ascii)
    return column if rows.ascii else as_text(column)


def _numbers(rows: ColumnSource, name: bytes) -> tuple[Array, Array]:
    """The numbers that a property has, and in which rows it has one."""
    assert rows.found is not None, "a wanted property is looked for"
    numbers, known = np.zeros(len(rows.heads), np.int64), np.zeros(len(rows.heads), np.bool_)
    some = np.flatnonzero(rows.found.end[rows.names.index(name)])
    for row, text in zip(some.tolist(), rows.texts(name, some), strict=True):
        number = _number(text)
        if number is not None:
            numbers[row], known[row] = number, True
    return numbers, known


def _real_queue_id(rows: ColumnSource) -> Any:
    numbers, known = _numbers(rows, _QUEUE)
    ids = numbers.astype(np.int32)
    return pa.array(ids, mask=~known | (ids != numbers))


def _due(rows: ColumnSource) -> Any:
    """When a waiting message is due: by its level, or at the time it says."""
    heads = rows.heads
    topics, topic = heads.topics
    if SCHEDULE_TOPIC not in topics and TIMER_TOPIC not in topics:
        return pa.nulls(len(heads), TIME)
    due, known = np.zeros(len(heads), np.int64), np.zeros(len(heads), np.bool_)
    for name, wanted in ((SCHEDULE_TOPIC, DELAY.encode()), (TIMER_TOPIC, TIMER_OUT.encode())):
        some = np.flatnonzero(topic == topics.index(name)) if name in topics else topic[:0]
        for row, text in zip(some.tolist(), rows.texts(wanted, some), strict=True):
            if name == TIMER_TOPIC:
                time = _number(text)
            else:
                level = rows.levels.level(text)
                stored = int(heads.store_timestamp[row])
                time = rows.levels.deliver_time(level, stored) if level else None
            if time is not None:
                due[row], known[row] = time, True
    return times(due, known)


@frozen
class Column:
    """One column.

    @ivar wants: The properties that it is made of.
    """

    type: Any
    make: Callable[[ColumnSource], Any]
    wants: tuple[bytes, ...] = ()


def _plain(name: str, kind: Any) -> Column:
    return Column(kind, lambda rows: pa.array(rows.heads.column(name)))


def _text(property_name: str) -> Column:
    name = property_name.encode()

    def make(rows: ColumnSource) -> Any:
        return rows.value(name, True) if rows.ascii else as_text(rows.value(name))

    return Column(pa.string(), make, (name,))


def _broker_name(rows: ColumnSource) -> Any:
    return pa.repeat(pa.scalar(rows.broker_name, pa.string()), len(rows.heads))


def _timestamp_type(rows: ColumnSource) -> Any:
    return pa.array(np.full(len(rows.heads), _STORED, np.int32))


_KEYS, _QUEUE, _POPPED = KEYS.encode(), REAL_QUEUE.encode(), FIRST_POP_TIME.encode()

COLUMNS = {
    "broker_name": Column(pa.string(), _broker_name),
    "topic": Column(pa.string(), _topic),
    "queue_id": _plain("queue_id", pa.int32()),
    "queue_offset": _plain("queue_offset", pa.int64()),
    "physical_offset": Column(pa.int64(), lambda rows: pa.array(rows.heads.start + rows.base)),
    "store_size": Column(pa.int32(), lambda rows: pa.array(rows.heads.size)),
    "store_timestamp": Column(TIME, lambda rows: times(rows.heads.store_timestamp)),
    "born_timestamp": Column(TIME, lambda rows: times(rows.heads.column("born_timestamp"))),
    "born_host": Column(pa.string(), lambda rows: hosts(rows.heads, "born")),
    "store_host": Column(pa.string(), lambda rows: hosts(rows.heads, "store")),
    "flag": _plain("flag", pa.int32()),
    "sys_flag": _plain("sys_flag", pa.int32()),
    "body_crc": _plain("body_crc", pa.int32()),
    "reconsume_times": _plain("reconsume_times", pa.int32()),
    "prepared_transaction_offset": _plain("prepared_transaction_offset", pa.int64()),
    "body": Column(pa.binary(), _body),
    "properties": Column(PROPERTIES, _properties),
    "raw_properties": Column(pa.string(), _raw_properties),
    "tags": _text(TAGS),
    "keys": _text(KEYS),
    "uniq_key": _text(UNIQUE_KEY),
    "offset_msg_id": Column(pa.string(), lambda rows: offset_ids(rows.heads, rows.base)),
    "real_topic": _text(REAL_TOPIC),
    "real_queue_id": Column(pa.int32(), _real_queue_id, (_QUEUE,)),
    "deliver_timestamp": Column(TIME, _due, (DELAY.encode(), TIMER_OUT.encode())),
    "first_pop_timestamp": Column(TIME, lambda rows: times(*_numbers(rows, _POPPED)), (_POPPED,)),
    "key": Column(pa.binary(), lambda rows: rows.value(_KEYS), (_KEYS,)),
    "headers": Column(HEADERS, _headers),
    "timestamp_type": Column(pa.int32(), _timestamp_type),
}
"""All there are."""


class BatchMaker:
    """Makes the batches of one selection of columns."""

    def __init__(
        self, columns: Sequence[str], broker_name: str | None, levels: DelayLevels
    ) -> None:
        self._broker_name, self._levels = broker_name, levels
        self._columns = [COLUMNS[name] for name in columns]
        self._names = sorted({name for column in self._columns for name in column.wants})
        self._pairs = not {"properties", "headers"}.isdisjoint(columns)

    def schema(self, names: Sequence[str]) -> pa.Schema:
        """The columns under other names."""
        return pa.schema([(n, column.type) for n, column in zip(names, self._columns, strict=True)])

    def batch(
        self, schema: pa.Schema, heads: FixedFields, base: int, bodies: dict[int, bytes] | None
    ) -> pa.RecordBatch:
        """Make the columns of some records.

        @param bodies: Bodies that were decompressed, by row.
        """
        if not len(heads):
            none = [pa.array([], column.type) for column in self._columns]
            return pa.RecordBatch.from_arrays(none, schema=schema)
        found = None
        if self._names or self._pairs:
            found = kernels.properties(
                heads.buf, heads.layout.properties, heads.end, self._names, self._pairs
            )
        rows = ColumnSource(
            heads=heads,
            base=base,
            found=found,
            names=self._names,
            bodies=bodies,
            broker_name=self._broker_name,
            levels=self._levels,
        )
        if not self._columns:
            bare = pa.Array.from_buffers(pa.struct([]), len(heads), [None], children=[])
            return pa.RecordBatch.from_struct_array(bare)
        made = [column.make(rows) for column in self._columns]
        return pa.RecordBatch.from_arrays(made, schema=schema)
