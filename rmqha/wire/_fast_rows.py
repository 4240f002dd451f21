"""
The loops of L{rmqha.wire.rows} for numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import boolean, int32, int64, types, uint64

from rmqha.wire import plain
from rmqha.wire._compiled import (
    BYTES,
    as_bytes,
    compiled,
    i16,
    i32,
    number_of,
    same_bytes,
)
from rmqha.wire.record import MAGIC_V2, MIN_RECORD
from rmqha.wire.vectors import Array

_WORDS = types.Array(types.uint64, 1, "A", readonly=True, aligned=False)
_ONE, _EIGHT, _TOP = np.uint64(1), np.uint64(8), np.uint64(56)
_ONES, _THREES, _HIGHS = (np.uint64(0x0101010101010101 * byte) for byte in (1, 3, 0x80))
"""Eight bytes of one value."""
_FEW_PAIRS = 64
"""Pairs of one record up to which each is compared with all before it."""


@compiled(int64(BYTES, int64[:], int64[:], int32[:], int64[:, :]))
def _number_topics(
    data: Array, starts: Array, lengths: Array, numbers: Array, topics: Array
) -> int:
    count = last = 0
    for row in range(len(starts)):
        last = number_of(data, starts[row], lengths[row], last, count, topics)
        count = max(count, last + 1)
        numbers[row] = last
    return count


@compiled(uint64(BYTES, uint64))
def _last_word(data: Array, place: Any) -> Any:
    """
    Fewer than eight bytes as one number, the first one lowest; the rest are ones.
    """
    value = ~np.uint64(0)
    last = np.uint64(len(data))
    while last > place:
        last -= _ONE
        value = value << _EIGHT | np.uint64(data[last])
    return value


@compiled(
    int64(
        BYTES,
        _WORDS,
        int64[:],
        int64[:],
        BYTES,
        uint64[:],
        int64[:, :],
        int64[:, :],
        boolean,
        int32[:],
        int32[:],
        boolean[:],
    )
)
def _properties(
    data: Array,
    words: Array,
    starts: Array,
    ends: Array,
    names: Array,
    bounds: Array,
    found_start: Array,
    found_end: Array,
    wanted: bool,
    counts: Array,
    pairs: Array,
    many: Array,
) -> int:
    """
    Eight bytes are looked at together: one below 3 borrows from its highest bit, and so may
    a 3 behind it.

    @param words: The same bytes, eight at each place.
    @param names: The wanted names one behind the other; they begin at C{bounds}.
    @param wanted: Whether pairs are written, at most one for every 4 bytes and one a row.
    @param many: Set for rows with too many pairs to be compared with each other.
    @return: How much of C{pairs} is used.
    """
    total, known = 0, np.uint64(len(words))
    for row in range(len(starts)):
        opened, end, first = uint64(starts[row]), uint64(ends[row]), total
        place = base = split = index = opened
        marks, open_name = uint64(0), True
        while True:
            while not marks and place < end:
                # No call as a rule: one would cost more than all the rest.
                word = words[place] if place < known else _last_word(data, place)
                marks = (word - _THREES) & ~word & _HIGHS
                base = place
                place += _EIGHT
            index = end
            if marks:
                # The lowest of them: all bytes up to it are counted.
                below = (marks & (~marks + _ONE)) - _ONE
                index = min(end, base + ((below & _ONES) * _ONES >> _TOP) - _ONE)
                marks &= marks - _ONE
            letter = data[index] if index < end else np.uint8(2)
            if letter == 1 and open_name:
                split, open_name = index, False
            elif letter == 2:
                if not open_name and opened < split and split + _ONE < index:
                    length = split - opened
                    for number in range(len(bounds) - 1):
                        low = bounds[number]
                        if bounds[number + 1] - low == length:
                            same = uint64(0)
                            while same < length and names[low + same] == data[opened + same]:
                                same += _ONE
                            if same == length:
                                found_start[number, row] = int64(split) + 1
                                found_end[number, row] = int64(index)
                                break
                    if wanted:
                        if total - first < 4 * _FEW_PAIRS:
                            for other in range(first, total, 4):
                                if pairs[other + 1] - pairs[other] == int64(length) and same_bytes(
                                    data, pairs[other], int64(opened), int64(length)
                                ):
                                    for moved in range(other, total - 4):
                                        pairs[moved] = pairs[moved + 4]
                                    total -= 4
                                    break
                        else:
                            many[row] = True
                        pairs[total], pairs[total + 1] = int64(opened), int64(split)
                        pairs[total + 2], pairs[total + 3] = int64(split) + 1, int64(index)
                        total += 4
                opened, open_name = index + _ONE, True
                if index >= end:
                    break
        if wanted:
            counts[row] = (total - first) // 4
    return total


# Of the C library, which every process has.
_memcpy: Any = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.uint64))


@compiled(types.void(BYTES, int64[:], int64[:], types.Array(types.uint8, 1, "C")))
def _gather(data: Array, starts: Array, ends: Array, out: Array) -> None:
    source, place = data.ctypes.data, out.ctypes.data
    for row in range(len(starts)):
        size = ends[row] - starts[row]
        _memcpy(place, source + starts[row], np.uint64(size))
        place += size


@compiled(types.void(BYTES, int64[:], int64[:, :]))
def _layout(data: Array, positions: Array, found: Array) -> None:
    """
    @param found: The columns of L{rmqha.wire.plain.Layout}, one row each.
    """
    for row in range(len(positions)):
        position = positions[row]
        flags = i32(data, position + 36)
        newer = int64(i32(data, position + 4) == MAGIC_V2)
        longer = 12 * ((flags >> 4 & 1) + (flags >> 5 & 1))
        body = position + 88 + longer
        body_length = i32(data, body - 4)
        topic = body + body_length + 1 + newer
        length = i16(data, topic - 2) if newer else int64(np.int8(data[topic - 1]))
        found[0, row], found[1, row] = body, body_length
        found[2, row], found[3, row] = topic, length
        found[4, row], found[5, row] = topic + length + 2, MIN_RECORD + longer + newer


def _words(data: Array) -> Array:
    """
    Eight bytes at every place that has so many behind it.
    """
    return np.ndarray((max(0, len(data) - 7),), np.uint64, data, 0, (1,))


def number(buf: memoryview, starts: Array, lengths: Array) -> tuple[list[str], Array]:
    """
    See L{rmqha.wire.plain.number}.
    """
    numbers = np.empty(len(starts), np.int32)
    topics = np.zeros((4, 2 * len(starts)), np.int64)
    count = _number_topics(as_bytes(buf), starts, lengths, numbers, topics)
    names = [
        bytes(buf[start : start + length]).decode()
        for start, length in topics[:2, :count].T.tolist()
    ]
    return names, numbers


def properties(
    buf: memoryview, starts: Array, ends: Array, names: Sequence[bytes], pairs: bool
) -> plain.Properties:
    """
    See L{rmqha.wire.plain.properties}.
    """
    rows = len(starts)
    found_start, found_end = np.zeros((2, len(names), rows), np.int64)
    bounds = np.cumsum([0, *map(len, names)]).astype(np.uint64)
    room = int((ends - starts).sum()) + 4 * rows if pairs else 0
    counts, places = np.empty(rows if pairs else 0, np.int32), np.empty(room, np.int32)
    many = np.zeros(rows, np.bool_)
    data = as_bytes(buf)
    total = _properties(
        data,
        _words(data),
        starts,
        ends,
        np.frombuffer(b"".join(names), np.uint8),
        bounds,
        found_start,
        found_end,
        pairs,
        counts,
        places,
        many,
    )
    if many.any():
        return plain.properties(buf, starts, ends, names, pairs)
    return plain.Properties(found_start, found_end, counts, places[:total].copy())


def layout(buf: memoryview, position: Array) -> plain.Layout:
    """
    See L{rmqha.wire.plain.layout}; the records have to be valid.
    """
    found = np.empty((6, len(position)), np.int64)
    _layout(as_bytes(buf), position, found)
    return plain.Layout(*found)


def gather(buf: memoryview, starts: Array, ends: Array, out: Array) -> None:
    """
    Copy parts of a buffer, one behind the other.

    @param out: As long as all of them together.
    """
    _gather(as_bytes(buf), starts, ends, out)
