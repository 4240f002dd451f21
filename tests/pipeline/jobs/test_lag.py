"""Tests for L{rmqha.pipeline.jobs.lag}: how far a stream is behind, by topic too."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.log import split_spans
from tests.support.topic_store import FILE, TopicStore

try:
    from rmqha.cli.spark.stream import line
    from rmqha.pipeline.jobs import lag
    from rmqha.pipeline.log.positions import Position, to_json
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class TopicLagTests(SynchronousTestCase):
    """What lies behind a stream's position belongs to topics."""

    def setUp(self) -> None:
        self.patch(split_spans, "SPAN", 1 << 20)
        self.patch(lag, "SPAN", 1)
        self.store = TopicStore(Path(self.mktemp()), ["a", "b", "b"] * 3000, 1000)

    def behind(self, offset: int, path: Path, end: int | None = None) -> lag.Lag:
        """The lag of a stream that stands at an offset."""
        ends = {"store": Position(offset)}
        latest = {"store": Position(self.store.end if end is None else end)}
        source = SimpleNamespace(
            endOffset=json.dumps(to_json(ends)), latestOffset=json.dumps(to_json(latest))
        )
        progress = SimpleNamespace(sources=[source], numInputRows=1, durationMs={})
        found = lag.lag_of(progress, {"store": path})
        assert found is not None
        return found

    def test_by_topic(self) -> None:
        """The bytes of each topic are told, the most first, and the command shows them."""
        found = self.behind(FILE, self.store.root)
        self.assertEqual(["b", "a"], list(found.topics))
        self.assertAlmostEqual(2.0, found.topics["b"] / found.topics["a"], 1)
        self.assertLess(sum(found.topics.values()), found.bytes)
        self.assertIn(f"bytes, {found.topics['b']} of b, {found.topics['a']} of a", line(found))

    def test_nothing_behind(self) -> None:
        """A stream that is at the end is behind in no topic."""
        self.assertEqual({}, self.behind(self.store.end, self.store.root).topics)

    def test_ends_before(self) -> None:
        """A log that ends before the position is named: it is not taken for one without news."""
        shown = line(self.behind(FILE, self.store.root, end=5))
        self.assertNotIn("0 bytes", shown)
        self.assertIn(f"store at {FILE}: lag unknown", shown)
        self.assertIn(f"ends at byte 5, before byte {FILE}", shown)
        self.assertIn("this copy is behind, or it is another log", shown)

    def test_store_elsewhere(self) -> None:
        """Of a store that this machine does not see there is nothing to tell."""
        found = self.behind(FILE, self.store.root / "absent")
        self.assertEqual(({}, self.store.end - FILE), (found.topics, found.bytes))
