"""Checksums of a run of whole records, L{rmqha.wire.log.checksum_entry}, taken in one pass.

This module is compiled (C{setup.py}), and of use only so.  Tests compare it with the form in
Python.

Source: docs/protocol/store.rst, Checksums of records.
"""

from __future__ import annotations

import cython
from cython.cimports.cpython.buffer import PyBUF_READ
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.rmqha.wire.lane.big_endian import crc_at, int4, put4
from isal.isal_zlib import crc32

from rmqha.wire.lane.native_crc import CRC
from rmqha.wire.log.checksum_entry import CRC_FACTOR, PLACE_FACTOR, SEED

_OF_PLACE = cython.declare(cython.uint, PLACE_FACTOR)
_OF_CRC = cython.declare(cython.uint, CRC_FACTOR)
_SEED = cython.declare(cython.uint, SEED)
_CRC = cython.declare(cython.size_t, CRC)


def run_entries(
    data: cython.const[cython.uchar][::1], base: cython.longlong, stop: cython.Py_ssize_t
) -> bytes:
    """The entries of records that follow each other from position 0 on.

    @param base: Physical offset of C{data[0]}.
    @param stop: Where the last ends.
    @raise ValueError: If they are not whole after all.
    """
    made = cython.declare(cython.uchar[12])
    to: cython.p_uchar = made
    entries: bytearray = bytearray()
    at: cython.Py_ssize_t = 0
    while at < stop:
        size: cython.longlong = int4(data, at)
        if size <= 0 or size > stop - at or stop > len(data):
            raise ValueError(f"no record of {size} bytes at {at}, before {stop}")
        crc: cython.uint
        if _CRC:
            crc = crc_at(_CRC, cython.address(data[at]), size)
        else:
            # A view of Python's: that of Cython takes ten times as long to make.
            crc = crc32(
                PyMemoryView_FromMemory(
                    cython.cast(cython.p_char, cython.address(data[at])), size, PyBUF_READ
                )
            )
        place: cython.uint = cython.cast(cython.uint, base + at)
        put4(to, place)
        put4(to + 4, crc)
        put4(to + 8, place * _OF_PLACE ^ crc * _OF_CRC ^ _SEED)
        entries += cython.cast(cython.p_char, to)[:12]
        at += size
    return bytes(entries)
