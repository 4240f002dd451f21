"""How files are made durable without blocking the reactor."""

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
L{FlushFailed}; with L{ThreadNotStarted<rmqha.store.files.one_thread.ThreadNotStarted>} if nothing
was tried.
"""

Sync = Callable[[int], None]
"""What makes a descriptor's data durable: C{os.fdatasync}, or a test's own."""


@frozen
class FsyncInThread:
    """An L{Fsync} by any thread that runs functions."""

    in_thread: InThread
    sync: Sync = os.fdatasync

    def __call__(self, files: Files) -> Deferred[None]:
        return self.in_thread(self._all, files).addBoth(self._ended, files)

    def _all(self, files: Files) -> None:
        for path, file in files:
            try:
                self.sync(file)
            except OSError as error:
                raise FlushFailed(path, str(error)) from error

    def _ended(self, result: Failure | None, files: Files) -> Failure | None:
        failure = close(files)
        return result if failure is None or isinstance(result, Failure) else Failure(failure)


def close(files: Files) -> FlushFailed | None:
    """Close descriptors that nobody will sync any more.

    @return: What the first one that is not closed says, if there is one: somebody else has closed
        it, and it may have been another file.
    """
    failed = None
    for path, file in files:
        try:
            os.close(file)
        except OSError as error:
            failed = failed or FlushFailed(path, str(error))
    return failed
