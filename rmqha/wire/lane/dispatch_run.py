"""A run of records for dispatch: read in one pass, and their index entries written in another.

This module is compiled (C{setup.py}), and of use only so.  It reads what is usual and nothing
else: a record with anything unusual about it ends the run and is left to the codec in Python,
L{rmqha.wire.log.record.check} and L{rmqha.wire.log.record.dispatch_fields}, which say what it
is.  Tests compare both.

Bytes are read and written through views whose bounds are checked, as a damaged record may have any
lengths; by pointer only where what was read has said that they lie there.

Source: docs/protocol/store.rst, Records, Dispatch, Hashes and Index files.
"""

from __future__ import annotations

import cython
from cython.cimports.libc.string import memchr, memcmp
from cython.cimports.rmqha.wire.lane.big_endian import int4, int8, put4, put8
from cython.cimports.rmqha.wire.lane.prefetch import prefetch

from rmqha.wire.log.layout import (
    BODY_AT,
    IP6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MIN_RECORD,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
)
from rmqha.wire.log.sys_flag import BORN_IP6, COMMIT, ROLLBACK, STORE_IP6, TRANSACTION
from rmqha.wire.names import DELAY, KEYS, SCHEDULE_TOPIC, TAGS, UNIQUE_KEY

_BODY = cython.declare(cython.Py_ssize_t, BODY_AT)
_IP6 = cython.declare(cython.Py_ssize_t, IP6_EXTRA)
_LEAST = cython.declare(cython.longlong, MIN_RECORD)
_MAGIC = cython.declare(cython.longlong, MAGIC_V1)
_AT_MAGIC = cython.declare(cython.Py_ssize_t, MAGIC_AT)
_AT_OFFSET = cython.declare(cython.Py_ssize_t, PHYSICAL_OFFSET_AT)
_AT_QUEUE = cython.declare(cython.Py_ssize_t, QUEUE_ID_AT)
_AT_QUEUE_OFFSET = cython.declare(cython.Py_ssize_t, QUEUE_OFFSET_AT)
_AT_STORED = cython.declare(cython.Py_ssize_t, STORE_TIMESTAMP_AT)
_AT_FLAG = cython.declare(cython.Py_ssize_t, SYS_FLAG_AT)
_BORN_IP6 = cython.declare(cython.longlong, BORN_IP6)
_STORE_IP6 = cython.declare(cython.longlong, STORE_IP6)
_TRANSACTION = cython.declare(cython.longlong, TRANSACTION)
_COMMIT = cython.declare(cython.longlong, COMMIT)
_ROLLBACK = cython.declare(cython.longlong, ROLLBACK)
_SCHEDULE = cython.declare(object, SCHEDULE_TOPIC)
_TAGS = cython.declare(bytes, TAGS.encode())
_UNIQUE_KEY = cython.declare(bytes, UNIQUE_KEY.encode())
_KEYS = cython.declare(bytes, KEYS.encode())
_DELAY = cython.declare(bytes, DELAY.encode())

_INT32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)

# Slots lie anywhere in a file of many MiB: so many entries before, each is fetched.
_AHEAD = cython.declare(cython.Py_ssize_t, 8)


@cython.cclass
class DispatchReader:
    """What one run brings to queues and index.

    @ivar records: How many records were read.
    @ivar end: The position just past the last of them.
    @ivar last_timestamp: Its store time, milliseconds.
    @ivar hashes: Of the index keys, in the order of the log.
    @ivar offsets: Physical offset of each key's record.
    @ivar timestamps: Store time of each key's record, milliseconds.
    """

    records = cython.declare(cython.int, visibility="readonly")
    end = cython.declare(cython.Py_ssize_t, visibility="readonly")
    last_timestamp = cython.declare(cython.longlong, visibility="readonly")
    hashes = cython.declare(list, visibility="readonly")
    offsets = cython.declare(list, visibility="readonly")
    timestamps = cython.declare(list, visibility="readonly")
    _data: cython.const[cython.uchar][::1]
    # All in their order: topic and queue id, queue offset of the first unit, and the units, which
    # are C{bytes} as long as there is one; and the number of each queue's last.
    _runs: list
    _open: dict
    # By its bytes: a topic, and the hash of what keys begin with.
    _topics: dict
    # The last one, and the last record's queue and the number of its run, -1 without one.
    _name: bytes
    _known: tuple
    _run: cython.Py_ssize_t
    _queue = cython.declare(cython.longlong)
    _tags = cython.declare(cython.longlong)
    _words: cython.Py_ssize_t[6]
    _delays: tuple
    _unit: cython.uchar[20]

    def __init__(
        self,
        data: cython.const[cython.uchar][::1],
        base: cython.longlong,
        stop: cython.Py_ssize_t,
        most: cython.int,
        max_size: cython.longlong,
        *,
        delays: tuple,
    ) -> None:
        """Read up to the first record that is unusual.

        @param base: Physical offset of C{data[0]}, where a record starts.
        @param stop: The first position that may not be read.
        @param most: How many records at most.
        @param max_size: Most bytes of a record.
        @param delays: Milliseconds of delay level 1, 2, ...
        """
        self._data, self._delays = data, delays
        self._open, self._runs, self._topics = {}, [], {}
        self._name, self._known, self._run = b"", None, -1
        self.hashes, self.offsets, self.timestamps = [], [], []
        size: cython.longlong
        stop = min(stop, self._data.shape[0])
        while self.records < most and stop - self.end >= _LEAST:
            size = int4(self._data, self.end)
            if size < _LEAST or size > max_size or size > stop - self.end:
                return
            if not self._record(self.end, size, base + self.end):
                return
            self.end += size
            self.records += 1

    def units(self) -> list:
        """Topic and queue id, queue offset of the first unit, and raw units of consecutive queue
        offsets, in the order of the log for each queue.
        """
        number: cython.Py_ssize_t
        for number in range(len(self._runs)):
            run: tuple = self._runs[number]
            if not isinstance(run[2], bytes):
                self._runs[number] = (run[0], run[1], bytes(run[2]))
        return self._runs

    @cython.cfunc
    def _record(
        self, at: cython.Py_ssize_t, size: cython.longlong, offset: cython.longlong
    ) -> cython.bint:
        """Read one record.

        @return: Whether it is whole, valid and usual; if not it was not read.
        """
        flags: cython.longlong = int4(self._data, at + _AT_FLAG)
        stored: cython.Py_ssize_t = at + _AT_STORED
        body: cython.Py_ssize_t = at + _BODY
        end: cython.Py_ssize_t = at + size
        length: cython.longlong
        if (
            int4(self._data, at + _AT_MAGIC) != _MAGIC
            or int8(self._data, at + _AT_OFFSET) != offset
        ):
            return False
        if flags & _BORN_IP6:
            stored += _IP6
            body += _IP6
        if flags & _STORE_IP6:
            body += _IP6
        if body >= end:
            return False
        length = int4(self._data, body - 4)
        if length < 0 or length > end - body - 4:
            return False
        topic: cython.Py_ssize_t = body + length + 1
        topic_length: cython.Py_ssize_t = self._data[topic - 1]
        properties: cython.Py_ssize_t = topic + topic_length + 2
        if topic_length == 0 or topic_length > 127 or properties > end:
            return False
        length = self._data[properties - 2] << 8 | self._data[properties - 1]
        if length > 0x7FFF or properties + length != end:
            return False
        if not self._ascii(topic, topic + topic_length):
            return False
        if not self._ascii(properties, end) and not self._utf8(properties, end):
            return False
        known: tuple = self._topic(topic, topic_length)
        self._properties(properties, end)
        if known[0] == _SCHEDULE and not self._due(int8(self._data, stored)):
            return False
        self.last_timestamp = int8(self._data, stored)
        state: cython.longlong = flags & _TRANSACTION
        if state == 0 or state == _COMMIT:
            self._add_unit(
                known[0],
                int4(self._data, at + _AT_QUEUE),
                int8(self._data, at + _AT_QUEUE_OFFSET),
                offset,
                size,
            )
        if state != _ROLLBACK:
            self._keys(known[1], offset)
        return True

    @cython.cfunc
    def _topic(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> tuple:
        """A topic's name, and the hash of what keys begin with; nearly always the last one's."""
        text = cython.cast(cython.p_const_char, cython.address(self._data[at]))
        if len(self._name) == size and not memcmp(
            text, cython.cast(cython.p_const_char, self._name), size
        ):
            return self._known
        self._name = text[:size]
        self._known = self._topics.get(self._name)
        if self._known is None:
            begun: cython.uint = self._hash(at, at + size, 0) * 31 + 35
            self._known = (self._name.decode(), begun)
            self._topics[self._name] = self._known
        self._run = -1
        return self._known

    @cython.cfunc
    def _properties(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        """Find the tags, and where unique key, keys and delay are; of a name written twice the
        last counts.
        """
        base: cython.p_const_char
        found: cython.p_const_char
        split: cython.Py_ssize_t
        place: cython.Py_ssize_t
        self._tags = 0
        self._words[0] = self._words[1] = self._words[2] = self._words[3] = 0
        self._words[4] = self._words[5] = 0
        base = cython.cast(cython.p_const_char, cython.address(self._data[0]))
        while at < end:
            found = cython.cast(cython.p_const_char, memchr(base + at, 2, end - at))
            place = end if found == cython.NULL else found - base
            found = cython.cast(cython.p_const_char, memchr(base + at, 1, place - at))
            split = place if found == cython.NULL else found - base
            if split < place - 1:
                if self._is(at, split, _TAGS):
                    self._tags = cython.cast(cython.int, self._hash(split + 1, place, 0))
                elif self._is(at, split, _UNIQUE_KEY):
                    self._words[0], self._words[1] = split + 1, place
                elif self._is(at, split, _KEYS):
                    self._words[2], self._words[3] = split + 1, place
                elif self._is(at, split, _DELAY):
                    self._words[4], self._words[5] = split + 1, place
            at = place + 1

    @cython.cfunc
    def _due(self, stored: cython.longlong) -> cython.bint:
        """A delayed message's tags are when it is due, if its level makes sense.

        @return: Whether that is understood.
        """
        at: cython.Py_ssize_t = self._words[4]
        end: cython.Py_ssize_t = self._words[5]
        level: cython.int = 0
        if not self._delays or end - at > 4:
            return False
        while at < end:
            if not 48 <= self._data[at] <= 57:
                return False
            level = 10 * level + self._data[at] - 48
            at += 1
        if level:
            self._tags = stored + self._delays[min(level, len(self._delays)) - 1]
        return True

    @cython.cfunc
    def _add_unit(
        self,
        topic: str,
        queue_id: cython.longlong,
        queue_offset: cython.longlong,
        offset: cython.longlong,
        size: cython.longlong,
    ) -> cython.void:
        """Put a unit to those of its queue."""
        unit: cython.p_uchar = self._unit
        put8(unit, offset)
        put4(unit + 8, size)
        put8(unit + 12, self._tags)
        raw: bytes = cython.cast(cython.p_char, unit)[:20]
        queue: tuple = None
        run: tuple
        if self._run < 0 or queue_id != self._queue:
            queue = (topic, queue_id)
            self._run, self._queue = self._open.get(queue, -1), queue_id
        if self._run >= 0:
            run = self._runs[self._run]
            queue = run[0]
            first: cython.longlong = run[1]
            if queue_offset == first + len(run[2]) // 20:
                if isinstance(run[2], bytes):
                    self._runs[self._run] = run = (queue, first, bytearray(run[2]))
                units: bytearray = run[2]
                units += raw
                return
        self._open[queue] = self._run = len(self._runs)
        self._runs.append((queue, queue_offset, raw))

    @cython.cfunc
    def _keys(self, begun: cython.uint, offset: cython.longlong) -> cython.void:
        """Add an index entry for the unique key, then one for each word of the keys.

        @param begun: Java's hash of what a key begins with.
        """
        at: cython.Py_ssize_t = self._words[2]
        end: cython.Py_ssize_t = self._words[3]
        place: cython.Py_ssize_t
        if self._words[1]:
            self._key(self._hash(self._words[0], self._words[1], begun), offset)
        if end:
            for place in range(at, end + 1):
                if place == end or self._data[place] == 32:
                    if place > at:
                        self._key(self._hash(at, place, begun), offset)
                    at = place + 1

    @cython.cfunc
    def _key(self, value: cython.uint, offset: cython.longlong) -> cython.void:
        signed: cython.longlong = cython.cast(cython.int, value)
        if signed < 0:
            signed = -signed
        self.hashes.append(0 if signed > _INT32_MAX else signed)
        self.offsets.append(offset)
        self.timestamps.append(self.last_timestamp)

    @cython.cfunc
    @cython.inline
    def _hash(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, value: cython.uint
    ) -> cython.uint:
        """Java's hash, over UTF-16 units, of UTF-8 that goes on from that of what stands before
        it.
        """
        unit: cython.uint
        if at == end:
            return value
        text: cython.p_const_uchar = cython.address(self._data[at])
        stop: cython.p_const_uchar = text + (end - at)
        while text < stop:
            unit = text[0]
            text += 1
            if unit >= 0x80:
                more: cython.int = 1 if unit < 0xE0 else 2 if unit < 0xF0 else 3
                unit &= 0x3F >> more
                for _ in range(more):
                    unit = unit << 6 | text[0] & 0x3F
                    text += 1
                if more == 3:
                    value = value * 31 + 0xD7C0 + (unit >> 10)
                    unit = 0xDC00 | unit & 0x3FF
            value = value * 31 + unit
        return value

    @cython.cfunc
    @cython.inline
    def _is(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, name: bytes) -> cython.bint:
        return end - at == len(name) and not memcmp(
            cython.address(self._data[at]), cython.cast(cython.p_const_char, name), end - at
        )

    @cython.cfunc
    @cython.inline
    def _ascii(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        text: cython.p_const_uchar
        seen: cython.uchar = 0
        place: cython.Py_ssize_t
        if at < end:
            text = cython.address(self._data[at])
            for place in range(end - at):
                seen |= text[place]
        return seen < 0x80

    @cython.cfunc
    def _utf8(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        try:
            cython.cast(cython.p_const_char, cython.address(self._data[at]))[: end - at].decode()
        except UnicodeDecodeError:
            return False
        return True


@cython.cfunc
@cython.inline
def _put(
    area: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong, size: cython.int
) -> cython.void:
    """Write a number of so many bytes, the highest first."""
    number: cython.int
    for number in range(size):
        area[at + number] = cython.cast(cython.uchar, value >> 8 * (size - 1 - number))


def put_entries(
    area: cython.uchar[::1],
    slots_at: cython.Py_ssize_t,
    slots: cython.longlong,
    entries_at: cython.Py_ssize_t,
    number: cython.longlong,
    begin: cython.longlong,
    hashes: list,
    offsets: list,
    timestamps: list,
) -> int:
    """Add entries to an index file: each entry, then its slot.

    @param area: The whole file, with blocks behind what is written.
    @param slots_at: Where its slots begin.
    @param slots: How many they are.
    @param entries_at: Where entry 0 is.
    @param number: The number of the first entry to write.
    @param begin: Store time of the file's first message, milliseconds.
    @return: How many slots are used that were not before.
    """
    used: cython.int = 0
    row: cython.Py_ssize_t
    value: cython.longlong
    for row in range(len(hashes)):
        if row + _AHEAD < len(hashes):
            value = hashes[row + _AHEAD]
            prefetch(cython.address(area[slots_at + 4 * (value % slots)]))
        value = hashes[row]
        stored: cython.longlong = timestamps[row]
        slot: cython.Py_ssize_t = slots_at + 4 * (value % slots)
        place: cython.Py_ssize_t = entries_at + 20 * number
        before: cython.longlong = int4(area, slot)
        if before <= 0 or before >= number:
            before = 0
            used += 1
        seconds: cython.longlong = (stored - begin) // 1000 if begin > 0 else 0
        seconds = 0 if seconds < 0 else min(seconds, _INT32_MAX)
        _put(area, place, value, 4)
        _put(area, place + 4, offsets[row], 8)
        _put(area, place + 12, seconds, 4)
        _put(area, place + 16, before, 4)
        _put(area, slot, number, 4)
        if number == 1:
            begin = stored
        number += 1
    return used
