"""Opening a store, in a thread: what it takes before a log can be handed out.

In this order: an unfinished repair from a replica, an unfinished truncation, the log's end,
queues and index, dispatch of what they lack.  Nothing else is changed before the log's end is
known and found no damage, or the damage may be cut.

Source: docs/protocol/store.rst, The store's folder and Recovery.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from attrs import define, field, frozen
from twisted.logger import Logger

from rmqha import reserve
from rmqha.config.store_settings import StoreSettings
from rmqha.errors import DiskFull, LogShortened
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.log_writer import LogWriter
from rmqha.logfiles.published import read_copied_damage, read_deleted_topics
from rmqha.reserve import NO_SPACE
from rmqha.store import lost_tail
from rmqha.store.derived import dispatch_mark
from rmqha.store.derived.clamp_offsets import clamp_consumers, clamp_delays
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.dispatch import Dispatcher, DispatchMark, QueueEnds
from rmqha.store.derived.dispatch_mark import mark_path
from rmqha.store.derived.index import Index
from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.rebuild import open_derived
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.allocate import Allocator
from rmqha.store.files.mapped import LogFolder, disk_error, none_left
from rmqha.store.log import arrival, copied_damage_file, expiry
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.range_repair import RepairIntent, finish_repair, pending_repair, write_repair
from rmqha.store.log.record_checksums import RecordChecksums
from rmqha.store.log.recovery import Recovery, cut, first_file, recover
from rmqha.store.log.retention import fullest
from rmqha.store.log.truncate import (
    CutIntent,
    TruncationInvalid,
    finish,
    ignore,
    intend,
    pending_cut,
    quarantine,
)
from rmqha.store.lost_tail import LostTail
from rmqha.store.published import publish
from rmqha.store.published.split_index import SplitIndex
from rmqha.wire.log.copied_damage import CopiedDamage
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.published import Point
from rmqha.wire.log.record import Fault
from rmqha.wire.store_layout import ABORT, CHECKPOINT


def keep_derived(
    root: Path,
    dispatcher: Dispatcher,
    mark: DispatchMark,
    *,
    checkpoint: Checkpoint,
    stored: int,
    durable: int,
) -> None:
    """Make queues and index durable up to a mark, and then the mark: one that is on the disk before
    what it speaks of would have a start after a power cut believe queues that are not there.
    Blocking.

    @param stored: When the last record below the mark was stored, in milliseconds since 1970.
    @param durable: The end of a record up to which the log itself is on the disk.
    @raise DiskFull: If there is no room, or no descriptor.
    """
    dispatcher.queues.flush()
    if dispatcher.index is not None:
        dispatcher.index.flush()
    path = mark_path(root)
    try:
        dispatch_mark.save(path, dispatcher.log, mark, durable)
    except OSError as error:
        raise disk_error(error, str(path), 0) from error
    if stored:
        checkpoint.queues = checkpoint.index = stored
    checkpoint.save(root / CHECKPOINT)


SLICE = 1.0
"""Seconds of dispatch between looks whether the node is to stop."""

MOST_TORN = 64 << 20
"""Bytes of a torn tail that are kept at most: behind its first, broken record no other is
whole, or it would be damage, of which all is kept."""

KEEP_EVERY = 30.0
"""Seconds of dispatch after which what was dispatched is made durable."""


@frozen(kw_only=True)
class Opening:
    """How a store is to be opened.

    @ivar master: Whether this node takes writes.
    @ivar repair: Whether a damaged log may be cut (C{--repair}); a slave's always may,
        as its master has the bytes.
    @ivar ours_from: Where rmqha began to write this log as a master; C{None} if never.
    @ivar keep_torn: Whether a torn tail is cut like damage is: told of as L{StoreParts.kept},
        and offsets behind it brought back.
    @ivar fetches: Whether a master that lost its log's tail may open all the same: it will
        ask its replicas for it before it writes.
    @ivar before: Done first, under the lock, in the thread: a repair.
    @ivar follows_confirm: Whether readers see the log up to the confirm offset alone, of which the
        owner tells (L{Store.confirm<rmqha.store.store.Store.confirm>}).
    @ivar patient: Whether to wait until there is a file descriptor: a process that starts
        without one ends instead, and says so.
    """

    master: bool
    repair: bool = False
    ours_from: int | None = None
    keep_torn: bool = False
    fetches: bool = False
    before: Callable[[StoreSettings], None] | None = None
    follows_confirm: bool = False
    patient: bool = False


def shortened(settings: StoreSettings, found: Recovery) -> LogShortened | None:
    """Whether a log ends before where it surely was on the disk."""
    lost = lost_tail.find(settings.root, found.end, found.blank)
    return None if lost is None else lost.error(settings.commitlog)


@frozen(kw_only=True)
class StoreParts:
    """The files of a store that is open.

    @ivar recovery: What was found at the log's end.
    @ivar kept: The cut that was made, if one was.
    @ivar lost: What is missing at the log's end, if that is known.
    @ivar ends: Where each queue ended when dispatch had ended.
    @ivar next_offsets: The queue offset that a new message of each gets.
    @ivar starved: Why dispatch could not go to the end, if the disk had no room.
    @ivar arrived: Since when the log is here, in seconds since 1970.
    @ivar point: What readers were told last.
    @ivar splits: Where records begin, for readers.
    """

    log: CommitLog
    queues: ConsumeQueues
    index: Index | None
    dispatcher: Dispatcher
    checksums: RecordChecksums
    checkpoint: Checkpoint
    recovery: Recovery
    kept: CutIntent | None
    lost: LostTail | None
    ends: QueueEnds
    next_offsets: dict[tuple[str, int], int]
    starved: DiskFull | None
    arrived: float
    point: Point
    splits: SplitIndex

    def close(self) -> None:
        """Close the files; the log may still be read, and is never written again."""
        with ExitStack() as closing:
            closing.callback(self.log.close)
            if self.index is not None:
                closing.callback(self.index.close)
            closing.callback(self.queues.close)
            closing.callback(self.checksums.close)


@define(eq=False)
class Opener:
    """Opens one store.

    @ivar wanted: Whether the store is still to be opened.
    @ivar recovery: What was found at the log's end, C{None} until that is known.
    @ivar prepared: Whether what is done before has been done: it is not done twice.
    """

    settings: StoreSettings
    opening: Opening
    environment: StoreEnvironment
    wanted: Callable[[], bool]
    recovery: Recovery | None = field(default=None, init=False)
    prepared: bool = field(default=False, init=False)
    _kept: CutIntent | None = field(default=None, init=False)
    _lost: LostTail | None = field(default=None, init=False)
    _copied: CopiedDamage = field(factory=CopiedDamage, init=False)
    _told: set[tuple[int, int]] = field(factory=set, init=False)

    _log = Logger()

    def open(self) -> StoreParts:
        """Do everything that takes time; blocking.

        @return: The open files.  When dispatch was not wanted to the end, it goes on from
            where it is.  After an error it may be tried again.
        @raise StoreError: If the store cannot be opened; nothing is left open.
        """
        with ExitStack() as undo:
            parts = self._open(undo)
            undo.pop_all()
        return parts

    def _open(self, undo: ExitStack) -> StoreParts:
        settings, root = self.settings, self.settings.root
        if self.opening.before is not None and not self.prepared:
            self.opening.before(settings)
        self.prepared = True
        crashed = (root / ABORT).exists()
        checkpoint = Checkpoint.load(root / CHECKPOINT)
        repair = self._write_begun_repair()
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        undo.callback(folder.close)
        if folder.strays:
            self._log.warn(
                "Ignoring files in commitlog that are not log files: {names}",
                names=", ".join(folder.strays),
            )
        self._finish_begun_cut(folder)
        self._copied = read_copied_damage(root)
        recovery = self._recover(folder, checkpoint, crashed)
        if repair is not None:
            # No mark, no clean stop: everything is held against the log.
            crashed = True
            self._copied.forget(repair.ranges)
            json_table.remove(mark_path(root))
            finish_repair(root, repair, self.environment.step)
        log = CommitLog(
            folder=folder, end=recovery.end, allocator=Allocator(self.environment.in_thread)
        )
        log.last_record = recovery.last_record
        log.copied = self._copied
        if log.copied.keep_within(log.min_offset, log.end):
            copied_damage_file.save(root, log.copied)
        queues, index = open_derived(root, settings)
        undo.callback(queues.close)
        if index is not None:
            undo.callback(index.close)
        checksums = RecordChecksums.open(root, log)
        undo.callback(checksums.close)
        dispatcher = self._dispatcher(log, queues, index, checksums, crashed=crashed)
        self._hold_back(dispatcher, checkpoint)
        starved = self._dispatch(dispatcher, checkpoint)
        if self._kept is not None and self.wanted():
            lookup = Lookup(RecordReader(log, dispatcher.levels), queues, None)
            self._finish_cut(lookup, whole=starved is None and not dispatcher.behind)
        environment = self.environment
        try:
            publish.name_each_other(root, settings.commitlog)
        except OSError as error:
            self._log.warn(
                "Cannot say beside the commit log whose it is, readers of {path} will not find "
                "the published point: {error}",
                path=settings.commitlog,
                error=error,
            )
        point, splits = publish.resume(root, log, environment.broker_name, environment.now_ms)
        return StoreParts(
            log=log,
            queues=queues,
            index=index,
            dispatcher=dispatcher,
            checksums=checksums,
            checkpoint=checkpoint,
            recovery=recovery,
            kept=self._kept,
            lost=self._lost,
            # Here, in the thread: there may be very many.
            ends=QueueEnds(queues.ends()),
            next_offsets=queues.next_offsets({}),
            starved=starved,
            arrived=self._arrived(log),
            point=point,
            splits=splits,
        )

    def _arrived(self, log: CommitLog) -> float:
        """Since when the log is here; and tell what that means for its files."""
        settings, environment = self.settings, self.environment
        now = environment.now_ms() / 1000
        arrived = arrival.since(settings, now)
        try:
            arrival.keep(settings, arrived)
        except DiskFull as error:
            self._log.warn(
                "When the log came here cannot be written down, the next start takes its own "
                "time for it: {error}",
                error=error,
            )
        use = fullest(settings, environment.disk_use)
        text = expiry.next_deletions(settings, log.folder.files, arrived=arrived, now=now, use=use)
        if text:
            self._log.info("Of the log, {text}", text=text)
        return arrived

    def _write_begun_repair(self) -> RepairIntent | None:
        """Write what C{rmqha repair} was writing when it ended."""
        settings = self.settings
        intent = pending_repair(settings.root, settings.commitlog)
        if intent is not None:
            self._log.warn(
                "Finishing a repair of the log: {count} ranges with bytes of {peer}",
                count=len(intent.ranges),
                peer=intent.peer,
            )
            write_repair(settings.root, settings.commitlog, intent, self.environment.step)
        return intent

    # --- the log's end --------------------------------------------------------

    def _finish_begun_cut(self, folder: LogFolder) -> None:
        """Cut where the last run was cutting when it ended."""
        root = self.settings.root
        try:
            intent = self._kept = pending_cut(root, folder)
        except TruncationInvalid as error:
            if self.opening.master and not self.opening.repair:
                raise
            # What was to be cut is found again: by comparing with the master, or as damage.
            self._log.critical(
                "{error}; ignored, and kept as {path}", error=error, path=ignore(root)
            )
            return
        if intent is None:
            return
        self._log.warn(
            "Finishing the truncation at byte {at}; what followed is kept in {path}",
            at=intent.at,
            path=intent.quarantine,
        )
        lost_tail.lower(root, intent.at, self.environment.now_ms)
        # What was decided to go is not missed.
        lost_tail.forget(root)
        cut(folder, intent.at)
        self._tell_cut(intent.at, intent.end)
        self.environment.step("cut")

    def _tell_cut(self, at: int, end: int) -> None:
        """Tell how much was cut off; once, however often the store has to be opened for it."""
        if (at, end) not in self._told:
            self._told.add((at, end))
            self.environment.truncated(end - at)

    def _recover(self, folder: LogFolder, checkpoint: Checkpoint, crashed: bool) -> Recovery:
        """Find the log's end and cut what lies behind it.

        @raise LogCorrupt: If that is more than a torn tail, and not ours to decide.
        @raise LogShortened: If it lacks bytes that were on the disk, and that is not either.
        """
        step = self.environment.step
        safe_time = checkpoint.safe_time(index=False)
        durable = dispatch_mark.known_durable(mark_path(self.settings.root))
        row = first_file(folder, crashed=crashed, safe_time=safe_time, durable=durable)
        writer = LogWriter(master=self.opening.master, ours_from=self.opening.ours_from)
        recovery = self.recovery = recover(
            folder,
            row,
            crc=self.settings.check_crc_on_recover,
            nul_is_torn_from=writer.nul_is_torn_from,
            copied=self._copied,
        )
        damage = recovery.corrupt
        if damage is not None and self.opening.master and not self.opening.repair:
            raise damage
        self._look_for_lost_tail(recovery)
        # From here on files change: only a clean stop makes it a clean store again.
        self._mark_running()
        torn = recovery.reason is not None and recovery.tail > recovery.end
        keep = damage is not None or (torn and self.opening.keep_torn)
        if keep:
            kept = intend(self.settings.root, folder, recovery.end, recovery.tail, step)
            self._kept = kept
            tell = self._log.info if damage is None else self._log.critical
            tell(
                "{reason}; cutting the log there, what followed is kept in {path}",
                reason=damage or f"The log's tail is torn at byte {recovery.end}",
                path=kept.quarantine,
            )
        elif torn:
            self._keep_torn(folder, recovery)
        lost_tail.lower(self.settings.root, recovery.end, self.environment.now_ms)
        # After a crash what is log may be in memory only.
        cut(folder, recovery.end, changed_from=recovery.start if crashed else None)
        if keep or torn:
            self._tell_cut(recovery.end, recovery.tail)
        if keep:
            step("cut")
        self._log.info(
            "Log ends at byte {end} ({reason}); checked {records} records from byte {start}; the "
            "store is {root}",
            root=self.settings.root,
            end=recovery.end,
            reason=_explained(recovery.reason),
            records=recovery.records,
            start=recovery.start,
        )
        return recovery

    def _look_for_lost_tail(self, found: Recovery) -> None:
        """Say loudly if bytes are missing that were on the disk, and remember it: what proves it
        is lowered by the cut.

        @raise LogShortened: If this is a master's log, and nobody has said that it may go on, or
            may ask its replicas first.
        """
        root, opening = self.settings.root, self.opening
        lost = self._lost = lost_tail.find(root, found.end, found.blank)
        if lost is None:
            lost_tail.forget(root)
            return
        error = lost.error(self.settings.commitlog)
        if not opening.master:
            self._log.critical("{error}; the master has to send them again", error=error)
        elif opening.repair:
            self._log.critical("{error}; going on without them (--repair)", error=error)
            lost_tail.forget(root)
            return
        elif opening.fetches:
            self._log.critical("{error}; asking the replicas for them", error=error)
        else:
            raise error
        lost_tail.remember(root, lost)

    def _keep_torn(self, folder: LogFolder, found: Recovery) -> None:
        """Keep the torn tail that is about to be cut: with no whole record in it, it may still
        be all that is left of an acknowledged write.

        @raise DiskFull: If there is no room, on a master.
        """
        stop = min(found.tail, found.end + MOST_TORN)
        try:
            path = quarantine(self.settings.root, folder, found.end, stop)
        except DiskFull as error:
            if self.opening.master or none_left(error):
                raise
            self._log.error("Not keeping the log's torn tail: {error}", error=error)
            return
        self._log.warn(
            "The log's tail is torn at byte {at} ({reason}): cutting the {size} bytes behind it, "
            "of which the first {kept} are kept in {path}",
            at=found.end,
            reason=_explained(found.reason),
            size=found.tail - found.end,
            kept=stop - found.end,
            path=path.relative_to(self.settings.root),
        )

    def _mark_running(self) -> None:
        path = self.settings.root / ABORT
        reserve.keep(self.settings.root)
        try:
            path.write_text(str(os.getpid()), encoding="ascii")
        except OSError as error:
            # That it is there is what counts; the number is for people.
            if error.errno not in NO_SPACE or not path.exists():
                raise
        fsync_folder(path.parent)

    # --- queues and index -----------------------------------------------------

    def _dispatcher(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: Index | None,
        checksums: RecordChecksums,
        *,
        crashed: bool,
    ) -> Dispatcher:
        root, settings = self.settings.root, self.settings
        queues.note_deleted(read_deleted_topics(root, log, log.confirmed))
        dispatcher = Dispatcher(
            log=log,
            queues=queues,
            index=index,
            levels=DelayLevels.parse(settings.delay_levels),
            clock=self.environment.clock,
            checksums=checksums,
        )
        dispatcher.recover(clean=not crashed, mark=dispatch_mark.load(mark_path(root), log))
        if self._kept is not None:
            dispatcher.truncate_to(log.end)
            self.environment.step("derived")
        return dispatcher

    def _hold_back(self, dispatcher: Dispatcher, checkpoint: Checkpoint) -> None:
        """Readers see what they saw before, until somebody says how far they may.  After a kill
        what was written down is older than what is in the queues, where nothing comes that they may
        not see.
        """
        if not self.opening.follows_confirm:
            checkpoint.confirm = 0
            return
        mark = dispatch_mark.load(mark_path(self.settings.root), dispatcher.log)
        marked = 0 if mark is None else mark.offset
        seen = max(checkpoint.confirm, marked, dispatcher.queues.end_physical)
        dispatcher.limit = checkpoint.confirm = min(seen, dispatcher.log.confirmed)

    def _dispatch(self, dispatcher: Dispatcher, checkpoint: Checkpoint) -> DiskFull | None:
        """Bring queues and index to the log's end, while the store is wanted.  What takes long is
        kept as it goes, so that a node that is killed again and again gets further each time.

        @return: Why that was impossible, if the disk has no room.
        """
        clock = self.environment.clock
        kept = clock.seconds()
        try:
            while self.wanted() and dispatcher.run(SLICE):
                if clock.seconds() - kept >= KEEP_EVERY and self._kept is None:
                    self._keep(dispatcher, checkpoint)
                    kept = clock.seconds()
        except DiskFull as error:
            self._log.warn(
                "Disk full while building consume queues; opened read-only until they "
                "catch up: {error}",
                error=error,
            )
            return error
        return None

    def _keep(self, dispatcher: Dispatcher, checkpoint: Checkpoint) -> None:
        keep_derived(
            self.settings.root,
            dispatcher,
            dispatcher.mark(),
            checkpoint=checkpoint,
            stored=dispatcher.last_timestamp,
            durable=dispatcher.log.confirmed,
        )

    def _finish_cut(self, lookup: Lookup, *, whole: bool) -> None:
        """The queues are cut: if they are whole, no consumer's offset may be above them any more.
        What waited, and was done with behind the cut, waits again.
        """
        root = self.settings.root
        for moved in (*clamp_consumers(root, lookup, whole=whole), *clamp_delays(root, lookup)):
            self._log.warn("Moved an offset back, as the log was cut: {moved}", moved=moved)
        finish(root, self.environment.step)


def _explained(reason: Fault | None) -> str:
    """Why a log ends where it does, for a person."""
    if reason is None:
        return "its files end there"
    if reason is Fault.NOTHING:
        return "the rest of the file is empty"
    return reason.value
