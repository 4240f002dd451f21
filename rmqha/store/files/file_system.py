"""Making a whole file system durable in one call.

One fsync a file costs a round to the disk each: tens of thousands of small files take minutes,
where C{syncfs} writes them out together.  It writes out what others left there too, so it is
for many files only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

TELLS_ERRORS = (5, 8)
"""The kernel since which C{syncfs} says that something could not be written."""

_libc = ctypes.CDLL(None, use_errno=True)


def sync_file_systems(paths: Iterable[str]) -> bool:
    """Make the files, and the names, of all file systems durable that some paths are on.  Blocking.

    @param paths: Files and folders; those that are gone need nothing.
    @return: Whether that is certain.  If not, which file it is has to be found out one by one:
        something could not be written, of ours or of others, or the kernel is too old to tell.
    """
    if _kernel() < TELLS_ERRORS:
        return False
    seen: set[int] = set()
    for path in paths:
        try:
            device = os.stat(path).st_dev
            if device not in seen:
                seen.add(device)
                _sync(path)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _kernel() -> tuple[int, int]:
    numbers = os.uname().release.split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (IndexError, ValueError):
        return 0, 0


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(fd) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), path)
    finally:
        os.close(fd)
