"""
Tests for L{rmqha.store.files.descriptors}.
"""

from __future__ import annotations

import errno
import os
from unittest.mock import patch

from rmqha.errors import DiskFull, FlushFailed
from rmqha.store.files.descriptors import Descriptors
from tests.support.derived import DerivedTestCase


class DescriptorsTests(DerivedTestCase):
    def setUp(self) -> None:
        self.root = self.folder()
        self.descriptors = Descriptors(limit=3)
        self.addCleanup(self.descriptors.close)

    def path(self, number: int) -> str:
        return str(self.root / "a" / "b" / f"{number}")

    def test_never_more_open_than_allowed(self) -> None:
        """
        The files used longest ago are closed, and opened again when needed.
        """
        for number in range(10):
            self.descriptors.create(self.path(number), 100)
            self.descriptors.write(self.path(number), bytes([number]), 5)
        self.assertEqual(self.descriptors.opened, 3)
        for number in range(10):
            self.assertEqual(self.descriptors.read(self.path(number), 3, 5), bytes([number, 0, 0]))
        self.assertEqual(self.descriptors.opened, 3)

    def test_new_files_are_sparse_and_full_size(self) -> None:
        """
        A new file has its whole size and no blocks.
        """
        self.descriptors.create(self.path(0), 1 << 24)
        found = os.stat(self.path(0))
        self.assertEqual((found.st_size, found.st_blocks), (1 << 24, 0))

    def test_full_disk(self) -> None:
        """
        A write the disk has no room for is an error with path and size.
        """
        self.descriptors.create(self.path(0), 100)
        no_space = OSError(errno.ENOSPC, "full")
        with patch("os.pwrite", side_effect=no_space):
            error = self.assertRaises(DiskFull, self.descriptors.write, self.path(0), b"12345", 0)
        self.assertEqual((error.path, error.wanted), (self.path(0), 5))

    def test_short_writes_are_finished(self) -> None:
        """
        A write that takes only a part is gone on with.
        """
        self.descriptors.create(self.path(0), 100)
        whole = os.pwrite

        def short(fd: int, data: bytes, offset: int) -> int:
            return whole(fd, bytes(data)[:2], offset)

        with patch("os.pwrite", side_effect=short):
            self.descriptors.write(self.path(0), b"12345", 1)
        self.assertEqual(self.descriptors.read(self.path(0), 6, 0), b"\x0012345")

    def test_flush_once(self) -> None:
        """
        What was written is synced once, also when it is closed already.
        """
        for number in range(5):
            self.descriptors.create(self.path(number), 100)
        self.assertEqual(self.descriptors.flush(), 5)
        self.assertEqual(self.descriptors.flush(), 0)
        self.descriptors.write(self.path(2), b"x", 0)
        self.descriptors.remove(self.path(3))
        self.assertEqual(self.descriptors.flush(), 1)

    def test_flush_fails(self) -> None:
        """
        An fsync that fails is told with its file.
        """
        self.descriptors.create(self.path(0), 100)
        with patch("os.fdatasync", side_effect=OSError(errno.EIO, "x")):
            error = self.assertRaises(FlushFailed, self.descriptors.flush)
        self.assertEqual(error.path, self.path(0))

    def test_read_only(self) -> None:
        """
        For reading only, files are opened for reading only.
        """
        self.descriptors.create(self.path(0), 100)
        reader = Descriptors(read_only=True)
        self.addCleanup(reader.close)
        self.assertEqual(reader.read(self.path(0), 2, 0), b"\0\0")
        self.assertRaises(OSError, reader.write, self.path(0), b"x", 0)
