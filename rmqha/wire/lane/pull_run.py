"""What a pull gets: chosen from a queue's units and held against the log in one pass.

This module is compiled (C{setup.py}), and of use only so.  It understands what is sound and lies in
one log file; of all else it says nothing, and it is done again in Python
(L{rmqha.broker.consuming.queue_reader.choose},
L{rmqha.broker.consuming.served_records.first_wrong}), which knows what is wrong.  Tests compare
both.

Bytes are read through views whose bounds are checked.

Source: docs/protocol/remoting.md, Pulling; docs/protocol/store.rst, Records.
"""

from __future__ import annotations

import cython
from cython.cimports.libc.string import memchr, memcmp
from cython.cimports.rmqha.wire.lane.big_endian import int4, int8

from rmqha.wire.log.layout import (
    BODY_AT,
    IP6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SIZE_AT,
    SYS_FLAG_AT,
)
from rmqha.wire.log.sys_flag import BORN_IP6, STORE_IP6
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

_UNIT = cython.declare(cython.Py_ssize_t, UNIT_SIZE)
_BLANK = cython.declare(cython.longlong, BLANK_SIZE)
_LEAST = cython.declare(cython.longlong, MIN_RECORD)
_V1 = cython.declare(cython.longlong, MAGIC_V1)
_V2 = cython.declare(cython.longlong, MAGIC_V2)
_AT_SIZE = cython.declare(cython.Py_ssize_t, SIZE_AT)
_AT_MAGIC = cython.declare(cython.Py_ssize_t, MAGIC_AT)
_AT_OFFSET = cython.declare(cython.Py_ssize_t, PHYSICAL_OFFSET_AT)
_AT_FLAG = cython.declare(cython.Py_ssize_t, SYS_FLAG_AT)
_BODY = cython.declare(cython.Py_ssize_t, BODY_AT)
_IP6 = cython.declare(cython.Py_ssize_t, IP6_EXTRA)
_BORN = cython.declare(cython.longlong, BORN_IP6)
_STORED = cython.declare(cython.longlong, STORE_IP6)

# How many bytes of properties are looked through in the time of one part of a filter.
_THROUGH = cython.declare(cython.Py_ssize_t, 256)
_AT_NUMBER = cython.declare(cython.Py_ssize_t, QUEUE_OFFSET_AT)


def sound_runs(
    units: cython.const[cython.uchar][::1],
    number: cython.longlong,
    most: cython.longlong,
    most_bytes: cython.longlong,
    codes: frozenset | None,
    log: cython.const[cython.uchar][::1],
    base: cython.longlong,
    wanted: object = None,
) -> tuple | None:
    """Choose records from a queue's units, if each is what its unit says.

    @param units: Whole units.
    @param number: Queue offset of the first.
    @param most: How many messages are wanted.
    @param most_bytes: How many bytes are wanted; the first message is chosen anyway.
    @param codes: The tags codes wanted; C{None} is all.
    @param log: The log from C{base} on, up to the end of a file at most.
    @param base: Its physical offset.
    @param wanted: The L{filter<rmqha.wire.sql92.filter.Filter>} that lets those by that are wanted,
        which looks at as many as its work allows, and are in C{log}; C{None} is all.
    @return: How many units are done with, the physical offset of the last of them, where the
        chosen records lie in C{log}: start and end of each run that stands side by side, and where
        the last of those ends that was looked at.  C{None} if one of them is not sound, or the
        first not in C{log}.
    """
    total: cython.Py_ssize_t = units.shape[0] // _UNIT
    room: cython.longlong = log.shape[0]
    done: cython.Py_ssize_t = total
    count: cython.longlong = 0
    taken: cython.longlong = 0
    begin: cython.longlong = -1
    end: cython.longlong = -1
    reached: cython.longlong = 0
    work: cython.longlong = 1
    look: cython.longlong = 0
    each: cython.longlong = 1
    runs: list = []
    names: tuple = ()
    known: dict = {}
    row: cython.Py_ssize_t
    if wanted is not None:
        names, known = wanted.names, wanted.known
        work, look, each = wanted.costs
    for row in range(total):
        unit: cython.Py_ssize_t = row * _UNIT
        if (codes is None and count == most and wanted is None) or work <= 0:
            done = row
            break
        size: cython.longlong = int4(units, unit + 8)
        if size == _BLANK or (codes is not None and int8(units, unit + 12) not in codes):
            continue
        if wanted is None and (count == most or (count and taken + size > most_bytes)):
            done = row
            break
        start: cython.longlong = int8(units, unit) - base
        if wanted is not None and row and start > room - size:
            done = row
            break
        if size < _LEAST or start < 0 or start > room - size:
            return None
        if not _is_record(log, start, size, base + start, number + row):
            return None
        if wanted is not None:
            at: cython.Py_ssize_t = _properties(log, start, size)
            if at < 0:
                return None
            length: cython.Py_ssize_t = start + size - at
            values: tuple = _values(log, at, length, names)
            work -= 1 + length // _THROUGH
            verdict: object = known.get(values)
            if verdict is None:
                verdict = wanted.wants(values)
                work -= look + length // each
            if verdict and (count == most or (count and taken + size > most_bytes)):
                done = row
                break
            reached = max(reached, start + size)
            if not verdict:
                continue
        if start != end:
            if end >= 0:
                runs.append((begin, end))
            begin = start
        end = start + size
        taken += size
        count += 1
    if end >= 0:
        runs.append((begin, end))
    return done, int8(units, (done - 1) * _UNIT), runs, max(reached, end)


@cython.cfunc
@cython.exceptval(-1)
def _is_record(
    log: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.longlong,
    offset: cython.longlong,
    number: cython.longlong,
) -> cython.int:
    """Whether there is a record of that size, offset and queue offset."""
    magic: cython.longlong = int4(log, at + _AT_MAGIC)
    return (
        int4(log, at + _AT_SIZE) == size
        and magic in (_V1, _V2)
        and int8(log, at + _AT_NUMBER) == number
        and int8(log, at + _AT_OFFSET) == offset
    )


@cython.cfunc
@cython.exceptval(-2)
def _properties(
    log: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.longlong
) -> cython.Py_ssize_t:
    """Where a record's property string begins, which ends it; -1 where none does."""
    flags: cython.longlong = int4(log, at + _AT_FLAG)
    end: cython.Py_ssize_t = at + size
    at += _BODY
    if flags & _BORN:
        at += _IP6
    if flags & _STORED:
        at += _IP6
    if int4(log, end - size + _AT_MAGIC) != _V1 or at >= end:
        return -1
    length: cython.longlong = int4(log, at - 4)
    if length < 0 or length >= end - at:
        return -1
    at += length
    at += 1 + log[at]
    if at + 2 > end or (log[at] << 8 | log[at + 1]) != end - at - 2 or log[at] > 127:
        return -1
    return at + 2


@cython.cfunc
def _values(
    log: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    names: tuple,
) -> tuple:
    """Properties' values, C{None} where there is none; of a name written twice the last counts."""
    base: cython.p_const_char = cython.cast(cython.p_const_char, cython.address(log[0]))
    end: cython.Py_ssize_t = at + size
    found: list = [None] * len(names)
    number: cython.Py_ssize_t
    while at < end:
        place: cython.Py_ssize_t = _next(base, at, end, 2)
        split: cython.Py_ssize_t = _next(base, at, place, 1)
        if at < split < place - 1:
            for number in range(len(names)):
                name: bytes = names[number]
                if len(name) == split - at and not memcmp(
                    cython.cast(cython.p_const_char, name), base + at, split - at
                ):
                    found[number] = (base + split + 1)[: place - split - 1]
        at = place + 1
    return tuple(found)


@cython.cfunc
@cython.exceptval(check=False)
def _next(
    base: cython.p_const_char, at: cython.Py_ssize_t, end: cython.Py_ssize_t, byte: cython.int
) -> cython.Py_ssize_t:
    """Where a byte stands, or the end."""
    found: cython.p_const_char = cython.cast(cython.p_const_char, memchr(base + at, byte, end - at))
    return end if found == cython.NULL else found - base
