"""Tests for L{rmqha.tier.upload}: a store's full files go into a tier."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from lab.harness import golden
from rmqha.errors import Refused
from rmqha.priority import Priority
from rmqha.tier import identity as tier_identity
from rmqha.tier import upload as tier_upload
from rmqha.tier.errors import (
    LogCutMeanwhile,
    LogFileShort,
    TierBytesChanged,
    TierObjectSize,
    TierOfAnotherLog,
    TierPlaceInvalid,
)
from rmqha.tier.manifest import manifest_name
from rmqha.tier.objects import ObjectFolder
from rmqha.tier.upload import Uploader
from rmqha.wire.log.published import Span, render_spans
from rmqha.wire.store_layout import OWN_FOLDER, POINT, SPLITS
from tests.cli.command import CommandTestCase
from tests.support.rows import publish
from tests.support.tiers import END, FULL, SIZE, TierCase

try:
    from pyarrow import fs
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class UploadTests(TierCase):
    def test_full_files(self) -> None:
        """Every file below the point is there, the same bytes; the active one is not."""
        done = self.upload()
        self.assertEqual((FULL, FULL * SIZE, 0), (done.files, done.bytes, done.held))
        self.assertEqual((0, FULL * SIZE, ()), (done.start, done.end, done.missing))
        for number in range(FULL):
            self.assertEqual(self.file(number).read_bytes(), self.object(number).read_bytes())
        self.assertFalse(self.object(FULL).exists())
        self.assertFalse(self.manifest(FULL).exists())

    def test_manifest(self) -> None:
        """A manifest has the range, the broker's name, the checksums and the split index."""
        spans = [Span(0, 700, 0, 2, 5, 9), Span(700, SIZE, 2, 2, 5, 8)]
        (self.store / OWN_FOLDER / SPLITS).write_bytes(render_spans(spans))
        self.upload()
        found = json.loads(self.manifest(0).read_bytes())
        self.assertEqual(
            (0, SIZE, "golden"),
            tuple(found[name] for name in ("firstOffset", "lastOffset", "brokerName")),
        )
        self.assertEqual(SIZE // self.BLOCK * 8, len(found["crc32"]))
        self.assertEqual([[0, 700, 9], [700, SIZE, 8]], found["splits"])

    def test_below_the_point_only(self) -> None:
        """A file that is full and not final yet is not uploaded."""
        publish(self.store, 3 * SIZE - 1)
        self.assertEqual(2 * SIZE, self.upload().end)

    def test_without_a_point(self) -> None:
        """Of a Java broker's store all files go there that another one with records follows."""
        (self.store / OWN_FOLDER / POINT).unlink()
        self.file(FULL + 1).write_bytes(bytes(SIZE))  # allocated ahead
        self.assertEqual(FULL * SIZE, self.upload().end)

    def test_again(self) -> None:
        """A second run writes nothing."""
        self.upload()
        before = {path: path.stat().st_mtime_ns for path in self.place.rglob("*")}
        done = self.upload()
        self.assertEqual((0, 0, FULL), (done.files, done.bytes, done.held))
        self.assertEqual(before, {p: p.stat().st_mtime_ns for p in self.place.rglob("*")})

    def test_whose_log(self) -> None:
        """A tier says whose log it has, from where; a second store says nothing more."""
        self.upload()
        (said,) = (self.place / "logs").iterdir()
        said.with_name(f"{said.name}.tmp").write_bytes(b"{")  # killed while it was written
        found = json.loads(said.read_bytes())
        self.assertEqual((0, "golden"), (found["firstOffset"], found["identity"]["broker"]))
        self.retention(2)
        self.upload()
        self.assertEqual([said], list((self.place / "logs").glob("*.json")))

    def test_manifests_are_a_chain(self) -> None:
        """Each manifest names the file before its own, by its checksum."""
        self.upload()
        every = [json.loads(self.manifest(number).read_bytes()) for number in range(FULL)]
        self.assertIsNone(every[0]["before"])
        for number in range(1, FULL):
            crc = crc32(bytes.fromhex(every[number - 1]["crc32"]))
            self.assertEqual([(number - 1) * SIZE, crc], every[number]["before"])

    def test_object_that_a_manifest_vouches_for(self) -> None:
        """A file that a replica uploaded is not sent again; no other log's takes its place."""
        uploading = Uploader._upload

        def both(uploader: Uploader, file: Any, *more: Any) -> None:
            if file.start == 0:  # the other one is faster, with all of them
                self.patch(Uploader, "_upload", uploading)
                self.upload()
                self.before = {path: path.stat().st_mtime_ns for path in self.place.rglob("*")}
            uploading(uploader, file, *more)

        self.patch(Uploader, "_upload", both)
        done = self.upload()
        self.assertEqual((1, FULL - 1), (done.files, done.held))
        for number in range(1, FULL):
            path = self.object(number)
            self.assertEqual(self.before[path], path.stat().st_mtime_ns)
        self.manifest(3).rename(self.place / manifest_name(3 * SIZE + 4096, 4 * SIZE))
        error = self.assertRaises(TierOfAnotherLog, self.upload)
        self.assertEqual(3 * SIZE, error.start)

    def test_missing(self) -> None:
        """What retention deleted before it was uploaded is told."""
        publish(self.store, 2 * SIZE)
        self.upload()
        self.retention(4)
        publish(self.store, END)
        done = self.upload()
        self.assertEqual(((2 * SIZE, 4 * SIZE),), done.missing)
        self.assertEqual(FULL * SIZE, done.end)

    def test_stale_point(self) -> None:
        """A store whose point is not of its log any more is refused."""
        publish(self.store, END, closed=True, tail=1)
        self.assertRaises(Refused, self.upload)

    def test_short_file(self) -> None:
        """A file that lacks its end is not uploaded, and is named with its numbers."""
        os.truncate(self.file(3), SIZE - 5000)
        error = self.assertRaises(LogFileShort, self.upload)
        self.assertEqual((SIZE - 5000, SIZE), (error.size, error.expected))
        self.assertFalse(self.manifest(3).exists())
        self.assertTrue(self.manifest(2).exists())

    def test_no_place(self) -> None:
        """What is no URL of a folder is refused, and a password in it is not shown."""
        for url in ("/tmp/tier", "nothing://x/y", "s3://", "s3://x/y#z", "file:///x/y#"):
            self.assertRaises(TierPlaceInvalid, ObjectFolder.at, url)
        error = self.assertRaises(
            TierPlaceInvalid, ObjectFolder.at, "s3://key:hidden@bucket/tier?nonsense=1"
        )
        self.assertNotIn("hidden", str(error).partition("cannot be")[0])

    def test_rate(self) -> None:
        """A limit is kept: it waits as long as the bytes so far may take."""
        waits: list[float] = []
        publish(self.store, SIZE)
        Uploader(
            root=self.store,
            folder=ObjectFolder.at(self.url),
            rate=1000,
            clock=lambda: 0.0,
            sleep=waits.append,
        ).run()
        self.assertAlmostEqual(SIZE / 1000, waits[-1])


class InterruptedTests(TierCase):
    """What an upload leaves that was interrupted, and what becomes of it."""

    def interrupted(self, at: str) -> list[str]:
        """Upload until an object's name ends so, which is not written: what was written."""
        real, names = ObjectFolder.write, []

        def write(folder: ObjectFolder, name: str, parts: Any) -> None:
            if name.endswith(at):
                raise KeyboardInterrupt
            names.append(name)
            real(folder, name, parts)

        self.patch(ObjectFolder, "write", write)
        self.assertRaises(KeyboardInterrupt, self.upload)
        self.patch(ObjectFolder, "write", real)
        return names

    def test_before_the_manifest(self) -> None:
        """A file without its manifest is not there; the next run writes that alone."""
        self.interrupted(self.manifest(4).name)
        self.assertTrue(self.object(4).exists())
        before = self.object(4).stat().st_mtime_ns
        self.assertEqual(FULL - 4, self.upload().files)
        self.assertTrue(self.manifest(4).exists())
        self.assertEqual(before, self.object(4).stat().st_mtime_ns)

    def test_other_bytes_before_the_manifest(self) -> None:
        """Bytes of another upload that was interrupted are replaced."""
        self.interrupted(self.manifest(0).name)
        self.object(0).write_bytes(b"x" * SIZE)
        self.upload()
        self.assertEqual(self.file(0).read_bytes(), self.object(0).read_bytes())

    def test_half_an_object(self) -> None:
        """So is half an object."""
        self.interrupted(self.manifest(0).name)
        os.truncate(self.object(0), SIZE // 2)
        self.upload()
        self.assertEqual(self.file(0).read_bytes(), self.object(0).read_bytes())

    def test_written_otherwise(self) -> None:
        """An object store that keeps other or fewer bytes is found out before the manifest."""
        real = ObjectFolder.write

        def spoil(change: Any) -> None:
            def write(folder: ObjectFolder, name: str, parts: Iterator[memoryview]) -> None:
                whole = list(map(bytes, parts))
                real(folder, name, change(whole) if name.startswith("commitlog/") else whole)

            self.patch(ObjectFolder, "write", write)

        spoil(lambda parts: [parts[0][:-1] + b"?", *(bytes(len(part)) for part in parts[1:])])
        error = self.assertRaises(TierBytesChanged, self.upload)
        self.assertEqual((3 * self.BLOCK, 4 * self.BLOCK), (error.start, error.end))
        spoil(lambda parts: parts[:-1])
        size = self.assertRaises(TierObjectSize, self.upload)
        self.assertEqual((SIZE - (64 << 10), SIZE), (size.size, size.expected))
        self.assertFalse(self.manifest(0).exists())

    def test_cut_meanwhile(self) -> None:
        """A file that the log was cut below while it was sent gets no manifest."""
        real = ObjectFolder.write

        def write(folder: ObjectFolder, name: str, parts: Any) -> None:
            real(folder, name, parts)
            publish(self.store, 1000)

        self.patch(ObjectFolder, "write", write)
        error = self.assertRaises(LogCutMeanwhile, self.upload)
        self.assertEqual((SIZE, 1000), (error.end, error.final))
        self.assertFalse(self.manifest(0).exists())

    def test_grown_again_meanwhile(self) -> None:
        """Nor does one that was cut and is full again."""
        real = ObjectFolder.write

        def write(folder: ObjectFolder, name: str, parts: Any) -> None:
            real(folder, name, parts)
            data = self.file(0).read_bytes()
            row = len(data.rstrip(b"\0")) - 100
            self.file(0).write_bytes(data[:row] + bytes(100) + data[row + 100 :])

        self.patch(ObjectFolder, "write", write)
        self.assertRaises(TierOfAnotherLog, self.upload)
        self.assertFalse(self.manifest(0).exists())


class OtherLogTests(TierCase):
    def test_other_bytes(self) -> None:
        """A store whose last common file is another is refused, before anything is written."""
        publish(self.store, 3 * SIZE)
        self.upload()
        data = self.file(2).read_bytes()
        row = len(data.rstrip(b"\0")) - 100
        self.file(2).write_bytes(data[:row] + b"changed!" + data[row + 8 :])
        publish(self.store, END)
        error = self.assertRaises(TierOfAnotherLog, self.upload)
        self.assertEqual(2 * SIZE, error.start)
        self.assertFalse(self.manifest(3).exists())

    def test_other_broker(self) -> None:
        """A store without a common file is known by its broker's name."""
        publish(self.store, SIZE)
        self.upload()
        self.retention(1)
        publish(self.store, END, broker_name="other")
        error = self.assertRaises(TierOfAnotherLog, self.upload)
        self.assertIn("the tier is of broker golden and the store of other", str(error))

    def test_two_brokers_at_once(self) -> None:
        """Of two brokers that begin a tier at the same moment not both succeed, and what one has
        begun the other does not touch; afterwards the prefix is one broker's.
        """
        other = golden.store(golden.VERSIONS[1], into=self.folder())
        publish(other, END, broker_name="other")
        identities = tier_identity.identities
        # Between our first look and what we say; and behind that.
        for module, first in ((tier_upload, "other"), (tier_identity, "golden")):
            shutil.rmtree(self.place, ignore_errors=True)
            refused: list[TierOfAnotherLog] = []

            def run(root: Path, refused: list[TierOfAnotherLog] = refused) -> None:
                try:
                    Uploader(root=root, folder=ObjectFolder.at(self.url)).run()
                except TierOfAnotherLog as error:
                    refused.append(error)

            def looking(folder: ObjectFolder, module: Any = module, run: Any = run) -> Any:
                found = identities(folder)
                self.patch(module, "identities", identities)
                run(other)
                return found

            self.patch(module, "identities", looking)
            run(self.store)
            self.assertEqual(1, len(refused))
            self.assertIn("other", str(refused[0]))
            self.assertEqual(1, len(list((self.place / "logs").iterdir())))
            brokers = {
                json.loads(path.read_bytes())["brokerName"]
                for path in (self.place / "manifests").iterdir()
            }
            self.assertEqual({first}, brokers)

    def test_other_first_record(self) -> None:
        """A log that was begun anew under the same name is told by its first record."""
        publish(self.store, SIZE - 1)
        self.upload()
        data = self.file(0).read_bytes()
        self.file(0).write_bytes(data[:60] + b"\xff" + data[61:])
        error = self.assertRaises(TierOfAnotherLog, self.upload)
        self.assertIn("record at byte 0 has fingerprint", str(error))

    def test_tier_of_before(self) -> None:
        """A tier that does not say whose log it has goes on, and says it from then on."""
        publish(self.store, 2 * SIZE)
        self.upload()
        shutil.rmtree(self.place / "logs")
        publish(self.store, END)
        self.assertEqual((FULL - 2, 2), (lambda done: (done.files, done.held))(self.upload()))
        self.assertEqual(1, len(list((self.place / "logs").iterdir())))


class CommandTests(TierCase, CommandTestCase):
    def test_line(self) -> None:
        """It says what it did, and what the tier has."""
        text = self.succeed("tier", self.store, self.url)
        self.assertIn(f"{FULL} files uploaded, {FULL * SIZE} bytes; 0 were there; ", text)
        self.assertIn(f"{self.url} has bytes 0 to {FULL * SIZE}", text)
        found = self.answer("tier", self.store, self.url)
        self.assertEqual((0, FULL), (found["files"], found["held"]))

    def test_priority(self) -> None:
        """It steps back for a broker on its host, unless it is told otherwise."""
        from rmqha.cli.archives import tier

        asked: list[Priority] = []
        self.patch(tier, "step_back", asked.append)
        self.succeed("tier", self.store, self.url)
        self.succeed("tier", self.store, self.url, "--priority", "normal")
        self.assertEqual([Priority.IDLE, Priority.NORMAL], asked)

    def test_error(self) -> None:
        """What is wrong is one line."""
        said = self.fails(1, "tier", self.store, "/tmp/nowhere")
        self.assertIn("rmqha: /tmp/nowhere cannot be a tier: ", said)
        self.fails(78, "tier", self.store, "/tmp/nowhere", "--follow")

    def test_follow_unreachable(self) -> None:
        """A store that does not answer where a bucket is may answer the next start."""

        class Away:
            """pyarrow without a network."""

            @staticmethod
            def from_uri(url: str) -> None:
                raise OSError(f"When resolving region for bucket: network down, {url}")

        self.patch(fs, "FileSystem", Away)
        said = self.fails(1, "tier", self.store, "s3://away/tier", "--follow")
        self.assertIn("network down", said)

    def test_follow_deleted(self) -> None:
        """A log file that its node deletes before its turn comes is no reason to end."""
        from rmqha.cli.archives import tier

        looks: list[float] = []

        def sleep(seconds: float) -> None:
            looks.append(seconds)
            if len(looks) > 1:
                raise KeyboardInterrupt

        def deleting(folder: ObjectFolder, name: str, parts: Any) -> None:
            write(folder, name, parts)
            self.file(1).unlink(missing_ok=True)
            self.file(0).unlink(missing_ok=True)

        write = ObjectFolder.write
        self.patch(tier, "sleep", sleep)
        self.patch(ObjectFolder, "write", deleting)
        result = self.run_command("tier", self.store, self.url, "--follow")
        self.assertNotEqual(78, result.exit_code, result.stderr)
        self.assertIn("trying again", result.stderr)
        self.assertTrue(self.manifest(2).exists())

    def test_follow(self) -> None:
        """With --follow it goes on as files become full, and tells only what it did."""
        publish(self.store, 2 * SIZE)
        from rmqha.cli.archives import tier

        looks = iter([5 * SIZE, 5 * SIZE, END])

        def sleep(seconds: float) -> None:
            try:
                publish(self.store, next(looks))
            except StopIteration:
                raise KeyboardInterrupt from None

        self.patch(tier, "sleep", sleep)
        result = self.run_command("tier", self.store, self.url, "--follow")
        lines = [line.partition(" ")[2] for line in result.stdout.splitlines()]
        self.assertEqual(["2", "3", str(FULL - 5)], [line.split()[0] for line in lines])
        self.assertTrue(self.manifest(FULL - 1).exists())
