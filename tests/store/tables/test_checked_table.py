"""Tables with checksums: whatever a crash, a disk, an editor or another broker leaves."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

from rmqha.errors import DiskFull, FileUnreadable, TableUnreadable
from rmqha.logfiles import json_table
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.table_verdict import Source
from tests.support.logs import LogTestCase
from tests.support.unreadable import make_unreadable


class Killed(Exception):
    """The process ended here."""


class CheckedTestCase(LogTestCase):
    """Tests with the tables of a store."""

    def setUp(self) -> None:
        self.root = self.folder()
        self.path = self.root / "config" / "topics.json"
        self.backup = self.root / "config" / "topics.json.bak"

    def tables(self) -> CheckedTables:
        """The tables as the next process finds them."""
        return CheckedTables(self.root)

    def write(self, *numbers: int, settled: bool = True) -> None:
        """Write generations, in one run of a node, which may end cleanly."""
        tables = self.tables()
        tables.load(self.path)
        for number in numbers:
            tables.replace(self.path, self.table(number), journal=number)
        if settled:
            tables.settle()

    def table(self, number: int) -> json_table.Table:
        return {"dataVersion": {"counter": number}, "n": number * 1000}

    def foreign(self, number: int) -> None:
        """Another broker's generation, as RocketMQ has them: what it finds is the C{.bak}."""
        self.backup.write_bytes(self.path.read_bytes())
        self.path.write_bytes(json_table.render(self.table(number)))

    def flip(self, path: Path | None = None) -> None:
        """The disk changes a digit."""
        path = path or self.path
        path.write_bytes(path.read_bytes().replace(b"000", b"900"))

    def found(self) -> tuple[Source, Any, int | None]:
        """What the next process takes: from where, which number, and what follows it."""
        read = self.tables().load(self.path)
        return read.source, (read.table or {}).get("n"), read.journal


class VerdictTests(CheckedTestCase):
    def test_as_written(self) -> None:
        """A table that was written is taken, after a clean stop and after a crash."""
        for settled in (True, False):
            self.write(1, 2, 3, settled=settled)
            self.assertEqual(self.found(), (Source.PRESENT, 3000, 3))

    def test_bytes(self) -> None:
        """The file has the bytes that it has without checksums."""
        self.write(1)
        self.assertEqual(self.path.read_bytes(), json_table.render(self.table(1)))

    def test_flipped_digit(self) -> None:
        """A table that is still a table, but not the one that was written, gives way to the one
        before it; its fault has the numbers.
        """
        for settled in (True, False):
            self.write(1, 2, 3, settled=settled)
            self.flip()
            read = self.tables().read(self.path)
            self.assertEqual((read.source, read.journal), (Source.BACKUP, 2))
            self.assertIn("topics.json does not match its checksum", read.fault)
            self.assertIn("version 3, written were", read.fault)
            self.assertEqual(self.found(), (Source.BACKUP, 2000, 2))
            self.path.unlink(missing_ok=True)
            shutil.rmtree(self.root / "rmqha")

    def test_cut_short(self) -> None:
        """The same of one that is no table any more, of one that is gone, and of an empty one."""
        for left in (b'{"n"', b"", None):
            self.write(1, 2)
            if left is None:
                self.path.unlink()
            else:
                self.path.write_bytes(left)
            self.assertEqual(self.found(), (Source.BACKUP, 1000, 1))
            self.path.unlink(missing_ok=True)
            self.backup.unlink()
            shutil.rmtree(self.root / "rmqha")

    def test_older_generation(self) -> None:
        """The generation before, in the place of the last one, is not silently older."""
        self.write(1, 2)
        shutil.copy(self.backup, self.path)
        read = self.tables().read(self.path)
        self.assertTrue(read.older)
        self.assertIn("is an older generation than the one written last", read.fault)

    def test_kept(self) -> None:
        """What was not taken is kept, and does not push the right generation out."""
        self.write(1, 2)
        self.flip()
        wrong = self.path.read_bytes()
        self.assertEqual(self.found(), (Source.BACKUP, 1000, 1))
        (aside,) = (self.root / "rmqha" / "aside").iterdir()
        self.assertEqual(aside.read_bytes(), wrong)
        # Killed before the table was written again.
        self.assertEqual(self.found(), (Source.BACKUP, 1000, 1))
        self.write(3)
        self.flip()
        self.assertEqual(self.found(), (Source.BACKUP, 1000, 1))

    def test_another_broker(self) -> None:
        """A table that another broker wrote is taken; our journal does not follow it."""
        self.write(1, 2)
        for number in (5, 6, 7):
            self.foreign(number)
            read = self.tables().read(self.path)
            self.assertEqual((read.source, read.journal), (Source.FOREIGN, None))
            self.assertFalse(read.older)
            self.assertEqual((read.table or {})["n"], number * 1000)
        self.assertEqual(self.found(), (Source.FOREIGN, 7000, None))
        self.write(8)
        self.assertEqual(self.found(), (Source.PRESENT, 8000, 8))
        self.flip()
        self.assertEqual(self.found(), (Source.BACKUP, 7000, None))

    def test_another_broker_damaged(self) -> None:
        """A table of another broker that is no table gives way to its C{.bak}."""
        self.write(1, 2)
        self.foreign(5)
        self.foreign(6)
        self.path.write_bytes(b"{")
        self.assertEqual(self.found(), (Source.BACKUP, 5000, None))

    def test_changed(self) -> None:
        """A changed table without a former one is taken; what followed the written one stays."""
        self.write(1)
        self.flip()
        self.assertEqual(self.found(), (Source.CHANGED, 1900, 1))

    def test_accepted(self) -> None:
        """A table that was edited is taken when the operator says so, and nothing follows it."""
        self.write(1, 2)
        self.flip()
        self.assertTrue(self.tables().accept(self.path))
        self.assertFalse(self.tables().accept(self.path))
        self.assertEqual(self.found(), (Source.PRESENT, 2900, None))
        self.path.write_bytes(b"{")
        with self.assertRaises(TableUnreadable):
            self.tables().accept(self.path)

    def test_all_gone(self) -> None:
        """Without any file there is no table; one that appears later is taken."""
        self.assertEqual(self.found(), (Source.NOTHING, None, 0))
        self.write(1, 2)
        self.path.unlink()
        self.backup.unlink()
        tables = self.tables()
        read = tables.load(self.path)
        self.assertEqual((read.table, read.fault), (None, "topics.json is missing"))
        tables.replace(self.root / "config" / "other.json", {})
        self.path.write_bytes(json_table.render(self.table(4)))
        self.assertEqual(self.found(), (Source.PRESENT, 4000, 0))

    def test_unreadable(self) -> None:
        """Two files of which neither is a table are no new store."""
        self.write(1, 2)
        self.path.write_bytes(b"{")
        self.backup.write_bytes(b"{")
        with self.assertRaises(TableUnreadable):
            self.tables().load(self.path)

    def test_not_to_be_read(self) -> None:
        """A table that the system does not let be read is not taken from its C{.bak}: once it can
        be read again nothing has gone back.
        """
        self.write(1, 2)
        for number in (errno.EIO, errno.EMFILE, errno.EACCES):
            for work in (CheckedTables.load, CheckedTables.read, CheckedTables.accept):
                unreadable = make_unreadable(self, self.path, number)
                error = self.assertRaises(FileUnreadable, work, self.tables(), self.path)
                self.assertEqual((error.path, error.errno), (str(self.path), number))
                unreadable.restore()
        self.assertEqual(self.found(), (Source.PRESENT, 2000, 2))
        self.assertFalse((self.root / "rmqha" / "aside").exists())

    def test_backup_not_to_be_read(self) -> None:
        """Nor is a damaged one right for an unreadable C{.bak}; a sound one needs none."""
        self.write(1, 2)
        unreadable = make_unreadable(self, self.backup)
        self.assertEqual(self.found(), (Source.PRESENT, 2000, 2))
        self.flip()
        self.assertRaises(FileUnreadable, self.tables().load, self.path)
        self.assertRaises(FileUnreadable, self.tables().accept, self.path)
        unreadable.restore()
        self.assertEqual(self.found(), (Source.BACKUP, 1000, 1))

    def test_shown(self) -> None:
        """Whoever asks how it stands with all tables is told of one that cannot be read."""
        self.write(1, 2)
        make_unreadable(self, self.path)
        ((path, verdict),) = self.tables().verdicts()
        self.assertEqual((path, verdict.source), (self.path, Source.UNREADABLE))
        self.assertIn("EIO", verdict.fault)

    def test_write_that_fails(self) -> None:
        """After a failed write where nobody can tell what is there, either is known."""
        for last, present in (("replace", 2000), ("sync", 3000)):
            shutil.rmtree(self.root)
            self.root.mkdir()
            self.write(1, 2)
            tables = self.tables()
            tables.load(self.path)

            steps: list[str] = []

            def fail(name: str, last: str = last, steps: list[str] = steps) -> None:
                # The checksums are written before, in the same steps.
                if name == last and "sync" in steps:
                    raise OSError(errno.EIO, "no")
                steps.append(name)

            unreadable = make_unreadable(self, self.path)
            with self.assertRaises(OSError):
                tables.replace(self.path, self.table(3), journal=3, step=fail)
            unreadable.restore()
            tables.settle()
            self.assertEqual(self.found(), (Source.PRESENT, present, present // 1000))

    def test_unchecked(self) -> None:
        """A store without checksums is taken as it is; an empty file, or no table, is none."""
        self.path.parent.mkdir()
        json_table.replace(self.path, self.table(1))
        self.foreign(2)
        self.assertEqual(self.found(), (Source.PRESENT, 2000, 0))
        for left in (b"", b"{}"):
            self.path.write_bytes(left)
            self.assertEqual(self.found(), (Source.BACKUP, 1000, 0))

    def test_checksums_damaged(self) -> None:
        """Checksums that are damaged themselves accuse no table."""
        self.write(1, 2)
        for damage in (b"{", b"{}", b"[]", b'{"crc":1,"tables":{}}', b""):
            (self.root / "rmqha" / "tables.json").write_bytes(damage)
            self.assertEqual(self.found(), (Source.PRESENT, 2000, 0))


class CrashTests(CheckedTestCase):
    """A write that is cut short anywhere."""

    def generations(self, settled: bool) -> tuple[int, set[tuple[Source, Any, int | None]]]:
        """Kill at each step of one write: how many there are, and what was found after them."""
        found, steps, place = set(), 0, 0
        while True:
            shutil.rmtree(self.root)
            self.root.mkdir()
            self.write(1, 2, settled=settled)
            steps = 0

            def step(name: str, place: int = place) -> None:
                nonlocal steps
                steps += 1
                if steps > place:
                    raise Killed

            tables = self.tables()
            tables.load(self.path)
            try:
                tables.replace(self.path, self.table(3), journal=3, step=step)
            except Killed:
                found.add(self.found())
                # And what follows such a crash is not suspected either.
                self.write(4, 5)
                self.assertEqual(self.found(), (Source.PRESENT, 5000, 5))
                place += 1
            else:
                return place, found

    def test_killed_anywhere(self) -> None:
        """The old or the new generation, neither of them suspected."""
        for settled in (True, False):
            steps, found = self.generations(settled)
            self.assertEqual(steps, 10)
            self.assertEqual(found, {(Source.PRESENT, 2000, 2), (Source.PRESENT, 3000, 3)})

    def test_killed_and_damaged(self) -> None:
        """After a crash a damaged table gives way to one that was written, and never to none."""
        for place in range(11):
            shutil.rmtree(self.root)
            self.root.mkdir()
            self.write(1, 2)
            left = iter(range(place))

            def step(name: str, left: Any = left) -> None:
                if next(left, None) is None:
                    raise Killed

            tables = self.tables()
            tables.load(self.path)
            try:
                tables.replace(self.path, self.table(3), journal=3, step=step)
            except Killed:
                pass
            self.flip()
            source, number, journal = self.found()
            self.assertEqual(source, Source.BACKUP, place)
            self.assertEqual(number, (journal or 0) * 1000)

    def test_disk_full(self) -> None:
        """A write that fails changes nothing of what is known, however often it is tried."""
        self.write(1, 2)
        tables = self.tables()
        tables.load(self.path)
        real = json_table.replace_text

        def full(path: Path, data: bytes, step: Any = None) -> None:
            if path == self.path:
                raise DiskFull(str(path), len(data))
            real(path, data, step)

        patched = self.patch(json_table, "replace_text", full)
        for number in range(3, 13):
            with self.assertRaises(DiskFull):
                tables.replace(self.path, self.table(number), journal=number)
        patched.restore()
        tables.settle()
        self.assertEqual(self.found(), (Source.PRESENT, 2000, 2))
        self.assertEqual(tables.replace(self.path, self.table(20), journal=20), 2)
        self.flip()
        self.assertEqual(self.found(), (Source.BACKUP, 2000, 2))
