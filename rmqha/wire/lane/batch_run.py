"""A client's batch: its messages measured in one pass, and written into the log in another.

This module is compiled (C{setup.py}), and of use only so.  What it does not understand it leaves to
L{encode_batch<rmqha.wire.log.encode.encode_batch>}, which knows what is wrong with it: so nothing
is refused here, and what is understood is stored as it would be there.  Tests drive the same
batches through both and compare.

Bytes of clients are read through a view whose bounds are checked, or by pointer where what was read
has said that they lie there; what is written was measured before.

Source: docs/protocol/remoting.md, Sending; docs/protocol/store.rst, Records;
docs/architecture.rst, The write lane.
"""

from __future__ import annotations

import cython
from cython.cimports.libc.stdlib import free, malloc, realloc
from cython.cimports.libc.string import memchr, memcmp, memcpy
from cython.cimports.rmqha.wire.lane.big_endian import crc_at, hex16, int4, put4, put8
from isal.isal_zlib import crc32

from rmqha.wire.lane.native_crc import CRC
from rmqha.wire.log.encode import MAX_BATCH, MAX_PROPERTIES, BatchForm
from rmqha.wire.log.hashing import MASK
from rmqha.wire.log.layout import (
    BODY_CRC_AT,
    FLAG_AT,
    MAX_RECORD_OVERHEAD,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SIZE_AT,
)

FIRST_ROOM = cython.declare(cython.Py_ssize_t, 256)
"""Messages that there is room for at first."""

MOST_COMMON = cython.declare(cython.Py_ssize_t, 32)
"""Most properties that are said once for all: a bit each."""

ENTRY = cython.declare(cython.Py_ssize_t, 20)
"""Bytes of a message before its body; only the last eight count, flag and length."""

_MOST = cython.declare(cython.Py_ssize_t, MAX_BATCH)
_MOST_PROPERTIES = cython.declare(cython.Py_ssize_t, MAX_PROPERTIES)
_OVERHEAD = cython.declare(cython.Py_ssize_t, MAX_RECORD_OVERHEAD)
_MASK = cython.declare(cython.longlong, MASK)
_CRC = cython.declare(cython.size_t, CRC)

_SIZE = cython.declare(cython.Py_ssize_t, SIZE_AT)
_BODY_CRC = cython.declare(cython.Py_ssize_t, BODY_CRC_AT)
_FLAG = cython.declare(cython.Py_ssize_t, FLAG_AT)
_QUEUE_OFFSET = cython.declare(cython.Py_ssize_t, QUEUE_OFFSET_AT)
_OFFSET = cython.declare(cython.Py_ssize_t, PHYSICAL_OFFSET_AT)

_Row = cython.struct(
    flag=cython.longlong,
    body=cython.Py_ssize_t,
    body_size=cython.Py_ssize_t,
    properties=cython.Py_ssize_t,
    properties_size=cython.Py_ssize_t,
    lacking=cython.uint,
    size=cython.Py_ssize_t,
)

_Common = cython.struct(
    pair=cython.p_const_char,
    name_size=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
)


@cython.cclass
class BatchRun:
    """A batch that is stored whole or not at all.

    @ivar count: Its messages.
    @ivar size: Bytes of their records.
    @ivar queue_offset: Of the first one, once they are written.
    """

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    size = cython.declare(cython.Py_ssize_t, visibility="readonly")
    queue_offset = cython.declare(cython.longlong, visibility="readonly")
    _key: object
    _body: bytes
    _head: bytes
    _topic: bytes
    _host_text: bytes
    _pairs: list
    _common: _Common[32]
    _common_count = cython.declare(cython.Py_ssize_t)
    _most_body = cython.declare(cython.Py_ssize_t)
    _stored_at = cython.declare(cython.Py_ssize_t)
    _rows: cython.pointer[_Row]
    _room = cython.declare(cython.Py_ssize_t)
    _begin = cython.declare(cython.longlong)

    def __cinit__(self) -> None:
        self._room = FIRST_ROOM
        self._rows = cython.cast(cython.pointer[_Row], malloc(self._room * cython.sizeof(_Row)))
        if not self._rows:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self._rows)

    def __init__(
        self, head: bytes, topic: bytes, pairs: list, key: object, *, host: bytes, most_body: int
    ) -> None:
        """@param head: A record up to its body, without what differs.
        @param topic: As a record has it.
        @param pairs: Names and whole properties of those that each message gets unless it has them.
        @param key: What the queue is known by, where its next offset is kept.
        @param host: Of the store, as ids have it.
        @param most_body: C{maxMessageSize}.
        """
        self._head, self._topic, self._pairs, self._key = head, topic, pairs, key
        # Behind the store's host only three numbers follow.
        self._stored_at = len(head) - 16 - len(host) // 2 - 8
        self._host_text, self._most_body = host, most_body
        self.count = 0

    @classmethod
    def of(cls, form: BatchForm, key: object) -> BatchRun:
        """The same of what is read already."""
        record = form.record
        empty: bytes = bytes(record.fill(0, b"", b"", 0))
        host: bytes = record.store.hex().upper().encode()
        head: bytes = empty[: len(empty) - len(record.topic) - 2]
        pairs: list = list(form.common.items())
        return cls(head, record.topic, pairs, key, host=host, most_body=record.most)

    # --- reading --------------------------------------------------------------------

    def read(self, body: bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bool:
        """Find the messages, and how long their records will be.

        @param body: The client's encoding of them, from C{at} to C{end}.
        @return: Whether all of it was understood.
        """
        view: cython.const[cython.uchar][::1] = body
        row: cython.pointer[_Row]
        self._body, self.count, self.size = body, 0, 0
        if not 0 <= at <= end <= len(body) or not self._commons():
            return False
        while at < end:
            if self.count == _MOST or end - at < ENTRY + 2:
                return False
            if self.count == self._room:
                self._grow()
            row = cython.address(self._rows[self.count])
            row.flag = int4(view, at + 12)
            row.body_size = int4(view, at + 16)
            row.body = at + ENTRY
            if not 0 <= row.body_size <= end - row.body - 2:
                return False
            at = row.body + row.body_size
            row.properties_size = view[at] << 8 | view[at + 1]
            row.properties = at + 2
            if not row.properties_size <= end - row.properties:
                return False
            if not self._measured(row):
                return False
            at = row.properties + row.properties_size
            self.size += row.size
            self.count += 1
        return self.count > 0

    @cython.cfunc
    def _commons(self) -> cython.bint:
        """Lay out what all messages get."""
        i: cython.Py_ssize_t = 0
        name: bytes
        pair: bytes
        if len(self._pairs) > MOST_COMMON:
            return False
        for name, pair in self._pairs:
            # The list keeps it where it is; its first bytes are the name.
            self._common[i].pair = cython.cast(cython.p_const_char, pair)
            self._common[i].name_size, self._common[i].size = len(name), len(pair)
            i += 1
        self._common_count = i
        return True

    @cython.cfunc
    def _grow(self) -> cython.void:
        rows = cython.cast(
            cython.pointer[_Row], realloc(self._rows, 2 * self._room * cython.sizeof(_Row))
        )
        if not rows:
            raise MemoryError
        self._rows, self._room = rows, 2 * self._room

    @cython.cfunc
    def _measured(self, row: cython.pointer[_Row]) -> cython.bint:
        """Find which common properties a message lacks, and how long its record will be."""
        size: cython.Py_ssize_t = row.properties_size
        i: cython.Py_ssize_t
        row.lacking = self._lacking(row)
        if size and self._byte(row.properties + size - 1) != 2:
            size += 1
        for i in range(self._common_count):
            if row.lacking >> i & 1:
                size += self._common[i].size
        row.size = len(self._head) + row.body_size + len(self._topic) + 2 + size
        return size <= _MOST_PROPERTIES and row.size <= self._most_body + _OVERHEAD

    @cython.cfunc
    @cython.exceptval(check=False)
    def _byte(self, at: cython.Py_ssize_t) -> cython.uchar:
        return cython.cast(cython.p_const_uchar, cython.cast(cython.p_const_char, self._body))[at]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _lacking(self, row: cython.pointer[_Row]) -> cython.uint:
        """A bit for each common property that a message does not have: that no pair of its own
        begins with the name of.
        """
        at = cython.cast(cython.p_const_char, self._body) + row.properties
        end = at + row.properties_size
        lacking: cython.uint = (cython.cast(cython.ulonglong, 1) << self._common_count) - 1
        size: cython.Py_ssize_t
        i: cython.Py_ssize_t
        while at < end:
            for i in range(self._common_count):
                size = self._common[i].name_size
                if size <= end - at and memcmp(at, self._common[i].pair, size) == 0:
                    lacking &= ~(cython.cast(cython.uint, 1) << i)
            at = cython.cast(cython.p_const_char, memchr(at, 2, end - at))
            if at == cython.NULL:
                break
            at += 1
        return lacking

    # --- writing --------------------------------------------------------------------------

    def fitting(self, room: cython.Py_ssize_t) -> tuple:
        """How many messages fit into so many bytes: all or none.

        @return: That, and the bytes of all their records.
        """
        return self.count if self.size <= room else 0, self.size

    def write(
        self,
        file: cython.uchar[::1],
        position: cython.Py_ssize_t,
        offset: cython.longlong,
        *,
        count: cython.Py_ssize_t,
        stored: cython.longlong,
        born_host: bytes,
        next_offsets: dict,
    ) -> int:
        """Write all records.

        @param file: A log file, with room for them.
        @param position: Where in it.
        @param offset: The same, in the log.
        @param count: All of them.
        @param stored: Milliseconds since 1970.
        @param born_host: IPv4 address and port of the client; empty if the head has it.
        @param next_offsets: By the keys of queues; moved on.
        @return: The offset of the last one.
        @raise ValueError: If they have no room there.
        """
        to: cython.p_uchar
        i: cython.Py_ssize_t
        if not count or count != self.count:
            raise ValueError(f"{count} of {self.count} records")
        if position < 0 or file.shape[0] - position < self.size:
            raise ValueError(f"{self.size} bytes at {position} of {file.shape[0]}")
        if born_host:
            born: cython.Py_ssize_t = self._stored_at - len(born_host)
            self._head = self._head[:born] + born_host + self._head[self._stored_at :]
        known = next_offsets.get(self._key)
        self.queue_offset = 0 if known is None else known
        self._begin = offset
        to = cython.address(file[position])
        for i in range(count):
            to = self._record(to, cython.address(self._rows[i]), offset, self.queue_offset + i)
            put8(to - self._rows[i].size + self._stored_at, stored)
            offset += self._rows[i].size
        next_offsets[self._key] = self.queue_offset + count
        return offset - self._rows[count - 1].size

    @cython.cfunc
    def _record(
        self,
        to: cython.p_uchar,
        row: cython.pointer[_Row],
        offset: cython.longlong,
        queue_offset: cython.longlong,
    ) -> cython.p_uchar:
        """Write a record, all but its store time.

        @return: Just past it.
        """
        data = cython.cast(cython.p_const_uchar, cython.cast(cython.p_const_char, self._body))
        head: cython.Py_ssize_t = len(self._head)
        topic: cython.Py_ssize_t = len(self._topic)
        crc: cython.longlong
        if _CRC:
            crc = crc_at(_CRC, data + row.body, row.body_size)
        else:
            crc = crc32(self._body[row.body : row.body + row.body_size])
        memcpy(to, cython.cast(cython.p_const_char, self._head), head)
        put4(to + _SIZE, row.size)
        put4(to + _BODY_CRC, crc & _MASK)
        put4(to + _FLAG, row.flag)
        put8(to + _QUEUE_OFFSET, queue_offset)
        put8(to + _OFFSET, offset)
        to += head
        put4(to - 4, row.body_size)
        memcpy(to, data + row.body, row.body_size)
        to += row.body_size
        memcpy(to, cython.cast(cython.p_const_char, self._topic), topic)
        return self._properties(to + topic, row)

    @cython.cfunc
    def _properties(self, to: cython.p_uchar, row: cython.pointer[_Row]) -> cython.p_uchar:
        """Write a message's own properties, and the common ones it lacks, behind their length.

        @return: Just past them.
        """
        start: cython.p_uchar = to
        size: cython.Py_ssize_t = row.properties_size
        i: cython.Py_ssize_t
        to += 2
        if size:
            memcpy(to, cython.cast(cython.p_const_char, self._body) + row.properties, size)
            to += size
            if (to - 1)[0] != 2:
                to[0] = 2
                to += 1
        for i in range(self._common_count):
            if row.lacking >> i & 1:
                memcpy(to, self._common[i].pair, self._common[i].size)
                to += self._common[i].size
        size = to - start - 2
        start[0], start[1] = size >> 8, size & 255
        return to

    # --- answering ------------------------------------------------------------------------

    def ids(self) -> bytes:
        """What tells a producer where each message is, with commas between."""
        head: cython.Py_ssize_t = len(self._host_text)
        out = cython.cast(cython.p_uchar, malloc(self.count * (head + 17) + 1))
        if not out:
            raise MemoryError
        to: cython.p_uchar = out
        offset: cython.longlong = self._begin
        i: cython.Py_ssize_t
        try:
            for i in range(self.count):
                if i:
                    to[0] = 44
                    to += 1
                memcpy(to, cython.cast(cython.p_const_char, self._host_text), head)
                to = hex16(to + head, offset)
                offset += self._rows[i].size
            return cython.cast(cython.p_char, out)[: to - out]
        finally:
            free(out)
