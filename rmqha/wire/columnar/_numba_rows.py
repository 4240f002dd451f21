"""The loops of L{rmqha.wire.columnar.decoder} for numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import boolean, int32, int64, types, uint64

from rmqha.wire.columnar import kernels_numpy
from rmqha.wire.columnar._numba_common import (
    BYTES,
    WORDS,
    as_bytes,
    born_extra,
    compiled,
    i16,
    i32,
    number_of,
    same_bytes,
    store_extra,
    words_of,
)
from rmqha.wire.columnar._numba_texts import OUT, memcpy
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.layout import BODY_AT, MAGIC_AT, MAGIC_V2, MIN_RECORD, SYS_FLAG_AT

_ONE, _THREE, _EIGHT, _TOP = (np.uint64(value) for value in (1, 3, 8, 56))
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
    """Fewer than eight bytes as one number, the first one lowest; the rest are ones."""
    value = ~np.uint64(0)
    last = np.uint64(len(data))
    while last > place:
        last -= _ONE
        value = value << _EIGHT | np.uint64(data[last])
    return value


@compiled(
    int64(
        BYTES,
        WORDS,
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
        int32[:, :],
        OUT,
        OUT,
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
    bounds_out: Array,
    names_out: Array,
    values_out: Array,
) -> int:
    """Eight bytes are looked at together: one below 3 borrows from its highest bit, and so may
    a 3 behind it.

    @param words: The same bytes, eight at each place.
    @param names: The wanted names one behind the other; they begin at C{bounds}.
    @param wanted: Whether pairs are written, at most one for every 4 bytes and one a row.
    @param many: Set for rows with too many pairs to be compared with each other; in its
        last item, whether there is more than ASCII.
    @param bounds_out: Where names and values end when they are copied one behind the other.
    @return: How much of C{pairs} is used.
    """
    total, known = 0, np.uint64(len(words))
    source, names_place, values_place = (
        data.ctypes.data,
        names_out.ctypes.data,
        values_out.ctypes.data,
    )
    name_end = value_end = 0
    seen = uint64(0)
    for row in range(len(starts)):
        opened, end, first = uint64(starts[row]), uint64(ends[row]), total
        place = base = split = index = opened
        marks, open_name = uint64(0), True
        while True:
            while not marks and place < end:
                # No call as a rule: one would cost more than all the rest.
                word = words[place] if place < known else _last_word(data, place)
                marks = (word - _THREES) & ~word & _HIGHS
                beyond = place + _EIGHT
                # What is behind the row says nothing of it.
                seen |= word if beyond <= end else word << (beyond - end << _THREE)
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
            for pair in range(first, total, 4):
                low, size = int64(pairs[pair]), int64(pairs[pair + 1] - pairs[pair])
                memcpy(names_place + name_end, source + low, np.uint64(size))
                name_end += size
                low, size = int64(pairs[pair + 2]), int64(pairs[pair + 3] - pairs[pair + 2])
                memcpy(values_place + value_end, source + low, np.uint64(size))
                value_end += size
                bounds_out[0, pair // 4 + 1], bounds_out[1, pair // 4 + 1] = name_end, value_end
    many[len(starts)] = seen & _HIGHS != 0
    return total


@compiled(types.void(BYTES, int64[:], int64[:, :]))
def _layout(data: Array, positions: Array, found: Array) -> None:
    """Fill the columns of L{rmqha.wire.columnar.kernels_numpy.StringLayout}, one row each."""
    for row in range(len(positions)):
        position = positions[row]
        flags = i32(data, position + SYS_FLAG_AT)
        newer = int64(i32(data, position + MAGIC_AT) == MAGIC_V2)
        longer = born_extra(flags) + store_extra(flags)
        body = position + BODY_AT + longer
        body_length = i32(data, body - 4)
        topic = body + body_length + 1 + newer
        length = i16(data, topic - 2) if newer else int64(np.int8(data[topic - 1]))
        found[0, row], found[1, row] = body, body_length
        found[2, row], found[3, row] = topic, length
        found[4, row], found[5, row] = topic + length + 2, MIN_RECORD + longer + newer


def number(buf: memoryview, starts: Array, lengths: Array) -> tuple[list[str], Array]:
    """See L{rmqha.wire.columnar.kernels_numpy.number}."""
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
) -> kernels_numpy.Properties:
    """See L{rmqha.wire.columnar.kernels_numpy.properties}."""
    rows = len(starts)
    found_start, found_end = np.zeros((2, len(names), rows), np.int64)
    bounds = np.cumsum([0, *map(len, names)]).astype(np.uint64)
    room = int((ends - starts).sum()) + 4 * rows if pairs else 0
    counts, places = np.empty(rows if pairs else 0, np.int32), np.empty(room, np.int32)
    many = np.zeros(rows + 1, np.bool_)
    data = as_bytes(buf)
    # A pair takes 4 bytes at least, its two marks among them; a row's last has one mark.
    text_ends = np.empty((2, room // 4 + 1 if pairs else 0), np.int32)
    text_ends[:, :1] = 0
    texts = np.empty((2, room), np.uint8)
    total = _properties(
        data,
        words_of(data),
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
        text_ends,
        texts[0],
        texts[1],
    )
    if many[:-1].any():
        return kernels_numpy.properties(buf, starts, ends, names, pairs)
    copies = []
    if pairs:
        for ends_of, text in zip(text_ends, texts, strict=True):
            used = ends_of[: total // 4 + 1].copy()
            copies.append((used, text[: used[-1]].copy()))
    ascii = not many[-1]
    return kernels_numpy.Properties(found_start, found_end, counts, places[:total], ascii, copies)


def layout(buf: memoryview, position: Array) -> kernels_numpy.StringLayout:
    """See L{rmqha.wire.columnar.kernels_numpy.layout}; the records have to be valid."""
    found = np.empty((6, len(position)), np.int64)
    _layout(as_bytes(buf), position, found)
    return kernels_numpy.StringLayout(*found)
