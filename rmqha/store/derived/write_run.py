"""Writes what a run brings to queues whose next unit is all there is to it, many in one go.

This module is compiled (C{setup.py}), and of use only so.  It does what L{ConsumeQueue.append} and
L{ConsumeQueue.mend} do for a queue that simply goes on within its last file, and nothing else: the
first queue with anything unusual about it ends the run and is left to them.  The queues stay what
they are, so there is no second truth: each is looked at before, and moved when its units are
written.

A write of 20 bytes costs a few microseconds where thousands of files are written in turn, so a
file that was written some times gets a window: a piece of it that is mapped.  A store into a page
of which the disk does not have every block kills the process, so a page is stored to only behind
a C{pwrite} that reached its end: the unit that comes first in a page has zeros behind it.

Source: docs/protocol/store.rst, Consume queues and Dispatch.
"""

from __future__ import annotations

from collections import OrderedDict
from mmap import PAGESIZE

import cython
from cython.cimports.libc.string import memcpy
from cython.cimports.posix.mman import (
    MADV_RANDOM,
    MAP_FAILED,
    MAP_SHARED,
    PROT_READ,
    PROT_WRITE,
    madvise,
    mmap,
    munmap,
)
from cython.cimports.posix.uio import iovec, pwritev
from cython.cimports.rmqha.wire.lane.big_endian import at4, at8

from rmqha.wire.columnar.queue_units import OFFSET_MAX, SIZES
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

_UNIT = cython.declare(cython.longlong, UNIT_SIZE)
_BLANK = cython.declare(cython.longlong, BLANK_SIZE)
_OFFSET_MAX = cython.declare(cython.longlong, OFFSET_MAX)
_NOWHERE = cython.declare(cython.longlong, (1 << 63) - 1)
_PAGE = cython.declare(cython.longlong, PAGESIZE)
# Bytes of a window, at most and where it begins: so many pages on any machine.
_WINDOW = cython.declare(cython.longlong, 1 << 16)
_zeros = cython.declare(cython.char[1 << 16])
# Writes after which a file gets a window: what one costs, three more would.
_WRITES = cython.declare(cython.int, 3)
# The same where it lost one or got none.
_LATER = cython.declare(cython.int, -64)
# The windows of all queues: the kernel has 65,530 for a process.  Who needs one takes that of the
# next whose was not used since the last time that somebody came by.
_WINDOWS = cython.declare(cython.int, 1 << 14)
_owners = cython.declare(cython.p_void[1 << 14])
_next = cython.declare(cython.int, 0)

_STEPS = cython.declare(cython.int, len(SIZES))
_steps = cython.declare(cython.longlong[8])
for _step, _size in enumerate((*SIZES, _NOWHERE)):
    _steps[_step] = _size


@cython.cclass
class QueueEnd:
    """See L{rmqha.store.derived.unit_files}, which has the same in Python."""

    max_offset = cython.declare(cython.longlong, visibility="public")
    highest = cython.declare(cython.longlong, visibility="public")
    end_physical = cython.declare(cython.longlong, visibility="public")
    file_start = cython.declare(cython.longlong, visibility="readonly")
    file = cython.declare(str, visibility="readonly")
    _min_physical = cython.declare(cython.longlong, visibility="public")
    _mended = cython.declare(cython.longlong, visibility="public")
    # What came since somebody took it.
    came: cython.longlong
    came_bytes: cython.longlong
    # The file's descriptor as long as so many were closed, and whether it is among those that were
    # written as long as these were forgotten so often.
    fd: cython.int
    closed: cython.longlong
    swept: cython.longlong
    # How often the file was written by C{pwrite}, its window, that one's number and place in the
    # file, up to where in the file it may be stored to, and whether it was lately.
    writes: cython.int
    window: cython.p_char
    number: cython.int
    window_at: cython.longlong
    ready: cython.longlong
    used: cython.bint

    def __cinit__(self) -> None:
        self.highest = self.file_start = self._mended = self.fd = self.closed = self.swept = -1
        self._min_physical = _NOWHERE
        self.file = ""

    def take_came(self) -> tuple:
        """Give how many messages came and their bytes, and begin anew."""
        found: tuple = (self.came, self.came_bytes)
        self.came = self.came_bytes = 0
        return found

    def go_on_in(self, file_start: cython.longlong, file: str) -> None:
        """Note which file is the last."""
        self.file_start, self.file = file_start, file
        self.closed = self.swept = -1
        self.writes = 0
        self._close()

    def __dealloc__(self) -> None:
        self._close()

    @cython.cfunc
    def _close(self) -> cython.void:
        """Do without the window."""
        if self.window != cython.NULL:
            munmap(self.window, _WINDOW)
            self.window = cython.NULL
            _owners[self.number] = cython.NULL
        self.ready = 0

    @cython.cfunc
    def _open(self, fd: cython.int, place: cython.longlong) -> cython.void:
        """Have a window with a place in the file, if there is one to have."""
        global _next
        if self.window != cython.NULL and place - self.window_at < _WINDOW:
            return
        self._close()
        self.writes = _LATER
        number: cython.int = _next
        _next = (number + 1) % _WINDOWS
        if _owners[number] != cython.NULL:
            other: QueueEnd = cython.cast(QueueEnd, _owners[number])
            if other.used:
                other.used = False
                return
            other._close()
            other.writes = _LATER
        self.window_at = place // _WINDOW * _WINDOW
        area: cython.p_void = mmap(
            cython.NULL, _WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, fd, self.window_at
        )
        if area == MAP_FAILED:
            return
        madvise(area, _WINDOW, MADV_RANDOM)
        self.window, self.number, self.writes = cython.cast(cython.p_char, area), number, _WRITES
        _owners[number] = cython.cast(cython.p_void, self)

    @cython.cfunc
    def _usual(
        self,
        first: cython.longlong,
        raw: bytes,
        whole: cython.bint,
        file_size: cython.longlong,
    ) -> cython.bint:
        """Whether units are all there is to it: they go behind the last one, in the same file."""
        size: cython.longlong = len(raw)
        place: cython.longlong = first * _UNIT - self.file_start
        if self.max_offset != first or not 0 < first < _OFFSET_MAX:
            return False
        if self._min_physical == _NOWHERE or (whole and self._mended != first):
            return False
        # At the very beginning of a file it has to be made.
        if self.file_start < 0 or place <= 0 or place + size > file_size or size < _UNIT:
            return False
        return at4(cython.cast(cython.p_const_uchar, raw) + size - 12) != _BLANK

    @cython.cfunc
    def _stored(
        self, place: cython.longlong, text: cython.p_const_char, size: cython.longlong
    ) -> cython.bint:
        """Whether there is a window that may take units, and has them now."""
        if place + size > self.ready or place < self.window_at:
            return False
        memcpy(self.window + place - self.window_at, text, size)
        self.used = True
        return True

    @cython.cfunc
    def _opened(
        self, opened: OrderedDict, full: cython.bint, closed: cython.longlong
    ) -> cython.bint:
        """Whether the file is open: then its descriptor is known."""
        if full or self.closed != closed:
            fd: object = cython.cast(dict, opened).get(self.file)
            if fd is None:
                return False
            self.fd, self.closed = fd, closed
        if full:
            opened.move_to_end(self.file)
        return True

    @cython.cfunc
    def _move(
        self, end: cython.longlong, last: cython.p_const_uchar, whole: cython.bint
    ) -> cython.void:
        """Go on behind units that are written, of which this is the last."""
        self.end_physical = at8(last) + at4(last + 8)
        if whole:
            self._mended = end
        if self.highest < end - 1:
            self.highest = end - 1
        # Last: a thread that sees this end sees the rest.
        self.max_offset = end


@cython.cclass
class _Writes:
    """Writes that are made together, without the interpreter.

    A queue that has them already in its window has a descriptor of -1 here.  Behind the units of
    others there are zeros up to where a window would need them.
    """

    count: cython.int
    queues: list
    ends: cython.p_void[64]
    texts: cython.p_const_char[64]
    places: cython.longlong[64]
    sizes: cython.longlong[64]
    tails: cython.longlong[64]
    fds: cython.int[64]

    def __cinit__(self) -> None:
        self.queues = []

    @cython.cfunc
    def _has(self, queue: QueueEnd) -> cython.bint:
        number: cython.int
        for number in range(self.count):
            if self.ends[number] == cython.cast(cython.p_void, queue):
                return True
        return False

    @cython.cfunc
    def _add(
        self,
        queue: QueueEnd,
        place: cython.longlong,
        text: cython.p_const_char,
        size: cython.longlong,
        file_size: cython.longlong,
        stored: cython.bint,
    ) -> cython.void:
        count: cython.int = self.count
        end: cython.longlong = place + size
        self.queues.append(queue)
        self.ends[count] = cython.cast(cython.p_void, queue)
        self.texts[count], self.places[count], self.sizes[count] = text, place, size
        self.fds[count], self.tails[count] = -1, 0
        if not stored:
            self.fds[count] = queue.fd
            queue.writes += 1
            if queue.writes >= _WRITES:
                self.tails[count] = min((end + _PAGE - 1) // _PAGE * _PAGE, file_size) - end
        self.count = count + 1

    @cython.cfunc
    def _write(self) -> cython.int:
        """Make them.

        @return: How many are whole.
        """
        parts = cython.declare(iovec[2])
        number: cython.int = 0
        size: cython.longlong
        with cython.nogil:
            while number < self.count:
                if self.fds[number] >= 0:
                    parts[0].iov_base = cython.cast(cython.p_void, self.texts[number])
                    parts[0].iov_len = self.sizes[number]
                    parts[1].iov_base = cython.cast(cython.p_void, _zeros)
                    parts[1].iov_len = self.tails[number]
                    size = pwritev(self.fds[number], parts, 2, self.places[number])
                    if size < self.sizes[number]:
                        break
                    if size < self.sizes[number] + self.tails[number]:
                        self.tails[number] = 0
                number += 1
        return number

    @cython.cfunc
    def _window(self, number: cython.int) -> cython.void:
        """Have a window behind what was written, if zeros are there for one."""
        queue: QueueEnd = self.queues[number]
        end: cython.longlong = self.places[number] + self.sizes[number]
        if self.tails[number]:
            queue._open(self.fds[number], end)
            if queue.window != cython.NULL:
                queue.ready = end + self.tails[number]


@cython.cclass
class Tally:
    """See L{rmqha.store.derived.unit_files}, which has the same in Python."""

    messages = cython.declare(cython.longlong, visibility="readonly")
    size = cython.declare(cython.longlong, visibility="readonly")
    _steps: cython.longlong[8]

    @property
    def steps(self) -> list:
        return [self._steps[step] for step in range(_STEPS + 1)]

    def add(self, queue: QueueEnd, raw: bytes) -> None:
        self._add(queue, cython.cast(cython.p_const_char, raw), len(raw))

    @cython.cfunc
    def _add(
        self, queue: QueueEnd, text: cython.p_const_char, size: cython.longlong
    ) -> cython.void:
        unit: cython.p_const_uchar = cython.cast(cython.p_const_uchar, text)
        last: cython.p_const_uchar = unit + size
        whole: cython.longlong = 0
        step: cython.int
        while unit < last:
            size = at4(unit + 8)
            step = 0
            while size > _steps[step]:
                step += 1
            self._steps[step] += 1
            whole += size
            queue.came += 1
            self.messages += 1
            unit += _UNIT
        queue.came_bytes += whole
        self.size += whole


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
    tally: Tally,
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
    @param tally: Counts what came.
    @param opened: As in L{Descriptors.use_open}, and the others.
    @return: The number of the first run that was not written: it is unusual, had no room, or is
        one too many.
    """
    writes: _Writes = _Writes()
    number: cython.int
    place: cython.longlong
    stored: cython.bint
    stop: cython.Py_ssize_t = min(at + min(most, 64), len(runs))
    while at + writes.count < stop:
        run: tuple = runs[at + writes.count]
        key: tuple = run[0]
        first: cython.longlong = run[1]
        raw: bytes = run[2]
        queue: QueueEnd = queues.get(key)
        if queue is None or (deleted and key[0] in deleted):
            break
        # Units of the same queue before these move its end first.
        if not queue._usual(first, raw, whole, file_size) or writes._has(queue):
            break
        place = first * _UNIT - queue.file_start
        stored = queue._stored(place, raw, len(raw))
        if not stored and not queue._opened(opened, full, closed):
            break
        if queue.swept != swept:
            dirty.add(queue.file)
            queue.swept = swept
        writes._add(queue, place, raw, len(raw), file_size, stored)
    written: cython.int = writes._write()
    for number in range(written):
        run = runs[at + number]
        key, first, raw = run
        queue = writes.queues[number]
        writes._window(number)
        tally._add(queue, raw, len(raw))
        end: cython.longlong = first + len(raw) // _UNIT
        last: cython.p_const_uchar = cython.cast(cython.p_const_uchar, raw) + len(raw) - _UNIT
        queue._move(end, last, whole)
        moved[key] = end
        before: tuple = news.get(key)
        news[key] = (first if before is None else before[0], end)
    return at + written
