"""Tests for L{rmqha.pipeline.jobs.stats.stats}: what a log holds, counted in tasks."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.pipeline.errors import OptionUnknown
from tests.cli.command import CommandTestCase
from tests.support.memorylog import MemoryLog
from tests.support.rows import expected
from tests.support.spark_needs import need_java

try:
    import matplotlib  # noqa: F401

    from rmqha.pipeline.jobs.stats import stats
    from rmqha.pipeline.jobs.stats.stats import Stats
    from rmqha.pipeline.jobs.stats.stats_plots import plots
    from rmqha.pipeline.jobs.stats.tally import CELLS, buckets, middle, percentile, records, tallied
    from tests.support import jobs
    from tests.support.spark import session
except ImportError as missing:  # without the extras
    skip = f"an extra is not installed: {missing}"

NO_SPARK: Any = None
VERSION = "5.3.3"


class TallyTests(SynchronousTestCase):
    @given(st.lists(st.integers(-(1 << 52), 1 << 52), min_size=1))
    def test_buckets(self, numbers: list[int]) -> None:
        """A bucket's middle is near its numbers, and buckets are in the order of the numbers."""
        found = buckets(np.array(numbers, np.int64)).tolist()
        for number, bucket in zip(numbers, found, strict=True):
            self.assertLessEqual(abs(middle(bucket) - number), abs(number) / 32)
        ordered = sorted(zip(numbers, found, strict=True))
        self.assertEqual([each[1] for each in ordered], sorted(found))

    @given(st.lists(st.integers(0, 1 << 40), min_size=1))
    def test_percentiles(self, numbers: list[int]) -> None:
        """A percentile is the number at its place, as far as its bucket knows."""
        counts = Counter(buckets(np.array(numbers, np.int64)).tolist())
        for part in (0.5, 0.9, 0.99):
            at = max(0, int(np.ceil(part * len(numbers))) - 1)
            wanted = sorted(numbers)[at]
            self.assertLessEqual(abs(percentile(counts, part) - wanted), wanted / 32)

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(-99, 99))),
        st.integers(1, 10),
    )
    def test_tally(self, rows: list[tuple[int, int, int]], size: int) -> None:
        """Whatever pieces they come in, records are counted by their key."""
        cells = CELLS.empty_table()
        for start in range(0, len(rows), size):
            part = np.array(rows[start : start + size], np.int64).reshape(-1, 3)
            kinds = [part[:, 0], part[:, 1], part[:, 0]]
            cells = tallied(cells, records(kinds, part[:, 2], part[:, 2]))
        for cell in cells.to_pylist():
            mine = [row[2] for row in rows if row[:2] == (cell["topic"], cell["queue_id"])]
            self.assertEqual((len(mine), sum(mine)), (cell["count"], cell["total"]))
            self.assertEqual((min(mine), max(mine)), (cell["low"], cell["high"]))
        self.assertEqual(len({row[:2] for row in rows}), len(cells))


class StatsTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(stats, "ranges_of", jobs.ranges_of)
        self.patch(stats, "run", jobs.run)

    def folder(self) -> Path:
        made = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, made)
        return made

    def stats(self, store: Any, **more: Any) -> Stats:
        return stats.stats(NO_SPARK, store, **more)


class StatsTests(StatsTestCase):
    """The numbers are those of the records."""

    def test_golden(self) -> None:
        """Topics, queues, sizes, times and retries are as RocketMQ's own classes read them."""
        for version in golden.VERSIONS:
            records = expected(version, "store")
            found = self.stats(golden.store(version))
            self.assertEqual(len(records), found.messages)
            self.assertEqual(sum(each["size"] for each in records), found.bytes)
            self.assertEqual({each["topic"] for each in records}, {t.topic for t in found.topics})
            for topic in found.topics:
                mine = [each for each in records if each["topic"] == topic.topic]
                stored = [each["storeTimestamp"] for each in mine]
                delays = [each["storeTimestamp"] - each["bornTimestamp"] for each in mine]
                self.assertEqual(len(mine), topic.messages)
                self.assertEqual((min(stored), max(stored)), (topic.earliest, topic.latest))
                self.assertEqual((min(delays), max(delays)), (topic.delays.low, topic.delays.high))
                self.assertEqual(Counter(each["reconsumeTimes"] for each in mine), topic.retries)
            for queue in found.queues:
                offsets = [
                    each["queueOffset"]
                    for each in records
                    if (each["topic"], each["queueId"]) == (queue.topic, queue.queue_id)
                ]
                self.assertEqual(
                    (len(offsets), min(offsets), max(offsets)),
                    (queue.messages, queue.first, queue.last),
                )

    def test_steps(self) -> None:
        """Every message is in the step of its time, whatever the width."""
        records = expected(VERSION, "store")
        store = golden.store(VERSION)
        for width in (None, 10, 1000, 7777):
            found = self.stats(store, step=width)
            wanted: Counter[tuple[str, int, int]] = Counter()
            for each in records:
                time = each["storeTimestamp"] // found.step * found.step
                wanted[each["topic"], each["queueId"], time] += 1
            told = {(s.topic, s.queue_id, s.time): s.messages for s in found.steps}
            self.assertEqual((wanted, width or found.step), (told, found.step))

    def test_many_steps(self) -> None:
        """A long time has wider steps, in each task and in the end."""
        log = MemoryLog(golden.LOG_FILE_SIZE)
        start = 1_700_000_000_000
        times = [start + row * 977 for row in range(3000)] + [start + 10_000_000_000]
        for time in times:
            log.put("A", store_timestamp=time, body=bytes(300))
        store = jobs.stored(log, self.folder() / "store")
        self.patch(stats, "MOST_STEPS", 100)
        found = self.stats(store)
        self.assertLessEqual(10_000_000_000 // found.step, stats.POINTS)
        wanted = Counter(time // found.step * found.step for time in times)
        self.assertEqual(wanted, {each.time: each.messages for each in found.steps})

    def test_selection(self) -> None:
        """Options choose records; one nobody knows is an error."""
        store, records = golden.store(VERSION), expected(VERSION, "store")
        found = self.stats(store, topic="GoldenA")
        self.assertEqual(["GoldenA"], [each.topic for each in found.topics])
        self.assertLess(self.stats(store, visibility="consumer").messages, len(records))
        middle_time = records[700]["storeTimestamp"]
        self.assertLess(self.stats(store, startingTimestamp=middle_time).messages, len(records))
        self.assertRaises(OptionUnknown, self.stats, store, topik="a")

    def test_stores(self) -> None:
        """Several stores are counted together, queues apart."""
        both = {version: golden.store(version) for version in golden.VERSIONS}
        found = self.stats(both)
        self.assertEqual(set(golden.VERSIONS), {each.store for each in found.queues})
        alone = [self.stats(store).messages for store in both.values()]
        self.assertEqual(sum(alone), found.messages)

    def test_nothing(self) -> None:
        """A log without messages is no error, and can be plotted."""
        found = self.stats(golden.store(VERSION), topic="none")
        self.assertEqual((0, ()), (found.messages, found.topics))
        self.assertEqual(4, len(plots(found, self.folder())))

    def test_plots(self) -> None:
        """Plots are pictures."""
        for path in plots(self.stats(golden.store(VERSION)), self.folder() / "new"):
            self.assertEqual(b"\x89PNG", path.read_bytes()[:4])


class CommandTests(CommandTestCase):
    def test_command(self) -> None:
        """Tables for people, JSON for programs, plots for both."""
        need_java()
        session()
        store = golden.store(VERSION)
        place = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, place)
        result = self.run_command(
            "spark", "stats", store, "--topic", "GoldenA", "--queues", "--plot", place
        )
        self.assertEqual(0, result.exit_code, result.output)
        self.assertIn("messages of 1 topics", result.stdout)
        self.assertEqual(4, len(list(place.glob("*.png"))))
        answer = json.loads(self.succeed("spark", "stats", store, "--json"))
        self.assertEqual(len(expected(VERSION, "store")), answer["messages"])
