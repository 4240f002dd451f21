"""The delivery of delayed messages, on a master.

Each level sleeps until its first message is due; dispatch wakes one that was empty.  Levels that
are behind take turns, in slices short enough for other work.  Stock brokers look at each
level every 100 ms, and so are as much late as that, or more.

Source: docs/protocol/remoting.md, Delayed messages.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.delay.delay_level import DelayLevel, Delivery
from rmqha.broker.delay.delay_offsets import LevelOffsets
from rmqha.broker.sending.messages import Messages
from rmqha.errors import FlushFailed
from rmqha.ha.master.put_service import Putter
from rmqha.periodic import Job
from rmqha.store.derived.lookup import Lookup
from rmqha.store.store import Store
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.offsets import DelayOffsets

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

    def note(self, late: int) -> None:
        """Count a message.

        @param late: Milliseconds between its time and its delivery.
        """
        self.counts[late.bit_length()] += 1
        self.most = max(self.most, late)

    def below(self, part: float) -> int:
        """Milliseconds that a part of all was late at most, rounded up to a power of two less 1."""
        left = part * self.counts.total()
        for bits in sorted(self.counts):
            left -= self.counts[bits]
            if left <= 0:
                return min(self.most, (1 << bits) - 1)
        return 0


class Schedule:
    """Delivers delayed messages when they are due: one L{DelayLevel} each, and one file of
    offsets.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        store: Store,
        writer: Putter | None,
        lookup: Lookup,
        messages: Messages,
        offsets: LevelOffsets,
        clock: IReactorTime,
    ) -> None:
        """@param store: It is open.
        @param writer: C{None} on a slave, which delivers nothing.
        @param offsets: How far the levels are; loaded.
        @param clock: Its C{seconds} must not jump: give it a monotonic one.
        """
        self._store = store
        self._messages = messages
        self._offsets = offsets
        self._clock = clock
        self._delivery: Delivery | None = None
        if writer is not None:
            self._delivery = Delivery(
                store=store,
                writer=writer,
                lookup=lookup,
                messages=messages,
                clock=clock,
                delivered=self._delivered,
                late=self._late,
            )
        self._lateness = Lateness()
        self._began = 0
        self._running = False
        self._levels: dict[int, DelayLevel] = {}
        # Each level is in one of these: it waits for the time, for its turn, or for an event.
        self._timers: dict[DelayLevel, IDelayedCall] = {}
        self._ready: deque[DelayLevel] = deque()
        self._idle: set[DelayLevel] = set()
        self._turn: IDelayedCall | None = None
        # Levels that units came to in the running slice of dispatch.
        self._came: set[int] = set()
        self._landed: Deferred[None] | None = None

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to deliver; on a master only."""
        self._running = True
        self._began = self._store.now_ms()
        self._store.dispatcher.on_units.append(self._units)
        self._store.dispatcher.on_pause.append(self._paused)
        for queue in self._store.queues.of(SCHEDULE_TOPIC):
            self._wake(self._level(queue.queue_id + 1))

    def stop(self) -> Deferred[None]:
        """Deliver no more, and write the offsets.

        @return: Fires when no message waits and that is done, well or not.
        """
        if self._running:
            self._running = False
            self._store.dispatcher.on_units.remove(self._units)
            self._store.dispatcher.on_pause.remove(self._paused)
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
            landed.addCallback(lambda _: self._store.flusher.flush())
            .addErrback(self._not_flushed)
            .addCallback(lambda _: self._offsets.stop())
        )

    @property
    def _flying(self) -> bool:
        return any(level.flying for level in self._levels.values())

    def _not_flushed(self, failure: Failure) -> None:
        """What is not durable is delivered again."""
        if not failure.check(FlushFailed):
            self._log.failure(
                "Cannot flush delivered messages; they are delivered again after the restart",
                failure,
            )

    # --- what others know -------------------------------------------------------------

    def offsets(self) -> DelayOffsets:
        """How far each level is: on a master delivered, on a slave known to be delivered."""
        return self._offsets.table()

    def adopt(self, table: DelayOffsets) -> None:
        """Take over how far the master is; on a slave only.

        @param table: Its answer to request 45.
        """
        self._offsets.adopt(table)

    def jobs(self) -> Iterator[Job]:
        """What is done again and again."""
        yield from self._offsets.jobs()

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        offsets = self._offsets.table().offset_table
        levels = {}
        for queue in self._store.queues.of(SCHEDULE_TOPIC):
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
            lateness = self._lateness
            status["undeliverable"] = self._delivery.skipped
            status["lateMillis"] = {
                "count": lateness.counts.total(),
                "p50": lateness.below(0.5),
                "p99": lateness.below(0.99),
                "max": lateness.most,
            }
        return status

    # --- delivery ---------------------------------------------------------------------

    def _level(self, number: int) -> DelayLevel:
        level = self._levels.get(number)
        if level is None:
            assert self._delivery is not None, "only a master delivers"
            delay = self._messages.levels.deliver_time(number, 0) / 1000
            level = DelayLevel(number, delay, self._delivery, self._offsets.get(number))
            self._levels[number] = level
            self._idle.add(level)
        return level

    def _units(self, topic: str, queue_id: int, before: int, end: int) -> None:
        if topic == SCHEDULE_TOPIC:
            self._came.add(queue_id + 1)

    def _paused(self) -> None:
        """Dispatch has paused: wake the levels that messages came to."""
        if not self._came:
            return
        came, self._came = self._came, set()
        behind = self._store.now_ms() < self._store.last_stored
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
            self._turn = self._clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        self._take_turns()

    def _take_turns(self) -> None:
        """Let the levels deliver, one message each, for a while."""
        end = self._clock.seconds() + SLICE
        while self._ready:
            level = self._ready.popleft()
            pause = self._step(level)
            if pause is None:
                self._idle.add(level)
            elif pause > 0:
                self._timers[level] = self._clock.callLater(pause, self._rung, level)
            else:
                self._ready.append(level)
            if self._clock.seconds() >= end:
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

    def _late(self, late: int) -> None:
        if self._store.now_ms() - late >= self._began:
            self._lateness.note(late)
