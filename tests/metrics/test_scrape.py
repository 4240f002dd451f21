"""Gathering what a monitor asks for, Prometheus' text, and the guide's page on metrics."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.metrics.catalog import FAMILIES
from rmqha.metrics.family import Buckets, Family, MetricType, Sample
from rmqha.metrics.reference import reference
from rmqha.metrics.scrape import Scrape, text_of
from tests.support.effort import tries
from tests.support.imports import ROOT

GAUGE = Family("some_gauge", MetricType.GAUGE, "bytes", "What it is.", ("topic", "kind"))
PLAIN = Family("some_total", MetricType.COUNTER, "bytes", "What else it is.")
SPREAD = Family("some_seconds", MetricType.HISTOGRAM, "seconds", "How long.", ("what",))


def parsed(text: bytes) -> dict[str, Any]:
    """The metrics in a text, by name."""
    return {each.name: each for each in text_string_to_metric_families(text.decode())}


class ExpositionTests(SynchronousTestCase):
    @settings(max_examples=tries(100), deadline=None)
    @given(st.text(), st.text(), st.text(), st.floats(allow_nan=False) | st.integers())
    def test_anything(self, node: str, topic: str, kind: str, value: float) -> None:
        """Whatever topics, groups and nodes are called, a monitor reads the same."""
        text = text_of([(GAUGE, (topic, kind), value)], {"node_id": node})
        (sample,) = parsed(text)["some_gauge"].samples
        self.assertEqual(sample.labels, {"node_id": node, "topic": topic, "kind": kind})
        self.assertEqual(float(sample.value), float(value))

    def test_grouped(self) -> None:
        """All samples of a metric stand together, under its type and help, however found."""
        samples: Any = [(GAUGE, ("a", ""), 1), (PLAIN, (), 2), (GAUGE, ("b", ""), True)]
        found = parsed(text_of(samples, {}))
        gauge = found["some_gauge"]
        self.assertEqual((gauge.type, gauge.documentation), ("gauge", "What it is."))
        self.assertEqual([sample.value for sample in gauge.samples], [1, 1])
        self.assertEqual(found["some"].type, "counter")

    def test_histogram(self) -> None:
        """A histogram's buckets are those of its bounds and of all, with sum and count."""
        value = Buckets((0.001, 2.5), (1, 3, 4), 17.5)
        found = parsed(text_of([(SPREAD, ("x",), value)], {"node": "%"}))["some_seconds"]
        rows = [(each.name, each.labels.get("le"), each.value) for each in found.samples]
        self.assertEqual(
            rows,
            [
                ("some_seconds_bucket", "0.001", 1),
                ("some_seconds_bucket", "2.5", 3),
                ("some_seconds_bucket", "+Inf", 4),
                ("some_seconds_sum", None, 17.5),
                ("some_seconds_count", None, 4),
            ],
        )

    def test_process(self) -> None:
        """What every Python process tells of itself is there too."""
        found = parsed(text_of([], {}))
        self.assertGreater(found["process_resident_memory_bytes"].samples[0].value, 1 << 20)
        self.assertNotEqual(found["process_open_fds"].samples[0].value, inf)


class ReferenceTests(SynchronousTestCase):
    def test_page(self) -> None:
        """It is what the code says: run C{python -m rmqha.metrics.reference} if this fails."""
        self.assertEqual((ROOT / "docs/guide/metrics.rst").read_text(), reference())

    def test_all(self) -> None:
        """No metric is missing, and each has its type and unit."""
        page = reference()
        for family in FAMILIES:
            self.assertIn(f"``{family.name}``\n    {family.type.value}, ", page)

    def test_absent(self) -> None:
        """What RocketMQ's broker tells and ours does not is named: no panel is a riddle."""
        _, _, paragraph = reference().partition("these are not here:")
        told = {family.name for family in FAMILIES}
        for name in (
            "rocketmq_timing_messages",
            "rocketmq_delay_message_latency",
            "rocketmq_processor_watermark",
            "rocketmq_consumer_queueing_latency",
        ):
            self.assertNotIn(name, told)
            self.assertIn(f"``{name}``", paragraph)


NUMBER = Family("a_number", MetricType.GAUGE, "1", "A number.", ("n",))


@define
class Node:
    """A node with ten samples, each of which takes as long as the test says."""

    reactor: Clock
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
            self.reactor.rightNow += self.takes
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
        self.scrape = Scrape(self.node, maybeDeferred)

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
