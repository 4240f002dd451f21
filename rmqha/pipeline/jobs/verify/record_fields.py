"""
Which field of a record a byte belongs to.

Source: docs/protocol/store.rst, Records.
"""

from __future__ import annotations

from bisect import bisect_right

from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.layout import FIELDS, HOSTS_BYTE_AT, MAGIC_V2
from rmqha.wire.log.record import magic_at

_NAMES = {"born_ip": "born_host", "store_ip": "store_host", "body_length": "body"}
_PORTS = ("born_port", "store_port")
"""A host is told as one field, and a length as part of what it is the length of."""


def fields_of(record: memoryview) -> list[tuple[int, str]]:
    """
    Where each field of a whole, valid record begins, ascending.

    A length belongs to what it is the length of.
    """
    flags = record[HOSTS_BYTE_AT]
    places = [
        (field.offset(flags), _NAMES.get(name, name))
        for name, field in FIELDS.items()
        if name not in _PORTS
    ]
    at = places[-1][0]
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
