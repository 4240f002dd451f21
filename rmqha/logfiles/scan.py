"""Walk a log in blocks from record to record, and find records where that cannot be.

A record begins where its magic stands four bytes behind, where it says that it is, and
where every check agrees.  A reader that lost the chain searches for such a place: recovery
to tell a torn tail from damage, and the offline tools to go on behind a corruption.

Source: docs/protocol/store.rst, Recovery.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from attrs import evolve

from rmqha.logfiles.reader import LogReader, SparseLog
from rmqha.wire.columnar.record_blocks import Block, walk
from rmqha.wire.log.layout import (
    FIELDS,
    MAGIC_AT,
    MAGIC_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    PHYSICAL_OFFSET_AT,
)
from rmqha.wire.log.record import Fault, check

WINDOW = 4 << 20
"""Most bytes of one block, so that numpy's scratch arrays stay in the cache."""

SMALL = 64 << 10
"""Bytes read first behind a corruption: mostly the next record is near."""

HEAD = FIELDS["sys_flag"].place.stop
"""Bytes of a record's start that tell its size and where it says it is."""

# Magics in one window from which on numpy finds the records among them faster.
_MANY = 256


def scan(
    log: LogReader, start: int, stop: int, *, crc: bool = True, window: int = WINDOW
) -> Iterator[tuple[memoryview, Block]]:
    """Check every record of C{[start, stop)}, a block at a time, until the first fault.

    @param start: A record's first byte.
    @param stop: Where readable bytes end; it may lie inside a record.
    @param crc: Whether bodies are checked too.
    @return: Each block with the bytes it describes.  Only the last one has a
        C{fault}: C{INCOMPLETE} if C{stop} cuts a record, else what is wrong at its
        C{end}.
    """
    position = start
    size = window
    while position < stop:
        file_end = log.file_end(position)
        available = min(stop, file_end) - position
        taken = min(size, available)
        view = log.read(position, taken)
        block = walk(view, position, position + taken, file_end, crc=crc, max_size=log.file_size)
        window_cut = block.fault is Fault.INCOMPLETE and taken < available
        if window_cut and block.end == position:
            size = max(2 * size, int.from_bytes(view[:4], "big"))
            continue
        size = window
        yield view, evolve(block, fault=None) if window_cut else block
        if block.fault is not None and not window_cut:
            return
        position = block.end


def judge(log: LogReader, offset: int, *, crc: bool = True) -> int | Fault:
    """The verdict of L{check<rmqha.wire.log.record.check>} on one place.

    @param crc: Whether its body is checked.
    """
    head = log.read(offset, MIN_BLANK)
    size = int.from_bytes(head[:4], "big", signed=True)
    buf = log.read(offset, size) if MIN_BLANK < size <= log.file_size else head
    return check(buf, 0, len(buf), offset, log.file_end(offset), crc=crc, max_size=log.file_size)


def next_valid(log: SparseLog, offset: int) -> int | None:
    """The first place at or behind C{offset} that holds a whole, valid record.

    Its stored offset must be its place, so a record inside a body does not count.
    """
    for extent, stop in log.extents(offset):
        # The zeros of a record's size may stand in a hole before.
        start = max(extent - MIN_BLANK + 1, log.file_end(extent) - log.file_size, offset)
        size = SMALL
        while start < stop:
            data = bytes(log.read(start, size + HEAD))
            for place in candidates(data, start):
                verdict = judge(log, place)
                if not isinstance(verdict, Fault) and verdict > 0:
                    return place
            # A shorter answer ends with its file, and no head goes beyond that.
            start += size if len(data) == size + HEAD else len(data)
            size = min(WINDOW, size * 4)
    return None


def candidates(data: bytes, start: int) -> list[int]:
    """Where records may begin: what stands in the places of magic and stored offset refuses
    nearly everything else.

    @param start: Physical offset of the first byte.
    @return: Physical offsets, ascending.
    """
    if sum(map(data.count, MAGIC_BYTES)) > _MANY:
        return _many_candidates(data, start)
    found = []
    for magic in MAGIC_BYTES:
        place = data.find(magic, MAGIC_AT)
        while place >= 0:
            record = place - MAGIC_AT
            stated = record + PHYSICAL_OFFSET_AT
            if data[stated : stated + 8] == (start + record).to_bytes(8, "big"):
                found.append(start + record)
            place = data.find(magic, place + 1)
    return sorted(found)


def _many_candidates(data: bytes, start: int) -> list[int]:
    """The same for data full of magics, as a message's body may be."""
    if len(data) < HEAD:
        return []
    count = len(data) - HEAD + 1
    magic = np.ndarray(count, ">i4", data, MAGIC_AT, (1,))
    stated = np.ndarray(count, ">i8", data, PHYSICAL_OFFSET_AT, (1,))
    place = np.arange(start, start + count)
    good = ((magic == MAGIC_V1) | (magic == MAGIC_V2)) & (stated == place)
    return [int(offset) for offset in place[good]]


def data_end(log: SparseLog, offset: int) -> int:
    """Just past the last byte behind C{offset} that is not zero; C{offset} if there is none."""
    for start, stop in reversed(list(log.extents(offset))):
        while start < stop:
            first = max(start, stop - WINDOW)
            data = bytes(log.read(first, stop - first)).rstrip(b"\0")
            if data:
                return first + len(data)
            stop = first
    return offset
