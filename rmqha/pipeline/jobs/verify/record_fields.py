"""
Which field of a record a byte belongs to.

Source: docs/protocol/store.rst, Records.
"""

from __future__ import annotations

from bisect import bisect_right

from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.layout import IP6_EXTRA, MAGIC_V2
from rmqha.wire.log.record import magic_at
from rmqha.wire.log.sys_flag import BORN_IP6, STORE_IP6

_FIRST = (
    ("size", 4),
    ("magic", 4),
    ("body_crc", 4),
    ("queue_id", 4),
    ("flag", 4),
    ("queue_offset", 8),
    ("physical_offset", 8),
    ("sys_flag", 4),
    ("born_timestamp", 8),
)
_SYS_FLAG_LOW = 39
"""The byte of the system flag with the bits of hosts."""


def fields_of(record: memoryview) -> list[tuple[int, str]]:
    """
    Where each field of a whole, valid record begins, ascending.

    A length belongs to what it is the length of.
    """
    flags = record[_SYS_FLAG_LOW]
    born, stored = (8 + (IP6_EXTRA if flags & bit else 0) for bit in (BORN_IP6, STORE_IP6))
    sizes = [
        *_FIRST,
        ("born_host", born),
        ("store_timestamp", 8),
        ("store_host", stored),
        ("reconsume_times", 4),
        ("prepared_transaction_offset", 8),
    ]
    places, at = [], 0
    for name, size in sizes:
        places.append((at, name))
        at += size
    places.append((at, "body"))
    at += 4 + int.from_bytes(record[at : at + 4], "big")
    places.append((at, "topic"))
    width = 2 if magic_at(record, 0) == MAGIC_V2 else 1
    at += width + int.from_bytes(record[at : at + width], "big")
    places.append((at, "properties"))
    return places


def names_at(record: memoryview, places: Array) -> tuple[str, ...]:
    """
    The fields some bytes of a record belong to, in the record's order.

    @param places: Positions in the record, ascending.
    """
    fields = fields_of(record)
    starts = [start for start, _ in fields]
    rows = {bisect_right(starts, place) - 1 for place in places.tolist()}
    return tuple(fields[row][1] for row in sorted(rows))
