"""Tests for L{rmqha.wire.log.topic_runs}: entries of the topic index."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.log.published import Span
from rmqha.wire.log.topic_runs import TopicRunsMaker, TopicSpan, parse_topic_spans

RECORDS = st.lists(
    st.tuples(st.sampled_from(("A", "B", "C", "ü")), st.integers(91, 1 << 20)), max_size=60
)


def entries(records: list[tuple[str, int]], per_span: int, step: int) -> bytes:
    """The entries of records, so many a span, walked in steps."""
    ends = np.cumsum([size for _, size in records], dtype=np.int64)
    starts = ends - np.array([size for _, size in records], np.int64)
    names = sorted({topic for topic, _ in records})
    numbers = np.array([names.index(topic) for topic, _ in records], np.int32)
    spans = [
        Span(int(starts[low]), int(ends[min(low + per_span, len(records)) - 1]), 0, per_span, 1, 2)
        for low in range(0, len(records), per_span)
    ]
    maker, raw = TopicRunsMaker(), b""
    for low in range(0, len(records), step):
        part = slice(low, low + step)
        done = [span for span in spans if starts[low] < span.end <= ends[part][-1]]
        raw += maker.add(starts[part], (ends - starts)[part], (names, numbers[part]), done)
    return raw


def parsed(raw: bytes) -> list[TopicSpan]:
    """The entries of a file with these bytes."""
    return list(parse_topic_spans(lambda place, size: raw[place : place + size]))


class TopicRunsTests(SynchronousTestCase):
    """What is told of a span's topics is what its records have."""

    @given(RECORDS, st.integers(1, 20), st.integers(1, 20))
    def test_read_back(self, records: list[tuple[str, int]], per_span: int, step: int) -> None:
        """Each topic's runs are its records, in whatever pieces the log was walked."""
        raw = entries(records, per_span, step)
        self.assertEqual(entries(records, per_span, 1000), raw)
        wanted = {topic: set[int]() for topic in ("A", "B", "C", "ü")}
        place = 0
        for topic, size in records:
            wanted[topic] |= {place, place + size - 1}
            place += size
        spans = parsed(raw)
        for topic, bytes_of in wanted.items():
            found = set[int]()
            for span in spans:
                runs = span.runs(raw[span.place : span.place + span.size], topic.__eq__)
                assert runs is not None
                self.assertEqual(span.topics.get(topic, 0), sum(high - low for low, high in runs))
                for low, high in runs:
                    found |= {place for place in bytes_of if low <= place < high}
            self.assertEqual(bytes_of, found)
        self.assertEqual(place, sum(size for span in spans for size in span.topics.values()))

    @given(RECORDS.filter(bool), st.data())
    def test_damage(self, records: list[tuple[str, int]], data: st.DataObject) -> None:
        """Entries are believed up to the first damaged or cut; damaged runs are not."""
        raw = entries(records, 5, 7)
        good = parsed(raw)
        place = data.draw(st.integers(0, len(raw) - 1))
        harmed = bytearray(raw)
        harmed[place] ^= 1 << data.draw(st.integers(0, 7))
        for bad in (bytes(harmed), raw[:place]):
            found = parsed(bad)
            self.assertEqual(good[: len(found)], found)
            for span in found:
                part = bad[span.place : span.place + span.size]
                if part != raw[span.place : span.place + span.size]:
                    self.assertIsNone(span.runs(part, lambda topic: True))
