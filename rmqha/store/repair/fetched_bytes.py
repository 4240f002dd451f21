"""Whether a replica's bytes may take the place of a damaged range: what is looked at before a byte
is written.

Both logs must be the same around the range: at least L{NEIGHBOURS} bytes before it and behind it
are equal, whole records among them.  The replica's bytes in the range must be records that check,
at the offsets where they are, in a chain that ends where ours goes on, and each queue's offsets
must go on from record to record.  Where only some of the replica's records are good, those are
taken.  The record before the range may differ in its properties up to its end: then the damage
begins there.

A record of ours of which the body alone is damaged says what the replica's has to be besides:
where header, topic or properties differ, and the checksum that is kept of it beside the log does
not say whose are right, the body alone is taken, if it is what our own CRC says, and that the rest
differs is told.

Source: docs/operations.rst, Repair from a replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, evolve, field, frozen
from isal.isal_zlib import crc32

from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import data_end
from rmqha.store.log.range_repair import Range, first_other
from rmqha.store.log.record_checksums import KeptChecksums
from rmqha.store.offline.compare import record_start, valid_end
from rmqha.store.repair.damaged_ranges import DamagedRange
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.layout import FIELDS
from rmqha.wire.log.record import Fault, body_range, check, decode
from rmqha.wire.log.record_crc import whole_crc_holds
from rmqha.wire.log.sys_flag import has_unit

NEIGHBOURS = 64 << 10
"""Bytes compared on each side of a range, at least, if the log has them."""


@frozen
class NotHad:
    """A part of a range that could not be had.

    @ivar start: Physical offset.
    @ivar stop: Just past it.
    @ivar reason: Why not, for a person.
    """

    start: int
    stop: int
    reason: str


@frozen(kw_only=True)
class Window:
    """What is wanted of a replica for one range.

    @ivar low: Where the first record begins that is compared.
    @ivar high: Just past the last.
    @ivar equal: What is ours and good between C{low} and C{high}.
    """

    wanted: DamagedRange
    low: int
    high: int
    equal: tuple[Range, ...]

    def bounded(self, low: int, high: int) -> Window:
        """The same, of a replica that has less."""
        low, high = max(low, self.low), min(high, self.high)
        equal = tuple(
            (max(start, low), min(stop, high))
            for start, stop in self.equal
            if max(start, low) < min(stop, high)
        )
        return evolve(self, low=low, high=high, equal=equal)


def window(raw: RawLog, wanted: DamagedRange, damaged: Sequence[DamagedRange]) -> Window:
    """What to compare around a range.

    @param raw: The log.
    @param damaged: All ranges that are: these are not compared.
    """
    log = OfflineLog.of(raw, data_end(raw, raw.min_offset))
    low, high = wanted.start, wanted.stop
    if wanted.start > raw.min_offset:
        low = record_start(log, max(raw.run_start(wanted.start), wanted.start - NEIGHBOURS))
        if low >= wanted.start:
            low = record_start(log, wanted.start - 1)
    if not wanted.at_end:
        end = min(valid_end(log), raw.run_end(wanted.stop))
        high = _records_up_to(raw, wanted.stop, min(wanted.stop + NEIGHBOURS, end))
    equal, position = [], low
    for each in [*damaged, DamagedRange(high, high, "")]:
        start = min(max(each.start, low), high)
        if position < start:
            equal.append((position, start))
        position = max(position, min(each.stop, high))
    return Window(wanted=wanted, low=low, high=high, equal=tuple(equal))


def _records_up_to(raw: RawLog, start: int, least: int) -> int:
    """Where the record ends that holds the byte before C{least}, in a chain from C{start}."""
    for event in follow(raw, start, crc=False):
        if isinstance(event, Corruption):
            if event.next_valid is None or event.next_valid >= least:
                return max(min(event.offset, least), start)
            continue
        block = event[1]
        if block.end >= least:
            later = block.start[block.start >= least]
            return int(later[0]) if len(later) else block.end
    return least


@define(eq=False, kw_only=True)
class FetchedBytes:
    """A look at a replica's bytes for one range.

    @ivar theirs: The replica's bytes of the window, valid or not.
    @ivar window: What was wanted, as far as the replica has it.
    @ivar kept: What is kept here of whole records.
    @ivar runs: What may be written, after L{look}.
    @ivar not_had: What cannot be.
    @ivar differs: Where a record stays ours, though the replica's checks and is another.
    @ivar records: How many are to be written.
    """

    ours: RawLog
    theirs: RawLog
    window: Window
    kept: KeptChecksums
    runs: list[Range] = field(factory=list, init=False)
    not_had: list[NotHad] = field(factory=list, init=False)
    differs: list[NotHad] = field(factory=list, init=False)
    records: int = field(default=0, init=False)
    # The record that the range was made to begin with.
    _reached: int = field(default=-1, init=False)
    _queues: dict[tuple[str, int], int] = field(factory=dict, init=False)
    _levels: DelayLevels = field(factory=lambda: DelayLevels.parse("1s"), init=False)

    def look(self) -> None:
        """Compare and check; blocking."""
        self._reach_back()
        wanted = self.window.wanted
        why = self._differs() or self._walk()
        if why:
            self.runs, self.records, self.differs = [], 0, []
            self.not_had = [NotHad(wanted.start, wanted.stop, why)]

    def _reach_back(self) -> None:
        """Take the record before the range for a part of it where what is kept of it says so.  If
        nothing is, where it differs in its properties alone, to their end: what a disk loses begins
        anywhere.
        """
        window, wanted = self.window, self.window.wanted
        if not any(stop == wanted.start for _, stop in window.equal):
            return
        start = record_start(OfflineLog.of(self.ours, wanted.start), wanted.start - 1)
        if start < window.low or not self.theirs.has(start):
            return
        size = wanted.start - start
        ours, theirs = (bytes(side.read(start, size)) for side in (self.ours, self.theirs))
        most = self.ours.file_size
        if ours == theirs or check(ours, 0, size, start, wanted.start, max_size=most) != size:
            return
        properties = size - len(decode(ours, 0, start).raw_properties)
        better = self._vouched(start, ours, theirs)
        if better is None:
            better = ours[:properties] == theirs[:properties] and ours[-1] != theirs[-1]
        if better:
            equal = window.bounded(window.low, start).equal
            behind = tuple(each for each in window.equal if each[0] >= wanted.stop)
            self.window = evolve(
                window, wanted=evolve(wanted, start=start), equal=(*equal, *behind)
            )
            self._reached = start

    def _differs(self) -> str:
        """Why the logs are not the same around the range; empty if they are."""
        window, wanted = self.window, self.window.wanted
        before = any(stop <= wanted.start for _, stop in window.equal)
        behind = any(start >= wanted.stop for start, _ in window.equal)
        if not before and wanted.start > self.ours.min_offset:
            return f"the replica has no record before byte {wanted.start} to compare with"
        if not behind and not wanted.at_end:
            return f"the replica has no record behind byte {wanted.stop} to compare with"
        if not (before or behind):
            return "there is nothing to compare with"
        at = first_other(self.ours, self.theirs, window.equal)
        if at is None:
            return ""
        side = "before" if at < wanted.start else "behind"
        return f"byte {at}, {side} the range, is another there: {self._whose(at)}"

    def _whose(self, at: int) -> str:
        """On which side the record that holds a byte is good."""
        sound = [not self._bad_at(log, at) for log in (self.ours, self.theirs)]
        if sound == [True, False]:
            return "the replica's record is damaged, ours is not"
        if sound == [False, True]:
            return "our record is damaged, the replica's is not; name a larger range"
        return "the record checks on both sides" if sound[0] else "the record is bad on both sides"

    def _bad_at(self, log: RawLog, at: int) -> bool:
        for event in follow(log, self.window.low):
            if isinstance(event, Corruption):
                if event.offset <= at and (event.next_valid is None or at < event.next_valid):
                    return True
            elif event[1].end > at:
                return False
        return True

    def _walk(self) -> str:
        """Take every good record of the range.

        @return: Why none may be taken; empty if that is not so.
        """
        wanted = self.window.wanted
        for event in follow(self.theirs, self.window.low):
            if isinstance(event, Corruption):
                if event.offset >= wanted.stop:
                    break
                if event.next_valid is not None and event.next_valid <= wanted.start:
                    continue
                if wanted.at_end:
                    return self._ends_at(event)
                self._corruption(event)
                continue
            view, block = event
            why = self._met(block) or self._offsets(view, block)
            if why:
                return why
            self._take(block)
        return self._ends_at(None)

    def _met(self, block: Block) -> str:
        """Why the replica's records do not meet ours at both ends of the range."""
        wanted = self.window.wanted
        places = [wanted.start] if wanted.at_end else [wanted.start, wanted.stop]
        for place in places:
            if block.base < place < block.end and place not in block.start:
                # A blank begins where the last record ends.
                ends = int(block.start[-1] + block.size[-1]) if len(block.start) else block.base
                if place != ends:
                    return f"no record of the replica's begins at byte {place}"
        return ""

    def _offsets(self, view: memoryview, block: Block) -> str:
        """Why the queue offsets are not in order: each queue goes on by one, or anew from 0."""
        if not len(block.start):
            return ""
        rows = fields(view, block, self._levels)
        for row in has_unit(rows.sys_flag).nonzero()[0].tolist():
            offset, at = int(rows.queue_offset[row]), int(block.start[row])
            if at >= self.window.high:
                break
            queue = rows.topics[int(rows.topic[row])], int(rows.queue_id[row])
            before = self._queues.get(queue)
            if before is not None and offset not in (before + 1, 0):
                return (
                    f"the record at byte {at} has offset {offset} in queue {queue[1]} of "
                    f"{queue[0]}, the one before it has {before}"
                )
            self._queues[queue] = offset
        return ""

    def _take(self, block: Block) -> None:
        wanted = self.window.wanted
        start, stop = max(block.base, wanted.start), min(block.end, wanted.stop)
        if wanted.at_end and block.end > wanted.stop:
            inside = block.start + block.size <= wanted.stop
            ends = (block.start + block.size)[inside]
            stop = int(ends[-1]) if len(ends) else block.base
        for at, size in zip(block.start.tolist(), block.size.tolist(), strict=True):
            if not start <= at < stop:
                continue
            if self._is_better(at, size):
                self.records += 1
                self._run(start, at + size)
            else:
                self._run(start, at)
                self._take_body(at, size)
            start = at + size
        self._run(start, stop)

    def _run(self, start: int, stop: int) -> None:
        if start >= stop:
            return
        if self.runs and self.runs[-1][1] == start:
            start = self.runs.pop()[0]
        self.runs.append((start, stop))

    def _is_better(self, start: int, size: int) -> bool:
        """Whether a good record of the replica's may take the place of what is ours: not if ours
        has another header, topic or properties and only its body is damaged, or nothing is.
        """
        if self.window.wanted.asked or start == self._reached or not self.ours.has(start):
            return True
        ours, theirs = self._both(start, size)
        if ours == theirs:
            return True
        vouched = self._vouched(start, ours, theirs)
        if vouched is not None:
            return vouched
        if self._judged(ours, start, crc=False) != size:
            return True
        if whole_crc_holds(ours) is False and whole_crc_holds(theirs):
            return True
        body, behind = body_range(ours, 0)
        crc = FIELDS["body_crc"].place
        outside = [side[: crc.start] + side[crc.stop : body] for side in (ours, theirs)]
        return outside[0] == outside[1] and ours[behind:] == theirs[behind:]

    def _vouched(self, start: int, ours: bytes, theirs: bytes) -> bool | None:
        """Whether the replica's record is the one that was written here, by the checksum that is
        kept of it; C{None} if neither is, or none is kept.
        """
        kept = self.kept.of(start)
        if kept == crc32(theirs):
            return True
        # A record that came damaged has the checksum of what came.
        sound = kept == crc32(ours) and self._judged(ours, start, crc=True) == len(ours)
        return False if sound else None

    def _take_body(self, start: int, size: int) -> None:
        """Take the body alone of a record that differs elsewhere too, if the CRC in ours says that
        it is the body of ours.
        """
        ours, theirs = self._both(start, size)
        body, behind = body_range(ours, 0)
        mended = ours[:body] + theirs[body:behind] + ours[behind:]
        if self._judged(mended, start, crc=True) != size:
            why = "the replica's record differs outside the body too: look at both"
            self.not_had.append(NotHad(start, start + size, why))
            return
        if ours != mended:
            self.records += 1
            self._run(start + body, start + behind)
        at = next(place for place in range(size) if mended[place] != theirs[place])
        why = f"the record at byte {start} differs outside its body, "
        if self.kept.of(start) == crc32(mended):
            why += "and the checksum kept here says that ours is right"
        else:
            why += "and no checksum tells who is right"
        self.differs.append(NotHad(start + at, start + size, why))

    def _both(self, start: int, size: int) -> tuple[bytes, bytes]:
        ours, theirs = (bytes(side.read(start, size)) for side in (self.ours, self.theirs))
        return ours, theirs

    def _judged(self, record: bytes, start: int, *, crc: bool) -> int | Fault:
        """What bytes of our log are, taken for a record at a place."""
        most, end = self.ours.file_size, self.ours.file_end(start)
        return check(record, 0, len(record), start, end, crc=crc, max_size=most)

    def _corruption(self, bad: Corruption) -> None:
        """A part of the range that is bad there too; queues may lack some records of theirs."""
        wanted = self.window.wanted
        self._queues.clear()
        start = max(bad.offset, wanted.start)
        stop = wanted.stop if bad.next_valid is None else min(bad.next_valid, wanted.stop)
        why = bad.fault.value if bad.fault is not Fault.NOTHING else "nothing is there"
        self.not_had.append(NotHad(start, stop, f"the replica's bytes are bad too: {why}"))

    def _ends_at(self, bad: Corruption | None) -> str:
        """The replica has no more of a log's end.

        @return: Why what it has may not be written; empty if it may.
        """
        wanted = self.window.wanted
        if not wanted.at_end:
            return ""
        end = max((stop for _, stop in self.runs), default=wanted.start)
        log = OfflineLog.of(self.ours, data_end(self.ours, self.ours.min_offset))
        if end < wanted.good_to and record_start(log, end) != end:
            return f"the replica's log ends at byte {end}, within a record of ours"
        if end < wanted.stop:
            why = f"the replica's log ends at byte {end}"
            if bad is not None and bad.next_valid is not None:
                why = f"the replica's bytes are bad too: {bad.fault.value}"
            self.not_had.append(NotHad(end, wanted.stop, why))
        return ""


def cleared(looked: FetchedBytes) -> Iterator[Range]:
    """What lies behind a log's end that was had, and is no log."""
    ours = looked.ours
    if not (looked.window.wanted.at_end and looked.runs):
        return
    log = OfflineLog.of(ours, data_end(ours, ours.min_offset))
    end = max(looked.runs[-1][1], looked.window.wanted.good_to)
    if end < log.end:
        yield end, log.end
