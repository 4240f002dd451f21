"""Tests for L{rmqha.pipeline.log.reading.RangeProof}: which copy a task believes."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import NotAStore
from rmqha.pipeline.log.errors import CopyBehind, NotThisLog
from tests.support.rows import expected, publish

try:
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.log.ranges import Range, plan
    from rmqha.pipeline.log.reading import PATIENCE, RangeProof
    from rmqha.pipeline.log.stores import open_stores
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class GuardTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        records = expected("5.3.3", "store")
        self.end = records[-1]["physicalOffset"] + records[-1]["size"]
        publish(self.store, self.end)
        self.options = ReadOptions.parse({"path": self.store})
        self.clock = Clock()

    def guard(self, wanted: Range | None = None) -> RangeProof:
        """The guard of the last range, in a time of its own."""
        if wanted is None:
            wanted = plan(open_stores(self.options), self.options)[-1]
        return RangeProof(wanted, self.options, self.clock.seconds, self.clock.advance)

    def test_copy_comes(self) -> None:
        """A copy that is behind is waited for."""
        guard = self.guard()
        publish(self.store, 1000)
        self.clock.callLater(PATIENCE / 2, publish, self.store, self.end)
        guard.await_copy()
        self.assertAlmostEqual(PATIENCE / 2, self.clock.seconds(), 0)

    def test_copy_does_not_come(self) -> None:
        """But not forever."""
        guard = self.guard()
        publish(self.store, 1000)
        error = self.assertRaises(CopyBehind, guard.await_copy)
        self.assertEqual((self.end, 1000), (error.wanted, error.end))
        self.assertAlmostEqual(PATIENCE, self.clock.seconds(), 0)

    def test_no_copy(self) -> None:
        """A host that has none says so at once, so that another one may read."""
        guard = self.guard()
        self.store.rename(self.store.with_name("away"))
        error = self.assertRaises(NotAStore, guard.await_copy)
        self.assertIn("this host has no such folder", str(error))
        self.assertEqual(0.0, self.clock.seconds())

    def test_another_log(self) -> None:
        """A host with another log under the same path is found out."""
        wanted = plan(open_stores(self.options), self.options)[0]
        self.guard(wanted).prove()
        other = golden.store("4.9.7")
        moved = evolve(
            wanted, root=str(other), path=wanted.path.replace(str(self.store), str(other))
        )
        self.assertRaises(NotThisLog, self.guard(moved).prove)
