"""Making the spans of a split index of records that follow each other.

Source: docs/protocol/store.rst, The split index.
"""

from __future__ import annotations

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from rmqha.wire.log.published import SPAN, Span

_NONE = 1 << 62


@define(eq=False)
class SpanMaker:
    """The span that is being made.

    @ivar start: Physical offset where it begins.
    @ivar ordinal: How many records lie in the spans before it.
    """

    start: int
    ordinal: int = 0
    _count: int = field(default=0, init=False)
    _earliest: int = field(default=_NONE, init=False)
    _latest: int = field(default=-_NONE, init=False)

    def add(self, ends: NDArray[np.int64], times: NDArray[np.int64]) -> list[Span]:
        """Take records.

        @param ends: Physical offset just past each.
        @param times: Store time of each, in milliseconds since 1970.
        @return: The spans that are complete with them.
        """
        done: list[Span] = []
        first = 0
        while first < len(ends):
            last = int(np.searchsorted(ends, self.start + SPAN))
            part = times[first : last + 1]
            self._count += len(part)
            self._earliest = min(self._earliest, int(part.min()))
            self._latest = max(self._latest, int(part.max()))
            if last < len(ends):
                done.append(self.close(int(ends[last])))
            first = last + 1
        return done

    def close(self, end: int) -> Span:
        """End the span; the next one begins.

        @param end: Physical offset.
        """
        times = (self._earliest, self._latest) if self._count else (0, -1)
        span = Span(self.start, end, self.ordinal, self._count, *times)
        self.start, self.ordinal = end, self.ordinal + self._count
        self._count, self._earliest, self._latest = 0, _NONE, -_NONE
        return span
