"""Timer messages that wait: what their records say, and the order in which they are due, of 8 bytes
for each but for those that came for the minute that has begun.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from heapq import heappop, heappush
from typing import Self

import numpy as np
import numpy.typing as npt
from attrs import define, evolve, field, frozen

from rmqha.config.broker_settings import TimerSettings
from rmqha.wire.log.encode import MAX_PROPERTIES
from rmqha.wire.log.hashing import MASK
from rmqha.wire.log.pop_record import CHECK_POINT_TAG, LEAD
from rmqha.wire.log.properties import encode, find
from rmqha.wire.log.record import Message, Record, RecordProperties
from rmqha.wire.names import (
    REAL_TOPIC,
    REVIVE_PREFIX,
    TAGS,
    TIMER_CANCELS,
    TIMER_DELIVER,
    TIMER_DEQUEUED,
    TIMER_ENQUEUED,
    TIMER_OUT,
    TIMER_ROLLS,
    TIMER_TOPIC,
    UNIQUE_KEY,
)

_REAL_TOPIC, _OUT, _DELIVER, _CANCELS, _ROLLS, _KEY = (
    name.encode()
    for name in (REAL_TOPIC, TIMER_OUT, TIMER_DELIVER, TIMER_CANCELS, TIMER_ROLLS, UNIQUE_KEY)
)

Identity = tuple[str, str, int, int, int]
"""Topic, unique key, slot, checksum and birth: what a message keeps wherever it is stored."""


@frozen(kw_only=True)
class TimerRecord:
    """A message that waits, or one that cancels another.

    @ivar record: What is known of the record where it waits.
    @ivar topic: Where it goes.
    @ivar slot: C{TIMER_OUT_MS}, in milliseconds since 1970; it is due in the slot behind that.
    @ivar due: When it is delivered; a cancel is done with when all of its slot are.
    @ivar at: When it is to be looked at: then, or when it is stored anew before that.
    @ivar cancels: The name of the message that it cancels; C{""} if it is none.
    @ivar rolls: How often it was stored anew.
    """

    record: Record | RecordProperties
    topic: str
    slot: int
    due: int
    at: int
    cancels: str
    rolls: int

    @classmethod
    def read(cls, record: Record | RecordProperties, settings: TimerSettings) -> Self:
        """@raise ValueError: If it does not say when and where it is due."""
        raw = record.raw_properties
        topic, slot = _text(raw, _REAL_TOPIC), int(_text(raw, _OUT))
        if not topic or not 0 <= slot < 1 << 48:
            raise ValueError(topic, slot)
        end, deliver = slot + settings.precision, _text(raw, _DELIVER)
        due = int(deliver) if deliver.isdigit() and slot < int(deliver) <= end else end
        cancels = _text(raw, _CANCELS)
        if cancels:
            # No message of another topic is cancelled, whoever wrote this.
            due, cancels = end + 1, cancels if cancels.startswith(f"{topic}+") else "+"
        at = _looked_at(slot, due, record.store_timestamp, settings.window_ms)
        if topic.startswith(REVIVE_PREFIX):
            # What is not done with comes again when its time is over, and not sooner; and it is
            # never stored anew, as its acks lie behind it.
            at = due = int(deliver) + LEAD
        rolls = _text(raw, _ROLLS)
        return cls(
            record=record,
            topic=topic,
            slot=slot,
            due=due,
            at=at,
            cancels=cancels,
            rolls=int(rolls) if rolls.isdigit() else 0,
        )

    @property
    def pops(self) -> bool:
        """Whether it is a check point of POP, or its acks."""
        return self.topic.startswith(REVIVE_PREFIX)

    @property
    def acks(self) -> bool:
        """Of those, whether it is acks: for them nothing is to be done."""
        return _text(self.record.raw_properties, TAGS.encode()) != CHECK_POINT_TAG

    @property
    def name(self) -> str:
        """By which it may be cancelled."""
        return f"{self.topic}+{_text(self.record.raw_properties, _KEY)}"

    @property
    def identity(self) -> Identity:
        """What tells it from others, and not from itself stored anew."""
        record = self.record
        key = _text(record.raw_properties, _KEY)
        return self.topic, key, self.slot, record.body_crc, record.born_timestamp

    @property
    def mark(self) -> int:
        """What compiled code tells most of them apart by: a number of 64 bits."""
        record = self.record
        return (record.born_timestamp << 20 ^ record.body_crc & MASK) & (1 << 64) - 1

    def waited(self, message: Message, now: int) -> Message:
        """A message made of it, told how long it has waited; if there is room for that."""
        told = {TIMER_ENQUEUED: str(self.record.store_timestamp), TIMER_DEQUEUED: str(now)}
        if message.topic == TIMER_TOPIC:
            told[TIMER_ROLLS] = str(self.rolls + 1)
        properties = message.properties + encode(told)
        fits = len(properties) <= MAX_PROPERTIES
        return evolve(message, properties=properties) if fits else message


def _text(raw: bytes, name: bytes) -> str:
    """One property; C{""} if there is none."""
    return (find(raw, name) or b"").decode("utf-8", "replace")


def _looked_at(slot: int, due: int, stored: int, window: int) -> int:
    """When a message is delivered, or stored anew before that, as stock brokers do it: the last
    wait is not much shorter than the others.
    """
    rest = slot - stored - window
    if rest < 0:
        return due
    return stored + (window // 2 if rest < window // 3 else window)


MINUTE = 60_000
"""Milliseconds."""

_BITS = 47
"""Of a queue offset; above it is the millisecond of the minute."""

_OFFSET = (1 << _BITS) - 1

FEW = 16
"""Messages up to which arrays are not worth it."""


@define(eq=False)
class PendingTimers:
    """Queue offsets by when they are due.

    Those of a minute lie in the order of their offsets until it begins; minutes that are further
    away have none that came before.

    @ivar count: How many wait.
    """

    count: int = field(default=0, init=False)
    # In the order of their first offsets.
    _minutes: dict[int, array[int]] = field(factory=dict, init=False)
    _order: list[int] = field(factory=list, init=False)
    # The minute that has begun, sorted, and how many of it are gone.
    _minute: int = field(default=-1, init=False)
    _sorted: array[int] = field(factory=lambda: array("q"), init=False)
    _gone: int = field(default=0, init=False)
    # Those that came for it, or for an earlier one, since; and those that came back.
    _late: list[tuple[int, int]] = field(factory=list, init=False)
    # The least offset of either, or a lesser one.
    _least_sorted: int = field(default=0, init=False)
    _least_late: int = field(default=0, init=False)
    _until_look: int = field(default=0, init=False)

    def add(self, due: int, offset: int) -> None:
        """Let one wait that is behind all that were added.

        @param due: In milliseconds since 1970.
        """
        minute, rest = divmod(due, MINUTE)
        if minute <= self._minute:
            self.back(due, offset)
            return
        self.count += 1
        found = self._minutes.get(minute)
        if found is None:
            found = self._minutes[minute] = array("q")
            heappush(self._order, minute)
        found.append(rest << _BITS | offset)

    def add_run(self, due: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        """Let several wait, as L{add} does one after the other.

        @param due: When each is, in milliseconds since 1970.
        @param offsets: Their queue offsets.
        """
        late = due < (self._minute + 1) * MINUTE
        if len(due) <= FEW or late.any():
            for one in zip(due.tolist(), offsets.tolist(), strict=True):
                self.add(*one)
            return
        minutes = due // MINUTE
        order = np.argsort(minutes, kind="stable")
        found = ((due - minutes * MINUTE) << _BITS | offsets)[order]
        starts = np.flatnonzero(np.diff(minutes[order], prepend=-1))
        ends = np.append(starts[1:], len(due))
        # Where there was none of a minute, its place is that of its first message.
        for run in np.argsort(order[starts]).tolist():
            start, end = int(starts[run]), int(ends[run])
            minute = int(minutes[order[start]])
            kept = self._minutes.get(minute)
            if kept is None:
                kept = self._minutes[minute] = array("q")
                heappush(self._order, minute)
            kept.frombytes(found[start:end].tobytes())
        self.count += len(due)

    def back(self, due: int, offset: int) -> None:
        """Let one wait that was taken."""
        self.count += 1
        self._least_late = min(offset, self._least_late) if self._late else offset
        heappush(self._late, (due, offset))

    def reverse(self) -> None:
        """All that were added came in the other direction: each before those behind it."""
        for found in self._minutes.values():
            found.reverse()
        by_offset = sorted(self._minutes.items(), key=lambda item: item[1][0] & _OFFSET)
        self._minutes = dict(by_offset)

    def next_due(self) -> int | None:
        """When the first one is due, or a time before; C{None} if none waits."""
        first = self._first()
        found = [] if first is None else [first[0]]
        if self._order:
            found.append(self._order[0] * MINUTE)
        return min(found, default=None)

    def pop(self, now: int) -> tuple[int, int] | None:
        """Take the first one that is due: when it was, and its queue offset."""
        if self._gone >= len(self._sorted) and self._order and self._order[0] * MINUTE <= now:
            self._begin(heappop(self._order))
        first = self._first()
        if first is None or first[0] > now:
            return None
        if self._late and self._late[0] == first:
            heappop(self._late)
            self._until_look -= 1
        else:
            self._gone += 1
        self.count -= 1
        return first

    def pop_run(self, now: int, most: int) -> list[tuple[int, int]]:
        """Take the first ones that are due, as L{pop} does one after the other.

        @param most: No more than so many.
        """
        found: list[tuple[int, int]] = []
        while len(found) < most and (one := self.pop(now)) is not None:
            found.append(one)
            if not self._late:
                # All of the minute that are due, at once.
                start, begin = self._gone, self._minute * MINUTE
                latest = min(now - begin, MINUTE) << _BITS | _OFFSET
                stop = min(len(self._sorted), start + most - len(found))
                self._gone = bisect_right(self._sorted, latest, start, stop)
                found += [
                    (begin + (each >> _BITS), each & _OFFSET)
                    for each in self._sorted[start : self._gone]
                ]
                self.count -= self._gone - start
        return found

    def least(self) -> int | None:
        """The least queue offset that waits, or a lesser one; C{None} if none waits."""
        if self._until_look <= 0 and self._late:
            self._least_late = min(offset for _, offset in self._late)
            self._until_look = len(self._late)
        found = [self._least_late] if self._late else []
        if self._gone < len(self._sorted):
            found.append(self._least_sorted)
        if self._minutes:
            found.append(next(iter(self._minutes.values()))[0] & _OFFSET)
        return min(found, default=None)

    def _first(self) -> tuple[int, int] | None:
        first = None
        if self._gone < len(self._sorted):
            rest, offset = divmod(self._sorted[self._gone], _OFFSET + 1)
            first = self._minute * MINUTE + rest, offset
        if self._late and (first is None or self._late[0] < first):
            first = self._late[0]
        return first

    def _begin(self, minute: int) -> None:
        found = self._minutes.pop(minute)
        self._minute, self._gone = minute, 0
        self._least_sorted = min(one & _OFFSET for one in found)
        self._sorted = array("q", sorted(found))
