"""Texts of many rows written one behind the other, for numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int32, int64, types, uint32, uint64

from rmqha.wire.columnar._numba_common import BYTES, as_bytes, compiled, words_of
from rmqha.wire.columnar.vectors import Array

OUT = types.Array(types.uint8, 1, "C")
_OUT_WORDS = types.Array(types.uint64, 1, "A", aligned=False)
"""The same bytes, eight at each place."""

_SPARE = 8
"""Bytes left behind the last text: one that is repeated is copied eight bytes at a time, and
what is too much is overwritten by the next one."""

_MINUS, _POINT, _COLON, _ZERO = (np.uint8(ord(letter)) for letter in "-.:0")
_HOST = 27
"""Letters of the longest IPv4 host and port, the sign of a negative one included."""

# Of the C library, which every process has.
memcpy: Any = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.uint64))


@compiled(types.void(BYTES, int64[:], int64[:], OUT))
def _gather(data: Array, starts: Array, ends: Array, out: Array) -> None:
    source, place = data.ctypes.data, out.ctypes.data
    for row in range(len(starts)):
        size = ends[row] - starts[row]
        memcpy(place, source + starts[row], np.uint64(size))
        place += size


@compiled(int64(OUT, int64, int64))
def _decimal(out: Array, place: int, value: int) -> Any:
    """Write a number.

    @return: The place behind it.
    """
    if value < 0:
        out[place] = _MINUS
        place, value = place + 1, -value
    end = place + 1
    rest = value // 10
    while rest:
        rest //= 10
        end += 1
    for at in range(end - 1, place - 1, -1):
        out[at] = _ZERO + np.uint8(value % 10)
        value //= 10
    return end


@compiled(int64(uint32[:], int32[:], int32[:], OUT, _OUT_WORDS))
def _hosts(ips: Array, ports: Array, offsets: Array, out: Array, out_words: Array) -> int:
    place = before = 0
    offsets[0] = 0
    for row in range(len(ips)):
        ip, port = int64(ips[row]), int64(ports[row])
        if row and ips[row - 1] == ips[row] and ports[row - 1] == ports[row]:
            size = place - before
            for at in range(0, size, 8):
                out_words[place + at] = out_words[before + at]
            before, place = place, place + size
        else:
            before = place
            for shift in (24, 16, 8, 0):
                place = _decimal(out, place, ip >> shift & 255)
                out[place] = _POINT if shift else _COLON
                place += 1
            place = _decimal(out, place, port)
        offsets[row + 1] = place
    return place


@compiled(types.void(OUT, int64, uint64, int64))
def _hexadecimal(out: Array, place: int, value: Any, count: int) -> None:
    for at in range(count - 1, -1, -1):
        digit = np.uint8(value & np.uint64(15))
        out[place + at] = digit + (_ZERO if digit < 10 else np.uint8(55))
        value >>= np.uint64(4)


@compiled(types.void(uint32[:], int32[:], int64[:], OUT, _OUT_WORDS))
def _offset_ids(ips: Array, ports: Array, places: Array, out: Array, out_words: Array) -> None:
    for row in range(len(ips)):
        place = 32 * row
        if row and ips[row - 1] == ips[row] and ports[row - 1] == ports[row]:
            out_words[place], out_words[place + 8] = out_words[place - 32], out_words[place - 24]
        else:
            _hexadecimal(out, place, uint64(ips[row]), 8)
            _hexadecimal(out, place + 8, uint64(uint32(ports[row])), 8)
        _hexadecimal(out, place + 16, uint64(places[row]), 16)


def gather(buf: memoryview, starts: Array, ends: Array, out: Array) -> None:
    """Copy parts of a buffer, one behind the other.

    @param out: As long as all of them together.
    """
    _gather(as_bytes(buf), starts, ends, out)


def hosts(ips: Array, ports: Array) -> tuple[Array, Array]:
    """Write IPv4 hosts and ports as C{1.2.3.4:5}.

    @param ips: C{uint32}.
    @param ports: C{int32}.
    @return: Where each begins, and where the last ends; and the letters.
    """
    offsets = np.empty(len(ips) + 1, np.int32)
    out = np.empty(_HOST * len(ips) + _SPARE, np.uint8)
    size = _hosts(ips, ports, offsets, out, words_of(out))
    return offsets, out[:size].copy()


def offset_ids(ips: Array, ports: Array, places: Array) -> Array:
    """Write ids of a store host and a physical offset, 32 letters each.

    @param places: The physical offsets.
    """
    out = np.empty(32 * len(ips) + _SPARE, np.uint8)
    _offset_ids(ips, ports, places, out, words_of(out))
    return out[: 32 * len(ips)]
