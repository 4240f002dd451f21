"""C{rmqha dump} and C{rmqha tables}."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from lab.harness import golden
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.truncate import quarantine
from rmqha.store.tables.checked_table import CheckedTables
from tests.cli.command import CommandTestCase
from tests.support import damage
from tests.support.effort import slow
from tests.support.rows import TORN

VERSION = golden.VERSIONS[0]


def records(version: str, name: str = "store") -> list[dict[str, Any]]:
    """The whole records of a store, as RocketMQ reads them."""
    rows = golden.jsonl(version, golden.truth(name, "expected.jsonl"))
    return [comparable(row) for row in rows if "blank" not in row and "torn" not in row]


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A record with addresses in one spelling."""
    for key in ("bornHost", "storeHost"):
        row[key] = {**row[key], "ip": str(ip_address(row[key]["ip"]))}
    return row


class DumpTests(CommandTestCase):
    maxDiff = 2000

    def lines(self, *args: str | Path, code: int = 0) -> list[dict[str, Any]]:
        result = self.run_command("dump", *args, "--json")
        self.assertEqual(result.exit_code, code, result.stderr)
        return [json.loads(line) for line in result.stdout.splitlines()]

    @slow
    def test_golden(self) -> None:
        """Every archive gives RocketMQ's reading of it, but for a record with torn properties."""
        for version, name in golden.ARCHIVES:
            wanted = records(version, name)
            if name == TORN:
                wanted.pop()
            found = self.lines(golden.store(version, name))
            self.assertEqual(len(found), len(wanted), (version, name))
            for ours, theirs in zip(found, wanted, strict=True):
                self.assertEqual(ours.keys(), theirs.keys())
                self.assertEqual(ours, theirs)

    def test_range(self) -> None:
        """A range takes the records that begin in it, wherever its ends lie."""
        store = golden.store(VERSION)
        wanted = [row["physicalOffset"] for row in records(VERSION)]
        end = wanted[-1] + 1000
        for first, last in ((0, end), (1, 532), (208, 209), (300_000, 1_000_000), (end, end + 1)):
            found = self.lines(store, "--from", str(first), "--to", str(last))
            self.assertEqual(
                [row["physicalOffset"] for row in found],
                [offset for offset in wanted if first <= offset < last],
            )
        self.assertEqual(self.lines(store, "--from", str(1 << 60)), [])

    def test_topics(self) -> None:
        """Topics can be chosen."""
        store = golden.store(VERSION)
        wanted = [row for row in records(VERSION) if row["topic"] in ("GoldenA", "GoldenTx")]
        self.assertEqual(self.lines(store, "--topic", "GoldenA", "--topic", "GoldenTx"), wanted)
        self.assertEqual(self.lines(store, "--topic", "nobody"), [])

    def test_body(self) -> None:
        """Bodies are given in base64 when they are asked for."""
        for row in self.lines(golden.store(VERSION, "ipv6"), "--body"):
            body = base64.b64decode(row["body"])
            self.assertEqual(hashlib.sha256(body).hexdigest(), row["bodySha256"])

    def test_text(self) -> None:
        """For a person each record is one line, without control characters."""
        store = golden.store(VERSION)
        lines = self.succeed("dump", store).splitlines()
        self.assertEqual(len(lines), len(records(VERSION)))
        self.assertTrue(all(line.isprintable() for line in lines))
        self.assertTrue(
            lines[0].startswith("0 208 2026-11-20T16:24:25.348Z GoldenA/0@0 body=5 tags=TagA ")
        )

    def test_torn_tail(self) -> None:
        """A torn tail is told, and is no failure."""
        result = self.run_command("dump", golden.store(VERSION, "slave-killed"))
        self.assertEqual(result.exit_code, 0)
        self.assertIn("the log ends here (stored offset is another)", result.stderr)

    def test_damage(self) -> None:
        """A damaged record is passed with a word; all others are there."""
        store = golden.store(VERSION)
        rows = records(VERSION)
        damage.flip(damage.log_file(store, 0), rows[3]["physicalOffset"] + 8)
        self.assertEqual(self.lines(store, code=1), rows[:3] + rows[4:])
        said = self.run_command("dump", store).stderr
        self.assertIn("body crc; continuing with the next valid record, at byte 914", said)
        self.assertEqual(self.lines(store, "--to", "700"), rows[:3])
        self.assertEqual(self.lines(store, "--from", "914"), rows[4:])

    @slow
    def test_harms(self) -> None:
        """Whatever was done to the files, what is left is shown."""
        for harm in damage.HARMS:
            if harm.name == "unreadable":
                continue
            store = golden.store(VERSION)
            harm.apply(store)
            result = self.run_command("dump", store, "--json")
            self.assertIn(result.exit_code, (0, 1), harm.name)

    def test_empty(self) -> None:
        """An empty log has no records."""
        store = golden.store(VERSION)
        shutil.rmtree(store / "commitlog")
        self.assertEqual(self.lines(store), [])

    def test_quarantine(self) -> None:
        """A quarantine file shows what was cut away, in its store and elsewhere."""
        store = golden.store(VERSION)
        rows = records(VERSION)
        folder = LogFolder.load(store / "commitlog", damage.SIZE)
        path = quarantine(store, folder, rows[100]["physicalOffset"], 2652010)
        self.assertEqual(self.lines(path), rows[100:])
        alone = Path(self.mktemp())
        alone.mkdir()
        self.assertEqual(self.lines(Path(shutil.copy(path, alone))), rows[100:])

    def test_quarantine_of_damage(self) -> None:
        """A quarantine file that begins in the middle of a record shows those behind."""
        store = golden.store(VERSION)
        rows = records(VERSION)
        folder = LogFolder.load(store / "commitlog", damage.SIZE)
        path = quarantine(store, folder, rows[10]["physicalOffset"] + 5, rows[20]["physicalOffset"])
        self.assertEqual(self.lines(path, code=1), rows[11:20])


class TablesTests(CommandTestCase):
    """Damage is named, and accepted by name."""

    def setUp(self) -> None:
        """A store with two generations of a table."""
        self.store = golden.store(golden.VERSIONS[-1])
        shutil.rmtree(self.store / "config", ignore_errors=True)
        tables = CheckedTables(self.store)
        self.path = tables.path("consumerOffset.json")
        for offset in (100, 200):
            tables.replace(self.path, {"offsetTable": {"T@g": {0: offset}}})
        tables.settle()

    def edit(self) -> None:
        """An operator sets a group back."""
        self.path.write_bytes(self.path.read_bytes().replace(b"200", b"150"))

    def test_sound(self) -> None:
        """Tables that are as they were written."""
        said = self.succeed("tables", self.store)
        self.assertEqual(said, "config/consumerOffset.json: as it was written\n")

    def test_edited(self) -> None:
        """One that is not is exit code 1, until it is accepted by name."""
        self.edit()
        result = self.run_command("tables", self.store)
        self.assertEqual(result.exit_code, 1)
        self.assertIn("does not match its checksum", result.stdout)
        found = self.answer("tables", self.store, code=1)
        self.assertEqual(found["consumerOffset.json"]["source"], "backup")
        result = self.run_command("tables", self.store, "--accept", "consumerOffset.json")
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("is taken as it is", result.stderr)
        read = CheckedTables(self.store).load(self.path)
        self.assertEqual(read.table, {"offsetTable": {"T@g": {0: 150}}})

    def test_running(self) -> None:
        """Nothing is accepted while a node runs: it would write its own over it."""
        lock = StoreLock(self.store / "lock")
        lock.take()
        self.addCleanup(lock.release)
        said = self.fails(1, "tables", self.store, "--accept", "topics.json")
        self.assertIn("held by a running node", said)

    def test_unreadable(self) -> None:
        """What is no table is not accepted."""
        self.path.write_bytes(b"{")
        said = self.fails(1, "tables", self.store, "--accept", "consumerOffset.json")
        self.assertIn("consumerOffset.json", said)

    def test_none_yet(self) -> None:
        """A store without checksums has nothing to compare."""
        shutil.rmtree(self.store / "rmqha")
        self.assertIn("no checksums of tables", self.succeed("tables", self.store))


class MergeTests(CommandTestCase):
    def setUp(self) -> None:
        """A slave's store, and the tables of its master."""
        self.store = golden.store(golden.VERSIONS[-1])
        self.other = Path(tempfile.mkdtemp(prefix="tables-"))
        self.addCleanup(shutil.rmtree, self.other, ignore_errors=True)
        text = '{"offsetTable":{"GoldenA@late":{0:1},"GoldenA@ahead":{0:1000000}}}'
        (self.other / "consumerOffset.json").write_text(text)
        record = self.store / "rmqha" / "metadata.json"
        record.parent.mkdir(exist_ok=True)
        record.write_text('{"committed":{"GoldenA@g":{0:1,1:2}}}')

    def test_merged(self) -> None:
        """A dry run says what is taken and brought back where, and so does the real one."""
        given = ("promote", self.store, "--tables", self.other)
        planned = self.answer(*given, "--dry-run")
        done = self.answer(*given)
        self.assertEqual((planned.pop("dryRun"), done.pop("dryRun")), (True, False))
        self.assertEqual((planned, done["mergedTables"]["offsets"]), (done, 2))
        self.assertEqual([one["before"] for one in done["movedConsumers"]], [1_000_000])
        self.assertEqual(done["owedOffsets"], 2)
        read = CheckedTables(self.store).load(self.store / "config" / "consumerOffset.json")
        assert read.table is not None
        self.assertEqual(read.table["offsetTable"]["GoldenA@late"], {0: 1})

    def test_owed(self) -> None:
        """A slave that owes offsets is told of, where its master's tables are not given."""
        result = self.run_command("promote", self.store, "--dry-run")
        self.assertIn("2 consumer offsets were committed here", result.stderr)
        result = self.run_command("promote", self.store, "--dry-run", "--tables", self.other)
        self.assertNotIn("were committed here", result.stderr)
        self.assertIn("2 consumer offsets and 0 offsets of delay levels would be", result.stdout)

    def test_no_tables(self) -> None:
        """A folder without tables is refused."""
        (self.other / "consumerOffset.json").unlink()
        said = self.fails(1, "promote", self.store, "--tables", self.other)
        self.assertIn("has none of topics.json", said)
