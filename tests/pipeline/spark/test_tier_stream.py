"""Tests of streams that join a store with its tier."""

from __future__ import annotations

import json
import shutil
from typing import Any

from lab.harness import golden
from tests.support.rows import expected, publish
from tests.support.tiers import END, FULL, SIZE, TierCase

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from tests.pipeline.spark.test_stream import StreamReader, reader_of, rows_between
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class TierStreamTests(TierCase):
    """A stream reads on where retention deleted, and may follow a tier alone."""

    def setUp(self) -> None:
        super().setUp()
        every = expected(golden.VERSIONS[0], "store")
        self.all = [record["physicalOffset"] for record in every]

    def batch(self, reader: StreamReader, start: Any) -> tuple[Any, list[int]]:
        """All there is behind a position, as a checkpoint has it."""
        end = reader.latestOffset(start, ReadAllAvailable())
        return json.loads(json.dumps(end)), rows_between(reader, start, end)

    def test_overtaken_by_retention(self) -> None:
        """A stream that stood still for longer than retention goes on without a loss."""
        publish(self.store, self.all[100])
        self.upload()
        reader = reader_of(path=self.store, tier=self.url)
        at, first = self.batch(reader, reader.initialOffset())
        publish(self.store, END)
        self.upload()
        self.retention(FULL)
        _, second = self.batch(reader_of(path=self.store, tier=self.url), at)
        self.assertEqual(self.all, first + second)

    def test_tier_alone(self) -> None:
        """A tier without a store is followed as files come; no reader's offset is written."""
        publish(self.store, 3 * SIZE)
        self.upload()
        reader = reader_of(tier=self.url, readerName="lake")
        at, first = self.batch(reader, reader.initialOffset())
        reader.commit(at)
        publish(self.store, END)
        self.upload()
        shutil.rmtree(self.store)
        self.forget()
        _, second = self.batch(reader_of(tier=self.url, readerName="lake"), at)
        self.assertEqual([place for place in self.all if place < FULL * SIZE], first + second)
        self.assertFalse(list(self.place.rglob("readers")))
