"""Tests for L{rmqha.wire.lane.pull_run}."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import skipUnless

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.consuming.chosen_units import choose
from rmqha.broker.consuming.served_records import first_wrong
from rmqha.wire.columnar.queue_units import BLANK_UNIT, UNIT
from rmqha.wire.lane.compiled import COMPILED
from tests.wire.columnar.test_record_blocks import BASE, record

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.pull_run import sound_runs

FIRST = 70
"""Queue offset of the first unit."""

CODE = 1 << 40
"""A tags code that does not fit 32 bits, as delayed messages have."""


def log_of(rows: list[tuple[int, int, bool]]) -> tuple[bytearray, bytes]:
    """A log, and a queue of it.

    @param rows: Of each unit: how long the body is, or -1 for a gap in the queue; a tags code; and
        whether another queue's record stands before it.
    """
    data, units = bytearray(), bytearray()
    for number, (length, code, apart) in enumerate(rows, FIRST):
        if length < 0:
            units += BLANK_UNIT
            continue
        if apart:
            data += record(BASE + len(data), number=9)
        made = record(BASE + len(data), body=bytes(length), number=number)
        units += UNIT.pack(BASE + len(data), len(made), code)
        data += made
    return data, bytes(units)


ROWS = st.lists(
    st.tuples(st.integers(-1, 40), st.sampled_from([0, 1, 7, -3, CODE]), st.booleans()),
    min_size=1,
    max_size=12,
)
CODES = st.none() | st.frozensets(st.sampled_from([0, 1, -3, CODE]), max_size=3)


@skipUnless(COMPILED, "the lane is not compiled here")
class SoundRunsTests(SynchronousTestCase):
    """What a pull gets, in one pass: what the steps in Python give, or nothing."""

    @given(ROWS, st.integers(1, 12), st.integers(1, 1500), CODES)
    def test_like_step_by_step(
        self, rows: list[tuple[int, int, bool]], most: int, room: int, codes: frozenset[int] | None
    ) -> None:
        """Of a sound log it gives what the steps give."""
        data, units = log_of(rows)
        if codes is None:
            units = units[: most * UNIT.size]
        found = sound_runs(units, FIRST, most, room, codes, memoryview(data), BASE)
        chosen = choose(units, most, room, codes)
        assert found is not None
        done, last, runs = found
        self.assertEqual(done, chosen.done)
        self.assertEqual(last, UNIT.unpack_from(units, (done - 1) * UNIT.size)[0])
        self.assertEqual([(BASE + start, end - start) for start, end in runs], chosen.runs)

    @given(ROWS, CODES, st.integers(0, 2000), st.integers(0, 7))
    def test_damage(
        self, rows: list[tuple[int, int, bool]], codes: frozenset[int] | None, place: int, bit: int
    ) -> None:
        """It gives nothing exactly if a chosen record is not what its unit says."""
        data, units = log_of(rows)
        if not data:
            return
        data[place % len(data)] ^= 1 << bit
        chosen = choose(units, 99, 1 << 20, codes)
        wrong = any(
            not first_wrong(memoryview(data)[start - BASE :], [start], [size], [FIRST + row])
            for row, start, size in zip(chosen.rows, chosen.starts, chosen.sizes, strict=True)
        )
        found = sound_runs(units, FIRST, 99, 1 << 20, codes, memoryview(data), BASE)
        self.assertEqual(found is None, wrong)

    def test_beyond(self) -> None:
        """What goes on behind the bytes that were given, or stands before them, is left to
        others.
        """
        data, units = log_of([(10, 0, False), (10, 0, False)])
        view = memoryview(data)
        self.assertIsNotNone(sound_runs(units, FIRST, 9, 1 << 20, None, view, BASE))
        self.assertIsNone(sound_runs(units, FIRST, 9, 1 << 20, None, view[:-1], BASE))
        self.assertIsNone(sound_runs(units, FIRST, 9, 1 << 20, None, view, BASE + 1))

    def test_wild_units(self) -> None:
        """Whatever a damaged queue says, nothing is read that is not there."""
        data, _ = log_of([(10, 0, False)])
        for start, size in ((BASE, 20), (BASE, -5), (-(1 << 62), 120), ((1 << 62), 120), (BASE, 0)):
            raw = UNIT.pack(start, size, 0)
            self.assertIsNone(sound_runs(raw, FIRST, 9, 99, None, memoryview(data), BASE))
