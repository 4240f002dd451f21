"""Tests for L{rmqha.wire.columnar.queue_units}: few units one by one, many in arrays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.columnar import queue_units
from rmqha.wire.columnar.queue_units import (
    BLANK_UNIT,
    FEW,
    UNIT,
    first_from,
    last_below,
    sound_prefix,
)

Rows = list[tuple[int, int, int]]


def rows() -> st.SearchStrategy[Rows]:
    """Units near each other, in any order, blank and empty ones among them."""
    unit = st.tuples(
        st.integers(0, 300), st.sampled_from([0, -1, 1, 20, 50, 0x7FFFFFFF]), st.just(0)
    )
    return st.lists(unit | st.just((0, 0x7FFFFFFF, 0)), max_size=FEW)


class UnitRunTests(SynchronousTestCase):
    """Both forms say the same."""

    @given(rows(), st.integers(0, 300), st.integers(0, 3))
    def test_forms(self, units: Rows, number: int, zeros: int) -> None:
        """Whatever the units are, also with nothing behind them."""
        raw = b"".join(UNIT.pack(*unit) for unit in units) + bytes(20 * zeros)
        few = sound_prefix(raw, number), last_below(raw, number), first_from(raw, number)
        self.patch(queue_units, "FEW", -1)
        many = sound_prefix(raw, number), last_below(raw, number), first_from(raw, number)
        self.assertEqual(few, many)

    def test_sound_prefix(self) -> None:
        """Units follow each other in the log; blank ones count for a place."""
        raw = UNIT.pack(100, 50, 0) + BLANK_UNIT + UNIT.pack(150, 10, 7)
        self.assertEqual(sound_prefix(raw, 0), (3, 160))
        self.assertEqual(sound_prefix(raw + bytes(60), 100), (3, 160))
        self.assertEqual(sound_prefix(raw + UNIT.pack(150, 10, 7), 0), (3, 160))
        self.assertEqual(sound_prefix(raw, 101), (0, 101))
        self.assertEqual(sound_prefix(b"", 5), (0, 5))
