"""
How files are made durable without blocking the reactor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmqha.errors import FlushFailed
from rmqha.store.files.allocate import InThread

Files = Sequence[tuple[str, int]]
"""Paths, for people, and a descriptor of each, which belongs to whom it is given."""

Fsync = Callable[[Files], "Deferred[None]"]
"""
Makes the data of files durable, and closes their descriptors whatever becomes of it.  Fails with
L{FlushFailed}; with L{ThreadNotStarted<rmqha.errors.ThreadNotStarted>} if nothing was tried.
"""

Sync = Callable[[int], None]
"""What makes a descriptor's data durable: C{os.fdatasync}, or a test's own."""


@frozen
class FsyncInThread:
    """
    An L{Fsync} by any thread that runs functions.
    """

    in_thread: InThread
    sync: Sync = os.fdatasync

    def __call__(self, files: Files) -> Deferred[None]:
        done = self.in_thread(self._all, files)
        return done.addBoth(self._ended, files)

    def _all(self, files: Files) -> None:
        for path, file in files:
            try:
                self.sync(file)
            except OSError as error:
                raise FlushFailed(path, str(error)) from error

    def _ended(self, result: Failure | None, files: Files) -> Failure | None:
        close(files)
        return result


def close(files: Files) -> None:
    """
    Close descriptors that nobody will sync.
    """
    for _, file in files:
        os.close(file)
