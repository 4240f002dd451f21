"""A log of a running node as its disk has it: read past the page cache, and never mapped.

Source: docs/architecture.rst, Cold damage.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from rmqha.logfiles.listing import file_name
from rmqha.store.files.uncached import PAGE, UncachedFile

MOST = 32 << 20
"""Most bytes read at once: no record is larger, as a request that brings one has at most 16 MiB."""


@define(eq=False, kw_only=True)
class ColdLog:
    """The confirmed bytes of a log.  For one thread at a time; what is read is valid until the next
    read.

    @ivar folder: Where its files are.
    @ivar file_size: Size of each file, in bytes.
    @ivar min_offset: Physical offset of its first byte, where a file begins.
    @ivar end: Physical offset just past the last byte that may be read.
    @ivar whole: Whether a record ends there.
    @ivar until: Physical offset at which L{extents} ends, so that a search is done in slices.
    @ivar taken: Bytes read so far, of which the disk had to give each.
    """

    folder: Path
    file_size: int
    min_offset: int = 0
    end: int = 0
    whole: bool = True
    until: int = 0
    taken: int = 0
    _start: int = field(default=-1, init=False)
    _file: UncachedFile | None = field(default=None, init=False)
    _buffer: mmap.mmap = field(factory=lambda: mmap.mmap(-1, PAGE), init=False)

    @property
    def confirmed(self) -> int:
        return self.end

    def file_start(self, offset: int) -> int:
        """Physical offset of the first byte of the file that holds C{offset}."""
        return offset - (offset - self.min_offset) % self.file_size

    def file_end(self, offset: int) -> int:
        """Physical offset of the end of the file that holds C{offset}."""
        return self.file_start(offset) + self.file_size

    def path_of(self, offset: int) -> Path:
        """The file that holds a byte."""
        return self.folder / file_name(self.file_start(offset))

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of one file, L{MOST} at most; zeros where it is shorter than it should be.

        @raise ValueError: If C{offset} is outside the log.
        @raise OSError: If the file is gone, or the disk cannot read it.
        """
        if not self.min_offset <= offset <= self.end:
            raise ValueError(f"byte {offset} is outside [{self.min_offset}, {self.end}]")
        start = self.file_start(offset)
        size = min(size, MOST, self.end - offset, start + self.file_size - offset)
        if size <= 0:
            return memoryview(b"")
        place = offset - start
        skipped = place % PAGE
        wanted = -(-(skipped + size) // PAGE) * PAGE
        if len(self._buffer) < wanted:
            self._buffer = mmap.mmap(-1, wanted)
        room = memoryview(self._buffer)[:wanted]
        count = self._opened(start).read(room, place - skipped)
        self.taken += count
        if count < skipped + size:
            room[count : skipped + size] = bytes(skipped + size - count)
        return room[skipped : skipped + size].toreadonly()

    def extents(self, offset: int) -> Iterator[tuple[int, int]]:
        """The physical ranges from C{offset} to L{until}, file by file: holes read as zeros."""
        while offset < self.until:
            stop = min(self.file_end(offset), self.until)
            yield offset, stop
            offset = stop

    def _opened(self, start: int) -> UncachedFile:
        if self._file is None or self._start != start:
            self.close()
            self._file = UncachedFile(self.folder / file_name(start))
            self._start = start
        return self._file

    def close(self) -> None:
        """Close the file that was read last: until then a deleted one keeps its blocks."""
        if self._file is not None:
            self._file.close()
        self._file, self._start = None, -1
