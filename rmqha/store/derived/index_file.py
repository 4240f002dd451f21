"""One index file: a hash table on disk from C{topic#key} to physical offsets.

Layout: a header of 40 bytes, C{slots} i32 (the newest entry's number of each
chain), then 20-byte entries: key hash (i32), physical offset (i64), seconds
since the file's first message (i32), number of the previous entry of the same
slot (i32).  Entry 0 is never used.

Entries are the truth: they only ever grow at the end, and the slots and the
header can be computed from them.  So entries are written first, slots second,
the header last, which is how a killed process leaves them.  A power cut leaves them in any order,
as the kernel writes pages; then the file is put right from its entries.

Only the last file grows, so that one is mapped: an entry is twenty bytes somewhere behind
the others and four somewhere in the slots, and system calls for them would cost more than all
the rest of dispatch.

Source: docs/protocol/store.rst, Index files.
"""

from __future__ import annotations

import mmap
import os
from functools import partial
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from rmqha.logfiles.listing import Finding
from rmqha.store.files.descriptors import Descriptors
from rmqha.store.files.mapped import disk_error, zero_range
from rmqha.store.files.pages import page_begin, page_end
from rmqha.wire.lane.compiled import COMPILED

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.dispatch_run import put_entries

HEADER = Struct(">qqqqii")
"""What a file begins with: the store times of its first and last message in milliseconds, their
offsets in the log in bytes, the slots in use, and the number of the next entry, 1 in an empty file.
Integers are big-endian."""
HEADER_FIELDS = "begin_time", "end_time", "begin_offset", "end_offset", "used_slots", "count"
"""What L{IndexFile} calls them."""
HEADER_SIZE = 40
"""Bytes of L{HEADER}."""
SLOT_SIZE = 4
"""Bytes of a slot: the number of the newest entry whose hash falls there."""
ENTRY = Struct(">iqii")
"""The hash of a key, its message's offset in the log, seconds since the file's first message, and
the number of the entry before in the same slot."""
ENTRY_SIZE = 20
"""Bytes of L{ENTRY}."""
ENTRY_TYPE = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("before", ">i4")])
"""L{ENTRY} as numpy reads it."""

ROOM = 1 << 20
"""Bytes of entries that get blocks at a time: for 52,000 keys."""

_MAX_SECONDS = 0x7FFFFFFF
# Entries checked in one step: 20 MB.
_SCAN_ENTRIES = 1 << 20

Ints = NDArray[np.int64]
"""Numbers of entries, offsets in the log, or times."""
Slots = np.ndarray[Any, np.dtype[np.int32]]
"""The slots of a file, as they are on disk."""


@frozen
class IndexShape:
    """The sizes all index files of a store share.

    @ivar slots: C{maxHashSlotNum}.
    @ivar entries: C{maxIndexNum}; one less can be used.
    """

    slots: int
    entries: int

    @property
    def entries_at(self) -> int:
        """Byte position of entry 0."""
        return HEADER_SIZE + SLOT_SIZE * self.slots

    @property
    def file_size(self) -> int:
        return self.entries_at + ENTRY_SIZE * self.entries


@define(eq=False, kw_only=True)
class IndexFile:
    """One file, read by C{pread} and written through a map.

    @ivar path: Where it is.
    @ivar begin_time: Store time of its first message, milliseconds.
    @ivar end_time: Store time of its last message, milliseconds.
    @ivar begin_offset: Physical offset of its first message.
    @ivar end_offset: Physical offset of its last message.
    @ivar used_slots: Slots that hold a chain.
    @ivar count: Number of the next entry; 1 in an empty file.
    @ivar header_due: Entries came since the header was written.
    """

    path: str
    shape: IndexShape
    descriptors: Descriptors
    begin_time: int = 0
    end_time: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    count: int = 1
    header_due: bool = field(init=False, default=False)
    _map: mmap.mmap | None = field(init=False, default=None)
    # Bytes from the file's start that surely have blocks behind them.
    _allocated: int = field(init=False, default=0)

    # --- life ---

    @classmethod
    def create(
        cls, path: str, shape: IndexShape, descriptors: Descriptors, before: IndexFile | None
    ) -> IndexFile:
        """Make an empty file with room for its header and slots.

        @param before: The file before it; its end is this one's begin and end until the
            first entry comes, and its end time is what that entry's seconds count from.
        @raise DiskFull: There is no room.
        """
        descriptors.create(path, shape.file_size)
        made = cls(path=path, shape=shape, descriptors=descriptors)
        if before is not None:
            made.begin_offset = made.end_offset = before.end_offset
            made.begin_time = made.end_time = before.end_time
        made.slots()
        made.write_header()
        return made

    @classmethod
    def load(cls, path: str, shape: IndexShape, descriptors: Descriptors) -> IndexFile | Finding:
        """Read a file's header.

        @return: What is wrong, if it has another size or cannot be read.
        """
        try:
            size = Path(path).stat().st_size
            if size != shape.file_size:
                return Finding(path, 0, f"{size} bytes, expected {shape.file_size}")
            header = HEADER.unpack(descriptors.read(path, HEADER_SIZE, 0))
        except OSError as error:
            return Finding(path, 0, os.strerror(error.errno or 0))
        held = dict(zip(HEADER_FIELDS, header, strict=True))
        made = cls(path=path, shape=shape, descriptors=descriptors, **held)
        made.used_slots = max(0, min(made.used_slots, shape.slots))
        made.count = max(1, min(made.count, shape.entries))
        return made

    @property
    def full(self) -> bool:
        """Whether the next entry needs a new file."""
        return self.count >= self.shape.entries

    @property
    def empty(self) -> bool:
        return self.count <= 1

    def _writable(self, upto: int) -> mmap.mmap:
        """Map the file, with blocks behind its first bytes: a store into a hole of a full disk
        would kill the process.

        @param upto: The number behind the last entry that is going to be written.
        @raise DiskFull: There is no room for them, or no descriptor for the map.
        """
        end = self._place(upto)
        try:
            if self._map is None:
                self._map = self.descriptors.use(self.path, self._mapped)
            if end > self._allocated:
                self.descriptors.use(self.path, partial(self._allocate, end))
        except OSError as error:
            raise disk_error(error, self.path, end) from error
        return self._map

    def _mapped(self, fd: int) -> mmap.mmap:
        os.posix_fallocate(fd, 0, min(page_end(self.shape.entries_at), self.shape.file_size))
        self._allocated = self._page(self.count)
        return mmap.mmap(fd, self.shape.file_size)

    def _allocate(self, end: int, fd: int) -> None:
        end, wide = (min(page_end(one), self.shape.file_size) for one in (end, end + ROOM))
        try:
            os.posix_fallocate(fd, self._allocated, wide - self._allocated)
        except OSError:
            # A smaller step may still fit.
            wide = end
            os.posix_fallocate(fd, self._allocated, wide - self._allocated)
        self._allocated = wide

    def _page(self, number: int) -> int:
        """Where the page with an entry begins: what is before that entry has blocks."""
        return max(self.shape.entries_at, page_begin(self._place(number)))

    def slots(self) -> Slots:
        """Give the slots for writing.

        @raise DiskFull: There is no room for them, or no descriptor for the map.
        """
        area = self._writable(0)
        return np.frombuffer(area, ">i4", self.shape.slots, HEADER_SIZE)

    def seal(self) -> None:
        """Give the map back: no more entries will come."""
        self._map = None

    def write_header(self) -> None:
        """Write the six header fields, behind the entries and slots that they speak of."""
        HEADER.pack_into(self._writable(0), 0, *(getattr(self, name) for name in HEADER_FIELDS))
        self.descriptors.touched(self.path)
        self.header_due = False

    # --- writing ---

    def put(self, hashes: list[int], offsets: list[int], timestamps: list[int]) -> None:
        """Add a few entries that fit the file, in the lane; its header is due afterwards.

        @raise DiskFull: There is no room; none was added.
        """
        area = self._writable(self.count + len(hashes))
        self.used_slots += put_entries(
            area,
            HEADER_SIZE,
            self.shape.slots,
            self.shape.entries_at,
            self.count,
            self.begin_time,
            hashes,
            offsets,
            timestamps,
        )
        self._added(len(hashes), (offsets[0], timestamps[0]), (offsets[-1], timestamps[-1]))

    def _added(self, count: int, first: tuple[int, int], last: tuple[int, int]) -> None:
        """Count entries that were written.

        @param first: Physical offset and store time of the first one's message.
        @param last: The same of the last one's.
        """
        if self.empty:
            self.begin_offset, self.begin_time = first
        self.count += count
        self.end_offset, self.end_time = int(last[0]), int(last[1])
        self.header_due = True

    def put_block(self, hashes: Ints, offsets: Ints, timestamps: Ints) -> None:
        """Add many entries that fit the file; the same bytes as L{put}.

        @raise DiskFull: There is no room; none was added.
        """
        size = len(hashes)
        area = self._writable(self.count + size)
        slots = self.slots()
        slot = hashes % self.shape.slots
        order = np.argsort(slot, kind="stable")
        grouped = slot[order]
        leads = np.empty(size, bool)  # the first of its slot in this block
        leads[0] = True
        np.not_equal(grouped[1:], grouped[:-1], out=leads[1:])
        before = np.empty(size, np.int64)
        before[1:] = order[:-1] + self.count
        held = slots[grouped[leads]].astype(np.int64)
        held[(held < 0) | (held >= self.count)] = 0
        before[leads] = held

        entries = np.frombuffer(area, ENTRY_TYPE, size, self._place(self.count))
        entries["hash"] = hashes
        entries["offset"] = offsets
        entries["seconds"] = self._seconds(timestamps)
        entries["before"][order] = before

        lasts = np.append(leads[1:], True)
        slots[grouped[lasts]] = order[lasts] + self.count
        self.used_slots += int(np.count_nonzero(held == 0))
        self._added(size, (int(offsets[0]), int(timestamps[0])), (offsets[-1], timestamps[-1]))

    def _seconds(self, timestamps: Ints) -> Ints:
        """Seconds since the file's begin; the very first entry counts from the begin the
        file was made with, as on a stock broker.
        """
        begin = self.begin_time
        if self.empty:
            first = (int(timestamps[0]) - begin) // 1000 if begin > 0 else 0
            begin = int(timestamps[0])
        if begin > 0:
            seconds = np.clip((timestamps - begin) // 1000, 0, _MAX_SECONDS)
        else:
            seconds = np.zeros(len(timestamps), np.int64)
        if self.empty:
            seconds[0] = max(0, min(first, _MAX_SECONDS))
        return seconds

    # --- reading ---

    def entries(self, first: int, count: int) -> NDArray[np.void]:
        """Give entries by number, as many as there are up to C{count}."""
        count = max(0, min(count, self.count - first))
        raw = self.descriptors.read(self.path, count * ENTRY_SIZE, self._place(first))
        return np.frombuffer(raw, ENTRY_TYPE)

    def covers(self, begin: int, end: int) -> bool:
        """Whether the file's time overlaps a range of milliseconds, ends included.  One that begins
        later than it ends was begun while the clock was ahead: of what came then it has no time.
        """
        return (
            self.begin_time > self.end_time
            or (begin < self.begin_time and end > self.end_time)
            or self.begin_time <= begin <= self.end_time
            or self.begin_time <= end <= self.end_time
        )

    def query(self, found: list[int], key_hash: int, limit: int, begin: int, end: int) -> None:
        """Add the offsets of one key's chain, newest first.

        @param found: Where they go, until it holds C{limit}.
        @param begin: Earliest store time, milliseconds; known here to the second only.
        @param end: Latest store time, milliseconds.
        """
        place = HEADER_SIZE + SLOT_SIZE * (key_hash % self.shape.slots)
        number = int.from_bytes(self.descriptors.read(self.path, SLOT_SIZE, place), "big")
        if number >= self.count:
            return
        while number > 0 and len(found) < limit:
            raw = self.descriptors.read(self.path, ENTRY_SIZE, self._place(number))
            entry_hash, offset, seconds, before = ENTRY.unpack(raw)
            time = self.begin_time + seconds * 1000
            if seconds < 0:
                return
            told = seconds or self.begin_time <= self.end_time
            if entry_hash == key_hash and (begin <= time <= end or not told):
                found.append(offset)
            if before >= number or time < begin:  # a chain only ever leads back
                return
            number = before

    # --- cutting and repair ---

    def lower_bound(self, limit: int) -> int:
        """The number of the first entry at or above a physical offset."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if int(self.entries(middle, 1)["offset"][0]) < limit:
                low = middle + 1
            else:
                high = middle
        return low

    def pop_to(self, count: int, end_time: int) -> None:
        """Take entries away from the end: each one's slot is its previous entry again.

        @param count: Number of the first entry that goes; at least 2.
        @param end_time: Store time of the last message that stays, milliseconds.
        """
        slots = self.slots()
        gone = self.entries(count, self.count)
        changed = gone["hash"].astype(np.int64) % self.shape.slots
        # The oldest of a slot's popped entries says what the slot was before.
        touched, oldest = np.unique(changed, return_index=True)
        before = gone["before"][oldest].astype(np.int64)
        slots[touched] = before
        self.used_slots -= int(np.count_nonzero(before == 0))
        self.end_offset = int(self.entries(count - 1, 1)["offset"][0])
        self.end_time = end_time
        self.count = count
        self._allocated = min(self._allocated, self._page(count))
        self.descriptors.write(self.path, bytes(gone.nbytes), self._place(count))
        self.write_header()

    def sound_count(self) -> int:
        """The number just past the longest prefix of entries that can be true.

        Offsets must not go back, each previous number must be the one the entries before
        it give, and nothing after entry 1 is all zeros.  The header is not asked.
        """
        slots = np.zeros(self.shape.slots, np.int64)
        number, reached = 1, 0
        while number < self.shape.entries:
            size = min(_SCAN_ENTRIES, self.shape.entries - number)
            raw = self.descriptors.read(self.path, size * ENTRY_SIZE, self._place(number))
            sound = _sound(np.frombuffer(raw, ENTRY_TYPE), number, reached, slots)
            number += sound
            if sound < size:
                break
            reached = int(ENTRY.unpack_from(raw, (sound - 1) * ENTRY_SIZE)[1])
        return number

    def restore(self, count: int, begin_time: int | None, end_time: int | None) -> None:
        """Compute slots and header anew from entries C{1..count-1}, and zero what follows.

        @param begin_time: Store time of the first entry's message, milliseconds, C{None}
            when it is no longer in the log: then the header keeps its word.
        @param end_time: The same for the last entry's message.
        """
        slots = self.slots()
        fresh = np.zeros(self.shape.slots, np.int64)
        self.count = count
        self._allocated = min(self._allocated, self._page(count))
        for first in range(1, count, _SCAN_ENTRIES):
            hashes = self.entries(first, _SCAN_ENTRIES)["hash"].astype(np.int64)
            # numpy keeps the last of several values assigned to one place
            fresh[hashes % self.shape.slots] = np.arange(first, first + len(hashes))
        wrong = np.flatnonzero(fresh != slots)
        slots[wrong] = fresh[wrong]
        self.used_slots = int(np.count_nonzero(fresh))
        first_entry, last_entry = self.entries(1, 1)[0], self.entries(count - 1, 1)[0]
        self.begin_offset, self.end_offset = int(first_entry["offset"]), int(last_entry["offset"])
        if begin_time is not None:
            self.begin_time = begin_time
        if end_time is not None:
            self.end_time = end_time
        clear = partial(zero_range, start=self._place(count), end=self.shape.file_size)
        self.descriptors.use(self.path, clear)
        self.write_header()

    def _place(self, number: int) -> int:
        return self.shape.entries_at + ENTRY_SIZE * number


def _sound(entries: NDArray[np.void], first: int, reached: int, slots: Ints) -> int:
    """How many leading entries of a piece can be true; C{slots} is brought up to there.

    @param first: Number of the piece's first entry.
    @param reached: Physical offset of the entry before it.
    """
    hashes = entries["hash"].astype(np.int64)
    offsets = entries["offset"].astype(np.int64)
    used = (hashes != 0) | (offsets != 0) | (entries["seconds"] != 0) | (entries["before"] != 0)
    rises = np.diff(offsets, prepend=reached) >= 0
    good = used & rises & (hashes >= 0) & (offsets >= 0) & (entries["seconds"] >= 0)
    size = len(good) if good.all() else int(good.argmin())
    if not size:
        return 0
    slot = hashes[:size] % len(slots)
    order = np.argsort(slot, kind="stable")
    grouped = slot[order]
    leads = np.concatenate(([True], grouped[1:] != grouped[:-1]))
    before = np.empty(size, np.int64)
    before[1:] = order[:-1] + first
    before[leads] = slots[grouped[leads]]
    wrong = np.flatnonzero(entries["before"][:size][order] != before)
    if len(wrong):
        size = int(order[wrong].min())
    slots[slot[:size]] = np.arange(first, first + size)
    return size
