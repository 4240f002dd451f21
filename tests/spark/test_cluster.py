"""Spark's standalone cluster over a store: executors are processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness.nodes import Process, until
from tests.support.rows import publish
from tests.support.spark_needs import why_no_java

try:
    from lab.spark_cluster.sessions import in_session
    from rmqha.pipeline.log.reading import PATIENCE
    from tests.support.spark_drivers import LONG, cluster, driver, log, truth, write
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why


class ClusterTests(SynchronousTestCase):
    """A master and two workers."""

    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="rmqha-cluster-test-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.marks = self.place / "marks"
        self.marks.mkdir()

    def job(self, store: Path, pause: float = 0.0) -> dict[str, Any]:
        """What a job says of a store."""
        found: dict[str, Any] = driver().do(
            "job", path=str(store), marks=str(self.marks), pause=pause
        )
        return found

    def check(self, store: Path, rows: list[dict[str, int]]) -> None:
        """Each range was read once, and all rows are there."""
        count, _, total = truth(store)
        self.assertEqual(
            [count, total], [sum(row[name] for row in rows) for name in ("count", "total")]
        )
        self.assertEqual(len(rows), len({row["start"] for row in rows}))

    def test_batch_job_stream(self) -> None:
        """Batch, SQL, job and stream find the rows that are there, by tasks on both workers."""
        store, end = log()
        wanted = truth(store)
        self.assertEqual(wanted, driver().do("batch", path=str(store)))
        self.assertEqual(wanted, driver().do("arrow", path=str(store)))
        self.assertEqual(wanted[0], driver().do("sql", path=str(store)))
        said = self.job(store, 0.1)
        self.check(store, said["rows"])
        self.assertEqual(2, len({row["parent"] for row in said["rows"]}), "one worker did it all")
        self.assertTrue(said["told"], "no progress was told")
        count, _, total = wanted
        more = driver().do("more", path=str(store), marks=str(self.marks))
        self.assertEqual([count, total], more)
        found = driver().do("stream", path=str(store), place=str(self.place), limit="6m")
        self.assertTrue(found["ended"])
        self.assertEqual(wanted, found["rows"])
        self.assertEqual(-(-end // (6 << 20)), found["batches"])

    def test_executor_killed(self) -> None:
        """An executor that is killed in the middle of a job costs time, not rows."""
        store, _ = log()
        asked = driver().ask("job", path=str(store), marks=str(self.marks), pause=0.3)
        until(lambda: len(list(self.marks.iterdir())) > 3, "some batches", tell=driver().tail)
        pids = cluster().executors()
        self.assertEqual(2, len(pids))
        os.kill(pids[0], signal.SIGKILL)
        self.check(store, asked.wait(90)["rows"])

    def test_copy_is_another(self) -> None:
        """A task whose host has other records where the planner had these gives no rows."""
        store = self.place / "store"
        write(store, 8 << 20)
        driver().do("plan", path=str(store))
        write(self.place / "other", 8 << 20)
        shutil.rmtree(store / "commitlog")
        (self.place / "other" / "commitlog").rename(store / "commitlog")
        reason = driver().do("go", path=str(store), marks=str(self.marks))
        self.assertIn("NotThisLog", reason)
        self.assertEqual([], list(self.marks.iterdir()))

    def test_copy_is_behind(self) -> None:
        """A task whose host's copy is behind waits for it, for a while; then it fails."""
        store = self.place / "store"
        end = write(store, 8 << 20)
        driver().do("plan", path=str(store))
        publish(store, 1000)
        asked = driver().ask("go", path=str(store), marks=str(self.marks))
        with self.assertRaises(AssertionError):
            asked.wait(PATIENCE / 2)
        publish(store, end)
        self.assertEqual("", asked.wait(60), "the copy has come")
        self.assertTrue(list(self.marks.iterdir()))
        shutil.rmtree(self.marks)
        self.marks.mkdir()
        publish(store, 1000)
        reason = driver().do("go", path=str(store), marks=str(self.marks))
        self.assertIn("CopyBehind", reason)
        self.assertEqual([], list(self.marks.iterdir()))


class CommandTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="rmqha-cluster-test-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.command = Process("spark-cluster", self.place / "log")
        self.addCleanup(self.command.kill9)

    def start(self, *arguments: str) -> list[int]:
        """Start it, wait until it says how to use it, and return the processes' ids."""
        options = ["--folder", str(self.place / "cluster"), "--no-connect", *arguments]
        self.command.spawn([sys.executable, "-m", "lab.spark_cluster", *options])
        said = self.command.log
        until(lambda: "Ctrl-C stops all" in said(), "it is started", LONG, tell=said)
        return [int(pid) for pid in re.findall(r"(?m)^(?:master|worker-\d) +(\d+) ", said())]

    def check_ended(self, pids: list[int]) -> None:
        self.assertEqual(3, len(pids))
        for pid in pids:
            self.assertEqual([], in_session(pid))

    def test_interrupted(self) -> None:
        """It says where the master is; Ctrl-C ends it and all its processes."""
        pids = self.start()
        self.assertRegex(self.command.log(), r"--master spark://127\.0\.0\.1:\d+")
        self.command.signal(signal.SIGINT)
        self.assertEqual(0, self.command.wait(LONG), self.command.log())
        self.check_ended(pids)

    def test_one_ends(self) -> None:
        """A process that ends by itself is told of, and ends the others."""
        pids = self.start("--workers", "2")
        os.kill(pids[1], signal.SIGKILL)
        self.assertEqual(1, self.command.wait(LONG), self.command.log())
        self.assertIn("worker-1 ended by itself with -9", self.command.log())
        self.check_ended(pids)
