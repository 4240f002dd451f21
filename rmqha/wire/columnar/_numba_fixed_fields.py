"""One pass over records for numba: follow them, put all rules to them, check their bodies, and
read their fixed fields while their first bytes are at hand.

It is linked to isal's CRC, so it is imported only where that was found
(L{rmqha.wire.columnar._numba_kernels}).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import boolean, int32, int64, types, uint32, uint64

from rmqha.wire.columnar import kernels_numpy
from rmqha.wire.columnar._numba_common import (
    BYTES,
    WORDS,
    as_bytes,
    born_extra,
    compiled,
    number_of,
    store_extra,
    words_of,
)
from rmqha.wire.columnar._numba_texts import OUT, memcpy
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.layout import (
    BODY_AT,
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    STRING_LENGTHS,
    SYS_FLAG_AT,
)

_UINT32: Any = uint32
_crc32: Any = types.ExternalFunction("crc32_gzip_refl", _UINT32(uint32, types.intp, types.uint64))

_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_FEW_TOPICS = 512

_STORE_HOST = STORE_HOST_AT - STORE_TIMESTAMP_AT
_LAST = BODY_AT - RECONSUME_TIMES_AT
"""Bytes from the store time to the store host, and from the last fields to the body."""

_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)


@compiled(uint64(WORDS, int64))
def _w64(words: Array, at: int) -> Any:
    """Read eight bytes, the highest first."""
    word = words[at]
    word = (word >> _8 & _PAIRS) | (word & _PAIRS) << _8
    word = (word >> _16 & _FOURS) | (word & _FOURS) << _16
    return word >> _32 | word << _32


@compiled(int64(WORDS, int64))
def _w32(words: Array, at: int) -> Any:
    """Read four bytes as a signed number, the highest first; four more have to be there."""
    return int64(np.int32(_w64(words, at) >> _32))


@compiled(
    int64(
        BYTES,
        WORDS,
        int64,
        int64,
        boolean,
        int64,
        boolean,
        int64[:],
        int32[:, :],
        int64[:, :],
        int64[:, :],
        int64[:, :],
        boolean[:],
        int32[:],
        OUT,
    )
)
def _heads(
    data: Array,
    words: Array,
    base: int,
    stop: int,
    crc: bool,
    max_size: int,
    nul_is_torn: bool,
    chain: Array,
    narrow: Array,
    wide: Array,
    places: Array,
    topics: Array,
    odd: Array,
    ends: Array,
    bodies: Array,
) -> int:
    """@param topics: As for L{number_of}.
    @param odd: For each topic, whether it is more than ASCII.
    @param ends: Where each body ends in C{bodies}; empty if they are not copied.
    @return: How many records are good; -1 if there are too many topics.
    """
    count = position = row = number = 0
    chain[0] = 0
    source, target, copied = data.ctypes.data, bodies.ctypes.data, 0
    # Every record has an item in chain, narrow and so on; a valid one has 92 bytes.
    while stop - position > MIN_RECORD:
        size = _w32(words, position)
        if not MIN_RECORD < size <= min(stop - position, max_size):
            break
        end = position + size
        magic, flags = _w32(words, position + MAGIC_AT), _w32(words, position + SYS_FLAG_AT)
        newer = int64(magic == MAGIC_V2)
        born6 = born_extra(flags)
        body = position + BODY_AT + born6 + store_extra(flags)
        strings = end - body - STRING_LENGTHS - newer
        if (magic != MAGIC_V1 and not newer) or strings < 1:
            break
        length = _w32(words, body - 4)
        offset = int64(_w64(words, position + PHYSICAL_OFFSET_AT))
        if offset != base + position or not 0 <= length < strings:
            break
        topic = body + length + 1 + newer
        topic_length: Any = int64(np.int8(data[topic - 1]))
        if newer:
            topic_length = int64(np.int8(data[topic - 2])) << 8 | int64(data[topic - 1])
        if not 0 < topic_length <= strings - length:
            break
        properties = topic + topic_length + 2
        properties_length = int64(np.int8(data[properties - 2])) << 8 | int64(data[properties - 1])
        if properties_length < 0 or length + topic_length + properties_length != strings:
            break
        if nul_is_torn and properties_length and not data[end - 1]:
            break
        wanted = _w32(words, position + BODY_CRC_AT)
        if crc and length:
            found = _crc32(np.uint32(0), source + body, np.uint64(length))
            if int64(found) & 0x7FFFFFFF != wanted:
                break

        if count == len(odd):
            return -1
        number = number_of(data, topic, topic_length, number, count, topics)
        if number == count:
            seen = np.uint8(0)
            for index in range(topic, topic + topic_length):
                seen |= data[index]
            odd[count] = seen > 0x7F
            count += 1
        born, stored = position + BORN_HOST_AT, position + STORE_TIMESTAMP_AT + born6
        host, last = stored + _STORE_HOST, body - _LAST
        narrow[0, row], narrow[1, row] = wanted, _w32(words, position + QUEUE_ID_AT)
        narrow[2, row], narrow[3, row] = _w32(words, position + FLAG_AT), flags
        narrow[4, row], narrow[5, row] = _w32(words, born), _w32(words, born + 4)
        narrow[6, row], narrow[7, row] = _w32(words, host), _w32(words, host + 4)
        narrow[8, row], narrow[9, row] = _w32(words, last), number
        wide[0, row], wide[1, row] = int64(_w64(words, position + QUEUE_OFFSET_AT)), offset
        wide[2, row] = int64(_w64(words, position + BORN_TIMESTAMP_AT))
        wide[3, row] = int64(_w64(words, stored))
        wide[4, row] = int64(_w64(words, last + 4))
        places[0, row], places[1, row], places[2, row] = body, length, topic
        places[3, row], places[4, row] = topic_length, properties
        places[5, row] = size - strings
        if len(ends):
            memcpy(target + copied, source + body, np.uint64(length))
            copied += length
            ends[row + 1] = copied
        row += 1
        position = end
        chain[row] = position
    return row


def heads(
    buf: memoryview,
    base: int,
    stop: int,
    crc: bool,
    max_size: int,
    nul_is_torn: bool,
    bodies: bool,
) -> kernels_numpy.FixedColumns:
    """Find the sound records at the front of a buffer, and read their fixed fields.

    What stands behind them is not sound, is not whole, or is the blank.

    @param base: Physical offset of C{buf[0]}.
    @param stop: Position of the first byte that may not be read.
    @param bodies: Whether to copy the bodies while they are at hand.
    """
    most = max(stop, 0) // MIN_RECORD + 1
    chain = np.empty(most + 1, np.int64)
    narrow = np.empty((10, most), np.int32)
    wide, places = np.empty((5, most), np.int64), np.empty((6, most), np.int64)
    ends = np.empty(most + 1 if bodies else 0, np.int32)
    ends[:1] = 0
    copies = np.empty(max(stop, 0) if bodies else 0, np.uint8)
    data, rows, room = as_bytes(buf), -1, _FEW_TOPICS
    while rows < 0:
        # Cleared for every block: as long as it has to be, which is short.
        topics, odd = np.zeros((4, 2 * room), np.int64), np.zeros(room, np.bool_)
        rows = _heads(
            data,
            words_of(data),
            base,
            stop,
            crc,
            max_size,
            nul_is_torn,
            chain,
            narrow,
            wide,
            places,
            topics,
            odd,
            ends,
            copies,
        )
        room *= 16
    numbers = narrow[9, :rows]
    count = int(numbers.max()) + 1 if rows else 0
    names = [bytes(buf[start : start + length]) for start, length in topics[:2, :count].T.tolist()]
    for number in np.flatnonzero(odd[:count]).tolist():
        if not kernels_numpy.is_utf8(names[number]):
            # Topics have their numbers in the order in which they come.
            rows, names = int((numbers == number).argmax()), names[:number]
            break
    return kernels_numpy.FixedColumns(
        chain[: rows + 1].copy(),
        narrow[:, :rows].copy(),
        wide[:, :rows].copy(),
        kernels_numpy.StringLayout(*places[:, :rows].copy()),
        [name.decode() for name in names],
        (ends[: rows + 1].copy(), _tight(copies, int(ends[rows]))) if bodies else None,
    )


def _tight(letters: Array, size: int) -> Array:
    """The front of an array, alone if most of it is not used."""
    used = letters[:size]
    return used.copy() if 4 * size < 3 * len(letters) else used
