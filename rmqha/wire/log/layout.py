"""The layout of a record, once: where each fixed field stands, and the numbers that follow.

Offsets below are those of a record with two IPv4 hosts.  A host of IPv6 is L{IP6_EXTRA} bytes
longer, which moves every field behind it; two bits of the system flag say so.  Compiled
code takes the constants as they are when it is imported.

Source: docs/protocol/store.rst, Records.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen

from rmqha.wire.log.sys_flag import BORN_IP6, STORE_IP6

if TYPE_CHECKING:
    import numpy as np

MAGIC_V1 = -626843481
"""What tells a record of version 1 from other bytes, behind its size."""
MAGIC_V2 = -626843477
"""Version 2 has a topic length of two bytes instead of one; 5.x writes it for long topics."""
MAGIC_BLANK = -875286124
"""The same of what fills a file's end, where the next record did not fit."""
MAGIC_BYTES = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2))
"""How a record's magic looks on disk."""

IP6_EXTRA = 12
"""Bytes a host of IPv6 is longer."""

_TABLE: tuple[tuple[str, str, int], ...] = (
    ("size", "i4", 0),
    ("magic", "i4", 0),
    ("body_crc", "i4", 0),
    ("queue_id", "i4", 0),
    ("flag", "i4", 0),
    ("queue_offset", "i8", 0),
    ("physical_offset", "i8", 0),
    ("sys_flag", "i4", 0),
    ("born_timestamp", "i8", 0),
    ("born_ip", "u4", BORN_IP6),
    ("born_port", "i4", 0),
    ("store_timestamp", "i8", 0),
    ("store_ip", "u4", STORE_IP6),
    ("store_port", "i4", 0),
    ("reconsume_times", "i4", 0),
    ("prepared_transaction_offset", "i8", 0),
    ("body_length", "i4", 0),
)
"""Name, type and size, and the bit of the system flag that makes it L{IP6_EXTRA} longer.  Body,
topic behind its length (1 byte, or 2 in version 2) and properties behind theirs (2) follow."""

_BORN_SHIFT = BORN_IP6.bit_length() - 1
_STORE_SHIFT = STORE_IP6.bit_length() - 1
_LETTERS = {"i4": "i", "u4": "I", "i8": "q"}

_Flags = TypeVar("_Flags", int, "np.ndarray[Any, Any]")


def born_extra(sys_flag: _Flags) -> _Flags:
    """How many bytes longer the born host is; for one system flag or an array of them."""
    return IP6_EXTRA * (sys_flag >> _BORN_SHIFT & 1)


def store_extra(sys_flag: _Flags) -> _Flags:
    """How many bytes longer the store host is."""
    return IP6_EXTRA * (sys_flag >> _STORE_SHIFT & 1)


@frozen
class Field:
    """One fixed field.

    @ivar kind: C{i4}, C{i8} or C{u4}: signed or not, and how many bytes.  Big-endian.
    @ivar at: Its offset in a record with two IPv4 hosts.
    @ivar moved_by: The bits of the system flag that each move it by L{IP6_EXTRA}.
    """

    name: str
    kind: str
    at: int
    moved_by: int

    @property
    def size(self) -> int:
        """In bytes, with an IPv4 host."""
        return int(self.kind[1:])

    @property
    def place(self) -> slice:
        """Its bytes in a record with two IPv4 hosts."""
        return slice(self.at, self.at + self.size)

    def offset(self, sys_flag: _Flags) -> _Flags:
        """Its offset in records with such system flags."""
        hosts = sys_flag & self.moved_by
        found: _Flags = self.at + born_extra(hosts) + store_extra(hosts)
        return found


def _placed() -> dict[str, Field]:
    fields, at, moved_by = {}, 0, 0
    for name, kind, bit in _TABLE:
        fields[name] = Field(name, kind, at, moved_by)
        at += fields[name].size
        moved_by |= bit
    return fields


FIELDS = _placed()
"""The fixed fields by name, in their order."""


def struct_of(*names: str, start: int = 0) -> Struct:
    """What reads some fixed fields at once, and passes over those between them.

    @param names: In the order of the record.
    @param start: The offset in the record where the struct begins.
    """
    form, at = ">", start
    for field in map(FIELDS.__getitem__, names):
        form += f"{field.at - at}x" + _LETTERS[field.kind]
        at = field.at + field.size
    return Struct(form)


SIZE_AT = FIELDS["size"].at
MAGIC_AT = FIELDS["magic"].at
BODY_CRC_AT = FIELDS["body_crc"].at
QUEUE_ID_AT = FIELDS["queue_id"].at
FLAG_AT = FIELDS["flag"].at
QUEUE_OFFSET_AT = FIELDS["queue_offset"].at
PHYSICAL_OFFSET_AT = FIELDS["physical_offset"].at
SYS_FLAG_AT = FIELDS["sys_flag"].at
BORN_TIMESTAMP_AT = FIELDS["born_timestamp"].at
BORN_HOST_AT = FIELDS["born_ip"].at
STORE_TIMESTAMP_AT = FIELDS["store_timestamp"].at
STORE_HOST_AT = FIELDS["store_ip"].at
RECONSUME_TIMES_AT = FIELDS["reconsume_times"].at
BODY_AT: int = FIELDS["body_length"].place.stop
"""Where each stands in a record with two IPv4 hosts, and the body behind its length."""

BEFORE_HOSTS = tuple(name for name, field in FIELDS.items() if field.at < BORN_HOST_AT)
"""The names of the fields in front of the hosts, which never move."""

HOST_SIZE = STORE_TIMESTAMP_AT - BORN_HOST_AT
"""Bytes of an IPv4 host and its port."""

HOSTS_BYTE_AT = SYS_FLAG_AT + 3
"""The byte of the system flag with the two bits of the hosts."""

HEAD_MOST = BODY_AT + 2 * IP6_EXTRA
"""Bytes before the body of a record with two IPv6 hosts."""

STRING_LENGTHS = 3
"""Bytes of the lengths of topic and properties in version 1; version 2 has one more."""

MIN_RECORD = BODY_AT + STRING_LENGTHS
"""A record with two IPv4 hosts and no body, topic or properties."""

MIN_BLANK = BODY_CRC_AT
"""A file ends with a blank of at least its own header: size and magic."""

MAX_RECORD_OVERHEAD = 64 * 1024
"""Bytes a record may be longer than C{maxMessageSize}."""
