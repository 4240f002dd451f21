"""
The three inner loops of L{rmqha.wire.blocks}, and the choice who runs them.

Here are the loops for everybody (Python, numpy and isal).  L{rmqha.wire._fast}
has the same three for numba, from the extra C{fast}; both give equal results.
Everybody's loops run until L{warm_up} was called, so that no compiler starts in
the middle of a reactor turn; C{RMQHA_PURE=1} in the environment keeps them for good.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from rmqha.wire.record import MIN_RECORD
from rmqha.wire.vectors import Array, java_hashes, overlapping

_SIZE = Struct(">i")
_PAIR_ENDS, _NAME_ENDS, _KEY_ENDS = 2, 1, 0x20


class Scan(NamedTuple):
    """
    What dispatch needs from the properties of many records.

    @ivar tags: Java hash of TAGS of each row, not yet signed; 0 without TAGS.
    @ivar ascii: Whether all the row's properties are ASCII; if not, its other
        entries here mean nothing.
    @ivar key_record: The row of each index key: rows ascend, and in a row comes
        UNIQ_KEY, then the words of KEYS.
    @ivar key_hash: Java hash of each key alone, not yet signed.
    @ivar key_length: Length of each key.
    """

    tags: Array
    ascii: Array
    key_record: Array
    key_hash: Array
    key_length: Array


class Loops(NamedTuple):
    """
    One implementation of the inner loops.

    @ivar name: C{numpy} or C{numba}.
    @ivar follow: L{follow} or its twin.
    @ivar crcs: L{crcs} or its twin.
    @ivar scan: L{scan} or its twin.
    """

    name: str
    follow: Callable[[memoryview, int], Array]
    crcs: Callable[[memoryview, Array, Array], Array]
    scan: Callable[[memoryview, Array, Array], Scan]


def follow(buf: memoryview, stop: int) -> Array:
    """
    Follow the chain of TOTALSIZE fields from position 0.

    @param stop: Position of the first byte that may not be read.
    @return: The positions of everything that could be a record by its size alone,
        and behind them the position where the chain ends.
    """
    unpack = _SIZE.unpack_from
    positions = [0]
    add = positions.append
    position = 0
    while stop - position >= MIN_RECORD:
        (size,) = unpack(buf, position)
        if not MIN_RECORD <= size <= stop - position:
            break
        position += size
        add(position)
    return np.array(positions, np.int64)


def _slices(buf: memoryview, starts: Array, ends: Array) -> Iterable[memoryview]:
    return map(buf.__getitem__, map(slice, starts.tolist(), ends.tolist()))


def crcs(buf: memoryview, starts: Array, ends: Array) -> Array:
    """
    Compute the CRC-32 of many parts of a buffer.

    @return: One C{uint32} a part, not yet masked.
    """
    return np.fromiter(map(crc32, _slices(buf, starts, ends)), np.uint32, len(starts))


def scan(buf: memoryview, starts: Array, ends: Array) -> Scan:
    """
    Find TAGS and the index keys in the property strings of many records.

    The strings are joined with the byte that ends a pair, so no pair reaches into
    the next row, then all pairs of all rows are looked at together.

    @param starts: Where each row's properties start.
    @param ends: Where they end.
    """
    text = b"\x02".join(_slices(buf, starts, ends)) + b"\x02"
    data = np.frombuffer(text, np.uint8)
    row_ends = np.cumsum(ends - starts + 1)
    closes = np.flatnonzero(data == _PAIR_ENDS)
    opens = np.concatenate((np.zeros(1, np.int64), closes[:-1] + 1))
    marks = np.append(np.flatnonzero(data == _NAME_ENDS), len(text))
    splits = marks[np.searchsorted(marks, opens)]
    # A pair needs a name and a value; of RocketMQ's names only 4 and 8 letters matter.
    lengths = splits - opens
    wanted = np.flatnonzero(((lengths == 4) | (lengths == 8)) & (splits < closes - 1))
    opens, splits, closes, lengths = (a[wanted] for a in (opens, splits, closes, lengths))
    rows = np.searchsorted(row_ends, opens, side="right")

    def values(name: bytes) -> tuple[Array, Array]:
        """
        Start and end of the property's value in each row; where it is written
        twice the last one, as numpy assigns in order; equal where it is absent.
        """
        found = np.flatnonzero(lengths == len(name))
        if len(found):
            found = found[overlapping(text, f"S{len(name)}")[opens[found]] == name]
        start, end = np.zeros((2, len(row_ends)), np.int64)
        start[rows[found]] = splits[found] + 1
        end[rows[found]] = closes[found]
        return start, end

    tag_start, tag_end = values(b"TAGS")
    id_start, id_end = values(b"UNIQ_KEY")
    has_id = np.flatnonzero(id_end)
    word_record, word_start, word_end = _words(data, *values(b"KEYS"))
    record = np.concatenate((has_id, word_record))
    order = np.argsort(record, kind="stable")
    start = np.concatenate((id_start[has_id], word_start))[order]
    length = np.concatenate((id_end[has_id], word_end))[order] - start
    is_ascii = np.ones(len(row_ends), np.bool_)
    is_ascii[np.searchsorted(row_ends, np.flatnonzero(data > 0x7F), side="right")] = False
    return Scan(
        java_hashes(text, tag_start, tag_end - tag_start),
        is_ascii,
        record[order],
        java_hashes(text, start, length),
        length,
    )


def _words(data: Array, starts: Array, ends: Array) -> tuple[Array, Array, Array]:
    """
    Cut the KEYS values at blanks.

    @param starts: Where each row's value starts in C{data}; ascending where present.
    @param ends: Where it ends, 0 in rows without KEYS.
    @return: Row, start and end of every word that is not empty.
    """
    rows = np.flatnonzero(ends)
    if not len(rows):
        return rows, rows, rows
    starts, ends = starts[rows], ends[rows]
    blanks = np.flatnonzero(data == _KEY_ENDS)
    value = np.searchsorted(ends, blanks, side="right")
    blanks = blanks[blanks >= np.append(starts, len(data))[value]]
    word_starts = np.sort(np.concatenate((starts, blanks + 1)))
    word_ends = np.sort(np.concatenate((ends, blanks)))
    real = word_starts < word_ends
    word_starts, word_ends = word_starts[real], word_ends[real]
    return rows[np.searchsorted(ends, word_starts, side="right")], word_starts, word_ends


NUMPY = Loops("numpy", follow, crcs, scan)
_chosen = NUMPY


def chosen() -> Loops:
    """
    The loops in use now.
    """
    return _chosen


def warm_up() -> Loops:
    """
    Compile numba's loops, when there is numba, and use them from now on.

    Call it once, when the process starts and before it serves anybody: numba needs
    one third of a second to load and, when it finds no cache of an earlier run, two
    seconds to compile.

    @return: What is in use now.
    """
    global _chosen
    if os.environ.get("RMQHA_PURE") != "1":
        try:
            from rmqha.wire._fast import LOOPS
        except ImportError:  # no numba, or one that does not go with this numpy
            return _chosen
        _chosen = LOOPS
    return _chosen
