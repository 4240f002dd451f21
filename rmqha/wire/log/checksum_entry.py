"""Entries of the checksums of records: where a record begins, the CRC-32 of all its bytes, and a
check of these two.

Source: docs/protocol/store.rst, Checksums of records.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ENTRY_SIZE = 12
"""Bytes of an entry."""

PLACE_FACTOR, CRC_FACTOR, SEED = 0x9E3779B1, 0x85EBCA6B, 0x5BD1E995
"""Of the check: odd, so each bit of a place or a CRC changes it, and an entry of zeros is none."""

Numbers = NDArray[np.int64]


def _checks(place: NDArray[np.uint32], crc: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return place * np.uint32(PLACE_FACTOR) ^ crc * np.uint32(CRC_FACTOR) ^ np.uint32(SEED)


def render_entries(base: int, places: Sequence[int], crcs: Sequence[int]) -> bytes:
    """What is kept of some records.

    @param base: A physical offset.
    @param places: Where each begins, counted from there; of its physical offset the lowest four
        bytes are kept.
    @param crcs: The CRC-32 of each.
    """
    table = np.empty((len(places), 3), ">u4")
    place = (np.array(places, np.int64) + base).astype(np.uint32)
    crc = np.array(crcs, np.uint32)
    table[:, 0], table[:, 1], table[:, 2] = place, crc, _checks(place, crc)
    return table.tobytes()


def parse_entries(raw: bytes) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Read entries, without what is less than one at the end.

    @return: The lowest four bytes of each record's physical offset, its CRC-32, and whether the
        entry is what was written.
    """
    count = len(raw) // ENTRY_SIZE
    table = np.frombuffer(raw, ">u4", 3 * count).reshape(count, 3)
    place, crc, check = (table[:, column].astype(np.uint32) for column in range(3))
    return place.astype(np.int64), crc.astype(np.int64), _checks(place, crc) == check
