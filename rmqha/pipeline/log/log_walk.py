"""Follow a log from record to record: where a record begins, when it was stored.

Every walk starts at an anchor, a place that is known to begin a record: the start of a
file, or an entry of the split index.  There is no searching for a record inside a file:
a producer knows where its body will lie and can put there what looks like one.

Source: docs/protocol/store.rst, Records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from attrs import frozen

from rmqha.logfiles.blocks.blocks import Read, plain
from rmqha.logfiles.listing import LogFile
from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.walk_file import Walked, walk_file
from rmqha.pipeline.log.errors import RangeBroken
from rmqha.wire.log.record import Fault

Behind = Callable[[int, int], int]
"""Says for damage at a place, and for where a walk stops at most, where it goes on."""

_SHORT = "the file ends here"


def walk_on(
    file: LogFile,
    start: int,
    stop: int,
    behind: Behind | None,
    *,
    crc: bool = False,
    read: Read = plain,
) -> Iterator[Walked]:
    """Follow the records of one file to a place that is known to be between two of them.

    @param behind: How to go on behind damage; without it damage is an error.
    @param crc: Whether bodies are checked.
    @param read: How the file is read.
    @raise RangeBroken: If there is damage.
    """
    offset = start
    while offset < stop:
        fault: Fault | None = None
        for walked in walk_file(file, offset, stop, crc=crc, read=read):
            offset, fault = walked.block.end, walked.block.fault
            yield walked
        if offset < stop:
            if behind is None:
                reason = _SHORT if fault is None else fault.value
                raise RangeBroken(file.where, offset, stop, reason)
            offset = max(offset + 1, behind(offset, stop))


@frozen
class Boundary:
    """A place between two records.

    @ivar offset: Physical offset.
    @ivar last: Where the last record below it starts, -1 if the walk passed none.
    @ivar rows: How many records the walk passed.
    """

    offset: int
    last: int
    rows: int


def boundary(
    files: LogFiles,
    anchor: int,
    end: int,
    *,
    size: int | None = None,
    rows: int | None = None,
    behind: Behind | None = None,
    crc: bool = False,
) -> Boundary:
    """The last place between two records that is not above C{end}, within some limits.

    @param anchor: Where a record begins.
    @param size: The most bytes of records to pass; the first is passed if it is longer.
    @param rows: The most records to pass.
    @param behind: How to go on behind damage, which counts for nothing.
    @param crc: Whether bodies are checked.
    @raise RangeBroken: If the records cannot be followed that far.
    """
    offset, last, passed = anchor, -1, 0
    target = end if size is None else min(end, anchor + size)
    while offset < end and (file := files.at(offset)) is not None:
        for walked in walk_on(file, offset, min(file.end, end), behind, crc=crc):
            block = walked.block
            ends = block.start + block.size
            count = max(int(np.searchsorted(ends, target, "right")), 0 if passed else 1)
            count = min(count, len(ends), len(ends) if rows is None else rows - passed)
            if count:
                passed += count
                last, offset = int(block.start[count - 1]), int(ends[count - 1])
            if count < len(ends) or passed == rows:
                return Boundary(offset, last, passed)
        offset = min(file.end, end)
    return Boundary(offset, last, passed)


def round_up(
    files: LogFiles, anchor: int, offset: int, end: int, behind: Behind | None = None
) -> int:
    """The first place at or above C{offset} where a record begins, C{end} if there is none.

    @param anchor: Where a record begins, not above C{offset}, in the same file.
    @param behind: How to go on behind damage.
    @raise RangeBroken: If there is damage in between.
    """
    file = files.at(anchor)
    if file is None or anchor >= offset:
        return max(anchor, min(offset, end))
    for walked in walk_on(file, anchor, min(file.end, end), behind):
        found = walked.block.start[np.searchsorted(walked.block.start, offset) :]
        if len(found):
            return int(found[0])
    return min(file.end, end)


def first_stored(
    files: LogFiles, anchor: int, end: int, time: int, behind: Behind | None = None
) -> int | None:
    """The first record that was stored at a time or later, C{None} if there is none.

    Clocks step back, so every record is looked at.

    @param time: In milliseconds since 1970.
    @param behind: How to go on behind damage.
    @raise RangeBroken: If there is damage before it.
    """
    for file, low, high in files.pieces(anchor, end):
        for walked in walk_on(file, low, high, behind):
            found = np.flatnonzero(walked.store_times() >= time)
            if len(found):
                return int(walked.block.start[found[0]])
    return None
