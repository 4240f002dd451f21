"""What a record of the timer topic says: when its message is due, and what becomes of it then.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

from typing import Self

from attrs import evolve, frozen

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
