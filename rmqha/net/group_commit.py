"""Group commit: one write at a time, and all that is wanted while it runs is one more write.

Who waits is kept in a list and told in a loop.  A queue of locks does the same until a burst of
changes makes it longer than Python's stack: each lock that is let go runs the next waiter inside
the one before, and at some 130 of them the chain ends in C{RecursionError}, with the lock held for
good.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure


class GroupCommit:
    """Shares writes of one thing among all who want it written.

    @ivar writing: Whether a write is under way.
    """

    def __init__(self, write: Callable[[], Deferred[None]]) -> None:
        """Group what C{write} writes when it is called; it fires when that is durable."""
        self._write = write
        self._wanted: list[Deferred[None]] = []
        self.writing = False
        self._starting = False

    def commit(self) -> Deferred[None]:
        """Have a write that begins after this call.

        @return: Fires, or fails, as that write does.
        """
        waiter: Deferred[None] = Deferred()
        self._wanted.append(waiter)
        self._start()
        return waiter

    def _start(self) -> None:
        if self._starting:
            return
        self._starting = True
        try:
            # A loop: a write may be over at once, and what it told may want the next one.
            while self._wanted and not self.writing:
                waiters, self._wanted = self._wanted, []
                self.writing = True
                maybeDeferred(self._write).addBoth(self._written, waiters)
        finally:
            self._starting = False

    def _written(self, result: Failure | None, waiters: list[Deferred[None]]) -> None:
        for waiter in waiters:
            if isinstance(result, Failure):
                waiter.errback(result)
            else:
                waiter.callback(None)
        # Only now: what those who were told want goes into one write with what others want.
        self.writing = False
        self._start()
