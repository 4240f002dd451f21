"""Receives a master's log into an archive, as it grows.

To the master it is a slave: it asks, compares, checks and appends as one
(L{rmqha.ha.slave.follower}), and connects again by itself.  Two things are different.  What it
reports late acknowledges nothing, unless it is asked to be synchronous; and it repairs nothing:
where the master's log does not continue the archive, it ends, with the numbers.

Source: docs/guide/archive.rst, Receive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.archive.archive import Archive
from rmqha.archive.errors import ReceiveStopped
from rmqha.config.ha_settings import DivergencePolicy, HASettings
from rmqha.config.store_settings import FlushDisk, StoreSettings
from rmqha.errors import FlushFailed, Refused
from rmqha.ha.slave.follow_state import FollowState
from rmqha.ha.slave.follower import Follower
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.ha.slave.repair import Divergence
from rmqha.ha.slave.reportable import ReportLate, flushed_end
from rmqha.ha.states import SyncState
from rmqha.periodic import Periodic, SingleRun
from rmqha.shutdown import Shutdown
from rmqha.store.files.allocate import InThread
from rmqha.store.files.fsync import Fsync
from rmqha.store.log import copied_damage_file
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.flush import Flusher

LOOK = 1.0
"""Seconds between two looks at how far it is."""

TRIES = 3
"""How often in a row the same must have stopped it, where it may pass, before it ends."""

PASSING = (SyncState.AHEAD, SyncState.UNPROVEN)
"""Stop states that may pass: a slave that is served from may not know yet where its master's log
ends, or have too little to compare with."""

Shown = Callable[[int, int], None]
"""Shows bytes done and bytes in all."""


@define(eq=False, kw_only=True)
class Receiver(Service):
    """One archive's receiver.  It ends with L{stopService}, whatever L{ended} said before.

    @ivar follower: Follows the master, for this archive.
    @ivar flusher: Makes it durable.
    @ivar synchronous: Whether the follower reports what is on its disk at once, so that the master
        counts it as a replica, and the flusher makes it durable at once.
    @ivar log_interval: Seconds between two log lines of how far it is.
    @ivar shown: Is told so too, each second.
    @ivar ended: Fails when it cannot go on: with L{ReceiveStopped}, or with L{FlushFailed}.
    """

    archive: Archive
    follower: Follower
    flusher: Flusher
    in_thread: InThread
    synchronous: bool = False
    log_interval: float
    shown: Shown | None = None
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    ended: Deferred[None] = field(factory=Deferred, init=False)
    _looking: Periodic = field(init=False)
    _finishing: SingleRun = field(factory=SingleRun, init=False)
    _stops: tuple[SyncState, int] | None = field(default=None, init=False)
    _stopped: int = field(default=0, init=False)
    _told: float = field(default=0.0, init=False)
    _told_end: int = field(default=0, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.follower.sync.copied = self._keep_copied
        self.follower.ends = self._ends
        self._looking = Periodic("showing the progress", self.flusher.clock, self._look)

    # --- the service ------------------------------------------------------------

    def startService(self) -> None:
        """Begin to follow the master."""
        super().startService()
        log = self.archive.log
        log.flush_listeners.append(self._finish_files)
        if self.synchronous:
            log.appended.append(self.flusher.nudge)
        self._told, self._told_end = self.flusher.clock.seconds(), log.confirmed
        self.flusher.start()
        self._looking.start(LOOK)
        self.follower.startService()

    def stopService(self) -> Deferred[None]:
        """Disconnect, make durable what there is, and close the archive.

        @return: Fails with L{ShutdownFailed<rmqha.errors.ShutdownFailed>} when a step of it did;
            the archive is closed then too.
        """
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        shutdown = Shutdown("the receiver", self.flusher.clock)
        await shutdown.step("showing the progress", self._looking.stop)
        await shutdown.step("receiving from the master", self.follower.stopService)
        await shutdown.step("flushing the archive", self.flusher.stop)
        await shutdown.step("finishing log files", self._finished)
        if self.flusher.failure is None:
            now = self.now_ms()
            await shutdown.step("the manifest", self.in_thread, self.archive.note, now)
        await shutdown.step("closing", self.in_thread, self.archive.close)
        shutdown.finish()

    # --- files --------------------------------------------------------------------

    def _finish_files(self) -> None:
        """Give the files their names that are full and on the disk."""
        files = [] if self._finishing.under_way else self.archive.full()
        if files:
            now = self.now_ms()

            def finish() -> None:
                self.archive.finish(files)
                self.archive.note(now)

            self._finishing.begin(lambda: self.in_thread(finish)).addErrback(self._not_finished)

    def _not_finished(self, failure: Failure) -> None:
        self._log.error(
            "Cannot finish a log file of the archive, trying again with the next flush: {error}",
            error=failure.getErrorMessage(),
        )

    async def _finished(self) -> None:
        await self._finishing.over()
        self._finish_files()
        await self._finishing.over()

    def _keep_copied(self, log: CommitLog) -> None:
        self.in_thread(copied_damage_file.save, self.archive.root, log.copied).addErrback(
            lambda failure: self._log.warn(
                "Damaged records of the master are not written down: {error}",
                error=failure.getErrorMessage(),
            )
        )

    # --- the end --------------------------------------------------------------------

    def _ends(self, sync: FollowState) -> bool:
        """Whether a stop state is the end: some pass by themselves, others may."""
        if sync.state is SyncState.DISK_FULL:
            return False
        if _bad_record(sync) and sync.damage.pending(self.archive.log):
            return False
        if _bad_record(sync) or sync.state in PASSING:
            stop = sync.state, self.archive.log.confirmed
            self._stopped = self._stopped + 1 if stop == self._stops else 1
            self._stops = stop
            if self._stopped < TRIES:
                return False
        if not self.ended.called:
            self.ended.errback(self.flusher.failure or self._stopped_by(sync))
        return True

    def _stopped_by(self, sync: FollowState) -> ReceiveStopped | FlushFailed:
        log, bounds = self.archive.log, sync.port.bounds
        return ReceiveStopped(
            state=sync.state.value,
            reason=sync.reason,
            start=log.min_offset,
            end=log.confirmed,
            at=None if sync.divergence is None else sync.divergence.at,
            master_min=None if bounds is None else bounds.min_offset,
            master_end=None if bounds is None else bounds.max_offset,
        )

    # --- how far it is ----------------------------------------------------------------

    def _look(self) -> None:
        """Show how far it is, and say so in the log now and then."""
        log, sync, now = self.archive.log, self.follower.sync, self.flusher.clock.seconds()
        if self.shown is not None:
            bounds = sync.port.bounds
            known = log.confirmed if bounds is None else max(bounds.max_offset, log.confirmed)
            self.shown(log.confirmed - log.min_offset, known - log.min_offset)
        passed = now - self._told
        if passed >= self.log_interval - LOOK / 2:
            self._log.info(
                "Archive {root}: bytes {start} to {end}, {more} of them in the last "
                "{seconds:.0f} s; {state} with {master}{why}",
                root=self.archive.root,
                start=log.min_offset,
                end=log.confirmed,
                more=log.confirmed - self._told_end,
                seconds=passed,
                state=sync.state.value,
                master=sync.port.peer,
                why=f": {sync.reason}" if sync.reason else "",
            )
            self._told, self._told_end = now, log.confirmed


def _bad_record(sync: FollowState) -> bool:
    """Whether what stopped it is a record of the master's that does not check."""
    return sync.state is SyncState.DIVERGED and sync.divergence is None


def _no_repair(policy: DivergencePolicy, divergence: Divergence | None) -> Deferred[str]:
    """An archive is never cut."""
    return fail(Refused(policy.value, "an archive keeps what it has"))


def receiver(
    archive: Archive,
    port: MasterClientPort,
    settings: HASettings,
    *,
    fsync: Fsync,
    report_delay: float,
    fsync_interval: float,
    synchronous: bool = False,
    connected: Callable[[], None] = lambda: None,
    **more: Any,
) -> Receiver:
    """What receives an archive.

    @param port: The master's.
    @param settings: As a slave's.
    @param report_delay: How many seconds late it reports, unless it is synchronous.
    @param fsync_interval: Seconds between two fsyncs, unless it is synchronous.
    @param connected: Called when the master let us in, each time.
    @param more: The rest of L{Receiver}.
    """
    late = ReportLate(port.clock, report_delay, archive.settled(report_delay))
    follower = Follower(
        sync=FollowState(
            port=port,
            current_log=lambda: archive.log,
            settings=settings,
            bootstrapping=lambda on: None,
            reportable=flushed_end if synchronous else late,
            followed=archive.followed,
        ),
        repair=_no_repair,
        connected=connected,
    )
    flusher = Flusher(
        log=archive.log,
        settings=StoreSettings(
            root=archive.root,
            flush_disk=FlushDisk.SYNC_FLUSH if synchronous else FlushDisk.ASYNC_FLUSH,
            flush_interval=fsync_interval,
            flush_thorough_interval=fsync_interval,
        ),
        clock=port.clock,
        fsync=fsync,
        on_failure=lambda error: follower.sync.fail(str(error)),
    )
    return Receiver(
        archive=archive, follower=follower, flusher=flusher, synchronous=synchronous, **more
    )
