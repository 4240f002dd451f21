"""Reading many places of one buffer at once: the numpy half of
L{rmqha.wire.columnar.record_blocks}.

Records have no alignment, so each reader lays an array of overlapping items over
the whole buffer (one item starts at every byte, nothing is copied) and picks the
items at the wanted positions.  What is returned is always a copy: no array here
keeps the caller's buffer, which may be a mapped file, alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def overlapping(buf: memoryview | bytes | bytearray, dtype: str) -> Array:
    """View a buffer as items that start at every byte.

    @param buf: At least one item long.
    """
    width = np.dtype(dtype).itemsize
    return np.ndarray((len(buf) - width + 1,), dtype, buf, 0, (1,))


def pick(buf: memoryview | bytes, dtype: str, positions: Array) -> Array:
    """Read one number at each position, in the machine's byte order.

    @param positions: Where to read; a place outside the buffer reads the nearest
        number inside, so that a caller may check all its lengths afterwards.
    """
    view = overlapping(buf, dtype)
    found = view[np.minimum(np.maximum(positions, 0), len(view) - 1)]
    return found.astype(view.dtype.newbyteorder("="), copy=False)


def by_length(
    buf: memoryview | bytes | bytearray, starts: Array, lengths: Array
) -> Iterator[tuple[Array, Array]]:
    """Cut strings out of a buffer, those of one length together.

    @param lengths: Lengths in bytes, none below 0; strings of length 0 are left out.
    @return: Pairs of the strings' row numbers and their bytes, an array of C{V} items.
    """
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        if length:
            rows = np.flatnonzero(lengths == length)
            yield rows, overlapping(buf, f"V{length}")[starts[rows]]
