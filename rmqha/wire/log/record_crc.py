"""The CRC of a whole record, where there is one.

The field for the body's CRC says nothing about the rest of a record: a bit that turns over in its
topic, its properties or its times passes every check.  A 5.x broker with
C{enabledAppendPropCRC=true} ends each record with a property for that.

Source: docs/protocol/store.rst, Properties.
"""

from __future__ import annotations

from isal.isal_zlib import crc32

from rmqha.wire.log.properties import NAME_END, PAIR_END
from rmqha.wire.names import CRC

MARK = CRC.encode() + NAME_END
"""How the property begins."""

_DIGITS = 10
_SIZE = len(MARK) + _DIGITS + len(PAIR_END)


def whole_crc_holds(record: bytes | memoryview) -> bool | None:
    """Compare a record with the CRC at its end.

    @param record: All of it.
    @return: C{None} if it has no such property.
    """
    start = len(record) - _SIZE
    tail = bytes(record[max(start, 0) :])
    if start < 0 or not tail.startswith(MARK) or not tail.endswith(PAIR_END):
        return None
    return tail == crc_property(record[:start])


def crc_property(record: bytes | memoryview) -> bytes:
    """The property that belongs behind a record.

    @param record: What is before it, with all fields filled in.
    @return: Name and value; the digits stand the other way round, filled up with zeros.
    """
    return MARK + str(crc32(record) & 0x7FFFFFFF)[::-1].ljust(_DIGITS, "0").encode() + PAIR_END
