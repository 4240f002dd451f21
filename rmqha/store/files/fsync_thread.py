"""A thread that does nothing but fsync, and never holds the interpreter's lock.

A write with C{SYNC_FLUSH} waits for the way to the thread and back, each time.  A thread in Python
has to wait for the lock before it can begin, and the reactor for it when it tells that it has
ended: a quarter of what such a write costs.  This one is asked and tells through pipes.

Source: docs/architecture.rst, Flushing.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.errors import FlushFailed
from rmqha.store.files.fsync import Files, Fsync, FsyncInThread, close
from rmqha.store.files.one_thread import OneThread, ThreadNotStarted
from rmqha.wire.lane.compiled import built

COMPILED = built(Path(__file__).with_name("fsync_loop"))
"""Whether there was a compiler when rmqha was built."""

if TYPE_CHECKING or COMPILED:
    from rmqha.store.files.fsync_loop import serve

MOST = 1024
"""Files that the thread is given before it tells of the first: so many fit every pipe, be it of one
page, and neither side ever waits for room while the other may do so too."""


@define(eq=False)
class _Asked:
    """Files that were asked for together."""

    files: Files
    done: Deferred[None] = field(factory=Deferred)

    def end(self, failure: FlushFailed | None) -> None:
        failure = close(self.files) or failure
        if failure is None:
            self.done.callback(None)
        else:
            self.done.errback(Failure(failure))

    def judge(self, answers: Iterable[int]) -> FlushFailed | None:
        """What failed, if anything did.

        @param answers: What became of each file: 0, or the error's number.
        """
        for (path, _), error in zip(self.files, answers, strict=True):
            if error:
                return FlushFailed(path, f"[Errno {error}] {os.strerror(error)}")
        return None


@implementer(IReadDescriptor)
@define(eq=False)
class FsyncThread:
    """An L{Fsync<rmqha.store.files.fsync.Fsync>} by a thread of its own, one file after the other.
    It begins with the first.

    @ivar reactor: Hears what the thread tells.
    """

    reactor: IReactorFDSet
    name: str
    _thread: Thread | None = field(default=None, init=False)
    # Our ends of the pipes, to ask and to hear; the thread closes its own.
    _ask: int = field(default=-1, init=False)
    _hear: int = field(default=-1, init=False)
    _asked: deque[_Asked] = field(factory=deque, init=False)
    # Files that the thread was not given yet, how many it has, and what it told of the others.
    _waiting: deque[int] = field(factory=deque, init=False)
    _given: int = field(default=0, init=False)
    _answers: deque[int] = field(factory=deque, init=False)

    def __call__(self, files: Files) -> Deferred[None]:
        if not files:
            return succeed(None)
        if self._thread is None:
            try:
                self._start()
            except (OSError, RuntimeError) as error:
                close(files)
                return fail(ThreadNotStarted(self.name, str(error)))
        asked = _Asked(files)
        self._asked.append(asked)
        self._waiting.extend(file for _, file in files)
        self._give()
        return asked.done

    def _start(self) -> None:
        """Have a thread.

        @raise OSError: If there is no descriptor for its pipes, or the reactor cannot hear it.
        @raise RuntimeError: If there is no thread.
        """
        asked, self._ask = os.pipe()
        try:
            self._hear, told = os.pipe()
        except OSError:
            os.close(asked)
            self._close()
            raise
        os.set_blocking(self._hear, False)
        thread = Thread(target=_serve, args=(asked, told), name=self.name, daemon=True)
        try:
            self.reactor.addReader(self)
            thread.start()
        except (OSError, RuntimeError):
            self.reactor.removeReader(self)
            os.close(asked)
            os.close(told)
            self._close()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Do what was asked for, tell it, then end.  Blocking."""
        thread = self._thread
        if thread is None:
            return
        self.reactor.removeReader(self)
        os.set_blocking(self._hear, True)
        self._tell()  # what was heard already, where this is called as something is told
        while self._asked and self._thread is thread:
            self.doRead()
        if self._thread is thread:
            self._end(thread)

    def _end(self, thread: Thread) -> None:
        self._thread = None
        os.close(self._ask)
        self._ask = -1
        thread.join()
        self._close()
        self._given = 0
        self._waiting.clear()
        self._answers.clear()

    def _close(self) -> None:
        for end in (self._ask, self._hear):
            if end >= 0:
                os.close(end)
        self._ask = self._hear = -1

    def _lost(self, reason: str) -> None:
        """The thread works, or is heard, no more: who knows what is durable of what it was asked
        for?
        """
        thread = self._thread
        if thread is None:
            return
        self.reactor.removeReader(self)
        self._end(thread)
        asked, self._asked = self._asked, deque()
        for each in asked:
            text = f"the thread {self.name} has ended: {reason}"
            each.end(FlushFailed(each.files[0][0], text))

    def _give(self) -> None:
        count = min(len(self._waiting), MOST - self._given)
        if not count:
            return
        self._given += count
        files = array("i", (self._waiting.popleft() for _ in range(count)))
        try:
            os.write(self._ask, files)
        except OSError as error:
            self._lost(str(error))

    def _tell(self) -> None:
        """Tell of those of whom all is known by now.  Whoever is told may ask again, or stop us."""
        while self._asked and len(self._answers) >= len(self._asked[0].files):
            asked = self._asked.popleft()
            asked.end(asked.judge([self._answers.popleft() for _ in asked.files]))

    # --- IReadDescriptor ----------------------------------------------------------------

    def fileno(self) -> int:
        return self._hear

    def doRead(self) -> None:
        try:
            told = os.read(self._hear, MOST * array("i").itemsize)
        except BlockingIOError:
            return
        if not told:
            self._lost("it tells nothing more")
            return
        answers = array("i", told)
        self._given -= len(answers)
        self._answers.extend(answers)
        self._give()
        self._tell()

    def connectionLost(self, reason: Failure) -> None:
        """The reactor ends, or the thread has."""
        self._lost(reason.getErrorMessage())

    def logPrefix(self) -> str:
        return self.name


def _serve(asked: int, told: int) -> None:
    """What the thread does; that its ends of the pipes are closed then tells that it has ended."""
    try:
        serve(asked, told)
    finally:
        os.close(asked)
        os.close(told)


def fsync_thread(reactor: Any, name: str) -> tuple[Fsync, Callable[[], None]]:
    """Have a thread for fsync, compiled or not.

    @return: How to ask it, and how to end it: what was asked for is done then.
    """
    if COMPILED:
        compiled = FsyncThread(reactor, name)
        return compiled, compiled.stop
    one = OneThread(reactor, name)
    return FsyncInThread(one.call), one.stop
