"""
Tests for L{rmqha.pipeline.jobs.rebuild.rebuild}: consume queues from a log, as dispatch makes them.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from isal.isal_zlib import crc32

from lab.harness import golden
from lab.harness.compare_stores import queue_files
from rmqha.errors import Refused
from rmqha.pipeline.log.errors import LogCutBack
from rmqha.wire.log.published import Cut
from tests.cli.command import CommandTestCase
from tests.support.derived import DerivedTestCase
from tests.support.memorylog import MemoryLog
from tests.support.rows import publish
from tests.support.spark_needs import need_java

try:
    from rmqha.pipeline.jobs.rebuild import rebuild
    from rmqha.pipeline.jobs.rebuild.queue_runs import AGAIN, GAP, NO_QUEUE
    from rmqha.pipeline.jobs.rebuild.rebuild import RebuiltQueues
    from rmqha.pipeline.scan import snapshot
    from tests.support import jobs
    from tests.support.spark import session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"

NO_SPARK: Any = None

CLEAN = ("store", "ipv6")
"""Stores whose broker was stopped, and so has written all its units."""


class RebuildTestCase(DerivedTestCase):
    """
    Queues made without Spark.
    """

    def setUp(self) -> None:
        self.patch(rebuild, "ranges_of", jobs.ranges_of)
        self.patch(rebuild, "run", jobs.run)

    def made(self, store: Path, out: Path | None = None, **more: Any) -> tuple[RebuiltQueues, Path]:
        """
        Make the queues of a store.

        @return: What was made, and where.
        """
        out = out or self.folder()
        more = {"file_size": golden.QUEUE_FILE_SIZE, **more}
        return rebuild.rebuild(NO_SPARK, store, out, **more), out

    def assert_as_dispatch(self, log: MemoryLog, out: Path) -> None:
        """
        Queue files are, byte for byte, what a node's own rebuild makes of the log.
        """
        ours, theirs = queue_files(out), queue_files(self.rebuilt(log))
        self.assertEqual(list(theirs), list(ours))
        for name, wanted in theirs.items():
            if ours[name] != wanted:
                pairs = zip(wanted, ours[name], strict=True)
                at = next(i for i, (a, b) in enumerate(pairs) if a != b)
                self.fail(f"{name} differs at byte {at}, unit {at // 20}")


class GoldenTests(RebuildTestCase):
    """
    Stores of stock brokers.
    """

    def test_queue_files_are_the_brokers(self) -> None:
        """
        After a clean stop they are the broker's own; one that was killed lacks units at the
        end, nothing else.  A node's own rebuild makes the same ones.
        """
        for version, name in golden.ARCHIVES:
            store = golden.store(version, name)
            made, out = self.made(store)
            ours, theirs = queue_files(out), queue_files(store)
            if name in CLEAN:
                self.assertEqual(list(theirs), list(ours))
            for path in ours.keys() & theirs.keys():
                filled = theirs[path] if name in CLEAN else theirs[path].rstrip(b"\0")
                self.assertEqual(ours[path][: len(filled)] == filled, True, (name, path))
            end = snapshot(store)["store"]
            log = MemoryLog.of_store(store, end, golden.LOG_FILE_SIZE)
            self.assert_as_dispatch(log, out)
            self.assertEqual((), made.problems)
            self.assertEqual(len(ours), made.files)

    def test_units_of_the_truth(self) -> None:
        """
        The counts are those that RocketMQ's own classes know.
        """
        made, _ = self.made(golden.store("5.3.3"))
        queues = [each for each in golden.jsonl("5.3.3", "expected-cq.jsonl") if each["units"]]
        self.assertEqual(len(queues), made.queues)
        self.assertEqual(sum(len(each["units"]) for each in queues), made.units)
        lines = [each for each in golden.jsonl("5.3.3", "expected.jsonl") if "topic" in each]
        self.assertEqual(len(lines), made.records)

    def test_sizes(self) -> None:
        """
        Files have the size that is asked for, and the same units.
        """
        store = golden.store("5.3.3")
        small, _ = self.made(store)
        made, out = self.made(store, file_size=6_000_000)
        self.assertEqual({6_000_000}, {path.stat().st_size for path in out.rglob("0*0")})
        self.assertEqual((small.units, small.queues), (made.units, made.queues))
        self.assertRaises(Refused, self.made, store, file_size=6001)


class OddLogTests(RebuildTestCase):
    """
    Logs that no broker of good health writes.
    """

    def log(self) -> MemoryLog:
        """
        A log of small files, so that it is many ranges.
        """
        return MemoryLog(golden.LOG_FILE_SIZE)

    def of(self, log: MemoryLog) -> tuple[RebuiltQueues, Path]:
        """
        The queues of a log, which are as dispatch makes them.
        """
        made, out = self.made(jobs.stored(log, self.folder() / "store"))
        self.assert_as_dispatch(log, out)
        return made, out

    def pad(self, log: MemoryLog) -> None:
        """
        Fill up the log's file.
        """
        log.put("Pad", body=bytes(200_000))

    def test_begin_and_gap(self) -> None:
        """
        Blanks stand before the first unit and where offsets are missing, and only the latter
        is a problem.
        """
        log = self.log()
        for offset in (310, 311, 340, 341):
            log.put("A", 1, offset)
            self.pad(log)
        made, _ = self.of(log)
        (problem,) = made.problems
        self.assertEqual((312, 340, GAP), (problem.first, problem.end, problem.reason))
        self.assertEqual((10 + 28, 4), (made.blanks, made.units - 4))

    def test_again(self) -> None:
        """
        A queue that begins anew has its later records only, whatever ranges they are in.
        """
        log = self.log()
        for offset in (*range(40), *range(5), 5, 3, 4):
            log.put("A", 0, offset)
            log.put("B", 0)
            if offset % 7 == 0:
                self.pad(log)
        made, _ = self.of(log)
        self.assertEqual({AGAIN}, {each.reason for each in made.problems})
        self.assertEqual([(0, 40), (3, 6)], [(each.first, each.end) for each in made.problems])

    def test_no_queue(self) -> None:
        """
        What no queue can hold is left out: no unit lies anywhere else on the disk.
        """
        log = self.log()
        log.put("A", 0, 0)
        self.pad(log)
        log.put("A", 0, 1 << 50)
        log.put("A", 0, 1 << 62)
        log.put("A", 0, -5)
        log.put("..", 0, 0)
        log.put("up/../../../down", 0, 0)
        log.put("A", -1, 0)
        self.pad(log)
        log.put("A", 0, 1)
        made, out = self.of(log)
        self.assertEqual([NO_QUEUE] * 6, [each.reason for each in made.problems])
        found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_dir()}
        wanted = {"consumequeue", *(f"consumequeue/{topic}" for topic in ("A", "A/0"))}
        self.assertEqual(wanted | {"consumequeue/Pad", "consumequeue/Pad/0"}, found)

    def test_kinds(self) -> None:
        """
        Halves and rollbacks have no unit; a delayed message's is its time, tags are hashed.
        """
        log = self.log()
        for flag in (0, 4, 8, 12):
            log.put("A", 0, sys_flag=flag, properties={"TAGS": "x", "KEYS": "k"})
        log.put("SCHEDULE_TOPIC_XXXX", 2, properties={"DELAY": "3", "TAGS": "x"})
        log.put("A", 0, properties={"TAGS": "ü"})
        made, _ = self.of(log)
        self.assertEqual((6, 4, 2), (made.records, made.units, made.queues))

    def test_random(self) -> None:
        """
        However queue offsets leap, the files are those of dispatch.
        """
        rolled = random.Random(11)
        for _ in range(12):
            log = self.log()
            for _ in range(rolled.randrange(20, 150)):
                topic, queue = rolled.choice("AB"), rolled.randrange(2)
                known = log.next_offsets.get((topic, queue), rolled.choice((0, 0, 299, 700)))
                leap = rolled.choice((0,) * 12 + (1, -1, -30, 290, 310, 5000))
                log.put(topic, queue, max(-2, known + leap))
                if rolled.random() < 0.1:
                    self.pad(log)
            self.of(log)

    def test_deleted_topic(self) -> None:
        """
        Records of a topic that was deleted have no units, as on the node that deleted it.
        """
        log = self.log()
        for topic in "ABABAB":
            log.put(topic, 0, body=bytes(100))
        end = log.end
        log.put("A", 0, 0)
        store = jobs.stored(log, self.folder() / "store")
        table = {"offset": end, "crc": crc32(bytes(log.data)), "topics": {"A": end}}
        (store / "rmqha").mkdir()
        file = store / "rmqha" / "deleted.json"
        for crc, units in ((crc32(bytes(log.data[:end])), 1), (5, 1)):
            file.write_text(json.dumps({**table, "crc": crc}))
            made, out = self.made(store)
            self.assertEqual(units + 3, made.units)
            self.assertEqual(0 if crc != 5 else 1, len(made.problems))
            self.assertEqual(["A/0/" + "0" * 20, "B/0/" + "0" * 20], list(queue_files(out)))


class PlaceTests(RebuildTestCase):
    """
    Where queues are made.
    """

    def test_refused(self) -> None:
        """
        Nothing is made in a store, by whatever name, or where queues are already.
        """
        store = golden.store("5.3.3")
        link = self.folder() / "link"
        link.symlink_to(store)
        for out in (store, store / "new", store / "commitlog", link, link / "a" / "b"):
            self.assertRaises(Refused, self.made, store, out)
        other = golden.store("4.9.7")
        self.assertRaises(Refused, self.made, store, other / "config")
        _, out = self.made(store)
        before = queue_files(out)
        self.assertRaises(Refused, self.made, store, out)
        self.assertEqual(before, queue_files(out))

    def test_nothing_half(self) -> None:
        """
        A log that is cut meanwhile leaves nothing behind.
        """
        store = golden.store("5.3.3")
        end = snapshot(store)["store"]
        publish(store, end)

        def run(*args: Any) -> Any:
            publish(store, end, cuts=(Cut(1000, 5),))
            return jobs.run(*args)

        self.patch(rebuild, "run", run)
        out = self.folder()
        self.assertRaises(LogCutBack, self.made, store, out)
        self.assertEqual([], list(out.iterdir()))

    def test_twice(self) -> None:
        """
        Work that is done twice, as Spark may do, changes nothing.
        """

        def run(ranges: Any, work: Any, *more: Any) -> Any:
            jobs.run(ranges, work, *more)
            return jobs.run(ranges, work, *more)

        self.patch(rebuild, "run", run)
        store = golden.store("5.3.3")
        _, out = self.made(store)
        self.assertEqual(queue_files(store), queue_files(out))


class CommandTests(CommandTestCase):
    """
    The command, on Spark.
    """

    def test_command(self) -> None:
        """
        Tasks make the queues of a store, with the size of its own.
        """
        need_java()
        session()
        store = golden.store("5.3.3")
        out = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, out)
        said = self.succeed("spark", "rebuild", store, "--out", out)
        self.assertIn("files of 6000 bytes", said)
        self.assertEqual(queue_files(store), queue_files(out))
        self.assertIn("exists already", self.fails(1, "spark", "rebuild", store, "--out", out))
