"""
The inner loops of L{rmqha.wire.loops} for numba, from the extra C{fast}.

Importing this module compiles them, or loads what an earlier run compiled; only
L{rmqha.wire.loops.warm_up} does so.  The signatures are fixed, so nothing is ever
compiled later, and the loops run without the interpreter's lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from isal import isal_zlib
from numba import boolean, int64, njit, types, uint32

from rmqha.wire import loops
from rmqha.wire.record import MIN_RECORD
from rmqha.wire.vectors import Array

_Loop = TypeVar("_Loop", bound=Callable[..., Any])
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_TAGS, _KEYS, _UNIQ_KEY = (int.from_bytes(name) for name in (b"TAGS", b"KEYS", b"UNIQ_KEY"))


def _compiled(signature: Any) -> Callable[[_Loop], _Loop]:
    def compile_now(function: _Loop) -> _Loop:
        try:
            compiled: _Loop = njit(signature, nogil=True, cache=True)(function)
        except Exception:  # no folder we may write a cache to, a full disk, a damaged cache
            compiled = njit(signature, nogil=True)(function)
        return compiled

    return compile_now


@_compiled(int64(_BYTES, int64, int64))
def _number(data: Array, start: int, end: int) -> int:
    """
    Read up to 8 bytes as a big-endian number; 0 for more bytes.
    """
    value = 0
    if end - start <= 8:
        for index in range(start, end):
            value = value << 8 | int(data[index])
    return value


@_compiled(int64(_BYTES, int64, int64[:]))
def _follow(data: Array, stop: int, positions: Array) -> int:
    count = position = 0
    positions[0] = 0
    while stop - position >= MIN_RECORD:
        # A size with the sign bit, read without it, is 2 GiB or more: beyond every stop.
        size = _number(data, position, position + 4)
        if not MIN_RECORD <= size <= stop - position:
            break
        position += size
        count += 1
        positions[count] = position
    return count + 1


@_compiled(uint32(_BYTES, int64, int64))
def _java_hash(data: Array, start: int, end: int) -> Any:
    value = np.uint32(0)
    for index in range(start, end):
        value = np.uint32(value * np.uint32(31) + np.uint32(data[index]))
    return value


@_compiled(int64(_BYTES, int64[:], int64[:], uint32[:], boolean[:], int64[:], uint32[:], int64[:]))
def _scan(
    data: Array,
    starts: Array,
    ends: Array,
    tags: Array,
    is_ascii: Array,
    key_record: Array,
    key_hash: Array,
    key_length: Array,
) -> int:
    count = 0
    for row in range(len(starts)):
        opened, end = starts[row], ends[row]
        split = -1
        seen = np.uint8(0)
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
        tags[row] = _java_hash(data, tag, tag_end)
        is_ascii[row] = seen < 0x80
        if unique_end:
            key_record[count] = row
            key_hash[count] = _java_hash(data, unique, unique_end)
            key_length[count] = unique_end - unique
            count += 1
        for index in range(words, words_end + 1):
            if index == words_end or data[index] == 0x20:
                if index > words:
                    key_record[count] = row
                    key_hash[count] = _java_hash(data, words, index)
                    key_length[count] = index - words
                    count += 1
                words = index + 1
    return count


def _bytes(buf: memoryview) -> Array:
    return np.frombuffer(buf.toreadonly(), np.uint8)


def follow(buf: memoryview, stop: int) -> Array:
    """
    See L{rmqha.wire.loops.follow}.
    """
    positions = np.empty(max(stop, 0) // MIN_RECORD + 1, np.int64)
    return positions[: _follow(_bytes(buf), stop, positions)].copy()


def scan(buf: memoryview, starts: Array, ends: Array) -> loops.Scan:
    """
    See L{rmqha.wire.loops.scan}.
    """
    rows = len(starts)
    # The shortest key is a letter and the byte behind it.
    most = int((ends - starts).sum()) // 2 + rows
    tags, is_ascii = np.empty(rows, np.uint32), np.empty(rows, np.bool_)
    record, length = np.empty((2, most), np.int64)
    hashes = np.empty(most, np.uint32)
    count = _scan(_bytes(buf), starts, ends, tags, is_ascii, record, hashes, length)
    keys = slice(count)
    return loops.Scan(tags, is_ascii, record[keys].copy(), hashes[keys].copy(), length[keys].copy())


def _native_crcs() -> Callable[[memoryview, Array, Array], Array]:
    """
    Call the C function under isal's C{crc32} without an interpreter in between.

    ISA-L documents C{crc32_gzip_refl}; that isal's extension module lets others link
    to it is luck (measured: 35 ns instead of 400 for 760 bytes), so we ask for it and
    compare one result.

    @raise AttributeError: If the module does not export it.
    """
    native: Any = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    native.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)
    native.restype = ctypes.c_uint32
    if native(0, b"hello", 5) != isal_zlib.crc32(b"hello"):
        raise AttributeError("crc32_gzip_refl is another function than we know")

    @njit((_BYTES, int64[:], int64[:], uint32[:]), nogil=True)
    def run(data: Array, starts: Array, ends: Array, found: Array) -> None:
        address = data.ctypes.data
        for row in range(len(starts)):
            found[row] = native(0, address + starts[row], ends[row] - starts[row])

    def crcs(buf: memoryview, starts: Array, ends: Array) -> Array:
        found = np.empty(len(starts), np.uint32)
        run(_bytes(buf), starts, ends, found)
        return found

    return crcs


try:
    crcs = _native_crcs()
except (AttributeError, OSError):
    crcs = loops.crcs

LOOPS = loops.Loops("numba", follow, crcs, scan)
