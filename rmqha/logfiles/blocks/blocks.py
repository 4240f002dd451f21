"""One file of a log, read front to back into one buffer."""

from __future__ import annotations

from rmqha.logfiles.blocks.kind_reads import Read, plain
from rmqha.logfiles.blocks.open_file import OpenLogFile

BLOCK = 8 << 20
"""Bytes read at once: few enough to stay in the cache, many enough for numpy."""


class Blocks:
    """Read one file front to back into one buffer, keeping what was not used yet.

    @ivar base: Physical offset of the first byte of L{view}.
    @ivar view: The bytes at hand; the next L{more} makes it invalid.
    """

    def __init__(
        self,
        file: OpenLogFile,
        file_start: int,
        start: int,
        stop: int,
        *,
        read: Read = plain,
        size: int = BLOCK,
    ) -> None:
        """@param file: The open file.
        @param file_start: Physical offset of its first byte.
        @param start: Where to read from, a physical offset.
        @param stop: Where to stop.
        @param read: How.
        @param size: Bytes of the buffer; it grows for a longer record.
        """
        self._file = file
        self._read = read
        self._shift = file_start
        self._stop = stop
        self._buffer = memoryview(bytearray(min(size, stop - start)))
        self._held = 0
        self.base = start

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
            place = self.base + self._held - self._shift
            count = self._read(self._file, self._buffer[self._held : end], place)
            if not count:
                break
            self._held += count
        return self._held > rest
