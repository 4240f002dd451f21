"""Messages on their way out, and the requests that carry them.

Source: docs/protocol/remoting.md, Sending.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from struct import Struct

from attrs import define, field, frozen

from rmqha.pipeline.producing.errors import MessageNotSendable
from rmqha.pipeline.producing.routes import DEFAULT_QUEUES, Queue
from rmqha.wire.log.encode import MAX_BATCH, MAX_PROPERTIES, MAX_TOPIC
from rmqha.wire.log.hashing import body_crc
from rmqha.wire.log.properties import encode
from rmqha.wire.log.sys_flag import COMPRESSED, COMPRESSION_TYPE
from rmqha.wire.names import (
    DELAY,
    DLQ_PREFIX,
    REAL_QUEUE,
    REAL_TOPIC,
    RETRY_PREFIX,
    TEMPLATE_TOPIC,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    is_system_topic,
)
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.send import SendMessageV2Request

BROKERS_OWN = frozenset({TRANSACTION_PREPARED, REAL_TOPIC, REAL_QUEUE})
"""Properties by which a message would be taken for another than it is."""

COMPRESSION = COMPRESSED | COMPRESSION_TYPE
"""The bits of C{sysFlag} that say whether and how a body is compressed."""

_CONTROL = frozenset(map(chr, range(32)))
_ENTRY = Struct(">iiiii")
_ENTRY_ENDS = 2
_SPAN = Struct(">IH")


@frozen
class Outgoing:
    """A message to be sent.

    @ivar queue_id: The queue it must go to; C{None} lets the producer choose.
    @ivar source: Whose queue C{queue_id} was: messages with the same source, topic and queue
        go to the same queue.  C{""} where that does not matter.
    @ivar properties: All of them, tags and keys too.
    @ivar flag: The sender's own.
    @ivar sys_flag: Only L{COMPRESSION}.
    """

    topic: str
    body: bytes
    properties: Mapping[str, str]
    queue_id: int | None = None
    source: str = ""
    flag: int = 0
    sys_flag: int = 0

    @property
    def size(self) -> int:
        """Bytes it takes in a batch, a little more or less."""
        pairs = sum(len(name) + len(value) + 2 for name, value in self.properties.items())
        return _ENTRY.size + _ENTRY_ENDS + len(self.body) + pairs

    @property
    def alone(self) -> bool:
        """Whether it cannot be in a batch: it is to be delivered later, or goes where batches
        cannot.
        """
        return DELAY in self.properties or self.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))

    def check(self) -> None:
        """@raise MessageNotSendable: If it must not be sent, or not as what it is."""
        reason = self._wrong()
        if reason:
            raise MessageNotSendable(self.topic, self.properties.get(UNIQUE_KEY, ""), reason)

    def _wrong(self) -> str:
        reason = topic_fault(self.topic)
        if reason:
            return reason
        for name, value in self.properties.items():
            if not name or not value:
                return f"property {name!r} has no {'value' if name else 'name'}"
            if not _CONTROL.isdisjoint(name) or "\x01" in value or "\x02" in value:
                return f"property {name[:64]!r} has control characters"
            if name in BROKERS_OWN:
                return f"property {name} is reserved for brokers"
        size = len(encode(self.properties))
        return "" if size <= MAX_PROPERTIES else f"its properties are {size} bytes long"


def topic_fault(topic: str) -> str:
    """Why a topic accepts no messages; C{""} if that is not so."""
    if not topic:
        return "it has no topic"
    if len(topic.encode()) > MAX_TOPIC:
        return f"the topic is longer than {MAX_TOPIC} bytes"
    return "the topic is reserved for brokers" if is_system_topic(topic) else ""


@frozen
class Parcel:
    """Messages of one topic that go to one queue in one request.

    @ivar fixed: Whether they must go to that queue and no other.
    """

    queue: Queue
    messages: Sequence[Outgoing]
    fixed: bool

    @property
    def topic(self) -> str:
        return self.messages[0].topic

    @property
    def body_size(self) -> int:
        """Bytes of the messages' bodies together."""
        return sum(len(message.body) for message in self.messages)

    def request(self, group: str) -> Command:
        """The request that sends them.

        @param group: Whose producer this is.
        """
        first, *others = self.messages
        header = SendMessageV2Request(
            producer_group=group,
            topic=first.topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=self.queue.queue_id,
            sys_flag=first.sys_flag & COMPRESSION,
            born_timestamp=int(time.time() * 1000),
            flag=0 if others else first.flag,
            properties="" if others else encode(first.properties).decode(),
            reconsume_times=0,
            batch=bool(others),
            broker_name=self.queue.broker,
        )
        if not others:
            return Command.request(RequestCode.SEND_MESSAGE_V2, header, first.body)
        body = b"".join(part for each in self.messages for part in _entry(each))
        return Command.request(RequestCode.SEND_BATCH_MESSAGE, header, body)


def _entry(message: Outgoing) -> tuple[bytes, ...]:
    """A message as a part of a batch."""
    properties, body = encode(message.properties), message.body
    size = _ENTRY.size + len(body) + _ENTRY_ENDS + len(properties)
    head = _ENTRY.pack(size, 0, body_crc(body), message.flag, len(body))
    return head, body, len(properties).to_bytes(_ENTRY_ENDS, "big"), properties


def parcels(
    queue: Queue, messages: Sequence[Outgoing], fixed: bool, most: int, count: int = MAX_BATCH
) -> Iterator[Parcel]:
    """Pack messages for a queue, in their order.

    @param messages: Of one topic.
    @param most: Bytes a parcel may have, if it has more than one message.
    @param count: Messages it may have.
    """
    packed: list[Outgoing] = []
    size = 0
    for message in messages:
        if packed and (
            message.alone
            or packed[-1].alone
            or message.sys_flag != packed[-1].sys_flag
            or size + message.size > most
            or len(packed) == count
        ):
            yield Parcel(queue, packed, fixed)
            packed, size = [], 0
        packed.append(message)
        size += message.size
    if packed:
        yield Parcel(queue, packed, fixed)


@define(eq=False)
class UniqueKeys:
    """Makes values for C{UNIQ_KEY} like those of stock clients: tools read from them when a
    message was born.
    """

    _own: bytes = field(factory=lambda: os.urandom(10), init=False)
    _counter: Iterator[int] = field(factory=itertools.count, init=False)

    def next(self) -> str:
        """Make another unique key."""
        now = time.time()
        month = time.mktime((*time.localtime(now)[:2], 1, 0, 0, 0, 0, 0, -1))
        span = int((now - month) * 1000) & 0xFFFFFFFF
        return (self._own + _SPAN.pack(span, next(self._counter) & 0xFFFF)).hex().upper()
