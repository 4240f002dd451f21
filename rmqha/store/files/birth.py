"""Which file a file is: its inode's number, and when it was made.

A copy has another birth, whatever its name and its times, and though the number of a file that was
deleted is soon given to another.  Python's C{os.stat} does not tell a birth on Linux.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from struct import Struct

_STATX = Struct("=I28xQ40xqI164x")
"""Of C{struct statx}: what of it is told, the inode, and the birth in seconds and nanoseconds."""

_INODE_AND_BIRTH = 0x100 | 0x800
_BIRTH = 0x800
_CURRENT_FOLDER = -100

_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def birth(path: Path) -> list[int]:
    """The inode's number and the nanoseconds since 1970 at its birth, 0 where the file system does
    not tell; two zeros if there is no such file.

    @raise OSError: If it cannot be told.
    """
    if not path.exists():
        return [0, 0]
    if _statx is None:
        return [path.stat().st_ino, 0]
    found = ctypes.create_string_buffer(_STATX.size)
    if _statx(_CURRENT_FOLDER, os.fsencode(path), 0, _INODE_AND_BIRTH, found):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    told, inode, seconds, nanos = _STATX.unpack(found)
    return [inode, seconds * 10**9 + nanos if told & _BIRTH else 0]
