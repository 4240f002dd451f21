"""The fixed fields of many records as numpy columns.

One gather copies the first 88 bytes of every record side by side, as a record with two
IPv4 hosts lays them out; records with a longer host are read again where their fields
really are.  Columns are made when they are asked for.

Source: docs/protocol/store.rst, Records.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from attrs import define, field

from rmqha.wire.columnar.kernels_numpy import (
    NARROW,
    WIDE,
    FixedColumns,
    StringLayout,
    layout,
    number,
)
from rmqha.wire.columnar.vectors import Array, overlapping, pick
from rmqha.wire.log.layout import FIELDS
from rmqha.wire.log.sys_flag import IP6_HOSTS, has_unit

HEAD = np.dtype([(name, f">{field.kind}") for name, field in FIELDS.items()])
"""What stands before the body of a record with IPv4 hosts."""

_MOVED = [name for name, field in FIELDS.items() if field.moved_by]


@define(eq=False, slots=False)
class FixedFields:
    """What stands in the headers of valid records, one row a record.

    @ivar buf: The bytes of the log.
    @ivar start: Where in C{buf} each record starts, C{int64}.
    @ivar size: Its size in bytes.
    @ivar fields: What was read of them before.
    """

    buf: memoryview = field(repr=False)
    start: Array = field(repr=False)
    size: Array = field(repr=False)
    fields: FixedColumns | None = field(default=None, repr=False)

    def only(self, rows: Array) -> FixedFields:
        """Some of the rows.

        @param rows: Their numbers, ascending, or a truth value each.
        """
        fields = None if self.fields is None else self.fields.only(rows)
        return FixedFields(self.buf, self.start[rows], self.size[rows], fields)

    def __len__(self) -> int:
        return len(self.start)

    def column(self, name: str) -> Array:
        """One field of L{HEAD}, in the machine's byte order."""
        if self.fields is not None and (read := _read(self.fields, name)) is not None:
            return read
        found: Array = self._head[name]
        return found.astype(found.dtype.newbyteorder("="))

    @cached_property
    def _head(self) -> Array:
        if not len(self):
            return np.empty(0, HEAD)
        head = overlapping(self.buf, f"V{HEAD.itemsize}")[self.start].view(HEAD)
        rows = np.flatnonzero(head["sys_flag"] & IP6_HOSTS)
        if len(rows):
            start, flags = self.start[rows], head["sys_flag"][rows].astype(np.int32)
            for name in _MOVED:
                places = start + FIELDS[name].offset(flags)
                head[name][rows] = pick(self.buf, HEAD[name].str, places)
        return head

    @cached_property
    def sys_flag(self) -> Array:
        """Each record's flag bits, C{int32}."""
        return self.column("sys_flag")

    @cached_property
    def store_timestamp(self) -> Array:
        """When each record was stored, in milliseconds since 1970, C{int64}."""
        return self.column("store_timestamp")

    @cached_property
    def has_unit(self) -> Array:
        """Whether the record gets a queue unit: halves and rollbacks do not."""
        return has_unit(self.sys_flag)

    # --- where the strings are ------------------------------------------------

    @cached_property
    def layout(self) -> StringLayout:
        """Where body, topic and properties are."""
        if not len(self):
            return StringLayout(*np.empty((6, 0), np.int64))
        if self.fields is not None:
            return self.fields.layout
        return layout(self.buf, self.start)

    @cached_property
    def body_end(self) -> Array:
        """Position just past the body."""
        return self.layout.body + self.layout.body_length

    @cached_property
    def end(self) -> Array:
        """Position just past the record, and its properties."""
        return self.start + self.size

    @cached_property
    def topics(self) -> tuple[list[str], Array]:
        """The topics that occur, and the number of each row's."""
        if not len(self):
            return [], np.empty(0, np.int32)
        if self.fields is not None:
            return self.fields.topics, self.fields.narrow[len(NARROW)]
        return number(self.buf, self.layout.topic, self.layout.topic_length)


def _read(fields: FixedColumns, name: str) -> Array | None:
    found: Array
    if name in WIDE:
        found = fields.wide[WIDE.index(name)]
        return found
    if name not in NARROW:
        return None
    found = fields.narrow[NARROW.index(name)]
    if name.endswith("_ip"):
        found = found.view(np.uint32)
    return found
