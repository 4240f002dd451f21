"""The delivery of delayed messages, on a master.

Each level sleeps until its first message is due; dispatch wakes one that was empty.  Levels that
are behind take turns, in slices short enough for other work.  Stock brokers look at each
level every 100 ms, and so are as much late as that, or more.

One delay level: its messages in their order, each at the millisecond it is due.

A level's messages have the same delay, so they are due in the order of its queue, and only the
first one has to be waited for.  What is due is stored again in the queue it was sent to; many may
wait for replicas or the disk at the same time, but the level's offset moves over them in order.

Source: docs/protocol/remoting.md, Delayed messages.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.delay.delay_offsets import LevelOffsets
from rmqha.broker.delay.due_copies import MOST, DueCopies
from rmqha.broker.state import BrokerState
from rmqha.errors import FlushFailed, MessageIllegal, NotWritable
from rmqha.ha.master.put_service import Putter
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.consume_queues import Moves
from rmqha.wire.columnar.queue_units import UNIT
from rmqha.wire.log.record import Record
from rmqha.wire.names import SCHEDULE_TOPIC

WINDOW = 1000
"""Most messages of a level that wait for replicas or the disk."""

LOOK = 1.0
"""Most seconds until a level is looked at again: the wall clock may be set meanwhile."""

RETRY = 1.0
"""Seconds until a store that takes no writes is tried again."""

GRAIN = 0.01
"""How exactly arrivals are noted while the wall clock is behind the log, in parts of the delay."""


@define(eq=False)
class Delivery:
    """What all levels share.

    @ivar delivered: Told of a level and its new offset.
    @ivar late: Told how late messages were stored, in milliseconds, and how many.
    @ivar copies: Stores many at a time; C{None} where that is not to be had.
    @ivar skipped: Messages that could not be delivered.
    @ivar unreadable: Messages that nobody gets until their topic has its queues again.
    """

    state: BrokerState
    writer: Putter
    delivered: Callable[[DelayLevel], None]
    late: Callable[[int, int], None]
    copies: DueCopies | None
    skipped: int = field(default=0, init=False)
    unreadable: int = field(default=0, init=False)
    quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.quiet = RateLimitedLog(self._log, self.state.clock)


@define(eq=False)
class _Flight:
    """Messages that are stored together and wait.

    @ivar count: How many.
    @ivar end: The queue offset behind them.
    """

    count: int
    end: int
    landed: bool = False


@define(eq=False)
class DelayLevel:
    """Delivers the messages of one level.

    @ivar number: From 1.
    @ivar delay: In seconds.
    @ivar done: The first message that is not delivered; all before it are.
    """

    number: int
    delay: float
    shared: Delivery
    done: int
    _next: int = field(init=False)
    _flying: deque[_Flight] = field(factory=deque, init=False)
    _flown: int = field(default=0, init=False)
    # Ends of the queue, and when all below was here, by the monotonic clock.
    _seen: deque[tuple[int, float]] = field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self._next = self.done

    @property
    def _queue(self) -> ConsumeQueue | None:
        """Where its messages wait; C{None} if there never was one."""
        return self.shared.state.store.queues.get(SCHEDULE_TOPIC, self.number - 1)

    @property
    def flying(self) -> int:
        """How many messages are stored, and wait for replicas or the disk."""
        return self._flown

    def step(self) -> float | None:
        """Deliver the next message if it is due, and what is due behind it if that is as usual.

        @return: Seconds after which this is worth calling again; C{None} if only after a message
            came, or one was delivered.
        """
        queue = self._queue
        if queue is None or self.flying >= WINDOW:
            return None
        self._pass_deleted(queue)
        unit = queue.unit(self._next)
        if unit is None:
            return None
        left = self._left(queue, unit[2])
        if left > 0:
            return min(left, LOOK)
        try:
            if self._deliver_run(queue):
                return 0.0
            self._deliver()
        except NotWritable as error:
            self.shared.quiet.warn(
                "not writable",
                "",
                "Delayed messages wait until the store takes writes again: {error}",
                error=error,
            )
            return RETRY
        self.shared.late(round(-left * 1000), 1)
        return 0.0

    def came(self) -> None:
        """Messages came whose store time is still to come: the wall clock is behind the log."""
        queue, now = self._queue, self.shared.state.clock.seconds()
        if queue is None:
            return
        if len(self._seen) > 1 and now - self._seen[-2][1] < GRAIN * self.delay:
            self._seen.pop()
        self._seen.append((queue.max_offset, now))

    def _left(self, queue: ConsumeQueue, due: int) -> float:
        """Seconds until the next message is due.

        A store time from the future would hold the whole level up; then what counts is the
        delay, from when the message was seen here.
        """
        while self._seen and self._seen[0][0] <= self._next:
            self._seen.popleft()
        left = (due - self.shared.state.store.now_ms()) / 1000
        if left <= self.delay:
            return left
        now = self.shared.state.clock.seconds()
        if not self._seen:
            self._seen.append((queue.max_offset, now))
        return self._seen[0][1] + self.delay - now

    def _pass_deleted(self, queue: ConsumeQueue) -> None:
        lost = queue.min_offset - self._next
        if lost > 0:
            self._skip(f"it and {lost - 1} more were deleted with old log files")
            self._next = queue.min_offset
            if not self._flying:
                self._moved(self._next)

    # --- delivery ---------------------------------------------------------------------

    def _deliver_run(self, queue: ConsumeQueue) -> bool:
        """Store all that are due, up to one that is unusual.

        @return: Whether any was stored.
        @raise NotWritable: If the store takes no writes now.
        """
        copies, now = self.shared.copies, self.shared.state.store.now_ms()
        units = b"" if copies is None else queue.units(self._next, min(MOST, WINDOW - self._flown))
        due = list(takewhile(now.__ge__, (unit[2] for unit in UNIT.iter_unpack(units))))
        if copies is None or len(due) < 2:
            return False
        flying, flight = self._flying, _Flight(0, 0)
        offsets = list(range(self._next, self._next + len(due)))

        def landed(held: bool) -> None:
            if held:
                self._landed(flying, flight)
            else:
                self._disk_failed()

        stored = copies.put(
            units, offsets, now, queue_id=self.number - 1, cancelled={}, landed=landed
        )
        flight.count = len(stored.queues)
        if not flight.count:
            return False
        for place, count in Counter(stored.queues).items():
            self._note_unread(*place, count)
        for time, count in Counter(due[: flight.count]).items():
            self.shared.late(now - time, count)
        self._next = flight.end = self._next + flight.count
        flying.append(flight)
        self._flown += flight.count
        if not stored.waits:
            self._landed(flying, flight)
        return True

    def _deliver(self) -> None:
        """@raise NotWritable: If the store takes no writes now."""
        shared = self.shared
        record = shared.state.lookup.by_queue_offset(SCHEDULE_TOPIC, self.number - 1, self._next)
        message = None if record is None else shared.state.messages.due(record)
        stored: Deferred[Any] = succeed(None)
        if record is None or message is None:
            self._skip(_named(record, "it is damaged, or has no target topic and queue"))
        elif shared.state.store.queues.outlived(message.topic, record.offset):
            self._skip(_named(record, f"topic {message.topic} was deleted after it was sent"))
        else:
            try:
                stored = shared.writer.put(message)
            except MessageIllegal as error:
                self._skip(_named(record, str(error)))
            else:
                self._note_unread(message.topic, message.queue_id, 1)
        self._next += 1
        flying, flight = self._flying, _Flight(1, self._next)
        flying.append(flight)
        self._flown += 1
        # Whatever the wait ends with, the message is in the log.
        stored.addCallbacks(lambda _: self._landed(flying, flight), self._not_flushed)

    def _landed(self, flying: deque[_Flight], flight: _Flight) -> None:
        flight.landed = True
        if flying is not self._flying:
            return
        end = self.done
        while flying and flying[0].landed:
            end = flying[0].end
            self._flown -= flying.popleft().count
        if end > self.done:
            self._moved(end)

    def _not_flushed(self, failure: Failure) -> None:
        failure.trap(FlushFailed, NotWritable)
        self._disk_failed()

    def _disk_failed(self) -> None:
        """Nothing more is stored until a restart, which begins at L{done}."""
        self._flying, self._flown = deque(), 0
        self._next = self.done
        self.shared.delivered(self)

    def _moved(self, end: int) -> None:
        self.done = end
        self.shared.delivered(self)

    def _note_unread(self, topic: str, queue_id: int, count: int) -> None:
        if self.shared.state.is_unread(topic, queue_id):
            self.shared.unreadable += count
            self.shared.quiet.warn(
                "not read",
                topic,
                "Delayed message {offset} of level {number} is in queue {queue} of {topic}, which "
                "is no longer read: rmqha topic change {topic} --read {count}",
                offset=self._next,
                number=self.number,
                queue=queue_id,
                topic=topic,
                count=queue_id + 1,
            )

    def _skip(self, reason: str) -> None:
        self.shared.skipped += 1
        self.shared.quiet.warn(
            "not delivered",
            str(self.number),
            "Delayed message {offset} of level {number} is skipped: {reason}",
            offset=self._next,
            number=self.number,
            reason=reason,
        )


def _named(record: Record | None, reason: str) -> str:
    if record is None:
        return "the log holds no such record"
    return f"{record.offset_msg_id}: {reason}"


SLICE = 0.002
"""Seconds of delivery in one reactor turn."""

AFTER_ERROR = 10.0
"""Seconds until the next try after an unexpected error in a level's delivery."""


@define(eq=False)
class Lateness:
    """How late messages were, of those that became due while this ran.

    @ivar counts: How many, by the bit length of their lateness in milliseconds.
    @ivar most: The latest, in milliseconds.
    """

    counts: Counter[int] = field(factory=Counter)
    most: int = 0

    def note(self, late: int, count: int = 1) -> None:
        """Count messages.

        @param late: Milliseconds between their time and their delivery.
        """
        self.counts[late.bit_length()] += count
        self.most = max(self.most, late)

    def status(self) -> dict[str, int]:
        """What C{/status} says of it."""
        return {
            "count": self.counts.total(),
            "p50": self.below(0.5),
            "p99": self.below(0.99),
            "max": self.most,
        }

    def below(self, part: float) -> int:
        """Milliseconds that a part of all was late at most, rounded up to a power of two less 1."""
        left = part * self.counts.total()
        for bits in sorted(self.counts):
            left -= self.counts[bits]
            if left <= 0:
                return min(self.most, (1 << bits) - 1)
        return 0


@define(eq=False)
class Schedule:
    """Delivers delayed messages when they are due: one L{DelayLevel} each, and one file of
    offsets.
    """

    state: BrokerState
    _offsets: LevelOffsets
    _delivery: Delivery | None = field(default=None, init=False)
    _lateness: Lateness = field(factory=Lateness, init=False)
    _began: int = field(default=0, init=False)
    _running: bool = field(default=False, init=False)
    _levels: dict[int, DelayLevel] = field(factory=dict, init=False)
    # Each level is in one of these: it waits for the time, for its turn, or for an event.
    _timers: dict[DelayLevel, IDelayedCall] = field(factory=dict, init=False)
    _ready: deque[DelayLevel] = field(factory=deque, init=False)
    _idle: set[DelayLevel] = field(factory=set, init=False)
    _turn: IDelayedCall | None = field(default=None, init=False)
    # Levels that units came to in the running slice of dispatch.
    _came: set[int] = field(factory=set, init=False)
    _landed: Deferred[None] | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        writer = self.state.writer
        if writer is not None:
            copies = DueCopies.of(self.state.store, writer, SCHEDULE_TOPIC)
            self._delivery = Delivery(self.state, writer, self._delivered, self._late, copies)

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to deliver; on a master only."""
        self._running = True
        self._began = self.state.store.now_ms()
        self.state.store.dispatcher.on_units.append(self._units)
        self.state.store.dispatcher.on_pause.append(self._paused)
        for queue in self.state.store.queues.of(SCHEDULE_TOPIC):
            self._wake(self._level(queue.queue_id + 1))

    def stop(self) -> Deferred[None]:
        """Deliver no more, and write the offsets.

        @return: Fires when no message waits and that is done, well or not.
        """
        if self._running:
            self._running = False
            self.state.store.dispatcher.on_units.remove(self._units)
            self.state.store.dispatcher.on_pause.remove(self._paused)
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._ready.clear()
            if self._turn is not None:
                self._turn.cancel()
        landed: Deferred[None] = succeed(None)
        if self._flying:
            landed = self._landed = Deferred()
        return (
            landed.addCallback(lambda _: self.state.store.flusher.flush())
            .addErrback(self._not_flushed)
            .addCallback(lambda _: self._offsets.stop())
        )

    @property
    def _flying(self) -> bool:
        return any(level.flying for level in self._levels.values())

    def _not_flushed(self, failure: Failure) -> None:
        if not failure.check(FlushFailed):
            self._log.failure(
                "Cannot flush delivered messages; they are delivered again after the restart",
                failure,
            )

    # --- what others know -------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        offsets = self._offsets.table().offset_table
        levels = {}
        for queue in self.state.store.queues.of(SCHEDULE_TOPIC):
            number = queue.queue_id + 1
            offset = max(offsets.get(number, 0), queue.min_offset)
            unit = queue.unit(offset)
            levels[str(number)] = {
                "offset": offset,
                "pending": queue.max_offset - offset,
                "nextDue": None if unit is None else unit[2],
            }
        status: dict[str, Any] = {"levels": dict(sorted(levels.items(), key=lambda i: int(i[0])))}
        if self._delivery is not None:
            status["undeliverable"] = self._delivery.skipped
            status["unreadable"] = self._delivery.unreadable
            status["lateMillis"] = self._lateness.status()
        return status

    # --- delivery ---------------------------------------------------------------------

    def _level(self, number: int) -> DelayLevel:
        level = self._levels.get(number)
        if level is None:
            assert self._delivery is not None, "only a master delivers"
            delay = self.state.messages.levels.deliver_time(number, 0) / 1000
            level = DelayLevel(number, delay, self._delivery, self._offsets.get(number))
            self._levels[number] = level
            self._idle.add(level)
        return level

    def _units(self, moves: Moves) -> None:
        for topic, queue_id in moves:
            if topic == SCHEDULE_TOPIC:
                self._came.add(queue_id + 1)

    def _paused(self) -> None:
        """Dispatch has paused: wake the levels that messages came to."""
        if not self._came:
            return
        came, self._came = self._came, set()
        behind = self.state.store.now_ms() < self.state.store.last_stored
        for number in came:
            level = self._level(number)
            if behind:
                level.came()
            self._wake(level)

    def _wake(self, level: DelayLevel) -> None:
        """Look at a level that waits for an event."""
        if self._running and level in self._idle:
            self._idle.remove(level)
            self._ready.append(level)
            self._later()

    def _rung(self, level: DelayLevel) -> None:
        del self._timers[level]
        self._ready.append(level)
        if self._turn is None:
            self._take_turns()

    def _later(self) -> None:
        if self._turn is None:
            self._turn = self.state.clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        self._take_turns()

    def _take_turns(self) -> None:
        """Let the levels deliver, one run of messages each, for a while."""
        end = self.state.clock.seconds() + SLICE
        while self._ready:
            level = self._ready.popleft()
            pause = self._step(level)
            if pause is None:
                self._idle.add(level)
            elif pause > 0:
                self._timers[level] = self.state.clock.callLater(pause, self._rung, level)
            else:
                self._ready.append(level)
            if self.state.clock.seconds() >= end:
                break
        if self._ready:
            self._later()

    def _step(self, level: DelayLevel) -> float | None:
        try:
            return level.step()
        except Exception:
            self._log.failure(
                "Delivery of delay level {number} failed, retrying in {s} s",
                Failure(),
                number=level.number,
                s=AFTER_ERROR,
            )
            return AFTER_ERROR

    def _delivered(self, level: DelayLevel) -> None:
        self._offsets.delivered(level.number, level.done)
        if self._landed is not None and not self._flying:
            landed, self._landed = self._landed, None
            landed.callback(None)
        # There may be room for more of them.
        self._wake(level)

    def _late(self, late: int, count: int) -> None:
        if self.state.store.now_ms() - late >= self._began:
            self._lateness.note(late, count)
