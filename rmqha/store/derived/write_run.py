"""Writes what a run brings to queues whose next unit is all there is to it, many in one go.

This module is compiled (C{setup.py}), and of use only so.  It does what L{ConsumeQueue.append} and
L{ConsumeQueue.mend} do for a queue that simply goes on within its last file, and nothing else: the
first queue with anything unusual about it ends the run and is left to them.  The queues stay what
they are, so there is no second truth: each is looked at before, and moved when its units are
written.

Source: docs/protocol/store.rst, Consume queues and Dispatch.
"""

from __future__ import annotations

from collections import OrderedDict

import cython
from cython.cimports.cpython.ref import PyObject
from cython.cimports.posix.unistd import pwrite
from cython.cimports.rmqha.wire.lane.big_endian import at4, at8

from rmqha.wire.columnar.queue_units import OFFSET_MAX
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

_UNIT = cython.declare(cython.longlong, UNIT_SIZE)
_BLANK = cython.declare(cython.longlong, BLANK_SIZE)
_OFFSET_MAX = cython.declare(cython.longlong, OFFSET_MAX)
# Where a queue says that it does not know where its first message is.
_NOWHERE = cython.declare(object, 1 << 63)


def write_usual(
    runs: list,
    at: cython.Py_ssize_t,
    most: cython.int,
    whole: cython.bint,
    queues: dict,
    deleted: dict,
    opened: OrderedDict,
    dirty: set,
    moved: dict,
    news: dict,
) -> cython.Py_ssize_t:
    """Write units to their queues, up to the first that is unusual.

    A queue is usual if the units begin at its end and it has a file with room for them that is
    open, if it has a message, if its topic was never deleted, and in a pass over the whole log if
    that has met all it has.  No other thread may close files meanwhile.

    @param runs: Topic and queue id, queue offset of the first unit, and raw units of each.
    @param at: The number of the first run.
    @param most: How many runs at most; no more than 64 count.
    @param whole: Whether this is a pass over the whole log.
    @param queues: The queues, by topic and queue id.
    @param deleted: Topics that were deleted.
    @param opened: Descriptors by path, that used last at the end.
    @param dirty: Takes the paths that were written.
    @param moved: Takes the new end of each queue.
    @param news: Takes each queue's end before and after; before stays what it was.
    @return: The number of the first run that was not written: it is unusual, had no room, or is
        one too many.
    """
    found: cython.pointer(PyObject)[64]
    texts: cython.p_const_char[64]
    places: cython.longlong[64]
    sizes: cython.longlong[64]
    fds: cython.int[64]
    count: cython.int = 0
    written: cython.int = 0
    other: cython.int
    first: cython.longlong
    end: cython.longlong
    stop: cython.Py_ssize_t = min(at + min(most, 64), len(runs))
    files: dict = cython.cast(dict, opened)
    lasts: list = []
    while at + count < stop:
        run: tuple = runs[at + count]
        key: tuple = run[0]
        raw: bytes = run[2]
        first = run[1]
        queue: object = queues.get(key)
        if queue is None or (deleted and key[0] in deleted):
            break
        if queue.max_offset != first or not 0 < first < _OFFSET_MAX or queue._first < 0:
            break
        if queue._min_physical == _NOWHERE or (whole and queue._mended != first):
            break
        start: cython.longlong = queue.file_start
        sizes[count] = len(raw)
        places[count] = first * _UNIT - start
        # At the very beginning of a file it has to be made.
        if start < 0 or not 0 < places[count] <= queue.file_size - sizes[count]:
            break
        text: cython.p_const_char = raw
        if sizes[count] < _UNIT:
            break
        if at4(cython.cast(cython.p_const_uchar, text) + sizes[count] - 12) == _BLANK:
            break
        path: str = queue.file
        fd: object = files.get(path)
        if fd is None:
            break
        found[count] = cython.cast(cython.pointer(PyObject), queue)
        for other in range(count):
            if found[other] == found[count]:
                break
        else:
            opened.move_to_end(path)
            dirty.add(path)
            lasts.append(queue)
            texts[count] = text
            fds[count] = fd
            count += 1
            continue
        break  # its units before these move its end first
    with cython.nogil:
        while written < count:
            if (
                pwrite(fds[written], texts[written], sizes[written], places[written])
                != sizes[written]
            ):
                break
            written += 1
    for other in range(written):
        run = runs[at + other]
        queue = lasts[other]
        first = run[1]
        end = first + sizes[other] // _UNIT
        unit: cython.p_const_uchar = (
            cython.cast(cython.p_const_uchar, texts[other]) + sizes[other] - _UNIT
        )
        queue.end_physical = at8(unit) + at4(unit + 8)
        if whole:
            queue._mended = end
        if queue.highest < end - 1:
            queue.highest = end - 1
        # Last: a thread that sees this end sees the rest.
        queue.max_offset = end
        key = run[0]
        moved[key] = end
        before: tuple = news.get(key)
        news[key] = (first if before is None else before[0], end)
    return at + written
