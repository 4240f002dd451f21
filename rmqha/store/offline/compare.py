"""Where two logs part, and what each has beyond that place.

Two logs that began as one are equal up to a byte.  Behind it nothing compares: each
side's records are its own, and cutting either loses them.

What is compared is bytes, whether they are valid records or not, as far as both logs
have any: a flipped bit is a difference although recovery would end its log before it.

Source: docs/states.rst, Diverged.
"""

from __future__ import annotations

from collections import Counter

from attrs import frozen

from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.offline_log import OfflineLog, Progress
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import WINDOW, data_end
from rmqha.store.log.record_checksums import KeptChecksums
from rmqha.store.log.two_versions import TwoVersions, judge_by_checksums, judge_versions
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.log.delay_levels import DelayLevels

JUDGED = 8 << 20
"""Bytes behind a difference whose records are judged on both sides; no record is larger."""


@frozen
class FirstDifference:
    """The first byte two logs do not share.

    @ivar offset: Its physical offset.
    @ivar path: Its file in the first log.
    @ivar other_path: Its file in the second log.
    @ivar value: The byte in the first log.
    @ivar other_value: The byte in the second log.
    """

    offset: int
    path: str
    other_path: str
    value: int
    other_value: int


@frozen(kw_only=True)
class Beyond:
    """What one log has behind the last record both have.

    @ivar end: Just past its last whole, valid record.
    @ivar bytes: From the parting to there.
    @ivar records: Whole, valid records among them.
    @ivar topics: How many of them each topic has.
    @ivar bad: Bad places among them.
    @ivar tail: Bytes behind the end that are no whole record: torn, or damaged.
    @ivar unread: Bytes behind it all that were not looked at; C{None} if it is
        not known how many.
    """

    end: int
    bytes: int
    records: int
    topics: dict[str, int]
    bad: int
    tail: int
    unread: int | None = 0


@frozen(kw_only=True)
class LogComparison:
    """How two logs compare.

    @ivar start: Physical offset of the first byte both hold.
    @ivar difference: The first differing byte, C{None} if one log is a prefix of the
        other, or both are equal.
    @ivar stop: Physical offset just past the last byte compared.
    @ivar at: Physical offset of the first record they do not share: where the longer
        one would have to be cut.
    @ivar first: What the first log has from there on.
    @ivar second: What the second one has.
    @ivar versions: On which side the records are right from there on; C{None} without a
        difference.
    """

    start: int
    stop: int
    difference: FirstDifference | None
    at: int
    first: Beyond
    second: Beyond
    versions: TwoVersions | None = None


def first_difference(
    first: OfflineLog, second: OfflineLog, progress: Progress | None = None
) -> FirstDifference | None:
    """Compare two logs byte for byte where both have bytes; missing files are passed over."""
    start, stop = common_range(first, second)
    position = _both_have(first.raw, second.raw, start)
    while position is not None and position < stop:
        size = min(WINDOW, stop - position)
        a, b = first.raw.read(position, size), second.raw.read(position, size)
        size = min(len(a), len(b))
        ours, theirs = bytes(a[:size]), bytes(b[:size])
        if ours != theirs:
            row = _first_other(ours, theirs)
            return FirstDifference(
                position + row,
                str(first.raw.at(position + row).path),
                str(second.raw.at(position + row).path),
                ours[row],
                theirs[row],
            )
        if progress is not None:
            progress(position + size - start, stop - start)
        position = _both_have(first.raw, second.raw, position + size)
    return None


def common_range(first: OfflineLog, second: OfflineLog) -> tuple[int, int]:
    """The physical offsets both logs hold; empty if the second is not above the first."""
    return max(first.min_offset, second.min_offset), min(first.end, second.end)


def _both_have(first: RawLog, second: RawLog, offset: int) -> int | None:
    """The first physical offset from one on that lies in a file of both."""
    position: int | None = offset
    asked = None
    while position is not None and asked != position:
        asked = position
        for raw in (first, second):
            if position is not None and not raw.has(position):
                position = raw.next_start(position)
    return position


def _first_other(a: bytes, b: bytes) -> int:
    """The first place where two unequal strings of one length differ."""
    low, high = 0, len(a)  # equal below low, unequal somewhere below high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def record_start(log: OfflineLog, offset: int) -> int:
    """Where the record or blank that holds a byte starts; a log's end is its own."""
    if offset >= log.end:
        return log.end
    found = max(log.raw.at(offset).start, log.min_offset)
    for event in follow(log.raw, found, crc=False):
        if isinstance(event, Corruption):
            if event.offset > offset:
                break
            found = event.offset
            continue
        block = event[1]
        below = block.start[block.start <= offset]
        if len(below):
            last, size = int(below[-1]), int(block.size[len(below) - 1])
            found = last if offset < last + size else last + size
        if block.end > offset:
            break
    return found


def parting(first: RawLog, second: RawLog, progress: Progress | None = None) -> LogComparison:
    """Compare two logs and count what each has for itself.

    @raise ValueError: If they hold no byte in common.
    """
    ours, theirs = (OfflineLog.of(raw, data_end(raw, raw.min_offset)) for raw in (first, second))
    start, stop = common_range(ours, theirs)
    if start > stop:
        raise ValueError(
            f"no byte in common: one holds [{ours.min_offset}, {ours.end}), "
            f"the other [{theirs.min_offset}, {theirs.end})"
        )
    difference = first_difference(ours, theirs, progress)
    ends = [valid_end(log) for log in (ours, theirs)]
    at = min(ends) if difference is None else record_start(ours, difference.offset)
    return LogComparison(
        start=start,
        stop=stop if difference is not None else max(stop, at),
        difference=difference,
        at=at,
        first=beyond(ours, at, ends[0]),
        second=beyond(theirs, at, ends[1]),
        versions=None if difference is None else versions(ours, theirs, at),
    )


def versions(ours: OfflineLog, theirs: OfflineLog, at: int) -> TwoVersions | None:
    """On which side records are right, in the L{JUDGED} bytes behind a difference.

    @param at: The first record that differs.
    @return: C{None} if a log has nothing there.
    """
    if not all(log.raw.has(at) and log.min_offset <= at < log.end for log in (ours, theirs)):
        return None
    mine, others = (log.read(at, JUDGED) for log in (ours, theirs))
    found = judge_versions(mine, others, at, ours.file_end(at), ours.file_size)
    kept = (KeptChecksums(log.raw.root, log.file_size) for log in (ours, theirs))
    return judge_by_checksums(found, mine, others, *kept)


def valid_end(log: OfflineLog) -> int:
    """Just past the last whole, valid record, whatever lies before it.

    @param log: One that ends with its last byte that is not zero.
    """
    raw = log.raw
    if log.end <= raw.min_offset:
        return raw.min_offset
    end, blank = raw.at(log.end - 1).start, 0
    for event in follow(raw, end):
        if not isinstance(event, Corruption):
            end, blank = event[1].end, event[1].blank
    return end - blank if end == raw.end else end


def beyond(log: OfflineLog, at: int, end: int) -> Beyond:
    """Count what a log has for itself.

    @param at: The first record that the other one does not have.
    @param end: What L{valid_end} says.
    """
    raw = log.raw
    start = at if raw.has(at) else raw.next_start(at)
    topics: Counter[str] = Counter()
    bad = 0
    levels = DelayLevels.parse("1s")
    for event in follow(raw, start) if start is not None else ():
        if isinstance(event, Corruption):
            bad += event.next_valid is not None
        elif len(event[1].start):
            rows = fields(*event, levels)
            topics.update(rows.topics[number] for number in rows.topic.tolist())
    return Beyond(
        end=end,
        bytes=max(0, end - at),
        records=topics.total(),
        topics=dict(sorted(topics.items(), key=lambda item: (-item[1], item[0]))),
        bad=bad,
        tail=max(0, log.end - end),
    )
