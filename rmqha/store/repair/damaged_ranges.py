"""Which ranges of a stopped log are damaged or missing, each from a record to a record.

They are the places that C{rmqha verify} names.  What is said of a log's end is taken from the
node's own marks (L{rmqha.store.lost_tail}), and after a clean stop from what the queues go up to.

Source: docs/operations.rst, Repair from a replica.
"""

from __future__ import annotations

from itertools import pairwise

from attrs import field, frozen

from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import data_end
from rmqha.store import lost_tail
from rmqha.store.derived.rebuild import open_derived
from rmqha.store.offline.compare import record_start, valid_end
from rmqha.store.offline.verify import LogCheck
from rmqha.wire.store_layout import BLANK_SIZE


@frozen
class DamagedRange:
    """A part of a log that is to be had from elsewhere: a corruption, several with what lies
    between them, missing files, or what a person has asked for, which may be sound.

    @ivar start: Physical offset of the first record, or of the blank, that is bad or missing.
    @ivar stop: Where a record begins that is good; without one, up to where the log went.
    @ivar reason: What is wrong, for a person.
    @ivar at_end: Whether nothing good follows: then all up to C{stop} is wanted, and whatever of
        it there is will do.
    @ivar good_to: With C{at_end}, where the last good record of ours ends; 0 if that is not
        behind C{start}.
    @ivar asked: Whether a person has named it, and has looked: what is good there may go too.
    """

    start: int
    stop: int
    reason: str
    at_end: bool = field(default=False, kw_only=True)
    good_to: int = field(default=0, kw_only=True)
    asked: bool = field(default=False, kw_only=True)


def known_end(settings: StoreSettings, *, queues: bool) -> int:
    """How far a store's log surely went, by what was written down; 0 if nothing was.

    @param queues: Whether to ask the consume queues too: after a clean stop they say nothing
        that was not log.
    """
    lost = lost_tail.find(settings.root, 0)
    known = 0 if lost is None else lost.to
    return max(known, _queues_end(settings)) if queues else known


def _queues_end(settings: StoreSettings) -> int:
    """Just past the newest record that a consume queue has."""
    queues, _ = open_derived(settings.root, settings, read_only=True)
    end = 0
    try:
        queues.load()
        queues.inspect(0)
        for queue in queues:
            unit = queue.unit(queue.max_offset - 1)
            if unit is not None and unit[1] != BLANK_SIZE:
                end = max(end, unit[0] + unit[1])
    finally:
        queues.close()
    return end


def damaged_ranges(check: LogCheck, settings: StoreSettings) -> list[DamagedRange]:
    """What a whole check has found, as ranges; ascending, none touches another.

    @param check: After its C{findings}.
    @param settings: Of the store.
    """
    raw = check.raw
    found = [
        DamagedRange(bad.offset, bad.next_valid, bad.fault.value)
        for bad in check.bad
        if bad.next_valid is not None
    ]
    found += [
        DamagedRange(before.end, after.start, "files are missing")
        for before, after in pairwise(raw.pieces)
        if before.end != after.start
    ]
    joined = _joined(found)
    end, reason = check.end, "the log's end is missing"
    while joined and joined[-1].stop >= end:
        last = joined.pop()
        end, reason = last.start, last.reason
    known = known_end(settings, queues=check.end_missing)
    if known > end and not (end == check.end and known <= end + check.blank):
        joined.append(DamagedRange(end, known, reason, at_end=True))
    return joined


def _joined(found: list[DamagedRange]) -> list[DamagedRange]:
    """Make one of ranges that touch: between them nothing could be compared."""
    joined: list[DamagedRange] = []
    for each in sorted(found, key=lambda one: one.start):
        if joined and each.start <= joined[-1].stop:
            last = joined.pop()
            stop = max(last.stop, each.stop)
            each = DamagedRange(last.start, stop, f"{last.reason}, {each.reason}")
        joined.append(each)
    return joined


def whole_range(raw: RawLog, start: int, stop: int) -> DamagedRange:
    """A range that a person has named, from a record to a record.

    @raise ValueError: If it is empty, or there is no log that it could be a part of.
    """
    if not 0 <= start < stop:
        raise ValueError(f"[{start}, {stop}) is no range of bytes")
    if not raw.pieces:
        raise ValueError(f"{raw.path} has no log to compare with")
    log = OfflineLog.of(raw, data_end(raw, raw.min_offset))
    end = valid_end(log)
    first = _begin(log, start, end)
    behind = _record_from(raw, stop) if stop < end else None
    if behind is None:
        most = max(stop, end)
        return DamagedRange(first, most, "asked for", at_end=True, good_to=end, asked=True)
    return DamagedRange(first, behind, "asked for", asked=True)


def _begin(log: OfflineLog, offset: int, end: int) -> int:
    """Where that begins which holds a byte: a record, a corruption, or missing files."""
    raw = log.raw
    if offset >= end:
        return end
    if raw.has(offset):
        return record_start(log, offset)
    if offset < raw.min_offset:
        return offset - offset % raw.file_size
    return max(piece.end for piece in raw.pieces if piece.end <= offset)


def _record_from(raw: RawLog, offset: int) -> int | None:
    """The first record that begins at an offset or behind it."""
    begin = raw.at(offset).start if raw.has(offset) else raw.next_start(offset)
    for event in follow(raw, begin, crc=False) if begin is not None else ():
        if not isinstance(event, Corruption):
            later = event[1].start[event[1].start >= offset]
            if len(later):
                return int(later[0])
    return None
