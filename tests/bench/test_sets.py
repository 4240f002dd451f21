"""What the bench of sets makes of what its clients saw."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lab.bench.sets import SetLoad


class LoadTests(SynchronousTestCase):
    def test_after(self) -> None:
        """A write counts that another member answered after the kill, not a late one of the old."""
        load = SetLoad([1, 2])
        load.acks += [(1.0, 1), (2.1, 1), (3.5, 2), (3.0, 2)]
        self.assertEqual(load.after(2.0, 1), 3.0)
        self.assertIsNone(load.after(4.0, 1))
