"""A slave's store becomes a master's, offline.

It is a master's start and clean stop without serving anyone, and some things besides: a torn
tail is kept before it is cut, as there may be no master any more that has its bytes; offsets
of groups and delay levels that came from the old master, which may have had more, are
brought back into the queues, after those that the old master's tables have were merged into
them, if they are given; what is known of that master is forgotten; and an epoch
begins, closed at once, that the next start takes up.  Its start is the line between what the
old master wrote and what this one will: a replica that has more than that, such as the old
master, is not fed until it has cut it off.  The number of that epoch, the master epoch, is above
all that this store knows, so that the old master is known for the older one.

Each step can be repeated, and the epoch is the last: what dies before it is promoted by
another run, which may raise the number again.  A master's store stays as it is, unless its
master was fenced by another: then the number alone is raised, above the other's.

A running slave that is to become the master notes that first (L{intend}), then its configuration
is changed, and whoever starts as a master next, in the same process or after a kill, promotes the
store before anything else (L{finish}), unless the master is back by then.  Who starts as a slave
again forgets the note.

Source: docs/operations.rst, Changing roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rmqha import event_file
from rmqha.config.store_settings import StoreSettings
from rmqha.errors import DiskFull, Refused, ShutdownFailed, StoreError, StoreLocked, TableUnreadable
from rmqha.ha.epoch import Epoch
from rmqha.ha.master_epoch import EpochJournal, MasterEpoch
from rmqha.ha.slave.followed import FollowedMaster, end_following
from rmqha.logfiles import json_table, typed_table
from rmqha.logfiles.listing import STRAY
from rmqha.logfiles.log_writer import LogWriter
from rmqha.logfiles.offline_log import Progress
from rmqha.logfiles.published import read_copied_damage, read_deleted_topics
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.reader import LogReader
from rmqha.store.derived import dispatch_mark
from rmqha.store.derived.clamp_offsets import Clamped, clamp_consumers, clamp_delays
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.deleted_topics import Deletion
from rmqha.store.derived.dispatch_mark import mark_path
from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.rebuild import open_derived
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.environment import Step, StoreEnvironment
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.files.lock import is_locked
from rmqha.store.files.mapped import LogFolder
from rmqha.store.files.owner import as_owner
from rmqha.store.log import arrival
from rmqha.store.log.bootstrap_marker import refuse_unfinished
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.log.recovery import FolderReader, Recovery, first_file, recover
from rmqha.store.log.truncate import pending
from rmqha.store.offline.verify import LogCheck
from rmqha.store.opening import Opening, shortened
from rmqha.store.service import StoreService
from rmqha.store.store import Store
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.merge_tables import MergedTables, merge_tables, write_merged
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.names import BROKERS_TOPIC_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.tables import TopicTable
from rmqha.wire.remoting.json_body import from_json
from rmqha.wire.store_layout import (
    ABORT,
    CHECKPOINT,
    CONFIG,
    LOCK,
    METADATA,
    OWN_FOLDER,
    PROMOTION,
    TOPICS,
)

T = TypeVar("T")

OWN_TOPICS = (SCHEDULE_TOPIC, BROKERS_TOPIC_PREFIX, RETRY_PREFIX)
"""How topics begin that a broker makes by itself (docs/protocol/remoting.md, Tables)."""


@frozen(kw_only=True)
class Promotion:
    """What was done, or would be.

    @ivar root: The store's root.
    @ivar min_offset: The log's first byte.
    @ivar end: Where the log ends: the new master's first own byte.
    @ivar records: Records checked to find that out, from C{checked_from} on.
    @ivar ended_by: The check that ended the log, in words.
    @ivar cut: Bytes that were cut off.
    @ivar quarantine: Where they are now, below the root; C{""} if there are none.
    @ivar queues: Queues that go on from the log.
    @ivar levels: Delay levels with messages in the log.
    @ivar unlisted: Topics with messages that C{config/topics.json} does not know: they cannot be
        read before the topics are made again.
    @ivar delays: Delay levels that were moved.
    @ivar consumers: Groups' offsets that were moved.
    @ivar merged: What the other node's tables had; C{None} if they were not given.
    @ivar owed: Offsets that were committed here and that the old master may not have: then it may
        have some that are not here.
    @ivar was_master: Whether the log was a master's already, and its epoch goes on.
    @ivar epoch_before: The master epoch before.
    @ivar epoch: The master epoch now.
    """

    root: Path
    min_offset: int
    end: int
    checked_from: int
    records: int
    ended_by: str
    cut: int
    quarantine: str
    queues: int
    levels: int
    unlisted: tuple[str, ...]
    delays: tuple[Clamped, ...]
    consumers: tuple[Clamped, ...]
    merged: MergedTables | None
    owed: int
    was_master: bool
    epoch_before: int
    epoch: int

    @property
    def moved(self) -> tuple[Clamped, ...]:
        """All offsets that were moved."""
        return self.delays + self.consumers


def promote(
    settings: StoreSettings,
    *,
    repair: bool = False,
    epoch: int | None = None,
    tables: Path | None = None,
    resumed: bool = False,
    step: Step = lambda name: None,
) -> Promotion:
    """Make a store a master's.  Blocking.  All that is made belongs to the store's owner.

    @param repair: Whether a damaged log may be cut at the damage.
    @param epoch: Its master epoch, by default one above the highest that the store knows.
    @param tables: The old master's store, or a folder with its tables, to merge with this one's.
    @param resumed: Whether a run before this one has raised the number already.
    @param step: Told each step's name after it is done; tests die there.
    @raise StoreLocked: If a node is running on it.
    @raise NotTheOwner: If it is another user's.
    @raise ForeignFile: If a part of it is not its owner's.
    @raise UnfinishedCopy: If it is an unfinished copy.
    @raise LogCorrupt: If the log is damaged.
    @raise LogShortened: If bytes are missing that were on the disk.
    @raise DiskFull: If there is no room for what has to be written.
    @raise FlushFailed: If the disk fails.
    @raise Refused: If there is nothing to be a master of, or C{epoch} is too low.
    @raise FileUnreadable: If the system does not let a file be read that is needed.
    @raise TableUnreadable: If a table of offsets, or of epochs, makes no sense, or one of those to
        be merged.
    @raise BodyInvalid: If one of them is no such table.
    """
    with as_owner(settings.root, settings.commitlog):
        # The log as its last writer left it, a slave as a rule; who opens it does not count.
        opening = Opening(
            master=True,
            repair=repair,
            ours_from=LogWriter.of(settings.root).nul_is_torn_from,
            keep_torn=True,
            before=refuse_unfinished,
        )
        # One clock that stands still: nothing happens by itself, dispatch runs to its end.
        environment = StoreEnvironment(
            clock=Clock(), in_thread=maybeDeferred, fsync=FsyncInThread(maybeDeferred), step=step
        )
        service = StoreService(settings, opening, environment)
        service.startService()
        store = _now(service.ready)
        step("opened")
        try:
            done = _promote(store, epoch, tables, step, resumed=resumed)
        finally:
            # What failed of it is in the log, and C{abort} tells.
            _now(service.stopService().addErrback(lambda failure: failure.trap(ShutdownFailed)))
        if store.flusher.failure is not None:
            raise store.flusher.failure
        if (settings.root / ABORT).exists():
            raise Refused("promotion", "the store could not be closed cleanly; try again")
        if not done.was_master or done.cut or done.epoch != done.epoch_before:
            event_file.note(settings.root, "promotion", _event(done))
        forget_intent(settings.root)
        return done


def intend(root: Path, epoch: int | None, master: str) -> None:
    """Note that this slave's store is promoted when it is next opened as a master's.  Durable on
    return; blocking.

    @param epoch: As for L{promote}.
    @param master: C{host:port} of a port of the master that is gone.
    @raise Refused: If C{epoch} is too low.
    @raise DiskFull: If there is no room.
    """
    number = EpochJournal.read(root).raised(0, epoch).number
    json_table.replace(root / OWN_FOLDER / PROMOTION, {"epoch": number, "master": master})


@frozen(kw_only=True)
class _Intent:
    epoch: MasterEpoch | None
    master: str


def _intent(root: Path) -> _Intent | None:
    path, what = root / OWN_FOLDER / PROMOTION, "it notes no promotion"
    return typed_table.read(path, _Intent, what, epoch=None, master="")


def replaced(root: Path) -> str:
    """C{host:port} of the master instead of which this store's is to be one, as was noted; C{""} if
    nothing was.  Blocking.
    """
    noted = _intent(root)
    return "" if noted is None else noted.master


def forget_intent(root: Path) -> None:
    """The store is a slave's still, or is promoted.  Durable on return; blocking."""
    json_table.remove(root / OWN_FOLDER / PROMOTION)


def finish(settings: StoreSettings, step: Step = lambda name: None) -> Promotion | None:
    """Promote a store for which that was noted, to a number above what it has learnt since.
    Blocking.

    @return: C{None} if nothing was noted.
    @raise StoreError: As L{promote} does; the note stays.
    """
    root = settings.root
    noted = _intent(root)
    if noted is None:
        return None
    epoch, row = noted.epoch, FollowedMaster.read(root)
    # Raised by a run that did not come to its end; before that it forgets the master it followed.
    following = row is not None and row.following
    journal = EpochJournal.read(root)
    resumed = epoch is not None and epoch <= journal.number and not following
    if epoch is not None and epoch < journal.next_number:
        epoch = None
    return promote(settings, epoch=epoch, resumed=resumed, step=step)


def _event(done: Promotion) -> str:
    cut = f", {done.cut} bytes cut after it" if done.cut else ""
    return (
        f"made a master's store: bytes {done.min_offset} to {done.end}{cut}, master epoch "
        f"{done.epoch_before} -> {done.epoch}"
    )


def told(done: Promotion, *, planned: bool = False, merged: Iterable[str] = ()) -> Iterator[str]:
    """What was done, or would be, for people.

    @param merged: What is said of tables that were merged.
    """
    would = "would be " if planned else ""
    bounds = f"bytes {done.min_offset} to {done.end} ({done.ended_by})"
    yield f"{done.root}: {bounds}, {done.records} records checked from byte {done.checked_from}"
    if done.cut:
        where = f", kept in {done.quarantine}" if done.quarantine else " and kept"
        yield f"{done.cut} bytes after the last whole record {would}cut{where}"
    yield f"{done.queues} queues continue from the log, {done.levels} of delay levels"
    yield from merged
    yield from map(str, done.moved)
    if not done.moved:
        yield "no consumer offset or delay level's offset says more than the log"
    if done.was_master:
        yield "the store was a master's already: its epoch continues"
    else:
        yield f"a new epoch {would or 'is '}begun at byte {done.end}"
    if done.epoch != done.epoch_before:
        yield f"master epoch {would or 'is '}raised from {done.epoch_before} to {done.epoch}"


def _promote(
    store: Store, epoch: int | None, tables: Path | None, step: Step, *, resumed: bool
) -> Promotion:
    root, log, found = store.settings.root, store.log, store.recovery
    if store.dispatcher.behind:
        raise DiskFull(str(root), store.dispatcher.behind)
    _refuse_empty(log.min_offset, log.confirmed)
    was_master = Epoch.goes_on(root, log)
    journal, raised = _raised(root, log.confirmed, epoch, was_master=was_master or resumed)
    merged = None if tables is None else merge_tables(root, tables, log)
    if merged is not None:
        deletion = Deletion(store.queues, root, log, Clock(), maybeDeferred)
        for name, topic in merged.deleted.items():  # each alone: between two the clock has to move
            _now(Deferred.fromCoroutine(deletion.forget({name: topic})))
        write_merged(root, merged)
        step("tables")
    owed = _owed(root)
    lookup = _lookup(store.settings, log, store.queues)
    delays = clamp_delays(root, lookup)
    step("delays")
    consumers = clamp_consumers(root, lookup)
    step("consumers")
    _forget_master(root, log.confirmed)
    step("record")
    if not was_master:
        arrival.keep(store.settings, store.now_ms() / 1000)
    if raised != journal:
        raised.write(root)
    step("number")
    if not was_master:
        Epoch.begin(root, log).close(log, {})
    step("epoch")
    kept = store.kept
    return _told(
        root,
        found,
        log.min_offset,
        store.queues,
        cut=kept.end - kept.at if kept is not None else 0,
        quarantine=kept.quarantine if kept is not None else "",
        delays=delays,
        consumers=consumers,
        merged=merged,
        owed=owed,
        was_master=was_master,
        epoch_before=journal.number,
        epoch=raised.number,
    )


def _lookup(settings: StoreSettings, log: LogReader, queues: ConsumeQueues) -> Lookup:
    return Lookup(RecordReader(log, DelayLevels.parse(settings.delay_levels)), queues, None)


def _raised(
    root: Path, end: int, epoch: int | None, *, was_master: bool
) -> tuple[EpochJournal, EpochJournal]:
    """A store's master epochs before and after.

    @param end: Where the log ends.
    @param epoch: The number that is wanted, if it is not just the next.
    """
    journal = EpochJournal.read(root).cut(end)
    stays = was_master and journal.fenced_by is None and epoch in (None, journal.number)
    return journal, journal if stays else journal.raised(end, epoch)


def _forget_master(root: Path, end: int) -> None:
    """A slave's record of a master that is none any more would speak of it to the next one; what is
    held for that master stays so.
    """
    end_following(root, end)
    json_table.remove(root / OWN_FOLDER / METADATA)
    CheckedTables(root).forget(METADATA)


def _owed(root: Path) -> int:
    """How many offsets the old master may not have, by the slave's record."""
    try:
        record = json_table.read(root / OWN_FOLDER / METADATA) or {}
    except TableUnreadable:
        return 0
    committed = record.get("committed")
    rows = committed.values() if isinstance(committed, dict) else ()
    return sum(len(queues) for queues in rows if isinstance(queues, dict))


def plan(
    settings: StoreSettings,
    *,
    repair: bool = False,
    epoch: int | None = None,
    tables: Path | None = None,
) -> Promotion:
    """Say what L{promote} would do, and do nothing.  Blocking.

    What it says of queues and offsets is as the queues are; they may lack what was not yet
    dispatched.

    @raise StoreError: As L{promote} does.
    """
    root = settings.root
    if is_locked(root / LOCK):
        raise StoreLocked(str(root / LOCK))
    refuse_unfinished(settings)
    folder = LogFolder.load(settings.commitlog, settings.file_size, tidy=False)
    queues, _ = open_derived(root, settings, read_only=True)
    try:
        found = _look(settings, folder, repair=repair)
        reader = FolderReader(folder)
        _refuse_empty(reader.min_offset, found.end)
        reader.end = reader.confirmed = found.end
        was_master = Epoch.goes_on(root, reader)
        journal, raised = _raised(root, found.end, epoch, was_master=was_master)
        queues.load()
        queues.inspect(reader.min_offset)
        queues.note_deleted(read_deleted_topics(root, reader, found.end))
        merged = None if tables is None else merge_tables(root, tables, reader)
        queues.note_deleted({} if merged is None else merged.deleted)
        lookup = _lookup(settings, reader, queues)
        return _told(
            root,
            found,
            reader.min_offset,
            queues,
            cut=max(0, found.tail - found.end) if found.reason is not None else 0,
            quarantine="",
            delays=clamp_delays(
                root, lookup, change=False, planned=None if merged is None else merged.delays
            ),
            consumers=clamp_consumers(
                root, lookup, change=False, planned=None if merged is None else merged.offsets
            ),
            merged=merged,
            owed=_owed(root),
            was_master=was_master,
            epoch_before=journal.number,
            epoch=raised.number,
        )
    finally:
        queues.close()
        folder.close()


def _look(settings: StoreSettings, folder: LogFolder, *, repair: bool) -> Recovery:
    """Find the log's end as recovery would, and change nothing.

    @raise Refused: If a truncation is unfinished.
    @raise TruncationInvalid: If its file cannot be believed.
    """
    root = settings.root
    intent = pending(root)
    if intent is not None:
        raise Refused(
            "plan", f"a truncation at byte {intent.at} is unfinished; promoting finishes it"
        )
    crashed = (root / ABORT).exists()
    safe = Checkpoint.load(root / CHECKPOINT).safe_time(index=False)
    found = recover(
        folder,
        first_file(
            folder,
            crashed=crashed,
            safe_time=safe,
            durable=dispatch_mark.known_durable(mark_path(root)),
        ),
        crc=settings.check_crc_on_recover,
        nul_is_torn_from=LogWriter.of(root).nul_is_torn_from,
        copied=read_copied_damage(root),
    )
    problem = found.corrupt or shortened(settings, found)
    if problem is not None and not repair:
        raise problem
    return found


def _refuse_empty(least: int, end: int) -> None:
    if end <= least:
        raise Refused("promotion", "the log holds no record; an empty store needs no promotion")


def _told(root: Path, found: Recovery, least: int, queues: ConsumeQueues, **more: Any) -> Promotion:
    # A plan only knows which are gone.
    left = [each for each in queues if not queues.deleted.get(each.topic, -1) >= each.end_physical]
    return Promotion(
        root=root,
        min_offset=least,
        end=found.end,
        checked_from=found.start,
        records=found.records,
        ended_by=found.reason.value if found.reason is not None else "end of files",
        queues=len(left),
        levels=sum(queue.topic == SCHEDULE_TOPIC for queue in left),
        unlisted=_unlisted(root, left, more["merged"]),
        **more,
    )


def _unlisted(
    root: Path, queues: Iterable[ConsumeQueue], merged: MergedTables | None
) -> tuple[str, ...]:
    found = json_table.read(root / CONFIG / TOPICS)
    listed = set(from_json(TopicTable, found or {}).topic_config_table)
    if merged is not None:
        listed.update(merged.topics)
    held = {queue.topic for queue in queues if not queue.topic.startswith(OWN_TOPICS)}
    return tuple(sorted(held - listed))


def _now(deferred: Deferred[T]) -> T:
    """Take the result of what is done already."""
    results: list[T | Failure] = []
    deferred.addBoth(results.append)
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    return result


class NotSound(StoreError):
    """A log that was read as a whole has faults."""

    path: str
    count: int
    first: str

    def __str__(self) -> str:
        faults = "a fault" if self.count == 1 else f"{self.count} faults"
        return f"the log in {self.path} has {faults}: {self.first}"


def check_whole(
    settings: StoreSettings,
    raw: RawLog,
    progress: Progress | None = None,
    *,
    repair: bool = False,
    runs: bool = False,
) -> int:
    """Verify a log that is to be a master's, and change nothing.  Blocking.

    A start, and so a promotion, checks the last files.  A slave with damage in an older one would
    be promoted like any other, its consumers would stand still there, and the old master with the
    good copy is about to be emptied.  So all of it is read, as C{rmqha verify} does.

    @param raw: Its files.
    @param progress: Told how far it is.
    @param repair: Whether a damaged log may be cut at the damage.
    @param runs: Whether a node may run on it, which it is to be promoted in.
    @return: How many records it has.
    @raise StoreLocked: If a node is running on it.
    @raise UnfinishedCopy: If it is an unfinished copy.
    @raise TruncationInvalid: If it has a note about a cut that cannot be read.
    @raise LogCorrupt: If it is damaged where a start would look.
    @raise NotSound: If anything is wrong with it that the promotion would not cut off.
    """
    lock = settings.root / LOCK
    if not runs and is_locked(lock):
        raise StoreLocked(str(lock))
    refuse_unfinished(settings)
    check = LogCheck(raw, progress)
    found = [finding for finding in check.findings() if finding.reason != STRAY]
    if found and repair:
        # That records at the end are missing is what it is told to bear.
        found = [finding for finding in found if finding.path != str(settings.root / CHECKPOINT)]
    if found:
        intent = pending(settings.root)
        # What is cut off, or has begun to be, may be anything.
        end = plan(settings, repair=repair).end if intent is None else intent.at
        found = [finding for finding in found if finding.offset < end]
    if found:
        raise NotSound(str(raw.path), len(found), str(found[0]))
    return check.records
