"""The columns of rows, each with its type and how it is made of records.

Importing this module needs pyarrow, from the extra C{pipeline}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from rmqha.wire.columnar.arrow_arrays import (
    TIME,
    as_text,
    binaries,
    hosts,
    offset_ids,
    strung,
    times,
)
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.kernels import chosen
from rmqha.wire.columnar.kernels_numpy import Properties
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.names import (
    DELAY,
    KEYS,
    REAL_QUEUE,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TAGS,
    TIMER_OUT,
    TIMER_TOPIC,
    UNIQUE_KEY,
)

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

TYPES = {
    "broker_name": pa.string(),
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "physical_offset": pa.int64(),
    "store_size": pa.int32(),
    "store_timestamp": TIME,
    "born_timestamp": TIME,
    "born_host": pa.string(),
    "store_host": pa.string(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "body_crc": pa.int32(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "body": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "raw_properties": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "uniq_key": pa.string(),
    "offset_msg_id": pa.string(),
    "real_topic": pa.string(),
    "real_queue_id": pa.int32(),
    "deliver_timestamp": TIME,
    "key": pa.binary(),
    "headers": HEADERS,
    "timestamp_type": pa.int32(),
}
"""The type of every column."""

_WANTS = {
    "tags": (TAGS.encode(),),
    "keys": (KEYS.encode(),),
    "key": (KEYS.encode(),),
    "uniq_key": (UNIQUE_KEY.encode(),),
    "real_topic": (REAL_TOPIC.encode(),),
    "real_queue_id": (REAL_QUEUE.encode(),),
    "deliver_timestamp": (DELAY.encode(), TIMER_OUT.encode()),
}
"""The properties that columns are made of."""

_STORED = 1
"""C{timestampType} of Spark's Kafka source for a time that the broker gave."""


@frozen(eq=False)
class ColumnSource:
    """What columns are made of.

    @ivar heads: The records.
    @ivar base: Physical offset of their buffer's first byte.
    @ivar found: The properties that are needed.
    @ivar names: Their names.
    @ivar bodies: Bodies that were decompressed, by row.
    """

    heads: FixedFields
    base: int
    found: Properties | None
    names: Sequence[bytes]
    bodies: dict[int, bytes] | None

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
        column = binaries(heads.buf, heads.body, heads.body_end)
    if not rows.bodies:
        return column
    numbers = np.arange(len(heads))
    numbers[list(rows.bodies)] = len(heads) + np.arange(len(rows.bodies))
    whole = pa.array(list(rows.bodies.values()), pa.binary())
    return pa.concat_arrays([column, whole]).take(pa.array(numbers))


def _topic(rows: ColumnSource) -> Any:
    at = rows.heads.layout
    if chosen().gather is not None:
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
    return pa.array([list(each.items()) for each in maps], TYPES["properties"])


def _headers(rows: ColumnSource) -> Any:
    offsets, names, values = _pairs(rows)
    fields = list(HEADERS.value_type)
    columns = [as_text(names), values.view(pa.binary())]
    pairs = pa.StructArray.from_arrays(columns, fields=fields)
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS)


def _raw_properties(rows: ColumnSource) -> Any:
    heads = rows.heads
    column = binaries(heads.buf, heads.properties_start, heads.end, utf8=rows.ascii)
    return column if rows.ascii else as_text(column)


def _real_queue_id(rows: ColumnSource) -> Any:
    assert rows.found is not None, "a wanted property is looked for"
    some = np.flatnonzero(rows.found.end[rows.names.index(REAL_QUEUE.encode())])
    if not len(some):
        return pa.nulls(len(rows.heads), pa.int32())
    ids: list[int | None] = [None] * len(rows.heads)
    for row, text in zip(some.tolist(), rows.texts(REAL_QUEUE.encode(), some), strict=True):
        number = _number(text)
        if number is not None and -(1 << 31) <= number < 1 << 31:
            ids[row] = number
    return pa.array(ids, pa.int32())


def _due(rows: ColumnSource, levels: DelayLevels) -> Any:
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
                level = levels.level(text)
                stored = int(heads.store_timestamp[row])
                time = levels.deliver_time(level, stored) if level else None
            if time is not None:
                due[row], known[row] = time, True
    return times(due, known)


def _plain(name: str) -> Callable[[ColumnSource], Any]:
    return lambda rows: pa.array(rows.heads.column(name))


def _text(name: bytes) -> Callable[[ColumnSource], Any]:
    return lambda rows: rows.value(name, True) if rows.ascii else as_text(rows.value(name))


MAKERS: dict[str, Callable[[ColumnSource], Any]] = {
    "topic": _topic,
    "queue_id": _plain("queue_id"),
    "queue_offset": _plain("queue_offset"),
    "physical_offset": lambda rows: pa.array(rows.heads.start + rows.base),
    "store_size": lambda rows: pa.array(rows.heads.size),
    "store_timestamp": lambda rows: times(rows.heads.store_timestamp),
    "born_timestamp": lambda rows: times(rows.heads.column("born_timestamp")),
    "born_host": lambda rows: hosts(rows.heads, "born"),
    "store_host": lambda rows: hosts(rows.heads, "store"),
    "flag": _plain("flag"),
    "sys_flag": _plain("sys_flag"),
    "body_crc": _plain("body_crc"),
    "reconsume_times": _plain("reconsume_times"),
    "prepared_transaction_offset": _plain("prepared_transaction_offset"),
    "body": _body,
    "properties": _properties,
    "raw_properties": _raw_properties,
    "tags": _text(TAGS.encode()),
    "keys": _text(KEYS.encode()),
    "uniq_key": _text(UNIQUE_KEY.encode()),
    "offset_msg_id": lambda rows: offset_ids(rows.heads, rows.base),
    "real_topic": _text(REAL_TOPIC.encode()),
    "real_queue_id": _real_queue_id,
    "key": lambda rows: rows.value(KEYS.encode()),
    "headers": _headers,
    "timestamp_type": lambda rows: pa.array(np.full(len(rows.heads), _STORED, np.int32)),
}
"""How each column is made that needs nothing but the records."""


class BatchMaker:
    """Makes the batches of one selection of columns."""

    def __init__(
        self, columns: Sequence[str], broker_name: str | None, levels: DelayLevels
    ) -> None:
        """@param columns: Keys of L{TYPES}."""
        name = pa.scalar(broker_name, pa.string())
        own: dict[str, Callable[[ColumnSource], Any]] = {
            "broker_name": lambda rows: pa.repeat(name, len(rows.heads)),
            "deliver_timestamp": lambda rows: _due(rows, levels),
        }
        self._makers = [(MAKERS | own)[column] for column in columns]
        self._types = [TYPES[column] for column in columns]
        self._names = sorted({name for column in columns for name in _WANTS.get(column, ())})
        self._pairs = not {"properties", "headers"}.isdisjoint(columns)

    def schema(self, names: Sequence[str]) -> pa.Schema:
        """The columns under other names."""
        return pa.schema(list(zip(names, self._types, strict=True)))

    def batch(
        self, schema: pa.Schema, heads: FixedFields, base: int, bodies: dict[int, bytes] | None
    ) -> pa.RecordBatch:
        """Make the columns of some records.

        @param bodies: Bodies that were decompressed, by row.
        """
        if not len(heads):
            none = [pa.array([], kind) for kind in self._types]
            return pa.RecordBatch.from_arrays(none, schema=schema)
        found = None
        if self._names or self._pairs:
            found = chosen().properties(
                heads.buf, heads.properties_start, heads.end, self._names, self._pairs
            )
        rows = ColumnSource(heads, base, found, self._names, bodies)
        if not self._makers:
            bare = pa.Array.from_buffers(pa.struct([]), len(heads), [None], children=[])
            return pa.RecordBatch.from_struct_array(bare)
        return pa.RecordBatch.from_arrays([make(rows) for make in self._makers], schema=schema)
