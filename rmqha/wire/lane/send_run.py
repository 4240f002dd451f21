"""A run of requests that write: read, written into the log, answered, each in one pass.

They are messages, plain, delayed, timer and half ones, and one-way ends of half messages that this
process has stored itself; or batches.  An end is written as the usual way does it: a commit as a
copy of the half message, and behind it the op that names the half message.  What consumers give
back is a run of its own, of copies that wait for their time.  A run of acks is read only.

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

from base64 import urlsafe_b64encode

import cython
from attrs import fields
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcmp, memcpy, memmove, memset
from cython.cimports.rmqha.wire.lane.big_endian import hex16, int4, int8, put4, put8

from rmqha.wire.lane.batch_run import BatchRun
from rmqha.wire.log.encode import MAX_PROPERTIES, MAX_TOPIC
from rmqha.wire.log.hashing import body_crc
from rmqha.wire.log.layout import MAGIC_V1, MAX_RECORD_OVERHEAD, MIN_RECORD
from rmqha.wire.log.properties import OP_PROPERTIES
from rmqha.wire.log.sys_flag import COMMIT, IP6_HOSTS, TRANSACTION
from rmqha.wire.names import (
    CLUSTER,
    DELAY,
    HALF_DONE_TOPIC,
    HALF_TOPIC,
    ORIGIN_MESSAGE_ID,
    PRODUCER_GROUP,
    REAL_QUEUE,
    REAL_TOPIC,
    RETRY_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_CANCELS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER,
    TIMER_OUT,
    TIMER_PROPERTIES,
    TIMER_TOPIC,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT,
)
from rmqha.wire.remoting.codes import V3_4_9, RequestCode
from rmqha.wire.remoting.command import ONEWAY
from rmqha.wire.remoting.fields import wire_name
from rmqha.wire.remoting.frame import HEADER_LIMIT
from rmqha.wire.remoting.headers.clients import EndTransactionRequest
from rmqha.wire.remoting.headers.pop import AckMessageRequest
from rmqha.wire.remoting.headers.send import (
    FIRST_DELAY,
    SendBackRequest,
    SendMessageRequest,
    SendMessageV2Request,
)
from rmqha.wire.remoting.signature import ACCESS_KEY, SIGNATURE

MOST = cython.declare(cython.int, 256)
"""Most messages of a run."""

SCRATCH = cython.declare(cython.Py_ssize_t, 256 << 10)
"""Bytes of the properties of a run, before they are put together with anything."""

MOVED = cython.declare(cython.Py_ssize_t, 256)
"""Bytes of the properties that say where a message belongs, at most."""

MOST_NAMES = cython.declare(cython.int, 32)
"""Most properties of a message."""

MOST_IN_BATCH = cython.declare(cython.Py_ssize_t, 4096)
"""Most messages of a batch: the header of its answer can still be read."""

INT32 = cython.declare(cython.longlong, 1 << 31)

_MAGIC = cython.declare(cython.longlong, MAGIC_V1)
_OVERHEAD = cython.declare(cython.Py_ssize_t, MAX_RECORD_OVERHEAD)
_ALONE = cython.declare(cython.Py_ssize_t, MIN_RECORD)
_MOST_TOPIC = cython.declare(cython.Py_ssize_t, MAX_TOPIC)
_MOST_PROPERTIES = cython.declare(cython.Py_ssize_t, MAX_PROPERTIES)
_MOST_HEADER = cython.declare(cython.Py_ssize_t, HEADER_LIMIT)
_SHORT = cython.declare(cython.longlong, int(RequestCode.SEND_MESSAGE_V2))
_LONG = cython.declare(cython.longlong, int(RequestCode.SEND_MESSAGE))
_BATCH = cython.declare(cython.longlong, int(RequestCode.SEND_BATCH_MESSAGE))
_END = cython.declare(cython.longlong, int(RequestCode.END_TRANSACTION))
_ACK = cython.declare(cython.longlong, int(RequestCode.ACK_MESSAGE))
_BACK = cython.declare(cython.longlong, int(RequestCode.CONSUMER_SEND_MSG_BACK))
_ONEWAY = cython.declare(cython.longlong, ONEWAY)

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

END_LETTER = cython.declare(cython.int, 256)
"""What the fields of an end that no message has are numbered from, and then those of an ack and of
what is given back, in place of a letter.
"""

_ITS_OWN = [
    name
    for name in dict.fromkeys(
        wire_name(each).encode()
        for header in (EndTransactionRequest, AckMessageRequest, SendBackRequest)
        for each in fields(header)
    )
    if name not in _LETTERS
]
_LETTERS.update((name, END_LETTER + number) for number, name in enumerate(_ITS_OWN))

_WHO = cython.declare(cython.int, 512)
_SIGNATURE = cython.declare(cython.int, 513)
"""The same of what a signed request has besides its own."""

_LETTERS.update({ACCESS_KEY.encode(): 512, SIGNATURE.encode(): 513})

_MOST_PARTS = cython.declare(cython.int, 32)
"""Most fields of a request that is signed."""

_END_NEEDS = cython.declare(cython.uint, 0x170001)
_END_HAS = cython.declare(cython.uint, 0x3F2003)
"""Fields that an end has to have, and those it may have: group, topic and broker's name among a
message's, and its own from bit 16 on.
"""

_ACK_NEEDS = cython.declare(cython.uint, 0x1C00012)
_ACK_HAS = cython.declare(cython.uint, 0x1C02012)
"""The same of an ack: topic and queue, its own from bit 22 on, and the broker's name."""

_BACK_NEEDS = cython.declare(cython.uint, 0x7000000)
_BACK_HAS = cython.declare(cython.uint, 0x1F002C02)
"""The same of what is given back: offset, group and level; the most tries, and what does not
matter."""

_FIRST_DELAY = cython.declare(cython.longlong, FIRST_DELAY)
_LIMITS_SINCE = cython.declare(cython.longlong, V3_4_9)

_HANDLE_FIELDS = cython.declare(cython.int, 6)

_WAIT = cython.declare(bytes, WAIT.encode())
_DELAY = cython.declare(bytes, DELAY.encode())
_PREPARED = cython.declare(bytes, TRANSACTION_PREPARED.encode())
_SECONDS = cython.declare(bytes, TIMER_DELAY_SEC.encode())
_MILLIS = cython.declare(bytes, TIMER_DELAY_MS.encode())
_DELIVER = cython.declare(bytes, TIMER_DELIVER.encode())
_OUT = cython.declare(bytes, TIMER_OUT.encode())
_CANCELS = cython.declare(bytes, TIMER_CANCELS.encode())
_KEY = cython.declare(bytes, UNIQUE_KEY.encode())
_HANDLE = cython.declare(bytes, b"recallHandle")
_TRANSACTION_ID = cython.declare(bytes, b"transactionId")
_MOVING = cython.declare(
    object, frozenset((_DELAY, _PREPARED, _SECONDS, _MILLIS, _DELIVER, _OUT, _CANCELS))
)
_GROUP = cython.declare(bytes, PRODUCER_GROUP.encode())
_REAL_TOPIC = cython.declare(bytes, REAL_TOPIC.encode())
_REAL_QUEUE = cython.declare(bytes, REAL_QUEUE.encode())
_TOLD_NAMES = cython.declare(
    list, [RETRY_TOPIC.encode(), ORIGIN_MESSAGE_ID.encode(), _DELAY, _REAL_TOPIC, _REAL_QUEUE]
)
"""What a copy of a message that is given back says, if not before behind all else: the first two
as they were told first."""

_TOLD = cython.declare(dict, {name: kind for kind, name in enumerate(_TOLD_NAMES)})
_TOLD.update((name.encode(), len(_TOLD_NAMES)) for name in TIMER_PROPERTIES)

_NOT_HERE = cython.declare(
    object,
    frozenset(name.encode() for name in (CLUSTER, REAL_TOPIC, REAL_QUEUE)),
)
"""Names of properties with which a message is left to the usual way."""

_HALF_TOPIC = cython.declare(bytes, HALF_TOPIC.encode())
_OP_TOPIC = cython.declare(bytes, HALF_DONE_TOPIC.encode())
_OP_PROPERTIES = cython.declare(bytes, OP_PROPERTIES)

_TRANSACTION = cython.declare(cython.longlong, TRANSACTION)
_COMMIT = cython.declare(cython.longlong, COMMIT)
_IP6 = cython.declare(cython.longlong, IP6_HOSTS)
_COMMITTED = cython.declare(cython.longlong, 8)
_ROLLED_BACK = cython.declare(cython.longlong, 12)

MOST_OPEN = cython.declare(cython.Py_ssize_t, 100_000)
"""Half messages that are known at once; others are ended in the usual way."""

_NUMBERS = cython.declare(cython.Py_ssize_t, 8 + 4 + 3 * 24 + 32 + 24)
"""Bytes of an answer beside the pieces of its form and the word of a row, at most."""

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
    oneway=cython.bint,
    half=cython.bint,
    batch=cython.bint,
    level=cython.int,
    timed=cython.bint,
    named=cython.bint,
    unit=cython.longlong,
    due=cython.longlong,
    slot=cython.longlong,
    real_size=cython.Py_ssize_t,
    key=cython.Py_ssize_t,
    key_size=cython.Py_ssize_t,
    place=cython.longlong,
    word=cython.longlong,
    at=cython.longlong,
    group=cython.Py_ssize_t,
    group_size=cython.Py_ssize_t,
    version=cython.longlong,
    limit=cython.longlong,
)


_Part = cython.struct(
    name=cython.Py_ssize_t,
    name_size=cython.Py_ssize_t,
    value=cython.p_const_char,
    size=cython.Py_ssize_t,
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

    @ivar count: Requests understood.
    @ivar acks: How many of them are acks: all of them, or none.
    @ivar backs: How many of them give messages back: the same.
    @ivar ends: How many of them end half messages.
    @ivar halves: Whether half messages are among them.
    @ivar end: Just past the last frame that was understood.
    @ivar code: The request code of all messages.
    @ivar unknown: The topic of the frame behind it, if there was no route for that.
    @ivar firsts: For each end, which half message may be the first that is open; to be set
        before they are written.
    """

    count = cython.declare(cython.int, visibility="readonly")
    acks = cython.declare(cython.int, visibility="readonly")
    backs = cython.declare(cython.int, visibility="readonly")
    ends = cython.declare(cython.int, visibility="readonly")
    halves = cython.declare(cython.bint, visibility="readonly")
    firsts = cython.declare(object, visibility="public")
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
    # What signatures are held against, if they are: the fields of a request, whether one of them is
    # written in an unusual way, and who signed how.
    _check: object
    _parts: _Part[32]
    _count = cython.declare(cython.int)
    _odd = cython.declare(cython.bint)
    _who: bytes
    _signature: bytes
    _routes: list
    _cluster: bytes
    _clients_flags = cython.declare(cython.longlong)
    _most_body = cython.declare(cython.Py_ssize_t)
    _most_frame = cython.declare(cython.Py_ssize_t)
    _store_host: bytes
    _host_text: bytes
    _half_route: Route
    _op_route: Route
    _level_route: Route
    _timer_route: Route
    _broker: bytes
    # What time it is, for runs with timer messages; C{None} if none is taken.
    _clock: object
    _now = cython.declare(cython.longlong)
    _precision = cython.declare(cython.longlong)
    _most_delay = cython.declare(cython.longlong)
    _stored: dict
    _record_at: object
    _outlived: object
    _records: list
    _batches: list
    _pairs: list
    _cluster_pair: tuple
    _ending: set
    # Where copies of a group go, and how often at most; and whose is given back, and its topic.
    _retries: object
    _groups: dict
    _claimed: object
    _given: list

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
        levels: int,
        broker: bytes,
        timers: tuple | None,
        stored: dict | None,
        record_at: object,
        outlived: object,
        retries: object,
        claimed: object,
    ) -> None:
        """@param cluster: The property that every message gets, with its ends.
        @param store_host: IPv4 address and port, as a record has them.
        @param clients_flags: The bits of a client's system flag that are stored.
        @param most_body: C{maxMessageSize}.
        @param most_frame: Most bytes of a frame.
        @param levels: The highest delay level.
        @param broker: The broker's name.
        @param timers: What tells the time, and milliseconds of a slot and of the longest delay;
            C{None} if no timer message is taken.
        @param stored: Where open half messages of runs are, by their queue offsets; others take
            them out.  C{None} if no half message is taken.
        @param record_at: Gives the bytes of the log from a physical offset on, but no more than so
            many; raises C{ValueError} where it has none.
        @param outlived: Whether a topic was deleted after a record was stored, by its offset.
        @param retries: Gives a group's retry topic, of which queue 0 is used, and how often its
            messages come again; C{None} where that is to be looked at more closely.
        @param claimed: Whether a message may be given back, by its topic, queue id, queue offset,
            physical offset and size.
        """
        self._cluster, self._store_host = cluster, store_host
        self._host_text = store_host.hex().upper().encode()
        self._clients_flags = clients_flags
        self._most_body, self._most_frame = most_body, most_frame
        self._routes, self._records, self._ending = [], [], set()
        self._batches, self._groups, self._given = [], {}, []
        self._retries, self._claimed = retries, claimed
        self._cluster_pair = cluster[: cluster.find(b"\x01") + 1], cluster
        self._stored, self._record_at, self._outlived = stored, record_at, outlived
        self._half_route = Route(_HALF_TOPIC, [(HALF_TOPIC, 0)], 0)
        self._op_route = Route(_OP_TOPIC, [(HALF_DONE_TOPIC, 0)], 0)
        delays = [(SCHEDULE_TOPIC, level) for level in range(levels)]
        self._level_route = Route(SCHEDULE_TOPIC.encode(), delays, 0)
        self._timer_route = Route(TIMER_TOPIC.encode(), [(TIMER_TOPIC, 0)], 0)
        self._broker, self._clock = broker, None
        if timers is not None:
            self._clock, self._precision, self._most_delay = timers

    # --- reading --------------------------------------------------------------------

    def read(
        self,
        data: bytes,
        at: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        routes: dict,
        check: object = None,
    ) -> int:
        """Read the frames from a position on, up to the first that is not understood.

        @param stop: No frame is read that begins here or later.
        @param routes: L{Route} by topic; C{None} for a topic that is never understood.
        @param check: Tells whether a message may be sent, by the account's name, the signature,
            what was signed, and the topic; nothing but messages is understood then.  C{None} if all
            may be, whoever signed it.
        @return: How many were understood.
        """
        row: cython.pointer[_Row]
        total: cython.Py_ssize_t
        size: cython.Py_ssize_t
        kind: cython.int
        view = self._view = data
        length: cython.Py_ssize_t = len(data)
        self._data, self.count, self.end = data, 0, at
        self._used, self.unknown, self.code = 0, None, _END
        self.acks, self.ends, self.halves, self._now = 0, 0, False, -1
        self.backs = 0
        self._groups.clear()
        self._given.clear()
        self._check = check
        self._routes.clear()
        self._batches.clear()
        if self._records:
            self._records.clear()
            self._ending.clear()
        while self.count < MOST and at < stop and length - at >= 8:
            total, kind = int4(view, at), view[at + 4]
            size = view[at + 5] << 16 | view[at + 6] << 8 | view[at + 7]
            if not 4 <= total <= self._most_frame - 4 or total > length - at - 4:
                break
            if size > total - 4 or size > _MOST_HEADER:
                break
            if self._used + size + len(self._cluster) + MOVED >= SCRATCH:
                break
            row = cython.address(self._rows[self.count])
            row.properties, row.properties_size = self._used, 0
            row.half, row.batch, row.level, row.word = False, False, 0, 0
            row.timed, row.named, row.key_size = False, False, 0
            row.version, row.limit = 0, INT32
            self._seen = 0
            self._short = self._long = self._odd = False
            self._count, self._who, self._signature = 0, b"", b""
            if not self._header(row, at + 8, size, kind):
                break
            row.body = at + 8 + size
            row.body_size = row.end = at + 4 + total
            row.body_size -= row.body
            if self.count and kind != self._kind:
                break
            if self._long if self._code == _SHORT or self._code == _BATCH else self._short:
                break
            if self.acks < self.count if self._code == _ACK else self.acks:
                break
            if self.backs < self.count if self._code == _BACK else self.backs:
                break
            if check is not None and not self._is_signed(row):
                break
            if self._code == _ACK:
                if not self._take_ack(row):
                    break
                self.acks += 1
            elif self._code == _BACK:
                if not self._take_back(row):
                    break
                self.backs += 1
                self.code = 0
            elif self._code == _END:
                if self._batches or not self._take_end(row, routes):
                    break
                self.ends += 1
            else:
                if self.count > self.ends and self._code != self.code:
                    break
                if not self._take(row, routes):
                    break
                self.code = self._code
            self._kind = kind
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

    # --- signatures -----------------------------------------------------------------

    @cython.cfunc
    def _note(
        self,
        name: cython.Py_ssize_t,
        name_size: cython.Py_ssize_t,
        value: cython.p_const_char,
        size: cython.Py_ssize_t,
    ) -> cython.bint:
        """Keep a field, in the order of names, where signatures are held against them."""
        at: cython.int = self._count
        names = self._chars(self._data)
        part: cython.pointer[_Part]
        order: cython.int
        if self._check is None:
            return True
        if at == _MOST_PARTS:
            return False
        while at:
            part = cython.address(self._parts[at - 1])
            order = memcmp(names + part.name, names + name, min(part.name_size, name_size))
            if order < 0 or (not order and part.name_size < name_size):
                break
            self._parts[at] = self._parts[at - 1]
            at -= 1
        part = cython.address(self._parts[at])
        part.name, part.name_size, part.value, part.size = name, name_size, value, size
        self._count += 1
        return True

    @cython.cfunc
    def _is_signed(self, row: cython.pointer[_Row]) -> cython.bint:
        """Whether a message may be sent by who signed it, as
        L{signature<rmqha.wire.remoting.signature.signature>} does.
        """
        i: cython.int
        size: cython.Py_ssize_t = row.body_size
        if self._odd or self._code in (_END, _ACK, _BACK) or not self._seen & 2:
            return False
        if not self._who or not self._signature:
            return False
        for i in range(self._count):
            size += self._parts[i].size
        content: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        to: cython.p_char = cython.cast(cython.p_char, content)
        for i in range(self._count):
            memcpy(to, self._parts[i].value, self._parts[i].size)
            to += self._parts[i].size
        memcpy(to, self._chars(self._data) + row.body, row.body_size)
        topic: bytes = self._part(row.topic, row.topic_size)
        return bool(self._check(self._who, self._signature, content, topic))

    @cython.cfunc
    def _take(self, row: cython.pointer[_Row], routes: dict) -> cython.bint:
        """Find where a message goes, and how long its record will be."""
        if self._seen & _MANDATORY != _MANDATORY or self._seen >> 16:
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
        if row.batch != (self._code == _BATCH) or (row.batch and self.ends):
            return False
        if not self._kept(row):
            return False
        row.sys_flag = row.sys_flag & self._clients_flags | route.sys_flag
        row.place = row.queue_id
        if row.batch:
            return self._take_batch(row, route)
        if row.half:
            route, row.place = self._half_route, 0
        elif row.level:
            route, row.place = self._level_route, row.level - 1
        elif row.timed:
            route, row.place = self._timer_route, 0
        row.real_size = row.topic_size
        row.topic_size = len(route.topic)
        row.size = _ALONE + row.body_size + row.topic_size + row.properties_size
        if row.size > self._most_body + _OVERHEAD:
            return False
        self._used = row.properties + row.properties_size
        self._routes.append(route)
        self.halves |= row.half
        return True

    @cython.cfunc
    def _take_batch(self, row: cython.pointer[_Row], route: Route) -> cython.bint:
        """Find how long a batch's records will be; its properties are taken apart by L{_kept}."""
        # There is room: the properties have been copied.
        to: cython.p_uchar = self._scratch + row.properties
        memset(to, 0, 88)
        put4(to + 4, _MAGIC)
        put4(to + 12, row.place)
        put4(to + 36, row.sys_flag)
        put8(to + 40, row.born)
        memcpy(to + 64, self._chars(self._store_host), 8)
        batch = BatchRun(
            cython.cast(cython.p_char, to)[:88],
            bytes((row.topic_size,)) + route.topic,
            self._pairs,
            route.keys[row.place],
            host=self._host_text,
            most_body=self._most_body,
        )
        if not batch.read(self._data, row.body, row.end) or batch.count > MOST_IN_BATCH:
            return False
        row.size = batch.size
        self._routes.append(route)
        self._batches.append(batch)
        return True

    # --- acks -------------------------------------------------------------------------

    @cython.cfunc
    def _take_ack(self, row: cython.pointer[_Row]) -> cython.bint:
        """Find how much of a handle names its check point."""
        left: cython.int = _HANDLE_FIELDS
        if self._seen & _ACK_NEEDS != _ACK_NEEDS or self._seen | _ACK_HAS != _ACK_HAS:
            return False
        if row.oneway or row.body_size:
            return False
        stop: cython.Py_ssize_t = row.key + row.key_size
        at: cython.Py_ssize_t = row.key
        while at < stop:
            if self._view[at] == 32:
                left -= 1
                if not left:
                    row.key_size = at - row.key
                    return True
            at += 1
        return left == 1

    def acked(self, count: cython.int) -> list:
        """Of the first acks what names each check point, which is group, topic, queue id and the
        first fields of a handle; their messages' queue offsets, and their numbers.
        """
        found: dict = {}
        offsets: list = []
        numbers: list = []
        i: cython.int
        row: cython.pointer[_Row]
        last: cython.pointer[_Row] = cython.NULL
        for i in range(min(count, self.count)):
            row = cython.address(self._rows[i])
            if last == cython.NULL or not self._alike(row, last):
                key = (
                    self._part(row.group, row.group_size),
                    self._part(row.topic, row.topic_size),
                    row.queue_id,
                    self._part(row.key, row.key_size),
                )
                _, offsets, numbers = found.setdefault(key, (key, [], []))
                last = row
            offsets.append(row.queue_offset)
            numbers.append(row.opaque)
        return list(found.values())

    @cython.cfunc
    def _part(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> bytes:
        return (self._chars(self._data) + at)[:size]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _alike(self, row: cython.pointer[_Row], other: cython.pointer[_Row]) -> cython.bint:
        """Whether two acks name the same check point."""
        data = self._chars(self._data)
        sizes: cython.bint = row.topic_size == other.topic_size and row.key_size == other.key_size
        return (
            sizes
            and row.group_size == other.group_size
            and row.queue_id == other.queue_id
            and not memcmp(data + row.key, data + other.key, row.key_size)
            and not memcmp(data + row.topic, data + other.topic, row.topic_size)
            and not memcmp(data + row.group, data + other.group, row.group_size)
        )

    def cut(self, count: int) -> None:
        """Leave all acks but the first ones."""
        self.count = self.acks = count
        self.end = self._rows[count - 1].end

    # --- what is given back -----------------------------------------------------------

    @cython.cfunc
    def _take_back(self, row: cython.pointer[_Row]) -> cython.bint:
        """Find the message that is given back, and what its copy says."""
        if self._seen & _BACK_NEEDS != _BACK_NEEDS or self._seen | _BACK_HAS != _BACK_HAS:
            return False
        if row.oneway or row.body_size:
            return False
        group: bytes = self._part(row.group, row.group_size)
        if group not in self._groups:
            self._groups[group] = self._retries(group.decode())
        found: tuple = self._groups[group]
        if found is None:
            return False
        row.at = row.queue_offset
        try:
            record = self._record_at(row.at, self._most_body + _OVERHEAD)
        except ValueError:
            return False
        view: cython.const[cython.uchar][::1] = record
        if not self._is_sound(row, record):
            return False
        if row.sys_flag & _TRANSACTION != 0 and row.sys_flag & _TRANSACTION != _COMMIT:
            return False
        row.sys_flag &= ~_TRANSACTION
        topic: bytes = bytes(record[89 + row.body_size : row.properties - 2])
        if not self._claimed(topic, int4(view, 12), int8(view, 20), row.at, row.size):
            return False
        times: cython.longlong = int4(view, 72)
        limit: cython.longlong = found[1]
        if row.limit < INT32 and row.version >= _LIMITS_SINCE:
            limit = row.limit
        if not 0 <= times < limit:
            return False
        row.due = times + 1
        row.place = min(row.level or _FIRST_DELAY + times, self._level_route.queues) - 1
        if row.place < 0 or not self._told_again(row, record, topic, found[0]):
            return False
        row.topic_size = len(self._level_route.topic)
        row.size = _ALONE + row.body_size + row.topic_size + row.properties_size
        if row.body_size > self._most_body or row.size > self._most_body + _OVERHEAD:
            return False
        self._used = row.properties + row.properties_size
        self._routes.append(self._level_route)
        self._records.append(record)
        return True

    @cython.cfunc
    def _told_again(
        self, row: cython.pointer[_Row], record: object, topic: bytes, retry_topic: bytes
    ) -> cython.bint:
        """Write the properties of a copy: those of the record, each of which is there once, with
        its next place where an earlier one is told, or behind them.
        """
        view: cython.const[cython.uchar][::1] = record
        at: cython.Py_ssize_t = row.properties
        stop: cython.Py_ssize_t = row.size
        middle: cython.Py_ssize_t
        end: cython.Py_ssize_t
        size: cython.Py_ssize_t
        to: cython.Py_ssize_t = self._used
        count: cython.int = 0
        seen: cython.uint = 0
        wide: cython.uchar = 0
        kind: cython.int
        i: cython.int
        names = self._names
        if to + row.properties_size + 2 * MOVED >= SCRATCH:
            return False
        origin: bytes = topic
        first: bytes = record[64:72].hex().upper().encode() + b"%016X" % row.at
        values: list = [topic, first, b"%d" % (row.place + 1), retry_topic, b"0"]
        row.properties = to
        while at < stop:
            middle = at
            while middle < stop and view[middle] > 2:
                wide |= view[middle]
                middle += 1
            end = middle + 1
            while end < stop and view[end] != 2:
                wide |= view[end]
                end += 1
            if end >= stop or view[middle] != 1 or middle == at or end == middle + 1:
                return False
            size = middle - at
            if count == MOST_NAMES:
                return False
            for i in range(count):
                if names[2 * i + 1] == size and not memcmp(
                    cython.address(view[names[2 * i]]), cython.address(view[at]), size
                ):
                    return False
            names[2 * count], names[2 * count + 1] = at, size
            count += 1
            kind = -1
            # D, O, R or T.
            if view[at] in (68, 79, 82, 84):
                kind = _TOLD.get(bytes(record[at:middle]), -1)
            if kind == len(values):
                return False
            if kind >= 0:
                seen |= 1 << kind
            if kind == 0:
                origin = bytes(record[middle + 1 : end])
            if kind > 1:
                to = self._pair(to, _TOLD_NAMES[kind], values[kind])
            else:
                memcpy(self._scratch + to, cython.address(view[at]), end + 1 - at)
                to += end + 1 - at
            at = end + 1
        for kind in range(len(values)):
            if not seen >> kind & 1:
                to = self._pair(to, _TOLD_NAMES[kind], values[kind])
        row.properties_size = to - row.properties
        if row.properties_size > _MOST_PROPERTIES:
            return False
        if wide > 127:
            try:
                cython.cast(cython.p_char, self._scratch)[row.properties : to].decode()
            except UnicodeDecodeError:
                return False
        self._given.append((self._part(row.group, row.group_size), origin))
        return True

    @cython.cfunc
    def _pair(self, to: cython.Py_ssize_t, name: bytes, value: bytes) -> cython.Py_ssize_t:
        """Write a property.

        @return: Just past it.
        """
        end: cython.p_uchar = self._piece(self._scratch + to, name)
        end[0] = 1
        end = self._piece(end + 1, value)
        end[0] = 2
        return end + 1 - self._scratch

    # --- ends of half messages --------------------------------------------------------

    @cython.cfunc
    def _take_end(self, row: cython.pointer[_Row], routes: dict) -> cython.bint:
        """Find the half message that is ended, and how long the records will be that say so."""
        if self._seen & _END_NEEDS != _END_NEEDS or self._seen | _END_HAS != _END_HAS:
            return False
        if not row.oneway or row.body_size:
            return False
        if row.word != _COMMITTED and row.word != _ROLLED_BACK:
            return False
        known = None if self._stored is None else self._stored.get(row.queue_offset)
        if known is None or known != row.at or row.queue_offset in self._ending:
            return False
        try:
            record = self._record_at(row.at, self._most_body + _OVERHEAD)
        except ValueError:
            return False
        if not self._is_half(row, record) or not self._find_target(row, record, routes):
            return False
        self._records.append(record)
        self._ending.add(row.queue_offset)
        return True

    @cython.cfunc
    def _is_half(self, row: cython.pointer[_Row], record: object) -> cython.bint:
        """Whether these bytes begin with the half message that is meant, and it is sound."""
        view: cython.const[cython.uchar][::1] = record
        if not self._is_sound(row, record):
            return False
        if int8(view, 20) != row.queue_offset or int4(view, 12):
            return False
        return self._in(view, 89 + row.body_size, row.properties - 2, _HALF_TOPIC)

    @cython.cfunc
    def _is_sound(self, row: cython.pointer[_Row], record: object) -> cython.bint:
        """Whether these bytes begin with a record, which is read."""
        view: cython.const[cython.uchar][::1] = record
        length: cython.Py_ssize_t = view.shape[0]
        topic: cython.Py_ssize_t
        if length < _ALONE or int4(view, 4) != _MAGIC or int4(view, 0) > length:
            return False
        row.size, row.body_size, row.sys_flag = int4(view, 0), int4(view, 84), int4(view, 36)
        row.born = int8(view, 40)
        topic = 88 + row.body_size
        if int8(view, 28) != row.at or row.sys_flag & _IP6 or row.body_size < 0:
            return False
        if topic + 3 > row.size or not view[topic] or topic + 3 + view[topic] > row.size:
            return False
        row.properties = topic + 3 + view[topic]
        row.properties_size = row.size - row.properties
        if row.properties_size != view[row.properties - 2] << 8 | view[row.properties - 1]:
            return False
        crc: cython.longlong = body_crc(record[88:topic])
        return crc == int4(view, 8)

    @cython.cfunc
    def _find_target(self, row: cython.pointer[_Row], record: object, routes: dict) -> cython.bint:
        """Find where the message belongs that a half one is to become, if its producer may say so.
        Its properties are such as L{_kept} leaves them: each name is there once.
        """
        view: cython.const[cython.uchar][::1] = record
        at: cython.Py_ssize_t = row.properties
        stop: cython.Py_ssize_t = row.size
        middle: cython.Py_ssize_t
        end: cython.Py_ssize_t
        first: cython.uchar
        topic: bytes = b""
        ours: cython.bint = False
        row.queue_id = -1
        while at < stop:
            middle = at
            while middle < stop and view[middle] != 1:
                middle += 1
            end = middle
            while end < stop and view[end] != 2:
                end += 1
            if end == stop:
                return False
            first = view[at]
            if first == 68 and self._in(view, at, middle, _DELAY):
                return False
            if first == 80 and self._in(view, at, middle, _GROUP):
                ours = end - middle - 1 == row.group_size and not memcmp(
                    cython.address(view[middle + 1]),
                    cython.address(self._view[row.group]),
                    row.group_size,
                )
            elif first == 82 and self._in(view, at, middle, _REAL_TOPIC):
                topic = bytes(record[middle + 1 : end])
            elif first == 82 and self._in(view, at, middle, _REAL_QUEUE):
                row.queue_id = self._digits(view, middle + 1, end)
            at = end + 1
        found = routes.get(topic)
        if found is None:
            if ours and topic not in routes:
                self.unknown = topic
            return False
        route: Route = found
        if not ours or not 0 <= row.queue_id < route.queues:
            return False
        row.place = row.queue_id
        row.topic_size = len(route.topic)
        if self._outlived(route.keys[row.place][0], row.at):
            return False
        row.size += row.topic_size - len(_HALF_TOPIC)
        if row.size > self._most_body + _OVERHEAD:
            return False
        # What is written in all; the copy is as long as this without the op.
        if row.word == _ROLLED_BACK:
            row.size = 0
        row.size += self._op_size(row)
        self._routes.append(route)
        return True

    @cython.cfunc
    def _op_size(self, row: cython.pointer[_Row]) -> cython.Py_ssize_t:
        """Bytes of the op that names a half message."""
        size: cython.Py_ssize_t = _ALONE + 1 + len(_OP_TOPIC) + len(_OP_PROPERTIES)
        rest: cython.longlong = row.queue_offset // 10
        while rest:
            rest //= 10
            size += 1
        return size

    @cython.cfunc
    def _in(
        self,
        view: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        name: bytes,
    ) -> cython.bint:
        size: cython.Py_ssize_t = len(name)
        return stop - at == size and not memcmp(
            cython.address(view[at]), cython.cast(cython.p_const_char, name), size
        )

    @cython.cfunc
    def _digits(
        self,
        view: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.longlong:
        """A number of the broker's own; -1 if it is none."""
        value: cython.longlong = 0
        if not 0 < stop - at < 10:
            return -1
        while at < stop:
            if not 48 <= view[at] <= 57:
                return -1
            value = value * 10 + (view[at] - 48)
            at += 1
        return value

    @cython.cfunc
    @cython.exceptval(check=False)
    def _chars(self, text: bytes) -> cython.p_const_char:
        return cython.cast(cython.p_const_char, text)

    # --- JSON -----------------------------------------------------------------------

    @cython.cfunc
    def _json(
        self, row: cython.pointer[_Row], at: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.bint:
        """Read a JSON header.  Each member may be there once, none may be unknown, and nothing may
        stand between them.
        """
        q: cython.Py_ssize_t = at + size
        key: cython.Py_ssize_t
        key_size: cython.Py_ssize_t
        members: cython.uint = 0
        bit: cython.uint
        row.oneway = False
        while q > at and self._view[q - 1] == 10:
            q -= 1
        if q - at < 2 or self._view[at] != 123 or self._view[q - 1] != 125:
            return False
        while True:
            at += 1
            if at >= q or self._view[at] != 34:
                return False
            key = at + 1
            at = self._text(key, q)
            if at < 0 or at + 2 >= q or self._view[at + 1] != 58:
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
                    if self._code not in (_SHORT, _LONG, _END, _BATCH, _ACK, _BACK):
                        return False
                if bit == 4:
                    row.oneway = self._value == _ONEWAY
                    if self._value and not row.oneway:
                        return False
                if bit == 8:
                    row.opaque = self._value
                    if row.opaque < 0:
                        return False
                if bit == 16:
                    row.version = self._value
            else:
                at = self._passed(at, q)
            if at < 0 or at >= q:
                return False
            if self._view[at] == 125:
                return at == q - 1 and members & 11 == 11
            if self._view[at] != 44:
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
        letter: cython.int
        start: cython.Py_ssize_t
        name: cython.Py_ssize_t
        name_size: cython.Py_ssize_t
        value: cython.p_const_char
        size: cython.Py_ssize_t
        if self._view[at] != 123:
            return -1
        while True:
            at += 1
            if at >= q or self._view[at] != 34:
                return -1
            start = at + 1
            at = self._text(start, q)
            if at < 0 or q - at < 3 or self._view[at + 1] != 58:
                return -1
            name, name_size = start, at - start
            letter = self._letter(name, name_size)
            at += 2
            if self._view[at] == 34:
                start = at + 1
                if letter == 105:
                    at = self._unescaped(row, start, q)
                    if at < 0 or self._seen & 256:
                        return -1
                    self._seen |= 256
                    value = cython.cast(cython.p_const_char, self._scratch) + row.properties
                    size = row.properties_size
                else:
                    at = self._text(start, q)
                    if at < 0 or not self._field(row, letter, start, at):
                        return -1
                    value, size = self._chars(self._data) + start, at - start
                if letter != _SIGNATURE and not self._note(name, name_size, value, size):
                    return -1
                at += 1
            else:
                self._odd = True
                start = at
                at = self._bare(start, q)
                if at < 0 or not self._field(row, letter, start, at):
                    return -1
            if at >= q:
                return -1
            if self._view[at] == 125:
                return at + 1
            if self._view[at] != 44:
                return -1

    @cython.cfunc
    def _text(self, at: cython.Py_ssize_t, q: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """@return: Where a text of plain ASCII ends that begins at C{at}; -1 if it is not one."""
        c: cython.uchar
        while at < q:
            c = self._view[at]
            if c == 34:
                return at
            if c < 32 or c > 126 or c == 92:
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
        start: cython.Py_ssize_t = at
        if at < q and self._view[at] == 45:
            at += 1
        digits: cython.Py_ssize_t = at
        while at < q and 48 <= self._view[at] <= 57:
            at += 1
        if at > digits:
            return -1 if self._view[digits] == 48 and at - digits > 1 else at
        if at > start:
            return -1
        if q - at >= 4 and memcmp(cython.address(self._view[at]), b"true", 4) == 0:
            return at + 4
        if q - at >= 5 and memcmp(cython.address(self._view[at]), b"false", 5) == 0:
            return at + 5
        return -1

    @cython.cfunc
    def _passed(self, at: cython.Py_ssize_t, q: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """@return: Just past a text or C{null} that does not matter; -1 if it is neither."""
        if at < q and self._view[at] == 34:
            at = self._text(at + 1, q)
            return at if at < 0 else at + 1
        if q - at >= 4 and memcmp(cython.address(self._view[at]), b"null", 4) == 0:
            return at + 4
        return -1

    @cython.cfunc
    def _unescaped(
        self, row: cython.pointer[_Row], at: cython.Py_ssize_t, q: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Copy the properties without JSON's escapes.

        @return: Where the closing quote is; -1 if it is not plain text.
        """
        scratch = self._scratch
        to: cython.Py_ssize_t = row.properties
        c: cython.uint
        wide: cython.bint = False
        while at < q:
            c = self._view[at]
            if c == 34:
                row.properties_size = to - row.properties
                if wide:
                    try:
                        cython.cast(cython.p_char, scratch)[row.properties : to].decode()
                    except UnicodeDecodeError:
                        return -1
                return at
            if c < 32:
                return -1
            wide |= c > 126
            if c == 92:
                at += 1
                if at >= q:
                    return -1
                c = self._view[at]
                if c == 117:
                    # Below 0x80, which begins with two zeros.
                    if q - at < 6 or self._view[at + 1] != 48 or self._view[at + 2] != 48:
                        return -1
                    c = self._hex(self._view[at + 3]) << 4 | self._hex(self._view[at + 4])
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
        name: cython.Py_ssize_t
        value: cython.p_const_char
        letter: cython.int
        if size < 21:
            return False
        self._code = view[at] << 8 | view[at + 1]
        if self._code not in (_SHORT, _LONG, _END, _BATCH):
            return False
        row.opaque = int4(view, at + 5)
        row.oneway = int4(view, at + 9) == _ONEWAY
        if row.opaque < 0 or (int4(view, at + 9) and not row.oneway) or int4(view, at + 13):
            return False
        if int4(view, at + 17) != size - 21:
            return False
        at += 21
        while at < q:
            if q - at < 7 or view[at] or not 0 < view[at + 1] <= q - at - 6:
                return False
            name, start = at + 2, at + 2 + view[at + 1]
            letter = self._letter(name, start - name)
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
            value = self._chars(self._data) + start
            if letter != _SIGNATURE and not self._note(name, view[at + 1], value, length):
                return False
            at = start + length
        return True

    @cython.cfunc
    def _plain(self, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Whether it is ASCII."""
        while at < stop:
            if self._view[at] > 126:
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
        letter = _LETTERS.get(self._part(at, size))
        self._long |= letter is None or letter < 512
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
        if letter >= _WHO:
            return self._signed_by(letter, start, stop)
        if letter >= END_LETTER:
            return self._end_field(row, letter - END_LETTER, start, stop)
        if not 97 <= letter <= 110 or stop <= start:
            return False
        bit: cython.uint = 1 << (letter - 97)
        if self._seen & bit:
            return False
        self._seen |= bit
        if letter == 97:
            row.group, row.group_size = start, stop - start
            return self._plain(start, stop)
        if letter == 99 or letter == 110:  # default topic, broker's name
            return self._plain(start, stop)
        if letter == 98:
            row.topic, row.topic_size = start, stop - start
            return row.topic_size <= _MOST_TOPIC and self._plain(start, stop)
        if letter == 107 or letter == 109:  # unit mode, batch
            if self._is(start, stop, b"true"):
                row.batch |= letter == 109
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
        elif letter == 108:
            row.limit = self._value
        elif letter != 100:
            return False
        return True

    @cython.cfunc
    def _signed_by(
        self, letter: cython.int, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Take what a signed request has besides its own fields."""
        text: bytes = self._part(start, stop - start)
        if not text or not self._plain(start, stop):
            return False
        if letter == _WHO:
            found, self._who = self._who, text
        else:
            found, self._signature = self._signature, text
        return not found

    @cython.cfunc
    def _end_field(
        self,
        row: cython.pointer[_Row],
        number: cython.int,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Take a field that no message has; they are numbered as their headers have them."""
        bit: cython.uint = 1 << (16 + number)
        if self._seen & bit or stop <= start:
            return False
        self._seen |= bit
        if number == 6 or number == 9:
            row.group, row.group_size = start, stop - start
        elif number == 7:
            row.key, row.key_size = start, stop - start
        if number == 3:
            return self._is(start, stop, b"true") or self._is(start, stop, b"false")
        # Ids of the message and the transaction, group, handle; group, first id and topic.
        if 3 < number != 8 and number != 10:
            return self._plain(start, stop)
        if not self._whole(start, stop) or self._value < 0:
            return False
        if number == 0 or number == 8:
            row.queue_offset = self._value
        elif number == 1:
            row.at = self._value
        elif number == 10:
            row.level = cython.cast(cython.int, self._value)
            return self._value < INT32
        else:
            row.word = self._value
        return True

    @cython.cfunc
    def _is(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, word: bytes) -> cython.bint:
        return self._in(self._view, start, stop, word)

    @cython.cfunc
    def _whole(self, at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Whether it is a whole number, which is L{_value} then."""
        value: cython.longlong = 0
        minus: cython.bint = at < stop and self._view[at] == 45
        if minus:
            at += 1
        if not 0 < stop - at <= 18:
            return False
        while at < stop:
            if not 48 <= self._view[at] <= 57:
                return False
            value = value * 10 + (self._view[at] - 48)
            at += 1
        self._value = -value if minus else value
        return True

    # --- properties ---------------------------------------------------------------------

    @cython.cfunc
    def _kept(self, row: cython.pointer[_Row]) -> cython.bint:
        """Make a record's properties of a request's: without C{WAIT}, with the real place of a
        message that is to wait, and with the cluster's name.  Each has a name and a value, and none
        is there twice.
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
                if not row.batch:
                    at = end + 1
                    continue
            if self._special(at, size) and (row.batch or not self._moves(row, at, middle, end)):
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
            if scratch[at] == 85 and self._name_is(at, size, _KEY):
                row.key, row.key_size = to + size + 1, end - middle - 1
            if to != at:
                memmove(scratch + to, scratch + at, end - at)
            to += end - at
            scratch[to] = 2
            to += 1
            at = end + 1
        if row.batch:
            self._pairs = []
            for i in range(count):
                at, size = names[2 * i], names[2 * i + 1] + 1
                end = names[2 * i + 2] if i + 1 < count else to
                self._pairs.append((scratch[at : at + size], scratch[at:end]))
            self._pairs.append(self._cluster_pair)
            return True
        target: cython.p_uchar = scratch + to
        if row.half and not self._same_in_json(row.key, row.key_size):
            return False
        if row.timed:
            # Of what a broker says itself the usual way knows what it means here.
            if row.half or row.level or row.named:
                return False
            target = self._told_when(row, target)
        if row.half or row.level or row.timed:
            target = self._piece(target, _REAL_TOPIC)
            target[0] = 1
            memcpy(target + 1, cython.address(self._view[row.topic]), row.topic_size)
            target += row.topic_size + 1
            target[0] = 2
            target = self._piece(target + 1, _REAL_QUEUE)
            target[0] = 1
            target = self._decimal(target + 1, row.queue_id)
            target[0] = 2
            target += 1
        target = self._piece(target, self._cluster)
        row.properties_size = target - scratch - row.properties
        return row.properties_size <= _MOST_PROPERTIES

    @cython.cfunc
    def _same_in_json(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Whether a text is the same in JSON."""
        i: cython.Py_ssize_t
        letter: cython.uchar
        for i in range(at, at + size):
            letter = self._scratch[i]
            if not 32 <= letter <= 126 or letter == 34 or letter == 92:
                return False
        return True

    @cython.cfunc
    def _told_when(self, row: cython.pointer[_Row], target: cython.p_uchar) -> cython.p_uchar:
        """Write when a message is due, if it did not say so itself, and its slot."""
        row.slot = (row.due - 1) // self._precision * self._precision
        if row.unit:
            target = self._piece(target, _DELIVER)
            target[0] = 1
            target = self._decimal(target + 1, row.due)
            target[0] = 2
            target += 1
        target = self._piece(target, _OUT)
        target[0] = 1
        target = self._decimal(target + 1, row.slot)
        target[0] = 2
        return target + 1

    @cython.cfunc
    def _times(
        self,
        row: cython.pointer[_Row],
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        unit: cython.longlong,
    ) -> cython.bint:
        """Take note of when a message is due.

        @param unit: Milliseconds of what is counted from now on; 0 for a time.
        @return: Whether it is to wait, and may.
        """
        value: cython.longlong = 0
        i: cython.Py_ssize_t
        if self._clock is None or row.timed or not 0 < end - at <= 15:
            return False
        for i in range(at, end):
            if not 48 <= self._scratch[i] <= 57:
                return False
            value = 10 * value + self._scratch[i] - 48
        if self._now < 0:
            self._now = self._clock()
        if not unit and self._scratch[at] == 48:
            return False
        row.timed, row.unit = True, unit
        row.due = self._now + value * unit if unit else value
        return self._now < row.due and row.due - self._now <= self._most_delay

    @cython.cfunc
    def _moves(
        self,
        row: cython.pointer[_Row],
        at: cython.Py_ssize_t,
        middle: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.bint:
        """Take note of a property that lets a message wait elsewhere.

        @return: Whether this is one, and understood.
        """
        size: cython.Py_ssize_t = end - middle - 1
        if self._name_is(at, middle - at, _PREPARED):
            row.half = self._stored is not None
            return row.half and size == 4 and not memcmp(self._scratch + middle + 1, b"true", 4)
        if self._scratch[at] == 84:
            if self._name_is(at, middle - at, _SECONDS):
                return self._times(row, middle + 1, end, 1000)
            if self._name_is(at, middle - at, _MILLIS):
                return self._times(row, middle + 1, end, 1)
            if self._name_is(at, middle - at, _DELIVER):
                return self._times(row, middle + 1, end, 0)
            row.named = True
            return True
        if not self._name_is(at, middle - at, _DELAY) or not 0 < size < 5:
            return False
        level: cython.int = 0
        i: cython.Py_ssize_t
        for i in range(middle + 1, end):
            if not 48 <= self._scratch[i] <= 57:
                return False
            level = 10 * level + self._scratch[i] - 48
        row.level = level
        return self._scratch[middle + 1] != 48 and level <= self._level_route.queues

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
        # C, D, R or T: few others are looked at longer.
        if first != 67 and first != 68 and first != 82 and first != 84:
            return False
        name: bytes = cython.cast(cython.p_char, self._scratch + at)[:size]
        return name in _MOVING or name in _NOT_HERE

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
        ended: cython.int = 0
        last: cython.longlong = 0
        for i in range(count):
            row = cython.address(self._rows[i])
            route: Route = self._routes[i]
            if row.batch:
                batch = self._batches[i]
                last = batch.write(
                    file,
                    to - cython.address(file[0]),
                    offset,
                    count=batch.count,
                    stored=stored,
                    born_host=born_host,
                    next_offsets=next_offsets,
                )
                row.queue_offset = batch.queue_offset
                to += row.size
                offset += row.size
                continue
            if self.backs:
                to = self._write_back(to, row, self._records[i], offset, stored, next_offsets)
                offset += row.size
                continue
            if row.word:
                to = self._write_end(
                    to, row, route, offset, stored, self._records[ended], ended, next_offsets
                )
                ended += 1
                offset += row.size
                continue
            row.queue_offset = self._next(next_offsets, route.keys[row.place])
            row.offset = offset
            if row.half and len(self._stored) < MOST_OPEN:
                self._stored[row.queue_offset] = offset
            crc: cython.longlong = body_crc(self._data[row.body : row.body + row.body_size])
            put4(to, row.size)
            put4(to + 4, _MAGIC)
            put4(to + 8, crc)
            put4(to + 12, row.place)
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
            to = self._piece(to + 1, route.topic)
            to[0] = cython.cast(cython.uchar, row.properties_size >> 8)
            to[1] = cython.cast(cython.uchar, row.properties_size)
            memcpy(to + 2, self._scratch + row.properties, row.properties_size)
            to += 2 + row.properties_size
            offset += row.size
        self.count, self.end, self.ends = count, row.end, ended
        self.backs = min(self.backs, count)
        self._records.clear()
        return last if row.batch else row.offset

    @cython.cfunc
    def _next(self, next_offsets: dict, key: object) -> cython.longlong:
        """The next offset of a queue, which is moved on."""
        known = next_offsets.get(key)
        offset: cython.longlong = 0 if known is None else known
        next_offsets[key] = offset + 1
        return offset

    @cython.cfunc
    def _anew(
        self,
        to: cython.p_uchar,
        row: cython.pointer[_Row],
        route: Route,
        offset: cython.longlong,
        stored: cython.longlong,
        source: cython.p_const_uchar,
        size: cython.Py_ssize_t,
        next_offsets: dict,
    ) -> cython.p_uchar:
        """Write a record once more, for another queue, as far as its properties.

        @param size: Bytes of all of it.
        @return: Just past that.
        """
        memcpy(to, source, 88 + row.body_size)
        put4(to, size)
        put4(to + 12, row.place)
        put8(to + 20, self._next(next_offsets, route.keys[row.place]))
        put8(to + 28, offset)
        put8(to + 56, stored)
        to += 88 + row.body_size
        to[0] = cython.cast(cython.uchar, row.topic_size)
        return self._piece(to + 1, route.topic)

    @cython.cfunc
    def _write_back(
        self,
        to: cython.p_uchar,
        row: cython.pointer[_Row],
        record: object,
        offset: cython.longlong,
        stored: cython.longlong,
        next_offsets: dict,
    ) -> cython.p_uchar:
        """Write a copy of a message that is given back.

        @return: Just past it.
        """
        view: cython.const[cython.uchar][::1] = record
        start: cython.p_uchar = to
        source = cython.address(view[0])
        route: Route = self._level_route
        to = self._anew(to, row, route, offset, stored, source, row.size, next_offsets)
        put4(start + 36, row.sys_flag)
        put4(start + 72, row.due)
        put8(start + 76, 0)
        to[0] = cython.cast(cython.uchar, row.properties_size >> 8)
        to[1] = cython.cast(cython.uchar, row.properties_size)
        memcpy(to + 2, self._scratch + row.properties, row.properties_size)
        row.offset = offset
        return to + 2 + row.properties_size

    @cython.cfunc
    def _write_end(
        self,
        to: cython.p_uchar,
        row: cython.pointer[_Row],
        route: Route,
        offset: cython.longlong,
        stored: cython.longlong,
        record: object,
        number: cython.int,
        next_offsets: dict,
    ) -> cython.p_uchar:
        """Write a half message anew if it was committed, and the op.

        @return: Just past them.
        """
        view: cython.const[cython.uchar][::1] = record
        source = cython.address(view[0])
        start: cython.p_uchar = to
        size: cython.Py_ssize_t = row.size - self._op_size(row)
        if row.word == _COMMITTED:
            to = self._anew(to, row, route, offset, stored, source, size, next_offsets)
            put4(start + 36, row.sys_flag & ~_TRANSACTION | _COMMIT)
            put8(start + 76, row.at)
            memcpy(to, source + row.properties - 2, row.properties_size + 2)
            to += row.properties_size + 2
        row.offset = offset + size
        first: cython.longlong = self.firsts[number]
        end: cython.p_uchar = self._decimal(to + 88, row.queue_offset)
        digits: bytes = cython.cast(cython.p_char, to + 88)[: end - to - 88]
        crc: cython.longlong = body_crc(digits)
        put4(to, row.size - size)
        put4(to + 4, _MAGIC)
        put4(to + 8, crc)
        put4(to + 12, 0)
        put4(to + 16, 0)
        row.level = 0
        row.place = self._next(next_offsets, self._op_route.keys[0])
        put8(to + 20, row.place)
        put8(to + 28, row.offset)
        put4(to + 36, 0)
        put8(to + 40, stored)
        memcpy(to + 48, self._chars(self._store_host), 8)
        put8(to + 56, stored)
        memcpy(to + 64, self._chars(self._store_host), 8)
        put4(to + 72, 0)
        put8(to + 76, first + 1)
        put4(to + 84, len(digits))
        end[0] = cython.cast(cython.uchar, len(_OP_TOPIC))
        to = self._piece(end + 1, _OP_TOPIC)
        to[0] = 0
        to[1] = cython.cast(cython.uchar, len(_OP_PROPERTIES))
        to = self._piece(to + 2, _OP_PROPERTIES)
        if to - start != row.size:
            raise AssertionError(f"{to - start} bytes written of {row.size}")
        return to

    # --- what became of it ------------------------------------------------------------------

    def ending(self) -> list:
        """The queue offsets of the half messages that are ended."""
        return [self._rows[i].queue_offset for i in range(self.count) if self._rows[i].word]

    def ended(self) -> list:
        """What was written about the ends: their words, the topics of the messages and when they
        were born, and the queue offsets of half messages and ops.
        """
        found = []
        row: cython.pointer[_Row]
        i: cython.int
        for i in range(self.count):
            row = cython.address(self._rows[i])
            if row.word:
                route: Route = self._routes[i]
                found.append((row.word, route.keys[0][0], row.born, row.queue_offset, row.place))
        return found

    @property
    def waits(self) -> int:
        """How many requests are to be answered."""
        found: cython.int = 0
        i: cython.int
        for i in range(self.count):
            found += not self._rows[i].oneway
        return found

    @property
    def codes(self) -> tuple:
        """How many requests it has of each code."""
        if self.acks or self.backs:
            return ((_ACK if self.acks else _BACK, self.count),)
        return self._told(self.count - self.ends)

    @property
    def unwaited(self) -> tuple:
        """The same of those that are not to be answered, and 0 for the copies of half messages."""
        found = self._told(self.count - self.ends - self.waits)
        commits: cython.int = 0
        i: cython.int
        for i in range(self.count):
            commits += self._rows[i].word == _COMMITTED
        return (*found, (0, commits)) if commits else found

    @cython.cfunc
    def _told(self, sends: cython.int) -> tuple:
        found: tuple = ((self.code, sends),) if sends else ()
        return (*found, (_END, self.ends)) if self.ends else found

    @property
    def given(self) -> list:
        """Who gave each message back, and where it was sent first."""
        return self._given[: self.backs]

    # --- answering ------------------------------------------------------------------------

    @property
    def numbers(self) -> list:
        """The numbers of the requests."""
        return [self._rows[i].opaque for i in range(self.count)]

    def answers(self, forms: tuple) -> bytes:
        """The answers that say where each message is, all with code 0.

        @param forms: An L{AnswerForm} for each kind of header.
        """
        pieces: tuple = forms[self._kind].pieces
        size: cython.Py_ssize_t = _NUMBERS
        for piece in pieces:
            size += len(piece)
        i: cython.int
        words: list = []
        more: cython.Py_ssize_t = 0
        for i in range(self.count):
            word: bytes = self._batches[i].ids() if self._rows[i].batch else self._word(i)
            words.append(word)
            more += len(word)
        out = cython.cast(cython.p_uchar, malloc(size * self.count + more + 1))
        if not out:
            raise MemoryError
        to: cython.p_uchar = out
        try:
            for i in range(self.count):
                if self._rows[i].oneway:
                    continue
                to = self._answer(to, cython.address(self._rows[i]), pieces, words[i])
            return cython.cast(cython.p_char, out)[: to - out]
        finally:
            free(out)

    @cython.cfunc
    def _word(self, number: cython.int) -> bytes:
        """By what a message that waits is recalled, or the transaction of a half one; empty for
        others.
        """
        row = cython.address(self._rows[number])
        if row.oneway or not (row.timed or row.half):
            return b""
        key: bytes = cython.cast(cython.p_char, self._scratch + row.key)[: row.key_size]
        if row.half:
            return key
        topic: bytes = self._data[row.topic : row.topic + row.real_size]
        return urlsafe_b64encode(b"v1 %b %b %d %b" % (topic, self._broker, row.slot + 1, key))

    @cython.cfunc
    def _answer(
        self, to: cython.p_uchar, row: cython.pointer[_Row], pieces: tuple, word: bytes
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
        if row.batch:
            if not json:
                put4(to - 4, len(word))
            to, word = self._piece(to, word), b""
        else:
            to = hex16(self._piece(to, self._host_text), row.offset)
        to = self._piece(to, pieces[2 if json else 3])
        queue_id: cython.longlong = 0 if row.timed else row.queue_id
        to = self._decimal(to, queue_id) if json else self._counted(to, queue_id)
        if word:
            name: bytes = _TRANSACTION_ID if row.half else _HANDLE
            if json:
                to = self._piece(self._piece(to, b'","'), name)
                to = self._piece(self._piece(to, b'":"'), word)
            else:
                to[0], to[1] = 0, cython.cast(cython.uchar, len(name))
                to = self._piece(to + 2, name)
                put4(to, len(word))
                to = self._piece(to + 4, word)
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
