"""What the records of the revive topic say: which messages a group was handed, and which of them
are done with.

A check point and its acks wait in the timer topic; a stock broker copies them to the revive topic
when they are due.  Their bodies are JSON.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Self, TypeAlias

import orjson
from attrs import frozen

from rmqha.wire.log.encode import MAX_PROPERTIES
from rmqha.wire.log.layout import BODY_AT, MAGIC_V1, SYS_FLAG_AT, born_extra, store_extra
from rmqha.wire.log.properties import PAIR_END, encode
from rmqha.wire.log.record import magic_at
from rmqha.wire.names import POP_HANDLE

CHECK_POINT_TAG, ACK_TAG, ACKS_TAG = "ck", "ack", "bAck"
"""The tags of a check point, of an ack, and of several acks of one check point."""

LEAD = 1000
"""Milliseconds by which a check point comes to the revive topic before it is due, and so before its
acks."""

MOST = 32
"""Most messages of one check point: stock brokers keep which are done with in 32 bits."""

NOWHERE = -1
"""What the record of a check point says of a position that did not move."""

PointKey: TypeAlias = tuple[str, int, str, int, int, str]
"""How an ack names its check point: topic, queue id, group, start offset, time of the pop, broker.
A stock broker compares them without anything between."""

_INT, _SHORT, _BYTE = Struct(">i"), Struct(">h"), Struct(">B")


@frozen(kw_only=True)
class CheckPoint:
    """Messages of one queue that a group was handed together; or none, where it was set back: what
    it was handed before says nothing any more of where it goes on.

    @ivar topic: In which they are: the topic asked for, or a retry topic.
    @ivar start: Where reading began, in messages.
    @ivar pop_time: When they were handed out, in milliseconds since 1970.
    @ivar invisible: How many milliseconds they are nobody else's.
    @ivar broker: The name of the broker.
    @ivar offsets: Their queue offsets.
    @ivar revive_queue: The queue of the revive topic to which it goes, and its acks.
    @ivar behind: Where the group's position was before, but for messages that it does not want;
        from there it moved on.  Only we write it; of a stock broker's it is C{start}, and of a
        message whose time was changed, or that could not come again, C{None}, as nothing moved.
    """

    topic: str
    queue_id: int
    group: str
    start: int
    pop_time: int
    invisible: int
    broker: str
    offsets: tuple[int, ...]
    revive_queue: int = 0
    behind: int | None = None

    @property
    def key(self) -> PointKey:
        """What its acks name it by."""
        return (self.topic, self.queue_id, self.group, self.start, self.pop_time, self.broker)

    @property
    def due(self) -> int:
        """When those that are not done with come again, in milliseconds since 1970."""
        return self.pop_time + self.invisible

    @property
    def next_offset(self) -> int:
        """Where the group goes on: just past the last of its messages."""
        return self.offsets[-1] + 1 if self.offsets else self.start

    @property
    def unique_key(self) -> str:
        """The id of its record."""
        place = f"{self.topic}@{self.queue_id}@{self.start}@{self.group}"
        return f"{place}@{self.pop_time}@{self.broker}@{CHECK_POINT_TAG}"

    def body(self) -> bytes:
        """What its record holds."""
        behind = NOWHERE if self.behind is None else self.behind
        return orjson.dumps(
            {
                "behind": behind,
                "bm": 0,
                "bn": self.broker,
                "c": self.group,
                "d": [offset - self.start for offset in self.offsets],
                "it": self.invisible,
                "n": len(self.offsets),
                "pt": self.pop_time,
                "q": self.queue_id,
                "reviveTime": self.due,
                "ro": 0,
                "so": self.start,
                "t": self.topic,
            }
        )

    @classmethod
    def read(cls, body: bytes, broker: str, revive_queue: int = 0) -> Self:
        """Read one.

        @param broker: Whose it is if it does not say.
        @raise ValueError: If it is none.
        """
        told = _object(body)
        start, count = _number(told, "so"), _number(told, "n")
        distances = told.get("d") or list(range(min(count, MOST + 1)))
        if not isinstance(distances, list) or len(distances) > MOST or count < 0:
            raise ValueError(f"{count} messages, {distances!r}, are not {MOST} at most")
        if not all(type(each) is int and each >= 0 for each in distances):
            raise ValueError(f"{distances!r} are no distances")
        behind = told.get("behind", NOWHERE if "rp" in told else start)
        return cls(
            topic=_text(told, "t"),
            queue_id=_number(told, "q"),
            group=_text(told, "c"),
            start=start,
            pop_time=_number(told, "pt"),
            invisible=_number(told, "it"),
            broker=told.get("bn") or broker,
            offsets=tuple(sorted({start + each for each in distances})),
            revive_queue=revive_queue,
            behind=behind if type(behind) is int and behind >= 0 else None,
        )

    def acks(self, offsets: tuple[int, ...]) -> tuple[bytes, str, str]:
        """What says of some of its messages that they are done with: body, tag and unique key."""
        told: dict[str, Any] = {"ao": offsets[0]}
        tag, named = ACK_TAG, str(offsets[0])
        if len(offsets) > 1:
            told = {"ao": -1, "aol": list(offsets)}
            tag, named = ACKS_TAG, "-1"
        told |= {"bn": self.broker, "c": self.group, "pt": self.pop_time, "q": self.queue_id}
        told |= {"so": self.start, "t": self.topic}
        place = f"{self.topic}@{self.queue_id}@{named}@{self.group}"
        return orjson.dumps(told), tag, f"{place}@{self.pop_time}@{self.broker}@{ACK_TAG}"


@frozen
class Acks:
    """Messages that are done with.

    @ivar key: Their check point's.
    @ivar offsets: Their queue offsets.
    """

    key: PointKey
    offsets: tuple[int, ...]

    @classmethod
    def read(cls, body: bytes, broker: str) -> Self:
        """Read what says so, of one message or several.

        @param broker: Whose they are if it does not say.
        @raise ValueError: If it is none.
        """
        told = _object(body)
        several = told.get("aol", told.get("ackOffsetList"))
        offsets = several if isinstance(several, list) else [_number(told, "ao", "ackOffset")]
        if not all(type(each) is int for each in offsets):
            raise ValueError(f"{offsets!r} are no queue offsets")
        key = (
            _text(told, "t", "topic"),
            _number(told, "q", "queueId"),
            _text(told, "c", "consumerGroup"),
            _number(told, "so", "startOffset"),
            _number(told, "pt", "popTime"),
            str(told.get("bn") or told.get("brokerName") or "").strip() or broker,
        )
        return cls(key, tuple(offsets))


def handed(record: memoryview, topic: str, handle: str) -> bytes:
    """A record of a retry topic as a consumer is sent it: of the topic it asked for, and with its
    handle, if there is room for that.

    @param record: A whole, valid one.
    """
    (sys_flag,) = _INT.unpack_from(record, SYS_FLAG_AT)
    at = BODY_AT + born_extra(sys_flag) + store_extra(sys_flag)
    at += _INT.unpack_from(record, at - 4)[0]
    width = _BYTE if magic_at(record, 0) == MAGIC_V1 else _SHORT
    (length,) = width.unpack_from(record, at)
    properties = bytes(record[at + width.size + length + 2 :])
    if properties and not properties.endswith(PAIR_END):
        properties += PAIR_END
    more = encode({POP_HANDLE: handle})
    if len(properties) + len(more) <= MAX_PROPERTIES:
        properties += more
    name = topic.encode()
    tail = width.pack(len(name)) + name + _SHORT.pack(len(properties)) + properties
    return _INT.pack(at + len(tail)) + bytes(record[4:at]) + tail


def _object(body: bytes) -> Mapping[str, Any]:
    told = orjson.loads(body)
    if not isinstance(told, dict):
        raise ValueError("it is no object")
    return told


def _number(told: Mapping[str, Any], *names: str) -> int:
    for name in names:
        found = told.get(name)
        if type(found) is int:
            return found
    raise ValueError(f"{names[0]} is no number")


def _text(told: Mapping[str, Any], *names: str) -> str:
    for name in names:
        found = told.get(name)
        if isinstance(found, str) and found:
            return str(found)
    raise ValueError(f"{names[0]} is no text")
