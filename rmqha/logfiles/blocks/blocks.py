"""One file of a log, read front to back into one buffer, so that others on the host hardly notice.

A scan of a whole log would push the pages that a broker and its consumers need out of the page
cache.  So what is not there when it is read is told to the kernel as not needed again; what is
there is somebody's, and stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from errno import EAGAIN, EINVAL, ENOSYS, EOPNOTSUPP

from attrs import define, field

from rmqha.logfiles.blocks.open_file import OpenLocalFile, OpenLogFile

PIECE = 1 << 20
"""Bytes that are cached or not, as far as it is looked at."""

_PAGE = 4096

Read = Callable[[OpenLogFile, memoryview, int], int]
"""Reads an open file into a buffer from a place in it; says how many bytes came, 0 at the end."""


def plain(file: OpenLogFile, view: memoryview, place: int) -> int:
    """Read, and leave the page cache to the kernel."""
    return file.read_into(view, place)


@define(eq=False)
class KindReads:
    """Reads of one task.

    @ivar keep: Whether what was read stays in the page cache.
    @ivar rate: Bytes a second, at most; C{None} is no limit.
    """

    keep: bool = False
    rate: int | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free: float = field(default=0.0, init=False)

    def __call__(self, file: OpenLogFile, view: memoryview, place: int) -> int:
        began = self.clock()
        # At most up to where the next piece begins, so that pages are whole.
        part = view if self.keep and self.rate is None else view[: PIECE - place % PIECE]
        if self.keep or not isinstance(file, OpenLocalFile):
            count = plain(file, part, place)
        else:
            count = _sparing(file, part, place)
        if self.rate is not None:
            self._free = max(self._free, began) + count / self.rate
            wait = self._free - self.clock()
            if wait > 0:
                self.sleep(wait)
        return count


def _sparing(file: OpenLocalFile, view: memoryview, place: int) -> int:
    """Read what is cached, or else read from the disk and have it dropped again."""
    # Without this the kernel reads ahead, and what it read would look like somebody's.
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        found = os.preadv(file.fd, [view], place, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno != EAGAIN:
            if error.errno in (EINVAL, ENOSYS, EOPNOTSUPP):
                return plain(file, view, place)  # a file system that cannot tell, like NFS
            raise
        found = 0
    if found:
        return found
    count = plain(file, view, place)
    first = place - place % _PAGE
    os.posix_fadvise(file.fd, first, place + count - first, os.POSIX_FADV_DONTNEED)
    return count


BLOCK = 8 << 20
"""Bytes read at once: few enough to stay in the cache, many enough for numpy; more for a longer
record."""


@define(eq=False)
class Blocks:
    """Read one file front to back into one buffer, keeping what was not used yet.

    @ivar read: Reads the file into a buffer from a place in it, as a L{Read} does.
    @ivar file_start: Physical offset of the file's first byte.
    @ivar base: Physical offset of the first byte of L{view}: at first where to read from.
    @ivar stop: Where to stop.
    @ivar view: The bytes at hand; the next L{more} makes it invalid.
    """

    _read: Callable[[memoryview, int], int]
    _file_start: int
    base: int
    _stop: int
    _held: int = field(default=0, init=False)
    _buffer: memoryview = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._buffer = memoryview(bytearray(min(BLOCK, self._stop - self.base)))

    @property
    def view(self) -> memoryview:
        return self._buffer[: self._held]

    @property
    def at_end(self) -> bool:
        """Whether L{view} reaches where reading stops."""
        return self.base + self._held >= self._stop

    def more(self, used: int) -> bool:
        """Drop the first bytes and fill up behind the rest.

        @param used: How many of L{view} were used; none makes the buffer twice as long.
        @return: Whether any byte came; if not, the file ends here.
        """
        rest = self._held - used
        if rest == len(self._buffer):
            wider = memoryview(bytearray(min(2 * rest, self._stop - self.base)))
            wider[:rest] = self._buffer
            self._buffer = wider
        elif used:
            self._buffer[:rest] = bytes(self._buffer[used : self._held])
        self.base += used
        self._held = rest
        end = min(len(self._buffer), self._stop - self.base)
        while self._held < end:
            place = self.base + self._held - self._file_start
            count = self._read(self._buffer[self._held : end], place)
            if not count:
                break
            self._held += count
        return self._held > rest
