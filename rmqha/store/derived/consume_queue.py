"""A consume queue: for one topic and queue id, where each message lies in the log.

A unit is 20 bytes: physical offset (i64), size (i32), tags code (i64).  The unit
of queue offset C{q} stands at byte C{20*q} of the queue, always: a unit is
either at its own place or not there at all, because a queue that is off by one
gives every later message a wrong offset for ever.  Holes (a queue whose first
messages were never here, or a log that lacks queue offsets) are filled with
RocketMQ's pre-blank units, which hold no data.

Source: docs/protocol/store.rst, Consume queues.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from attrs import define, field, frozen

from rmqha.errors import StoreError
from rmqha.logfiles.listing import LOG_NAME, Finding
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.derived.unit_files import NOWHERE, SCAN_UNITS, UnitFiles
from rmqha.store.files.mapped import zero_range
from rmqha.wire.columnar.queue_units import (
    BLANK_UNIT,
    UNIT,
    first_difference,
    first_from,
    last_below,
    sound_prefix,
)
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

# RocketMQ's recovery looks at the last three files, and so does ours.
_SCAN_FILES = 3
# How many last units may be wrong before nothing in the queue is believed.
_WALK_BACK = 16


class QueueCorrupt(StoreError):
    """A consume queue disagrees with the log.

    @ivar finding: Where, in units of the queue, and why.
    """

    sentence = "{finding}"
    finding: Finding


@define(eq=False)
class LogStart:
    """Where the log begins now, for all its queues.

    @ivar offset: Physical offset of its first byte; it only grows.
    @ivar marked: Whether a mark says what queues had, and none lacks any of it: then one that has
        no message left goes on wherever its next one is.
    """

    offset: int = 0
    marked: bool = False


@frozen
class DeletedUnits:
    """What of a queue speaks of deleted records only, as a thread found it.

    @ivar min_offset: The smallest queue offset that still has a message.
    @ivar physical: Where that message is; -1 if there is none.
    @ivar cuts: How often the queue had been cut before.
    """

    min_offset: int
    physical: int
    cuts: int


@define(eq=False, kw_only=True)
class ConsumeQueue(UnitFiles):
    """The units of one queue, as they are added, cut and found again.

    C{append} takes what follows or is there already.  C{mend} is for a pass over the
    whole log, which may also correct what is there.

    @ivar start: Where the log begins.
    @ivar anew: Whether it goes on wherever its next message is once it has none: there was a queue
        of its name, whose topic was deleted.
    """

    start: LogStart = field(factory=LogStart)
    # The smallest queue offset with a message, as it was when somebody last looked.
    _min: int = field(init=False, default=0)
    # How often units went from the end, so that a queue offset may mean another message.
    _cuts: int = field(init=False, default=0)
    anew: bool = False

    @property
    def min_offset(self) -> int:
        """The smallest queue offset that has a message in the log.

        Deleting a log file costs a queue nothing: it looks when it is asked.
        """
        if self._min_physical < self.start.offset:
            self.correct_min(self.start.offset)
        return self._min

    @property
    def next_offset(self) -> int:
        """The queue offset a new message gets: never one the log has given already."""
        return max(self.max_offset, self.highest + 1)

    @property
    def has_messages(self) -> bool:
        """Whether the log has any of its messages still."""
        return self.end_physical > self.start.offset

    # --- appending ---

    def append(self, first: int, raw: bytes) -> int:
        """Add units of consecutive queue offsets at their places.

        Units that are there already, byte for byte, are passed over.

        @param first: Queue offset of the first unit.
        @param raw: Whole units.
        @return: How many were added.
        @raise QueueCorrupt: Another unit stands there, or units before C{first} are
            missing.  Nothing was written.
        """
        count = len(raw) // UNIT_SIZE
        if first != self.max_offset and (self.anew or self.start.marked) and not self.has_messages:
            self.begin(first, lasting=False)
        self.highest = max(self.highest, first + count - 1)
        if first > self.max_offset:
            raise QueueCorrupt(self._fault(self.max_offset, f"units up to {first} are missing"))
        present = min(count, self.max_offset - first)
        if present:
            differs = self._differs(first, raw, present)
            if differs is not None:
                reason = "the log has another record for this queue offset"
                raise QueueCorrupt(self._fault(differs, reason))
        return self._write(first + present, raw[present * UNIT_SIZE :])

    def begin_pass(self) -> None:
        """Note that a dispatch of the whole log begins, so that L{mend} may correct units."""
        self._mended = -1

    def end_pass(self, log_min: int, report: Callable[[Finding], None]) -> None:
        """Drop what the pass has not found in the log.

        @param log_min: Physical offset at which the pass began.
        @param report: Called with what was dropped.
        """
        end = self._mended if self._mended >= 0 else self._kept(log_min)
        if end < self.max_offset:
            report(
                self._fault(
                    end, f"dropped units up to {self.max_offset}, which belong to no record"
                )
            )
            self._cut(end)

    def mend(self, first: int, raw: bytes, log_min: int, report: Callable[[Finding], None]) -> int:
        """Add units as L{append} does, in a pass that began at the log's first byte.

        Such a pass knows every record, so what stands where the log says otherwise is
        corrected: other units are replaced, units of no record are blanked.  Queue
        offsets that go back mean the queue began anew (its topic was deleted and made
        again): the later record wins, as it does on the broker that wrote the log.

        @param log_min: Physical offset at which the pass began.
        @param report: Called with what was wrong in the files or in the log.
        @return: How many units were written.
        """
        if first == self._mended == self.max_offset:
            written = self._write(first, raw)
        else:
            self._line_up(first, log_min, report)
            count = len(raw) // UNIT_SIZE
            present = min(count, self.max_offset - first)
            differs = self._differs(first, raw, present)
            if differs is not None:
                report(self._fault(differs, "replaced a unit that disagrees with the log"))
                self._cut(differs)
                self.highest = differs - 1
                present = differs - first
            written = self._write(first + present, raw[present * UNIT_SIZE :])
        self._mended = first + len(raw) // UNIT_SIZE
        self.highest = max(self.highest, self._mended - 1)
        return written

    def _line_up(self, first: int, log_min: int, report: Callable[[Finding], None]) -> None:
        """Make C{first} the queue's end or a place inside it, before units go there."""
        if self._mended < 0:  # the first record of this queue in the pass
            if self.max_offset not in (0, first) and self.end_physical <= log_min:
                self.begin(first, lasting=False)
            before = self.unit(first - 1)
            if before is None:
                joins = first == self.first_offset
            else:
                joins = before[1] == BLANK_SIZE or before[0] < log_min
            if self.max_offset and not joins:
                report(self._fault(first, "units belong to no record, so the queue was begun anew"))
                self.destroy()
            if not self.max_offset:
                self._open_at(first)
        elif first > self._mended:
            report(self._fault(self._mended, f"the log lacks queue offsets up to {first}"))
            blanks = BLANK_UNIT * (first - self._mended)
            present = min(first, self.max_offset) - self._mended
            differs = self._differs(self._mended, blanks, present)
            if differs is not None:
                self._cut(differs)
            if self.max_offset < first:
                self._write(self.max_offset, BLANK_UNIT * (first - self.max_offset))

    def _differs(self, first: int, raw: bytes, count: int) -> int | None:
        """The first queue offset of C{count} where the queue holds other bytes."""
        if count <= 0:
            return None
        row = first_difference(self.units(first, count), raw, count)
        return None if row is None else first + row

    def begin(self, offset: int, *, lasting: bool = True) -> None:
        """Let a queue that has no message left go on at a queue offset: its next message is there.

        @param lasting: Whether that has to outlive this process before the message comes.
        """
        self.destroy()
        self._open_at(offset, lasting=lasting)
        self.highest = offset - 1

    def _open_at(self, offset: int, *, lasting: bool = False) -> None:
        """Begin an empty queue at a queue offset: what lies before it in its file is blank.

        @param lasting: Whether there is a file in any case, which says where the queue goes on.
        """
        position = offset * UNIT_SIZE
        start = position - position % self.file_size
        if lasting and position == start > 0:
            start -= self.file_size
        if position > start:
            self.descriptors.create(self._path(start), self.file_size)
            blanks = BLANK_UNIT * ((position - start) // UNIT_SIZE)
            self.descriptors.write(self._path(start), blanks, 0)
        self._first = start
        self._min = self.max_offset = offset
        self._min_physical = NOWHERE

    def _write(self, offset: int, raw: bytes) -> int:
        """Put units at the end; the end moves when all of them are written."""
        if not raw:
            return 0
        position = offset * UNIT_SIZE
        if self._first < 0:
            self._first = position - position % self.file_size
        done = 0
        while done < len(raw):
            inside = position % self.file_size
            if self.file_start != position - inside:
                self.go_on_in(position - inside, self._path(position - inside))
            piece = raw[done : done + self.file_size - inside]
            if not inside:
                self.descriptors.create(self.file, self.file_size)
            self.descriptors.write(self.file, piece, inside)
            done += len(piece)
            position += len(piece)
        last, size, _ = UNIT.unpack_from(raw, len(raw) - UNIT_SIZE)
        if size != BLANK_SIZE:
            self.end_physical = min(last + size, NOWHERE)
        if self._min_physical == NOWHERE:
            # A blank one has to be looked behind, by whoever wants to know.
            first, size, _ = UNIT.unpack_from(raw)
            self._min_physical = first if size != BLANK_SIZE else -1
        # Last: a thread that sees this end sees the rest (see C{deleted}).
        self.max_offset = position // UNIT_SIZE
        return len(raw) // UNIT_SIZE

    # --- cutting ---

    def truncate_to(self, limit: int) -> None:
        """Drop the units of records that end above C{limit}, a physical offset."""
        if self.end_physical > limit:
            self._cut(self._kept(limit))
            self.highest = self.max_offset - 1
            self._mended = min(self._mended, self.max_offset)

    def deleted(self, log_min: int) -> DeletedUnits | None:
        """Look what speaks only of records before C{log_min}.  Blocking, and changes nothing: a
        thread may look while the queue grows.

        @return: C{None} if there is nothing to do.
        """
        cuts, low, high, first = self._cuts, self._min, self.max_offset, self._first
        physical = self._min_physical
        if physical >= log_min:
            # Files may be left of an earlier time.
            return DeletedUnits(low, physical, cuts) if self._leading(first, low, high) else None
        if 0 < self.end_physical <= log_min:
            return DeletedUnits(high, -1, cuts)
        for offset, raw in self._pieces(max(low, first // UNIT_SIZE), self._read_apart):
            row = first_from(raw, log_min)
            if row is not None:
                return DeletedUnits(offset + row, UNIT.unpack_from(raw, row * UNIT_SIZE)[0], cuts)
        return DeletedUnits(high, -1, cuts)

    def forget(self, found: DeletedUnits) -> int:
        """Do without what L{deleted} found, if it is so still.  The last file always stays: it says
        where the queue goes on.

        @return: How many files are doomed, as they are no part of the queue any more.
        """
        if found.cuts != self._cuts:
            return 0
        if found.min_offset > self._min:
            self._min, self._min_physical = found.min_offset, found.physical
            if found.min_offset == self.max_offset:
                self._min_physical = NOWHERE
        count = self._leading(self._first, self._min, self.max_offset)
        for path in self.paths()[:count]:
            self.descriptors.doom(path)
        self._first += count * self.file_size
        return count

    def _leading(self, first: int, low: int, high: int) -> int:
        """Count the files before the one with queue offset C{low}, or before the last one."""
        last = max(high - 1, 0) * UNIT_SIZE // self.file_size
        keeps = min(low * UNIT_SIZE // self.file_size, last)
        return max(0, keeps - first // self.file_size) if first >= 0 else 0

    def correct_min(self, log_min: int) -> None:
        """Find L{min_offset} again, after the log's first byte moved."""
        self._min, self._min_physical = self._first_from(log_min)

    def _first_from(self, at: int) -> tuple[int, int]:
        """The queue offset of the first message stored at or above a physical offset, and its own
        physical offset.
        """
        for offset, raw in self._pieces(max(self._min, self.first_offset), self.units):
            row = first_from(raw, at)
            if row is not None:
                return offset + row, UNIT.unpack_from(raw, row * UNIT_SIZE)[0]
        return self.max_offset, NOWHERE

    def next_offset_at(self, end: int) -> int:
        """The queue offset that a new message got, or gets, where the log ended at a physical
        offset.
        """
        return self.next_offset if self.end_physical <= end else self._first_from(end)[0]

    def forget_before(self, end: int) -> None:
        """Forget the units of records that begin before a physical offset, as their topic was
        deleted there.  If none is left the queue is empty afterwards.
        """
        if self.end_physical <= end:
            self.destroy()
        elif self._min_physical < end:
            self.correct_min(end)
            first = self._min
            raw, mended = self.units(first, self.max_offset - first), self._mended
            self.begin(first, lasting=False)
            self._write(first, raw)
            self.highest = self.max_offset - 1
            if mended > first:
                # A pass over the whole log has met them, and goes on behind.
                self._mended = mended

    def destroy(self) -> None:
        """Delete all files; the queue is empty afterwards and may begin anywhere."""
        folder = Path(self.folder)
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if LOG_NAME.fullmatch(path.name):
                    self.descriptors.remove(str(path))
        for empty in (folder, folder.parent):
            try:
                empty.rmdir()
            except OSError:
                break  # not empty, or gone
        self._first = self._mended = -1
        self._min = self.max_offset = self.end_physical = 0
        self._min_physical = NOWHERE
        self._cuts += 1
        self.go_on_in(-1, "")

    def _cut(self, offset: int, *, durable: bool = False) -> None:
        """End the queue at a queue offset: zeros from there, later files deleted.

        @param durable: Whether what stays needs no flush, if it was zeros from there already.
        """
        if offset <= self.first_offset:
            mended = self._mended
            self.destroy()
            if mended >= 0:
                self._open_at(offset)
                self._mended = mended
            elif offset:
                self._open_at(offset, lasting=True)
            return
        position = offset * UNIT_SIZE
        for path in reversed(self.paths()):
            start = int(os.path.basename(path))
            if start >= position:
                self.descriptors.remove(path)
            elif position < start + self.file_size:
                clear = partial(zero_range, start=position - start, end=self.file_size)
                if self.descriptors.use(path, clear) or not durable:
                    self.descriptors.touched(path)
        self.max_offset = offset
        if offset <= self._min:
            self._min, self._min_physical = offset, NOWHERE
        self._cuts += 1
        self.go_on_in(-1, "")
        self._find_end_physical()

    def _find_end_physical(self) -> None:
        kept = self.unit(self.max_offset - 1)
        self.end_physical = 0
        if kept is not None and kept[1] != BLANK_SIZE:
            # What is damaged may say anything.
            self.end_physical = min(kept[0] + kept[1], NOWHERE)

    def _kept(self, limit: int) -> int:
        """The queue offset just past the last real unit whose record ends at or below C{limit};
        where the queue began if there is none.
        """
        end = self.max_offset
        while end > self.first_offset:
            start = max(self.first_offset, end - SCAN_UNITS)
            count = last_below(self.units(start, end - start), limit)
            if count:
                return start + count
            end = start
        for offset, raw in self._pieces(self.first_offset, self.units):
            row = first_from(raw, 0)
            if row is not None:
                return offset + row
        return self.max_offset

    # --- loading ---

    def load(self) -> list[Finding]:
        """Take the files that are in the folder, without looking into them.

        @return: Why the files cannot be used: then the queue is empty and they are
            still there.
        """
        starts = []
        faults = []
        with os.scandir(self.folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            if not LOG_NAME.fullmatch(entry.name):
                faults.append(Finding(entry.path, 0, "ignored: not a consume queue file"))
                continue
            size = entry.stat().st_size
            if size != self.file_size:
                wrong = f"{size} bytes, expected {self.file_size}"
                return [*faults, Finding(entry.path, 0, wrong)]
            starts.append(int(entry.name))
        for index, start in enumerate(starts):
            wanted = starts[0] + index * self.file_size
            if start != wanted or start % self.file_size:
                path = self._path(start)
                return [*faults, Finding(path, 0, f"the file before ends at {wanted}")]
        if starts:
            self._first = starts[0]
            self.max_offset = (starts[-1] + self.file_size) // UNIT_SIZE
        return faults

    def inspect(self, log_min: int) -> None:
        """Find the end of loaded files and change nothing.

        @param log_min: Physical offset of the log's first byte.
        """
        if self._first >= 0:
            self.max_offset = self._scanned_end()
            self.max_offset = self._kept(1 << 62)
            self._find_end_physical()
            self._min = self.first_offset
            self.correct_min(log_min)
            self._piece = None

    def recover(self, peek: RecordReader, *, durable: bool = False) -> list[Finding]:
        """Find the valid end of loaded files and zero what lies behind it.

        Valid is a unit that follows the one before it in the log and whose record lies
        below the log's end; the last one must point to a record of this very queue and
        queue offset.  Pre-blank units count for places, never for data.

        @param durable: Whether the files are on the disk as they are; if not, the next flush
            writes them out.
        @return: What was wrong with units that were believed at first.
        """
        if self._first < 0:
            return []
        try:
            return self._recover(peek, durable=durable)
        finally:
            self._piece = None

    def _recover(self, peek: RecordReader, *, durable: bool) -> list[Finding]:
        held, self.max_offset = self.max_offset, self._scanned_end()
        # Units of records that the log has lost are no fault: the log was cut, they follow.
        end = self._kept(peek.log.confirmed)
        faults = []
        for _ in range(_WALK_BACK):
            if end <= self.first_offset or self._points_right(end - 1, peek):
                break
            faults.append(self._fault(end - 1, "unit does not point to its record"))
            end = self._back(end - 1)
        else:
            end = self.first_offset
        self.max_offset = held
        self._cut(end, durable=durable)
        self._min = self.first_offset
        self.correct_min(peek.log.min_offset)
        self.highest = self.max_offset - 1
        return faults

    def _scanned_end(self) -> int:
        """The queue offset just past the valid units of the last files."""
        per_file = self.file_size // UNIT_SIZE
        files = len(self.paths())
        reached = 0
        begin = self.first_offset + max(0, files - _SCAN_FILES) * per_file
        for offset, raw in self._pieces(begin, self.units):
            sound, reached = sound_prefix(raw, reached)
            self._piece = offset, raw
            if sound < len(raw) // UNIT_SIZE:
                return offset + sound
        return self.max_offset

    def _points_right(self, offset: int, peek: RecordReader) -> bool:
        unit = self.unit(offset)
        if unit is None or unit[1] == BLANK_SIZE or unit[0] < peek.log.min_offset:
            return unit is not None  # its record is deleted: nothing to compare
        found = peek.at(unit[0])
        return (
            found is not None
            and found.size == unit[1]
            and found.fields.has_unit
            and found.fields.topic == self.topic
            and found.fields.queue_id == self.queue_id
            and found.fields.queue_offset == offset
        )

    def _back(self, offset: int) -> int:
        """C{offset}, or below it the place just past the next real unit."""
        held = self.max_offset
        self.max_offset = offset
        try:
            return self._kept(1 << 62)
        finally:
            self.max_offset = held
