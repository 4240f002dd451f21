"""
One node's store as a Twisted service: lock, recovery, flushing, dispatch, clean stop.

The lock is taken at once, then L{rmqha.store.opening} works in a thread; only when it
is done the log is handed out.
A stop flushes, waits for dispatch and removes C{abort}; a start that finds C{abort}
knows that the last run crashed.  Source: docs/protocol/store.rst, The store's folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import define, evolve, field, frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.store_settings import FlushDisk, StoreSettings
from rmqha.errors import (
    DiskFull,
    FlushFailed,
    NotWritable,
    RecordCrossesFile,
    RecordFault,
    StoreError,
)
from rmqha.periodic import Job, Periodic
from rmqha.store.derived import dispatch_mark as marks
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.dispatch import Dispatcher, DispatchMark
from rmqha.store.derived.index import Index
from rmqha.store.files.allocate import InThread
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.mapped import fsync_folder
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.flush import Flusher, Sync
from rmqha.store.log.recovery import Recovery
from rmqha.store.log.retention import Retention, disk_use, local_hour
from rmqha.store.log.truncate import CutIntent, Step
from rmqha.store.opening import Opener, Opening, mark_path
from rmqha.store.published.publish import Publisher
from rmqha.wire.columnar.kernels import NUMPY, chosen, warm_up
from rmqha.wire.log.encode import encode, encode_batch
from rmqha.wire.log.properties import PAIR_END
from rmqha.wire.log.record import Message, offset_msg_id, stored_at
from rmqha.wire.store_layout import ABORT, CHECKPOINT, LOCK

LIVE_PAUSE = 0.001
"""Seconds from an append to its dispatch, as in stock brokers: a write that is waited
for is not held up by it, and records that come together are dispatched together."""

BUSY_PAUSE = 0.004
"""The same where a run just before brought L{BUSY} bytes: one run for a hundred records costs a
third of ten for ten each."""

BUSY = 16 << 10

SLICE = 0.001
"""Seconds of dispatch in one reactor turn: what the reactor may be late by."""

FAR = 4 << 20
"""Bytes behind from which dispatch works in longer slices."""

FAR_SLICE = 0.004

VERIFY_STEP = 5 << 20
"""Bytes checked before a slice if they were not before: more than any record has."""

VERY_FAR = 1 << 30
"""Bytes behind from which numba is worth its 40 MiB, and the third of a second in which
loading it slows everything else down."""

BULK_RATE = 100e6
"""Bytes a second that come from which the log is being copied in bulk."""

BULK_PAUSE = 0.1
"""Seconds between slices meanwhile without numba, with which dispatch costs a quarter:
bytes first, queues when they have arrived."""

DISK_LOOK = 1.0
"""Seconds between looks at a full disk."""

CLOSING_SLICE = 5.0
"""Seconds that a stop spends on dispatch; a start goes on where it ended."""

PRECEDENCE = ("stopped", "failed", "recovering", "disk-full", "read-only")
"""Why writes may be refused; what comes first is told when there are several."""


@frozen
class Receipt:
    """
    Where a message went.

    @ivar begin: Physical offset of its (first) record.
    @ivar end: Just past its (last) record.
    @ivar queue_offset: Its (first) queue offset.
    @ivar message_id: The id a producer is told; several, with commas, for a batch.
    """

    begin: int
    end: int
    queue_offset: int
    message_id: str


@define(eq=False)
class Store(Service):
    """
    The log of one node and everything derived from it.

    @ivar in_thread: Runs long work in a thread.
    @ivar in_flush_thread: The same in a thread of its own, for fsync.
    @ivar sync: What makes a descriptor durable; tests pass their own.
    @ivar ready: Fires when the store is open; fails if it cannot be.
    @ivar state: Why writes are refused, C{""} while they are not.
    @ivar changed: Called when L{state} changes.
    @ivar bad_record: Told of a bad record that only dispatch found.
    @ivar step: Told of each step of a truncation; tests die there.
    @ivar held_from: The lowest offset a replica still needs, for retention; C{None} if
        none needs any.
    @ivar broker_name: Whose log it is, for those who read the files.
    @ivar acknowledged: Up to where enough replicas hold the log; C{None} where no write
        waits for replicas.
    @ivar disk_use: How full a folder's disk is.
    @ivar local_hour: The hour of the day of a time, both as the operator's clock has them.
    """

    settings: StoreSettings
    opening: Opening
    clock: IReactorTime
    in_thread: InThread
    in_flush_thread: InThread
    sync: Sync = os.fdatasync
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    changed: Callable[[], None] = lambda: None
    bad_record: Callable[[StoreError], None] = lambda error: None
    step: Step = lambda name: None
    held_from: Callable[[], int | None] = lambda: None
    broker_name: str = ""
    acknowledged: Callable[[], int | None] = lambda: None
    disk_use: Callable[[Path], float] = disk_use
    local_hour: Callable[[float], int] = local_hour
    log: CommitLog = field(init=False)
    queues: ConsumeQueues = field(init=False)
    index: Index | None = field(init=False)
    dispatcher: Dispatcher = field(init=False)
    flusher: Flusher = field(init=False)
    retention: Retention | None = field(default=None, init=False)
    publisher: Publisher = field(init=False)
    checkpoint: Checkpoint = field(factory=Checkpoint, init=False)
    state: str = field(default="recovering", init=False)
    reason: str = field(default="", init=False)
    ready: Deferred[None] = field(factory=Deferred, init=False)
    last_stored: int = field(default=0, init=False)
    _opener: Opener = field(init=False)
    _lock: StoreLock = field(init=False)
    _next: dict[tuple[str, int], int] = field(factory=dict, init=False)
    _dispatching: IDelayedCall | None = field(default=None, init=False)
    _room: Periodic = field(init=False)
    _derived: Periodic = field(init=False)
    _warmed: bool = field(default=False, init=False)
    _busy: bool = field(default=False, init=False)
    _seen: tuple[int, float] = field(default=(0, 0.0), init=False)
    _opening: Deferred[None] | None = field(default=None, init=False)
    _causes: dict[str, str] = field(factory=lambda: {"recovering": ""}, init=False)
    _wanted: int = field(default=0, init=False)
    _derived_full: bool = field(default=False, init=False)
    _flush_mark: tuple[int, int] = field(default=(0, 0), init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._lock = StoreLock(self.settings.root / LOCK)
        self._room = Periodic("waiting for room on the disk", self.clock, self._look_at_disk)
        self._derived = Periodic(
            "flushing queues and index", self.clock, self._flush_derived, vital=True
        )

    # --- start and stop -----------------------------------------------------

    def startService(self) -> None:
        """
        Take the lock and begin to open; L{ready} tells when that is done.

        @raise StoreLocked: If a running node has the store.
        """
        self.settings.root.mkdir(parents=True, exist_ok=True)
        self._lock.take()
        super().startService()
        self._opening = Deferred()
        self._opener = Opener(
            self.settings,
            self.opening,
            self.clock,
            self.in_thread,
            self.step,
            lambda: bool(self.running),
            self.broker_name,
            self.now_ms,
        )
        self.in_thread(self._opener.open).addCallback(self._opened).addErrback(
            self._not_opened
        ).addBoth(self._opening_over)

    def _opened(self, log: CommitLog) -> None:
        opener = self._opener
        if not self.running:
            # Dispatch may have been left in the middle, so C{abort} stays.
            opener.close()
            raise NotWritable("stopped", "the node was stopped while the store was being opened")
        assert opener.queues is not None, "opened with the log"
        self.log, self.dispatcher = log, opener.dispatcher
        self.queues, self.index = opener.queues, opener.index
        self.checkpoint = opener.checkpoint
        self._count_offsets()
        self.last_stored = self._stored_at(log.last_record)
        self.flusher = Flusher(
            log, self.settings, self.clock, self.in_flush_thread, self._flush_failed, self.sync
        )
        self.flusher.start()
        self._derived.start(self.settings.queue_flush_thorough_interval)
        log.appended.append(self._appended)
        log.flush_listeners.append(self._note_flushed)
        if self.settings.flush_disk is FlushDisk.SYNC_FLUSH:
            log.appended.append(self.flusher.nudge)
        self.publisher = Publisher(
            self.settings.root,
            log,
            self.settings.publish_interval,
            self.clock,
            self.in_thread,
            self.now_ms,
            self.broker_name,
            self.acknowledged,
            *opener.published,
        )
        self.publisher.start()
        self.retention = self._new_retention(log)
        self.retention.start()
        if opener.starved is not None:
            # What dispatch has not seen may use queue offsets: no writes before it has.
            self._derived_full = True
            self.disk_full(opener.starved)
            self._appended()
        self._allow("recovering")
        self.ready.callback(None)

    def _count_offsets(self) -> None:
        """
        Each queue goes on where dispatch found its end, once it has found it.
        """
        for queue in self.queues:
            key = queue.topic, queue.queue_id
            self._next[key] = max(self._next.get(key, 0), queue.next_offset)

    def _new_retention(self, log: CommitLog) -> Retention:
        return Retention(
            log,
            self.settings,
            self.clock,
            self.in_thread,
            dispatched=lambda: self.dispatcher.position,
            held_from=self._held_from,
            follow=self.dispatcher.delete_before,
            full=self._disk_nearly_full,
            wall=lambda: self.now_ms() / 1000,
            local_hour=self.local_hour,
            disk_use=self.disk_use,
        )

    def _held_from(self) -> int | None:
        return self.held_from()

    def _not_opened(self, failure: Failure) -> None:
        self._lock.release()
        self._refuse("failed", failure.getErrorMessage())
        self.ready.errback(failure)

    def _opening_over(self, result: object) -> None:
        over, self._opening = self._opening, None
        if isinstance(result, Failure):
            self._log.failure("Opening the store failed", result)
        assert over is not None, "a store is opened once"
        over.callback(None)

    def stopService(self) -> Deferred[None]:
        """
        Flush everything and leave the store as a clean stop does.
        """
        if not self.running:
            return succeed(None)
        super().stopService()
        failed = "failed" in self._causes
        self._refuse("stopped", "the node is stopping")
        if self._opening is not None and self.retention is None:
            # The thread looks whether this runs; until it ends the files are its own.
            over: Deferred[None] = Deferred()
            self._opening.addCallback(lambda _: over.callback(None))
            return over
        if self.retention is None:
            return succeed(None)
        self._room.stop()
        derived_flushed = self._derived.stop()
        if self._dispatching is not None and self._dispatching.active():
            self._dispatching.cancel()
        return (
            self.retention.stop()
            .addCallback(lambda _: self.publisher.stop())
            .addCallback(lambda _: self.flusher.stop())
            .addCallback(lambda _: derived_flushed)
            .addCallback(lambda _: self.in_thread(self._close, clean=not failed))
            .addErrback(self._not_closed)
            .addBoth(lambda _: self._lock.release())
        )

    def _not_closed(self, failure: Failure) -> None:
        """
        C{abort} is still there: the next start makes it good.
        """
        if failure.check(StoreError):
            self._log.error(
                "Store not closed cleanly, the next start recovers it: {error}", error=failure.value
            )
        else:
            self._log.failure("Closing the store failed", failure)

    def _close(self, *, clean: bool) -> None:
        try:
            if clean and self.flusher.failure is None:
                behind = self.dispatcher.run(CLOSING_SLICE)
                stored = self._stored_at(self.log.last_record)
                self.checkpoint.log = max(self.checkpoint.log, stored)
                self._write_derived(
                    self.dispatcher.mark(), self.dispatcher.last_timestamp if behind else stored
                )
                self.publisher.close()
                (self.settings.root / ABORT).unlink(missing_ok=True)
                fsync_folder(self.settings.root)
        finally:
            self._opener.close()

    def jobs(self) -> Iterator[Job]:
        """
        What is done again and again.
        """
        yield self._room
        yield self._derived
        if self.retention is not None:
            yield from self.flusher.jobs()
            yield from self.retention.jobs()

    @property
    def recovery(self) -> Recovery | None:
        """
        What the last opening found; C{None} before.
        """
        return self._opener.recovery if hasattr(self, "_opener") else None

    @property
    def kept(self) -> CutIntent | None:
        """
        The cut that the last opening made, if it made one.
        """
        return self._opener.kept if hasattr(self, "_opener") else None

    # --- writing --------------------------------------------------------------

    def put(self, message: Message, *, batch: bool = False) -> Receipt:
        """
        Store a message: the one door for writes on a master.

        @param message: What to store; with C{batch} its body is a client's batch.
        @return: Where it went; it is in the page cache, no more.
        @raise NotWritable: If the store takes no writes now.
        @raise MessageIllegal: If it cannot be stored as it is.
        """
        if self.state:
            raise NotWritable(self.state, self.reason)
        if message.properties and not message.properties.endswith(PAIR_END):
            # So that recovery can tell torn properties from whole ones.
            message = evolve(message, properties=message.properties + PAIR_END)
        limit = self.settings.max_message_size
        records = (
            encode_batch(message, max_message_size=limit)
            if batch
            else [encode(message, max_message_size=limit)]
        )
        key = (message.topic, message.queue_id)
        counts = message.has_unit
        first = self._next.get(key, 0) if counts else 0
        queue_offsets = range(first, first + len(records)) if counts else [0] * len(records)
        stored = max(self.last_stored, self.now_ms())
        try:
            begin = self.log.put(records, queue_offsets, stored)
        except DiskFull as error:
            self._wanted = sum(map(len, records))
            self.disk_full(error)
            raise NotWritable(self.state, self.reason) from error
        except FlushFailed as error:
            self._flush_failed(error)
            raise NotWritable(self.state, self.reason) from error
        if counts:
            self._next[key] = first + len(records)
        self.last_stored = stored
        ids, offset = [], begin
        for record in records:
            ids.append(offset_msg_id(message.store_host, offset))
            offset += len(record)
        return Receipt(begin, offset, first, ",".join(ids))

    def disk_full(self, error: DiskFull) -> None:
        """
        Refuse writes until there is room again.
        """
        self._refuse("disk-full", str(error))
        self._room.start(DISK_LOOK)

    def _look_at_disk(self) -> None:
        try:
            room = not self._derived_full and self.log.has_room(self._wanted)
        except FlushFailed as error:
            self._flush_failed(error)
            room = True
        if room:
            self._room.stop()
            self._allow("disk-full")

    def _disk_nearly_full(self, reason: str) -> None:
        if reason:
            self._refuse("read-only", reason)
        else:
            self._allow("read-only")

    def _flush_failed(self, error: FlushFailed) -> None:
        self._refuse("failed", str(error))

    def _refuse(self, state: str, reason: str) -> None:
        """
        Take no writes; several causes may hold at once.
        """
        self._causes[state] = reason
        self._settle()

    def _allow(self, state: str) -> None:
        """
        One cause to refuse writes is gone; they are taken again when no other is left.
        """
        self._causes.pop(state, None)
        self._settle()

    def _settle(self) -> None:
        state = next((name for name in PRECEDENCE if name in self._causes), "")
        reason = self._causes.get(state, "")
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self.changed()

    # --- dispatch ---------------------------------------------------------------

    def _appended(self) -> None:
        if self._dispatching is None:
            pause = BUSY_PAUSE if self._busy else LIVE_PAUSE
            self._dispatching = self.clock.callLater(pause, self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = None
        if self.state in ("failed", "stopped"):
            return
        try:
            before = self.log.confirmed
            self.log.verify(VERIFY_STEP)
            unchecked = before < self.log.confirmed < self.log.end
            behind = self.dispatcher.behind
            far = behind > FAR
            self._busy = behind > BUSY
            if behind > VERY_FAR and not self._warmed:
                self._warmed = True
                self.in_thread(warm_up).addErrback(
                    lambda failure: self._log.failure(
                        "Cannot load numba, going on with numpy", failure
                    )
                )
            more = self.dispatcher.run(FAR_SLICE if far else SLICE)
        except DiskFull as error:
            self._derived_full = True
            self.disk_full(error)
            self._dispatching = self.clock.callLater(DISK_LOOK, self._dispatch)
            return
        except (RecordFault, RecordCrossesFile) as error:
            self._log.critical("Dispatch to consume queues and index stopped: {error}", error=error)
            self.bad_record(error)
            return
        if self._derived_full and not more:
            self._derived_full = False
            self._count_offsets()
        if more or unchecked:
            pause = BULK_PAUSE if self._in_bulk() and chosen() is NUMPY else 0.0
            self._dispatching = self.clock.callLater(pause, self._dispatch)

    def _in_bulk(self) -> bool:
        """
        Whether the log comes faster than clients write: it is being copied.
        """
        end, now = self.log.end, self.clock.seconds()
        came, seconds = end - self._seen[0], now - self._seen[1]
        self._seen = end, now
        return came > BULK_RATE * seconds

    def _stored_at(self, offset: int) -> int:
        """
        Store time of the record at C{offset}, in milliseconds; 0 for none.
        """
        if offset < self.log.min_offset or offset >= self.log.confirmed:
            return 0
        return stored_at(self.log.read(offset, 128), 0)

    def last_record_stored(self) -> int:
        """
        Store time of the last record held, in milliseconds since 1970; 0 for none.
        """
        return self._stored_at(self.log.last_record)

    # --- the checkpoint -----------------------------------------------------------

    def _note_flushed(self) -> None:
        """
        The log's time moves only over flushed records: over the last one if it is, else
        over the one that was last when the flush before this one ended.
        """
        log = self.log
        now = (log.confirmed, self.last_record_stored())
        end, stored = now if log.confirmed <= log.flushed else self._flush_mark
        if end <= log.flushed:
            self.checkpoint.log = max(self.checkpoint.log, stored)
        self._flush_mark = now

    def _flush_derived(self) -> Deferred[None]:
        mark, stored = self.dispatcher.mark(), self.dispatcher.last_timestamp
        return self.in_thread(self._write_derived, mark, stored).addErrback(
            self._derived_not_flushed
        )

    def _derived_not_flushed(self, failure: Failure) -> None:
        """
        Tried again soon, and made again after a crash: a full disk is no surprise here.
        """
        failure.trap(DiskFull)
        self._log.warn("Queues and index are not flushed: {error}", error=failure.value)

    def _write_derived(self, mark: DispatchMark, stored: int) -> None:
        """
        Make queues and index durable up to a mark, and then the mark; blocking.
        """
        self.queues.flush()
        if self.index is not None:
            self.index.flush()
        marks.save(mark_path(self.settings.root), self.log, mark)
        self.checkpoint.queues = max(self.checkpoint.queues, stored)
        self.checkpoint.index = max(self.checkpoint.index, stored)
        self.checkpoint.save(self.settings.root / CHECKPOINT)
