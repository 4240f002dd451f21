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
from cython.cimports.rmqha.wire.lane.big_endian import int4, int8

from rmqha.wire.log.layout import (
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SIZE_AT,
)
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

_UNIT = cython.declare(cython.Py_ssize_t, UNIT_SIZE)
_BLANK = cython.declare(cython.longlong, BLANK_SIZE)
_LEAST = cython.declare(cython.longlong, MIN_RECORD)
_V1 = cython.declare(cython.longlong, MAGIC_V1)
_V2 = cython.declare(cython.longlong, MAGIC_V2)
_AT_SIZE = cython.declare(cython.Py_ssize_t, SIZE_AT)
_AT_MAGIC = cython.declare(cython.Py_ssize_t, MAGIC_AT)
_AT_OFFSET = cython.declare(cython.Py_ssize_t, PHYSICAL_OFFSET_AT)
_AT_NUMBER = cython.declare(cython.Py_ssize_t, QUEUE_OFFSET_AT)


def sound_runs(
    units: cython.const[cython.uchar][::1],
    number: cython.longlong,
    most: cython.longlong,
    most_bytes: cython.longlong,
    codes: frozenset | None,
    log: cython.const[cython.uchar][::1],
    base: cython.longlong,
) -> tuple | None:
    """Choose records from a queue's units, if each is what its unit says.

    @param units: Whole units.
    @param number: Queue offset of the first.
    @param most: How many messages are wanted.
    @param most_bytes: How many bytes are wanted; the first message is chosen anyway.
    @param codes: The tags codes wanted; C{None} is all.
    @param log: The log from C{base} on, up to the end of a file at most.
    @param base: Its physical offset.
    @return: How many units are done with, the physical offset of the last of them, and where the
        chosen records lie in C{log}: start and end of each run that stands side by side.  C{None}
        if one of them is not sound, or not in C{log}.
    """
    total: cython.Py_ssize_t = units.shape[0] // _UNIT
    room: cython.longlong = log.shape[0]
    done: cython.Py_ssize_t = total
    count: cython.longlong = 0
    taken: cython.longlong = 0
    begin: cython.longlong = -1
    end: cython.longlong = -1
    runs: list = []
    row: cython.Py_ssize_t
    for row in range(total):
        unit: cython.Py_ssize_t = row * _UNIT
        if codes is None and count == most:
            done = row
            break
        size: cython.longlong = int4(units, unit + 8)
        if size == _BLANK or (codes is not None and int8(units, unit + 12) not in codes):
            continue
        if count == most or (count and taken + size > most_bytes):
            done = row
            break
        start: cython.longlong = int8(units, unit) - base
        if size < _LEAST or start < 0 or start > room - size:
            return None
        if not _is_record(log, start, size, base + start, number + row):
            return None
        if start != end:
            if end >= 0:
                runs.append((begin, end))
            begin = start
        end = start + size
        taken += size
        count += 1
    if end >= 0:
        runs.append((begin, end))
    return done, int8(units, (done - 1) * _UNIT), runs


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
