"""One writer a store: the lock a Java broker and rmqha both respect.

Java takes a POSIX record lock on byte 0 of C{lock}; an open-file-description lock
on the same byte conflicts with it and, unlike Java's, survives C{fork} and is not
lost when some other descriptor of the file is closed.  Source: docs/protocol/store.rst,
The store's folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from attrs import define, field

from rmqha.errors import StoreLocked
from rmqha.logfiles.blocks.open_file import opened

LOCK_TEXT = b"lock"
"""What a broker writes into the file."""

_FLOCK = struct.Struct("hhqqi4x")
"""C{struct flock}: type, whence, start, length, pid (0 for these locks)."""


def _range(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0)


@define(eq=False)
class StoreLock:
    """The lock of one store, held from L{take} to L{release}."""

    path: Path
    _fd: int = field(default=-1, init=False)

    @property
    def held(self) -> bool:
        """Whether it was taken, and not given back."""
        return self._fd >= 0

    def take(self) -> None:
        """Take the lock.

        @raise StoreLocked: If a running node has it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK))
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLocked(str(self.path)) from error
            raise
        self._fd = fd
        try:
            os.pwrite(fd, LOCK_TEXT, 0)
            os.fsync(fd)
        except OSError:
            # What a broker writes into it is for people; on a full disk the lock holds too.
            pass

    def release(self) -> None:
        """Give the lock back; the file stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_locked(path: Path) -> bool:
    """Whether a running node, ours or a Java broker, holds a store's lock file."""
    try:
        with opened(path) as fd:
            answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _range(fcntl.F_WRLCK))
    except FileNotFoundError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
