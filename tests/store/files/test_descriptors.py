"""Tests for L{rmqha.store.files.descriptors}."""

from __future__ import annotations

import errno
import os
from unittest.mock import MagicMock, patch

from rmqha.errors import DiskFull, FlushFailed
from rmqha.store.files import descriptors
from rmqha.store.files.descriptors import Descriptors, open_limit
from rmqha.store.files.mapped import OutOfDescriptors
from tests.support.derived import DerivedTestCase
from tests.support.no_descriptors import NoDescriptors


class DescriptorsTests(DerivedTestCase):
    def setUp(self) -> None:
        self.root = self.folder()
        self.descriptors = Descriptors(limit=3)
        self.addCleanup(self.descriptors.close)

    def path(self, number: int) -> str:
        return str(self.root / "a" / "b" / f"{number}")

    def test_never_more_open_than_allowed(self) -> None:
        """The files used longest ago are closed, and opened again when needed."""
        for number in range(10):
            self.descriptors.create(self.path(number), 100)
            self.descriptors.write(self.path(number), bytes([number]), 5)
        self.assertEqual(self.descriptors.opened, 3)
        for number in range(10):
            self.assertEqual(self.descriptors.read(self.path(number), 3, 5), bytes([number, 0, 0]))
        self.assertEqual(self.descriptors.opened, 3)

    def test_new_files_are_sparse_and_full_size(self) -> None:
        """A new file has its whole size and no blocks."""
        self.descriptors.create(self.path(0), 1 << 24)
        found = os.stat(self.path(0))
        self.assertEqual((found.st_size, found.st_blocks), (1 << 24, 0))

    def test_killed(self) -> None:
        """No kill leaves a file of a size that stock brokers refuse; one there is taken over."""
        whole, seen = os.ftruncate, []

        def ftruncate(fd: int, size: int) -> None:
            seen.append(os.listdir(os.path.dirname(self.path(0))))
            whole(fd, size)

        with patch("os.ftruncate", ftruncate):
            self.descriptors.create(self.path(0), 100)
        self.assertEqual((seen, os.stat(self.path(0)).st_size), ([[]], 100))
        os.truncate(self.path(0), 0)
        self.descriptors.create(self.path(0), 100)
        self.assertEqual(os.stat(self.path(0)).st_size, 100)

    def test_full_disk(self) -> None:
        """A write the disk has no room for is an error with path and size."""
        self.descriptors.create(self.path(0), 100)
        no_space = OSError(errno.ENOSPC, "full")
        with patch("os.pwrite", side_effect=no_space):
            error = self.assertRaises(DiskFull, self.descriptors.write, self.path(0), b"12345", 0)
        self.assertEqual((error.path, error.wanted), (self.path(0), 5))

    def test_short_writes_are_finished(self) -> None:
        """A write that takes only a part is gone on with."""
        self.descriptors.create(self.path(0), 100)
        whole = os.pwrite

        def short(fd: int, data: bytes, offset: int) -> int:
            return whole(fd, bytes(data)[:2], offset)

        with patch("os.pwrite", side_effect=short):
            self.descriptors.write(self.path(0), b"12345", 1)
        self.assertEqual(self.descriptors.read(self.path(0), 6, 0), b"\x0012345")

    def test_flush_once(self) -> None:
        """What was written is synced once, also when it is closed already."""
        for number in range(5):
            self.descriptors.create(self.path(number), 100)
        self.assertEqual((self.descriptors.flush(), self.descriptors.flush()), (5, 0))
        self.descriptors.write(self.path(2), b"x", 0)
        self.descriptors.remove(self.path(3))
        self.assertEqual(self.descriptors.flush(), 1)

    def test_flush_many(self) -> None:
        """Very many files are synced as a file system, in a call; where that fails, each alone."""
        for kernel, code, each in (("6.1.0-13-amd64", 0, 0), ("6.1.0", -1, 4), ("5.4.0", 0, 4)):
            for number in range(5):
                self.descriptors.create(self.path(number), 100)
            os.unlink(self.path(0))
            system = MagicMock(release=kernel)
            with (
                patch.object(descriptors, "MANY", 5),
                patch.object(descriptors, "_libc") as libc,
                patch("os.uname", return_value=system),
                patch("os.fdatasync") as one,
            ):
                libc.syncfs.return_value = code
                self.assertEqual(self.descriptors.flush(), 5)
            self.assertEqual(libc.syncfs.call_count, kernel != "5.4.0")
            self.assertEqual((one.call_count, self.descriptors.flush()), (each, 0))

    def test_syncfs(self) -> None:
        """The real call is there, and says that it went well."""
        path = self.root / "file"
        path.write_bytes(b"x")
        self.assertTrue(descriptors.sync_file_systems([str(path), str(path) + "-gone"]))

    def test_flush_fails(self) -> None:
        """An fsync that fails is told with its file."""
        self.descriptors.create(self.path(0), 100)
        with patch("os.fdatasync", side_effect=OSError(errno.EIO, "x")):
            error = self.assertRaises(FlushFailed, self.descriptors.flush)
        self.assertEqual(error.path, self.path(0))

    def test_read_only(self) -> None:
        """For reading only, files are opened for reading only."""
        self.descriptors.create(self.path(0), 100)
        reader = Descriptors(read_only=True)
        self.addCleanup(reader.close)
        self.assertEqual(reader.read(self.path(0), 2, 0), b"\0\0")
        self.assertRaises(OSError, reader.write, self.path(0), b"x", 0)


class NoDescriptorTests(DerivedTestCase):
    """Others have taken all file descriptors of the process."""

    def setUp(self) -> None:
        self.root = self.folder()
        self.descriptors = Descriptors(limit=3)
        self.addCleanup(self.descriptors.close)
        self.none = NoDescriptors().install(self)

    def path(self, number: int) -> str:
        return str(self.root / f"{number}")

    def test_the_one_used_longest_ago_is_given_up(self) -> None:
        """A file is opened, or made, for one that is open here."""
        for number in range(3):
            self.descriptors.create(self.path(number), 100)
            self.descriptors.write(self.path(number), b"x", 0)
        self.none.left = 0
        self.descriptors.create(self.path(3), 100)
        self.descriptors.write(self.path(0), b"x", 0)
        self.assertEqual(self.descriptors.read(self.path(1), 1, 0), b"x")

    def test_nothing_to_give_up(self) -> None:
        """With no file open here it is an error that may pass, and no other."""
        self.descriptors.create(self.path(0), 100)
        self.descriptors.forget(self.path(0))
        self.none.left = 0
        self.assertRaises(OutOfDescriptors, self.descriptors.write, self.path(0), b"x", 0)
        self.assertRaises(OutOfDescriptors, self.descriptors.read, self.path(0), 1, 0)
        self.assertRaises(OutOfDescriptors, self.descriptors.create, self.path(1), 100)
        self.none.left = 1000
        self.descriptors.write(self.path(0), b"x", 0)

    def test_a_flush_goes_on_where_it_was(self) -> None:
        """What a flush could not open is still to be flushed: the next one does."""
        with patch("os.fdatasync"), patch("os.fsync"):
            self.descriptors.create(self.path(0), 100)
            self.descriptors.flush()
            self.descriptors.write(self.path(0), b"x", 0)
            self.none.left = 0
            self.assertRaises(OutOfDescriptors, self.descriptors.flush)
            self.none.left = 1000
            self.assertEqual((self.descriptors.flush(), self.descriptors.flush()), (1, 0))

    def test_a_folder_too(self) -> None:
        """The same for a folder whose names are to be durable."""
        with patch("os.fdatasync"), patch("os.fsync") as fsync:
            self.descriptors.create(self.path(0), 100)
            self.descriptors.remove(self.path(0))
            self.none.left = 0
            self.assertRaises(OutOfDescriptors, self.descriptors.flush)
            fsync.assert_not_called()
            self.none.left = 1000
            self.descriptors.flush()
            fsync.assert_called_once()

    def test_a_failed_fsync_is_final(self) -> None:
        """Asking again would succeed without the data being there, so it is not asked."""
        self.descriptors.create(self.path(0), 100)
        with patch("os.fdatasync", side_effect=OSError(errno.EIO, "I/O error")):
            self.assertRaises(FlushFailed, self.descriptors.flush)
        self.assertRaises(FlushFailed, self.descriptors.flush)

    def test_few_files(self) -> None:
        """A process that may open few files keeps few of them here."""
        self.assertEqual([open_limit(n) for n in (4, 120, 1024, 1 << 20)], [1, 15, 128, 8192])
        self.assertEqual([open_limit(n) for n in (2048, 4096, 20_000)], [256, 1024, 8192])
