"""The last quarter of an hour."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.page.history import SPAN, STEP, History

MASTER: dict[str, Any] = {
    "replicas": [
        {"lagSeconds": 0.0, "lagBytes": 0},
        {"lagSeconds": 2.5, "lagBytes": 700},
        {"lagSeconds": None, "lagBytes": None},
    ],
    "writes": {"PUT_OK": 100, "FLUSH_SLAVE_TIMEOUT": 1},
}
SLAVE: dict[str, Any] = {
    "replicas": [],
    "upstream": {"lagSeconds": 1.0, "lagBytes": None, "received": 1000},
}


class HistoryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.now: dict[str, Any] = MASTER
        self.history = History(lambda: self.now, self.clock, lambda: int(self.clock.rightNow * 1e3))
        self.history.start()

    def seen(self) -> dict[tuple[str, str], list[Any]]:
        found = self.history.series()
        return {(series.name, series.unit): list(series.values) for series in found}

    def test_master(self) -> None:
        """A master shows how far its last replica is, and how many writes came in a second."""
        self.now = {**MASTER, "writes": {"PUT_OK": 151}}
        self.clock.advance(STEP)
        self.assertEqual(self.history.times(), (0, 5000))
        self.assertEqual(
            self.seen(),
            {
                ("lag", "s"): [2.5, 2.5],
                ("lag", "bytes"): [700, 700],
                ("writes", "/s"): [None, 10.0],
            },
        )

    def test_slave(self) -> None:
        """A slave shows how far it is itself, and what it received; not what it does not know."""
        for received in (1000, 6000, 0):
            self.now = {**SLAVE, "upstream": {**SLAVE["upstream"], "received": received}}
            self.clock.advance(STEP)
        self.assertEqual(self.seen()["lag", "s"], [2.5, 1.0, 1.0, 1.0])
        self.assertEqual(self.seen()["lag", "bytes"], [700, None, None, None])
        # Before it was a slave, and where it counted anew, nothing is known.
        self.assertEqual(self.seen()["received", "bytes/s"], [None, None, 1000.0, None])

    def test_bounded(self) -> None:
        """A quarter of an hour is kept, however long the node runs."""
        for _ in range(1000):
            self.clock.advance(STEP)
        times = self.history.times()
        self.assertEqual(times[-1] - times[0], SPAN * 1000)
        self.assertEqual({len(values) for values in self.seen().values()}, {len(times)})

    def test_nothing(self) -> None:
        """A name server has no lag; a stop ends the looks."""
        other = History(lambda: {"role": "namesrv"}, self.clock)
        other.look()
        self.assertEqual(other.series(), ())
        self.history.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
