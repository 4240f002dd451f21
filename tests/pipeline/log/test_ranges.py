"""Tests for L{rmqha.pipeline.log.ranges}: how a log is divided."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.pipeline.log.ranges import cut_at

PLACES = st.integers(0, 10_000)


class CuttingTests(SynchronousTestCase):
    """A part of a log is cut at anchors only."""

    @given(PLACES, PLACES, st.sets(PLACES), st.integers(1, 3000))
    def test_parts(self, one: int, other: int, anchors: set[int], size: int) -> None:
        """The parts are the whole, in order, and begin at anchors."""
        start, end = min(one, other), max(one, other) + 1
        places = cut_at(start, end, sorted(anchors), size)
        self.assertEqual((start, end), (places[0], places[-1]))
        self.assertEqual(sorted(set(places)), places)
        self.assertLessEqual(set(places[1:-1]), anchors)

    @given(PLACES, PLACES, st.sets(PLACES), st.integers(1, 3000))
    def test_size(self, one: int, other: int, anchors: set[int], size: int) -> None:
        """A part is longer than asked only without an anchor; two neighbours are longer."""
        start, end = min(one, other), max(one, other) + 1
        places = cut_at(start, end, sorted(anchors), size)
        for low, high in pairwise(places):
            if high - low > size:
                self.assertFalse([each for each in anchors if low < each < high])
        for low, high in pairwise(places[::2] if len(places) % 2 else places[:-1][::2]):
            self.assertGreater(high - low, size)

    def test_without_anchors(self) -> None:
        """Without an index a file is one part, however long."""
        self.assertEqual([0, 1 << 30], cut_at(0, 1 << 30, [], 1 << 20))
