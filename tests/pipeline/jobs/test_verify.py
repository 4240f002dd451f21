"""Tests for L{rmqha.pipeline.jobs.verify.verify}: copies of a log are held against each other."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.pipeline.errors import DigestsInvalid, NothingInCommon, OptionInvalid
from rmqha.pipeline.log.errors import DataLost, LogCutBack
from rmqha.wire.log.published import Cut
from tests.cli.command import CommandTestCase
from tests.support.rows import expected, publish
from tests.support.spark_needs import need_java

try:
    from rmqha.pipeline.jobs.verify import digests, verify
    from rmqha.pipeline.jobs.verify.chunks import Absent, DigestKind
    from rmqha.pipeline.jobs.verify.digests import Digests, against, digest
    from rmqha.pipeline.jobs.verify.findings import ComparisonReport, ComparisonResult
    from tests.support import jobs
    from tests.support.spark import session
except ImportError as missing:  # without the extras
    skip = f"an extra is not installed: {missing}"

VERSION = "5.3.3"
CHUNK = 100_000
"""Not a part of a file's size, and far smaller than the log."""

NO_SPARK: Any = None


class CopiesTestCase(SynchronousTestCase):
    """Two copies of one log, compared without Spark."""

    def setUp(self) -> None:
        self.patch(verify, "spread", jobs.spread)
        self.patch(digests, "spread", jobs.spread)
        self.master, self.slave = golden.store(VERSION), golden.store(VERSION)
        self.records = expected(VERSION, "store")
        self.end = self.records[-1]["physicalOffset"] + self.records[-1]["size"]

    def verify(self, **more: Any) -> ComparisonReport:
        stores = {"master": self.master, "slave": self.slave}
        return verify.verify(NO_SPARK, stores, **{"chunk": CHUNK, **more})

    def change(self, offset: int, data: bytes, store: Path | None = None) -> None:
        """Write into a log at a physical offset."""
        file = jobs.log_files(store or self.slave)[offset // golden.LOG_FILE_SIZE]
        jobs.change(file, offset % golden.LOG_FILE_SIZE, data)

    def byte(self, offset: int) -> int:
        file = jobs.log_files(self.master)[offset // golden.LOG_FILE_SIZE]
        return file.read_bytes()[offset % golden.LOG_FILE_SIZE]

    def flip(self, offset: int) -> None:
        """Turn one bit of the slave's."""
        self.change(offset, bytes([self.byte(offset) ^ 0x20]))

    def record_at(self, row: int) -> tuple[int, int]:
        record = self.records[row]
        return record["physicalOffset"], record["size"]


class VerifyTests(CopiesTestCase):
    """Faults are found where they are, and nothing else is."""

    def test_equal(self) -> None:
        """Stores of every kind equal themselves, torn tails too."""
        for version, name in golden.ARCHIVES:
            self.master, self.slave = (golden.store(version, name) for _ in range(2))
            report = self.verify()
            self.assertEqual(ComparisonResult.EQUAL, report.verdict, (version, name))
            self.assertEqual(((), (), {}), (report.differences, report.skipped, report.behind))
            self.assertLess(report.low, report.high)

    def test_flipped_bit(self) -> None:
        """One bit is found, where it is."""
        offset, _ = self.record_at(700)
        self.flip(offset + 95)
        (found,) = self.verify().differences
        self.assertEqual((offset + 95, offset + 96, 1), (found.start, found.end, found.count))

    def test_zeroed_page(self) -> None:
        """A page of zeros is found, over the ends of chunks."""
        start = 1_351_680
        self.change(start, bytes(4096))
        report = self.verify(chunk=50_000)
        self.assertEqual(start, report.differences[0].start)
        self.assertLessEqual(report.differences[-1].end, start + 4096)

    def test_short_tail(self) -> None:
        """What is published and not there is a difference, whether its file is cut or zero."""
        last = self.record_at(-3)[0]
        for cut in (False, True):
            publish(self.master, self.end)
            publish(self.slave, self.end)
            file = jobs.log_files(self.slave)[last // golden.LOG_FILE_SIZE]
            inside = last % golden.LOG_FILE_SIZE
            if cut:
                os.truncate(file, inside)
            else:
                jobs.change(file, inside, bytes(golden.LOG_FILE_SIZE - inside))
            report = self.verify()
            self.assertEqual(ComparisonResult.DIFFERENT, report.verdict)
            self.assertEqual(Absent.SHORT if cut else None, report.differences[0].absent)

    def test_behind(self) -> None:
        """A copy that ends before another is compared up to there, and what it lacks is told."""
        last = self.record_at(-3)[0]
        self.change(last, bytes(self.end - last))
        report = self.verify()
        self.assertEqual((ComparisonResult.EQUAL, ["slave"]), (report.verdict, list(report.behind)))
        publish(self.slave, last)
        self.assertEqual({"slave": self.end - last}, self.verify().behind)

    def test_damage_at_the_end(self) -> None:
        """Without a published point damage near the end is no end."""
        offset, _ = self.record_at(-20)
        self.change(offset, b"\xff" * 30)
        report = self.verify()
        self.assertEqual(ComparisonResult.DIFFERENT, report.verdict)
        self.assertEqual(offset, report.differences[0].start)
        self.assertLess(report.copies[1].whole, report.copies[1].end)

    def test_above_the_first_bytes(self) -> None:
        """What retention took from one copy is not compared."""
        for file in jobs.log_files(self.slave)[:3]:
            file.unlink()
        self.change(100, b"other", self.master)
        report = self.verify()
        self.assertEqual(3 * golden.LOG_FILE_SIZE, report.low)
        self.assertEqual(ComparisonResult.EQUAL, report.verdict)

    def test_hole(self) -> None:
        """A file that is missing between others is a difference."""
        jobs.log_files(self.slave)[4].unlink()
        report = self.verify()
        self.assertEqual(ComparisonResult.DIFFERENT, report.verdict)
        self.assertEqual({Absent.MISSING}, {each.absent for each in report.differences})

    def test_nothing_in_common(self) -> None:
        """Copies without a common byte are never equal; two empty logs are."""
        for file in jobs.log_files(self.master)[2:]:
            file.unlink()
        for file in jobs.log_files(self.slave)[:3]:
            file.unlink()
        self.assertRaises(NothingInCommon, self.verify)
        for store in (self.master, self.slave):
            for file in jobs.log_files(store):
                file.unlink()
        self.assertEqual(ComparisonResult.EQUAL, self.verify().verdict)

    def test_one_copy(self) -> None:
        """A copy is not compared with itself, by whatever name."""
        self.slave = self.master.parent / "link"
        self.slave.symlink_to(self.master)
        self.assertRaises(OptionInvalid, self.verify)
        self.assertRaises(OptionInvalid, verify.verify, NO_SPARK, {"a": self.master})

    def test_three_copies(self) -> None:
        """Each copy is held against the first."""
        third = golden.store(VERSION)
        self.flip(self.record_at(10)[0] + 95)
        self.change(self.record_at(20)[0] + 95, b"\0\1\2", third)
        stores = {"a": self.master, "b": self.slave, "c": third}
        report = verify.verify(NO_SPARK, stores, chunk=CHUNK)
        self.assertEqual(["b", "c"], [each.store for each in report.differences])

    def test_random_bytes(self) -> None:
        """Whatever is written where, just that is told, with any size of chunks."""
        rolled = random.Random(7)
        for _ in range(8):
            self.slave = golden.store(VERSION)
            start = rolled.randrange(self.end - 2000)
            start -= max(0, start % golden.LOG_FILE_SIZE + 2000 - golden.LOG_FILE_SIZE)
            data = rolled.randbytes(rolled.randrange(1, 2000))
            self.change(start, data)
            wanted = [start + i for i, byte in enumerate(data) if self.byte(start + i) != byte]
            found = self.verify(chunk=rolled.randrange(1000, 3_000_000)).differences
            self.assertEqual((wanted[0], wanted[-1] + 1), (found[0].start, found[-1].end))
            self.assertEqual(len(wanted), sum(each.count for each in found))

    def test_other_log(self) -> None:
        """A log of another broker differs from the start."""
        self.slave = golden.store("4.9.7")
        report = self.verify()
        self.assertEqual(ComparisonResult.DIFFERENT, report.verdict)
        self.assertLess(report.differences[0].start, 1000)


class MovingTests(CopiesTestCase):
    """Stores that change while they are compared."""

    def meanwhile(self, happens: Callable[[], None]) -> None:
        """Let something happen between the plan and the tasks."""

        def spread(*args: Any, **more: Any) -> Any:
            happens()
            return jobs.spread(*args, **more)

        self.patch(verify, "spread", spread)
        self.patch(digests, "spread", spread)

    def test_deleted(self) -> None:
        """What retention takes meanwhile is named, and not said to be equal."""
        first = jobs.log_files(self.slave)[0]
        self.meanwhile(lambda: first.unlink(missing_ok=True))
        self.flip(self.record_at(900)[0] + 95)
        report = self.verify()
        self.assertEqual(0, report.skipped[0].start)
        self.assertLessEqual(golden.LOG_FILE_SIZE, report.skipped[-1].end)
        self.assertEqual({"slave"}, {each.store for each in report.skipped})
        self.assertEqual(1, len(report.differences))

    def test_cut(self) -> None:
        """A log that is cut below what is compared is an error, before and after the tasks."""
        for happened in (self.verify, self.digest):
            publish(self.master, self.end)
            publish(self.slave, self.end)
            cut = Cut(self.record_at(500)[0], 5)
            self.meanwhile(lambda cut=cut: publish(self.slave, self.end, cuts=(cut,)))
            error = self.assertRaises(LogCutBack, happened)
            self.assertEqual(("slave", cut.at), (error.store, error.at))

    def digest(self) -> Digests:
        return digest(NO_SPARK, {"slave": self.slave}, chunk=CHUNK)


class DigestTests(CopiesTestCase):
    """Copies that no machine sees together."""

    def test_equal(self) -> None:
        """A file made at one place says at the other that the copies are equal."""
        for kind in DigestKind:
            made = digest(NO_SPARK, {"master": self.master}, chunk=CHUNK, sum=kind)
            again = Digests.from_json(made.to_json())
            self.assertEqual(made, again)
            report = against(NO_SPARK, {"slave": self.slave}, again)
            self.assertEqual((ComparisonResult.EQUAL, ()), (report.verdict, report.skipped))
            self.assertEqual(len(made.digests), report.chunks)

    def test_other_bytes(self) -> None:
        """The chunk with other bytes is found."""
        offset = self.record_at(900)[0] + 95
        self.flip(offset)
        made = digest(NO_SPARK, {"master": self.master}, chunk=CHUNK)
        (found,) = against(NO_SPARK, {"slave": self.slave}, made).differences
        self.assertEqual(offset // CHUNK * CHUNK, found.start)

    def test_part_of_a_chunk(self) -> None:
        """What the shorter copy has beyond its last whole chunk is said not to be compared."""
        publish(self.slave, self.record_at(500)[0])
        made = digest(NO_SPARK, {"master": self.master}, chunk=CHUNK)
        report = against(NO_SPARK, {"slave": self.slave}, made)
        (skipped,) = report.skipped
        self.assertEqual((self.record_at(500)[0], report.high), (skipped.end, skipped.start))
        ours = digest(NO_SPARK, {"slave": self.slave}, chunk=CHUNK)
        self.assertEqual((), against(NO_SPARK, {"master": self.master}, ours).skipped)
        publish(self.slave, self.record_at(2)[0])
        self.assertRaises(NothingInCommon, against, NO_SPARK, {"slave": self.slave}, made)

    def test_not_a_file_of_digests(self) -> None:
        """What is cut short, changed or something else is refused."""
        text = digest(NO_SPARK, {"master": self.master}, chunk=CHUNK).to_json()
        table = json.loads(text)
        del table["digests"][3]
        wrong = [text[:200], "", "[]", "{}", json.dumps(table), text.replace(':1,"', ':9,"', 1)]
        for each in wrong:
            self.assertRaises(DigestsInvalid, Digests.from_json, each)
        self.assertRaises(
            DigestsInvalid, against, NO_SPARK, {"master": self.slave}, Digests.from_json(text)
        )

    def test_hole(self) -> None:
        """A copy that lacks a file has no digests."""
        jobs.log_files(self.slave)[4].unlink()
        self.assertRaises(DataLost, digest, NO_SPARK, self.slave, chunk=CHUNK)


class CommandTests(CommandTestCase):
    def setUp(self) -> None:
        need_java()
        session()
        self.master, self.slave = golden.store(VERSION), golden.store(VERSION)
        self.place = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place)

    def test_command(self) -> None:
        """Copies are compared in tasks; the exit code tells how it went."""
        copies = [f"master={self.master}", f"slave={self.slave}", "--chunk", "100k"]
        said = self.succeed("spark", "verify", *copies)
        self.assertTrue(said.startswith("equal: "), said)
        file = jobs.log_files(self.slave)[2]
        jobs.change(file, 100_000, bytes([file.read_bytes()[100_000] ^ 1]))
        result = self.run_command("spark", "verify", *copies)
        self.assertEqual(1, result.exit_code, result.output)
        self.assertIn(f"rmqha verify {self.slave} --against {self.master}", result.stderr)
        result = self.run_command("spark", "verify", *copies, "--json")
        self.assertEqual(1, result.exit_code, result.output)
        answer = json.loads(result.stdout)
        self.assertEqual("different", answer["verdict"])
        offset = 2 * golden.LOG_FILE_SIZE + 100_000
        self.assertEqual([offset], [each["start"] for each in answer["differences"]])

    def test_elsewhere(self) -> None:
        """Digests of one copy are compared where the other one is."""
        file = self.place / "digests.json"
        self.succeed("spark", "verify", f"master={self.master}", "--digests", file)
        said = self.succeed("spark", "verify", f"slave={self.slave}", "--against", file)
        self.assertTrue(said.startswith("equal: "), said)

    def test_usage(self) -> None:
        """What makes no sense is said before Spark is started."""
        for alone in (self.master, f"a={self.master}"):
            self.assertIn("two copies", self.fails(2, "spark", "verify", alone))
        both = f"a={self.master}", f"b={self.slave}"
        self.assertIn("one STORE", self.fails(2, "spark", "verify", *both, "--digests", "x"))
        said = self.fails(1, "spark", "verify", both[0], f"b={self.place}")
        self.assertIn("has no folder commitlog", said)
