"""Timer messages wait here, on a master: each is delivered at the millisecond it is due.

The log is the truth.  What waits is read from the timer topic, and only when it is due and where it
lies is kept; the progress that is written beside the log tells where to begin to read, and what is
delivered.  What became due between that and the end of the log may be delivered or not: at the
start its copies are looked for.

One writer stores what is due, in the order of times and of queue offsets.  A message that the store
does not take now is tried again, for as long as that takes.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from operator import itemgetter
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.delay.delay_offsets import LevelOffsets
from rmqha.broker.delay.due_copies import MOST, DueCopies, units_of
from rmqha.broker.delay.schedule import AFTER_ERROR, LOOK, RETRY, SLICE, Lateness
from rmqha.broker.pop.revive import Revival
from rmqha.broker.state import BrokerState
from rmqha.broker.timer.pending import TimerRecord
from rmqha.broker.timer.waiting import QUEUE, SCAN, WaitingTimers
from rmqha.errors import FlushFailed, MessageIllegal, NotWritable
from rmqha.ha.master.put_service import PutResult
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.consume_queues import Moves
from rmqha.store.derived.outcomes import DelayedCopies
from rmqha.wire.log.pop_record import LEAD
from rmqha.wire.log.record import Message, Record
from rmqha.wire.names import TIMER_TOPIC
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.later_slaves import TimerCheckpoint, TimerMetrics
from rmqha.wire.remoting.bodies.offsets import TimerProgress

SURE_COUNT, SURE_SPAN = 64, 10_000
"""Where nobody says how far deliveries were: this many in a row, over so many milliseconds, have
their copies in the log, so those that were due before have theirs."""

BURST = 0.005
"""Seconds of delivery in one reactor turn: what thousands of one moment take is a few of them."""

REST = 0.005
"""Seconds from one look to that for what came meanwhile, and from a delivery to the next: where
messages are due all the time, those of a few milliseconds are stored together."""

MOST_FLYING = 4000
"""Most that wait for replicas or the disk: a burst is not held up by their round trips."""

FEW = 16
"""Messages that are stored one by one in a row, at most."""


@define(eq=False)
class Timers:
    """Delivers timer messages.

    @ivar offsets: The table in which the progress is kept.
    @ivar revival: What is due of POP.
    @ivar waiting: What waits.
    @ivar lateness: How late messages were.
    @ivar error: What reading or delivery failed with, as long as it does; C{None} if it does not.
    """

    state: BrokerState
    offsets: LevelOffsets
    revival: Revival
    lateness: Lateness = field(factory=Lateness, init=False)
    error: str | None = field(default=None, init=False)
    waiting: WaitingTimers = field(init=False)
    # Which wait for the disk or replicas, and when they were due.
    _flying: dict[int, int] = field(factory=dict, init=False)
    # The next one of the queue to be read, and up to when all are taken that were read.
    _next: int = field(default=0, init=False)
    _taken: int = field(default=0, init=False)
    # When the last record of before the start was stored, in milliseconds since 1970.
    _last: int = field(default=0, init=False)
    # What is left of the start; C{None} behind it, and before it.
    _starting: Generator[None] | None = field(default=None, init=False)
    _ready: bool = field(default=False, init=False)
    _running: bool = field(default=False, init=False)
    _began: int = field(default=0, init=False)
    _changes: int = field(default=0, init=False)
    _changed: int = field(default=0, init=False)
    _call: IDelayedCall | None = field(default=None, init=False)
    _came: bool = field(default=False, init=False)
    # Until when what comes waits for others.
    _rests: float = field(default=0.0, init=False)
    _disk_failed: bool = field(default=False, init=False)
    _landed_all: Deferred[None] | None = field(default=None, init=False)
    # How many are stored at a time now: what is unusual comes in rows too.
    _most: int = field(init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.state.clock)
        state, times = self.state, self.state.settings.timers
        copies = DueCopies.of(
            state.store,
            state.writer,
            TIMER_TOPIC,
            precision=times.precision,
            window=times.window_ms,
        )
        self.waiting = WaitingTimers(state, self.revival, copies, self._quiet)
        self._most = 1 if copies is None else MOST

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Read what waits, and begin to deliver; on a master only."""
        self._running, self._began = True, self.state.store.now_ms()
        self.state.store.dispatcher.on_units.append(self._units)
        self.state.store.dispatcher.on_pause.append(self._paused)
        self._last = self.state.store.last_stored
        self._starting = self._start()
        self._wake()

    def stop(self) -> Deferred[None]:
        """Deliver no more.

        @return: Fires when no message waits for the disk or replicas.
        """
        if self._running:
            self._running = False
            self.state.store.dispatcher.on_units.remove(self._units)
            self.state.store.dispatcher.on_pause.remove(self._paused)
            self._cancel()
        if not self._flying or self._disk_failed:
            return succeed(None)
        self._landed_all = Deferred()
        return self._landed_all

    # --- what others know -------------------------------------------------------------

    def progress(self) -> TimerProgress | None:
        """How far deliveries are; while that is not known yet, or on a slave, as it was told."""
        if not self._ready:
            return self.offsets.timers
        first, least = self.waiting.pending.next_due(), self.waiting.pending.least()
        known = [*self._flying] if least is None else [least, *self._flying]
        return TimerProgress(
            low=min(known, default=self._next),
            next=self._next,
            time=self._taken if first is None else min(self._taken, first - 1),
            waiting=frozenset(self._flying),
            window=self.state.settings.timers.window_ms,
            slot=self.state.settings.timers.precision,
        )

    def checkpoint(self) -> TimerCheckpoint:
        """What request 60 is answered."""
        now, known = self.state.store.now_ms(), self.progress()
        queue = self._queue
        if known is None:
            # Nothing says what is done; but there may be nothing.
            return TimerCheckpoint(last_read_time=0 if queue and queue.has_messages else now)
        done = known.time
        if self._ready:
            first = self.waiting.pending.next_due()
            done = min(now, *((first or now) - 1,), *(due - 1 for due in self._flying.values()))
            if self.waiting.topics[self.revival.topic]:
                # A stock broker takes a check point before that for finished.
                done -= LEAD
        slot = self.state.settings.timers.precision
        return TimerCheckpoint(
            last_read_time=done // slot * slot,
            queue_offset=known.next,
            master_queue_offset=known.next,
            timestamp=self._changed,
            counter=self._changes,
        )

    def metrics(self) -> TimerMetrics:
        """What request 61 is answered."""
        waiting = {
            topic: {"count": count, "timeStamp": self._changed}
            for topic, count in self.waiting.topics.items()
            if count > 0
        }
        version = DataVersion(timestamp=self._changed, counter=self._changes)
        return TimerMetrics(data_version=version, timing_count=waiting)

    def info(self) -> dict[str, str]:
        """What request 28 is answered: how many seconds the first message is late, how many are not
        read, and how many wait.
        """
        first, queue = self.waiting.pending.next_due(), self._queue
        due = [*self._flying.values()] if first is None else [first, *self._flying.values()]
        late = (self.state.store.now_ms() - min(due)) // 1000 if due else 0
        unread = 0 if queue is None or not self._ready else queue.max_offset - self._next
        return {
            "timerReadBehind": str(max(0, late)),
            "timerOffsetBehind": str(max(0, unread)),
            "timerCongestNum": str(self.waiting.topics.total()),
        }

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        if self.state.writer is None:
            return {}
        return {
            "pending": dict(sorted(self.waiting.topics.items())),
            "nextDue": self.waiting.pending.next_due(),
            "reading": self._starting is not None,
            "error": self.error,
            "undeliverable": self.waiting.undeliverable,
            "lateMillis": self.lateness.status(),
        }

    # --- turns ------------------------------------------------------------------------

    @property
    def _queue(self) -> ConsumeQueue | None:
        """Where messages wait; C{None} if there never was one."""
        return self.state.store.queues.get(TIMER_TOPIC, QUEUE)

    def _units(self, moves: Moves) -> None:
        for topic, _ in moves:
            if topic == TIMER_TOPIC:
                self._came = True

    def _paused(self) -> None:
        if self._came:
            self._came = False
            self._wake()

    def _wake(self) -> None:
        """Look at what there is, when the last look is long enough ago."""
        now = self.state.clock.seconds()
        at = max(now, self._rests)
        if self._running and (self._call is None or self._call.getTime() > at):
            self._cancel()
            self._call = self.state.clock.callLater(at - now, self._take_turn)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _take_turn(self) -> None:
        """Read and deliver for a while, then let others."""
        self._call, pause = None, 0.0
        began, changes = self.state.clock.seconds(), self._changes
        self._rests, until = began + REST, began + (BURST if self._ready else SLICE)
        while pause == 0.0 and self.state.clock.seconds() < until:
            try:
                found = self._step()
                if self._starting is None:
                    self.error = None
            except Exception:
                self._fail(Failure())
                found = AFTER_ERROR
            if found is None or not self._running:
                return
            pause = found
        if pause and self._changes != changes:
            pause = max(pause, self._rests - self.state.clock.seconds())
        if self._call is None:
            self._call = self.state.clock.callLater(pause, self._take_turn)

    def _fail(self, why: Failure) -> None:
        """Tell of an error, unless it is that of before, and wait a while, whatever comes.  A start
        that it ended begins anew, and knows nothing.
        """
        self._rests = self.state.clock.seconds() + AFTER_ERROR
        before, self.error = self.error, repr(why.value)
        if self.error != before:
            self._log.failure("Timer messages wait, trying again every {s} s", why, s=AFTER_ERROR)
        if self._starting is not None:
            self._starting = self._start()

    def _step(self) -> float | None:
        """Do the next thing.

        @return: Seconds after which this is worth calling again; C{None} if only after a message
            came, or one was delivered.
        """
        if self._starting is not None:
            if next(self._starting, self) is self:
                self._starting, self._ready = None, True
                self.revival.on_settled = self.waiting.pending.settle
                self.offsets.timing = self.progress
                self._change()
                # The next start has less to read.  Where it fails the log says so.
                self.offsets.file.save_now().addErrback(lambda _: None)
            return 0.0
        queue = self._queue
        if queue is not None and self._next < queue.max_offset:
            least = queue.min_offset
            if self._next < least:
                why = f"it and {least - 1 - self._next} more were deleted"
                self.waiting.set_aside(self._next, why)
                self._next = least
                return 0.0
            self._next += self.waiting.note_run(
                queue, self._next, queue.max_offset, None, back=False
            )
            return 0.0
        if len(self._flying) >= MOST_FLYING:
            return None
        now = self.state.store.now_ms()
        most = min(max(FEW, self._most), MOST_FLYING - len(self._flying))
        found = self.waiting.pending.pop_run(now, most)
        if self.waiting.pending.settled:
            self.waiting.gone(self.revival.topic, self.waiting.pending.settled)
            self.waiting.pending.settled = 0
            self._change()
        if found and (pause := self._deliver_run(found, now)):
            return pause
        due = self.waiting.pending.next_due()
        return None if due is None else min(LOOK, max(0.0, (due - now) / 1000))

    # --- reading ----------------------------------------------------------------------

    def _start(self) -> Generator[None]:
        """Read what waits, and leave out what the log has the copies of."""
        self.waiting.clear()
        last, known, settings = self._last, self.offsets.timers, self.state.settings.timers
        if known and (known.window, known.slot) != (settings.window_ms, settings.precision):
            known = None
        queue = self._queue
        least, end = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        yield from self.revival.catch_up(last)
        yield from self.revival.read_copied()
        # From the end, so that a message that was stored anew is met there first, and acks before
        # their check point.
        first, left = least if known is None else max(known.low, least), end
        while queue is not None and left > first:
            left -= self.waiting.note_run(queue, first, left, known, back=True)
            yield
        self.waiting.end_start()
        self._next = end
        self._taken = max(last, 0 if known is None else known.time)
        due: list[tuple[int, int]] = []
        while found := self.waiting.pending.pop_run(last, SCAN):
            due += found
            yield
        yield from self._leave_out_delivered(due, sure=known is None)
        yield from self.revival.read_revive_topic()

    def _leave_out_delivered(self, due: list[tuple[int, int]], *, sure: bool) -> Generator[None]:
        """Let those wait again whose copies are not in the log.

        @param due: In their order.
        @param sure: Whether to end where it is sure that all before have theirs.
        """
        copies, in_a_row, newest = DelayedCopies(self.state.lookup), 0, 0
        while due:
            at, offset = due.pop()
            record = self.state.lookup.by_queue_offset(TIMER_TOPIC, QUEUE, offset)
            found = self.waiting.read(record)
            if record is not None and found is not None and found.pops:
                if self._was_revived(record, found, copies if sure else None):
                    self.waiting.done(found)
                else:
                    self.waiting.pending.back((at, offset))
            elif record is None or found is None or self.waiting.is_cancelled(found):
                self.waiting.done(found)
            elif found.cancels or found.at < found.due:
                self.waiting.pending.back((at, offset))
            elif (sure and in_a_row >= SURE_COUNT and newest - at > SURE_SPAN) or copies.has(
                record, at
            ):
                newest, in_a_row = newest or at, in_a_row + 1
                self.waiting.done(found)
            else:
                newest = in_a_row = 0
                self.waiting.pending.back((at, offset))
            yield

    def _was_revived(
        self, record: Record, found: TimerRecord, copies: DelayedCopies | None
    ) -> bool:
        """Whether what was due of a check point has come again, or will by its copy in the revive
        topic.

        @param copies: Finds that, where a stock broker may have made it.
        """
        if copies is not None and copies.has(record, found.due - LEAD):
            self.revival.drop(record)
            return True
        return self.revival.is_finished(record)

    # --- delivery ---------------------------------------------------------------------

    def _deliver_run(self, due: list[tuple[int, int]], now: int) -> float:
        """Store what is due, or the first of it where much is unusual.

        @param due: When each was, and its queue offset, in their order.
        @return: Seconds after which the next one may be.
        """
        done = 0
        try:
            while done < len(due):
                stored = self._store_run(due[done : done + self._most], now)
                if stored:
                    self._most = min(MOST, 2 * self._most)
                elif done < FEW:
                    self._most = max(1, self._most // 2)
                    self._deliver(*due[done], now)
                else:
                    break
                done += max(1, stored)
        except NotWritable as error:
            self._quiet.warn(
                "not writable",
                "",
                "Timer messages wait until the store takes writes again: {error}",
                error=error,
            )
            return RETRY
        finally:
            self.waiting.pending.back(*due[done:])
        return 0.0

    def _store_run(self, due: list[tuple[int, int]], now: int) -> int:
        """Store the first messages, up to one that is unusual.

        @return: How many.
        @raise NotWritable: If the store takes no writes now.
        """
        queue, copies, offsets = self._queue, self.waiting.copies, [offset for _, offset in due]
        if queue is None or copies is None:
            return 0

        def landed(held: bool) -> None:
            if held:
                self._landed(offsets[:count])
            else:
                self._ended_badly()

        units = units_of(queue, offsets)
        stored = copies.put(units, offsets, now, cancelled=self.waiting.cancelled, landed=landed)
        count = len(stored.queues)
        if not count:
            return self._pass(copies, units, due)
        if stored.waits:
            self._flying.update((offset, at) for at, offset in due[:count])
        self.state.counts.delivered.add(count)
        for at, many in Counter(map(itemgetter(0), due[:count])).items():
            if at >= self._began:
                self.lateness.note(now - at, many)
        self._taken = max(self._taken, due[count - 1][0])
        for (topic, _), many in Counter(stored.queues).items():
            self.waiting.gone(topic, many)
        self._change()
        return count

    def _pass(self, copies: DueCopies, units: bytes, due: list[tuple[int, int]]) -> int:
        """Be done with the first messages, as far as they are check points that are finished.

        @return: How many.
        """
        offsets, topics = [offset for _, offset in due], Counter[str]()
        count = copies.run.finished(units, offsets, self.revival.points.places, topics)
        for topic, many in topics.items():
            self.waiting.gone(topic, many)
        if count:
            self._taken = max(self._taken, due[count - 1][0])
            self._change()
        return count

    def _deliver(self, at: int, offset: int, now: int) -> None:
        """Store a message that is due, whatever it is.

        @raise NotWritable: If the store takes no writes now.
        """
        assert self.state.writer is not None, "only a master delivers"
        record = self.state.lookup.by_queue_offset(TIMER_TOPIC, QUEUE, offset)
        found = self.waiting.read(record)
        if record is not None and found is not None and found.pops:
            landed = self.revival.finish(record)
            self._took(at, found)
            if landed is not None:
                self._wait_for(landed, offset, at)
            return
        message = self._message(found, record, offset)
        if found is None or message is None:
            self._took(at, found)
            return
        try:
            stored = self.state.writer.put(found.waited(message, now))
        except MessageIllegal as error:
            self.waiting.set_aside(offset, str(error))
            self._took(at, found)
            return
        self._took(at, found)
        if message.topic != TIMER_TOPIC:
            self.state.counts.delivered.add(1)
            if at >= self._began:
                self.lateness.note(now - at)
        if not (stored.called and isinstance(stored.result, PutResult)):
            self._wait_for(stored, offset, at)

    def _wait_for(self, stored: Deferred[Any], offset: int, at: int) -> None:
        """Whatever the wait ends with, the message is in the log."""
        self._flying[offset] = at
        stored.addCallbacks(lambda _: self._landed([offset]), self._not_flushed)
        stored.addErrback(lambda why: self._log.failure("A timer message was not stored", why))

    def _message(
        self, found: TimerRecord | None, record: Record | None, offset: int
    ) -> Message | None:
        """What is to be stored for a message that is due; C{None} if nothing is."""
        if record is None or found is None:
            self.waiting.set_aside(offset, "its record was deleted, or damaged meanwhile")
            return None
        if found.at == found.due and found.cancels:
            self.waiting.cancelled.pop(found.slot, None)
            return None
        if self.waiting.is_cancelled(found):
            return None
        message = self.state.messages.due(record)
        if message is None:
            self.waiting.set_aside(offset, "it is damaged, or has no topic and queue to go to")
        elif self.state.store.queues.outlived(found.topic, record.offset):
            self.waiting.set_aside(offset, f"topic {found.topic} was deleted after it was sent")
        elif found.at < found.due:
            return self.state.messages.from_record(
                record,
                topic=TIMER_TOPIC,
                queue_id=QUEUE,
                properties=record.raw_properties,
                sys_flag=record.sys_flag,
            )
        else:
            return message
        return None

    def _took(self, at: int, found: TimerRecord | None) -> None:
        self._taken = max(self._taken, at)
        self.waiting.done(found)
        self._change()

    def _change(self) -> None:
        self._changes += 1
        self._changed = self.state.store.now_ms()
        self.offsets.file.dirty()

    def _landed(self, offsets: Sequence[int]) -> None:
        full = len(self._flying) >= MOST_FLYING
        for offset in offsets:
            self._flying.pop(offset, None)
        self.offsets.file.dirty()
        if full:
            self._wake()
        if not self._flying:
            self._all_landed()

    def _all_landed(self) -> None:
        if self._landed_all is not None:
            landed, self._landed_all = self._landed_all, None
            landed.callback(None)

    def _not_flushed(self, failure: Failure) -> None:
        failure.trap(FlushFailed, NotWritable)
        self._ended_badly()

    def _ended_badly(self) -> None:
        """The disk failed: nothing more is stored until a restart, which begins where it was."""
        self._disk_failed = True
        self._all_landed()
