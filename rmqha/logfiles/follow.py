"""Follow a log from record to record, past every corruption.

Recovery stops at the first one; a tool that wants to know all that is wrong, or to save
what is left, goes on at the next place that holds a whole, valid record.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from rmqha.logfiles.log_end import why_torn
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import HEAD, SMALL, WINDOW, judge, next_valid, scan
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.layout import FIELDS, MIN_RECORD
from rmqha.wire.log.record import Fault, check


@frozen
class Corruption:
    """Bytes of a log that are not what should be there: it cannot be followed from there on.

    @ivar offset: Physical offset of the first.
    @ivar fault: Why.
    @ivar next_valid: Physical offset of the next whole, valid record, C{None} if there
        is none: then the log ends here.
    """

    offset: int
    fault: Fault
    next_valid: int | None


Run = tuple[memoryview, Block]
"""Records that follow each other, and their bytes."""


def follow(raw: RawLog, start: int, *, crc: bool = True) -> Iterator[Run | Corruption]:
    """Give all records from one on, and every corruption between them.

    Where files are missing it goes on in the next one there is, silently: the names
    tell what is missing.

    @param start: A record's first byte.
    @param crc: Whether bodies are checked.
    """
    # The last run of records, and what follows it without any: the end may take a record back.
    held: list[Run] = []
    for event in _follow(raw, start, crc=crc):
        if isinstance(event, Corruption):
            torn = _torn(raw, held[0], event) if held else None
            yield from held if torn is None else torn
            if torn is None:
                yield event
            held = []
        elif len(event[1].start):
            yield from held
            held = [event]
        else:
            held.append(event)
    yield from held


def _torn(raw: RawLog, run: Run, end: Corruption) -> tuple[Run, Corruption] | None:
    """The last run and the log's end, if its last record is torn though every check says not."""
    view, block = run
    if end.fault is not Fault.NOTHING or end.next_valid is not None or not len(block.start):
        return None
    last = int(block.start[-1])
    fault = why_torn(raw, last, end.offset, raw.writer.nul_is_torn_from)
    if fault is None:
        return None
    kept = evolve(block, end=last, start=block.start[:-1], size=block.size[:-1], fault=fault)
    return (view, kept), Corruption(last, fault, None)


def _follow(raw: RawLog, start: int, *, crc: bool) -> Iterator[Run | Corruption]:
    position = start
    window = WINDOW
    while position < raw.end:
        if not raw.has(position):
            behind = raw.next_start(position)
            if behind is None:
                return
            position = behind
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
            if following is None:
                return
            position = following


def _bad(raw: RawLog, offset: int, fault: Fault) -> Corruption | None:
    found = next_valid(raw, offset + 1)
    return Corruption(offset, fault, found) if isinstance(judge(raw, offset), Fault) else None


def moved_from(raw: RawLog, offset: int) -> int | None:
    """Where a whole record that stands at C{offset} says it belongs, if it is elsewhere."""
    head = raw.read(offset, HEAD)
    size = int.from_bytes(head[:4], "big", signed=True)
    if not MIN_RECORD <= size <= raw.file_size or len(head) < HEAD:
        return None
    buf = raw.read(offset, size)
    stated = int.from_bytes(head[FIELDS["physical_offset"].place], "big", signed=True)
    end = raw.file_end(offset) - offset + stated
    verdict = check(buf, 0, len(buf), stated, end, max_size=raw.file_size)
    return None if isinstance(verdict, Fault) or verdict < 0 or stated == offset else stated
