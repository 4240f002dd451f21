"""What can be read like a commit log: the live one, one read from disk, one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable


@runtime_checkable
class LogReader(Protocol):
    """The reading face of a commit log.

    Physical offsets are bytes from the log's very first byte; they are never
    renumbered when old files are deleted.
    """

    @property
    def file_size(self) -> int:
        """Size of every file of the log, in bytes."""

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte still held."""

    @property
    def end(self) -> int:
        """Physical offset just past the last byte accepted."""

    @property
    def confirmed(self) -> int:
        """Physical offset just past the last whole, verified record or blank; never above
        L{end}.
        """

    def read(self, offset: int, size: int) -> memoryview:
        """Give bytes of the log, without copying where that is possible.

        @param offset: Where to start, physical.
        @param size: The most bytes wanted.
        @return: At most C{size} bytes: cut at the end of the file that holds
            C{offset} and at L{end}, so it is empty when C{offset} is L{end}.
        @raise ValueError: C{offset} is outside C{min_offset..end}.
        """

    def file_end(self, offset: int) -> int:
        """Tell where the file that holds C{offset} ends, as a physical offset."""


@runtime_checkable
class SparseLog(LogReader, Protocol):
    """A log whose files say where they may hold something, valid or not."""

    def extents(self, offset: int) -> Iterator[tuple[int, int]]:
        """Give the physical ranges from C{offset} on outside which there are only zeros,
        ascending; none crosses the end of a file.
        """
