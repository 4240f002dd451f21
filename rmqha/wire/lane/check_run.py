"""A run of records of a log checked in one pass: the rules of
L{check<rmqha.wire.log.record.check>}, record after record, at the speed of the CRC.

This module is compiled (C{setup.py}), and of use only so.  It says how far records are sound, and
never what is wrong behind them: that is asked of the codec in Python, so the two cannot name it
differently.  Tests compare both.

Bytes are read through a view whose bounds are checked: a damaged record may have any lengths.

Source: docs/protocol/store.rst, Records, Recovery.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import PyBUF_READ
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.rmqha.wire.lane.big_endian import crc_at, int4, int8
from isal.isal_zlib import crc32

from rmqha.wire.lane.native_crc import CRC
from rmqha.wire.log.hashing import MASK
from rmqha.wire.log.layout import (
    BODY_AT,
    BODY_CRC_AT,
    IP6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
)
from rmqha.wire.log.sys_flag import BORN_IP6, STORE_IP6

_BODY = cython.declare(cython.Py_ssize_t, BODY_AT)
_IP6 = cython.declare(cython.Py_ssize_t, IP6_EXTRA)
_LEAST = cython.declare(cython.longlong, MIN_RECORD)
_V1 = cython.declare(cython.longlong, MAGIC_V1)
_V2 = cython.declare(cython.longlong, MAGIC_V2)
_AT_MAGIC = cython.declare(cython.Py_ssize_t, MAGIC_AT)
_AT_CRC = cython.declare(cython.Py_ssize_t, BODY_CRC_AT)
_AT_OFFSET = cython.declare(cython.Py_ssize_t, PHYSICAL_OFFSET_AT)
_AT_FLAG = cython.declare(cython.Py_ssize_t, SYS_FLAG_AT)
_BORN_IP6 = cython.declare(cython.longlong, BORN_IP6)
_STORE_IP6 = cython.declare(cython.longlong, STORE_IP6)
_MASK = cython.declare(cython.longlong, MASK)
_CRC = cython.declare(cython.size_t, CRC)


def sound_records(
    data: cython.const[cython.uchar][::1],
    base: cython.longlong,
    stop: cython.Py_ssize_t,
    crc: cython.bint,
    max_size: cython.longlong,
    nul_is_torn: cython.bint,
    ends: cython.longlong[::1],
) -> int:
    """Follow records from position 0 on, up to the first that is not sound or not whole.

    @param base: Physical offset of C{data[0]}.
    @param stop: The first position that may not be read.
    @param crc: Whether to check body CRCs.
    @param max_size: The most bytes a record may have.
    @param nul_is_torn: Whether properties that end in NUL are a fault.
    @param ends: Gets the position just past each record; there is room for as many as fit.
    @return: How many there are.
    """
    count: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = _end(data, 0, base, stop, crc, max_size, nul_is_torn)
    while at:
        ends[count] = at
        count += 1
        at = _end(data, at, base, stop, crc, max_size, nul_is_torn)
    return count


def sound_stretch(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    base: cython.longlong,
    stop: cython.Py_ssize_t,
    crc: cython.bint,
    max_size: cython.longlong,
) -> tuple:
    """Follow records from a position on, as L{sound_records} does, where only the end is asked for.

    @return: The position of the last one, -1 for none, and the position just past it.
    """
    last: cython.Py_ssize_t = -1
    end: cython.Py_ssize_t = _end(data, at, base, stop, crc, max_size, False)
    while end:
        last, at = at, end
        end = _end(data, at, base, stop, crc, max_size, False)
    return last, at


@cython.cfunc
@cython.exceptval(-1)
def _end(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    base: cython.longlong,
    stop: cython.Py_ssize_t,
    crc: cython.bint,
    max_size: cython.longlong,
    nul_is_torn: cython.bint,
) -> cython.Py_ssize_t:
    """The position just past the record at C{at}; 0 if it is not sound or not whole."""
    if stop - at < _LEAST:
        return 0
    size: cython.longlong = int4(data, at)
    if size < _LEAST or size > max_size or size > stop - at:
        return 0
    if not _sound(data, at, at + size, base + at, crc, nul_is_torn):
        return 0
    return at + size


@cython.cfunc
@cython.exceptval(-1)
def _sound(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    offset: cython.longlong,
    crc: cython.bint,
    nul_is_torn: cython.bint,
) -> cython.int:
    """Judge one record by all but its size.

    @param end: Where it ends, by its size: at least L{_LEAST} bytes behind C{at}.
    """
    magic: cython.longlong = int4(data, at + _AT_MAGIC)
    flags: cython.longlong = int4(data, at + _AT_FLAG)
    # Bytes of the topic's length.
    wide: cython.Py_ssize_t = 1 if magic == _V1 else 2
    body: cython.Py_ssize_t = at + _BODY
    if (magic != _V1 and magic != _V2) or int8(data, at + _AT_OFFSET) != offset:
        return 0
    if flags & _BORN_IP6:
        body += _IP6
    if flags & _STORE_IP6:
        body += _IP6
    if body > end:
        return 0
    length: cython.longlong = int4(data, body - 4)
    if length < 0 or length > end - body - wide - 2:
        return 0
    topic: cython.Py_ssize_t = body + length + wide
    topic_length: cython.Py_ssize_t = data[topic - 1]
    if wide == 2:
        topic_length |= cython.cast(cython.Py_ssize_t, data[topic - 2]) << 8
    properties: cython.Py_ssize_t = topic + topic_length + 2
    if topic_length == 0 or topic_length > (0x7F if wide == 1 else 0x7FFF) or properties > end:
        return 0
    rest: cython.Py_ssize_t = data[properties - 2] << 8 | data[properties - 1]
    if rest > 0x7FFF or properties + rest != end:
        return 0
    if nul_is_torn and rest and data[end - 1] == 0:
        return 0
    if not _is_text(data, topic, topic + topic_length):
        return 0
    if crc and length:
        found: cython.longlong
        if _CRC:
            found = crc_at(_CRC, cython.address(data[body]), length)
        else:
            # A view of Python's: that of Cython takes ten times as long to make.
            part = PyMemoryView_FromMemory(
                cython.cast(cython.p_char, cython.address(data[body])), length, PyBUF_READ
            )
            found = crc32(part)
        if found & _MASK != int4(data, at + _AT_CRC):
            return 0
    return 1


@cython.cfunc
@cython.exceptval(-1)
def _is_text(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Whether a topic is UTF-8."""
    seen: cython.uchar = 0
    place: cython.Py_ssize_t
    for place in range(at, end):
        seen |= data[place]
    if seen < 0x80:
        return 1
    try:
        bytes(data[at:end]).decode()
    except UnicodeDecodeError:
        return 0
    return 1
