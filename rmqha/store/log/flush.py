"""Flushing the log: a timer for C{ASYNC_FLUSH}, group commit for C{SYNC_FLUSH}.

One fdatasync is under way at a time, in its own thread; writes that arrive meanwhile
share the next one.  An fsync that fails is final: Linux marks the pages clean, so
asking again "succeeds" without the data being there (docs/architecture.rst, Flushing).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.store_settings import FlushDisk, StoreSettings
from rmqha.durations import Durations
from rmqha.errors import FlushFailed, NotWritable
from rmqha.periodic import NodePart, Periodic, cancelled
from rmqha.store.files.fsync import Fsync, close
from rmqha.store.files.mapped import NO_DESCRIPTOR, OutOfDescriptors
from rmqha.store.files.one_thread import ThreadNotStarted
from rmqha.store.log.commit_log import CommitLog

PAGE = 4096
"""Bytes of a page, in which C{flushCommitLogLeastPages} counts."""

RETRY = 0.1
"""Seconds until a pass that found no file descriptor, or no thread, is tried again."""


@define(eq=False)
class _Wait:
    end: int
    deadline: float
    done: Deferred[bool]


@define(eq=False, kw_only=True)
class Flusher(NodePart):
    """Moves one log's C{flushed} behind its C{end}.

    @ivar fsync: Makes files durable.
    @ivar failure: The error that ended flushing for good, if any.
    @ivar wanted: Whether the timer's next turn is to flush, however little there is.
    @ivar on_failure: Told of it once.
    @ivar took: How long passes took, from their begin to their end in the thread.
    """

    log: CommitLog
    settings: StoreSettings
    clock: IReactorTime
    fsync: Fsync
    on_failure: Callable[[FlushFailed], None]
    failure: FlushFailed | None = None
    wanted: bool = field(default=False, init=False)
    took: Durations = field(factory=Durations, init=False)
    _waiting: deque[_Wait] = field(factory=deque, init=False)
    # Fires when the pass that runs now has ended, well or not.
    _running: Deferred[None] | None = field(default=None, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _last: float = field(default=0.0, init=False)
    _timed: Periodic = field(init=False)
    _starved: bool = field(default=False, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._timed = Periodic("flushing the log", self.clock, self._tick, vital=True)
        # Before those that are there by now, whose work would make the answers late.  What an
        # answer waits for itself, the feed of replicas, goes before this one later.
        self.log.flush_listeners.insert(0, self._answer)

    def start(self) -> None:
        self._last = self.clock.seconds()
        self._timed.start(self.settings.flush_interval)

    def change(self, settings: StoreSettings) -> None:
        """Flush as these settings say from now on."""
        self.settings = settings
        if self._timed.running:
            self._timed.start(settings.flush_interval)

    def stop(self) -> Deferred[None]:
        """Flush what there is and end; waiting writes are answered.

        @return: Fires when that is done; fails if the last flush did.  It succeeds when flushing
            had failed before.
        """
        self._timed.stop()
        if self.failure is not None:
            return succeed(None)
        return self.flush().addBoth(self._stopped)

    def _stopped(self, result: Failure | None) -> Failure | None:
        self._forget_timer()
        while self._waiting:
            self._waiting.popleft().done.errback(
                Failure(NotWritable("stopped", "the store is stopping"))
            )
        return result

    def wait(self, end: int) -> Deferred[bool]:
        """Wait until a write is on the disk (SYNC_FLUSH).

        @param end: Just past the write.
        @return: Fires with C{True} once it is, with C{False} after
            C{syncFlushTimeout}; fails with L{FlushFailed}.  Cancelling forgets it.
        """
        if self.failure is not None:
            return fail(self.failure)
        if end <= self.log.flushed:
            return succeed(True)
        deadline = self.clock.seconds() + self.settings.sync_flush_timeout
        wait = _Wait(end, deadline, Deferred(self._cancelled))
        self._waiting.append(wait)
        if self._timer is None:
            self._timer = self.clock.callLater(self.settings.sync_flush_timeout, self._expire)
        self._begin()
        return wait.done

    def _cancelled(self, done: Deferred[bool]) -> None:
        self._waiting = deque(wait for wait in self._waiting if wait.done is not done)
        if not self._waiting:
            self._forget_timer()

    def nudge(self) -> None:
        """Begin a pass if there is anything to flush; no write waits for it."""
        if self._running is None and self.log.end > self.log.flushed:
            self._begin()

    def flush(self) -> Deferred[None]:
        """Make everything accepted so far durable.

        @return: Fires when it is; fails with L{FlushFailed}.
        """
        if self.failure is not None:
            return fail(self.failure)
        if self.log.end <= self.log.flushed:
            return succeed(None)
        target = self.log.end
        done: Deferred[None] = Deferred()

        def check(_: None) -> None:
            if self.failure is not None:
                done.errback(self.failure)
            elif self.log.flushed >= min(target, self.log.end):  # which may have moved back
                done.callback(None)
            else:
                again()

        def again() -> None:
            self._begin()
            if self._running is None:
                check(None)
            else:
                self._running.addCallback(check)

        again()
        return done

    def _tick(self) -> None:
        dirty = self.log.end - self.log.flushed
        now = self.clock.seconds()
        due = now - self._last >= self.settings.flush_thorough_interval
        if dirty >= self.settings.flush_least_pages * PAGE or (dirty and (due or self.wanted)):
            self._begin()

    def _begin(self) -> None:
        if self._running is None and self.failure is None:
            self._running = Deferred()
            self._begin_pass()

    def _begin_pass(self) -> None:
        """Begin the pass that is due, or, while there is no descriptor or no thread for it, try
        again soon: nothing was fsynced yet, so nothing has failed.
        """
        self._last, self.wanted = self.clock.seconds(), False
        target, rewinds = self.log.end, self.log.rewinds
        try:
            files = self._dirty_files()
        except (OSError, OutOfDescriptors) as error:
            if isinstance(error, OSError) and error.errno not in NO_DESCRIPTOR:
                self._failed(Failure(FlushFailed(str(self.log.folder.path), str(error))))
                return
            self._starve("file descriptor", str(error))
            return

        self.fsync(files).addCallbacks(lambda _: self._passed(target, rewinds), self._not_passed)

    def _not_passed(self, failure: Failure) -> None:
        if failure.check(ThreadNotStarted):
            self._starve("thread", failure.getErrorMessage())
        else:
            self._failed(failure)

    def _starve(self, lacks: str, error: str) -> None:
        if not self._starved:
            self._starved = True
            self._log.warn(
                "No {lacks} left to flush the commit log, trying again every {retry} s: {error}",
                lacks=lacks,
                retry=RETRY,
                error=error,
            )
        self.clock.callLater(RETRY, self._begin_pass)

    def _dirty_files(self) -> list[tuple[str, int]]:
        # Descriptors of the pass's own: a file may be closed or deleted meanwhile, and
        # its number given to something else.
        files: list[tuple[str, int]] = []
        try:
            # What was opened before the one that fails is in the list, and closed below.
            files.extend(
                (str(file.path), os.dup(file.fd))
                for file in self.log.folder.files
                if file.end > self.log.flushed and file.start < self.log.end
            )
        except BaseException:
            close(files)
            raise
        return files

    def _passed(self, target: int, rewinds: int) -> None:
        if self._starved:
            self._starved = False
            self._log.info("Flushing the commit log goes on")
        running, self._running = self._running, None
        self.took.add(self.clock.seconds() - self._last)
        if rewinds == self.log.rewinds:
            self.log.now_flushed(target)
        if not self._waiting:
            self._forget_timer()
        assert running is not None, "a pass ends once"
        running.callback(None)
        if self._waiting or self.settings.flush_disk is FlushDisk.SYNC_FLUSH:
            self.nudge()

    def _answer(self) -> None:
        while self._waiting and self._waiting[0].end <= self.log.flushed:
            self._waiting.popleft().done.callback(True)

    def _failed(self, failure: Failure) -> None:
        running, self._running = self._running, None
        error = failure.value
        if not isinstance(error, FlushFailed):
            error = FlushFailed(str(self.log.folder.path), str(error))
        self.failure = error
        self._log.critical(
            "{error}; the store takes no writes until the node is restarted", error=error
        )
        self._forget_timer()
        self._timed.stop()
        waiting, self._waiting = self._waiting, deque()
        for wait in waiting:
            wait.done.errback(Failure(error))
        assert running is not None, "a pass ends once"
        running.callback(None)
        self.on_failure(error)

    def _forget_timer(self) -> None:
        self._timer = cancelled(self._timer)

    def _expire(self) -> None:
        """Answer the writes whose time is over; deadlines are in order."""
        self._timer = None
        now = self.clock.seconds()
        while self._waiting and self._waiting[0].deadline <= now:
            self._waiting.popleft().done.callback(False)
        if self._waiting:
            self._timer = self.clock.callLater(self._waiting[0].deadline - now, self._expire)
