"""
A thread that does nothing but fsync, and never holds the interpreter's lock.

A write with C{SYNC_FLUSH} waits for the way to the thread and back, each time.  A thread in Python
has to wait for the lock before it can begin, and the reactor for it when it tells that it has
ended: a quarter of what such a write costs.  This one is asked and tells through pipes.

Source: docs/architecture.rst, Flushing.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorFDSet, IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.errors import FlushFailed, ThreadNotStarted
from rmqha.store.files.fsync import Files, Fsync, FsyncInThread, close
from rmqha.store.files.one_thread import OneThread
from rmqha.wire.lane.compiled import built

COMPILED = built(Path(__file__).with_name("fsync_loop"))
"""Whether there was a compiler when rmqha was built."""

if TYPE_CHECKING or COMPILED:
    from rmqha.store.files.fsync_loop import serve

MOST = 4096
"""Bytes of answers that are read at once."""


@define(eq=False)
class _Asked:
    """
    Files that were asked for together.

    @ivar answers: What became of the first of them: 0, or the error's number.
    """

    files: Files
    done: Deferred[None] = field(factory=Deferred)
    answers: list[int] = field(factory=list)


@implementer(IReadDescriptor)
@define(eq=False)
class FsyncThread:
    """
    An L{Fsync<rmqha.store.files.fsync.Fsync>} by a thread of its own, one file after the other.
    It begins with the first.

    @ivar reactor: Hears what the thread tells.
    """

    reactor: IReactorFDSet
    name: str
    _thread: Thread | None = field(default=None, init=False)
    # Ends of pipes: ours to ask and to hear, the thread's to be asked and to tell.
    _ask: int = field(default=-1, init=False)
    _hear: int = field(default=-1, init=False)
    _theirs: tuple[int, int] = field(default=(-1, -1), init=False)
    _asked: deque[_Asked] = field(factory=deque, init=False)

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
        os.write(self._ask, array("i", (file for _, file in files)).tobytes())
        return asked.done

    def _start(self) -> None:
        """
        Have a thread.

        @raise OSError: If there is no descriptor for its pipes.
        @raise RuntimeError: If there is no thread.
        """
        asked, ask = os.pipe()
        try:
            hear, told = os.pipe()
        except OSError:
            os.close(asked)
            os.close(ask)
            raise
        self._ask, self._hear, self._theirs = ask, hear, (asked, told)
        thread = Thread(target=serve, args=self._theirs, name=self.name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._close_pipes()
            raise
        os.set_blocking(hear, False)
        self._thread = thread
        self.reactor.addReader(self)

    def stop(self) -> None:
        """
        Do what was asked for, tell it, then end.  Blocking.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self.reactor.removeReader(self)
        os.close(self._ask)
        self._ask = -1
        thread.join()
        while self._asked:
            self.doRead()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for end in (self._ask, self._hear, *self._theirs):
            if end >= 0:
                os.close(end)
        self._ask = self._hear = -1
        self._theirs = (-1, -1)

    def _answered(self, answers: Iterator[int]) -> Iterator[_Asked]:
        """
        Those of whom all is known by now.
        """
        for answer in answers:
            asked = self._asked[0]
            asked.answers.append(answer)
            if len(asked.answers) == len(asked.files):
                yield self._asked.popleft()

    # --- IReadDescriptor ----------------------------------------------------------------

    def fileno(self) -> int:
        """
        Where the thread is heard.
        """
        return self._hear

    def doRead(self) -> None:
        """
        The thread told something.
        """
        answers = array("i", os.read(self._hear, MOST))
        for asked in self._answered(iter(answers)):
            close(asked.files)
            for (path, _), error in zip(asked.files, asked.answers, strict=True):
                if error:
                    text = f"[Errno {error}] {os.strerror(error)}"
                    asked.done.errback(Failure(FlushFailed(path, text)))
                    break
            else:
                asked.done.callback(None)

    def connectionLost(self, reason: Any) -> None:
        """
        The reactor ends.
        """

    def logPrefix(self) -> str:
        """
        Who it is.
        """
        return self.name


def fsync_thread(reactor: Any, name: str) -> tuple[Fsync, Callable[[], None]]:
    """
    Have a thread for fsync, compiled or not.

    @return: How to ask it, and how to end it: what was asked for is done then.
    """
    if COMPILED:
        compiled = FsyncThread(reactor, name)
        return compiled, compiled.stop
    one = OneThread(reactor, name)
    return FsyncInThread(one.call), one.stop
