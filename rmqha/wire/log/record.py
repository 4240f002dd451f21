"""Commit log records: what they hold, and whether bytes are one.

L{check} is the judge: every rule that decides where a log ends is in it, and
L{rmqha.wire.columnar.record_blocks.walk} is its fast twin.  Source of layouts, magics and masks:
docs/protocol/store.rst, Records.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property, lru_cache
from ipaddress import ip_address
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from attrs import define, frozen
from isal.isal_zlib import crc32

from rmqha.errors import RecordCorrupt
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import body_crc, tags_code
from rmqha.wire.log.layout import (
    BEFORE_HOSTS,
    BODY_AT,
    BORN_HOST_AT,
    HOSTS_BYTE_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_BLANK,
    MIN_RECORD,
    RECONSUME_TIMES_AT,
    STORE_TIMESTAMP_AT,
    STRING_LENGTHS,
    SYS_FLAG_AT,
    born_extra,
    store_extra,
    struct_of,
)
from rmqha.wire.log.properties import NAME_END, PAIR_END, find, parse
from rmqha.wire.log.sys_flag import BORN_IP6, IP6_HOSTS, STORE_IP6, has_unit, indexable
from rmqha.wire.names import DELAY, KEYS, SCHEDULE_TOPIC, TAGS, UNIQUE_KEY

Host = tuple[str, int]
"""Address as text, and port."""

_HEAD = struct_of("size", "magic")
_CHECKED = struct_of("body_crc", "physical_offset", "sys_flag")
_FIXED = struct_of(*BEFORE_HOSTS)
_TAIL = struct_of("reconsume_times", "prepared_transaction_offset", start=RECONSUME_TIMES_AT)
_DISPATCHED = struct_of("queue_id", "queue_offset", "sys_flag")
_INT = Struct(">i")
_LONG = Struct(">q")
_SHORT = Struct(">h")
_BYTE = Struct(">b")
_TAGS, _UNIQUE_KEY, _KEYS, _DELAY = (name.encode() for name in (TAGS, UNIQUE_KEY, KEYS, DELAY))


class Fault(StrEnum):
    """Why bytes are not a whole, valid record."""

    NOTHING = "nothing written"
    INCOMPLETE = "incomplete"
    MAGIC = "bad magic"
    SIZE = "bad size"
    FILE_END = "crosses the file's end"
    OFFSET = "stored offset is another"
    LENGTHS = "lengths do not add up"
    CRC = "body crc"
    PROPERTIES = "properties end in NUL"
    TOPIC = "topic is not UTF-8 or empty"
    CHECKSUM = "the checksum of the whole record, kept beside the log"


def check(
    buf: memoryview | bytes,
    pos: int,
    limit: int,
    offset: int,
    file_end: int,
    *,
    crc: bool = True,
    max_size: int,
    nul_is_torn: bool = False,
) -> int | Fault:
    """Judge the bytes at one place of a log.

    @param pos: Where in C{buf} they start.
    @param limit: The first position that may not be read.
    @param offset: The physical offset of C{pos}.
    @param file_end: The physical offset of the end of this log file.
    @param crc: Whether to check the body's CRC; an empty body has none.
    @param max_size: The most bytes a record may have.
    @param nul_is_torn: Whether properties that end in NUL are a fault.
    @return: The size of the whole, valid record; minus the size of the blank that ends
        the file; or what is wrong.
    """
    if file_end - offset < MIN_BLANK:
        return Fault.FILE_END
    if limit - pos < MIN_BLANK:
        return Fault.INCOMPLETE
    size, magic = _HEAD.unpack_from(buf, pos)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return _not_a_record(size, magic, limit - pos, file_end - offset)
    if not MIN_RECORD <= size <= max_size:
        return Fault.SIZE
    if offset + size > file_end:
        return Fault.FILE_END
    end = pos + size
    if end > limit:
        return Fault.INCOMPLETE
    stored_crc, stored_offset, sys_flag = _CHECKED.unpack_from(buf, pos)
    if stored_offset != offset:
        return Fault.OFFSET
    body = pos + BODY_AT
    if sys_flag & IP6_HOSTS:
        body += born_extra(sys_flag) + store_extra(sys_flag)
        if body + STRING_LENGTHS > end:
            return Fault.LENGTHS
    (body_length,) = _INT.unpack_from(buf, body - 4)
    topic = body + body_length + (1 if magic == MAGIC_V1 else 2)
    if body_length < 0 or topic + 2 > end:
        return Fault.LENGTHS
    (topic_length,) = (_BYTE if magic == MAGIC_V1 else _SHORT).unpack_from(buf, body + body_length)
    properties = topic + topic_length + 2
    if topic_length <= 0 or properties > end:
        return Fault.TOPIC if topic_length == 0 else Fault.LENGTHS
    (properties_length,) = _SHORT.unpack_from(buf, properties - 2)
    if properties_length < 0 or properties + properties_length != end:
        return Fault.LENGTHS
    if body_length and crc and crc32(buf[body : body + body_length]) & 0x7FFFFFFF != stored_crc:
        return Fault.CRC
    name = bytes(buf[topic : topic + topic_length])
    if not name.isascii() and not is_utf8(name):
        return Fault.TOPIC
    if nul_is_torn and properties_length and buf[end - 1] == 0:
        return Fault.PROPERTIES
    return int(size)


def _not_a_record(size: int, magic: int, readable: int, left: int) -> int | Fault:
    """Judge a place whose magic is no record's.

    @param readable: Bytes that may be read from there.
    @param left: Bytes to the end of the file.
    """
    if magic == MAGIC_BLANK:
        if size != left:
            return Fault.SIZE
        return -size if size <= readable else Fault.INCOMPLETE
    return Fault.NOTHING if size == 0 and magic == 0 else Fault.MAGIC


def is_utf8(name: bytes) -> bool:
    """Whether a topic can be read as text."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def magic_at(buf: memoryview | bytes, pos: int) -> int:
    """The magic of what starts at C{pos}; eight bytes must be readable."""
    return int(_HEAD.unpack_from(buf, pos)[1])


def stored_at(buf: memoryview | bytes, pos: int) -> int:
    """Store time of the valid record at C{pos}, in milliseconds since 1970."""
    born = born_extra(buf[pos + HOSTS_BYTE_AT])
    return int(_LONG.unpack_from(buf, pos + STORE_TIMESTAMP_AT + born)[0])


@frozen(kw_only=True)
class Message:
    """What a master is asked to store.

    @ivar body: The body; for a batch, the client's own encoding of its messages.
    @ivar properties: Already encoded.
    @ivar sys_flag: As the client sent it; the address bits are derived, not taken.
    @ivar born_timestamp: Milliseconds since 1970.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int
    born_host: Host
    store_host: Host
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def has_unit(self) -> bool:
        """Whether it gets a place in its queue: halves and rollbacks do not."""
        return has_unit(self.sys_flag)


@frozen(kw_only=True, slots=False)
class Record:
    """One stored record, every field of it.

    @ivar offset: Where it is, physical; L{stored_offset} is what it says itself.
    @ivar version: 1 or 2.
    @ivar body_crc: As stored.
    @ivar raw_properties: The property string as stored.
    """

    offset: int
    size: int
    version: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    stored_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    raw_properties: bytes

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties as RocketMQ reads them."""
        return parse(self.raw_properties)

    @property
    def offset_msg_id(self) -> str:
        """The id that tells where the record is."""
        return offset_msg_id(self.store_host, self.offset)

    @property
    def body_holds(self) -> bool:
        """Whether the body is what its checksum says."""
        return not self.body or body_crc(self.body) == self.body_crc

    @property
    def has_unit(self) -> bool:
        """Whether it gets a queue unit."""
        return has_unit(self.sys_flag)

    @property
    def indexable(self) -> bool:
        """Whether its keys are indexed."""
        return indexable(self.sys_flag)


def offset_msg_id(store_host: Host, offset: int) -> str:
    """The id of the record a broker stored at C{offset}."""
    return _msg_id_head(store_host) + f"{offset:016X}"


@lru_cache(maxsize=64)
def _msg_id_head(store_host: Host) -> str:
    address, port = store_host
    return (ip_address(address).packed + _INT.pack(port)).hex().upper()


def decode(buf: memoryview | bytes, pos: int, offset: int) -> Record:
    """Read a record that L{check} found whole.

    @raise RecordCorrupt: If its lengths do not lie within C{buf} after all.
    """
    view = memoryview(buf)
    try:
        size, magic, body_crc, queue_id, flag, queue_offset, stored, sys_flag, born = (
            _FIXED.unpack_from(view, pos)
        )
        at = pos + BORN_HOST_AT
        born_host, at = _host(view, at, sys_flag & BORN_IP6)
        (store_timestamp,) = _LONG.unpack_from(view, at)
        store_host, at = _host(view, at + 8, sys_flag & STORE_IP6)
        reconsume_times, prepared = _TAIL.unpack_from(view, at)
        body, at = _string(view, at + _TAIL.size, _INT)
        topic, at = _string(view, at, _BYTE if magic == MAGIC_V1 else _SHORT)
        properties, at = _string(view, at, _SHORT)
    except (ValueError, struct_error) as error:
        raise RecordCorrupt(offset, Fault.LENGTHS.value, str(error)) from error
    return Record(
        offset=offset,
        size=size,
        version=2 if magic == MAGIC_V2 else 1,
        body_crc=body_crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        stored_offset=stored,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        body=body,
        topic=topic.decode("utf-8", "replace"),
        raw_properties=properties,
    )


def _host(view: memoryview, at: int, ip6: int) -> tuple[Host, int]:
    width = 16 if ip6 else 4
    (port,) = _INT.unpack_from(view, at + width)
    return (_address(bytes(view[at : at + width])), port), at + width + 4


@lru_cache(maxsize=1024)
def _address(packed: bytes) -> str:
    return str(ip_address(packed))


def _string(view: memoryview, at: int, length: Struct) -> tuple[bytes, int]:
    (size,) = length.unpack_from(view, at)
    at += length.size
    if size < 0 or at + size > len(view):
        raise ValueError(f"a string of {size} bytes at {at} in {len(view)}")
    return bytes(view[at : at + size]), at + size


class RecordProperties(NamedTuple):
    """A record's place in its queue, and its properties; the names are L{Record}'s."""

    body_crc: int
    queue_id: int
    queue_offset: int
    born_timestamp: int
    store_timestamp: int
    topic: str
    raw_properties: bytes


def record_properties(buf: memoryview) -> RecordProperties:
    """Read the properties of a record that L{check} found whole, and little else.

    @param buf: All of it.
    """
    _, magic, crc, queue_id, _, queue_offset, _, sys_flag, born = _FIXED.unpack_from(buf)
    extra = born_extra(sys_flag)
    (stored,) = _LONG.unpack_from(buf, STORE_TIMESTAMP_AT + extra)
    body = BODY_AT + extra + store_extra(sys_flag)
    at = body + _INT.unpack_from(buf, body - 4)[0]
    width = _BYTE if magic == MAGIC_V1 else _SHORT
    at, size = at + width.size, width.unpack_from(buf, at)[0]
    topic, raw = bytes(buf[at : at + size]).decode(), bytes(buf[at + size + 2 :])
    return RecordProperties(crc, queue_id, queue_offset, born, stored, topic, raw)


@define
class DispatchFields:
    """What queues and index need of one record.

    @ivar store_timestamp: Milliseconds since 1970.
    @ivar tags_code: Hash of the tags, or when a delayed message is due.
    @ivar keys: Index keys in the order they are put: C{UNIQ_KEY}, then C{KEYS}.
    """

    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    tags_code: int
    has_unit: bool
    indexable: bool
    keys: list[str]


def dispatch_fields(
    buf: memoryview | bytes, pos: int, size: int, offset: int, levels: DelayLevels
) -> DispatchFields:
    """Read what dispatch needs of a record that L{check} found whole.

    @param size: Its size.
    @param offset: Its physical offset.
    """
    queue_id, queue_offset, sys_flag = _DISPATCHED.unpack_from(buf, pos)
    born = born_extra(sys_flag)
    body = pos + BODY_AT + born + store_extra(sys_flag)
    (stored,) = _LONG.unpack_from(buf, pos + STORE_TIMESTAMP_AT + born)
    at = body + _INT.unpack_from(buf, body - 4)[0]
    width = _BYTE if magic_at(buf, pos) == MAGIC_V1 else _SHORT
    (topic_length,) = width.unpack_from(buf, at)
    at += width.size
    topic = bytes(buf[at : at + topic_length]).decode()
    raw = bytes(buf[at + topic_length + 2 : pos + size])
    tags = unique = words = b""
    for segment in raw.split(PAIR_END):
        name, _, value = segment.partition(NAME_END)
        if not value:
            continue
        if name == _TAGS:
            tags = value
        elif name == _UNIQUE_KEY:
            unique = value
        elif name == _KEYS:
            words = value
    keys = [unique.decode("utf-8", "replace")] if unique else []
    if words:
        keys += [word for word in words.decode("utf-8", "replace").split(" ") if word]
    code = tags_code(tags.decode("utf-8", "replace")) if tags else 0
    if topic == SCHEDULE_TOPIC:
        code = _due(raw, stored, levels, code)
    return DispatchFields(
        topic,
        queue_id,
        queue_offset,
        sys_flag,
        stored,
        code,
        has_unit(sys_flag),
        indexable(sys_flag),
        keys,
    )


def body_range(buf: memoryview | bytes, pos: int) -> tuple[int, int]:
    """Where the body is of a record that L{check} found whole, but for its CRC.

    @return: Its first position in C{buf}, and the one just past it.
    """
    (sys_flag,) = _INT.unpack_from(buf, pos + SYS_FLAG_AT)
    at = pos + BODY_AT + born_extra(sys_flag) + store_extra(sys_flag)
    return at, at + int(_INT.unpack_from(buf, at - 4)[0])


def raw_properties(buf: memoryview | bytes, pos: int, size: int) -> bytes | None:
    """The property string of a record, which nobody has looked at yet.

    @param size: The record's, as its queue unit says.
    @return: C{None} if it does not lie within the record.
    """
    end = pos + size
    try:
        (sys_flag,) = _INT.unpack_from(buf, pos + SYS_FLAG_AT)
        at = pos + BODY_AT + born_extra(sys_flag) + store_extra(sys_flag)
        (body_length,) = _INT.unpack_from(buf, at - 4)
        if body_length < 0 or at + body_length >= end:
            return None
        at += body_length
        width = _BYTE if magic_at(buf, pos) == MAGIC_V1 else _SHORT
        at += width.size + width.unpack_from(buf, at)[0]
        (length,) = _SHORT.unpack_from(buf, at)
    except struct_error:
        return None
    at += _SHORT.size
    return bytes(buf[at : at + length]) if 0 <= length <= end - at else None


def _due(raw: bytes, stored: int, levels: DelayLevels, code: int) -> int:
    """A delayed message's tags code: when it is due, if its level makes sense."""
    level = levels.level(find(raw, _DELAY))
    return levels.deliver_time(level, stored) if level else code
