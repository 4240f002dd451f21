"""Tests for L{rmqha.store.files.uncached}: reading without a trace in the page cache."""

from __future__ import annotations

import errno
import mmap
import os
import random
from pathlib import Path

from rmqha.store.files import uncached
from rmqha.store.files.uncached import PAGE, UncachedFile, resident
from tests.support.logs import LogTestCase

PAGES = 64
SIZE = PAGES * PAGE


class UncachedTests(LogTestCase):
    """A file of 64 pages, of which some are in the page cache."""

    def setUp(self) -> None:
        """Write it; C{folder} has patched C{fsync}, so it is synced here."""
        self.data = random.Random(5).randbytes(SIZE)
        self.path = self.folder() / "file"
        self.path.write_bytes(self.data)
        with open(self.path, "rb") as file:
            os.fdatasync(file.fileno())

    def cached(self, *pages: int) -> bytes:
        """Leave only some pages in the cache, and return which are, as L{resident} says."""
        with open(self.path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for page in pages:
                os.pread(file.fileno(), PAGE, page * PAGE)
        return self.pages()

    def pages(self) -> bytes:
        with open(self.path, "rb") as file:
            return bytes(each & 1 for each in resident(file.fileno(), 0, SIZE))

    def read(self, file: UncachedFile, start: int, size: int) -> bytes:
        room = memoryview(mmap.mmap(-1, size))
        return bytes(room[: file.read(room, start)])

    def assert_left_alone(self, path: Path, *, direct: bool) -> None:
        """The bytes come, and the cache is as it was."""
        before = self.cached(3, 4, 20)
        if before.count(1) != 3:
            self.skipTest("the file system keeps all of it in memory")
        file = UncachedFile(path, direct=direct)
        self.addCleanup(file.close)
        self.assertEqual(self.read(file, 0, SIZE), self.data)
        self.assertEqual(self.read(file, 8 * PAGE, 4 * PAGE), self.data[8 * PAGE : 12 * PAGE])
        self.assertEqual(self.pages(), before)

    def test_direct(self) -> None:
        """Past the cache."""
        self.assert_left_alone(self.path, direct=True)

    def test_buffered(self) -> None:
        """Through the cache, where the file system knows no other way."""
        self.assert_left_alone(self.path, direct=False)

    def test_refused(self) -> None:
        """Where C{O_DIRECT} is refused at the opening, or at the first read, it goes without."""
        real_open, real_preadv = os.open, os.preadv

        def opening(path: str, flags: int, *more: int) -> int:
            if flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, "no")
            return real_open(path, flags, *more)

        patched = self.patch(uncached.os, "open", opening)
        file = UncachedFile(self.path)
        self.assertFalse(file.direct)
        self.assertEqual(self.read(file, 0, SIZE), self.data)
        file.close()
        patched.restore()
        file = UncachedFile(self.path)
        refusals = [OSError(errno.EINVAL, "no")] if file.direct else []

        def reading(fd: int, rooms: list[memoryview], start: int) -> int:
            if refusals:
                raise refusals.pop()
            return real_preadv(fd, rooms, start)

        self.patch(uncached.os, "preadv", reading)
        self.assertEqual(self.read(file, 0, SIZE), self.data)
        self.assertFalse(file.direct)
        file.close()

    def test_end(self) -> None:
        """A file that ends within the room gives what it has, either way."""
        os.truncate(self.path, SIZE - 1000)
        for direct in (True, False):
            file = UncachedFile(self.path, direct=direct)
            self.assertEqual(self.read(file, 60 * PAGE, 8 * PAGE), self.data[60 * PAGE : -1000])
            self.assertEqual(self.read(file, 70 * PAGE, PAGE), b"")
            file.close()
            file.close()

    def test_dirty(self) -> None:
        """What was written and is not on the disk yet is read too."""
        with open(self.path, "r+b") as file:
            file.seek(5 * PAGE + 7)
            file.write(b"new")
        reader = UncachedFile(self.path)
        self.assertEqual(self.read(reader, 5 * PAGE, PAGE)[7:10], b"new")
        reader.close()

    def test_error(self) -> None:
        """Other errors are the caller's."""
        with self.assertRaises(FileNotFoundError):
            UncachedFile(self.path.with_name("none"))
