"""
Where a sparse file may hold something.
"""

from __future__ import annotations

import errno
import os


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
