"""Counting many records at once: how many there are of each kind, and how large a number is.

Numbers are counted in buckets: each up to 63 has one, above that 32 lie in every power of
two, so that a percentile is off by 3 % at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rmqha.pipeline.log.fields import numbers
from rmqha.wire.columnar.vectors import Array

_FINE = 64
"""Numbers below it are their own buckets."""
_HALF = _FINE // 2
_FINE_BITS = 6


def buckets(numbers: Array) -> Array:
    """The bucket of each number; those below 0 mirror those above."""
    size = np.abs(np.clip(numbers, -(1 << 52), 1 << 52))
    # frexp is exact up to 53 bits: the number of bits of each.
    shift = np.maximum(np.frexp(size.astype(np.float64))[1].astype(np.int64) - _FINE_BITS, 0)
    found = shift * _HALF + (size >> shift)
    signed: Array = np.where(numbers < 0, -found, found)
    return signed


def middle(bucket: int) -> int:
    """A number in the middle of a bucket."""
    size = abs(bucket)
    shift = max(0, size // _HALF - 1)
    low = (size - shift * _HALF) << shift
    found = low + ((1 << shift) - 1) // 2
    return -found if bucket < 0 else found


def percentile(counts: dict[int, int], part: float) -> int:
    """The number that a part of all are not above.

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


CELLS = pa.schema(numbers("topic", "queue_id", "key", "count", "total", "low", "high"))
"""A row a kind of records, by the first three: how many, the sum of their weights, the least and
the greatest of their values."""

_KINDS = CELLS.names[:3]
_KEPT = {"count": "sum", "total": "sum", "low": "min", "high": "max"}


def tallied(*cells: pa.Table) -> pa.Table:
    """Make one row of those of each kind."""
    found = pa.concat_tables(cells).group_by(_KINDS, use_threads=False)
    kept = found.aggregate(list(_KEPT.items()))
    names = [*_KINDS, *(f"{name}_{how}" for name, how in _KEPT.items())]
    return kept.select(names).rename_columns(CELLS.names)


def records(kinds: Sequence[Array], weights: Array, values: Array) -> pa.Table:
    """Records as rows of L{CELLS} that are to be put together.

    @param kinds: Their first three columns.
    """
    columns = [*kinds, np.ones(len(weights), np.int64), weights, values, values]
    return pa.table([np.asarray(each, np.int64) for each in columns], schema=CELLS)
