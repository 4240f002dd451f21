"""What the loops of L{rmqha.wire.columnar._numba_kernels} and L{rmqha.wire.columnar._numba_rows}
are made of.

Signatures are fixed, so nothing is ever compiled later than when a module is imported, and
the loops run without the interpreter's lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import boolean, int64, njit, types, uint32

from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log import layout

if sys.byteorder != "little":
    raise ImportError("numba's loops need a little-endian machine")

_Loop = TypeVar("_Loop", bound=Callable[..., Any])
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""What L{as_bytes} gives."""
WORDS = types.Array(types.uint64, 1, "A", readonly=True, aligned=False)
"""What L{words_of} gives."""


def compiled(signature: Any) -> Callable[[_Loop], _Loop]:
    """Compile a function now, or load what an earlier run compiled."""

    def compile_now(function: _Loop) -> _Loop:
        try:
            made: _Loop = njit(signature, nogil=True, cache=True)(function)
        except Exception:  # no folder we may write a cache to, a full disk, a damaged cache
            made = njit(signature, nogil=True)(function)
        return made

    return compile_now


born_extra = compiled(int64(int64))(layout.born_extra)
store_extra = compiled(int64(int64))(layout.store_extra)


@compiled(int64(BYTES, int64))
def i16(data: Array, at: int) -> Any:
    """Read two bytes as a signed number, the highest first."""
    return int64(np.int8(data[at])) << 8 | int64(data[at + 1])


@compiled(int64(BYTES, int64))
def i32(data: Array, at: int) -> Any:
    """Read four bytes as a signed number, the highest first."""
    return i16(data, at) << 16 | int64(data[at + 2]) << 8 | int64(data[at + 3])


@compiled(int64(BYTES, int64))
def i64(data: Array, at: int) -> Any:
    """Read eight bytes as a signed number, the highest first."""
    return i32(data, at) << 32 | (i32(data, at + 4) & 0xFFFFFFFF)


@compiled(uint32(BYTES, int64, int64, uint32))
def java_hash(data: Array, start: int, end: int, value: Any) -> Any:
    """Java's hash of ASCII text that goes on from that of what stands before it."""
    for index in range(start, end):
        value = np.uint32(value * np.uint32(31) + np.uint32(data[index]))
    return value


@compiled(boolean(BYTES, int64, int64, int64))
def same_bytes(data: Array, one: int, other: int, length: int) -> bool:
    """Whether the same bytes stand at two places."""
    for index in range(length):  # noqa: SIM110 numba knows no generators
        if data[one + index] != data[other + index]:
            return False
    return True


@compiled(int64(BYTES, int64, int64, int64, int64, int64[:, :]))
def number_of(data: Array, start: int, length: int, last: int, count: int, topics: Array) -> Any:
    """The number of a topic.

    @param last: The number of the row before: usually it is the same topic.
    @param count: How many topics there are; a new one gets this number.
    @param topics: For first byte, length and hash of each topic, and in its last row a
        table of more places than there are topics, 0 or the topic's number plus one.
    """
    if count and topics[1, last] == length and same_bytes(data, topics[0, last], start, length):
        return last
    places = topics.shape[1]
    value = java_hash(data, start, start + length, np.uint32(0))
    place = int64(value) % places
    while topics[3, place]:
        number = topics[3, place] - 1
        if topics[1, number] == length and same_bytes(data, topics[0, number], start, length):
            return number
        place = (place + 1) % places
    topics[0, count], topics[1, count], topics[2, count] = start, length, value
    topics[3, place] = count + 1
    return count


def as_bytes(buf: memoryview) -> Array:
    """A buffer as the loops take it."""
    return np.frombuffer(buf.toreadonly(), np.uint8)


def words_of(data: Array) -> Array:
    """Eight bytes as one number, the lowest first, at every place that has so many behind it."""
    return np.ndarray((max(0, len(data) - 7),), np.uint64, data, 0, (1,))
