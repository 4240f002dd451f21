"""C{rmqha promote}."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.harness import golden
from rmqha.logfiles import json_table
from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.files.lock import StoreLock
from rmqha.store.log.bootstrap_marker import marker
from rmqha.wire.log.layout import BODY_AT
from tests.cli.command import CommandTestCase
from tests.support.damage import flip

VERSION = golden.VERSIONS[-1]


class PromoteTests(CommandTestCase):
    def setUp(self) -> None:
        self.store = golden.store(VERSION)
        path = self.store / "config" / "consumerOffset.json"
        before = json_table.read(path) or {"offsetTable": {}}
        before["offsetTable"]["GoldenBulk@ahead"] = {0: 1_000_000}
        path.parent.mkdir(exist_ok=True)
        json_table.replace(path, before)

    def test_stock_store(self) -> None:
        """It says what it found and did, and the store is sound afterwards."""
        said = self.succeed("promote", self.store)
        end = max(int(word) for word in said.split() if word.isdigit() and len(word) == 7)
        self.assertIn(f"a new epoch is begun at byte {end}\n", said)
        self.assertIn("group ahead in queue 0 of GoldenBulk: offset 1000000 is now ", said)
        self.assertIn(" queues continue from the log, 6 of delay levels\n", said)
        self.succeed("verify", self.store, "--deep")
        self.assertIn("the store was a master's already", self.succeed("promote", self.store))

    def test_member(self) -> None:
        """That of a set's member is named: its controllers decide, and how it leaves them."""
        (self.store / "brokerIdentity").write_text("C#broker-a#2", encoding="ascii")
        said = self.run_command("promote", self.store, "--dry-run").stderr
        self.assertIn("the store of member 2 of set broker-a", said)
        self.assertIn(f"`rmqha controller reset {self.store}`", said)

    def test_expiry(self) -> None:
        """Messages older than they need be kept are named, and until when they are kept."""
        said = self.run_command("promote", self.store).stderr
        self.assertRegex(
            said,
            r"note: \d+ of \d+ log files are older than fileReservedTime=72; they came here at",
        )

    def test_dry_run(self) -> None:
        """A dry run says the same as JSON, and does nothing."""
        planned = self.answer("promote", self.store, "--dry-run")
        self.assertFalse((self.store / "rmqha").exists())
        done = self.answer("promote", self.store)
        self.assertEqual((planned.pop("dryRun"), done.pop("dryRun")), (True, False))
        self.assertEqual(planned, done)
        self.assertEqual(
            (done["cutBytes"], done["quarantine"], done["wasMaster"], done["delayLevels"]),
            (0, None, False, 6),
        )
        self.assertEqual([one["before"] for one in done["movedConsumers"]], [1_000_000])

    def test_newer_tables(self) -> None:
        """Tables newer than the log are named as such, with the cost and the way out."""
        other = self.store.parent / "tables"
        other.mkdir()
        table = {"offsetTable": {"GoldenBulk@ahead": {0: 2_000_000}}}
        json_table.replace(other / "consumerOffset.json", table)
        result = self.run_command("promote", self.store, "--tables", other)
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("offset 2000000 is now ", result.stdout)
        self.assertIn(f"the tables of {other} are newer than this log: ", result.stderr)
        self.assertIn("without --tables", result.stderr)

    def test_tables_of_a_longer_log(self) -> None:
        """So are those that are of a longer log and move no offset: what a group gave back is only
        in that log, where it was the last.
        """
        other = self.store.parent / "tables"
        other.mkdir()
        for name in ("consumerOffset.json", "delayOffset.json"):
            json_table.replace(self.store / "config" / name, {"offsetTable": {}})
        table: Any = {"offsetTable": {}, "maxPhyOffset": OfflineLog(self.store).end}
        for longer in (0, 1):
            table["maxPhyOffset"] += longer
            json_table.replace(other / "delayOffset.json", table)
            result = self.run_command("promote", self.store, "--dry-run", "--tables", other)
            self.assertEqual(longer, result.stderr.count("are newer than this log"), result.stderr)

    def test_torn(self) -> None:
        """What is cut can be read where the command says."""
        raw = RawLog.open(self.store)
        done = self.answer("promote", self.store)
        piece = raw.at(done["end"])
        with open(piece.path, "rb+") as file:
            file.seek(done["end"] - piece.start)
            file.write(b"\0\0\1\0half of a record")
        self.assertIn(
            "20 bytes after the last whole", self.succeed("promote", self.store, "--dry-run")
        )
        said = self.answer("promote", self.store)
        self.assertEqual(said["cutBytes"], 20)
        kept = (self.store / said["quarantine"]).read_bytes()
        self.assertEqual(kept, b"\0\0\1\0half of a record")

    def damage(self) -> int:
        """Flip a bit in a body that no start looks at after a clean stop; where its record is."""
        raw = RawLog.open(self.store)
        (event, *_) = follow(raw, raw.min_offset)
        assert not isinstance(event, Corruption)
        start = int(event[1].start[3])
        flip(raw.at(start).path, start - raw.min_offset + BODY_AT)
        return start

    def test_cold_damage(self) -> None:
        """Damage in an old file is a refusal that names it, unless one says otherwise."""
        start = self.damage()
        for more in ((), ("--dry-run",), ("--repair",)):
            said = self.fails(1, "promote", self.store, *more)
            self.assertIn("has a fault", said)
            self.assertIn(f"at {start}: body crc", said)
            self.assertIn("--unverified", said)
            self.assertFalse((self.store / "rmqha").exists())
        result = self.run_command("promote", self.store, "--unverified")
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("was not verified", result.stderr)
        self.assertNotIn("verified the whole log", result.stdout)

    def test_verified(self) -> None:
        """It says how many records it has verified."""
        done = self.answer("promote", self.store)
        self.assertIn(
            f"verified the whole log: {done['verifiedRecords']} records",
            self.succeed("promote", self.store),
        )
        self.assertIsNone(self.answer("promote", self.store, "--unverified")["verifiedRecords"])

    def test_repaired(self) -> None:
        """Damage that a repair cuts off is no reason to refuse it."""
        raw = RawLog.open(self.store)
        events = list(follow(raw, raw.min_offset))
        runs = [event[1] for event in events if not isinstance(event, Corruption)]
        start = int(runs[-1].start[2])
        flip(raw.at(start).path, start - raw.at(start).start + BODY_AT)
        self.assertIn("not a torn tail", self.fails(1, "promote", self.store))
        done = self.answer("promote", self.store, "--repair")
        self.assertEqual(done["end"], start)
        self.assertGreater(done["cutBytes"], 0)

    def test_refused(self) -> None:
        """Each refusal is one line, and exit code 1."""
        self.assertIn(
            "not a RocketMQ store", self.fails(1, "promote", self.store / "commitlog" / ".." / "..")
        )
        lock = StoreLock(self.store / "lock")
        lock.take()
        self.assertIn("held by a running node", self.fails(1, "promote", self.store))
        self.assertIn("held by a running node", self.fails(1, "promote", self.store, "--dry-run"))
        lock.release()
        path = marker(self.store)
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        self.assertIn("unfinished copy", self.fails(1, "promote", self.store))

    def test_conf(self) -> None:
        """With a configuration its sizes count; one that is still a slave's is told of."""
        conf = self.store.parent / "broker.conf"
        keys = {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "storePathRootDir": self.store,
            "mappedFileSizeCommitLog": golden.LOG_FILE_SIZE,
            "mappedFileSizeConsumeQueue": golden.QUEUE_FILE_SIZE,
            "maxHashSlotNum": golden.INDEX_SLOTS,
            "maxIndexNum": golden.INDEX_ENTRIES,
            "maxMessageSize": 100_000,
        }
        self.write(conf, keys)
        result = self.run_command("promote", self.store, "--conf", conf)
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("configures a slave", result.stderr)
        self.write(conf, {**keys, "brokerRole": "SYNC_MASTER", "brokerId": 0})
        result = self.run_command("promote", self.store, "--conf", conf)
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertNotIn("configures a slave", result.stderr)
        self.write(conf, {**keys, "mappedFileSizeCommitLog": 1 << 20})
        self.assertIn(
            "mappedFileSizeCommitLog is", self.fails(1, "promote", self.store, "--conf", conf)
        )

    def write(self, conf: Path, keys: dict[str, object]) -> None:
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
