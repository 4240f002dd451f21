"""Our bytes beside the master's, and the first byte head of a log that starts at byte 1."""

from __future__ import annotations

import numpy as np

from rmqha.logfiles.reader import LogReader
from rmqha.wire.log.layout import (
    BODY_AT,
    FIELDS,
    HEAD_MOST,
    MAGIC_BLANK,
    MIN_RECORD,
    born_extra,
    store_extra,
)
from rmqha.wire.log.record import magic_at


def first_difference(log: LogReader, offset: int, data: memoryview) -> int | None:
    """Compare bytes a master sent with ours.

    @param offset: Where they belong; the whole range is ours to read.
    @return: Physical offset of the first byte that differs, or C{None}.
    """
    position = 0
    while position < len(data):
        ours = log.read(offset + position, len(data) - position)
        theirs = data[position : position + len(ours)]
        if bytes(ours) != bytes(theirs):
            differs = np.frombuffer(ours, np.uint8) != np.frombuffer(theirs, np.uint8)
            return offset + position + int(np.argmax(differs))
        position += len(ours)
    return None


def missing_first_byte(head: bytes | bytearray, file_size: int) -> int | None:
    """Byte 0 of a log whose bytes from 1 on are known.

    It is the highest byte of the first record's size, which the record's own lengths
    tell: a record is at most 64 KiB longer than its body, so only one value fits.

    @param head: The log from byte 1 on.
    @param file_size: Size of the master's first file: what a blank's size would be.
    @return: The byte, or C{None} while C{head} is too short to tell.
    """
    if len(head) < HEAD_MOST:
        return None
    record = b"\0" + head
    if magic_at(record, 0) == MAGIC_BLANK:
        return file_size >> 24
    sys_flag = int.from_bytes(record[FIELDS["sys_flag"].place], "big")
    hosts = born_extra(sys_flag) + store_extra(sys_flag)
    at = FIELDS["body_length"].offset(sys_flag)
    body = int.from_bytes(record[at : BODY_AT + hosts], "big")
    least = MIN_RECORD + hosts + body
    low = int.from_bytes(record[1:4], "big")
    high = least >> 24
    # What no record can say is cut to a byte; the record's check will name it.
    return (high if (high << 24) + low >= least else high + 1) & 0xFF
