"""The files of a log, by name and size."""

from __future__ import annotations

from pathlib import Path

from lab.harness import golden
from rmqha.logfiles.listing import in_folder, list_log
from rmqha.logfiles.log_files import LogFiles, first_stored
from rmqha.logfiles.offline_log import OfflineLog
from tests.support.logs import FILE_SIZE, LogTestCase, content
from tests.wire.records import PLAIN, stored

#: A log of three files and a bit.
SIZES = ((700, 1500, 900, 600) * 3) + (700,)


class PartialTests(LogTestCase):
    """Files that an archive's receiver has not finished."""

    def setUp(self) -> None:
        """A log whose last file is not finished."""
        self.root = self.folder()
        self.commitlog = self.root / "commitlog"
        log = self.filled(*SIZES, folder=self.commitlog)
        self.content, self.end = content(log), log.end
        self.last = self.commitlog / f"{3 * FILE_SIZE:020d}"
        self.last.rename(self.partial(self.last))

    def partial(self, path: Path) -> Path:
        """Its name while it is not finished."""
        return path.with_name(path.name + ".partial")

    def test_listed(self) -> None:
        """They are files of the log, and no strays."""
        listed = list_log(self.commitlog)
        self.assertEqual(list(listed.sizes), [n * FILE_SIZE for n in range(4)])
        self.assertEqual((listed.partial, listed.strays), (frozenset({3 * FILE_SIZE}), ()))
        self.assertEqual(listed.name(3 * FILE_SIZE), self.last.name + ".partial")
        self.assertEqual(in_folder(self.commitlog).findings, ())

    def test_read(self) -> None:
        """The log is read to its end, by offline tools and by Spark's readers."""
        log = OfflineLog(self.root)
        self.addCleanup(log.close)
        self.assertEqual((log.end, content(log)), (self.end, self.content))
        self.assertEqual(LogFiles.find(self.root).files[-1].path, self.partial(self.last))

    def test_alone(self) -> None:
        """A folder that has nothing else is the beginning of a log."""
        first = golden.store(golden.VERSIONS[0], "ipv6") / "commitlog" / f"{0:020d}"
        folder = self.folder()
        first.rename(self.partial(folder / first.name))
        self.assertGreater(OfflineLog(folder).end, 0)

    def test_twice(self) -> None:
        """Beside the finished file of the same name it is a stray."""
        self.last.touch()
        self.assertEqual(list_log(self.commitlog).strays, (self.last.name + ".partial",))

    def test_unbegun(self) -> None:
        """One of no bytes is not begun."""
        self.partial(self.last).write_bytes(b"")
        listed = list_log(self.commitlog)
        self.assertEqual(listed.unbegun, 3 * FILE_SIZE)
        self.assertEqual(listed.name(3 * FILE_SIZE), self.last.name + ".partial")


class FirstStoredTests(LogTestCase):
    def test_files(self) -> None:
        """A file that is gone leaves it to the next one, but not one that cannot be read: its
        records are older.
        """
        folder = self.folder()
        whole, gone, unreadable = folder / "whole", folder / "gone", folder / "folder"
        whole.write_bytes(stored(PLAIN, store_timestamp=17))
        unreadable.mkdir()
        self.assertEqual(first_stored([(gone, 0), (whole, 0)]), 17)
        self.assertIsNone(first_stored([(unreadable, 0), (whole, 0)]))
