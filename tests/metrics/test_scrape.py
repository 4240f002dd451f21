"""Gathering what a monitor asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.metrics.family import Family, MetricType, Sample
from rmqha.metrics.scrape import Scrape

NUMBER = Family("a_number", MetricType.GAUGE, "1", "A number.", ("n",))


@define
class Node:
    """A node with ten samples, each of which takes as long as the test says."""

    clock: Clock
    takes: float = 0.0
    error: Exception | None = None
    looking: Deferred[None] = field(factory=lambda: succeed(None))
    asked: int = 0

    def looked(self) -> Deferred[None]:
        """Looking takes as long as the test wants."""
        return self.looking

    def metric_labels(self) -> dict[str, str]:
        return {"node_id": "broker-a"}

    def samples(self) -> Iterator[Sample | None]:
        self.asked += 1
        for n in range(10):
            self.clock.rightNow += self.takes
            yield None
            if self.error is not None:
                raise self.error
            yield NUMBER, (str(n),), n


class CountingClock(Clock):
    """A clock that counts the turns that are asked for."""

    turns = 0

    def callLater(self, *args: Any, **kwargs: Any) -> Any:
        self.turns += 1
        return super().callLater(*args, **kwargs)


class ScrapeTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = CountingClock()
        self.node = Node(self.clock)
        self.scrape = Scrape(self.node, self.clock, maybeDeferred)

    def told(self, text: Any) -> list[str]:
        lines = self.successResultOf(text).decode().splitlines()
        return [line for line in lines if line.startswith("a_number")]

    def test_all(self) -> None:
        """All samples come out, with the node's labels."""
        told = self.told(self.scrape.text())
        self.assertEqual((len(told), told[3]), (10, 'a_number{node_id="broker-a",n="3"} 3'))

    def test_slices(self) -> None:
        """A turn of the reactor has a few samples, however many there are."""
        self.node.takes = 0.0015
        text = self.scrape.text()
        self.assertNoResult(text)
        self.clock.advance(0)
        self.assertEqual(len(self.told(text)), 10)
        self.assertGreaterEqual(self.clock.turns, 4)

    def test_together(self) -> None:
        """Who asks while it is gathered gets the same; who asks afterwards has it gathered anew."""
        self.node.looking = Deferred()
        first, second = self.scrape.text(), self.scrape.text()
        self.assertNoResult(first)
        self.node.looking.callback(None)
        self.assertEqual(self.told(first), self.told(second))
        self.assertEqual(self.node.asked, 1)
        self.node.looking = succeed(None)
        self.told(self.scrape.text())
        self.assertEqual(self.node.asked, 2)

    def test_failed(self) -> None:
        """A store that is just being closed fails this one, and not the next."""
        self.node.error = OSError("closed")
        self.failureResultOf(self.scrape.text(), OSError)
        self.node.error = None
        self.assertEqual(len(self.told(self.scrape.text())), 10)
