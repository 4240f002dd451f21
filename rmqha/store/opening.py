"""
Opening a store, in a thread: what it takes before a log can be handed out.

In this order: an unfinished truncation, the log's end, queues and index, dispatch of
what they lack.  Nothing is changed before the log's end is known and found no damage,
or the damage may be cut.

Source: docs/protocol/store.rst, The store's folder and Recovery.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import DiskFull, LogShortened
from rmqha.store.derived import deleted_topics as deleted
from rmqha.store.derived import dispatch_mark as marks
from rmqha.store.derived.clamp_offsets import clamp_consumers, clamp_delays
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.dispatch import Dispatcher
from rmqha.store.derived.index import Index
from rmqha.store.derived.rebuild import open_derived
from rmqha.store.files.allocate import Allocator, InThread
from rmqha.store.files.mapped import NO_SPACE, LogFolder, fsync_folder
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.recovery import Recovery, cut, find_end, first_file
from rmqha.store.log.truncate import CutIntent, Step, finish, intend, pending
from rmqha.store.published import publish
from rmqha.store.published.split_index import SplitIndex
from rmqha.wire.columnar.kernels import warm_up
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.published import Point
from rmqha.wire.log.record import Fault
from rmqha.wire.store_layout import ABORT, CHECKPOINT, DISPATCHED, OWN_FOLDER

SLICE = 1.0
"""Seconds of dispatch between looks whether the node is to stop."""

MUCH = 64 << 20
"""Bytes from which loading numba, a third of a second and 40 MiB, is worth it."""

ALL_STOCK = 1 << 62
"""Behind every byte: no record of a master's log is known to be rmqha's."""


@frozen(kw_only=True)
class Opening:
    """
    How a store is to be opened.

    @ivar master: Whether this node takes writes.
    @ivar repair: Whether a damaged log may be cut (C{--repair}); a slave's always may,
        as its master has the bytes.
    @ivar ours_from: Where rmqha began to write this log as a master; C{None} if never.
    @ivar keep_torn: Whether a torn tail is quarantined too, before it is cut.
    @ivar before: Done first, under the lock, in the thread: a repair.
    """

    master: bool
    repair: bool = False
    ours_from: int | None = None
    keep_torn: bool = False
    before: Callable[[StoreSettings], None] | None = None


def mark_path(root: Path) -> Path:
    """
    Where a store keeps how far queues and index go.
    """
    return root / OWN_FOLDER / DISPATCHED


def shortened(settings: StoreSettings, end: int) -> LogShortened | None:
    """
    Whether a log that was stopped cleanly ends before where it surely went.
    """
    known = marks.known_end(mark_path(settings.root))
    return LogShortened(str(settings.commitlog), end, known) if known > end else None


@define(eq=False)
class Opener:
    """
    Opens one store; its results are there once L{open} has returned.

    @ivar kept: The cut that was made, if one was.
    @ivar starved: Why dispatch could not go to the end, if the disk had no room.
    @ivar in_thread: For the log's allocator.
    @ivar step: Told of each step of a truncation; tests die there.
    @ivar wanted: Whether the store is still to be opened.
    @ivar broker_name: Whose log it is, for readers.
    @ivar now_ms: Milliseconds since 1970.
    @ivar published: What is told to readers from now on.
    """

    settings: StoreSettings
    opening: Opening
    clock: IReactorTime
    in_thread: InThread
    step: Step
    wanted: Callable[[], bool]
    broker_name: str = ""
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    checkpoint: Checkpoint = field(factory=Checkpoint, init=False)
    recovery: Recovery | None = field(default=None, init=False)
    folder: LogFolder | None = field(default=None, init=False)
    queues: ConsumeQueues | None = field(default=None, init=False)
    index: Index | None = field(default=None, init=False)
    kept: CutIntent | None = field(default=None, init=False)
    starved: DiskFull | None = field(default=None, init=False)
    dispatcher: Dispatcher = field(init=False)
    published: tuple[Point, SplitIndex] = field(init=False)

    _log = Logger()

    def open(self) -> CommitLog:
        """
        Do everything that takes time; blocking.

        @return: The log.  When dispatch was not wanted to the end, it goes on from
            where it is.
        @raise StoreError: If the store cannot be opened; nothing is left open.
        """
        try:
            return self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for part in (self.queues, self.index, self.folder):
            if part is not None:
                part.close()

    def _open(self) -> CommitLog:
        settings, root = self.settings, self.settings.root
        if self.opening.before is not None:
            self.opening.before(settings)
        crashed = (root / ABORT).exists()
        self.checkpoint = Checkpoint.load(root / CHECKPOINT)
        folder = self.folder = LogFolder.load(settings.commitlog, settings.file_size)
        if folder.strays:
            self._log.warn(
                "Ignoring files in commitlog that are not log files: {names}",
                names=", ".join(folder.strays),
            )
        intent = self.kept = pending(root)
        if intent is not None:
            self._log.warn(
                "Finishing the truncation at byte {at}; what followed is kept in {path}",
                at=intent.at,
                path=intent.quarantine,
            )
            publish.lower(root, intent.at, self.now_ms)
            cut(folder, intent.at)
            self.step("cut")
        recovery = self._recover(folder, crashed, cut_before=intent is not None)
        log = CommitLog(folder, recovery.end, Allocator(self.in_thread))
        log.last_record = recovery.last_record
        self._load_derived(log, crashed)
        if self.kept is not None:
            self.dispatcher.truncate_to(log.end)
            self.step("derived")
        try:
            while self.wanted() and self.dispatcher.run(SLICE):
                pass
        except DiskFull as error:
            self._log.warn(
                "Disk full while building consume queues; opened read-only until they "
                "catch up: {error}",
                error=error,
            )
            self.starved = error
        if self.kept is not None and self.wanted():
            self._finish_cut()
        self.published = publish.opened(root, log, self.broker_name, self.now_ms)
        return log

    def _finish_cut(self) -> None:
        """
        The queues are cut and whole: no consumer's offset may be above them any more.
        """
        assert self.queues is not None, "loaded with the log"
        if self.starved is None:
            root = self.settings.root
            for moved in (*clamp_consumers(root, self.queues), *clamp_delays(root, self.queues)):
                self._log.warn("Moved an offset back, as the log was cut: {moved}", moved=moved)
        finish(self.settings.root, self.step)

    def _recover(self, folder: LogFolder, crashed: bool, *, cut_before: bool) -> Recovery:
        """
        Find the log's end and cut what lies behind it.

        @param cut_before: Whether a truncation explains a log shorter than it was.
        @raise LogCorrupt: If that is more than a torn tail, and not ours to decide.
        @raise LogShortened: If a cleanly stopped log lacks its end, and it is not either.
        """
        safe_time = self.checkpoint.safe_time(index=False)
        row = first_file(folder, crashed=crashed, safe_time=safe_time)
        # To be checked: a log after a crash, or the one that an empty slave is about to copy.
        unchecked = len(folder.files[row:]) if crashed else 0
        copied = not folder.files and not self.opening.master
        if (unchecked or copied) * folder.file_size >= MUCH:
            warm_up()
        nul_from = 0
        if self.opening.master:
            ours = self.opening.ours_from
            nul_from = ours if ours is not None else ALL_STOCK
        recovery = self.recovery = find_end(
            folder, row, crc=self.settings.check_crc_on_recover, nul_is_torn_from=nul_from
        )
        damage = recovery.corrupt
        if damage is not None and self.opening.master and not self.opening.repair:
            raise damage
        if not crashed and not cut_before:
            self._check_not_shortened(recovery.end)
        # From here on files change: only a clean stop makes it a clean store again.
        self._mark_running()
        torn = recovery.reason is not None and recovery.tail > recovery.end
        keep = damage is not None or (torn and self.opening.keep_torn)
        if keep:
            self.kept = intend(self.settings.root, folder, recovery.end, recovery.tail, self.step)
            tell = self._log.info if damage is None else self._log.critical
            tell(
                "{reason}; cutting the log there, what followed is kept in {path}",
                reason=damage or f"The log's tail is torn at byte {recovery.end}",
                path=self.kept.quarantine,
            )
        publish.lower(self.settings.root, recovery.end, self.now_ms)
        # After a crash what is log may be in memory only.
        cut(folder, recovery.end, changed_from=recovery.start if crashed else None)
        if keep:
            self.step("cut")
        self._log.info(
            "Log ends at byte {end} ({reason}); checked {records} records from byte {start}",
            end=recovery.end,
            reason=_explained(recovery.reason),
            records=recovery.records,
            start=recovery.start,
        )
        return recovery

    def _check_not_shortened(self, end: int) -> None:
        error = shortened(self.settings, end)
        if error is None:
            return
        if self.opening.master and not self.opening.repair:
            raise error
        self._log.critical("{error}; continuing from there", error=error)

    def _mark_running(self) -> None:
        path = self.settings.root / ABORT
        try:
            path.write_text(str(os.getpid()), encoding="ascii")
        except OSError as error:
            # That it is there is what counts; the number is for people.
            if error.errno not in NO_SPACE or not path.exists():
                raise
        fsync_folder(path.parent)

    def _load_derived(self, log: CommitLog, crashed: bool) -> None:
        self.queues, self.index = open_derived(self.settings.root, self.settings)
        self.queues.deleted = deleted.load(self.settings.root, log)
        self.dispatcher = Dispatcher(
            log,
            self.queues,
            self.index,
            DelayLevels.parse(self.settings.delay_levels),
            # A master's limit on messages may be above ours; a file's is the same.
            self.settings.file_size,
            self.clock,
            verified=log.verified_block,
        )
        mark = marks.load(mark_path(self.settings.root), log)
        self.dispatcher.recover(clean=not crashed, mark=mark)


def _explained(reason: Fault | None) -> str:
    """
    Why a log ends where it does, for a person.
    """
    if reason is None:
        return "its files end there"
    if reason is Fault.NOTHING:
        return "the rest of the file is empty"
    return reason.value
