"""What stands in for a file that is there, and that the system does not let be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from attrs import frozen
from twisted.python.monkey import MonkeyPatcher
from twisted.trial.unittest import SynchronousTestCase


@frozen
class Unreadable:
    """What was patched."""

    patched: tuple[MonkeyPatcher, ...]

    def restore(self) -> None:
        for patch in self.patched:
            patch.restore()


def make_unreadable(case: SynchronousTestCase, path: Path, number: int = errno.EIO) -> Unreadable:
    """Let reads of a file, or of a folder's list, fail until it is ended, or the test ends."""
    read, listed = Path.read_bytes, os.listdir

    def reading(self: Path) -> bytes:
        if self == path:
            raise OSError(number, os.strerror(number), str(self))
        return read(self)

    def listing(folder: Path) -> list[str]:
        if Path(folder) == path:
            raise OSError(number, os.strerror(number), str(folder))
        return listed(folder)

    return Unreadable((case.patch(Path, "read_bytes", reading), case.patch(os, "listdir", listing)))
