"""The inner loops of L{rmqha.wire.columnar.kernels_numpy} for numba, from the extra C{fast}.

Importing this module compiles them, or loads what an earlier run compiled; only
L{rmqha.wire.columnar.kernels.warm_up} does so.  The signatures are fixed, so nothing is ever
compiled later, and the loops run without the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numpy as np
from isal import isal_zlib
from numba import boolean, int32, int64, types, uint32

from rmqha.wire.columnar import kernels_numpy
from rmqha.wire.columnar._numba_common import (
    BYTES,
    as_bytes,
    born_extra,
    compiled,
    i16,
    i32,
    i64,
    java_hash,
    number_of,
    store_extra,
)
from rmqha.wire.columnar._numba_rows import layout, number, properties
from rmqha.wire.columnar._numba_texts import gather, hosts, offset_ids
from rmqha.wire.columnar.kernels import Heads, Kernels
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.layout import (
    BODY_AT,
    BODY_CRC_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    STRING_LENGTHS,
    SYS_FLAG_AT,
)
from rmqha.wire.names import KEYS, TAGS, UNIQUE_KEY

_UINT32: Any = uint32
_PAIR: Any = types.Tuple((int64, int64))  # type: ignore[no-untyped-call]
_TAGS, _KEYS, _UNIQ_KEY = (int.from_bytes(name.encode()) for name in (TAGS, KEYS, UNIQUE_KEY))


@compiled(int64(BYTES, int64, int64[:]))
def _follow(data: Array, stop: int, positions: Array) -> int:
    count = position = 0
    positions[0] = 0
    while stop - position >= MIN_RECORD:
        size = i32(data, position)
        if not MIN_RECORD <= size <= stop - position:
            break
        position += size
        count += 1
        positions[count] = position
    return count + 1


@compiled(int64(BYTES, int64, int64[:], int64, boolean, int64[:], int64[:], int64[:], boolean[:]))
def _rules(
    data: Array,
    base: int,
    chain: Array,
    max_size: int,
    nul_is_torn: bool,
    starts: Array,
    ends: Array,
    crc: Array,
    odd: Array,
) -> int:
    for row in range(len(chain) - 1):
        position, end = chain[row], chain[row + 1]
        magic, flags = i32(data, position + MAGIC_AT), i32(data, position + SYS_FLAG_AT)
        newer = int64(magic == MAGIC_V2)
        body = position + BODY_AT + born_extra(flags) + store_extra(flags)
        # Bytes of body, topic and properties; a topic has one at least.
        strings = end - body - STRING_LENGTHS - newer
        if (magic != MAGIC_V1 and not newer) or end - position > max_size or strings < 1:
            return row
        length = i32(data, body - 4)
        if i64(data, position + PHYSICAL_OFFSET_AT) != base + position or not 0 <= length < strings:
            return row
        topic = body + length + 1 + newer
        topic_length = i16(data, topic - 2) if newer else int64(np.int8(data[topic - 1]))
        if not 0 < topic_length <= strings - length:
            return row
        properties_length = i16(data, topic + topic_length)
        if length + topic_length + properties_length != strings:
            return row
        if properties_length < 0 or (nul_is_torn and properties_length and not data[end - 1]):
            return row
        seen = np.uint8(0)
        for index in range(topic, topic + topic_length):
            seen |= data[index]
        odd[row] = seen > 0x7F
        starts[row], ends[row] = body, body + length
        crc[row] = i32(data, position + BODY_CRC_AT)
    return len(chain) - 1


@compiled(int64(uint32))
def _positive(value: int) -> Any:
    found = abs(int64(np.int32(value)))
    return 0 if found == 1 << 31 else found


@compiled(int64(BYTES, int64, int64))
def _number(data: Array, start: int, end: int) -> Any:
    """Read up to 8 bytes as a big-endian number; 0 for more bytes."""
    value = 0
    if end - start <= 8:
        for index in range(start, end):
            value = value << 8 | int64(data[index])
    return value


@compiled(
    _PAIR(
        BYTES,
        int64[:],
        int64[:],
        int32[:, :],
        int64[:, :],
        boolean[:],
        int32[:],
        int64[:],
        int64[:, :],
    )
)
def _columns(
    data: Array,
    starts: Array,
    ends: Array,
    narrow: Array,
    wide: Array,
    is_ascii: Array,
    key_record: Array,
    key_hash: Array,
    topics: Array,
) -> tuple[int, int]:
    """@param narrow: For topic, queue id and flags of each row.
    @param wide: For queue offset, store time and tags of each row.
    @param topics: For first byte, length and hash of each topic, and in its last row a
        table of twice as many places as there are rows, 0 or the topic's number plus one.
    @return: How many topics and keys there are; -1 keys if they are too many.
    """
    count = keys = number = 0
    for row in range(len(starts)):
        position, end = starts[row], ends[row]
        flags = i32(data, position + SYS_FLAG_AT)
        newer = int64(i32(data, position + MAGIC_AT) == MAGIC_V2)
        ip6 = born_extra(flags)
        body = position + BODY_AT + ip6 + store_extra(flags)
        topic = body + i32(data, body - 4) + 1 + newer
        length = i16(data, topic - 2) if newer else int64(data[topic - 1])
        number = number_of(data, topic, length, number, count, topics)
        count = max(count, number + 1)
        narrow[0, row] = number
        narrow[1, row] = i32(data, position + QUEUE_ID_AT)
        narrow[2, row] = flags
        wide[0, row] = i64(data, position + QUEUE_OFFSET_AT)
        wide[1, row] = i64(data, position + STORE_TIMESTAMP_AT + ip6)

        seen = np.uint8(0)
        for index in range(topic, topic + length):
            seen |= data[index]
        opened, split = topic + length + 2, -1
        tag = tag_end = unique = unique_end = words = words_end = 0
        for index in range(opened, end + 1):
            letter = data[index] if index < end else np.uint8(2)
            seen |= letter
            if letter == 1 and split < 0:
                split = index
            elif letter == 2:
                if opened < split < index - 1:
                    name = _number(data, opened, split)
                    if name == _TAGS:
                        tag, tag_end = split + 1, index
                    elif name == _KEYS:
                        words, words_end = split + 1, index
                    elif name == _UNIQ_KEY:
                        unique, unique_end = split + 1, index
                opened, split = index + 1, -1
        wide[2, row] = np.int32(java_hash(data, tag, tag_end, np.uint32(0)))
        is_ascii[row] = seen < 0x80
        if keys + 1 + (words_end - words + 1) // 2 > len(key_record):
            return count, -1
        begun = np.uint32(np.uint32(topics[2, number]) * np.uint32(31) + np.uint32(0x23))
        if unique_end:
            key_record[keys] = row
            key_hash[keys] = _positive(java_hash(data, unique, unique_end, begun))
            keys += 1
        for index in range(words, words_end + 1):
            if index == words_end or data[index] == 0x20:
                if index > words:
                    key_record[keys] = row
                    key_hash[keys] = _positive(java_hash(data, words, index, begun))
                    keys += 1
                words = index + 1
    return count, keys


def follow(buf: memoryview, stop: int) -> Array:
    """See L{rmqha.wire.columnar.kernels_numpy.follow}."""
    positions = np.empty(max(stop, 0) // MIN_RECORD + 1, np.int64)
    return positions[: _follow(as_bytes(buf), stop, positions)].copy()


def rules(
    buf: memoryview, base: int, chain: Array, max_size: int, nul_is_torn: bool
) -> kernels_numpy.Bodies:
    """See L{rmqha.wire.columnar.kernels_numpy.rules}."""
    rows = len(chain) - 1
    starts, ends, crc = np.empty((3, rows), np.int64)
    odd = np.zeros(rows, np.bool_)
    count = _rules(as_bytes(buf), base, chain, max_size, nul_is_torn, starts, ends, crc, odd)
    for row in np.flatnonzero(odd[:count]).tolist():
        at = kernels_numpy.layout(buf, chain[row : row + 1])
        topic, length = int(at.topic[0]), int(at.topic_length[0])
        if not kernels_numpy.is_utf8(bytes(buf[topic : topic + length])):
            count = row
            break
    return kernels_numpy.Bodies(starts[:count], ends[:count], crc[:count])


def columns(buf: memoryview, starts: Array, ends: Array) -> kernels_numpy.DispatchColumns:
    """See L{rmqha.wire.columnar.kernels_numpy.columns}."""
    rows = len(starts)
    narrow, wide = np.empty((3, rows), np.int32), np.empty((3, rows), np.int64)
    is_ascii = np.empty(rows, np.bool_)
    keys, room = -1, 4 * rows
    while keys < 0:
        room *= 4
        record, hashes = np.empty(room, np.int32), np.empty(room, np.int64)
        topics = np.zeros((4, 2 * rows), np.int64)
        count, keys = _columns(
            as_bytes(buf), starts, ends, narrow, wide, is_ascii, record, hashes, topics
        )
    names = [
        bytes(buf[start : start + length]).decode()
        for start, length in topics[:2, :count].T.tolist()
    ]
    return kernels_numpy.DispatchColumns(
        names,
        narrow[0],
        narrow[1],
        wide[0],
        narrow[2],
        wide[1],
        wide[2],
        is_ascii,
        record[:keys].copy(),
        hashes[:keys].copy(),
    )


# A closure would be compiled again by every process.
_crc32: Any = types.ExternalFunction("crc32_gzip_refl", _UINT32(uint32, types.intp, types.uint64))


def _crcs(data: Array, starts: Array, ends: Array, found: Array) -> None:
    address = data.ctypes.data
    for row in range(len(starts)):
        size = np.uint64(ends[row] - starts[row])
        found[row] = _crc32(np.uint32(0), address + starts[row], size)


def _native_crcs() -> Callable[[memoryview, Array, Array], Array]:
    """Call the C function under isal's C{crc32} without an interpreter in between.

    ISA-L documents C{crc32_gzip_refl}; that isal's extension module lets others link
    to it is luck (measured: 35 ns instead of 400 for 760 bytes), so we ask for it and
    compare one result.

    @raise AttributeError: If the module does not export it.
    """
    llvmlite.binding.load_library_permanently(isal_zlib.__file__)
    if not llvmlite.binding.address_of_symbol("crc32_gzip_refl"):
        raise AttributeError("isal does not export crc32_gzip_refl")
    run = compiled(types.void(BYTES, int64[:], int64[:], uint32[:]))(_crcs)

    def crcs(buf: memoryview, starts: Array, ends: Array) -> Array:
        found = np.empty(len(starts), np.uint32)
        run(as_bytes(buf), starts, ends, found)
        return found

    hello = memoryview(b"hello")
    if crcs(hello, np.zeros(1, np.int64), np.full(1, 5, np.int64))[0] != isal_zlib.crc32(hello):
        raise AttributeError("crc32_gzip_refl is not the function we know")
    return crcs


heads: Heads | None = None
try:
    crcs = _native_crcs()
    from rmqha.wire.columnar._numba_fixed_fields import heads
except (AttributeError, OSError, RuntimeError):
    crcs = kernels_numpy.crcs

# Measured: a call costs about 20 microseconds before its first record.
LOOPS = Kernels(
    "numba",
    8,
    follow,
    rules,
    crcs,
    columns,
    layout,
    number,
    properties,
    gather,
    heads,
    hosts,
    offset_ids,
)
