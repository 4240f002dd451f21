"""One slice of a scrub: about a mebibyte of a log, read from the disk and checked like any other.

It is followed from record to record, as C{rmqha verify} does.  Behind a corruption the next valid
record is searched for, slice by slice too.

Source: docs/states.rst, Cold damage.
"""

from __future__ import annotations

import os

from attrs import evolve, frozen
from isal.isal_zlib import crc32

from rmqha.logfiles.listing import Finding
from rmqha.logfiles.scan import judge, next_valid, scan
from rmqha.logfiles.typed_table import Natural
from rmqha.store.files.mapped import none_left
from rmqha.store.log.record_checksums import KeptChecksums
from rmqha.store.scrub.cold_log import MOST, ColdLog
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.layout import MIN_BLANK
from rmqha.wire.log.record import Fault
from rmqha.wire.log.record_crc import whole_crc_holds

SLICE = 1 << 20
"""Bytes of one slice, records that are larger apart: checking them takes less than a
millisecond, so nobody else waits long for the interpreter."""


@frozen(kw_only=True)
class KeptFinding(Finding):
    """A place of its log where a running node has found what is not the log that was written.

    It is a row of a file and of C{/status}, where what a command finds has neither end nor time.

    @ivar end: Physical offset just past it, as far as was searched: the next valid record.
    @ivar found: When it was found, in milliseconds since 1970; 0 before that is filled in.
    """

    end: Natural
    found: Natural = 0

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.reason}"


@frozen(kw_only=True)
class SliceResult:
    """Where a scrub is after a slice.

    @ivar position: Physical offset of what comes next.
    @ivar faults: What was found bad.
    @ivar fresh: Entries of the checksums of records that had none, and check otherwise.
    @ivar lost: The corruption behind which a record is searched for from C{position} on; C{None}
        where a record begins there.
    """

    position: int
    faults: tuple[KeptFinding, ...] = ()
    fresh: bytes = b""
    lost: KeptFinding | None = None


def check_slice(log: ColdLog, position: int, kept: KeptChecksums) -> SliceResult:
    """Check a slice of records.  Blocking.

    @param kept: What is kept of whole records.
    @param position: Where a record begins.
    @raise FileNotFoundError: If the file is gone.
    @raise OSError: If there is no descriptor for it now.
    """
    try:
        return _check(log, position, kept)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or none_left(error):
            raise
        fault = _fault(log, position, f"unreadable: {os.strerror(error.errno or 0)}")
        return _lose(log, fault, min(position + SLICE, log.file_end(position)))


def _check(log: ColdLog, position: int, kept: KeptChecksums) -> SliceResult:
    stop = min(position + SLICE, log.end)
    end, block, faults, fresh = _scanned(log, position, stop, kept)
    if end == position and block is not None and block.fault is Fault.INCOMPLETE:
        # One record, larger than a slice.
        stop = min(position + _announced(log, position), log.end)
        end, block, faults, fresh = _scanned(log, position, stop, kept)
    bad = None if block is None else block.fault
    if bad is Fault.INCOMPLETE and (end > position or not log.whole):
        bad = None
    if bad is not None:
        # The log ends behind a whole record: one that is incomplete announces too much.
        return _lose(log, _fault(log, end, bad.value), end + 1, faults)
    if block is not None and not block.blank and end == log.file_end(block.base):
        faults += (_fault(log, end - 1, "the file ends without a blank: cut, or overwritten"),)
    return SliceResult(position=end, faults=faults, fresh=fresh)


def search_slice(log: ColdLog, lost: KeptFinding, position: int) -> SliceResult:
    """Search a slice for the next valid record.  Blocking.

    @param lost: The corruption.
    @param position: Where to go on searching.
    @raise FileNotFoundError: If the file is gone.
    @raise OSError: If there is no descriptor for it now.
    """
    log.until = min(position + SLICE, log.end)
    try:
        found = next_valid(log, position)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or none_left(error):
            raise
        # Of one corruption, however large.
        found = None
    if found is not None:
        return SliceResult(position=found, faults=(evolve(lost, end=found),))
    return _lose(log, lost, log.until)


def still_bad(log: ColdLog, fault: KeptFinding, kept: KeptChecksums) -> bool:
    """Look at a known fault again.  Blocking.

    @raise OSError: If there is no descriptor for its file now.
    """
    try:
        size = judge(log, fault.offset)
        if isinstance(size, Fault):
            return True
        record = log.read(fault.offset, max(size, 0))
        if size > 0 and kept.of(fault.offset) not in (None, crc32(record)):
            return True
        return size > 0 and whole_crc_holds(record) is False
    except OSError as error:
        if none_left(error):
            raise
        return True


def _scanned(
    log: ColdLog, start: int, stop: int, kept: KeptChecksums
) -> tuple[int, Block | None, tuple[KeptFinding, ...], bytes]:
    """Where the valid records end, the last block of them, what else is wrong, and checksums that
    are missing.
    """
    faults: tuple[KeptFinding, ...] = ()
    end, last, fresh = start, None, b""
    for view, block in scan(log, start, stop, window=max(SLICE, stop - start)):
        end, last = block.end, block
        wrong = _whole_crcs(log, view, block)
        other, missing = kept.compared(view, block)
        for row in other:
            at = int(block.start[row])
            found = _fault(log, at, Fault.CHECKSUM.value)
            wrong += (evolve(found, end=at + int(block.size[row])),)
        faults += wrong
        fresh += b"" if wrong else missing
        if block.blank:
            break
    return end, last, faults, fresh


def _whole_crcs(log: ColdLog, view: memoryview, block: Block) -> tuple[KeptFinding, ...]:
    """Records that are not what the CRC at their end says.  A broker writes it to all or to none:
    where the first and the last of them have none, the others are not looked at.
    """
    if not len(block.start):
        return ()
    places = [start - block.base for start in (int(block.start[0]), int(block.start[-1]))]
    sizes = int(block.size[0]), int(block.size[-1])
    ends = [view[place : place + size] for place, size in zip(places, sizes, strict=True)]
    if all(whole_crc_holds(record) is None for record in ends):
        return ()
    found = []
    for start, size in zip(block.start.tolist(), block.size.tolist(), strict=True):
        place = start - block.base
        if whole_crc_holds(view[place : place + size]) is False:
            fault = _fault(log, start, "the CRC of the whole record, in its properties")
            found.append(evolve(fault, end=start + size))
    return tuple(found)


def _announced(log: ColdLog, offset: int) -> int:
    return min(max(int.from_bytes(log.read(offset, 4), "big", signed=True), MIN_BLANK), MOST)


def _fault(log: ColdLog, offset: int, reason: str) -> KeptFinding:
    return KeptFinding(offset=offset, end=offset + 1, path=str(log.path_of(offset)), reason=reason)


def _lose(
    log: ColdLog, fault: KeptFinding, position: int, faults: tuple[KeptFinding, ...] = ()
) -> SliceResult:
    """Nobody knows where the next record begins."""
    fault = evolve(fault, end=min(position, log.end))
    return SliceResult(position=min(position, log.end), faults=(*faults, fault), lost=fault)
