"""
What can be read like a commit log: the live one, one read from disk, one in memory; and what a
file of one can do once it is open, wherever it lies.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from attrs import frozen


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


class OpenLogFile(Protocol):
    """
    A file of a log that is open to be read.
    """

    @property
    def size(self) -> int:
        """
        Bytes it has now.
        """

    def read_into(self, buffer: memoryview, place: int) -> int:
        """
        Read bytes from a place in it on.

        @return: How many, not more than there is room for; 0 at its end.
        """

    def extents(self, start: int, end: int) -> list[tuple[int, int]]:
        """
        Which parts of C{[start, end)} may hold something else than zeros, ascending.
        """

    def close(self) -> None:
        """
        Let go of it.
        """


@frozen
class OpenLocalFile:
    """
    One on a mounted file system.

    @ivar fd: Its descriptor.
    """

    fd: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """
        @raise OSError: If that is not possible.
        """
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read_into(self, buffer: memoryview, place: int) -> int:
        return os.preadv(self.fd, [buffer], place)

    def extents(self, start: int, end: int) -> list[tuple[int, int]]:
        return data_extents(self.fd, start, end)

    def close(self) -> None:
        os.close(self.fd)


def read_at(file: OpenLogFile, place: int, size: int) -> bytes:
    """
    Bytes of an open file, fewer only where it ends.
    """
    data = memoryview(bytearray(size))
    held = 0
    while held < size and (count := file.read_into(data[held:], place + held)):
        held += count
    return bytes(data[:held])


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
