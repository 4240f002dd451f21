"""Looks at a node that are repeated."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.admin.watch import Watch
from rmqha.periodic import rows_of


@define(eq=False)
class Seen(Watch):
    """Remembers when it looked."""

    clock: IReactorTime
    times: list[float] = field(factory=list)

    job = "seeing"
    every = 2.0

    def look(self) -> None:
        self.times.append(self.clock.seconds())
        raise ValueError("nothing to see")


class WatchTests(SynchronousTestCase):
    def test_watch(self) -> None:
        """It looks at once and each time, whatever it meets, until it is stopped; status tells."""
        clock = Clock()
        seen = Seen(clock)
        self.assertEqual(rows_of(seen.jobs()), [])
        seen.start()
        clock.pump([1.0] * 4)
        (row,) = rows_of(seen.jobs())
        self.assertEqual((row["name"], row["interval"], row["failures"]), ("seeing", 2.0, 3))
        self.successResultOf(seen.stop())
        clock.pump([1.0] * 4)
        self.assertEqual(seen.times, [0.0, 2.0, 4.0])
        self.assertEqual(rows_of(seen.jobs()), [])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
