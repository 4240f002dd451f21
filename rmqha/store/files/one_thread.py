"""A thread for one thing at a time: fsync.

A write with C{SYNC_FLUSH} waits for the way to this thread and back, each time.  Twisted's thread
pools share work out among many threads, and what they do for that costs as much again as the
rest of the way.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

from rmqha.errors import RmqhaError


class ThreadNotStarted(RmqhaError):
    """The process, or the machine, has no thread left for some work.  It was not begun, and it may
    pass.
    """

    sentence = "cannot start the thread {name}: {reason}"
    name: str
    reason: str


@define(eq=False)
class OneThread:
    """Runs functions in a thread of their own, one after the other.  It begins with the first.

    @ivar reactor: Where results are told.
    """

    reactor: IReactorFromThreads
    name: str
    _work: SimpleQueue[Callable[[], None] | None] = field(factory=SimpleQueue, init=False)
    _thread: Thread | None = field(default=None, init=False)

    def stop(self) -> None:
        """Do what was asked for, then end.  Blocking."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._work.put(None)
            thread.join()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
        """Run a function in the thread.

        @return: Fires in the reactor's thread with what it returns or raises.  Fails with
            L{ThreadNotStarted} where there is no thread and none can be had now: the function
            is not run, and the next call tries again.
        """
        done: Deferred[Any] = Deferred()

        def work() -> None:
            try:
                result = function(*args, **kwargs)
            except BaseException:
                self.reactor.callFromThread(done.errback, Failure())
            else:
                self.reactor.callFromThread(done.callback, result)

        if self._thread is None:
            thread = Thread(target=self._run, name=self.name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                return fail(ThreadNotStarted(self.name, str(error)))
            self._thread = thread
        self._work.put(work)
        return done

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
