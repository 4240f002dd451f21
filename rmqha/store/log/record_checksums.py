"""The checksum of each whole record, kept by a node beside its log.

The CRC in a record covers its body.  A bit that turns over in its header, topic or properties
passes every check, and of two replicas that differ there nobody can say who is right.  So each
node keeps a CRC-32 of all bytes of each record, taken when the record is dispatched: for each file
of the log a file of the same name, in C{rmqha/checksums}, that is copied by nobody and goes with
it.

Each entry checks itself, so one that a crash or the disk has damaged is none.  A record without an
entry gets one when the scrubber comes by and finds nothing wrong with it otherwise: it vouches for
the record from then on.

Source: docs/protocol/store.rst, Checksums of records.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field
from isal.isal_zlib import crc32
from numpy.typing import NDArray
from twisted.logger import Logger

from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.listing import LOG_NAME, file_name
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.reader import LogReader
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.lane.compiled import CHECKSUMS
from rmqha.wire.log.checksum_entry import ENTRY_SIZE, parse_entries, render_entries
from rmqha.wire.store_layout import OWN_FOLDER, RECORD_CHECKSUMS

if TYPE_CHECKING or CHECKSUMS:
    from rmqha.wire.lane.checksum_run import run_entries

_SIZE = Struct(">i")

SAMPLE = 64
"""Entries of a log's end that are looked at to know whether it is still the same log."""

Places = NDArray[np.int64]


def _path(root: Path, file_start: int) -> Path:
    return root / OWN_FOLDER / RECORD_CHECKSUMS / file_name(file_start)


def _read(root: Path, file_start: int) -> tuple[Places, Places]:
    """Where in a file of the log records begin, ascending, and their CRCs; of two for one place the
    first counts.  No entries if there is no file.
    """
    try:
        raw = _path(root, file_start).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raw = b""
    offsets, crc = offsets_in(raw, file_start), parse_entries(raw)[1]
    places, crc = offsets[offsets >= 0] - file_start, crc[offsets >= 0]
    if len(places) > 1 and not (np.diff(places) > 0).all():
        places, first = np.unique(places, return_index=True)
        crc = crc[first]
    return places, crc


@define(eq=False)
class KeptChecksums:
    """What a store keeps of its records, read a file at a time.  Everything here blocks.

    @ivar root: The store's; C{None} for files that are no store's: there nothing is kept.
    @ivar file_size: Bytes of a file of the log.
    """

    root: Path | None
    file_size: int
    _start: int = field(default=-1, init=False)
    _size: int = field(default=0, init=False)
    _places: Places = field(factory=lambda: np.empty(0, np.int64), init=False)
    _crcs: Places = field(factory=lambda: np.empty(0, np.int64), init=False)

    def of(self, offset: int) -> int | None:
        """The CRC-32 of the record at a physical offset; C{None} if it is not known."""
        places, crcs = self._of_file(offset, offset + 1)
        at = int(np.searchsorted(places, offset % self.file_size))
        found = at < len(places) and int(places[at]) == offset % self.file_size
        return int(crcs[at]) if found else None

    def compared(self, view: memoryview, block: Block) -> tuple[list[int], bytes]:
        """Hold the records of a block against what is kept.

        @param view: The block's bytes.
        @return: The rows of records that are others now, and entries of those of which nothing is
            kept.
        """
        if self.root is None or not len(block.start):
            return [], b""
        places, crcs = self._of_file(block.base, block.end)
        made = entries_of_block(view, block)
        wanted = block.start % self.file_size
        rows = np.searchsorted(places, wanted)
        known = rows < len(places)
        known[known] = places[rows[known]] == wanted[known]
        other = known.copy()
        other[known] = crcs[rows[known]] != parse_entries(made)[1][known]
        fresh = np.frombuffer(made, (np.void, ENTRY_SIZE))[~known]
        return other.nonzero()[0].tolist(), fresh.tobytes()

    def forget(self) -> None:
        """Entries may be others now."""
        self._start = -1

    def _of_file(self, offset: int, stop: int) -> tuple[Places, Places]:
        if self.root is None:
            return self._places, self._crcs
        start = offset - offset % self.file_size
        if start != self._start or (not len(self._places) or self._places[-1] < stop - start - 1):
            try:
                size = _path(self.root, start).stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                size = 0
            if start != self._start or size != self._size:
                self._places, self._crcs = _read(self.root, start)
                self._start, self._size = start, size
        return self._places, self._crcs


def offsets_in(entries: bytes, file_start: int) -> Places:
    """The physical offset of each entry's record; -1 for what is no entry."""
    low, _, sound = parse_entries(entries)
    offsets: Places = np.where(sound, (low - file_start & 0xFFFFFFFF) + file_start, -1)
    return offsets


def entries_of(view: memoryview, base: int, stop: int) -> bytes:
    """What is to be kept of records that follow each other, each of which was found whole.

    @param view: Bytes of the log.
    @param base: Physical offset of the first, where C{view} begins.
    @param stop: Where in C{view} the last ends.
    """
    if CHECKSUMS:
        return run_entries(view, base, stop)
    places, crcs, at = [], [], 0
    while at < stop:
        (size,) = _SIZE.unpack_from(view, at)
        places.append(at)
        crcs.append(crc32(view[at : at + size]))
        at += size
    return render_entries(base, places, crcs)


def entries_of_block(view: memoryview, block: Block) -> bytes:
    """The same of a block, which may end with a blank."""
    if not len(block.start):
        return b""
    return entries_of(view, block.base, int(block.start[-1] + block.size[-1]) - block.base)


def drop(root: Path, file_size: int, ranges: Iterable[tuple[int, int]]) -> None:
    """Forget what is kept of records that have bytes in some ranges: these were written anew.

    Entries are struck out where they are: the node that has the store may add others meanwhile.
    """
    for start, stop in ranges:
        for file_start in range(start - start % file_size, stop, file_size):
            _strike(root, file_start, start, stop)


def _strike(root: Path, file_start: int, start: int, stop: int) -> None:
    path = _path(root, file_start)
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return
    offsets = offsets_in(raw, file_start)
    # The record that holds the first byte begins at the last place that is not above it.
    first = int(offsets[offsets <= start].max(initial=file_start))
    rows = np.flatnonzero((offsets >= first) & (offsets < stop))
    with open(path, "r+b") as file:
        for row in rows.tolist():
            os.pwrite(file.fileno(), bytes(ENTRY_SIZE), row * ENTRY_SIZE)


def remove(root: Path) -> None:
    """Remove all of it: the log is about to be another one."""
    shutil.rmtree(root / OWN_FOLDER / RECORD_CHECKSUMS, ignore_errors=True)


def forget_below(root: Path, first: int) -> None:
    """Remove what speaks of files that retention has deleted.

    @param first: Physical offset of the first byte of the log.
    """
    for start, path in _files(root):
        if start < first:
            path.unlink(missing_ok=True)


def remake(root: Path, raw: RawLog) -> int:
    """Make all of it anew, of the records that check otherwise; only while no node runs.

    @return: Of how many records.
    """
    remove(root)
    made, count = RecordChecksums(root, OfflineLog.of(raw)), 0
    for event in follow(raw, raw.min_offset):
        if not isinstance(event, Corruption):
            made.append(entries_of_block(*event), event[1].base)
            count += len(event[1].start)
    made.close()
    return count


def _files(root: Path) -> Iterator[tuple[int, Path]]:
    try:
        for path in (root / OWN_FOLDER / RECORD_CHECKSUMS).iterdir():
            if LOG_NAME.fullmatch(path.name):
                yield int(path.name), path
    except (FileNotFoundError, NotADirectoryError):
        return


@define(eq=False)
class RecordChecksums:
    """The checksums of an open store, being continued by whoever dispatches.

    @ivar root: The store's.
    @ivar end: Physical offset from which on dispatch brings what is to be kept.
    @ivar trouble: Why the last entries could not be written; C{""} if they were.
    """

    root: Path
    log: LogReader
    end: int = field(default=0, init=False)
    trouble: str = field(default="", init=False)
    _fd: int = field(default=-1, init=False)
    _start: int = field(default=-1, init=False)

    _log = Logger()

    @classmethod
    def open(cls, root: Path, log: LogReader) -> RecordChecksums:
        """Go on where the files end.  Blocking.

        What is kept of what is no log any more goes; so does all of it, if the log's end is
        another than it speaks of: another broker had the store.
        """
        made = cls(root, log)
        forget_below(root, log.min_offset)
        made._cut(log.confirmed)
        starts = [start for start, _ in _files(root)]
        if not starts:
            return made
        start = max(starts)
        places, crcs = _read(root, start)
        rows = range(max(0, len(places) - SAMPLE), len(places))
        same = sum(made._holds(start + int(places[row]), int(crcs[row])) for row in rows)
        if 2 * same < len(rows):
            cls._log.warn(
                "The end of the log is not what its checksums speak of: they are made anew, and "
                "vouch for its records from now on"
            )
            remove(root)
        elif len(places):
            made.end = start + int(places[-1]) + 1
        return made

    def _holds(self, offset: int, crc: int) -> bool:
        head = self.log.read(offset, 4)
        size = int.from_bytes(head, "big")
        return crc32(self.log.read(offset, size)) == crc

    def append(self, entries: bytes, position: int) -> None:
        """Keep what dispatch has found; not again what is kept of these records already, as a
        record may come twice.

        @param entries: In the order of the log, all of one file.
        @param position: Physical offset of the first of these records, or below it.
        """
        if not entries:
            return
        first = position - position % self.log.file_size
        last = first + (int.from_bytes(entries[-ENTRY_SIZE:][:4], "big") - first & 0xFFFFFFFF)
        if position < self.end:
            offsets = offsets_in(entries, first)
            entries = entries[int(np.searchsorted(offsets, self.end)) * ENTRY_SIZE :]
        self._add(entries, first)
        self.end = max(self.end, last + 1)

    def complete(self, entries: bytes, position: int) -> None:
        """Keep what the scrubber has found missing; what is not dispatched yet comes by itself.

        @param entries: As for L{append}.
        @param position: The same.
        """
        if entries:
            first = position - position % self.log.file_size
            dispatched = int(np.searchsorted(offsets_in(entries, first), self.end))
            self._add(entries[: dispatched * ENTRY_SIZE], first)

    def _add(self, entries: bytes, file_start: int) -> None:
        """Keep some more entries of one file.  A disk that has no room for them is no reason to
        stop: the scrubber makes what is missing.
        """
        if not entries:
            return
        try:
            if self._start != file_start:
                self.close()
                path = _path(self.root, file_start)
                path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._fd, self._start = os.open(path, flags, 0o644), file_start
            written = os.write(self._fd, entries)
            if written < len(entries):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if not self.trouble:
                self._log.warn("Checksums of records are not kept: {error}", error=error)
            self.trouble = str(error)
        else:
            self.trouble = ""

    def _cut(self, at: int) -> None:
        """Forget what is kept of records at or above a physical offset, and what was not written as
        a whole.
        """
        for start, path in _files(self.root):
            if start >= at:
                path.unlink(missing_ok=True)
                continue
            size = path.stat().st_size
            os.truncate(path, size - size % ENTRY_SIZE)
            if at < start + self.log.file_size:
                # From the first of them on: what comes behind it is made again.
                gone = np.flatnonzero(offsets_in(path.read_bytes(), start) >= at)
                if len(gone):
                    os.truncate(path, int(gone[0]) * ENTRY_SIZE)

    def close(self) -> None:
        """Close the file that is written."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._start = -1
