"""One node's open store: the log, what is derived from it, and whether it takes writes.

It is made of files that L{rmqha.store.opening} has opened, and handed out by
L{StoreService<rmqha.store.service.StoreService>}, which holds the lock.  Its stop leaves the
files as a clean stop does.  Source: docs/protocol/store.rst, The store's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.store_settings import FlushDisk, StoreSettings
from rmqha.errors import DiskFull, FlushFailed, NotWritable
from rmqha.health import HealthReason
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.scan import scan
from rmqha.periodic import NodePart, Periodic
from rmqha.shutdown import Shutdown
from rmqha.store.derived.dispatch import DispatchChanges
from rmqha.store.derived.trim import Trimmer
from rmqha.store.environment import StoreEnvironment
from rmqha.store.log.flush import Flusher
from rmqha.store.log.record_run import RecordRun
from rmqha.store.log.retention import Retention
from rmqha.store.opening import StoreParts, keep_derived
from rmqha.store.paced_dispatch import PacedDispatch
from rmqha.store.published.publish import Publisher
from rmqha.store.scrub.scrubber import Scrubber
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.encode import BatchForm, encode, encode_batch
from rmqha.wire.log.properties import PAIR_END
from rmqha.wire.log.record import Message, offset_msg_id, stored_at
from rmqha.wire.store_layout import ABORT

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.batch_run import BatchRun

DISK_LOOK = 1.0
"""Seconds between looks at a full disk."""

FIRST_FLUSH = 1.0
"""Seconds from a start to the first flush of queues and index."""

CLOSING_SLICE = 5.0
"""Seconds that a stop spends on dispatch; a start goes on where it ended."""

TAKE_OVER_SLICE = 0.01
"""Seconds of dispatch in one reactor turn while nobody is served."""

STEP = 60_000
"""Milliseconds that a clock falls when it is set, or when another node becomes master: for as long
store times stand still."""

NEVER_SET = 1_577_836_800_000
"""A clock that is before 2020 is one that begins at 1970, or its maker's year, at each power cut: a
log knows better.  In milliseconds since 1970."""

PRECEDENCE = ("stopped", "failed", "fenced", "disk-full", "read-only")
"""Why writes may be refused; what comes first is told when there are several."""


@frozen
class Receipt:
    """Where a message went.

    @ivar begin: Physical offset of its (first) record.
    @ivar end: Just past its (last) record.
    @ivar queue_offset: Its (first) queue offset.
    @ivar message_id: The id a producer is told; several, with commas, for a batch.
    """

    begin: int
    end: int
    queue_offset: int
    message_id: str


class Store(NodePart):
    """The log of one node and everything derived from it, open.

    @ivar state: Why writes are refused, C{""} while they are not.
    @ivar reason: What explains it, in words.
    @ivar recovery: What the opening found at the log's end.
    @ivar kept: The cut that the opening made, if it made one.
    @ivar lost: What the opening found missing at the log's end, if anything.
    @ivar durable: The end of a record up to which the log is on the disk.
    @ivar trimmer: Deletes files of queues and index after those of the log.
    @ivar last_stored: When the last record was stored, in milliseconds since 1970.
    @ivar compiled: Whether batches are written by compiled code.
    """

    compiled = COMPILED

    _log = Logger()

    def __init__(
        self, settings: StoreSettings, environment: StoreEnvironment, parts: StoreParts
    ) -> None:
        self.settings = settings
        self.environment = environment
        self.state = ""
        self.reason = ""
        # Every write asks what time it is.
        self.now_ms = environment.now_ms
        self.disk_use = environment.disk_use
        self.log = log = parts.log
        self.queues, self.index = parts.queues, parts.index
        self.dispatcher, self.checkpoint = parts.dispatcher, parts.checkpoint
        self.recovery, self.kept, self.lost = parts.recovery, parts.kept, parts.lost
        self.last_stored = self._stored_at(log.last_record)
        self._parts = parts
        self._next, self._ends = parts.next_offsets, parts.ends
        self._counting = False
        # Where the log ended when what is in no queue was counted too, -1 before that.
        self._counted_to = -1
        self._causes: dict[str, str] = {}
        self._room_wanted = 0
        self._waiting: list[Callable[[], None]] = []
        self._flush_mark = (0, 0)
        # The latest store time that was seen, and the record that has it.
        self._latest = self.last_stored, log.last_record
        self.durable = log.confirmed
        clock = environment.clock
        self._room = Periodic("waiting for room on the disk", clock, self._look_at_disk)
        self._derived = Periodic(
            "flushing queues and index", clock, self._flush_derived, vital=True
        )
        self._dispatch = PacedDispatch(
            log=log,
            dispatcher=self.dispatcher,
            environment=environment,
            wanted=lambda: self.state not in ("failed", "stopped"),
            disk_full=self.disk_full,
            whole=self._whole_again,
        )
        self.flusher = Flusher(
            log=log,
            settings=settings,
            clock=environment.clock,
            fsync=environment.fsync,
            on_failure=self._flush_failed,
        )
        self.publisher = Publisher(
            settings=settings,
            environment=environment,
            log=log,
            point=parts.point,
            index=parts.splits,
        )
        self.trimmer = Trimmer(self.queues, self.index, environment.in_thread)
        self.retention = Retention(
            log=log,
            settings=settings,
            environment=environment,
            dispatched=lambda: self.dispatcher.position,
            follow=self.trimmer.follow,
            full=self._disk_nearly_full,
            arrived=parts.arrived,
        )
        self.scrubber = Scrubber(
            log=log, settings=settings, environment=environment, checksums=parts.checksums
        )

    # --- start and stop -----------------------------------------------------

    def start(self) -> None:
        """Begin to flush, to dispatch, to publish and to look after the disk."""
        log = self.log
        self.flusher.start()
        # What the opening has checked and dispatched is kept soon: a node that ends soon after
        # its start need not do it again.
        self._note_flushed()
        self._derived.start(min(FIRST_FLUSH, self.settings.queue_flush_thorough_interval))
        log.appended.append(self._dispatch.soon)
        log.flush_listeners.append(self._note_flushed)
        if self.settings.flush_disk is FlushDisk.SYNC_FLUSH:
            log.appended.append(self.flusher.nudge)
        self.publisher.start()
        self.retention.start()
        self.scrubber.start()
        if self._parts.starved is not None:
            # What dispatch has not seen may use queue offsets: no writes before it has.
            self._dispatch.starve(self._parts.starved)
            self._dispatch.soon()

    def change(self, settings: StoreSettings) -> None:
        """Flush and delete as these settings say from now on; in all else they are the same."""
        self.settings = self.retention.settings = settings
        self.flusher.change(settings)

    def stop(self) -> Deferred[None]:
        """Take no more writes, flush everything and close the files.

        @return: Fires when that is done.  Fails with L{ShutdownFailed} when a step of it did: the
            files are closed then too, but C{abort} stays, and the next start makes it good.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        failed = "failed" in self._causes
        self._refuse("stopped", "the node is stopping")
        shutdown = Shutdown("the store", self.environment.clock)
        await shutdown.step("waiting for room on the disk", self._room.stop)
        derived = shutdown.step("flushing queues and index", self._derived.stop)
        await shutdown.step("dispatch", self._dispatch.stop)
        await shutdown.step("the scrubber", self.scrubber.stop)
        await shutdown.step("retention", self.retention.stop)
        await shutdown.step("deleting queue and index files", self.trimmer.stop)
        await shutdown.step("publishing", self.publisher.stop)
        await shutdown.step("flushing the log", self.flusher.stop)
        await derived
        clean = not failed and not shutdown.failed
        await shutdown.step("closing", self.environment.in_thread, self._close, clean=clean)
        shutdown.finish()

    def _close(self, *, clean: bool) -> None:
        """Leave the files as a clean stop does, if it is one, and close them; blocking."""
        try:
            if clean and self.flusher.failure is None:
                self.dispatcher.run(CLOSING_SLICE)
                behind = self.dispatcher.behind
                stored = self._stored_at(self.log.last_record)
                self.checkpoint.log = stored or self.checkpoint.log
                self._write_derived(
                    self.dispatcher.changes(), self.dispatcher.last_timestamp if behind else stored
                )
                self.publisher.close()
                (self.settings.root / ABORT).unlink(missing_ok=True)
                fsync_folder(self.settings.root)
        finally:
            self._parts.close()

    def health(self) -> Iterator[HealthReason]:
        """What is wrong with the files, beyond L{state}."""
        self._note_latest()
        behind = (self._latest[0] - self.now_ms()) / 1000
        if behind * 1000 > STEP:
            yield HealthReason(
                "clock-behind-log",
                f"the clock here is {behind:.0f} s behind the store time of the record at byte "
                f"{self._latest[1]}: this clock is wrong, or one was when that record was stored",
            )
        copied = self.log.copied
        if len(copied):
            first = next(iter(copied))
            yield HealthReason(
                "faults-from-master",
                f"damaged records that are as the master had them: {len(copied)}, the first at "
                f"byte {first.offset}: {first.reason}",
            )

    def faults_from_master(self) -> dict[str, Any]:
        """Damaged records that are as the master had them: C{faultsFromMaster} of C{/status}."""
        self.log.copied.keep_within(self.log.min_offset, self.log.end)
        return self.log.copied.status()

    @property
    def most_open(self) -> int:
        """How many files of the store may be open: of the log each, and its map once more."""
        derived = self.queues.descriptors.limit
        if self.index is not None:
            derived += self.index.descriptors.limit
        return derived + 2 * len(self.log.folder.files)

    def _whole_again(self) -> None:
        """Queues and index lack nothing any more for which there was no room."""
        self._counting = True
        self._count_offsets().addErrback(
            lambda failure: self._log.failure("Cannot find the queues' next offsets", failure)
        )

    def _count_offsets(self) -> Deferred[None]:
        """Each queue goes on where dispatch found its end, once it has found it.  No message is put
        meanwhile.
        """

        def counted(offsets: dict[tuple[str, int], int]) -> None:
            self._next, self._counting = offsets, False

        found = self.environment.in_thread(self.queues.next_offsets, self._next)
        return found.addCallback(counted)

    # --- writing --------------------------------------------------------------

    def put(self, message: Message, *, batch: bool = False) -> Receipt:
        """Store a message: the one door for writes on a master.

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
        key = (message.topic, message.queue_id)
        if batch and self.compiled:
            run = BatchRun.of(BatchForm.of(message, limit), key)
            if run.read(message.body, 0, len(message.body)):
                begin, end = self.put_run(run, b"")
                return Receipt(begin, end, run.queue_offset, run.ids().decode())
        records = (
            encode_batch(message, max_message_size=limit)
            if batch
            else [encode(message, max_message_size=limit)]
        )
        counts = message.has_unit
        first = self._next.get(key, 0) if counts else 0
        queue_offsets = range(first, first + len(records)) if counts else [0] * len(records)
        stored = self._store_time()
        try:
            begin = self.log.put(records, queue_offsets, stored)
        except (DiskFull, FlushFailed) as error:
            raise self._no_room(error, sum(map(len, records))) from error
        if counts:
            self._next[key] = first + len(records)
        self.last_stored = stored
        ids, offset = [], begin
        for record in records:
            ids.append(offset_msg_id(message.store_host, offset))
            offset += len(record)
        return Receipt(begin, offset, first, ",".join(ids))

    def put_run(self, run: RecordRun, born_host: bytes) -> tuple[int, int]:
        """Store the messages of a run, or as many of the first as fit into a file of the log.

        @param run: What was read; it says then how many were stored.
        @param born_host: Address and port of who sent them, as a record has them.
        @return: Physical offset of the first record, and just past the last.
        @raise NotWritable: If the store takes no writes now; none is stored.
        @raise MessageIllegal: If the first one does not fit any file.
        """
        if self.state:
            raise NotWritable(self.state, self.reason)
        stored = self._store_time()
        try:
            begin = self.log.put_run(run, born_host, self._next, stored)
        except (DiskFull, FlushFailed) as error:
            raise self._no_room(error, run.fitting(self.log.file_size)[1]) from error
        self.last_stored = stored
        return begin, self.log.end

    def _store_time(self) -> int:
        """When a record that is put now is stored.

        Times fall by what clocks are set by, and by no more than that: one message of a moment
        when the clock was ahead would else give its time to all that follow.
        """
        now = self.now_ms()
        if now >= self.last_stored:
            return now
        if self.last_stored - now <= STEP or now < NEVER_SET:
            return self.last_stored
        self._note_latest()
        self._log.warn(
            "The clock is {seconds:.0f} s behind the store time of the log's last record; what is "
            "stored from now on has the clock's time",
            seconds=(self.last_stored - now) / 1000,
        )
        return now

    def _note_latest(self) -> None:
        stored, offset = self.last_record_stored(), self.log.last_record
        gone = not self.log.min_offset <= self._latest[1] <= offset
        if stored >= self._latest[0] or gone:
            self._latest = stored, offset

    def _no_room(self, error: DiskFull | FlushFailed, wanted: int) -> NotWritable:
        """Take note that the disk did not take what was put.

        @param wanted: In bytes.
        """
        if isinstance(error, DiskFull):
            self._room_wanted = wanted
            self.disk_full(error)
        else:
            self._flush_failed(error)
        return NotWritable(self.state, self.reason)

    async def took_over(self) -> None:
        """The log has grown by what another node had written: bring queues, index and offsets to
        its end, before anything is put behind it.

        What readers may not see yet gets no place in queues and index; the queue offsets that it
        has are given to no other message.
        """
        try:
            while self.dispatcher.run(TAKE_OVER_SLICE):
                await deferLater(self.environment.clock, 0.0)
        except DiskFull as error:
            self._dispatch.starve(error)
            self._dispatch.soon()
        await self._count_offsets()
        ahead = await self.environment.in_thread(self.dispatcher.offsets_ahead)
        for key, offset in ahead.items():
            self._next[key] = max(self._next.get(key, 0), offset)
        self._counted_to = self.log.confirmed
        self.last_stored = max(self.last_stored, self.last_record_stored())

    @property
    def knows_ends(self) -> bool:
        """Whether L{next_offset} is right: queues may lack what the log has."""
        return not self.dispatcher.behind or self.log.confirmed == self._counted_to

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that a new message gets."""
        return max(self.queues.end(topic, queue_id), self._next.get((topic, queue_id), 0))

    def begin(self, topic: str, queue_id: int, offset: int) -> int:
        """Let a queue that has no message go on where somebody counts on it, as in
        L{ConsumeQueues.begin}.  Where queues end must be known.

        @return: What L{next_offset} says then.
        """
        key, end = (topic, queue_id), self.next_offset(topic, queue_id)
        # What is given out and in no queue is in the log, and readers do not see it yet.
        if offset > end == self.queues.end(topic, queue_id):
            end = self._next[key] = self.queues.begin(topic, queue_id, offset)
        return end

    def fence(self, reason: str) -> None:
        """Refuse writes for the rest of the store's life: another master is the later one."""
        self._refuse("fenced", reason)

    def disk_full(self, error: DiskFull) -> None:
        """Refuse writes until there is room again."""
        self._refuse("disk-full", str(error))
        self._room.start(DISK_LOOK)

    def with_room(self, action: Callable[[], None]) -> None:
        """Do what writes to the disk; if that is full, again and again until it succeeds, and no
        writes are taken before.

        @param action: Raises L{DiskFull} if there is no room.
        """
        try:
            action()
        except DiskFull as error:
            self._waiting.append(action)
            self.disk_full(error)

    def _written(self) -> bool:
        """Do what there was no room for; whether there is nothing left of it."""
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            self.with_room(action)
        return not self._waiting

    def _look_at_disk(self) -> None:
        try:
            whole = not self._dispatch.starved and not self._counting
            room = self._written() and whole and self.log.has_room(self._room_wanted)
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
        """Take no writes; several causes may hold at once."""
        self._causes[state] = reason
        self._settle()

    def _allow(self, state: str) -> None:
        """One cause to refuse writes is gone; they are taken again when no other is left."""
        self._causes.pop(state, None)
        self._settle()

    def _settle(self) -> None:
        state = next((name for name in PRECEDENCE if name in self._causes), "")
        reason = self._causes.get(state, "")
        if (state, reason) != (self.state, self.reason):
            self.state, self.reason = state, reason
            self.environment.changed()

    def _stored_at(self, offset: int) -> int:
        """Store time of the record at C{offset}, in milliseconds; 0 for none."""
        if offset < self.log.min_offset or offset >= self.log.confirmed:
            return 0
        return stored_at(self.log.read(offset, 128), 0)

    def last_record_stored(self) -> int:
        """Store time of the last record held, in milliseconds since 1970; 0 for none."""
        return self._stored_at(self.log.last_record)

    # --- what readers may see -------------------------------------------------------

    @property
    def readable(self) -> int:
        """Up to which physical offset readers may see the log."""
        return self.dispatcher.end

    def seen(self) -> int:
        """Just past the last record that readers may have seen: what they may see can end within
        the next one, of which they see nothing.  Reads what is not dispatched of it.
        """
        end = self.dispatcher.position
        for _, block in scan(self.log, end, self.readable, crc=False):
            end = block.end
        return end

    def confirm(self, offset: int) -> None:
        """Every member of the set that counts has the log up to an offset: readers may see it.
        What they may see already stays.

        @param offset: Physical; it may be beyond the log's end, of bytes that are about to come.
        """
        limit = self.dispatcher.limit
        if limit is None or offset <= limit:
            return
        self.dispatcher.limit = offset
        if limit < self.log.confirmed:
            self._dispatch.soon()

    def clamp_confirm(self) -> None:
        """Whoever wrote the log is not heard any more: what was confirmed beyond its end may come
        from the next one as other bytes, which nobody has confirmed.
        """
        limit = self.dispatcher.limit
        if limit is not None:
            self.dispatcher.limit = min(limit, self.log.confirmed)

    # --- the checkpoint -----------------------------------------------------------

    def _note_flushed(self) -> None:
        """The log's time moves only over flushed records: over the last one if it is, else
        over the one that was last when the flush before this one ended.
        """
        log = self.log
        now = (log.confirmed, self.last_record_stored())
        end, stored = now if log.confirmed <= log.flushed else self._flush_mark
        if end <= log.flushed:
            self.durable = max(self.durable, end)
            self.checkpoint.log = stored or self.checkpoint.log
        self._flush_mark = now

    def _flush_derived(self) -> Deferred[None]:
        self._derived.start(self.settings.queue_flush_thorough_interval)
        dispatcher = self.dispatcher
        stored = dispatcher.last_timestamp if dispatcher.behind else self.last_record_stored()
        changes = dispatcher.changes()
        return self.environment.in_thread(self._write_derived, changes, stored).addErrback(
            self._derived_not_flushed
        )

    def _derived_not_flushed(self, failure: Failure) -> None:
        """Tried again soon, and made again after a crash: a full disk is no surprise here."""
        failure.trap(DiskFull)
        self._log.warn("Queues and index are not flushed: {error}", error=failure.value)

    def _write_derived(self, changes: DispatchChanges, stored: int) -> None:
        """Make queues and index durable up to a mark, and then the mark; blocking."""
        if self.dispatcher.limit is not None:
            self.checkpoint.confirm = self.readable
        keep_derived(
            self.settings.root,
            self.dispatcher,
            self._ends.marked(changes),
            checkpoint=self.checkpoint,
            stored=stored,
            durable=self.durable,
        )
