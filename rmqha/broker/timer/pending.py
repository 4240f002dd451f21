"""Timer messages that wait: what their records say, and the order in which they are due, of 8 bytes
for each.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappush
from itertools import groupby
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

_Keys = npt.NDArray[np.int64]
"""Milliseconds of one minute and queue offsets."""


@define(eq=False)
class PendingTimers:
    """Queue offsets by when they are due.

    Those of a minute lie in the order of their offsets until it begins; minutes that are further
    away have none that came before.

    @ivar count: How many wait.
    @ivar settled: How many wait no more without being taken, since this was set to 0.
    """

    count: int = field(default=0, init=False)
    settled: int = field(default=0, init=False)
    # In the order of their first offsets.
    _minutes: dict[int, array[int]] = field(factory=dict, init=False)
    _order: list[int] = field(factory=list, init=False)
    # The offsets that do not wait until they are due, by minute.
    _settled: dict[int, array[int]] = field(factory=dict, init=False)
    # Minutes that have begun: what is left of them in sorted runs, each longer than the next.
    _begun: dict[int, list[_Keys]] = field(factory=dict, init=False)
    # The least offset of these, or a lesser one, and after how many more it is looked for.
    _least: int = field(default=0, init=False)
    _until_look: int = field(default=0, init=False)

    def add(self, due: int, offset: int) -> None:
        """Let one wait that is behind all that were added.

        @param due: In milliseconds since 1970.
        """
        minute, rest = divmod(due, MINUTE)
        self._add(minute, np.array([rest << _BITS | offset]))

    def add_run(self, due: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        """Let several wait, as L{add} does one after the other.

        @param due: When each is, in milliseconds since 1970; those do not wait of which it is
            negative.
        @param offsets: Their queue offsets.
        """
        waits = due >= 0
        due, offsets = due[waits], offsets[waits]
        if not len(due):
            return
        minutes = due // MINUTE
        keys = (due - minutes * MINUTE) << _BITS | offsets
        if (minutes == minutes[0]).all():
            # As those that came within a few milliseconds; the rest would take most of the time.
            self._add(int(minutes[0]), keys)
            return
        order = np.argsort(minutes, kind="stable")
        minutes, keys = minutes[order], keys[order]
        starts = np.flatnonzero(np.diff(minutes, prepend=-2))
        ends = np.append(starts[1:], len(due))
        # Where there was none of a minute, its place is that of its first message.
        for run in np.argsort(order[starts]).tolist():
            start, end = int(starts[run]), int(ends[run])
            self._add(int(minutes[start]), keys[start:end])

    def settle(self, due: int, offset: int) -> None:
        """Let one not be taken, whether it was added yet or not, unless its minute has begun: who
        takes it finds that there is nothing to be done.
        """
        minute = due // MINUTE
        if minute not in self._begun:
            self._settled.setdefault(minute, array("q")).append(offset)

    def back(self, *taken: tuple[int, int]) -> None:
        """Let some wait that were taken, in their order."""
        self.count += len(taken)
        for minute, some in groupby(taken, lambda one: one[0] // MINUTE):
            if minute not in self._begun:
                self._begin(minute)
            keys = [(due - minute * MINUTE) << _BITS | offset for due, offset in some]
            self._join(minute, np.array(keys, np.int64))

    def reverse(self) -> None:
        """All that were added came in the other direction: each before those behind it."""
        for found in self._minutes.values():
            found.reverse()
        by_offset = sorted(self._minutes.items(), key=lambda item: item[1][0] & _OFFSET)
        self._minutes = dict(by_offset)

    def next_due(self) -> int | None:
        """When the first one is due, or a time before; C{None} if none waits."""
        found = [minute * MINUTE for minute in self._order[:1]]
        if self._begun:
            minute = min(self._begun)
            first = min(int(run[0]) for run in self._begun[minute])
            found.append(minute * MINUTE + (first >> _BITS))
        return min(found, default=None)

    def pop_run(self, now: int, most: int) -> list[tuple[int, int]]:
        """Take the first ones that are due: when each was, and its queue offset.

        @param most: No more than so many.
        """
        found: list[tuple[int, int]] = []
        while self._begin_until(now):
            minute, room = min(self._begun), most - len(found)
            latest = min(now - minute * MINUTE, MINUTE) << _BITS | _OFFSET
            runs = self._begun[minute]
            heads = [
                run[: run[:room].searchsorted(latest, "right")] for run in runs if run[0] <= latest
            ]
            if not heads or not room:
                break
            keys = heads[0] if len(heads) == 1 else np.sort(np.concatenate(heads))[:room]
            last = keys[-1]
            left = [
                run if run[0] > last else run[run.searchsorted(last, "right") :] for run in runs
            ]
            self._begun[minute] = [run for run in left if len(run)]
            if not self._begun[minute]:
                del self._begun[minute]
            dues = (keys >> _BITS) + minute * MINUTE
            found += zip(dues.tolist(), (keys & _OFFSET).tolist(), strict=True)
        self.count -= len(found)
        self._until_look -= len(found)
        return found

    def least(self) -> int | None:
        """The least queue offset that waits, or a lesser one; C{None} if none waits."""
        if self._until_look <= 0 and self._begun:
            runs = [run for runs in self._begun.values() for run in runs]
            self._least = min(int((run & _OFFSET).min()) for run in runs)
            # A look at sixteen for each that is taken.
            self._until_look = sum(map(len, runs)) // 16
        found = [self._least] if self._begun else []
        if self._minutes:
            found.append(next(iter(self._minutes.values()))[0] & _OFFSET)
        return min(found, default=None)

    def _add(self, minute: int, keys: _Keys) -> None:
        self.count += len(keys)
        if minute in self._begun:
            self._join(minute, np.sort(keys))
            return
        if minute not in self._minutes:
            self._minutes[minute] = array("q")
            heappush(self._order, minute)
        self._minutes[minute].frombytes(keys.tobytes())

    def _begin_until(self, now: int) -> bool:
        """Begin the first minute, if it is time and none before it has begun.

        @return: Whether any has begun.
        """
        while self._order and self._order[0] < min(self._begun, default=now // MINUTE + 1):
            minute = self._order[0]
            self._begin(minute)
            if not self._begun[minute]:
                del self._begun[minute]
        return bool(self._begun)

    def _begin(self, minute: int) -> None:
        keys = np.frombuffer(self._minutes.pop(minute, b""), np.int64)
        self._begun[minute] = []
        if not len(keys):
            return
        self._order.remove(minute)
        heapify(self._order)
        settled = self._settled.pop(minute, ())
        if settled:
            waiting = keys[~np.isin(keys & _OFFSET, np.frombuffer(settled, np.int64))]
            self.settled += len(keys) - len(waiting)
            self.count -= len(keys) - len(waiting)
            keys = waiting
        if len(keys):
            self._join(minute, np.sort(keys))

    def _join(self, minute: int, keys: _Keys) -> None:
        """Add sorted keys to those of a minute that has begun."""
        least, runs = int((keys & _OFFSET).min()), self._begun[minute]
        self._least = min(least, self._least) if any(self._begun.values()) else least
        while runs and len(runs[-1]) < 2 * len(keys):
            keys = np.sort(np.concatenate([runs.pop(), keys]), kind="stable")
        runs.append(keys)
