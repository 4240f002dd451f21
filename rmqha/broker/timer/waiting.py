"""Timer messages that wait, as the log tells of them: which are cancelled, stored anew or to be set
aside, and how many there are of each topic.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from attrs import define, field

from rmqha.broker.delay.due_copies import DueCopies
from rmqha.broker.pop.revive import Revival
from rmqha.broker.state import BrokerState
from rmqha.broker.timer.pending import Identity, PendingTimers, TimerRecord
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.wire.log.record import Record, RecordProperties
from rmqha.wire.names import TIMER_TOPIC
from rmqha.wire.remoting.bodies.offsets import TimerProgress

QUEUE = 0
"""The one queue of the timer topic."""

SCAN = 1024
"""Messages whose times are read together."""


@define(eq=False)
class WaitingTimers:
    """What waits.  At the start it is read from the queue's end, so that a message that was stored
    anew is met there first.

    @ivar copies: Reads many at a time; C{None} where that is not compiled.
    @ivar quiet: Tells of what is set aside.
    @ivar pending: When they are due.
    @ivar topics: How many wait, by topic.
    @ivar cancelled: By slot the names of messages that are cancelled.
    @ivar undeliverable: Messages that were set aside, as they can never be delivered.
    """

    state: BrokerState
    revival: Revival
    copies: DueCopies | None
    quiet: RateLimitedLog
    pending: PendingTimers = field(factory=PendingTimers, init=False)
    topics: Counter[str] = field(factory=Counter, init=False)
    cancelled: dict[int, set[str]] = field(factory=dict, init=False)
    undeliverable: int = field(default=0, init=False)
    # During the start: messages that were stored anew, by how often, and what tells most of them
    # from others.
    _rolled: Counter[tuple[Identity, int]] = field(factory=Counter, init=False)
    _marks: set[int] = field(factory=set, init=False)

    def clear(self) -> None:
        """A start begins: nothing is known."""
        self.pending, self.undeliverable = PendingTimers(), 0
        for each in (self.topics, self.cancelled, self._rolled, self._marks):
            each.clear()

    def end_start(self) -> None:
        """All that was in the queue at the start waits."""
        self.pending.reverse()
        self._rolled.clear()
        self._marks.clear()

    def note_run(
        self, queue: ConsumeQueue, first: int, end: int, known: TimerProgress | None, *, back: bool
    ) -> int:
        """Let the first messages of a part of the queue wait.

        @param known: What is delivered of those from before the start.
        @param back: The last ones instead, as during the start.
        @return: How many: one at least.
        """
        first, end = (max(first, end - SCAN), end) if back else (first, min(end, first + SCAN))
        times = np.empty(0, np.int64)
        if self.copies is not None:
            units, marks = queue.units(first, end - first), self._marks if back else None
            times = self.copies.times(units, first, known, marks, self.topics, back=back)
        count = len(times)
        if not count:
            self._note(end - 1 if back else first, known, back=back)
            return 1
        start, step = (end - 1, -1) if back else (first, 1)
        self.pending.add_run(times, np.arange(start, start + step * count, step))
        return count

    def _note(self, offset: int, known: TimerProgress | None, *, back: bool) -> None:
        """Let a message wait.

        @param known: What is delivered of those from before the start.
        """
        found = self.read(self.state.lookup.properties(TIMER_TOPIC, QUEUE, offset))
        if found is None:
            self.set_aside(offset, "it is damaged, or does not say when and where it is due")
            return
        covered = known is not None and known.covers(found.at, offset)
        if back:
            if found.pops:
                record = self.state.lookup.by_queue_offset(TIMER_TOPIC, QUEUE, offset)
                if record is not None:
                    self.revival.note(record, finished=covered)
            elif (found.rolls or self._rolled) and self._was_rolled(found):
                return
        if covered or (found.pops and found.acks):
            return
        self.pending.add(found.at, offset)
        if found.cancels:
            self.cancelled.setdefault(found.slot, set()).add(found.cancels)
        else:
            self.topics[found.topic] += 1

    def read(self, record: Record | RecordProperties | None) -> TimerRecord | None:
        """What a record says; C{None} if it does not say when and where it is due."""
        try:
            return None if record is None else TimerRecord.read(record, self.state.settings.timers)
        except ValueError:
            return None

    def is_cancelled(self, found: TimerRecord) -> bool:
        """Whether another message cancels it."""
        names = self.cancelled.get(found.slot)
        return names is not None and not found.cancels and found.name in names

    def _was_rolled(self, found: TimerRecord) -> bool:
        """Whether a message was stored anew, further on, and waits there."""
        if found.rolls:
            self._rolled[found.identity, found.rolls] += 1
            self._marks.add(found.mark)
        anew = found.identity, found.rolls + 1
        if anew not in self._rolled:
            return False
        self._rolled[anew] -= 1
        if not self._rolled[anew]:
            del self._rolled[anew]
        return True

    def done(self, found: TimerRecord | None) -> None:
        """It waits no more, or waits anew."""
        if found is not None and not found.cancels:
            self.gone(found.topic, 1)

    def gone(self, topic: str, count: int) -> None:
        """So many of a topic wait no more."""
        self.topics[topic] -= count
        if not self.topics[topic]:
            del self.topics[topic]

    def set_aside(self, offset: int, reason: str) -> None:
        """A message can never be delivered."""
        self.undeliverable += 1
        self.quiet.warn(
            "not delivered",
            "",
            "Timer message {offset} is set aside: {reason}",
            offset=offset,
            reason=reason,
        )
