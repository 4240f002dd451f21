"""
What can be read like a commit log: the live one, one read from disk, one in memory.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Protocol, runtime_checkable


@runtime_checkable
class LogReader(Protocol):
    """
    The reading face of a commit log.

    Physical offsets are bytes from the log's very first byte; they are never
    renumbered when old files are deleted.
    """

    @property
    def file_size(self) -> int:
        """
        Size of every file of the log, in bytes.
        """

    @property
    def min_offset(self) -> int:
        """
        Physical offset of the first byte still held.
        """

    @property
    def end(self) -> int:
        """
        Physical offset just past the last byte accepted.
        """

    @property
    def confirmed(self) -> int:
        """
        Physical offset just past the last whole, verified record or blank; never above
        L{end}.
        """

    def read(self, offset: int, size: int) -> memoryview:
        """
        Give bytes of the log, without copying where that is possible.

        @param offset: Where to start, physical.
        @param size: The most bytes wanted.
        @return: At most C{size} bytes: cut at the end of the file that holds
            C{offset} and at L{end}, so it is empty when C{offset} is L{end}.
        @raise ValueError: C{offset} is outside C{min_offset..end}.
        """

    def file_end(self, offset: int) -> int:
        """
        Tell where the file that holds C{offset} ends, as a physical offset.
        """


@runtime_checkable
class SparseLog(LogReader, Protocol):
    """
    A log whose files say where they may hold something, valid or not.
    """

    def extents(self, offset: int) -> Iterator[tuple[int, int]]:
        """
        Give the physical ranges from C{offset} on outside which there are only zeros,
        ascending; none crosses the end of a file.
        """


def data_extents(fd: int, start: int, end: int) -> list[tuple[int, int]]:
    """
    Where a sparse file may hold something else than zeros.

    @return: C{(start, end)} ranges within C{[start, end)}, in bytes, ascending; all of
        it where the file system cannot tell.
    """
    extents: list[tuple[int, int]] = []
    position = start
    while position < end:
        try:
            data = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return [(start, end)]
            raise
        if data >= end:
            break
        position = min(os.lseek(fd, data, os.SEEK_HOLE), end)
        extents.append((data, position))
    return extents
