"""Write records, as a master does.

Sizes are checked where a stock broker casts: properties and batches that do not fit
their length fields are refused before anything is written, and the address bits of a
record come from its addresses, never from the client (docs/protocol/store.rst, Records).
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from struct import Struct
from typing import Self

from attrs import define, frozen

from rmqha.errors import MessageIllegal
from rmqha.wire.log.delay_levels import delay_level
from rmqha.wire.log.hashing import body_crc
from rmqha.wire.log.layout import (
    BEFORE_HOSTS,
    HOST_SIZE,
    HOSTS_BYTE_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_RECORD_OVERHEAD,
    MIN_RECORD,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_TIMESTAMP_AT,
    born_extra,
    struct_of,
)
from rmqha.wire.log.properties import NAME_END, PAIR_END, find
from rmqha.wire.log.record import Host, Message
from rmqha.wire.log.sys_flag import BORN_IP6, IP6_HOSTS, STORE_IP6, TRANSACTION
from rmqha.wire.names import DELAY

MAX_TOPIC = 127
"""Bytes of a topic that fit version 1's length field."""
MAX_TOPIC_V2 = 255
"""Bytes of the longest topic there may be; above L{MAX_TOPIC} a record is of version 2."""
MAX_PROPERTIES = 0x7FFF
"""Most bytes of properties: their length is a signed short."""

_ALONE = MIN_RECORD - 2 * HOST_SIZE - 1
"""Bytes of a record without its strings, its hosts and the length of its topic."""

MAX_BATCH = 32_768
"""Most messages of a batch: the answer names each one, in 33 bytes of a header."""

_PAIR = re.compile(rb"[^\x01\x02]+\x01[^\x02]+\x02?")
_HEAD = struct_of(*BEFORE_HOSTS)
_STORED = struct_of("store_timestamp", start=STORE_TIMESTAMP_AT)
_NO_TIME = bytes(_STORED.size)
_TAIL = struct_of(
    "reconsume_times", "prepared_transaction_offset", "body_length", start=RECONSUME_TIMES_AT
)
_BLANK = struct_of("size", "magic")
_PLACE = struct_of("queue_offset", "physical_offset", start=QUEUE_OFFSET_AT)
_BATCH = Struct(">12xii")
"""Of a batch's entry only flag and body length count."""


@lru_cache(maxsize=4096)
def _packed(host: Host) -> bytes:
    address, port = host
    return ip_address(address).packed + port.to_bytes(4, "big")


def encode(message: Message, *, max_message_size: int) -> bytearray:
    """Write a record with its queue offset, physical offset and store time left zero.

    @param max_message_size: Most bytes of the body.
    @raise MessageIllegal: If topic, properties, body or record are too long, or the
        topic is empty.
    """
    return RecordForm.of(message, max_message_size).fill(
        message.flag, message.body, message.properties, message.prepared_transaction_offset
    )


@define
class RecordForm:
    """What the records of one batch have in common.

    @ivar message: What they are made of.
    @ivar born: The hosts as a record has them, ports included.
    @ivar topic: Behind its length.
    @ivar most: Most bytes of a body.
    """

    message: Message
    magic: int
    sys_flag: int
    born: bytes
    store: bytes
    topic: bytes
    most: int

    @classmethod
    def of(cls, message: Message, most: int) -> Self:
        """What all records of a message's batch have in common.

        @param most: Most bytes of a body.
        @raise MessageIllegal: If the topic is empty or too long.
        """
        topic = message.topic.encode("utf-8")
        if not 0 < len(topic) <= MAX_TOPIC_V2:
            raise MessageIllegal("topic", len(topic), MAX_TOPIC_V2)
        born, store = _packed(message.born_host), _packed(message.store_host)
        sys_flag = message.sys_flag & ~IP6_HOSTS
        if len(born) > HOST_SIZE:
            sys_flag |= BORN_IP6
        if len(store) > HOST_SIZE:
            sys_flag |= STORE_IP6
        long_topic = len(topic) > MAX_TOPIC
        return cls(
            message,
            MAGIC_V2 if long_topic else MAGIC_V1,
            sys_flag,
            born,
            store,
            len(topic).to_bytes(2 if long_topic else 1, "big") + topic,
            most,
        )

    def fill(self, flag: int, body: bytes, properties: bytes, prepared: int) -> bytearray:
        """A record of its own, whose offsets and store time are not known yet.

        @param flag: The message's, for clients.
        @param properties: As they are stored.
        @raise MessageIllegal: If the body, the properties or the record are too long.
        """
        message, most = self.message, self.most
        if len(body) > most:
            raise MessageIllegal("body", len(body), most)
        if len(properties) > MAX_PROPERTIES:
            raise MessageIllegal("properties", len(properties), MAX_PROPERTIES)
        born, store, topic = self.born, self.store, self.topic
        size = _ALONE + len(born) + len(store) + len(body) + len(topic) + len(properties)
        if size > most + MAX_RECORD_OVERHEAD:
            raise MessageIllegal("record", size, most + MAX_RECORD_OVERHEAD)
        record = bytearray().join(
            (
                _HEAD.pack(
                    size,
                    self.magic,
                    body_crc(body),
                    message.queue_id,
                    flag,
                    0,
                    0,
                    self.sys_flag,
                    message.born_timestamp,
                ),
                born,
                _NO_TIME,
                store,
                _TAIL.pack(message.reconsume_times, prepared, len(body)),
                body,
                topic,
                len(properties).to_bytes(2, "big"),
                properties,
            )
        )
        assert len(record) == size, f"record of {len(record)} bytes says {size}"
        return record


def place(record: bytearray, *, queue_offset: int, offset: int, store_timestamp: int) -> None:
    """Fill in what is known only when the record is appended.

    @param offset: Its physical offset.
    @param store_timestamp: Milliseconds since 1970.
    """
    _PLACE.pack_into(record, QUEUE_OFFSET_AT, queue_offset, offset)
    stored = STORE_TIMESTAMP_AT + born_extra(record[HOSTS_BYTE_AT])
    _STORED.pack_into(record, stored, store_timestamp)


@frozen
class BatchForm:
    """What a client says once for all messages of a batch.

    @ivar common: Properties that each message gets unless it has them already, by their names
        with the 0x01 behind.
    """

    record: RecordForm
    common: dict[bytes, bytes]

    @classmethod
    def of(cls, message: Message, max_message_size: int) -> Self:
        """@param message: As for L{encode_batch}.
        @raise MessageIllegal: If there can be no such batch, whatever its messages are.
        """
        if message.sys_flag & TRANSACTION:
            raise MessageIllegal("batch transaction bits", message.sys_flag & TRANSACTION, 0)
        level = delay_level(find(message.properties, DELAY.encode()))
        if level > 0:
            raise MessageIllegal("batch delay level", level, 0)
        if len(message.body) > max_message_size:
            raise MessageIllegal("batch body", len(message.body), max_message_size)
        common: dict[bytes, bytes] = {}
        for pair in _PAIR.findall(message.properties):
            common.setdefault(pair[: pair.find(NAME_END) + 1], pair)
        return cls(RecordForm.of(message, max_message_size), common)


def encode_batch(message: Message, *, max_message_size: int) -> list[bytearray]:
    """Write the records of a client's batch.

    @param message: What all have in common; its body is the client's encoding of the
        messages, its properties are added to each one's own unless they are there already.
        (Stock brokers add them all, and of two equal names the last one counts: the messages of
        a 5.x batch then all have the batch's C{UNIQ_KEY}.)
    @raise MessageIllegal: If any of them cannot be stored; then none is.
    """
    form = BatchForm.of(message, max_message_size)
    common = form.common.items()
    body, at, records = message.body, 0, []
    while at < len(body):
        flag, own, properties, at = _entry(body, at)
        if properties and not properties.endswith(PAIR_END):
            properties += PAIR_END
        for name, pair in common:
            if PAIR_END + name not in properties and not properties.startswith(name):
                properties += pair
        records.append(form.record.fill(flag, own, properties, 0))
        if len(records) > MAX_BATCH:
            raise MessageIllegal("batch entries", len(records), MAX_BATCH)
    if not records:
        raise MessageIllegal("batch entries", 0, 1)
    return records


def _entry(body: bytes, at: int) -> tuple[int, bytes, bytes, int]:
    """Read one message of a batch: flag, body, properties, and where the next begins."""
    left = len(body) - at
    if left < _BATCH.size + 2:
        raise MessageIllegal("batch entry", left, _BATCH.size + 2)
    flag, length = _BATCH.unpack_from(body, at)
    start = at + _BATCH.size
    if not 0 <= length <= len(body) - start - 2:
        raise MessageIllegal("batch entry body", length, len(body) - start - 2)
    end = start + length
    properties = int.from_bytes(body[end : end + 2], "big", signed=True)
    if not 0 <= properties <= len(body) - end - 2:
        raise MessageIllegal("batch entry properties", properties, len(body) - end - 2)
    stop = end + 2 + properties
    return flag, body[start:end], body[end + 2 : stop], stop


def blank(size: int) -> bytes:
    """The header of the blank that closes a file.

    @param size: Bytes from there to the file's end.
    """
    return _BLANK.pack(size, MAGIC_BLANK)
