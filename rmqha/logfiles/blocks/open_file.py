"""What a file of a commit log can do once it is open, wherever it lies."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from attrs import frozen


@contextmanager
def opened(path: str | Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A file's descriptor for the time of a block."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


class OpenLogFile(Protocol):
    """A file of a log that is open to be read."""

    @property
    def size(self) -> int:
        """Bytes it has now."""

    def read_into(self, buffer: memoryview, place: int) -> int:
        """Read bytes from a place in it on.

        @return: How many, not more than there is room for; 0 at its end.
        """

    def extents(self, start: int, end: int) -> list[tuple[int, int]]:
        """Which parts of C{[start, end)} may hold something else than zeros, ascending."""

    def close(self) -> None:
        """Let go of it."""


@frozen
class OpenLocalFile:
    """One on a mounted file system.

    @ivar fd: Its descriptor.
    """

    fd: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """@raise OSError: If that is not possible."""
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
    """Bytes of an open file, fewer only where it ends."""
    data = memoryview(bytearray(size))
    held = 0
    while held < size and (count := file.read_into(data[held:], place + held)):
        held += count
    return bytes(data[:held])


def data_extents(fd: int, start: int, end: int) -> list[tuple[int, int]]:
    """Where a sparse file may hold something else than zeros.

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
