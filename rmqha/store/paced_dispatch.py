"""When dispatch works: in short slices of the reactor's turns, soon after records came.

A write that comes waits for the slice that is under way, so slices are short while dispatch
keeps up with short ones.  One run for many records costs much less than one for each, and a log
that is being copied in bulk is better served by bytes first, queues later.  What is dispatched,
and how, is L{Dispatcher<rmqha.store.derived.dispatch.Dispatcher>}'s.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmqha.errors import DiskFull, RecordCorrupt
from rmqha.store.derived.dispatch import Dispatcher
from rmqha.store.environment import StoreEnvironment
from rmqha.store.log.commit_log import CommitLog, RecordCrossesFile
from rmqha.wire.columnar.kernels import NUMPY, chosen
from rmqha.wire.lane.compiled import COMPILED

LIVE_PAUSE = 0.001
"""Seconds from an append to its dispatch, as in stock brokers: a write that is waited
for is not held up by it, and records that come together are dispatched together."""

BUSY_PAUSE = 0.004
"""The same where a run just before brought L{BUSY} bytes, or no client waits for what it brings:
each queue is written once for all that came together.  While the dispatcher is urgent it is so much
less as less came."""

QUIET_PAUSE = 0.02
"""The same in a slave for which no client waits, while not L{FAST} comes.  A shorter wait than the
kernel's tick of 4 ms has a timer set and taken back each time that a process waits for the next
write: in a virtual machine that takes 20 us of the write, as the host has to be asked."""

FAST = 6e6
"""Bytes a second that come from which on so much would come together that slices get long."""

BUSY = 16 << 10
"""Bytes of a run from which on the next one waits longer."""

LIVE_SLICE = 0.0001
"""Seconds of dispatch in one reactor turn: what a write that comes meanwhile may wait for it."""

LATE = (256 if COMPILED else 64) << 10
"""Bytes behind from which slices so short are too few to keep up."""

SLICE = 0.001
"""Seconds then."""

FAR = 4 << 20
"""Bytes behind from which nobody waits for dispatch that is a little later, as while a log is
copied."""

FAR_SLICE = 0.004
"""Seconds then: a few thousand records are cheaper together."""

VERIFY_STEP = 5 << 20
"""Bytes checked before a slice if they were not before: more than any record has."""

BULK_RATE = 100e6
"""Bytes a second that come from which the log is being copied in bulk."""

BULK_PAUSE = 0.1
"""Seconds between slices meanwhile where records are checked in numpy, which takes most of the
time: bytes first, queues when they have arrived."""

RETRY = 1.0
"""Seconds to the next try after there was no room on the disk."""


@define(eq=False, kw_only=True)
class PacedDispatch:
    """Keeps queues and index of one open store close behind its log.

    @ivar wanted: Whether queues and index are still to be written.
    @ivar disk_full: Told that they have no room.
    @ivar whole: Called when they are whole again after that.
    @ivar starved: Whether they lack what there was no room for.
    """

    log: CommitLog
    dispatcher: Dispatcher
    environment: StoreEnvironment
    wanted: Callable[[], bool]
    disk_full: Callable[[DiskFull], None]
    whole: Callable[[], None]
    starved: bool = field(default=False, init=False)
    _next: IDelayedCall | None = field(default=None, init=False)
    _busy: bool = field(default=False, init=False)
    _fast: bool = field(default=False, init=False)
    _due: float = field(default=0.0, init=False)
    _began: float | None = field(default=None, init=False)
    _seen: tuple[int, float] = field(default=(0, 0.0), init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.dispatcher.on_wait = self._on_wait

    def soon(self) -> None:
        """Records came: dispatch them soon."""
        clock, next_run = self.environment.clock, self._next
        if self.dispatcher.urgent():
            # The reactor waits whole milliseconds: what is left of one would become one.
            pause = max(0.0, round(self._due - clock.seconds(), 3))
            if next_run is not None and not self.starved:
                next_run.reset(min(pause, max(0.0, next_run.getTime() - clock.seconds())))
        elif next_run is not None:
            return
        elif self.dispatcher.awaited():
            pause = BUSY_PAUSE if self._busy else LIVE_PAUSE
        else:
            quiet = self.log.replicated and not self._fast
            pause = QUIET_PAUSE if quiet else BUSY_PAUSE
        if next_run is None:
            self._began = clock.seconds()
            self._next = clock.callLater(pause, self._run)

    def _on_wait(self) -> None:
        """Somebody waits from now on, maybe for what came in the same turn."""
        if self._next is not None:
            self.soon()

    def starve(self, error: DiskFull) -> None:
        """Queues and index lack something, as there is no room: go on when there is."""
        self.starved = True
        self.disk_full(error)

    def stop(self) -> None:
        if self._next is not None and self._next.active():
            self._next.cancel()

    def _run(self) -> None:
        self._next = None
        if not self.wanted():
            return
        clock, log = self.environment.clock, self.log
        try:
            before = log.confirmed
            log.verify(VERIFY_STEP)
            unchecked = before < log.confirmed < log.end
            behind = self.dispatcher.behind
            self._busy = behind > BUSY
            now = clock.seconds()
            self._due = now + BUSY_PAUSE * min(1.0, behind / BUSY)
            if self._began is not None:
                self._fast, self._began = behind > FAST * (now - self._began), None
            far = FAR_SLICE if behind > FAR else SLICE
            more = self.dispatcher.run(LIVE_SLICE if behind <= LATE else far)
        except DiskFull as error:
            self.starve(error)
            self._next = clock.callLater(RETRY, self._run)
            return
        except (RecordCorrupt, RecordCrossesFile) as error:
            self._log.critical("Dispatch to consume queues and index stopped: {error}", error=error)
            self.environment.bad_record(error)
            return
        if self.starved and not more:
            self.starved = False
            self.whole()
        if more or unchecked:
            pause = BULK_PAUSE if self._in_bulk() and chosen() is NUMPY else 0.0
            self._next = clock.callLater(pause, self._run)

    def _in_bulk(self) -> bool:
        """Whether the log comes faster than clients write: it is being copied."""
        end, now = self.log.end, self.environment.clock.seconds()
        came, seconds = end - self._seen[0], now - self._seen[1]
        self._seen = end, now
        return came > BULK_RATE * seconds
