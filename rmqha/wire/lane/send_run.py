"""A run of requests to store a message: read, written into the log, answered, each in one pass.

This module is compiled (C{setup.py}), and of use only so.  It reads what the usual clients write
and nothing else: a frame with anything unusual about it ends the run and is left to the codecs in
Python, which know what it means, or what is wrong with it.  So nothing here fails because of what
a client sent, and what is understood is understood as they do: tests drive the same requests
through both and compare.

Bytes of clients are read through a view whose bounds are checked.  Pointers are used to write
only, into what was measured before.

Source: docs/protocol/remoting.md, JSON header, Binary header and Sending;
docs/protocol/store.rst, Records; docs/architecture.rst, The write lane.
"""

from __future__ import annotations

import cython
from attrs import fields
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcmp, memcpy, memmove
from cython.cimports.rmqha.wire.lane.big_endian import hex16, int4, put4, put8

from rmqha.wire.log.encode import MAX_PROPERTIES, MAX_TOPIC
from rmqha.wire.log.hashing import body_crc
from rmqha.wire.log.layout import MAGIC_V1, MAX_RECORD_OVERHEAD, MIN_RECORD
from rmqha.wire.names import CLUSTER, DELAY, TIMER_PROPERTIES, TRANSACTION_PREPARED, WAIT
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.fields import wire_name
from rmqha.wire.remoting.frame import HEADER_LIMIT
from rmqha.wire.remoting.headers.send import SendMessageRequest, SendMessageV2Request

MOST = cython.declare(cython.int, 256)
"""Most messages of a run."""

SCRATCH = cython.declare(cython.Py_ssize_t, 256 << 10)
"""Bytes of the properties of a run, before they are put together with anything."""

MOST_NAMES = cython.declare(cython.int, 32)
"""Most properties of a message."""

INT32 = cython.declare(cython.longlong, 1 << 31)

_MAGIC = cython.declare(cython.longlong, MAGIC_V1)
_OVERHEAD = cython.declare(cython.Py_ssize_t, MAX_RECORD_OVERHEAD)
_ALONE = cython.declare(cython.Py_ssize_t, MIN_RECORD)
_MOST_TOPIC = cython.declare(cython.Py_ssize_t, MAX_TOPIC)
_MOST_PROPERTIES = cython.declare(cython.Py_ssize_t, MAX_PROPERTIES)
_MOST_HEADER = cython.declare(cython.Py_ssize_t, HEADER_LIMIT)
_SHORT = cython.declare(cython.longlong, int(RequestCode.SEND_MESSAGE_V2))
_LONG = cython.declare(cython.longlong, int(RequestCode.SEND_MESSAGE))

_LETTERS = cython.declare(
    dict,
    {
        wire_name(long).encode(): ord(wire_name(short))
        for long in fields(SendMessageRequest)
        for short in fields(SendMessageV2Request)
        if long.name == short.name
    },
)
"""The letter of a field that has its long name."""

_WAIT = cython.declare(bytes, WAIT.encode())

_NOT_HERE = cython.declare(
    object,
    frozenset(name.encode() for name in (CLUSTER, DELAY, TRANSACTION_PREPARED, *TIMER_PROPERTIES)),
)
"""Names of properties with which a message is not stored as it comes."""

_NUMBERS = cython.declare(cython.Py_ssize_t, 8 + 4 + 3 * 24 + 32)
"""Bytes of an answer beside the pieces of its form, at most."""

_MANDATORY = cython.declare(cython.uint, 0xFF)
"""Fields C{a} to C{h}, a bit each."""

_Row = cython.struct(
    end=cython.Py_ssize_t,
    opaque=cython.longlong,
    queue_id=cython.longlong,
    sys_flag=cython.longlong,
    born=cython.longlong,
    flag=cython.longlong,
    topic=cython.Py_ssize_t,
    topic_size=cython.Py_ssize_t,
    properties=cython.Py_ssize_t,
    properties_size=cython.Py_ssize_t,
    body=cython.Py_ssize_t,
    body_size=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
    queue_offset=cython.longlong,
    offset=cython.longlong,
)


@cython.cclass
class Route:
    """A topic that may be written to.

    @ivar topic: Its name, in UTF-8.
    @ivar keys: What its queues are known by, where their next offsets are kept.
    @ivar sys_flag: Bits that every message of it gets.
    """

    topic: bytes
    keys: list
    queues = cython.declare(cython.longlong)
    sys_flag = cython.declare(cython.longlong)

    def __init__(self, topic: bytes, keys: list, sys_flag: int) -> None:
        """@param keys: One for each queue."""
        self.topic, self.keys = topic, keys
        self.queues, self.sys_flag = len(keys), sys_flag


@cython.cclass
class SendRun:
    """Room for a run, used again and again.

    @ivar count: Messages understood.
    @ivar end: Just past the last frame that was understood.
    @ivar code: The request code of all.
    @ivar unknown: The topic of the frame behind it, if there was no route for that.
    """

    count = cython.declare(cython.int, visibility="readonly")
    end = cython.declare(cython.Py_ssize_t, visibility="readonly")
    code = cython.declare(cython.longlong, visibility="readonly")
    unknown = cython.declare(object, visibility="readonly")
    _code = cython.declare(cython.longlong)
    _short = cython.declare(cython.bint)
    _long = cython.declare(cython.bint)
    _kind = cython.declare(cython.int)
    _data: bytes
    _view: cython.const[cython.uchar][::1]
    _rows: cython.pointer[_Row]
    _scratch: cython.p_uchar
    _used = cython.declare(cython.Py_ssize_t)
    _names: cython.Py_ssize_t[64]
    _value = cython.declare(cython.longlong)
    _seen = cython.declare(cython.uint)
    _routes: list
    _cluster: bytes
    _clients_flags = cython.declare(cython.longlong)
    _most_body = cython.declare(cython.Py_ssize_t)
    _most_frame = cython.declare(cython.Py_ssize_t)
    _store_host: bytes
    _host_text: bytes

    def __cinit__(self) -> None:
        self._rows = cython.cast(cython.pointer[_Row], malloc(MOST * cython.sizeof(_Row)))
        self._scratch = cython.cast(cython.p_uchar, malloc(SCRATCH + 1))
        if not self._rows or not self._scratch:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self._rows)
        free(self._scratch)

    def __init__(
        self,
        *,
        cluster: bytes,
        store_host: bytes,
        clients_flags: int,
        most_body: int,
        most_frame: int,
    ) -> None:
        """@param cluster: The property that every message gets, with its ends.
        @param store_host: IPv4 address and port, as a record has them.
        @param clients_flags: The bits of a client's system flag that are stored.
        @param most_body: C{maxMessageSize}.
        @param most_frame: Most bytes of a frame.
        """
        self._cluster, self._store_host = cluster, store_host
        self._host_text = store_host.hex().upper().encode()
        self._clients_flags = clients_flags
        self._most_body, self._most_frame = most_body, most_frame
        self._routes = []

    # --- reading --------------------------------------------------------------------

    def read(
        self, data: bytes, at: cython.Py_ssize_t, stop: cython.Py_ssize_t, routes: dict
    ) -> int:
        """Read the frames from a position on, up to the first that is not understood.

        @param stop: No frame is read that begins here or later.
        @param routes: L{Route} by topic; C{None} for a topic that is never understood.
        @return: How many were understood.
        """
        row: cython.pointer[_Row]
        total: cython.Py_ssize_t
        size: cython.Py_ssize_t
        kind: cython.int
        view = self._view = data
        length: cython.Py_ssize_t = len(data)
        self._data, self.count, self.end = data, 0, at
        self._used, self.unknown = 0, None
        self._routes.clear()
        while self.count < MOST and at < stop and length - at >= 8:
            total, kind = int4(view, at), view[at + 4]
            size = view[at + 5] << 16 | view[at + 6] << 8 | view[at + 7]
            if not 4 <= total <= self._most_frame - 4 or total > length - at - 4:
                break
            if size > total - 4 or size > _MOST_HEADER:
                break
            if self._used + size + len(self._cluster) >= SCRATCH:
                break
            row = cython.address(self._rows[self.count])
            row.properties, row.properties_size = self._used, 0
            self._seen = 0
            self._short = self._long = False
            if not self._header(row, at + 8, size, kind):
                break
            row.body = at + 8 + size
            row.body_size = row.end = at + 4 + total
            row.body_size -= row.body
            if self.count and (kind != self._kind or self._code != self.code):
                break
            if self._long if self._code == _SHORT else self._short:
                break
            if not self._take(row, routes):
                break
            self._kind, self.code = kind, self._code
            at = self.end = row.end
            self.count += 1
        return self.count

    @cython.cfunc
    def _header(
        self,
        row: cython.pointer[_Row],
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        kind: cython.int,
    ) -> cython.bint:
        if kind == 0:
            return self._json(row, at, size)
        return kind == 1 and self._binary(row, at, size)

    @cython.cfunc
    def _take(self, row: cython.pointer[_Row], routes: dict) -> cython.bint:
        """Find where a message goes, and how long its record will be."""
        if self._seen & _MANDATORY != _MANDATORY:
            return False
        topic: bytes = self._data[row.topic : row.topic + row.topic_size]
        found = routes.get(topic)
        if found is None:
            if topic not in routes:
                self.unknown = topic
            return False
        route: Route = found
        if not 0 <= row.queue_id < route.queues or row.body_size > self._most_body:
            return False
        if not self._kept(row):
            return False
        row.size = _ALONE + row.body_size + row.topic_size + row.properties_size
        if row.size > self._most_body + _OVERHEAD:
            return False
        row.sys_flag = row.sys_flag & self._clients_flags | route.sys_flag
        self._used = row.properties + row.properties_size
        self._routes.append(route)
        return True

    # --- JSON -----------------------------------------------------------------------

    @cython.cfunc
    def _json(
        self, row: cython.pointer[_Row], at: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.bint:
        """Read a JSON header.  Each member may be there once, none may be unknown, and nothing may
        stand between them.
        """
        view = self._view
        q: cython.Py_ssize_t = at + size
        key: cython.Py_ssize_t
        key_size: cython.Py_ssize_t
        members: cython.uint = 0
        bit: cython.uint
        while q > at and view[q - 1] == 10:
            q -= 1
        if q - at < 2 or view[at] != 123 or view[q - 1] != 125:
            return False
        while True:
            at += 1
            if at >= q or view[at] != 34:
                return False
            key = at + 1
            at = self._text(key, q)
            if at < 0 or at + 2 >= q or view[at + 1] != 58:
                return False
            key_size = at - key
            at += 2
            bit = self._member(key, key_size)
            if not bit or members & bit:
                return False
            members |= bit
            if bit == 1:
                at = self._json_fields(row, at, q)
            elif bit <= 16:
                at = self._number(at, q)
                if at < 0 or not -INT32 <= self._value < INT32:
                    return False
                if bit == 2:
                    self._code = self._value
                    if self._code != _SHORT and self._code != _LONG:
                        return False
                if bit == 4 and self._value:
                    return False
                if bit == 8:
                    row.opaque = self._value
                    if row.opaque < 0:
                        return False
            else:
                at = self._passed(at, q)
            if at < 0 or at >= q:
                return False
            if view[at] == 125:
                return at == q - 1 and members & 11 == 11
            if view[at] != 44:
                return False

    @cython.cfunc
    def _member(self, key: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.uint:
        """A bit for a member of the header; 0 for one that is not known."""
        name = cython.cast(cython.p_const_char, cython.address(self._view[key]))
        if size == 4:
            return 2 if memcmp(name, b"code", 4) == 0 else 4 if memcmp(name, b"flag", 4) == 0 else 0
        if size == 6 and memcmp(name, b"opaque", 6) == 0:
            return 8
        if size == 6 and memcmp(name, b"remark", 6) == 0:
            return 32
        if size == 7 and memcmp(name, b"version", 7) == 0:
            return 16
        if size == 8 and memcmp(name, b"language", 8) == 0:
            return 64
        if size == 9 and memcmp(name, b"extFields", 9) == 0:
            return 1
        if size == 23 and memcmp(name, b"serializeTypeCurrentRPC", 23) == 0:
            return 128
        return 0

    @cython.cfunc
    def _json_fields(
        self, row: cython.pointer[_Row], at: cython.Py_ssize_t, q: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """@return: Just past the closing brace; -1 if this is not understood."""
        view = self._view
        letter: cython.int
        start: cython.Py_ssize_t
        if view[at] != 123:
            return -1
        while True:
            at += 1
            if at >= q or view[at] != 34:
                return -1
            start = at + 1
            at = self._text(start, q)
            if at < 0 or q - at < 3 or view[at + 1] != 58:
                return -1
            letter = self._letter(start, at - start)
            at += 2
            if view[at] == 34:
                start = at + 1
                if letter == 105:
                    at = self._unescaped(row, start, q)
                    if at < 0 or self._seen & 256:
                        return -1
                    self._seen |= 256
                else:
                    at = self._text(start, q)
                    if at < 0 or not self._field(row, letter, start, at):
                        return -1
                at += 1
            else:
                start = at
                at = self._bare(start, q)
                if at < 0 or not self._field(row, letter, start, at):
                    return -1
            if at >= q:
                return -1
            if view[at] == 125:
                return at + 1
            if view[at] != 44:
                return -1

    @cython.cfunc
    def _text(self, at: cython.Py_ssize_t, q: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """@return: Where a text of plain ASCII ends that begins at C{at}; -1 if it is not one."""
        view = self._view
        while at < q:
            if view[at] == 34:
                return at
            if view[at] < 32 or view[at] > 126 or view[at] == 92:
                return -1
            at += 1
        return -1

    @cython.cfunc
    def _number(self, at: cython.Py_ssize_t, q: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A whole number without quotes, as JSON has it.

        @return: Just past it; -1 if it is not one.
        """
        stop: cython.Py_ssize_t = self._bare(at, q)
        return stop if stop >= 0 and self._whole(at, stop) else -1

    @cython.cfunc
    def _bare(self, at: cython.Py_ssize_t, q: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Just past a number, C{true} or C{false} without quotes; -1 if it is none of them."""
        view = self._view
        start: cython.Py_ssize_t = at
        if at < q and view[at] == 45:
            at += 1
        digits: cython.Py_ssize_t = at
        while at < q and 48 <= view[at] <= 57:
            at += 1
        if at > digits:
            return -1 if view[digits] == 48 and at - digits > 1 else at
        if at > start:
            return -1
        if q - at >= 4 and memcmp(cython.address(view[at]), b"true", 4) == 0:
            return at + 4
        if q - at >= 5 and memcmp(cython.address(view[at]), b"false", 5) == 0:
            return at + 5
        return -1

    @cython.cfunc
    def _passed(self, at: cython.Py_ssize_t, q: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """@return: Just past a text or C{null} that does not matter; -1 if it is neither."""
        view = self._view
        if at < q and view[at] == 34:
            at = self._text(at + 1, q)
            return at if at < 0 else at + 1
        if q - at >= 4 and memcmp(cython.address(view[at]), b"null", 4) == 0:
            return at + 4
        return -1

    @cython.cfunc
    def _unescaped(
        self, row: cython.pointer[_Row], at: cython.Py_ssize_t, q: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Copy the properties without JSON's escapes.

        @return: Where the closing quote is; -1 if it is not plain ASCII.
        """
        view = self._view
        scratch = self._scratch
        to: cython.Py_ssize_t = row.properties
        c: cython.uint
        while at < q:
            c = view[at]
            if c == 34:
                row.properties_size = to - row.properties
                return at
            if c < 32 or c > 126:
                return -1
            if c == 92:
                at += 1
                if at >= q:
                    return -1
                c = view[at]
                if c == 117:
                    # Below 0x80, which begins with two zeros.
                    if q - at < 6 or view[at + 1] != 48 or view[at + 2] != 48:
                        return -1
                    c = self._hex(view[at + 3]) << 4 | self._hex(view[at + 4])
                    if c > 127:
                        return -1
                    at += 4
                elif c == 110:
                    c = 10
                elif c == 116:
                    c = 9
                elif c == 114:
                    c = 13
                elif c != 34 and c != 92 and c != 47:
                    return -1
            scratch[to] = cython.cast(cython.uchar, c)
            to += 1
            at += 1
        return -1

    @cython.cfunc
    def _hex(self, c: cython.uint) -> cython.uint:
        """A digit's value; a large one for what is none."""
        if 48 <= c <= 57:
            return c - 48
        c |= 32
        return c - 87 if 97 <= c <= 102 else 4096

    # --- binary -----------------------------------------------------------------------

    @cython.cfunc
    def _binary(
        self, row: cython.pointer[_Row], at: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.bint:
        """Read a binary header: code, language, version, number, flag, remark, fields."""
        view = self._view
        q: cython.Py_ssize_t = at + size
        length: cython.Py_ssize_t
        start: cython.Py_ssize_t
        letter: cython.int
        if size < 21:
            return False
        self._code = view[at] << 8 | view[at + 1]
        if self._code != _SHORT and self._code != _LONG:
            return False
        row.opaque = int4(view, at + 5)
        if row.opaque < 0 or int4(view, at + 9) or int4(view, at + 13):
            return False
        if int4(view, at + 17) != size - 21:
            return False
        at += 21
        while at < q:
            if q - at < 7 or view[at] or not 0 < view[at + 1] <= q - at - 6:
                return False
            start = at + 2 + view[at + 1]
            letter = self._letter(at + 2, view[at + 1])
            length = int4(view, start)
            start += 4
            if not 0 <= length <= q - start:
                return False
            if letter == 105:
                if self._seen & 256 or not self._plain(start, start + length):
                    return False
                self._seen |= 256
                if length:
                    memcpy(self._scratch + row.properties, cython.address(view[start]), length)
                row.properties_size = length
            elif not self._field(row, letter, start, start + length):
                return False
            at = start + length
        return True

    @cython.cfunc
    def _plain(self, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Whether it is ASCII."""
        view = self._view
        while at < stop:
            if view[at] > 126:
                return False
            at += 1
        return True

    # --- fields -----------------------------------------------------------------------

    @cython.cfunc
    def _letter(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
        """The letter of a field's name, be it long or short; 0 for one that is not known."""
        if size == 1:
            self._short = True
            return self._view[at]
        self._long = True
        letter = _LETTERS.get(self._data[at : at + size])
        return 0 if letter is None else letter

    @cython.cfunc
    def _field(
        self,
        row: cython.pointer[_Row],
        letter: cython.int,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Take a field of the request, all but the properties."""
        if not 97 <= letter <= 110 or stop <= start:
            return False
        bit: cython.uint = 1 << (letter - 97)
        if self._seen & bit:
            return False
        self._seen |= bit
        if letter == 97 or letter == 99 or letter == 110:  # group, default topic, broker's name
            return self._plain(start, stop)
        if letter == 98:
            row.topic, row.topic_size = start, stop - start
            return row.topic_size <= _MOST_TOPIC and self._plain(start, stop)
        if letter == 107 or letter == 109:  # unit mode, batch
            if letter == 107 and self._is(start, stop, b"true"):
                return True
            return self._is(start, stop, b"false")
        if not self._whole(start, stop):
            return False
        if letter == 103:
            row.born = self._value
            return True
        if not -INT32 <= self._value < INT32:
            return False
        if letter == 101:
            row.queue_id = self._value
        elif letter == 102:
            row.sys_flag = self._value
        elif letter == 104:
            row.flag = self._value
        elif letter == 106:  # tries so far
            return self._value == 0
        elif letter != 100 and letter != 108:
            return False
        return True

    @cython.cfunc
    def _is(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, word: bytes) -> cython.bint:
        size: cython.Py_ssize_t = len(word)
        return stop - start == size and (
            memcmp(cython.address(self._view[start]), cython.cast(cython.p_const_char, word), size)
            == 0
        )

    @cython.cfunc
    def _whole(self, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Whether it is a whole number, which is L{_value} then."""
        view = self._view
        value: cython.longlong = 0
        minus: cython.bint = at < stop and view[at] == 45
        if minus:
            at += 1
        if not 0 < stop - at <= 18:
            return False
        while at < stop:
            if not 48 <= view[at] <= 57:
                return False
            value = value * 10 + (view[at] - 48)
            at += 1
        self._value = -value if minus else value
        return True

    # --- properties ---------------------------------------------------------------------

    @cython.cfunc
    def _kept(self, row: cython.pointer[_Row]) -> cython.bint:
        """Make a record's properties of a request's: without C{WAIT}, and with the cluster's name.
        Each has a name and a value, and none is there twice.
        """
        scratch = self._scratch
        names = self._names
        at: cython.Py_ssize_t = row.properties
        stop: cython.Py_ssize_t = at + row.properties_size
        to: cython.Py_ssize_t = at
        end: cython.Py_ssize_t
        middle: cython.Py_ssize_t
        size: cython.Py_ssize_t
        count: cython.int = 0
        i: cython.int
        while at < stop:
            end, middle = at, -1
            while end < stop and scratch[end] != 2:
                if scratch[end] == 1:
                    if middle >= 0:
                        return False
                    middle = end
                elif middle < 0 and not 32 <= scratch[end] <= 126:
                    return False
                end += 1
            if middle <= at or end - middle < 2:
                return False
            size = middle - at
            if (
                size == len(_WAIT)
                and memcmp(scratch + at, cython.cast(cython.p_const_char, _WAIT), size) == 0
            ):
                if not self._waits(middle + 1, end):
                    return False
                at = end + 1
                continue
            if self._special(at, size):
                return False
            if count == MOST_NAMES:
                return False
            for i in range(count):
                if names[2 * i + 1] == size and not memcmp(
                    scratch + names[2 * i], scratch + at, size
                ):
                    return False
            names[2 * count], names[2 * count + 1] = to, size
            count += 1
            if to != at:
                memmove(scratch + to, scratch + at, end - at)
            to += end - at
            scratch[to] = 2
            to += 1
            at = end + 1
        size = len(self._cluster)
        memcpy(scratch + to, cython.cast(cython.p_const_char, self._cluster), size)
        row.properties_size = to + size - row.properties
        return row.properties_size <= _MOST_PROPERTIES

    @cython.cfunc
    def _name_is(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t, name: bytes) -> cython.bint:
        if size != len(name):
            return False
        return memcmp(self._scratch + at, cython.cast(cython.p_const_char, name), size) == 0

    @cython.cfunc
    def _waits(self, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Whether C{WAIT} says what is so without it."""
        return stop - at == 4 and memcmp(self._scratch + at, b"true", 4) == 0

    @cython.cfunc
    def _special(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Whether a property of such a name changes what becomes of the message."""
        first: cython.uchar = self._scratch[at]
        # C, D or T: few others are looked at longer.
        if first != 67 and first != 68 and first != 84:
            return False
        name: bytes = cython.cast(cython.p_char, self._scratch + at)[:size]
        return name in _NOT_HERE

    # --- writing --------------------------------------------------------------------------

    def fitting(self, room: cython.Py_ssize_t) -> tuple:
        """How many messages from the first on fit into so many bytes.

        @return: That, and the bytes of their records.
        """
        total: cython.Py_ssize_t = 0
        i: cython.int = 0
        while i < self.count and total + self._rows[i].size <= room:
            total += self._rows[i].size
            i += 1
        return i, total

    def write(
        self,
        file: cython.uchar[::1],
        position: cython.Py_ssize_t,
        offset: cython.longlong,
        *,
        count: cython.int,
        stored: cython.longlong,
        born_host: bytes,
        next_offsets: dict,
    ) -> int:
        """Write the first records.

        @param file: A log file, with room for them.
        @param position: Where in it.
        @param offset: The same, in the log.
        @param stored: Milliseconds since 1970.
        @param born_host: IPv4 address and port of the client.
        @param next_offsets: Of each queue, by the keys of its topic's route; moved on.
        @return: The offset of the last one.
        @raise ValueError: If they have no room there.
        """
        row: cython.pointer[_Row]
        to: cython.p_uchar
        total: cython.Py_ssize_t = 0
        i: cython.int
        if count > self.count or len(born_host) != 8 or len(self._store_host) != 8:
            raise ValueError(f"{count} records of {self.count}, hosts of other than 8 bytes")
        for i in range(count):
            total += self._rows[i].size
        if not count or position < 0 or file.shape[0] - position < total:
            raise ValueError(f"{total} bytes at {position} of {file.shape[0]}")
        data = cython.cast(cython.p_const_char, self._data)
        to = cython.address(file[position])
        for i in range(count):
            row = cython.address(self._rows[i])
            route: Route = self._routes[i]
            key = route.keys[row.queue_id]
            known = next_offsets.get(key)
            row.queue_offset = 0 if known is None else known
            next_offsets[key] = row.queue_offset + 1
            row.offset = offset
            crc: cython.longlong = body_crc(self._data[row.body : row.body + row.body_size])
            put4(to, row.size)
            put4(to + 4, _MAGIC)
            put4(to + 8, crc)
            put4(to + 12, row.queue_id)
            put4(to + 16, row.flag)
            put8(to + 20, row.queue_offset)
            put8(to + 28, offset)
            put4(to + 36, row.sys_flag)
            put8(to + 40, row.born)
            memcpy(to + 48, cython.cast(cython.p_const_char, born_host), 8)
            put8(to + 56, stored)
            memcpy(to + 64, cython.cast(cython.p_const_char, self._store_host), 8)
            put4(to + 72, 0)
            put8(to + 76, 0)
            put4(to + 84, row.body_size)
            to += 88
            memcpy(to, data + row.body, row.body_size)
            to += row.body_size
            to[0] = cython.cast(cython.uchar, row.topic_size)
            memcpy(to + 1, data + row.topic, row.topic_size)
            to += 1 + row.topic_size
            to[0] = cython.cast(cython.uchar, row.properties_size >> 8)
            to[1] = cython.cast(cython.uchar, row.properties_size)
            memcpy(to + 2, self._scratch + row.properties, row.properties_size)
            to += 2 + row.properties_size
            offset += row.size
        self.count, self.end = count, row.end
        return row.offset

    # --- answering ------------------------------------------------------------------------

    def answers(self, forms: tuple) -> bytes:
        """The answers that say where each message is, all with code 0.

        @param forms: An L{AnswerForm} for each kind of header.
        """
        pieces: tuple = forms[self._kind].pieces
        size: cython.Py_ssize_t = _NUMBERS
        for piece in pieces:
            size += len(piece)
        out = cython.cast(cython.p_uchar, malloc(size * self.count + 1))
        if not out:
            raise MemoryError
        to: cython.p_uchar = out
        i: cython.int
        try:
            for i in range(self.count):
                to = self._answer(to, cython.address(self._rows[i]), pieces)
            return cython.cast(cython.p_char, out)[: to - out]
        finally:
            free(out)

    @cython.cfunc
    def _answer(
        self, to: cython.p_uchar, row: cython.pointer[_Row], pieces: tuple
    ) -> cython.p_uchar:
        """Write a frame.

        @return: Just past it.
        """
        start: cython.p_uchar = to
        fields: cython.p_uchar
        json: cython.bint = self._kind == 0
        to = self._piece(to + 8, pieces[0])
        if json:
            to = self._decimal(to, row.opaque)
            to = self._piece(to, pieces[1])
        else:
            put4(to, row.opaque)
            to = self._piece(to + 4, pieces[1]) + 4
        fields = to
        if not json:
            to = self._piece(to, pieces[2])
        to = self._piece(to, self._host_text)
        to = hex16(to, row.offset)
        to = self._piece(to, pieces[2 if json else 3])
        to = self._decimal(to, row.queue_id) if json else self._counted(to, row.queue_id)
        to = self._piece(to, pieces[3 if json else 4])
        to = self._decimal(to, row.queue_offset) if json else self._counted(to, row.queue_offset)
        to = self._piece(to, pieces[4 if json else 5])
        if not json:
            put4(fields - 4, to - fields)
        put4(start, to - start - 4)
        put4(start + 4, self._kind << 24 | (to - start - 8))
        return to

    @cython.cfunc
    def _piece(self, to: cython.p_uchar, piece: bytes) -> cython.p_uchar:
        size: cython.Py_ssize_t = len(piece)
        memcpy(to, cython.cast(cython.p_const_char, piece), size)
        return to + size

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

    @cython.cfunc
    @cython.exceptval(check=False)
    def _counted(self, to: cython.p_uchar, value: cython.longlong) -> cython.p_uchar:
        """The same behind the number of its digits."""
        end: cython.p_uchar = self._decimal(to + 4, value)
        put4(to, end - to - 4)
        return end
