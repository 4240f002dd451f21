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
from cython.cimports.posix.unistd import pwrite
from cython.cimports.rmqha.wire.lane.big_endian import at4, at8

from rmqha.wire.columnar.queue_units import OFFSET_MAX
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

_UNIT = cython.declare(cython.longlong, UNIT_SIZE)
_BLANK = cython.declare(cython.longlong, BLANK_SIZE)
_OFFSET_MAX = cython.declare(cython.longlong, OFFSET_MAX)
_NOWHERE = cython.declare(cython.longlong, (1 << 63) - 1)


@cython.cclass
class QueueEnd:
    """See L{rmqha.store.derived.consume_queue}, which has the same in Python."""

    max_offset = cython.declare(cython.longlong, visibility="public")
    highest = cython.declare(cython.longlong, visibility="public")
    end_physical = cython.declare(cython.longlong, visibility="public")
    file_start = cython.declare(cython.longlong, visibility="readonly")
    file = cython.declare(str, visibility="readonly")
    _min_physical = cython.declare(cython.longlong, visibility="public")
    _mended = cython.declare(cython.longlong, visibility="public")
    # The file's descriptor as long as so many were closed, and whether it is among those that were
    # written as long as these were forgotten so often.
    fd: cython.int
    closed: cython.longlong
    swept: cython.longlong

    def __cinit__(self) -> None:
        self.highest = self.file_start = self._mended = self.fd = self.closed = self.swept = -1
        self._min_physical = _NOWHERE
        self.file = ""

    def go_on_in(self, file_start: cython.longlong, file: str) -> None:
        """Note which file is the last."""
        self.file_start, self.file = file_start, file
        self.closed = self.swept = -1


def write_usual(
    runs: list,
    at: cython.Py_ssize_t,
    most: cython.int,
    whole: cython.bint,
    file_size: cython.longlong,
    queues: dict,
    deleted: dict,
    moved: dict,
    news: dict,
    opened: OrderedDict,
    dirty: set,
    full: cython.bint,
    closed: cython.longlong,
    swept: cython.longlong,
) -> cython.Py_ssize_t:
    """Write units to their queues, up to the first that is unusual.

    A queue is usual if the units begin at its end and it has a file with room for them that is
    open, if it has a message, if its topic was never deleted, and in a pass over the whole log if
    that has met all it has.  No other thread may close files meanwhile.

    @param runs: Topic and queue id, queue offset of the first unit, and raw units of each.
    @param at: The number of the first run.
    @param most: How many runs at most; no more than 64 count.
    @param whole: Whether this is a pass over the whole log.
    @param file_size: Bytes of a queue's file.
    @param queues: The queues, by topic and queue id.
    @param deleted: Topics that were deleted.
    @param moved: Takes the new end of each queue.
    @param news: Takes each queue's end before and after; before stays what it was.
    @param opened: As in L{Descriptors.use_open}, and the others.
    @return: The number of the first run that was not written: it is unusual, had no room, or is
        one too many.
    """
    texts = cython.declare(cython.p_const_char[64])
    places = cython.declare(cython.longlong[64])
    sizes = cython.declare(cython.longlong[64])
    fds = cython.declare(cython.int[64])
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
        queue: QueueEnd = queues.get(key)
        if queue is None or (deleted and key[0] in deleted):
            break
        if queue.max_offset != first or not 0 < first < _OFFSET_MAX:
            break
        if queue._min_physical == _NOWHERE or (whole and queue._mended != first):
            break
        sizes[count] = len(raw)
        places[count] = first * _UNIT - queue.file_start
        # At the very beginning of a file it has to be made.
        if queue.file_start < 0 or not 0 < places[count] <= file_size - sizes[count]:
            break
        text: cython.p_const_char = raw
        if sizes[count] < _UNIT:
            break
        if at4(cython.cast(cython.p_const_uchar, text) + sizes[count] - 12) == _BLANK:
            break
        if full or queue.closed != closed:
            fd: object = files.get(queue.file)
            if fd is None:
                break
            queue.fd, queue.closed = fd, closed
        fds[count] = queue.fd
        for other in range(count):
            if fds[other] == fds[count]:
                break
        else:
            if full:
                opened.move_to_end(queue.file)
            if queue.swept != swept:
                dirty.add(queue.file)
                queue.swept = swept
            lasts.append(queue)
            texts[count] = text
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
