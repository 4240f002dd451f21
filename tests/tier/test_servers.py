"""Tiers in an S3 server and in HDFS: what faults of the way there, and of what is there, do.

What a server does not care about, which files are uploaded and how they are joined, is tested
with a folder (L{tests.tier.test_upload}, L{tests.pipeline.log.test_tier}).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.harness import golden
from rmqha.tier.errors import TierBytesChanged, TierObjectSize, TierUnreachable
from rmqha.tier.objects import ObjectFolder
from rmqha.tier.upload import Uploader
from tests.cli.command import CommandTestCase
from tests.support.effort import slow, tries
from tests.support.object_servers import HdfsCase, S3Case
from tests.support.rows import expected
from tests.support.tiers import END, FULL, SIZE

try:
    from rmqha.pipeline.scan import scan
    from tests.support import lake
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"

COMMAND = "from rmqha.cli.main import main; main()"

READ = """
import sys
from pathlib import Path
from tests.support import lake
lake.append(lake.Target.at(sys.argv[1]), Path(sys.argv[2]), tier=sys.argv[3])
"""


class Ways:
    """Upload, join, restore; and what goes wrong, also with a server that does not answer."""

    away: str

    def setUp(self) -> None:
        super().setUp()
        every = expected(golden.VERSIONS[0], "store")
        self.all = [record["physicalOffset"] for record in every]

    def offsets(self, **options: Any) -> list[int]:
        """Physical offsets of all rows of the store and its tier."""
        self.forget()
        given = {"visibility": "log", "columns": "physical_offset", "tier": self.url, **options}
        found: list[int] = scan(self.store, **given).read_all().column(0).to_pylist()
        return found

    def same(self) -> None:
        """Every full file is there, byte for byte."""
        for number in range(FULL):
            self.assertEqual(self.kept[number], self.object(number).read_bytes())
            self.assertTrue(self.manifest(number).exists())

    @property
    def kept(self) -> list[bytes]:
        return [self.file(number).read_bytes() for number in range(FULL)]

    def test_upload_and_join(self) -> None:
        """What was uploaded is the log, and with the store's tail all of it."""
        done = self.upload()
        self.assertEqual((FULL, FULL * SIZE), (done.files, done.end))
        self.same()
        self.assertEqual(0, self.upload().files)
        self.retention(FULL)
        self.assertEqual(self.all, self.offsets())

    def test_replaced_and_cut(self) -> None:
        """An object that was replaced, cut or removed behind our back is named damage."""
        self.upload()
        self.retention(FULL)
        whole = self.object(4).read_bytes()
        self.object(4).write_bytes(self.object(5).read_bytes())
        error = self.assertRaises(TierBytesChanged, self.offsets)
        self.assertEqual(4 * SIZE, error.start)
        self.object(4).write_bytes(whole[:-1])
        size = self.assertRaises(TierObjectSize, self.offsets)
        self.assertEqual((SIZE - 1, SIZE), (size.size, size.expected))
        self.object(4).unlink()
        size = self.assertRaises(TierObjectSize, self.offsets)
        self.assertEqual(-1, size.size)
        self.object(4).write_bytes(whole)
        self.assertEqual(self.all, self.offsets())

    def test_cut_upload(self) -> None:
        """An object that is half there without a manifest is sent again."""
        self.upload()
        for number in range(2):
            self.manifest(number).unlink()
        self.object(0).write_bytes(self.kept[0][: SIZE // 2])
        self.object(1).write_bytes(b"x" * SIZE)
        self.upload()
        self.same()

    def test_restore(self) -> None:
        """From it and a store with the tail alone, a store is made with all records."""
        self.upload()
        self.retention(FULL)
        made = self.folder() / "made"
        done = self.answer("restore", self.store, made, "--tier", self.url)
        self.assertEqual(len(self.all), done["records"])
        rows = scan(made, visibility="log", columns="physical_offset").read_all()
        self.assertEqual(self.all, rows.column(0).to_pylist())

    def test_not_allowed(self) -> None:
        """A server that bars us is told, in both ways; once it does not all goes on."""
        self.upload()
        kept = self.kept
        self.retention(FULL)
        self.as_somebody_else()
        self.assertRaises(TierUnreachable, self.offsets)
        error = self.assertRaises(TierUnreachable, self.upload)
        self.assertIn(self.url.partition("?")[0], str(error))
        self.assertNotIn("endpoint_override", str(error).partition(" cannot")[0])
        self.assertTrue(str(error).isprintable(), str(error))
        self.as_before()
        self.assertEqual(self.all, self.offsets())
        self.assertEqual(kept[0], self.object(0).read_bytes())

    def test_server_away(self) -> None:
        """A server that does not answer is told too."""
        uploader = Uploader(root=self.store, folder=ObjectFolder.at(self.away))
        error = self.assertRaises(TierUnreachable, uploader.run)
        self.assertTrue(str(error).isprintable(), str(error))

    def command(self, *args: str | Path) -> subprocess.Popen[bytes]:
        """Start Python in a process of its own."""
        return subprocess.Popen(
            [sys.executable, *map(str, args)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def killed(self, *args: str | Path) -> int:
        """Run it again and again, killed at any moment; how often, before it ended."""
        seed = random.SystemRandom().getrandbits(32)
        moments, kills = random.Random(seed), 0
        for _ in range(tries(6)):
            process = self.command(*args)
            try:
                process.wait(moments.uniform(0.5, 4.0))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            process.wait()
        process = self.command(*args)
        self.assertEqual(0, process.wait(120), f"seed {seed}")
        return kills

    def test_uploader_killed(self) -> None:
        """After kill -9 of the uploader at any moment the next run makes the tier whole."""
        rate = str(SIZE)  # ten seconds in all
        self.killed("-c", COMMAND, "tier", self.store, self.url, "--max-rate", rate)
        self.same()
        self.retention(FULL)
        self.assertEqual(self.all, self.offsets())

    def test_reader_killed(self) -> None:
        """After kill -9 of a job that reads the tier into a table, each row is there once."""
        self.upload()
        self.retention(FULL)
        table = self.folder() / "table"
        self.killed("-c", READ, table, self.store, self.url)
        self.assertEqual(self.all, lake.offsets(lake.Target.at(table)))
        self.assertGreater(END, self.all[-1])


@slow
class S3Tests(Ways, S3Case, CommandTestCase):
    away = "s3://archive/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"

    def test_server_log_holds_no_objects(self) -> None:
        """What passes through the server of our tests and benches is not written to its log as
        well: that cost it most of its time, and a bench of 10 GB all memory.
        """
        before = (self.server.own / "log").stat().st_size
        self.upload()
        self.assertLess((self.server.own / "log").stat().st_size - before, SIZE)


@slow
class HdfsTests(Ways, HdfsCase, CommandTestCase):
    away = "hdfs://127.0.0.1:9/x"
