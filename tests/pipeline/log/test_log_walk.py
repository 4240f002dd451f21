"""Tests for L{rmqha.pipeline.log.log_walk} and for what is made of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.logfiles.log_end import find_end_in_last_file
from rmqha.logfiles.log_files import LogFiles
from rmqha.pipeline.log.log_walk import boundary, first_stored, round_up
from rmqha.pipeline.spark.stream import BatchLimits, shares

RECORDS = [
    line
    for line in golden.jsonl("5.3.3", golden.truth("store", "expected.jsonl"))
    if "topic" in line
]
STARTS = [record["physicalOffset"] for record in RECORDS]
ENDS = [record["physicalOffset"] + record["size"] for record in RECORDS]
ROWS = st.integers(0, len(RECORDS) - 1)


class WalkingTests(SynchronousTestCase):
    """A log is followed over blanks and files."""

    files = LogFiles.find(golden.store("5.3.3"))

    @given(ROWS, ROWS, st.none() | st.integers(1, 300_000), st.none() | st.integers(1, 300))
    def test_boundary(self, one: int, other: int, size: int | None, rows: int | None) -> None:
        """The place that is found is behind as many records as the limits allow, one at least."""
        first, last = min(one, other), max(one, other)
        found = boundary(self.files, STARTS[first], ENDS[last], size=size, rows=rows)
        wanted = [
            row
            for row in range(first, last + 1)
            if row == first
            or (
                (size is None or ENDS[row] <= STARTS[first] + size)
                and (rows is None or row - first < rows)
            )
        ]
        self.assertEqual((STARTS[wanted[-1]], len(wanted)), (found.last, found.rows))
        following = [*STARTS, ENDS[-1]][wanted[-1] + 1]
        self.assertTrue(ENDS[wanted[-1]] <= found.offset <= following)

    @given(st.integers(0, ENDS[-1]))
    def test_round_up(self, offset: int) -> None:
        """From any place the next record is found, over a blank it is the next file's."""
        file = self.files.at(offset)
        assert file is not None
        found = round_up(self.files, file.start, offset, ENDS[-1])
        self.assertEqual(next((s for s in STARTS if s >= offset), ENDS[-1]), found)

    @given(ROWS, st.integers(-2, 2))
    def test_first_stored(self, row: int, more: int) -> None:
        """The first record that was stored at a time or later is found."""
        time = RECORDS[row]["storeTimestamp"] + more
        late = [r["physicalOffset"] for r in RECORDS if r["storeTimestamp"] >= time]
        found = first_stored(self.files, 0, ENDS[-1], time)
        self.assertEqual(late[0] if late else None, found)

    @given(ROWS)
    def test_tail_from_a_known_place(self, row: int) -> None:
        """The end is the same from wherever it is looked for."""
        found = find_end_in_last_file(self.files, ENDS[row])
        self.assertEqual(find_end_in_last_file(self.files).end, found.end)


class SharesTests(SynchronousTestCase):
    @given(
        st.integers(1, 1 << 40),
        st.dictionaries(st.sampled_from("abcd"), st.integers(-5, 1 << 40), min_size=1),
    )
    def test_by_backlog(self, size: int, backlog: dict[str, int]) -> None:
        """Each gets something, all together no more than there is, but for the least parts."""
        parts = [part.size or 0 for part in shares(BatchLimits(size, None), backlog).values()]
        self.assertTrue(all(part >= 1 for part in parts))
        self.assertLessEqual(sum(parts), size + len(parts))
