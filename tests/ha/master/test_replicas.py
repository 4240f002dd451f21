"""Lag in seconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.ha.master import replicas
from rmqha.ha.master.replicas import Timeline

STEPS = st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), min_size=1, max_size=60)


class TimelineTests(SynchronousTestCase):
    def test_old(self) -> None:
        """What was there before is at least as old as the timeline."""
        timeline = Timeline()
        self.assertEqual(timeline.age(5, 1.0), 0.0)
        timeline.note(1000, 10.0)
        self.assertEqual(timeline.age(999, 12.0), 2.0)
        self.assertTrue(timeline.before(999))
        self.assertFalse(timeline.before(1000))

    @given(STEPS, st.integers(0, 3000))
    def test_age(self, steps: list[tuple[float, int]], offset: int) -> None:
        """The age is right up to one step, and never negative."""
        timeline = Timeline()
        now, end = 0.0, 10
        timeline.note(end, now)
        appended = None
        for wait, size in steps:
            now += wait
            end += size
            if appended is None and end > offset >= 10:
                appended = now
            timeline.note(end, now)
        if appended is not None:
            now += 0.5
            timeline.note(end, now)
            age = timeline.age(offset, now)
            self.assertLessEqual(age, now - appended + 1e-9)
            # A point not taken is told by the next one, at most one wait later.
            self.assertGreaterEqual(age, now - appended - 3.0 - replicas.STEP)

    def test_thinning(self) -> None:
        """A long run keeps its points within bounds, and rather tells too much."""
        self.patch(replicas, "MOST_POINTS", 64)
        timeline = Timeline()
        for second in range(10_000):
            timeline.note(second + 1, float(second))
        self.assertLessEqual(len(timeline._ends), 65)
        self.assertEqual(len(timeline._ends), len(timeline._times))
        self.assertEqual(timeline._ends, sorted(timeline._ends))
        for offset in (9_999, 9_970, 5_000, 20):
            self.assertGreaterEqual(timeline.age(offset, 10_000.0), 10_000.0 - offset)
        self.assertLessEqual(timeline.age(9_980, 10_000.0), 22.0)

    def test_clock_that_stands(self) -> None:
        """A clock that steps back gives no negative lag."""
        timeline = Timeline()
        timeline.note(10, 100.0)
        timeline.note(20, 200.0)
        self.assertEqual(timeline.age(15, 150.0), 0.0)
