"""The commit log: one end, one append door for each role, readers by memoryview.

Four offsets describe it, each at most the one before::

    staged >= end >= confirmed        what a frame brought so far / accepted / checked
              end >= flushed          on the disk

On a master whole records arrive through L{CommitLog.put}, so C{confirmed} is always
C{end}.  On a slave frames cut records anywhere: bytes are staged while a frame
arrives, are log once the frame is complete (L{CommitLog.accept}) and are confirmed
once the record they belong to is whole and valid (L{CommitLog.verify}).  Only
confirmed bytes are dispatched, served on, or reported as held.

Source: docs/protocol/store.rst, Records and The end of a file;
docs/architecture.rst, The log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define, field
from twisted.logger import Logger

from rmqha.errors import DiskFull, FrameOffsetMismatch, MessageIllegal, RecordCorrupt, StoreError
from rmqha.logfiles.scan import scan
from rmqha.store.files.allocate import Allocator
from rmqha.store.files.mapped import LogFolder, MappedFile
from rmqha.store.log.record_run import RecordRun
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.copied_damage import CopiedDamage
from rmqha.wire.log.encode import blank, place
from rmqha.wire.log.layout import MAGIC_BLANK, MIN_BLANK
from rmqha.wire.log.record import Fault, check, magic_at

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.check_run import sound_stretch

SCALAR_BYTES = 24 << 10
"""Where nothing is compiled, below this a record-by-record check is cheaper than setting up a
block's arrays."""

TOGETHER = 16 << 10
"""Bytes of records that come together after which replicas get them, before the rest is there:
so they work while we do."""


class RecordCrossesFile(StoreError):
    """A master's record crosses a file end of ours: its C{mappedFileSizeCommitLog} differs."""

    sentence = (
        "record of {size} bytes at {offset} crosses a file end; "
        "our mappedFileSizeCommitLog is {file_size}, the master's is not"
    )
    offset: int
    size: int
    file_size: int


class StartNotAligned(StoreError):
    """A master's log starts inside what would be one file of ours."""

    sentence = (
        "the master's log starts at {offset}, which is not a multiple of our "
        "mappedFileSizeCommitLog {file_size}"
    )
    offset: int
    file_size: int


@define(eq=False, kw_only=True)
class CommitLog:
    """The log of one store, open for writing.

    @ivar end: Just past the last byte accepted.
    @ivar confirmed: Just past the last whole, valid record or blank.
    @ivar flushed: Everything below survived an fsync.
    @ivar last_record: Start of the last confirmed record seen, -1 before the first.
    @ivar copied: Damaged records that are as the master has them.
    @ivar appended: Called, without arguments, after C{end} or C{confirmed} moved.
    @ivar flush_listeners: Called after C{flushed} moved.
    @ivar replicated: Whether what came last was a master's.
    @ivar rewinds: How often the end moved back: an fsync that began before it did says
        nothing about the bytes that are there now.
    """

    folder: LogFolder
    end: int
    allocator: Allocator
    confirmed: int = field(init=False)
    flushed: int = field(init=False)
    last_record: int = -1
    rewinds: int = 0
    replicated: bool = field(default=False, init=False)
    appended: list[Callable[[], None]] = field(factory=list)
    flush_listeners: list[Callable[[], None]] = field(factory=list)
    copied: CopiedDamage = field(factory=CopiedDamage)
    _staged: int = field(init=False)
    _dirty: int = field(init=False)
    # Where the end has to be for the next news of it, while records come together.
    _tell_from: int = field(default=-1, init=False)
    # Where frames go now: the file's map, its first byte, and how far it is allocated.
    _room_view: memoryview = field(default=memoryview(b""), init=False, repr=False)
    _room_start: int = field(default=0, init=False)
    _settled: int = field(default=-1, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.confirmed = self.flushed = self._staged = self._dirty = self.end
        if self.folder.files and self.end < self.folder.files[-1].end:
            self.allocator.adopt(self.folder.files[-1], self.end)

    # --- reading ------------------------------------------------------------

    @property
    def file_size(self) -> int:
        return self.folder.file_size

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest byte kept; L{end} on an empty log."""
        return self.folder.files[0].start if self.folder.files else self.end

    def file_end(self, offset: int) -> int:
        """Physical offset of the end of the file that holds C{offset}."""
        return self.folder.at(offset).end

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of the log, cut at the end of their file and at L{end}.

        @return: A read-only view that keeps its mapping alive; empty at the end.
        @raise ValueError: If C{offset} is outside C{[min_offset, end]}.
        """
        if offset == self.end:
            return memoryview(b"")
        if not self.min_offset <= offset < self.end:
            raise ValueError(f"byte {offset} is outside [{self.min_offset}, {self.end})")
        file = self.folder.at(offset)
        start = offset - file.start
        stop = min(start + size, self.end - file.start, file.size)
        return file.view[start:stop].toreadonly()

    # --- a master's door ----------------------------------------------------

    def put(
        self, records: Sequence[bytearray], queue_offsets: Sequence[int], store_timestamp: int
    ) -> int:
        """Append whole records, all in one file, and tell L{appended}.

        @param records: Encoded records; their offsets and time are filled in here.
        @param queue_offsets: One each.
        @param store_timestamp: Milliseconds since 1970.
        @return: Physical offset of the first record.
        @raise MessageIllegal: If they cannot fit any file.
        @raise DiskFull: If there is no room; the log is unchanged.
        @raise FlushFailed: If the next file's name cannot be made durable; the same.
        """
        total = sum(map(len, records))
        if total + MIN_BLANK > self.file_size:
            raise MessageIllegal("record", total, self.file_size - MIN_BLANK)
        file = self._room(total)
        start = offset = max(self.end, file.start)
        for record, queue_offset in zip(records, queue_offsets, strict=True):
            place(record, queue_offset=queue_offset, offset=offset, store_timestamp=store_timestamp)
            position = offset - file.start
            file.view[position : position + len(record)] = record
            self.last_record = offset
            offset += len(record)
        self._grown(offset)
        return start

    def put_run(
        self,
        run: RecordRun,
        born_host: bytes,
        next_offsets: dict[tuple[str, int], int],
        store_timestamp: int,
    ) -> int:
        """Append the records of a run, as many of the first as fit where one file has room, and
        tell L{appended}.

        @param run: Writes them; it says then how many.
        @param born_host: Address and port of who sent them, as a record has them.
        @param next_offsets: Of each queue; moved on.
        @param store_timestamp: Milliseconds since 1970.
        @return: Physical offset of the first record.
        @raise MessageIllegal: If the first one does not fit any file.
        @raise DiskFull: If there is no room; the log is unchanged.
        @raise FlushFailed: If the next file's name cannot be made durable; the same.
        """
        files = self.folder.files
        left = files[-1].end - self.end - MIN_BLANK if files else 0
        count, total = run.fitting(left)
        if not count:
            count, total = run.fitting(self.file_size - MIN_BLANK)
        if not count:
            raise MessageIllegal("record", total, self.file_size - MIN_BLANK)
        file = self._room(total)
        start = max(self.end, file.start)
        self.last_record = run.write(
            file.view,
            start - file.start,
            start,
            count=count,
            stored=store_timestamp,
            born_host=born_host,
            next_offsets=next_offsets,
        )
        self._grown(start + total)
        return start

    def _grown(self, end: int) -> None:
        """Whole records reach up to C{end} now."""
        self.replicated = False
        self.end = self.confirmed = self._staged = self._dirty = end
        if end < self._tell_from:
            return
        if self._tell_from >= 0:
            self._tell_from = end + TOGETHER
        self._tell(self.appended)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Several records come: tell L{appended} of L{TOGETHER} bytes at a time."""
        self._tell_from = self.end + TOGETHER
        try:
            yield
        finally:
            due = self.end > self._tell_from - TOGETHER
            self._tell_from = -1
            if due:
                self._tell(self.appended)

    def _room(self, total: int) -> MappedFile:
        """The file the next C{total} bytes go to; a blank closes the one they do not fit."""
        file = self._allocated(total)
        if file.start > self.end:
            # Only now that a file follows: before, a blank would not be log.
            full = self.folder.at(self.end)
            position = self.end - full.start
            full.view[position : position + MIN_BLANK] = blank(full.size - position)
        return file

    def _allocated(self, total: int) -> MappedFile:
        """The file that has room for the next C{total} bytes, made if need be, with blocks
        for them and for the header of the blank before it.
        """
        offset = self.end
        if self.folder.files and offset < self.folder.files[-1].end:
            file = self.folder.at(offset)
            position = offset - file.start
            if position + total + MIN_BLANK <= file.size:
                self.allocator.ensure(file, position + total)
                return file
            self.allocator.ensure(file, position + MIN_BLANK)
            offset = file.end
        return self._file_from(offset, total)

    def _file_from(self, offset: int, wanted: int) -> MappedFile:
        """The file that starts at C{offset}, or that an empty log starts with, with blocks
        for its first bytes.
        """
        if self.folder.files and offset < self.folder.files[-1].end:
            file = self.folder.at(offset)
            self.allocator.ensure(file, wanted)
            return file
        return self.allocator.next_file(self.folder, offset, wanted)

    def has_room(self, wanted: int) -> bool:
        """Whether the disk has room again for a record of C{wanted} bytes, and the process a
        descriptor for its file.
        """
        try:
            file = self._allocated(min(wanted, self.file_size - MIN_BLANK))
            return len(file.view) == file.size
        except DiskFull:
            return False

    # --- a slave's door -----------------------------------------------------

    def begin(self, offset: int) -> None:
        """Say where an empty log starts.

        @param offset: A multiple of the file size.
        @raise StartNotAligned: If it is not.
        @raise ValueError: If the log is not empty.
        """
        if self.folder.files and self.end > self.min_offset:
            raise ValueError(f"the log already holds [{self.min_offset}, {self.end})")
        if offset % self.file_size:
            raise StartNotAligned(offset, self.file_size)
        self._forget_room()
        while self.folder.files:
            self.folder.files.pop().remove()
        self.end = self.confirmed = self.flushed = self._staged = self._dirty = offset
        self.last_record = -1
        self.copied.keep_within(0, 0)
        self.rewinds += 1

    def reserve(self, offset: int, left: int) -> memoryview:
        """Room for the next bytes of a frame, not yet log.

        @param offset: Where they belong: just past what was staged before.
        @param left: Bytes of the frame still to come.
        @return: A writable view of 1 to C{left} bytes, cut at the file's end.
        @raise FrameOffsetMismatch: If C{offset} is not where the log goes on.
        @raise DiskFull: If there is no room.
        """
        if offset != self._staged:
            raise FrameOffsetMismatch(self._staged, offset)
        stop = offset + left
        if stop > self._settled:
            stop = self._make_room(offset, left)
        if stop > self._dirty:
            self._dirty = stop
        return self._room_view[offset - self._room_start : stop - self._room_start]

    def _make_room(self, offset: int, left: int) -> int:
        """Choose the file that staged bytes go to, and give it blocks.

        @return: Where the room ends: at C{offset + left}, or at the file's end.
        """
        files = self.folder.files
        if not files or offset == files[-1].end:
            file = self.allocator.next_file(self.folder, offset, min(left, self.file_size))
        else:
            file = self.folder.at(offset)
        stop = min(offset + left, file.end)
        self.allocator.ensure(file, stop - file.start)
        self._room_view, self._room_start = file.view, file.start
        self._settled = file.start + self.allocator.settled(file)
        return stop

    def _forget_room(self) -> None:
        """Files may go: the next frame looks anew where its bytes belong."""
        self._settled, self._room_view = -1, memoryview(b"")

    def staged(self, count: int) -> None:
        """The first C{count} bytes of the reserved room are filled."""
        self._staged += count

    def accept(self) -> None:
        """A frame is complete: everything staged is log."""
        self.end = self._staged

    def discard(self) -> None:
        """Forget what was staged and not accepted, and leave no trace of it: recovery
        after a crash would take such bytes for records.
        """
        self._forget_room()
        position = self.end
        while position < self._dirty:
            file = self.folder.at(position)
            stop = min(self._dirty, file.end)
            file.zero(position - file.start, stop - file.start)
            position = stop
        self.folder.drop_behind(self.end)
        self._staged = self._dirty = self.end

    def rewind(self) -> None:
        """Drop what was accepted but not confirmed; no peer was told that we hold it."""
        self._dirty = max(self._dirty, self.end)
        self.end = self.confirmed
        self.flushed = min(self.flushed, self.end)
        self.rewinds += 1
        self.discard()

    def verify(self, most: int | None = None) -> None:
        """Move L{confirmed} over every whole, valid record below L{end}.

        @param most: About how many bytes to check now, though at least a record if one is
            whole; all by default.
        @raise RecordCorrupt: At the first record that is not valid; L{confirmed} is its start.
        @raise RecordCrossesFile: At a record that does not fit our files.
        """
        stop = self.end if most is None else min(self.end, self.confirmed + most)
        start = self.confirmed
        if start == stop:
            return
        fault = self._verify_to(stop)
        if fault is None:
            return  # as nearly always
        while size := self.copied.size_at(self, self.confirmed, fault):
            self.last_record = self.confirmed
            self.confirmed += size
            fault = self._verify_to(stop)
        if fault is Fault.INCOMPLETE and stop < self.end and self.confirmed == start:
            self.verify()  # one record is more than that
        elif fault is not None and fault is not Fault.INCOMPLETE:
            self._blame(fault)

    def _verify_to(self, stop: int) -> Fault | None:
        """Move L{confirmed} up to the first fault."""
        fault = None
        if COMPILED or stop - self.confirmed <= SCALAR_BYTES:
            while fault is None and self.confirmed < stop:
                fault = self._verify_file(stop)
            return fault
        for _, block in scan(self, self.confirmed, stop):
            self.confirmed = block.end
            if len(block.start):
                self.last_record = int(block.start[-1])
            fault = block.fault
        return fault

    def _verify_file(self, end: int) -> Fault | None:
        """Record by record, up to the first fault, C{end} or the end of a file.  The codec in
        Python says what is left where compiled code goes no further.
        """
        file = self.folder.at(self.confirmed)
        start, view, file_size = file.start, file.view, file.size
        position = self.confirmed - start
        stop = min(end - start, file_size)
        while position < stop:
            if COMPILED:
                last, position = sound_stretch(view, position, start, stop, True, file_size)
                if last >= 0:
                    self.last_record, self.confirmed = start + last, start + position
                    continue
            size = check(
                view,
                position,
                stop,
                start + position,
                start + file_size,
                max_size=file_size,
            )
            if isinstance(size, Fault):
                return size
            if size > 0:
                self.last_record = start + position
            position += abs(size)
            self.confirmed = start + position
        return None

    def _blame(self, fault: Fault) -> None:
        """Raise what a fault at L{confirmed} means."""
        offset = self.confirmed
        head = bytes(self.read(offset, 8))
        size = int.from_bytes(head[:4], "big", signed=True)
        foreign_blank = fault is Fault.SIZE and magic_at(head, 0) == MAGIC_BLANK
        if fault is Fault.FILE_END or foreign_blank:
            raise RecordCrossesFile(offset, size, self.file_size)
        raise RecordCorrupt(offset, fault.value, f"{size} bytes announced")

    def progress(self) -> None:
        """Tell L{appended}; a slave does so once a read turn, after checking."""
        self.replicated = True
        self._tell(self.appended)

    def _tell(self, listeners: Iterable[Callable[[], None]]) -> None:
        """What they make of it must not undo what has happened."""
        for listener in tuple(listeners):
            try:
                listener()
            except Exception:
                self._log.failure("A listener of the commit log failed")

    def close(self) -> None:
        """Close the files; the log may still be read, and is never written again."""
        # Else the view keeps the map of a file, and a descriptor, as long as anybody has the log.
        self._forget_room()
        self.folder.close()

    # --- the ends of the log ------------------------------------------------

    def now_flushed(self, offset: int) -> None:
        """Everything below C{offset} is on the disk."""
        if offset > self.flushed:
            self.flushed = offset
            self._tell(self.flush_listeners)

    def drop_first(self) -> MappedFile:
        """The oldest file is log no more.  The last one is never dropped.

        @return: The file; the caller removes it, in a thread: to free a cached file
            of 1 GiB takes a tenth of a second.
        @raise ValueError: If there is only one.
        """
        if len(self.folder.files) < 2:
            raise ValueError("the last file of a log is never deleted")
        return self.folder.files.pop(0)
