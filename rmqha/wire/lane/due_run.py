"""Runs of messages that wait for their time: what their records say read in one pass, and the
copies of those that are due written in another.

This module is compiled (C{setup.py}), and of use only so.  It reads what is usual and nothing
else: a record with anything unusual about it ends the run and is left to the usual way, which knows
what it means, or what is wrong with it.  What is understood is delivered as it would be there:
tests drive the same messages through both and compare.

Records are read by pointer where their lengths have been held against the bytes that are there.

Source: docs/protocol/remoting.md, Timer messages and Delayed messages; docs/protocol/store.rst,
Records.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import PyBUF_READ
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memchr, memcmp, memcpy
from cython.cimports.rmqha.wire.lane.big_endian import at4, at8, crc_at, put4, put8
from isal.isal_zlib import crc32

from rmqha.wire.lane.native_crc import CRC
from rmqha.wire.log.encode import MAX_PROPERTIES, MAX_TOPIC
from rmqha.wire.log.hashing import MASK
from rmqha.wire.log.layout import (
    BODY_AT,
    BODY_CRC_AT,
    BORN_TIMESTAMP_AT,
    IP6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MAX_RECORD_OVERHEAD,
    MIN_RECORD,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
)
from rmqha.wire.log.pop_record import CHECK_POINT_TAG, LEAD
from rmqha.wire.log.sys_flag import BORN_IP6, COMMIT, STORE_IP6, TRANSACTION
from rmqha.wire.names import (
    REAL_QUEUE,
    REAL_TOPIC,
    REVIVE_PREFIX,
    TAGS,
    TIMER_CANCELS,
    TIMER_DELIVER,
    TIMER_DEQUEUED,
    TIMER_ENQUEUED,
    TIMER_OUT,
    TIMER_ROLLS,
)

MOST = cython.declare(cython.int, 256)
"""Most messages of a run."""

UNIT = cython.declare(cython.Py_ssize_t, 20)
"""Bytes of a queue unit: where the record is, its size, and eight more."""

COVERED = cython.declare(cython.longlong, -1)
"""In place of a time: the message is done with."""

_BODY = cython.declare(cython.Py_ssize_t, BODY_AT)
_IP6 = cython.declare(cython.Py_ssize_t, IP6_EXTRA)
_LEAST = cython.declare(cython.Py_ssize_t, MIN_RECORD)
_MAGIC = cython.declare(cython.longlong, MAGIC_V1)
_AT_MAGIC = cython.declare(cython.Py_ssize_t, MAGIC_AT)
_AT_CRC = cython.declare(cython.Py_ssize_t, BODY_CRC_AT)
_AT_QUEUE = cython.declare(cython.Py_ssize_t, QUEUE_ID_AT)
_AT_QUEUE_OFFSET = cython.declare(cython.Py_ssize_t, QUEUE_OFFSET_AT)
_AT_OFFSET = cython.declare(cython.Py_ssize_t, PHYSICAL_OFFSET_AT)
_AT_FLAG = cython.declare(cython.Py_ssize_t, SYS_FLAG_AT)
_AT_BORN = cython.declare(cython.Py_ssize_t, BORN_TIMESTAMP_AT)
_AT_STORED = cython.declare(cython.Py_ssize_t, STORE_TIMESTAMP_AT)
_BORN_IP6 = cython.declare(cython.longlong, BORN_IP6)
_STORE_IP6 = cython.declare(cython.longlong, STORE_IP6)
_TRANSACTION = cython.declare(cython.longlong, TRANSACTION)
_COMMIT = cython.declare(cython.longlong, COMMIT)
_MASK = cython.declare(cython.longlong, MASK)
_CRC = cython.declare(cython.size_t, CRC)
_MOST_TOPIC = cython.declare(cython.Py_ssize_t, MAX_TOPIC)
_MOST_PROPERTIES = cython.declare(cython.Py_ssize_t, MAX_PROPERTIES)
_OVERHEAD = cython.declare(cython.Py_ssize_t, MAX_RECORD_OVERHEAD)

_REAL_TOPIC = cython.declare(bytes, REAL_TOPIC.encode())
_REAL_QUEUE = cython.declare(bytes, REAL_QUEUE.encode())
_OUT = cython.declare(bytes, TIMER_OUT.encode())
_DELIVER = cython.declare(bytes, TIMER_DELIVER.encode())
_CANCELS = cython.declare(bytes, TIMER_CANCELS.encode())
_ROLLS = cython.declare(bytes, TIMER_ROLLS.encode())
_TAGS_NAME = cython.declare(bytes, TAGS.encode())
_REVIVES = cython.declare(bytes, REVIVE_PREFIX.encode())
_CHECK_POINT_TAG = cython.declare(bytes, CHECK_POINT_TAG.encode())
_LEAD = cython.declare(cython.longlong, LEAD)

_ENQUEUED = cython.declare(bytes, f"{TIMER_ENQUEUED}\x01".encode())
_DEQUEUED = cython.declare(bytes, f"\x02{TIMER_DEQUEUED}\x01".encode())

_CANCELLING = cython.declare(cython.int, 1)
_ROLLED = cython.declare(cython.int, 2)
_POPPED = cython.declare(cython.int, 4)
_CHECK_POINT = cython.declare(cython.int, 8)
"""What a timer message tells of itself: that it cancels another, was stored anew, or is of POP,
a check point or acks.
"""

_LATEST = cython.declare(cython.longlong, 1 << 48)
"""No time is as late, in milliseconds since 1970."""

_Row = cython.struct(
    source=cython.p_const_uchar,
    size=cython.Py_ssize_t,
    body=cython.Py_ssize_t,
    body_size=cython.Py_ssize_t,
    properties=cython.Py_ssize_t,
    stored=cython.longlong,
    crc=cython.longlong,
    topic=cython.p_const_uchar,
    topic_size=cython.Py_ssize_t,
    queue_id=cython.longlong,
    slot=cython.longlong,
    at=cython.longlong,
    due=cython.longlong,
    told=cython.int,
    copy=cython.Py_ssize_t,
)


@cython.cclass
class DueRun:
    """Room for a run, used again and again.

    @ivar count: Messages understood; once they are written, those that were.
    @ivar times: Of a scan, when each is to be looked at, in milliseconds since 1970, or L{COVERED}.
    """

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _waits_at: bytes
    _timers: cython.bint
    _precision = cython.declare(cython.longlong)
    _window = cython.declare(cython.longlong)
    _most_body = cython.declare(cython.Py_ssize_t)
    _file: object
    _living: object
    _rows: cython.pointer[_Row]
    # What is read lies in the last one, mostly; all of them are held until a run is written.
    _views: list
    _view: cython.const[cython.uchar][::1]
    _base = cython.declare(cython.longlong)
    _length = cython.declare(cython.Py_ssize_t)
    _now: bytes
    # By its bytes: a topic and where it begins, or C{None}; the same by row; and what queues of it
    # are known by.
    _topics: dict
    _targets: list
    _keys: dict

    def __cinit__(self) -> None:
        self._rows = cython.cast(cython.pointer[_Row], malloc(MOST * cython.sizeof(_Row)))
        if not self._rows:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self._rows)

    def __init__(
        self,
        *,
        topic: str,
        precision: int,
        window: int,
        most_body: int,
        file: object,
        living: object,
    ) -> None:
        """@param topic: Where the messages wait.
        @param precision: Milliseconds of a slot of timers; 0 where messages wait that are none.
        @param window: Milliseconds after which a timer message is stored anew.
        @param most_body: C{maxMessageSize}.
        @param file: Gives the bytes of the log file that has a physical offset, and the offset
            where they begin; no bytes if there are none.
        @param living: Tells of a topic from where on its records count; C{None} of one that no
            message may be delivered to.
        """
        self._waits_at = topic.encode()
        self._timers, self._precision, self._window = precision > 0, precision, window
        self._most_body = most_body
        self._file, self._living = file, living
        self._views, self._targets = [], []
        self._topics, self._keys = {}, {}
        self._base, self._length = 0, 0
        self._now = b""

    # --- reading --------------------------------------------------------------------

    def scan(
        self,
        units: bytes,
        first: cython.longlong,
        times: cython.longlong[::1],
        *,
        back: cython.bint,
        known: tuple | None,
        marks: object,
        topics: object,
    ) -> int:
        """Read when messages are due, up to the first that has to be looked at.

        @param units: Of the queue of timer messages, of consecutive queue offsets.
        @param first: The queue offset of the first one.
        @param times: Gets when each is to be looked at, or L{COVERED}; there is room for all.
        @param back: Whether to begin at the last one.
        @param known: Queue offset, time and a set of queue offsets: messages before that and due by
            then are done with unless they are among these.
        @param marks: The marks of messages that have to be looked at; C{None} if those that were
            stored anew need not be.
        @param topics: Counts those that are not done with.
        @return: How many.
        """
        row: cython.pointer[_Row] = self._rows
        count: cython.Py_ssize_t = len(units) // UNIT
        done: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        next_one: cython.longlong = -1
        by: cython.longlong = 0
        waiting: object = None
        over: cython.bint
        same: cython.longlong = 0
        of: cython.p_const_uchar = cython.NULL
        of_size: cython.Py_ssize_t = 0
        source = cython.cast(cython.p_const_uchar, cython.cast(cython.p_const_char, units))
        if times.shape[0] < count:
            raise ValueError(f"{times.shape[0]} places for {count} messages")
        if known is not None:
            next_one, by, waiting = known
        while done < count:
            place = count - 1 - done if back else done
            if not self._read(row, source + UNIT * place, 0, first + place, False):
                break
            if row.told & _POPPED and back:
                break
            if row.told & _CANCELLING or (row.told & _ROLLED and marks is not None):
                break
            if marks and self._mark(row) in marks:
                break
            times[done] = row.at
            # For acks of what POP handed out nothing is to be done.
            over = bool(row.told & _POPPED and not row.told & _CHECK_POINT)
            if first + place < next_one and row.at <= by:
                over = over or (first + place) not in waiting
            if over:
                times[done] = COVERED
            elif of_size == row.topic_size and not memcmp(of, row.topic, of_size):
                same += 1
            else:
                self._count(topics, of, of_size, same)
                of, of_size, same = row.topic, row.topic_size, 1
            done += 1
        self._count(topics, of, of_size, same)
        self.clear()
        return done

    def finished(self, units: bytes, offsets: list, places: set, topics: object) -> int:
        """Pass the first messages that are due, as far as they are check points for which nothing
        is to be done.

        @param units: Of each.
        @param offsets: Their queue offsets.
        @param places: The queue offsets of those for which something is.
        @param topics: Counts them.
        @return: How many.
        """
        row: cython.pointer[_Row] = self._rows
        wanted: cython.int = _POPPED | _CHECK_POINT
        done: cython.Py_ssize_t = 0
        source = cython.cast(cython.p_const_uchar, cython.cast(cython.p_const_char, units))
        while done < len(units) // UNIT and offsets[done] not in places:
            if not self._read(row, source + UNIT * done, 0, offsets[done], False):
                break
            if row.told & (wanted | _CANCELLING) != wanted:
                break
            self._count(topics, row.topic, row.topic_size, 1)
            done += 1
        self.clear()
        return done

    @cython.cfunc
    def _count(
        self,
        topics: object,
        name: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        count: cython.longlong,
    ) -> cython.bint:
        if count:
            topic: bytes = cython.cast(cython.p_const_char, name)[:size]
            told: str = topic.decode()
            topics[told] += count
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _mark(self, row: cython.pointer[_Row]) -> cython.ulonglong:
        born = cython.cast(cython.ulonglong, at8(row.source + _AT_BORN))
        return born << 20 ^ cython.cast(cython.ulonglong, at4(row.source + _AT_CRC) & _MASK)

    def read(
        self,
        units: bytes,
        offsets: list,
        *,
        queue_id: cython.longlong,
        now: cython.longlong,
        cancelled: dict,
    ) -> int:
        """Read messages that are due, up to the first that is unusual.

        @param units: Of each.
        @param offsets: Their queue offsets.
        @param queue_id: Where they wait.
        @param now: Milliseconds since 1970.
        @param cancelled: Has the slots of which messages are cancelled.
        @return: How many were understood.
        """
        row: cython.pointer[_Row]
        stop: cython.Py_ssize_t = min(len(offsets), MOST)
        source = cython.cast(cython.p_const_uchar, cython.cast(cython.p_const_char, units))
        self.clear()
        if UNIT * stop > len(units):
            return 0
        self._now = b"%d" % now
        while self.count < stop:
            row = cython.address(self._rows[self.count])
            if not self._read(row, source + UNIT * self.count, queue_id, offsets[self.count], True):
                break
            if row.told & _CANCELLING or row.at != row.due or row.due > now:
                break
            if cancelled and row.slot in cancelled:
                break
            if not self._sound(row) or not self._measured(row):
                break
            self.count += 1
        return self.count

    @cython.cfunc
    def _read(
        self,
        row: cython.pointer[_Row],
        unit: cython.p_const_uchar,
        queue_id: cython.longlong,
        queue_offset: cython.longlong,
        whole: cython.bint,
    ) -> cython.bint:
        """Read what a record says.

        @param whole: Whether its copy is wanted.
        @return: Whether it is the one of this place, and understood.
        """
        offset: cython.longlong = at8(unit)
        size: cython.Py_ssize_t = at4(unit + 8)
        at: cython.Py_ssize_t
        known: cython.bint = self._base <= offset < self._base + self._length
        if not known and not self._found(offset):
            return False
        at = offset - self._base
        if size < _LEAST or size > self._length - at:
            return False
        source: cython.p_const_uchar = cython.address(self._view[at])
        flags: cython.longlong = at4(source + _AT_FLAG)
        if (
            at4(source) != size
            or at4(source + _AT_MAGIC) != _MAGIC
            or at8(source + _AT_OFFSET) != offset
            or at4(source + _AT_QUEUE) != queue_id
            or at8(source + _AT_QUEUE_OFFSET) != queue_offset
        ):
            return False
        if flags & _TRANSACTION != 0 and flags & _TRANSACTION != _COMMIT:
            return False
        row.source, row.size, row.body = source, size, _BODY
        at = _AT_STORED
        if flags & _BORN_IP6:
            at += _IP6
            row.body += _IP6
        if flags & _STORE_IP6:
            row.body += _IP6
        if row.body + 3 > size:
            return False
        row.stored = at8(source + at)
        row.body_size = at4(source + row.body - 4)
        waits: cython.Py_ssize_t = len(self._waits_at)
        if row.body_size < 0 or row.body_size > size - row.body - 3 - waits:
            return False
        topic: cython.p_const_uchar = source + row.body + row.body_size
        if topic[0] != waits or memcmp(
            topic + 1, cython.cast(cython.p_const_char, self._waits_at), waits
        ):
            return False
        row.properties = row.body + row.body_size + waits + 3
        at = topic[waits + 1] << 8 | topic[waits + 2]
        if at > 0x7FFF or row.properties + at != size or not at or source[size - 1] != 2:
            return False
        return self._understood(row, whole)

    @cython.cfunc
    def _found(self, offset: cython.longlong) -> cython.bint:
        """Look into the file of the log that has an offset."""
        view: object
        view, self._base = self._file(offset)
        self._length = len(view)
        if not self._length:
            return False
        self._views.append(view)
        self._view = view
        return True

    @cython.cfunc
    def _understood(self, row: cython.pointer[_Row], whole: cython.bint) -> cython.bint:
        """Read its properties; of a name written twice the last counts."""
        at: cython.p_const_uchar = row.source + row.properties
        end: cython.p_const_uchar = row.source + row.size
        stop: cython.p_const_uchar
        middle: cython.p_const_uchar
        deliver: cython.longlong = -1
        row.topic_size, row.queue_id, row.slot, row.told = 0, -1, -1, 0
        while at < end:
            stop = cython.cast(cython.p_const_uchar, memchr(at, 2, end - at))
            # R or T begins each of those that count.
            if (at[0] == 82 or at[0] == 84) and stop - at > 2:
                middle = cython.cast(cython.p_const_uchar, memchr(at, 1, stop - at))
                if middle != cython.NULL and middle + 1 < stop:
                    if self._is(at, middle, _REAL_TOPIC):
                        row.topic, row.topic_size = middle + 1, stop - middle - 1
                    elif self._is(at, middle, _REAL_QUEUE):
                        row.queue_id = self._number(middle + 1, stop, 9)
                        if row.queue_id < 0:
                            return False
                    elif self._timers:
                        if self._is(at, middle, _OUT):
                            row.slot = self._number(middle + 1, stop, 15)
                            if row.slot < 0:
                                return False
                        elif self._is(at, middle, _DELIVER):
                            deliver = self._number(middle + 1, stop, 18)
                            if deliver < 0:
                                return False
                        elif self._is(at, middle, _CANCELS):
                            row.told |= _CANCELLING
                        elif self._is(at, middle, _ROLLS):
                            row.told |= _ROLLED
                        elif self._is(at, middle, _TAGS_NAME):
                            row.told &= ~_CHECK_POINT
                            if self._is(middle + 1, stop, _CHECK_POINT_TAG):
                                row.told |= _CHECK_POINT
            at = stop + 1
        if not row.topic_size or not self._ascii(row.topic, row.topic_size):
            return False
        if whole and (row.topic_size > _MOST_TOPIC or row.queue_id < 0):
            return False
        if not self._timers:
            row.at = row.due = 0
            return True
        if self._is(row.topic, row.topic + min(row.topic_size, len(_REVIVES)), _REVIVES):
            # What POP handed out is not delivered, but looked at when its time is over.
            row.told |= _POPPED
            if whole or deliver < 0 or not self._times(row, deliver):
                return False
            row.at = deliver + _LEAD
            return True
        return self._times(row, deliver)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _times(self, row: cython.pointer[_Row], deliver: cython.longlong) -> cython.bint:
        """When it is due, and when it is to be looked at."""
        end: cython.longlong = row.slot + self._precision
        rest: cython.longlong = row.slot - row.stored - self._window
        if row.slot < 0 or row.slot >= _LATEST:
            return False
        row.due = row.at = deliver if row.slot < deliver <= end else end
        if rest >= 0:
            third: cython.bint = rest < self._window // 3
            row.at = row.stored + (self._window // 2 if third else self._window)
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is(self, at: cython.p_const_uchar, end: cython.p_const_uchar, name: bytes) -> cython.bint:
        return end - at == len(name) and not memcmp(
            at, cython.cast(cython.p_const_char, name), len(name)
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def _number(
        self, at: cython.p_const_uchar, end: cython.p_const_uchar, most: cython.Py_ssize_t
    ) -> cython.longlong:
        """A number of so many digits at most; -1 if it is none."""
        value: cython.longlong = 0
        if end - at > most:
            return -1
        while at < end:
            if not 48 <= at[0] <= 57:
                return -1
            value = 10 * value + at[0] - 48
            at += 1
        return value

    @cython.cfunc
    @cython.exceptval(check=False)
    def _ascii(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        seen: cython.uchar = 0
        i: cython.Py_ssize_t
        for i in range(size):
            seen |= at[i]
        return seen < 0x80

    @cython.cfunc
    def _sound(self, row: cython.pointer[_Row]) -> cython.bint:
        """Whether the body is what its checksum says."""
        body: cython.p_const_uchar = row.source + row.body
        row.crc = 0
        if not row.body_size:
            return True
        if _CRC:
            row.crc = crc_at(_CRC, body, row.body_size)
        else:
            row.crc = crc32(
                PyMemoryView_FromMemory(cython.cast(cython.p_char, body), row.body_size, PyBUF_READ)
            )
        row.crc &= _MASK
        return row.crc == at4(row.source + _AT_CRC)

    @cython.cfunc
    def _measured(self, row: cython.pointer[_Row]) -> cython.bint:
        """Find where the copy goes, and how long it will be.

        @return: Whether it may go there, and fits.
        """
        name: bytes = cython.cast(cython.p_const_char, row.topic)[: row.topic_size]
        properties: cython.Py_ssize_t = row.size - row.properties
        if name not in self._topics:
            topic: str = name.decode()
            begins: object = self._living(topic)
            self._topics[name] = None if begins is None else (topic, begins)
        target: tuple = self._topics[name]
        if target is None or at8(row.source + _AT_OFFSET) < target[1]:
            return False
        if self._timers:
            properties += self._added(row)
        row.copy = row.body + row.body_size + row.topic_size + 3 + properties
        if properties > _MOST_PROPERTIES or row.body_size > self._most_body:
            return False
        if row.copy > self._most_body + _OVERHEAD:
            return False
        key: tuple = (target[0], row.queue_id)
        self._targets.append(self._keys.setdefault(key, key))
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _added(self, row: cython.pointer[_Row]) -> cython.Py_ssize_t:
        """Bytes of what the copy is told."""
        digits: cython.Py_ssize_t = 1
        rest: cython.longlong = row.stored // 10
        while rest > 0:
            rest //= 10
            digits += 1
        return len(_ENQUEUED) + digits + len(_DEQUEUED) + len(self._now) + 1

    def clear(self) -> None:
        """Let go of what was read."""
        self.count = 0
        self._base, self._length = 0, 0
        self._view = None
        self._views.clear()
        self._targets.clear()
        # Topics may be deleted meanwhile.
        self._topics.clear()
        if len(self._keys) > 10_000:
            self._keys.clear()

    # --- writing --------------------------------------------------------------------------

    def fitting(self, room: cython.Py_ssize_t) -> tuple:
        """How many messages from the first on fit into so many bytes.

        @return: That, and the bytes of their records.
        """
        total: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t = 0
        while i < self.count and total + self._rows[i].copy <= room:
            total += self._rows[i].copy
            i += 1
        return i, total

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
        """Write the first copies.

        @param file: A log file, with room for them.
        @param position: Where in it.
        @param offset: The same, in the log.
        @param stored: Milliseconds since 1970.
        @param born_host: The messages have said that already.
        @param next_offsets: Of each queue, by topic and number; moved on.
        @return: The offset of the last one.
        @raise ValueError: If they have no room there.
        """
        to: cython.p_uchar
        total: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        for i in range(min(count, self.count)):
            total += self._rows[i].copy
        if not 0 < count <= self.count or position < 0 or file.shape[0] - position < total:
            raise ValueError(f"{count} of {self.count} copies, {total} bytes at {position}")
        to = cython.address(file[position])
        last: cython.longlong = offset
        for i in range(count):
            row: cython.pointer[_Row] = cython.address(self._rows[i])
            key: tuple = self._targets[i]
            known: object = next_offsets.get(key)
            queue_offset: cython.longlong = 0 if known is None else known
            next_offsets[key] = queue_offset + 1
            last = offset
            self._copy(to, row, offset, queue_offset, stored)
            to += row.copy
            offset += row.copy
        self.count = count
        return last

    @cython.cfunc
    def _copy(
        self,
        start: cython.p_uchar,
        row: cython.pointer[_Row],
        offset: cython.longlong,
        queue_offset: cython.longlong,
        stored: cython.longlong,
    ) -> cython.bint:
        to: cython.p_uchar = start
        properties: cython.Py_ssize_t = row.size - row.properties
        flags: cython.longlong = at4(row.source + _AT_FLAG)
        length: cython.p_uchar
        memcpy(to, row.source, row.body + row.body_size)
        put4(to, row.copy)
        put4(to + _AT_CRC, row.crc)
        put4(to + _AT_QUEUE, row.queue_id)
        put8(to + _AT_QUEUE_OFFSET, queue_offset)
        put8(to + _AT_OFFSET, offset)
        put8(to + _AT_STORED + (_IP6 if flags & _BORN_IP6 else 0), stored)
        # What is prepared is the half message of another record.
        put8(to + row.body - 12, 0)
        to += row.body + row.body_size
        to[0] = cython.cast(cython.uchar, row.topic_size)
        memcpy(to + 1, row.topic, row.topic_size)
        length = to + 1 + row.topic_size
        to = length + 2
        memcpy(to, row.source + row.properties, properties)
        to += properties
        if self._timers:
            to = self._piece(to, _ENQUEUED)
            to = self._decimal(to, row.stored)
            to = self._piece(to, _DEQUEUED)
            to = self._piece(to, self._now)
            to[0] = 2
            to += 1
        properties = to - length - 2
        length[0] = cython.cast(cython.uchar, properties >> 8)
        length[1] = cython.cast(cython.uchar, properties)
        if to - start != row.copy:
            raise AssertionError(f"{to - start} bytes written of {row.copy}")
        return True

    @cython.cfunc
    def _piece(self, to: cython.p_uchar, piece: bytes) -> cython.p_uchar:
        memcpy(to, cython.cast(cython.p_const_char, piece), len(piece))
        return to + len(piece)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _decimal(self, to: cython.p_uchar, value: cython.longlong) -> cython.p_uchar:
        """Write a number that is not negative."""
        rest: cython.longlong = value // 10
        size: cython.int = 1
        i: cython.int
        while rest:
            rest //= 10
            size += 1
        for i in range(size):
            to[size - 1 - i] = cython.cast(cython.uchar, 48 + value % 10)
            value //= 10
        return to + size

    # --- what became of it ------------------------------------------------------------------

    @property
    def queues(self) -> list:
        """Topic and queue id of each that was written."""
        return self._targets[: self.count]

    @property
    def code(self) -> int:
        """No request asked for them."""
        return 0

    @property
    def waits(self) -> int:
        """How many are waited for: all."""
        return self.count

    @property
    def unwaited(self) -> tuple:
        """None."""
        return ()
