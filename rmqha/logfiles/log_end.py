"""Where a log ends: the one answer for recovery, offline tools and Spark.

A log ends before the first thing that is not a whole, valid record or blank, records apart
that were copied damaged from the master (L{rmqha.wire.log.copied_damage}).  Two rules besides
decide what no check of a single record can:

  - A blank at a file's end is log only if another file follows.
  - The last record before zeros is torn if its properties end in NUL and its writer's cannot,
    or if it has none and its topic does (L{rmqha.logfiles.log_writer} says why).

Readers differ only in where they begin to check, for that is a matter of time: a node at what
it knows to be flushed, offline tools at the first byte, Spark at the last file that was
written.  What lies behind the end tells a torn tail from damage; only who would cut there, has to
warn, or must not take damage for the end, looks for it (L{damage_behind}).

Source: docs/protocol/store.rst, Recovery, which says also where rmqha ends a log earlier than a
stock broker and why that is better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import frozen

from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.log_writer import LogWriter
from rmqha.logfiles.pread_log import PreadLog
from rmqha.logfiles.published import read_copied_damage
from rmqha.logfiles.reader import LogReader, SparseLog
from rmqha.logfiles.scan import data_end, next_valid, scan
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.copied_damage import CopiedDamage
from rmqha.wire.log.layout import MIN_BLANK
from rmqha.wire.log.record import Fault, decode

TORN_MOST = 4 << 20
"""Bytes that a torn record may leave behind where it begins: RocketMQ's default for the most that
a message may have.  More is damage, whatever it is."""

Progress = Callable[[int], None]
"""Called with the bytes checked since the last call."""


@frozen(kw_only=True)
class LogEnd:
    """Where a log ends.

    @ivar start: Where checking began.
    @ivar end: Where the valid log ends.
    @ivar records: How many records were checked.
    @ivar last_record: Start of the last valid one, -1 if none was checked.
    @ivar reason: The check that ended the log; C{None} if the files end there.
    @ivar blank: Bytes of a blank just behind C{end}, which no file follows.
    """

    start: int
    end: int
    records: int
    last_record: int
    reason: Fault | None
    blank: int


def find_log_end(
    log: LogReader,
    start: int,
    stop: int | None = None,
    *,
    nul_is_torn_from: int,
    crc: bool = True,
    copied: CopiedDamage | None = None,
    progress: Progress | None = None,
) -> LogEnd:
    """Check a log from a record on until it ends.

    @param log: All bytes of its files; its C{end} is that of the last file.
    @param start: A record's first byte.
    @param stop: Where readable bytes end, at a file's end; without it, where the log does.
    @param nul_is_torn_from: What L{rmqha.logfiles.log_writer} says of the writer.
    @param crc: Whether bodies are checked.
    @param copied: Damaged records that are passed.
    """
    end, records, before, last, blank, reason = start, 0, -1, -1, 0, None
    stop = log.end if stop is None else stop
    for block, passed in _past(log, start, stop, crc, copied or CopiedDamage()):
        if progress is not None:
            progress(block.end - end)
        end, blank, reason = block.end, block.blank, block.fault
        records += len(block.start)
        for start_of in block.start[-2:].tolist():
            before, last = last, start_of
        if passed:
            before, last, records = last, end, records + 1
            end, reason = end + passed, None
    if end != log.end:
        blank = 0  # a file follows: it is log
    end -= blank
    if reason is Fault.NOTHING and last >= 0:
        torn = why_torn(log, last, end, nul_is_torn_from)
        if torn is not None:
            end, reason = last, torn
            records, last = records - 1, before
    return LogEnd(
        start=start, end=end, records=records, last_record=last, reason=reason, blank=blank
    )


def _past(
    log: LogReader, start: int, stop: int, crc: bool, copied: CopiedDamage
) -> Iterator[tuple[Block, int]]:
    """Follow a log past records that are damaged, and known to be as the master has them.

    @return: Each block, and the size of such a record behind it.
    """
    position = start
    while position < stop:
        passed = 0
        for _, block in scan(log, position, stop, crc=crc):
            passed = copied.size_at(log, block.end, block.fault)
            yield block, passed
            position = block.end + passed
        if not passed:
            return


def find_end_in_last_file(files: LogFiles, known: int = 0) -> LogEnd:
    """Where a log ends whose node says nothing about it, looked for in the last file that was
    begun: damage before that is met by whoever reads there.

    @param known: A place between two records up to which all was found whole before.
    @raise FileNotFoundError: If a file was deleted meanwhile.
    """
    with PreadLog(files) as log:
        return _in_last_file(log, known, LogWriter.of(files.root).nul_is_torn_from)


def find_end_past_damage(files: LogFiles, known: int = 0) -> LogEnd:
    """The same, for who reads on behind damage, or must not take it for the end: behind a record
    whose body alone is damaged, or else behind the whole file, since nobody can say where in it
    a record begins.

    @param known: As for L{find_end_in_last_file}.
    @raise FileNotFoundError: If a file was deleted meanwhile.
    """
    torn_from = LogWriter.of(files.root).nul_is_torn_from
    with PreadLog(files) as log:
        found = _in_last_file(log, known, torn_from)
        while (behind := _behind_fault(log, found)) is not None:
            # What was being written when it was looked at is whole by now.
            again = _from(log, found.end, torn_from) if found.end < behind else found
            if again.end == found.end:
                again = _from(log, _past_fault(log, found, behind), torn_from)
            found = again
        return found


def _in_last_file(log: PreadLog, known: int, torn_from: int) -> LogEnd:
    for file in reversed(log.files.files):
        if any(log.read(file.start, MIN_BLANK)):
            start = known if file.start < known <= file.end else file.start
            return _from(log, start, torn_from, file.end)
    return _nothing(log.min_offset)


def _from(log: PreadLog, start: int, torn_from: int, stop: int | None = None) -> LogEnd:
    """The end of a log of whose file nothing is known but that a record begins at a place, unless
    the log ends there.
    """
    if start >= log.end:
        return _nothing(start)
    return find_log_end(
        log,
        start,
        log.file_end(start) if stop is None else stop,
        nul_is_torn_from=torn_from,
        copied=read_copied_damage(log.files.root),
    )


def _nothing(end: int) -> LogEnd:
    return LogEnd(start=end, end=end, records=0, last_record=-1, reason=None, blank=0)


def _behind_fault(log: PreadLog, found: LogEnd) -> int | None:
    """A place behind a log's end that shows that it is damaged there, not torn: a whole record, or
    bytes that no torn record leaves; C{None} if there is none.
    """
    if found.end >= log.end or found.blank:
        return None
    behind = damage_behind(log, found.end)
    if behind is not None or found.reason in (None, Fault.NOTHING) or found.end == log.min_offset:
        return behind
    written = data_end(log, found.end)
    size = int.from_bytes(log.read(found.end, 4), "big", signed=True)
    torn = size if MIN_BLANK < size <= log.file_end(found.end) - found.end else TORN_MOST
    return written - 1 if written > found.end + max(torn, TORN_MOST) else None


def _past_fault(log: PreadLog, found: LogEnd, behind: int) -> int:
    """Where to go on behind damage."""
    if found.reason is Fault.CRC:
        return found.end + int.from_bytes(log.read(found.end, 4), "big", signed=True)
    return log.file_end(behind)


def why_torn(log: LogReader, last: int, end: int, nul_is_torn_from: int) -> Fault | None:
    """Whether the last record before nothing lacks bytes that no other check covers.

    A topic that ends in NUL can only be that: no broker takes one.

    @param last: Where the record starts; it is valid.
    @param end: Where nothing is written any more.
    """
    record = decode(log.read(last, end - last), 0, last)
    if last + record.size != end:
        return None
    if last >= nul_is_torn_from and record.raw_properties.endswith(b"\0"):
        return Fault.PROPERTIES
    if not record.raw_properties and record.topic.endswith("\0"):
        return Fault.TOPIC
    return None


def damage_behind(log: SparseLog, end: int) -> int | None:
    """A whole, valid record behind a log's end: then it is damaged there, not torn.

    @return: Its physical offset, C{None} if there is none.
    """
    # A record whose properties are torn is whole to every other check: pass it.
    return next_valid(log, end + 1)
