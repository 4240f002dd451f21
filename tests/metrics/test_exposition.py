"""Prometheus' text, read by the client library of Prometheus itself."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SynchronousTestCase

from rmqha.metrics.family import Buckets, Family, MetricType
from rmqha.metrics.scrape import text_of
from tests.support.effort import tries

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
