"""C{rmqha restore}."""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any
from unittest import skipUnless

from lab.harness import golden
from rmqha.archive.errors import shown_time
from rmqha.archive.manifest import ArchiveManifest
from rmqha.ha.master_epoch import EpochJournal, EpochStart
from rmqha.logfiles import json_table
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.logfiles.walk_file import Walked
from rmqha.store.files.lock import StoreLock
from rmqha.store.published import publish
from rmqha.wire.log.published import Point
from tests.cli.command import CommandTestCase
from tests.support import damage
from tests.support.logs import STORED, LogTestCase, content, encoded

VERSION = golden.VERSIONS[0]
SIZE = golden.LOG_FILE_SIZE


@cache
def places(name: str = "store") -> list[tuple[int, int, int]]:
    """Begin, end and store time of each record of a golden store."""
    log = OfflineLog(golden.store(VERSION, name))
    found = []
    for view, block in scan(log, log.min_offset, log.end):
        ends = (block.start + block.size).tolist()
        times = Walked(view, block).store_times().tolist()
        found += zip(block.start.tolist(), ends, times, strict=True)
    log.close()
    return found


class RestoreCase(CommandTestCase, LogTestCase):
    """A store that a real broker left."""

    def setUp(self) -> None:
        self.store = golden.store(VERSION)
        self.dest = self.folder() / "restored"

    def restore(self, *args: str | Path, source: Path | None = None) -> Any:
        """Restore, and check the new store as an operator would: what the command said."""
        said = self.answer("restore", source or self.store, self.dest, *args)
        verified = self.run_command("verify", self.dest, "--deep")
        self.assertEqual(verified.exit_code, 0, verified.output)
        self.assertIn("clean", verified.output)
        self.assertEqual(sorted((self.dest / "commitlog").glob("*.partial")), [])
        return said

    def table(self, root: Path, name: str) -> json_table.Table:
        found = json_table.read(root / "config" / name)
        assert found is not None, f"{root} has it"
        return found

    def bytes_of(self, root: Path, end: int | None = None) -> bytes:
        log = OfflineLog(root)
        self.addCleanup(log.close)
        return content(log, end=end)


class WholeTests(RestoreCase):
    def test_store(self) -> None:
        """The log, byte for byte, and the tables; queues and index are built."""
        said = self.restore()
        self.assertEqual(said["records"], len(places()))
        self.assertEqual((said["minOffset"], said["end"]), (0, places()[-1][1]))
        self.assertEqual(said["lastStored"], places()[-1][2])
        self.assertEqual(self.bytes_of(self.dest), self.bytes_of(self.store))
        self.assertEqual((said["movedConsumers"], said["unlistedTopics"]), ([], []))
        for name, member in (
            ("topics.json", "topicConfigTable"),
            ("subscriptionGroup.json", "subscriptionGroupTable"),
            ("consumerOffset.json", "offsetTable"),
        ):
            mine, theirs = (self.table(root, name)[member] for root in (self.dest, self.store))
            self.assertEqual(mine.keys(), theirs.keys())
        self.assertEqual(mine, theirs)
        self.succeed("diverge", self.dest, "--against", self.store)

    def test_only_a_log(self) -> None:
        """Of a log alone: what is not in a log is not in the store, and that is said."""
        result = self.run_command("restore", self.store / "commitlog", self.dest)
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn(f"consumer offsets are those of {self.store}", result.stdout)
        shutil.rmtree(self.dest)
        alone = self.folder() / "alone"
        shutil.copytree(self.store / "commitlog", alone)
        result = self.run_command("restore", alone, self.dest)
        self.assertIn("no tables: neither topics", result.stdout)
        self.assertIn("not in config/topics.json: ", result.stderr)
        self.assertIn("GoldenBulk", result.stderr)

    def test_deleted(self) -> None:
        """A deleted topic stays so, also if the log comes from elsewhere than the tables."""
        tables = self.folder() / "store"
        shutil.copytree(self.store, tables)
        (tables / "rmqha").mkdir(exist_ok=True)
        log = OfflineLog(self.store)
        self.addCleanup(log.close)
        topic = next(path.name for path in sorted((self.store / "consumequeue").iterdir()))
        row = {"offset": log.end, "crc": tail_crc(log, log.end), "queues": {}}
        json_table.replace(tables / "rmqha" / "deleted.json", {"topics": {topic: row}})
        alone = self.folder() / "alone"
        shutil.copytree(self.store / "commitlog", alone)
        self.restore("--tables", tables, source=alone)
        self.assertFalse((self.dest / "consumequeue" / topic).exists())

    def test_tables(self) -> None:
        """Tables may come from elsewhere; a damaged one is taken from its C{.bak}, and said."""
        alone = self.folder() / "alone"
        shutil.copytree(self.store / "commitlog", alone)
        config = self.store / "config"
        (config / "topics.json").write_bytes(b"\0" * 100)
        result = self.run_command("restore", alone, self.dest, "--tables", config)
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("taken is the generation before it", result.stderr)
        self.assertIsNotNone(json_table.read(self.dest / "config" / "topics.json"))

    def test_archive(self) -> None:
        """Of an archive that is being received: its last file is not finished."""
        archive = self.folder() / "archive"
        shutil.copytree(self.store / "commitlog", archive / "commitlog")
        last = damage.log_file(archive, -1)
        last.rename(last.with_name(last.name + ".partial"))
        self.assertEqual(self.restore(source=archive)["end"], places()[-1][1])

    def test_new_life(self) -> None:
        """It begins a new epoch at its end, and knows nothing of the source's."""
        (self.store / "rmqha").mkdir()
        for name in ("epoch.json", "published.json", "dispatched.json", "metadata.json"):
            json_table.replace(self.store / "rmqha" / name, {"start": 0, "end": 0})
        end = self.restore("--until", str(places()[700][0]))["end"]
        epoch = json_table.read(self.dest / "rmqha" / "epoch.json")
        assert epoch is not None, "it was begun"
        self.assertEqual((epoch["start"], epoch["end"], epoch["closed"]), (end, end, True))
        self.assertEqual(epoch["marks"], {})
        self.assertFalse((self.dest / "rmqha" / "metadata.json").exists())
        point = publish.load(self.dest)
        assert point is not None, "it was published"
        self.assertEqual((point.durable, point.cuts), (end, ()))

    def test_master_epoch(self) -> None:
        """Its master epoch is above all that the source knows: of a store, and of an archive."""
        known = EpochJournal(
            number=4, starts=(EpochStart(3, 100), EpochStart(4, 1000), EpochStart(5, 1 << 20))
        )
        archive = self.folder() / "archive"
        shutil.copytree(self.store / "commitlog", archive / "commitlog")
        ArchiveManifest(source="a", file_size=SIZE, start=0, end=0, begun=1, updated=1).write(
            archive
        )
        known.write(archive)
        known.write(self.store)
        for source in (self.store, archive):
            said = self.restore("--until", "200000", source=source)
            wanted = (EpochStart(3, 100), EpochStart(4, 1000), EpochStart(5, said["end"]))
            self.assertEqual(said["masterEpoch"], 5)
            self.assertEqual(EpochJournal.read(self.dest).starts, wanted)
            shutil.rmtree(self.dest)
        self.assertEqual(self.restore("--epoch", "9")["masterEpoch"], 9)
        shutil.rmtree(self.dest)
        said = self.fails(1, "restore", self.store, self.dest, "--epoch", "4")
        self.assertIn("master epoch 4 is not between 5", said)
        self.assertFalse(self.dest.exists())

    @skipUnless(os.geteuid() == 0, "only root can make files of others")
    def test_owner(self) -> None:
        """What root restores into a folder of the node's user is that user's."""
        self.dest.mkdir()
        os.chown(self.dest, 12345, 12345)
        self.dest.parent.chmod(0o755)
        self.restore()
        owners = {path.stat().st_uid for path in [self.dest, *self.dest.rglob("*")]}
        self.assertEqual(owners, {12345})

    def test_conf(self) -> None:
        """Sizes of new files may come from the configuration of the node that will run there."""
        conf = self.folder() / "broker.conf"
        keys = {
            "storePathRootDir": self.dest,
            "mappedFileSizeCommitLog": SIZE,
            "mappedFileSizeConsumeQueue": 2000,
            "messageIndexEnable": "false",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        said = self.answer("restore", self.store, self.dest, "--conf", conf)
        self.assertEqual(said["indexEntries"], 0)
        sizes = {path.stat().st_size for path in (self.dest / "consumequeue").rglob("0" * 20)}
        self.assertEqual(sizes, {2000})
        other = self.dest.with_name("other")
        args = ("restore", self.store, other, "--conf", conf)
        self.assertIn("is for the store", self.fails(2, *args))
        conf.write_text(f"storePathRootDir={other}\n")
        self.assertIn(f"log files of {SIZE} bytes", self.fails(1, *args))
        self.assertFalse(other.exists())


class UntilTests(RestoreCase):
    def assertEnds(self, said: Any, count: int) -> None:
        begin, end, stored = places()[count - 1]
        self.assertEqual((said["records"], said["end"], said["lastStored"]), (count, end, stored))
        self.assertEqual(self.bytes_of(self.dest), self.bytes_of(self.store, end))
        self.assertGreater(end, begin)

    def test_offsets(self) -> None:
        """Whole records below the offset: one that reaches above it is left out."""
        rows = places()
        first_of_file = next(row for row, place in enumerate(rows) if place[0] == 3 * SIZE)
        for until, count in (
            (rows[0][1], 1),
            (rows[500][0], 500),
            (rows[500][0] + 1, 500),
            (rows[500][1] - 1, 500),
            (rows[500][1], 501),
            # A file's begin, the end of the record before its blank, and in the blank.
            (3 * SIZE, first_of_file),
            (rows[first_of_file - 1][1], first_of_file),
            (3 * SIZE - 1, first_of_file),
            (3 * SIZE + 1, first_of_file),
            (rows[-1][1], len(rows)),
        ):
            self.assertEnds(self.restore("--until", str(until)), count)
            shutil.rmtree(self.dest)

    def test_times(self) -> None:
        """Everything before the first record that was stored later."""
        rows = places()
        times = [stored for _, _, stored in rows]
        for moment in (times[0], times[300], times[300] + 1, times[900] - 1, times[-1] - 1):
            for text in (f"{moment}ms", shown_time(moment)):
                said = self.restore("--until", text)
                self.assertEnds(said, sum(stored <= moment for stored in times))
                shutil.rmtree(self.dest)

    def test_consumers(self) -> None:
        """Offsets above a queue's new end are moved back to it, and said."""
        said = self.restore("--until", str(places()[600][0]))
        self.assertTrue(said["movedConsumers"])
        table = json_table.read(self.dest / "config" / "consumerOffset.json")
        assert table is not None, "it was copied"
        for moved in said["movedConsumers"]:
            key = f"{moved['topic']}@{moved['who'].removeprefix('group ')}"
            self.assertEqual(table["offsetTable"][key][moved["queue_id"]], moved["after"])
            self.assertLess(moved["after"], moved["before"])

    def test_clock_set_back(self) -> None:
        """Behind the first later record nothing is restored, though it has an earlier time."""
        root = self.folder() / "store"
        log = self.log(root / "commitlog")
        for stored in (5, 10, 30, 20, 40):
            log.put([encoded(300)], [0], STORED + stored)
        said = self.restore("--until", f"{STORED + 20}ms", source=root)
        self.assertEqual((said["records"], said["end"]), (2, 600))

    def test_outside(self) -> None:
        """What the log does not reach, or begins behind, is said with bounds; nothing is made."""
        rows = places()
        end, last = rows[-1][1], rows[-1][2]
        for until, where in (
            ("0", "byte 0 is before the begin of"),
            (str(end + 1), f"byte {end + 1} is behind the end of"),
            (f"{rows[0][2] - 1}ms", "is before the begin of"),
            (f"{last}ms", f"{shown_time(last)} is behind the end of"),
            ("2999-01-01T00:00:00Z", "2999-01-01T00:00:00.000Z is behind the end of"),
        ):
            said = self.fails(1, "restore", self.store, self.dest, "--until", until)
            self.assertIn(where, said)
            self.assertIn(f"it has bytes 0 to {end}, stored from {shown_time(rows[0][2])}", said)
            self.assertFalse(self.dest.exists())

    def test_within_the_first_record(self) -> None:
        """An offset within the first record leaves nothing to restore."""
        until = str(places()[0][1] - 1)
        said = self.fails(1, "restore", self.store, self.dest, "--until", until)
        self.assertIn("before the begin", said)

    def test_gap(self) -> None:
        """Missing files are named by their bytes; what is before them can be restored."""
        for number in (4, 3):
            damage.log_file(self.store, number).unlink()
        gap = f"lacks the {2 * SIZE} bytes from {3 * SIZE} to {5 * SIZE}"
        late = shown_time(places()[-1][2] - 1)
        self.assertIn(gap, self.fails(1, "restore", self.store, self.dest))
        for until in (str(4 * SIZE), str(6 * SIZE), late):
            said = self.fails(1, "restore", self.store, self.dest, "--until", until)
            self.assertIn(gap, said)
        count = sum(end <= 3 * SIZE for _, end, _ in places())
        self.assertEqual(self.restore("--until", str(3 * SIZE))["records"], count)

    def test_damage(self) -> None:
        """A damaged record is named, and ends what can be restored."""
        begin, end, _ = places()[800]
        damage.flip(damage.log_file(self.store, begin // SIZE), begin % SIZE + 100)
        said = self.fails(1, "restore", self.store, self.dest)
        self.assertIn(f"bad record at byte {begin} (body crc)", said)
        self.assertIn(f"a valid one follows at byte {end}", said)
        shutil.rmtree(self.dest)
        self.assertEqual(self.restore("--until", str(begin))["records"], 800)


class RefusedTests(RestoreCase):
    def test_not_empty(self) -> None:
        """Nothing is written into a folder that has something."""
        self.dest.mkdir()
        (self.dest / "anything").touch()
        self.assertIn("is not empty", self.fails(1, "restore", self.store, self.dest))
        self.assertEqual([path.name for path in self.dest.iterdir()], ["anything"])

    def test_interrupted(self) -> None:
        """No node starts on what an interrupted one left."""
        begin = places()[800][0]
        damage.flip(damage.log_file(self.store, begin // SIZE), begin % SIZE + 100)
        self.fails(1, "restore", self.store, self.dest)
        self.assertTrue(list((self.dest / "commitlog").glob("*.partial")))
        self.assertIn("interrupted restore", self.fails(1, "promote", self.dest))

    def test_nothing_there(self) -> None:
        """A store without a log."""
        empty = self.folder()
        (empty / "commitlog").mkdir()
        self.assertIn("no log file", self.fails(1, "restore", empty, self.dest))
        self.assertIn("is not a RocketMQ store", self.fails(1, "restore", self.folder(), self.dest))

    def test_bad_target(self) -> None:
        """A mistake in the target is one of the command line."""
        said = self.fails(2, "restore", self.store, self.dest, "--until", "noon")
        self.assertIn("'noon' is not an offset, a time with its zone", said)

    def test_running(self) -> None:
        """Of a running node's store: up to what the node has published, and not further."""
        lock = StoreLock(self.store / "lock")
        lock.take()
        self.addCleanup(lock.release)
        rows = places()
        until = rows[1000][0]
        (self.store / "rmqha").mkdir()
        point = Point(
            confirm=until, durable=until, min_offset=0, broker_name="broker-a", generation="g"
        )
        publish.save(self.store, point, durable=False)
        self.assertIn(
            f"it has bytes 0 to {until}",
            self.fails(1, "restore", self.store, self.dest, "--until", str(until + 1)),
        )
        late = shown_time(rows[-1][2] - 1)
        self.assertIn(
            "is behind the end", self.fails(1, "restore", self.store, self.dest, "--until", late)
        )
        self.assertEqual(self.restore()["records"], 1000)

    def test_expiry(self) -> None:
        """Old messages are kept from the restore on, and it says until when."""
        said = self.run_command("restore", self.store, self.dest).stderr
        self.assertRegex(
            said,
            r"note: \d+ of \d+ log files are older than fileReservedTime=72; they came here at",
        )

    def test_text(self) -> None:
        """People are told what was built."""
        text = self.succeed("restore", self.store, self.dest, "--until", str(places()[600][0]))
        self.assertIn(f"bytes 0 to {places()[599][1]}, 600 records up to", text)
        self.assertIn(f"a new epoch is begun at byte {places()[599][1]}", text)
        self.assertIn("group ", text)
        json.dumps(text)
