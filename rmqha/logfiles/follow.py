"""
Follow a log from record to record, past every bad place.

Recovery stops at the first one; a tool that wants to know all that is wrong, or to save
what is left, goes on at the next place that holds a whole, valid record.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.resync import HEAD, SMALL, judge, next_valid
from rmqha.logfiles.scan import WINDOW, scan
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.layout import FIELDS, MIN_RECORD
from rmqha.wire.log.record import Fault, check


@frozen
class BadPlace:
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
) -> Iterator[tuple[memoryview, Block] | BadPlace]:
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


def _bad(raw: RawLog, offset: int, fault: Fault) -> BadPlace | None:
    found = next_valid(raw, offset + 1)
    return BadPlace(offset, fault, found) if isinstance(judge(raw, offset), Fault) else None


def moved_from(raw: RawLog, offset: int) -> int | None:
    """
    Where a whole record that stands at C{offset} says it belongs, if it is elsewhere.
    """
    head = raw.read(offset, HEAD)
    size = int.from_bytes(head[:4], "big", signed=True)
    if not MIN_RECORD <= size <= raw.file_size or len(head) < HEAD:
        return None
    buf = raw.read(offset, size)
    stated = int.from_bytes(head[FIELDS["physical_offset"].place], "big", signed=True)
    end = raw.file_end(offset) - offset + stated
    verdict = check(buf, 0, len(buf), stated, end, max_size=raw.file_size)
    return None if isinstance(verdict, Fault) or verdict < 0 or stated == offset else stated
