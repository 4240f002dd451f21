"""
Counting many records at once: how many there are of each kind, and how large a number is.

Numbers are counted in buckets: each up to 63 has one, above that 32 lie in every power of
two, so that a percentile is off by 3 % at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import define, field

from rmqha.wire.columnar.vectors import Array

_FINE = 64
"""Numbers below it are their own buckets."""
_HALF = _FINE // 2
_FINE_BITS = 6


def buckets(numbers: Array) -> Array:
    """
    The bucket of each number; those below 0 mirror those above.
    """
    size = np.abs(np.clip(numbers, -(1 << 52), 1 << 52))
    # frexp is exact up to 53 bits: the number of bits of each.
    shift = np.maximum(np.frexp(size.astype(np.float64))[1].astype(np.int64) - _FINE_BITS, 0)
    found = shift * _HALF + (size >> shift)
    signed: Array = np.where(numbers < 0, -found, found)
    return signed


def middle(bucket: int) -> int:
    """
    A number in the middle of a bucket.
    """
    size = abs(bucket)
    shift = max(0, size // _HALF - 1)
    low = (size - shift * _HALF) << shift
    found = low + ((1 << shift) - 1) // 2
    return -found if bucket < 0 else found


def percentile(counts: dict[int, int], part: float) -> int:
    """
    The number that a part of all are not above.

    @param counts: By bucket, at least one.
    @param part: 0 to 1.
    """
    wanted = part * sum(counts.values())
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            return middle(bucket)
    return middle(max(counts))


@define
class Cell:
    """
    What was counted of one kind.

    @ivar count: How many.
    @ivar total: The sum of their weights.
    @ivar low: The least of their values.
    @ivar high: The greatest.
    """

    count: int = 0
    total: int = 0
    low: int = 1 << 62
    high: int = -(1 << 62)

    def add(self, count: int, total: int, low: int, high: int) -> None:
        self.count += count
        self.total += total
        self.low = min(self.low, low)
        self.high = max(self.high, high)


@define
class Tally:
    """
    Cells by key.

    @ivar cells: By as many whole numbers as the key has.
    """

    cells: dict[tuple[int, ...], Cell] = field(factory=dict)

    def add(self, keys: Sequence[Array], weights: Array, values: Array) -> None:
        """
        Count records.

        @param keys: Columns of the key.
        @param weights: What is summed up.
        @param values: What the least and the greatest are looked for of.
        """
        if not len(weights):
            return
        order = np.lexsort(keys[::-1])
        columns = [key[order] for key in keys]
        changed = np.zeros(len(order), np.bool_)
        changed[0] = True
        for column in columns:
            changed[1:] |= column[1:] != column[:-1]
        starts = np.flatnonzero(changed)
        counts = np.diff([*starts.tolist(), len(order)])
        ordered = values[order]
        found = (
            counts,
            np.add.reduceat(weights[order].astype(np.int64), starts),
            np.minimum.reduceat(ordered, starts),
            np.maximum.reduceat(ordered, starts),
        )
        names = zip(*(column[starts].tolist() for column in columns), strict=True)
        for name, *cell in zip(names, *(each.tolist() for each in found), strict=True):
            self.cells.setdefault(name, Cell()).add(*cell)
