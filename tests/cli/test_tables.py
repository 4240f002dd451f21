"""C{rmqha tables}."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from lab.harness import golden
from rmqha.store.files.lock import StoreLock
from rmqha.store.tables.checked_table import CheckedTables
from tests.cli.command import CommandTestCase


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
