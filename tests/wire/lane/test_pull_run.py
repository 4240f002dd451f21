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
from rmqha.wire.log.layout import BODY_AT, MAGIC_AT, SIZE_AT
from rmqha.wire.log.properties import parse
from rmqha.wire.sql92.filter import read_filter
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


PROPERTIES = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"", b"aa", b"\xff"]),
        st.sampled_from([b"\x01", b""]),
        st.sampled_from([b"", b"1", b"2.5", b"x", b"\xff", b"\x01", "\u00e9".encode()]),
    ),
    max_size=4,
).map(lambda pairs: b"\x02".join(map(b"".join, pairs)))
FLAGS = st.sampled_from([0, 0x10, 0x20, 0x30])
FILTERS = st.sampled_from(
    ["a > 1", "a = 'x' OR b IS NULL", "a = '\u00e9'", "a <> b", "NOT (b = 'x')", "TRUE"]
)


def starts_of(runs: list[tuple[int, int]], data: bytes | bytearray) -> list[int]:
    """Where the records of runs begin."""
    found = []
    for at, end in runs:
        while at < end:
            found.append(at)
            at += int.from_bytes(data[at : at + 4])
    return found


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
        done, last, runs, reached = found
        self.assertEqual(done, chosen.done)
        self.assertEqual(last, UNIT.unpack_from(units, (done - 1) * UNIT.size)[0])
        self.assertEqual([(BASE + start, end - start) for start, end in runs], chosen.runs)
        self.assertEqual(reached, runs[-1][1] if runs else 0)

    @given(st.lists(st.tuples(PROPERTIES, FLAGS), min_size=1, max_size=9), FILTERS)
    def test_filter(self, rows: list[tuple[bytes, int]], text: str) -> None:
        """With a filter it gives those that match, and looks at all."""
        data, units, matching = bytearray(), bytearray(), []
        for number, (raw, flags) in enumerate(rows, FIRST):
            made = record(BASE + len(data), properties=raw, flags=flags, number=number)
            units += UNIT.pack(BASE + len(data), len(made), 0)
            if read_filter(text).matches(parse(raw)):
                matching.append((len(data), len(data) + len(made)))
            data += made
        for _ in range(2):  # what it was told it knows
            found = sound_runs(
                bytes(units), FIRST, 99, 1 << 20, None, memoryview(data), BASE, read_filter(text)
            )
            assert found is not None
            done, _, runs, reached = found
            self.assertEqual((done, reached), (len(rows), len(data)))
            self.assertEqual([at for at, _ in matching], starts_of(runs, data))

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

    def test_filter_beyond(self) -> None:
        """A filter looks as far as the bytes go, and leaves what is damaged before to others."""
        data, units = log_of([(10, 0, False), (10, 0, False)])
        size, no = len(data) // 2, read_filter("a > 1")

        def found(view: memoryview) -> tuple[int, int, list[tuple[int, int]], int] | None:
            return sound_runs(units, FIRST, 9, 1 << 20, None, view, BASE, no)

        self.assertEqual(found(memoryview(data)), (2, BASE + size, [], 2 * size))
        self.assertEqual(found(memoryview(data)[:-1]), (1, BASE, [], size))
        self.assertIsNone(found(memoryview(data)[: size - 1]))
        for place in (SIZE_AT, MAGIC_AT, BODY_AT - 4, size - 2):
            harmed = bytearray(data)
            harmed[place] ^= 64
            self.assertIsNone(found(memoryview(harmed)), place)

    def test_wild_units(self) -> None:
        """Whatever a damaged queue says, nothing is read that is not there."""
        data, _ = log_of([(10, 0, False)])
        for start, size in ((BASE, 20), (BASE, -5), (-(1 << 62), 120), ((1 << 62), 120), (BASE, 0)):
            raw = UNIT.pack(start, size, 0)
            self.assertIsNone(sound_runs(raw, FIRST, 9, 99, None, memoryview(data), BASE))
