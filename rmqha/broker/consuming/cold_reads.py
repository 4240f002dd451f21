"""Messages that are in no memory are read from the disk by a thread, before they are served.

Served at once they would be read in the reactor's thread, page by page, and all others wait:
producers, slaves, and consumers of what is in memory.

Source: docs/protocol/remoting.md, Pulling.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from rmqha.errors import RmqhaError
from rmqha.wire.columnar.queue_units import UNIT
from rmqha.wire.store_layout import UNIT_SIZE

RECENT = 64 << 20
"""So many bytes at the log's end are in memory, in all likelihood: nobody looks."""

SPAN = 256 * 1024
"""Bytes of a reading that are looked at in one go, and of what is read ahead of one that was not
there."""

_scratch = memoryview(bytearray(SPAN))

Place = tuple[int, int]
"""Where a piece of a file begins, and its size."""


class NotInMemory(RmqhaError):
    """What is wanted is not in the page cache.

    @ivar places: Where it is in the file.
    """

    sentence = "what is wanted of {path} is not in memory"
    path: str
    places: Sequence[Place]


def places_of(raw: bytes, most: int, base: int, size: int) -> list[Place]:
    """Where the records of the first queue units lie in the first one's file.

    @param base: Physical offset of the file.
    @param size: The file's, in bytes.
    """
    most = min(most * UNIT_SIZE, len(raw))
    first, _, _ = UNIT.unpack_from(raw)
    last, tail, _ = UNIT.unpack_from(raw, most - UNIT_SIZE)
    whole = last + tail - first
    if 0 < whole <= min(SPAN, base + size - first):
        return [(first - base, whole)]
    found = (UNIT.unpack_from(raw, at) for at in range(0, most, UNIT_SIZE))
    return [
        (start - base, min(length, SPAN))
        for start, length, _ in found
        if base <= start <= base + size - length
    ]


def absent(fd: int, place: Place) -> bool:
    """Whether a piece of a file would have to be read from the disk.

    @raise OSError: Where the file system cannot tell, as one in memory.
    """
    start, size = place
    try:
        return os.preadv(fd, [_scratch[:size]], start, os.RWF_NOWAIT) < size
    except BlockingIOError:
        return True


def bring(path: str, places: Sequence[Place]) -> None:
    """Read pieces of a file, and have the kernel read on behind them.  Blocking."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for start, _ in places:
            os.posix_fadvise(fd, start, SPAN, os.POSIX_FADV_WILLNEED)
        for start, size in places:
            os.pread(fd, size, start)
    finally:
        os.close(fd)
