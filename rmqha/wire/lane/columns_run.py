"""Many records as columns, in one pass over their bytes: the loops of
L{rmqha.wire.columnar.kernels}, which makes room for what they write.

This module is compiled (C{setup.py}), and of use only so.  The loops in numpy,
L{rmqha.wire.columnar.kernels_numpy}, give equal results; tests compare both.

Bytes are read without a check of bounds: each length of a record is held against its end before
anything behind it is read.

Source: docs/protocol/store.rst, Records, Dispatch, Hashes and Index files.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import PyBUF_READ
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.libc.string import memcmp, memcpy
from cython.cimports.rmqha.wire.lane.big_endian import at2, at4, at8, crc_at, hex16, low8
from isal.isal_zlib import crc32

from rmqha.wire.lane.native_crc import CRC
from rmqha.wire.log.hashing import MASK
from rmqha.wire.log.layout import (
    BODY_AT,
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    IP6_EXTRA,
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
from rmqha.wire.log.sys_flag import BORN_IP6, STORE_IP6
from rmqha.wire.names import KEYS, TAGS, UNIQUE_KEY

_BODY = cython.declare(cython.longlong, BODY_AT)
_IP6 = cython.declare(cython.longlong, IP6_EXTRA)
_LEAST = cython.declare(cython.longlong, MIN_RECORD)
_V1 = cython.declare(cython.longlong, MAGIC_V1)
_V2 = cython.declare(cython.longlong, MAGIC_V2)
_LENGTHS = cython.declare(cython.longlong, STRING_LENGTHS)
_AT_MAGIC = cython.declare(cython.longlong, MAGIC_AT)
_AT_CRC = cython.declare(cython.longlong, BODY_CRC_AT)
_AT_QUEUE = cython.declare(cython.longlong, QUEUE_ID_AT)
_AT_NUMBER = cython.declare(cython.longlong, FLAG_AT)
_AT_QUEUE_OFFSET = cython.declare(cython.longlong, QUEUE_OFFSET_AT)
_AT_OFFSET = cython.declare(cython.longlong, PHYSICAL_OFFSET_AT)
_AT_FLAG = cython.declare(cython.longlong, SYS_FLAG_AT)
_AT_BORN = cython.declare(cython.longlong, BORN_TIMESTAMP_AT)
_AT_BORN_HOST = cython.declare(cython.longlong, BORN_HOST_AT)
_AT_STORED = cython.declare(cython.longlong, STORE_TIMESTAMP_AT)
_HOST = cython.declare(cython.longlong, STORE_HOST_AT - STORE_TIMESTAMP_AT)
_LAST = cython.declare(cython.longlong, BODY_AT - RECONSUME_TIMES_AT)
_BORN_IP6 = cython.declare(cython.longlong, BORN_IP6)
_STORE_IP6 = cython.declare(cython.longlong, STORE_IP6)
_MASK = cython.declare(cython.longlong, MASK)
_CRC = cython.declare(cython.size_t, CRC)
_TAGS = cython.declare(cython.ulonglong, int.from_bytes(TAGS.encode()))
_KEYS = cython.declare(cython.ulonglong, int.from_bytes(KEYS.encode()))
_UNIQUE = cython.declare(cython.ulonglong, int.from_bytes(UNIQUE_KEY.encode()))

_ONES = cython.declare(cython.ulonglong, 0x0101010101010101)
_HIGHS = cython.declare(cython.ulonglong, 0x8080808080808080)
_FEW_PAIRS = cython.declare(cython.Py_ssize_t, 64)
"""Pairs of one record up to which each is compared with all before it."""

_Bytes = cython.typedef(cython.pointer(cython.const[cython.uchar]))
_Places = cython.typedef(cython.pointer(cython.longlong))


@cython.boundscheck(False)
def heads(
    view: cython.const[cython.uchar][::1],
    base: cython.longlong,
    stop: cython.longlong,
    crc: cython.bint,
    max_size: cython.longlong,
    nul_is_torn: cython.bint,
    chain: cython.longlong[::1],
    narrow: cython.int[:, ::1],
    wide: cython.longlong[:, ::1],
    places: cython.longlong[:, ::1],
    topics: cython.longlong[:, ::1],
    odd: cython.uchar[::1],
    ends: cython.int[::1],
    bodies: cython.uchar[::1],
) -> int:
    """Find the sound records at the front of a buffer, and read their fixed fields.

    @param topics: As for L{_number}.
    @param odd: For each topic, whether it is more than ASCII; there is room for so many.
    @param ends: Where each body ends in C{bodies}; empty if they are not copied.
    @return: How many records are sound; -1 if there are too many topics.
    """
    data: _Bytes = cython.address(view[0])
    known: _Places = cython.address(topics[0, 0])
    room: cython.longlong = topics.shape[1]
    at: _Bytes
    position: cython.longlong = 0
    row: cython.Py_ssize_t = 0
    number: cython.longlong = 0
    count: cython.longlong = 0
    copied: cython.longlong = 0
    stop = min(stop, len(view))
    chain[0] = 0
    with cython.nogil:
        while stop - position > _LEAST:
            at = data + position
            size: cython.longlong = at4(at)
            if size <= _LEAST or size > stop - position or size > max_size:
                break
            end: cython.longlong = position + size
            magic: cython.longlong = at4(at + _AT_MAGIC)
            flags: cython.longlong = at4(at + _AT_FLAG)
            newer: cython.longlong = magic == _V2
            born6: cython.longlong = _IP6 if flags & _BORN_IP6 else 0
            body: cython.longlong = position + _BODY + born6 + (_IP6 if flags & _STORE_IP6 else 0)
            strings: cython.longlong = end - body - _LENGTHS - newer
            if (magic != _V1 and not newer) or strings < 1:
                break
            length: cython.longlong = at4(data + body - 4)
            offset: cython.longlong = at8(at + _AT_OFFSET)
            if offset != base + position or length < 0 or length >= strings:
                break
            topic: cython.longlong = body + length + 1 + newer
            topic_length: cython.longlong = (
                at2(data + topic - 2) if newer else cython.cast(cython.schar, data[topic - 1])
            )
            if topic_length < 1 or topic_length > strings - length:
                break
            properties: cython.longlong = topic + topic_length + 2
            rest: cython.longlong = at2(data + properties - 2)
            if rest < 0 or length + topic_length + rest != strings:
                break
            if nul_is_torn and rest and not data[end - 1]:
                break
            wanted: cython.longlong = at4(at + _AT_CRC)
            if crc and length:
                found: cython.longlong = (
                    crc_at(_CRC, data + body, length) if _CRC else _crc(data + body, length)
                )
                if found & _MASK != wanted:
                    break

            if count == odd.shape[0]:
                row = -1
                break
            number = _number(data, topic, topic_length, number, count, known, room)
            if number == count:
                odd[count] = not _ascii(data, topic, topic + topic_length)
                count += 1
            stored: cython.longlong = position + _AT_STORED + born6
            narrow[0, row] = cython.cast(cython.int, wanted)
            narrow[1, row] = cython.cast(cython.int, at4(at + _AT_QUEUE))
            narrow[2, row] = cython.cast(cython.int, at4(at + _AT_NUMBER))
            narrow[3, row] = cython.cast(cython.int, flags)
            narrow[4, row] = cython.cast(cython.int, at4(at + _AT_BORN_HOST))
            narrow[5, row] = cython.cast(cython.int, at4(at + _AT_BORN_HOST + 4))
            narrow[6, row] = cython.cast(cython.int, at4(data + stored + _HOST))
            narrow[7, row] = cython.cast(cython.int, at4(data + stored + _HOST + 4))
            narrow[8, row] = cython.cast(cython.int, at4(data + body - _LAST))
            narrow[9, row] = cython.cast(cython.int, number)
            wide[0, row], wide[1, row] = at8(at + _AT_QUEUE_OFFSET), offset
            wide[2, row], wide[3, row] = at8(at + _AT_BORN), at8(data + stored)
            wide[4, row] = at8(data + body - _LAST + 4)
            places[0, row], places[1, row], places[2, row] = body, length, topic
            places[3, row], places[4, row], places[5, row] = (
                topic_length,
                properties,
                size - strings,
            )
            if ends.shape[0]:
                memcpy(cython.address(bodies[copied]), data + body, length)
                copied += length
                ends[row + 1] = cython.cast(cython.int, copied)
            row += 1
            position = end
            chain[row] = position
    return row


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
def _crc(at: _Bytes, size: cython.longlong) -> cython.longlong:
    """The CRC of a body where the C function is not to be had."""
    with cython.gil:
        part = PyMemoryView_FromMemory(cython.cast(cython.p_char, at), size, PyBUF_READ)
        found: cython.longlong = crc32(part)
        return found


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _number(
    data: _Bytes,
    start: cython.longlong,
    length: cython.longlong,
    last: cython.longlong,
    count: cython.longlong,
    topics: _Places,
    room: cython.longlong,
) -> cython.longlong:
    """The number of a topic.

    @param last: The number of the row before: usually it is the same topic.
    @param count: How many topics there are; a new one gets this number.
    @param topics: For first byte, length and hash of each topic, and in its last row a
        table of more places than there are topics, 0 or the topic's number plus one.
    @param room: The length of a row.
    """
    number: cython.longlong
    lengths: _Places = topics + room
    table: _Places = topics + 3 * room
    if count and lengths[last] == length and not memcmp(data + topics[last], data + start, length):
        return last
    value: cython.uint = _hash(data, start, start + length, 0)
    place: cython.longlong = value % room
    while table[place]:
        number = table[place] - 1
        if lengths[number] == length and not memcmp(data + topics[number], data + start, length):
            return number
        place = (place + 1) % room
    topics[count], lengths[count], lengths[room + count] = start, length, value
    table[place] = count + 1
    return count


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hash(
    data: _Bytes, at: cython.longlong, end: cython.longlong, value: cython.uint
) -> cython.uint:
    """Java's hash of ASCII text that goes on from that of what stands before it."""
    place: cython.longlong
    for place in range(at, end):
        value = value * 31 + data[place]
    return value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _ascii(data: _Bytes, at: cython.longlong, end: cython.longlong) -> cython.bint:
    seen: cython.uchar = 0
    place: cython.longlong
    for place in range(at, end):
        seen |= data[place]
    return seen < 0x80


@cython.boundscheck(False)
def columns(
    view: cython.const[cython.uchar][::1],
    starts: cython.longlong[:],
    ends: cython.longlong[:],
    narrow: cython.int[:, ::1],
    wide: cython.longlong[:, ::1],
    is_ascii: cython.uchar[::1],
    key_record: cython.int[::1],
    key_hash: cython.longlong[::1],
    topics: cython.longlong[:, ::1],
) -> tuple:
    """Read what dispatch needs of valid records.

    @param narrow: For topic, queue id and flags of each row.
    @param wide: For queue offset, store time and tags of each row.
    @param topics: As for L{_number}.
    @return: How many topics and keys there are; -1 keys if they are too many.
    """
    data: _Bytes = cython.address(view[0])
    known: _Places = cython.address(topics[0, 0])
    room: cython.longlong = topics.shape[1]
    at: _Bytes
    row: cython.Py_ssize_t
    index: cython.longlong
    number: cython.longlong = 0
    count: cython.longlong = 0
    keys: cython.Py_ssize_t = 0
    with cython.nogil:
        for row in range(starts.shape[0]):
            at = data + starts[row]
            end: cython.longlong = ends[row]
            flags: cython.longlong = at4(at + _AT_FLAG)
            newer: cython.longlong = at4(at + _AT_MAGIC) == _V2
            born6: cython.longlong = _IP6 if flags & _BORN_IP6 else 0
            body: cython.longlong = (
                starts[row] + _BODY + born6 + (_IP6 if flags & _STORE_IP6 else 0)
            )
            topic: cython.longlong = body + at4(data + body - 4) + 1 + newer
            length: cython.longlong = at2(data + topic - 2) if newer else data[topic - 1]
            number = _number(data, topic, length, number, count, known, room)
            count = max(count, number + 1)
            narrow[0, row] = cython.cast(cython.int, number)
            narrow[1, row] = cython.cast(cython.int, at4(at + _AT_QUEUE))
            narrow[2, row] = cython.cast(cython.int, flags)
            wide[0, row], wide[1, row] = at8(at + _AT_QUEUE_OFFSET), at8(at + _AT_STORED + born6)

            opened: cython.longlong = topic + length + 2
            is_ascii[row] = _ascii(data, topic, topic + length) and _ascii(data, opened, end)
            split: cython.longlong = -1
            tag: cython.longlong = 0
            tag_end: cython.longlong = 0
            unique: cython.longlong = 0
            unique_end: cython.longlong = 0
            words: cython.longlong = 0
            words_end: cython.longlong = 0
            for index in range(opened, end + 1):
                letter: cython.uchar = data[index] if index < end else 2
                if letter == 1 and split < 0:
                    split = index
                elif letter == 2:
                    if opened < split and split < index - 1:
                        name: cython.ulonglong = _name(data, opened, split)
                        if name == _TAGS:
                            tag, tag_end = split + 1, index
                        elif name == _KEYS:
                            words, words_end = split + 1, index
                        elif name == _UNIQUE:
                            unique, unique_end = split + 1, index
                    opened, split = index + 1, -1
            wide[2, row] = cython.cast(cython.int, _hash(data, tag, tag_end, 0))
            if keys + 1 + (words_end - words + 1) // 2 > key_record.shape[0]:
                keys = -1
                break
            begun: cython.uint = cython.cast(cython.uint, topics[2, number]) * 31 + 0x23
            if unique_end:
                key_record[keys] = cython.cast(cython.int, row)
                key_hash[keys] = _positive(_hash(data, unique, unique_end, begun))
                keys += 1
            for index in range(words, words_end + 1):
                if index == words_end or data[index] == 0x20:
                    if index > words:
                        key_record[keys] = cython.cast(cython.int, row)
                        key_hash[keys] = _positive(_hash(data, words, index, begun))
                        keys += 1
                    words = index + 1
    return count, keys


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _name(data: _Bytes, at: cython.longlong, end: cython.longlong) -> cython.ulonglong:
    """Up to 8 bytes as a number, the highest first; 0 for more bytes."""
    value: cython.ulonglong = 0
    place: cython.longlong
    if end - at <= 8:
        for place in range(at, end):
            value = value << 8 | data[place]
    return value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _positive(value: cython.uint) -> cython.longlong:
    """What an index entry holds for a hash."""
    signed: cython.longlong = cython.cast(cython.int, value)
    if signed < 0:
        signed = -signed & _MASK
    return signed


@cython.boundscheck(False)
def properties(
    view: cython.const[cython.uchar][::1],
    starts: cython.longlong[:],
    row_ends: cython.longlong[:],
    names: cython.const[cython.uchar][::1],
    bounds: cython.longlong[::1],
    found_start: cython.longlong[:, ::1],
    found_end: cython.longlong[:, ::1],
    wanted: cython.bint,
    counts: cython.int[::1],
    pairs: cython.int[::1],
    many: cython.uchar[::1],
    bounds_out: cython.int[:, ::1],
    texts: cython.uchar[:, ::1],
) -> int:
    """Find properties by name in many records, and all pairs if asked.

    Eight bytes are looked at together: one below 3 borrows from its highest bit, and so may
    a 3 behind it.

    @param names: The wanted names one behind the other; they begin at C{bounds}.
    @param wanted: Whether pairs are written, at most one for every 4 bytes and one a row.
    @param many: Set for rows with too many pairs to be compared with each other; in its
        last item, whether there is more than ASCII.
    @param bounds_out: Where names and values end when they are copied one behind the other.
    @return: How much of C{pairs} is used.
    """
    data: _Bytes = cython.address(view[0])
    size: cython.longlong = len(view)
    total: cython.Py_ssize_t = 0
    other: cython.Py_ssize_t
    row: cython.Py_ssize_t
    number: cython.Py_ssize_t
    name_end: cython.longlong = 0
    value_end: cython.longlong = 0
    seen: cython.ulonglong = 0
    with cython.nogil:
        for row in range(starts.shape[0]):
            opened: cython.longlong = starts[row]
            end: cython.longlong = row_ends[row]
            first: cython.Py_ssize_t = total
            place: cython.longlong = opened
            base: cython.longlong = opened
            split: cython.longlong = -1
            index: cython.longlong
            marks: cython.ulonglong = 0
            while True:
                while not marks and place < end:
                    word: cython.ulonglong = (
                        low8(data + place) if place + 8 <= size else _last_word(data, place, size)
                    )
                    marks = (word - 3 * _ONES) & ~word & _HIGHS
                    base = place
                    place += 8
                    # What is behind the row says nothing of it.
                    seen |= word if place <= end else word << 8 * (place - end)
                index = end
                if marks:
                    # The lowest of them: all bytes up to it are counted.
                    below: cython.ulonglong = (marks & (~marks + 1)) - 1
                    index = min(
                        end, base + cython.cast(cython.longlong, (below & _ONES) * _ONES >> 56) - 1
                    )
                    marks &= marks - 1
                letter: cython.uchar = data[index] if index < end else 2
                if letter == 1 and split < 0:
                    split = index
                elif letter == 2:
                    length: cython.longlong = split - opened
                    if length > 0 and split + 1 < index:
                        for number in range(bounds.shape[0] - 1):
                            if bounds[number + 1] - bounds[number] == length and not memcmp(
                                cython.address(names[bounds[number]]), data + opened, length
                            ):
                                found_start[number, row] = split + 1
                                found_end[number, row] = index
                                break
                        if wanted:
                            if total - first < 4 * _FEW_PAIRS:
                                for other in range(first, total, 4):
                                    if pairs[other + 1] - pairs[other] == length and not memcmp(
                                        data + pairs[other], data + opened, length
                                    ):
                                        total -= 4
                                        while other < total:
                                            pairs[other] = pairs[other + 4]
                                            other += 1
                                        break
                            else:
                                many[row] = True
                            pairs[total] = cython.cast(cython.int, opened)
                            pairs[total + 1] = cython.cast(cython.int, split)
                            pairs[total + 2] = cython.cast(cython.int, split + 1)
                            pairs[total + 3] = cython.cast(cython.int, index)
                            total += 4
                    opened, split = index + 1, -1
                    if index >= end:
                        break
            if wanted:
                counts[row] = cython.cast(cython.int, (total - first) // 4)
                for other in range(first, total, 4):
                    length = pairs[other + 1] - pairs[other]
                    memcpy(cython.address(texts[0, name_end]), data + pairs[other], length)
                    name_end += length
                    length = pairs[other + 3] - pairs[other + 2]
                    memcpy(cython.address(texts[1, value_end]), data + pairs[other + 2], length)
                    value_end += length
                    bounds_out[0, other // 4 + 1] = cython.cast(cython.int, name_end)
                    bounds_out[1, other // 4 + 1] = cython.cast(cython.int, value_end)
    many[starts.shape[0]] = seen & _HIGHS != 0
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _last_word(data: _Bytes, place: cython.longlong, last: cython.longlong) -> cython.ulonglong:
    """Fewer than eight bytes as one number, the first one lowest; the rest are ones."""
    value: cython.ulonglong = ~cython.cast(cython.ulonglong, 0)
    while last > place:
        last -= 1
        value = value << 8 | data[last]
    return value


@cython.boundscheck(False)
def gather(
    view: cython.const[cython.uchar][::1],
    starts: cython.longlong[:],
    ends: cython.longlong[:],
    out: cython.uchar[::1],
) -> None:
    """Copy parts of a buffer one behind the other to C{out}, which is as long as all of them."""
    place: cython.p_uchar = cython.address(out[0])
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(starts.shape[0]):
            memcpy(place, cython.address(view[starts[row]]), ends[row] - starts[row])
            place += ends[row] - starts[row]


@cython.boundscheck(False)
def hosts(
    ips: cython.uint[:], ports: cython.int[:], offsets: cython.int[::1], out: cython.uchar[::1]
) -> int:
    """Write IPv4 hosts and ports as C{1.2.3.4:5}.

    @param offsets: Gets where each begins, and where the last ends.
    @param out: Has room for the letters.
    @return: How many letters there are.
    """
    place: cython.p_uchar = cython.address(out[0])
    before: cython.p_uchar = place
    shift: cython.int
    row: cython.Py_ssize_t
    offsets[0] = 0
    with cython.nogil:
        for row in range(ips.shape[0]):
            if row and ips[row - 1] == ips[row] and ports[row - 1] == ports[row]:
                size: cython.Py_ssize_t = place - before
                memcpy(place, before, size)
                before, place = place, place + size
            else:
                before = place
                for shift in range(24, -1, -8):
                    place = _decimal(place, ips[row] >> shift & 255)
                    place[0] = 46 if shift else 58
                    place += 1
                place = _decimal(place, ports[row])
            offsets[row + 1] = cython.cast(cython.int, place - cython.address(out[0]))
    return place - cython.address(out[0])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _decimal(place: cython.p_uchar, value: cython.longlong) -> cython.p_uchar:
    """Write a number; the place behind it."""
    if value < 0:
        place[0] = 45
        place += 1
        value = -value
    digits: cython.int = 1
    rest: cython.longlong = value // 10
    while rest:
        rest //= 10
        digits += 1
    end: cython.p_uchar = place + digits
    while digits:
        digits -= 1
        place[digits] = cython.cast(cython.uchar, 48 + value % 10)
        value //= 10
    return end


@cython.boundscheck(False)
def offset_ids(
    ips: cython.uint[:],
    ports: cython.int[:],
    places: cython.longlong[:],
    out: cython.uchar[::1],
) -> None:
    """Write ids of a store host and a physical offset, 32 letters each."""
    at: cython.p_uchar = cython.address(out[0])
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(ips.shape[0]):
            if row and ips[row - 1] == ips[row] and ports[row - 1] == ports[row]:
                memcpy(at, at - 32, 16)
            else:
                hex16(
                    at,
                    cython.cast(cython.longlong, ips[row]) << 32
                    | cython.cast(cython.uint, ports[row]),
                )
            at = hex16(at + 16, places[row])
