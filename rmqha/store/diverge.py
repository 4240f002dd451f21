"""
Where two logs part, and what each has beyond that place.

Two logs that began as one are equal up to a byte.  Behind it nothing compares: each
side's records are its own, and cutting either loses them.

Source: docs/operations.rst, Diverged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from attrs import frozen

from rmqha.store.offline import OfflineLog
from rmqha.store.raw import RawLog
from rmqha.store.scan import WINDOW, scan
from rmqha.wire.delay import DelayLevels
from rmqha.wire.fields import fields

Progress = Callable[[int, int], None]


@frozen
class Difference:
    """
    The first byte two logs do not share.

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
    """
    What one log has behind the last record both have.

    @ivar end: Where it ends.
    @ivar bytes: From the parting on.
    @ivar records: Whole records from there on.
    @ivar topics: How many of them each topic has.
    """

    end: int
    bytes: int
    records: int
    topics: dict[str, int]


@frozen(kw_only=True)
class Parting:
    """
    How two logs compare.

    @ivar start: Physical offset of the first byte both hold.
    @ivar difference: The first differing byte, C{None} if one log is a prefix of the
        other, or both are equal.
    @ivar at: Physical offset of the first record they do not share: where the longer
        one would have to be cut.
    @ivar first: What the first log has from there on.
    @ivar second: What the second one has.
    """

    start: int
    difference: Difference | None
    at: int
    first: Beyond
    second: Beyond


def first_difference(
    first: OfflineLog, second: OfflineLog, progress: Progress | None = None
) -> Difference | None:
    """
    Compare two logs byte for byte where both have bytes; missing files are passed over.
    """
    start, stop = common_range(first, second)
    position = _both_have(first.raw, second.raw, start)
    while position is not None and position < stop:
        size = min(WINDOW, stop - position)
        a, b = first.raw.read(position, size), second.raw.read(position, size)
        size = min(len(a), len(b))
        ours, theirs = bytes(a[:size]), bytes(b[:size])
        if ours != theirs:
            row = _first_other(ours, theirs)
            return Difference(
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
    """
    The physical offsets both logs hold; empty if the second is not above the first.
    """
    return max(first.min_offset, second.min_offset), min(first.end, second.end)


def _both_have(first: RawLog, second: RawLog, offset: int) -> int | None:
    """
    The first physical offset from one on that lies in a file of both.
    """
    position: int | None = offset
    asked = None
    while position is not None and asked != position:
        asked = position
        for raw in (first, second):
            if position is not None and not raw.has(position):
                position = raw.next_start(position)
    return position


def _first_other(a: bytes, b: bytes) -> int:
    """
    The first place where two unequal strings of one length differ.
    """
    low, high = 0, len(a)  # equal below low, unequal somewhere below high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def record_start(log: OfflineLog, offset: int) -> int:
    """
    Where the record or blank that holds a byte starts; a log's end is its own.
    """
    if offset >= log.end:
        return log.end
    found = max(log.raw.at(offset).start, log.min_offset)
    for _, block in scan(log, found, min(log.file_end(offset), log.end), crc=False):
        below = block.start[block.start <= offset]
        if len(below):
            last = int(below[-1])
            row = len(below) - 1
            found = last if offset < last + int(block.size[row]) else last + int(block.size[row])
        if block.end > offset:
            break
    return found


def parting(first: OfflineLog, second: OfflineLog, progress: Progress | None = None) -> Parting:
    """
    Compare two logs and count what each has for itself.

    @raise ValueError: If they hold no byte in common.
    """
    start, stop = common_range(first, second)
    if start > stop:
        raise ValueError(
            f"no byte in common: one holds [{first.min_offset}, {first.end}), "
            f"the other [{second.min_offset}, {second.end})"
        )
    difference = first_difference(first, second, progress)
    at = stop if difference is None else record_start(first, difference.offset)
    return Parting(
        start=start,
        difference=difference,
        at=at,
        first=_beyond(first, at),
        second=_beyond(second, at),
    )


def _beyond(log: OfflineLog, at: int) -> Beyond:
    topics: Counter[str] = Counter()
    records = 0
    for names in _topics(log, at):
        topics.update(names)
        records += len(names)
    ordered = dict(sorted(topics.items(), key=lambda item: (-item[1], item[0])))
    return Beyond(end=log.end, bytes=log.end - at, records=records, topics=ordered)


def _topics(log: OfflineLog, at: int) -> Iterator[list[str]]:
    """
    The topic of every record from one on, a block at a time.
    """
    levels = DelayLevels.parse("1s")
    for view, block in scan(log, at, log.end, crc=False):
        if len(block.start):
            rows = fields(view, block, levels)
            yield [rows.topics[number] for number in rows.topic.tolist()]
