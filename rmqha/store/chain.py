"""
Follow a log from record to record, past every bad place.

Recovery stops at the first one; whoever wants to know all that is wrong, or to save
what is left, goes on at the next place that holds a whole, valid record.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from attrs import frozen

from rmqha.store.pieces import Piece
from rmqha.store.raw import RawLog
from rmqha.store.scan import WINDOW, scan
from rmqha.wire.blocks import Block
from rmqha.wire.record import (
    MAGIC_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    MIN_RECORD,
    Fault,
    check,
)

SMALL = 64 << 10
"""Bytes read first behind a bad place: mostly the next record is near."""

_HEAD = 40
"""Bytes of a record's start that tell its size and where it says it is."""

# Magics in one window from which on numpy finds the records among them faster.
_MANY = 256


@frozen
class Bad:
    """
    A place where the log cannot be followed.

    @ivar offset: Physical offset.
    @ivar fault: Why not.
    @ivar next_valid: Physical offset of the next whole, valid record, C{None} if there
        is none: then the log ends here.
    """

    offset: int
    fault: Fault
    next_valid: int | None


def follow(
    raw: RawLog, start: int, *, crc: bool = True
) -> Iterator[tuple[memoryview, Block] | Bad]:
    """
    Give all records from one on, and every bad place between them.

    Where files are missing it goes on in the next one there is, silently: the names
    tell what is missing.

    @param start: A record's first byte.
    @param crc: Whether bodies are checked.
    """
    position = start
    window = WINDOW
    while position < raw.end:
        fault = None
        for view, block in scan(raw, position, raw.run_end(position), crc=crc, window=window):
            yield view, block
            position, fault = block.end, block.fault
            if fault is None and window < WINDOW:
                window *= 4
                break
        if fault is not None:
            bad = _bad(raw, position, fault)
            if bad is None:
                continue  # a running node has written it meanwhile
            yield bad
            following, window = bad.next_valid, SMALL
        else:
            following = raw.next_start(position) if _at_end(raw, position) else position
        if following is None:
            return
        position = following


def _at_end(raw: RawLog, position: int) -> bool:
    """
    Whether a position is the end of a file with no file behind it.
    """
    return raw.run_end(position - 1) == position


def _bad(raw: RawLog, offset: int, fault: Fault) -> Bad | None:
    found = next_valid(raw, offset + 1)
    return Bad(offset, fault, found) if isinstance(judge(raw, offset), Fault) else None


def judge(raw: RawLog, offset: int) -> int | Fault:
    """
    The verdict of L{check<rmqha.wire.record.check>} on one place.
    """
    head = raw.read(offset, MIN_BLANK)
    size = int.from_bytes(head[:4], "big", signed=True)
    buf = raw.read(offset, size) if MIN_BLANK < size <= raw.file_size else head
    return check(buf, 0, len(buf), offset, raw.file_end(offset), max_size=raw.file_size)


def moved_from(raw: RawLog, offset: int) -> int | None:
    """
    Where a whole record that stands at C{offset} says it belongs, if it is elsewhere.
    """
    head = raw.read(offset, _HEAD)
    size = int.from_bytes(head[:4], "big", signed=True)
    if not MIN_RECORD <= size <= raw.file_size or len(head) < _HEAD:
        return None
    buf = raw.read(offset, size)
    stated = int.from_bytes(head[28:36], "big", signed=True)
    end = raw.file_end(offset) - offset + stated
    verdict = check(buf, 0, len(buf), stated, end, max_size=raw.file_size)
    return None if isinstance(verdict, Fault) or verdict < 0 or stated == offset else stated


def next_valid(raw: RawLog, offset: int) -> int | None:
    """
    The first place at or behind C{offset} that holds a whole, valid record.

    Its stored offset must be its place, so a record inside a body does not count.
    """
    for piece in raw.pieces:
        if piece.end > offset:
            found = _search(raw, piece, max(offset, piece.start))
            if found is not None:
                return found
    return None


def _search(raw: RawLog, piece: Piece, offset: int) -> int | None:
    for start, stop in raw.extents(piece, offset):
        # The zeros of a record's size may stand in a hole before.
        start = max(start - MIN_BLANK + 1, offset)
        size = SMALL
        while start < stop:
            data = bytes(raw.read(start, size + _HEAD))
            for place in _candidates(data, start):
                verdict = judge(raw, place)
                if not isinstance(verdict, Fault) and verdict > 0:
                    return place
            start, size = start + size, min(WINDOW, size * 4)
    return None


def _candidates(data: bytes, start: int) -> list[int]:
    """
    Where a record may begin: its magic stands four bytes behind, and it says that it
    is there, which refuses nearly everything else.

    @param start: Physical offset of the first byte.
    """
    if sum(map(data.count, MAGIC_BYTES)) > _MANY:
        return _many_candidates(data, start)
    found = []
    for magic in MAGIC_BYTES:
        place = data.find(magic, 4)
        while place >= 0:
            if data[place + 24 : place + 32] == (start + place - 4).to_bytes(8, "big"):
                found.append(start + place - 4)
            place = data.find(magic, place + 1)
    return sorted(found)


def _many_candidates(data: bytes, start: int) -> list[int]:
    """
    The same for data full of magics, as somebody's body may be.
    """
    if len(data) < _HEAD:
        return []
    count = len(data) - _HEAD + 1
    magic = np.ndarray(count, ">i4", data, 4, (1,))
    stated = np.ndarray(count, ">i8", data, 28, (1,))
    place = np.arange(start, start + count)
    good = ((magic == MAGIC_V1) | (magic == MAGIC_V2)) & (stated == place)
    return [int(offset) for offset in place[good]]


def data_end(raw: RawLog, offset: int) -> int:
    """
    Just past the last byte behind C{offset} that is not zero; C{offset} if there is none.
    """
    for piece in reversed(raw.pieces):
        if piece.end <= offset:
            break
        for start, stop in reversed(raw.extents(piece, offset)):
            while start < stop:
                first = max(start, stop - WINDOW)
                data = bytes(raw.read(first, stop - first)).rstrip(b"\0")
                if data:
                    return first + len(data)
                stop = first
    return offset
