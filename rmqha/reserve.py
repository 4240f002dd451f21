"""Room that a store keeps for the little that has to be written when its disk is full.

What a node must write to start, to stop and to cut a damaged log is small: an epoch, marks, what is
cut off, events.  On a disk that others have filled to the last block there would be no room for it,
and a node that was killed there could not start again and make room.  So one file of L{SIZE} bytes
is kept that holds nothing: who finds the disk full makes it shorter by what is wanted, writes, and
takes again what is left.  The log, queues and index never get any of it.

Source: docs/states.rst, Disk full.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rmqha.wire.store_layout import OWN_FOLDER, RESERVE

T = TypeVar("T")

SIZE = 1 << 20
"""Bytes of it."""

MORE = 64 << 10
"""What is given besides the bytes that are wanted: names and maps of blocks take room too."""

_LEAST = 4 << 10
"""Bytes that are not worth another try."""

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a write fails with when the disk is full, or a quota or a limit of file sizes is reached."""


def keep(root: Path) -> None:
    """Take the room, or what there is of it; without a file descriptor the next call does.
    Blocking, for a moment.

    @param root: The store's root.
    """
    _take(root / OWN_FOLDER / RESERVE)


def write(path: Path, wanted: int, action: Callable[[], T]) -> T:
    """Write below the folder of our own, if need be into the room that is kept for it.  Blocking.

    @param path: What is written; elsewhere there is no such room.
    @param wanted: In bytes.
    @param action: Writes it; called twice if there was no room for the first time.
    @raise OSError: What C{action} raises; that there is no room, too, if there is none here either.
    """
    try:
        return action()
    except OSError as error:
        own = next((folder for folder in path.parents if folder.name == OWN_FOLDER), None)
        if error.errno not in NO_SPACE or own is None or not _give(own / RESERVE, wanted):
            raise
        try:
            return action()
        finally:
            _take(own / RESERVE)


def _give(path: Path, wanted: int) -> bool:
    """@return: Whether there was any."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        held = os.fstat(fd).st_size
        os.ftruncate(fd, max(0, held - wanted - MORE))
        # Some file systems give blocks away no sooner.
        os.fsync(fd)
    finally:
        os.close(fd)
    return held > 0


def _take(path: Path) -> None:
    """Take the room, or as much of it as there is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in NO_SPACE | {errno.EMFILE, errno.ENFILE}:
            raise
        return
    try:
        found = os.fstat(fd)
        # A copy may have left out blocks that hold nothing.
        held = min(found.st_size, found.st_blocks * 512)
        step = SIZE - held
        while held < SIZE and step >= _LEAST:
            try:
                os.posix_fallocate(fd, 0, held + step)
                held += step
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
            step = min(step // 2, SIZE - held)
    finally:
        os.close(fd)
