"""Tests for what L{lab.bench.spark} computes by itself."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

HAS_SPARK = find_spec("pyspark") is not None and find_spec("deltalake") is not None

SERVER = """
from lab.bench.spark.peers import serve
def double(of): return {"is": 2 * of}
serve({"double": double})
"""


class MadeTests(SynchronousTestCase):
    @skipUnless(HAS_SPARK, "needs the extra pipeline")
    def test_store(self) -> None:
        """A made store is one: every record is sound, is in its queue's order, and is published."""
        from lab.bench.spark.made import make
        from rmqha.pipeline.scan import scan

        with TemporaryDirectory() as folder:
            made = make(Path(folder) / "store", 1 << 20, file_size=300_000)
            self.assertGreater(len(made.files), 3)
            columns = "topic,queue_id,queue_offset,physical_offset,store_size,uniq_key,body"
            rows = scan(made.root, columns=columns, verifyCrc=True).read_all().to_pylist()
            copy = made.copied(Path(folder) / "copy")
            self.assertEqual([file.name for file in copy.files], [f.name for f in made.files])
        self.assertEqual(len(rows), made.records)
        last = rows[-1]
        self.assertEqual(last["physical_offset"] + last["store_size"], made.end)
        self.assertEqual({len(row["body"]) for row in rows}, {1024})
        self.assertEqual(len({row["uniq_key"] for row in rows}), len(rows))
        next_ones: dict[tuple[str, int], int] = {}
        for row in rows:
            queue = row["topic"], row["queue_id"]
            self.assertEqual(row["queue_offset"], next_ones.get(queue, 0))
            next_ones[queue] = row["queue_offset"] + 1
        self.assertEqual(len(next_ones), 32)


class PeerTests(SynchronousTestCase):
    def test_asked(self) -> None:
        """A process answers, and one that has ended is told with its last words."""
        from lab.bench.spark.peers import Peer

        with TemporaryDirectory() as folder:
            peer = Peer([sys.executable, "-c", SERVER], Path(folder) / "log")
            try:
                self.assertEqual(peer.ask("double", of=21), {"is": 42})
                error = self.assertRaises(AssertionError, peer.ask, "nothing")
            finally:
                peer.end()
        self.assertIn("KeyError", str(error))

    def test_turns(self) -> None:
        """What is measured first goes last in the next round, and warm-up does not count."""
        from lab.bench.spark.peers import in_turns

        order: list[str] = []

        def work(name: str) -> float:
            order.append(name)
            return float(len(order))

        found = in_turns({"a": lambda: work("a"), "b": lambda: work("b")}, 2)
        self.assertEqual("".join(order), "baabba")
        self.assertEqual(found, {"a": [3.0, 6.0], "b": [4.0, 5.0]})

    def test_goals(self) -> None:
        """A ratio is one of medians, and the goal is its least or its most."""
        from lab.bench.spark.peers import compared

        row = compared("it", [1e6, 3e6, 9e6], "cat", [6e6, 6e6], 0.5)
        self.assertEqual((row.ratio, row.goal, row.met), ("0.50", ">= 0.5x", True))
        row = compared("it", [3e6], "cat", [2e6], 1.2, most=True)
        self.assertEqual((row.ratio, row.goal, row.met), ("1.50", "<= 1.2x", False))
        self.assertEqual(compared("it", [1], "cat", [1]).met, None)


@skipUnless(HAS_SPARK, "needs the extra pipeline")
class LagTests(SynchronousTestCase):
    """L{lab.bench.spark.streams}"""

    def test_lags(self) -> None:
        """A point waits for the first commit that reaches it; early ones and those that none
        reaches are left out.
        """
        from lab.bench.spark.streams import Published, lags

        points = [Published(10 * n, float(n)) for n in range(1, 8)]
        commits = [Published(20, 2.5), Published(45, 4.5), Published(60, 7.0)]
        self.assertEqual(lags(points, commits, 0.5), [1.5, 0.5, 2.0, 1.0])
        self.assertEqual(lags(points, [], 0.5), [])
