"""Tests for L{rmqha.logfiles.blocks}: reads that leave the page cache as it was, and their pace."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from rmqha.logfiles.blocks import blocks as blocks_of
from rmqha.logfiles.blocks.blocks import PIECE, Blocks, KindReads
from rmqha.logfiles.blocks.open_file import OpenLocalFile

SIZE = 4 * PIECE + 12_345


class KindReadsTests(SynchronousTestCase):
    """What comes is what is in the file, and what stays cached is what was."""

    def setUp(self) -> None:
        self.data = os.urandom(SIZE)
        path = Path(self.mktemp())
        path.write_bytes(self.data)
        self.fd = os.open(path, os.O_RDWR)
        self.addCleanup(os.close, self.fd)
        os.fsync(self.fd)

    def read(self, reads: KindReads, start: int = 0, stop: int = SIZE) -> bytes:
        """A part of the file, block by block."""
        self.patch(blocks_of, "BLOCK", 3 * PIECE)
        blocks, found, used = (
            Blocks(partial(reads, OpenLocalFile(self.fd)), 0, start, stop),
            b"",
            0,
        )
        while blocks.more(used):
            found += blocks.view
            used = len(blocks.view)
        return found

    def drop(self) -> None:
        """Take the file out of the page cache."""
        # A kernel that is busy with a page passes it over: what is left is dropped the next time.
        for _ in range(20):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not any(self.cached(place) for place in range(0, SIZE, PIECE // 2)):
                return
        raise SkipTest("this file system keeps its pages")

    def cached(self, place: int) -> bool:
        """Whether a byte is in the page cache; looking does not bring it there."""
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)
        try:
            return os.preadv(self.fd, [bytearray(1)], place, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            # That look began to read the page.
            os.pread(self.fd, 1, place)
            os.posix_fadvise(self.fd, place, 4096, os.POSIX_FADV_DONTNEED)
            return False
        except OSError as error:
            raise SkipTest(f"this file system does not tell: {error}") from error

    def test_dropped_behind(self) -> None:
        """A cold file is cold again when it was read."""
        self.drop()
        self.assertEqual(self.data, self.read(KindReads()))
        places = range(0, 4 * PIECE, PIECE // 2)
        self.assertEqual([], [place for place in places if self.cached(place)])

    def test_hot_stays(self) -> None:
        """What was cached before is read from there and stays."""
        self.drop()
        for place in range(2 * PIECE, 3 * PIECE, 1 << 16):
            os.pread(self.fd, 1 << 16, place)
        self.assertEqual(self.data, self.read(KindReads()))
        self.assertTrue(self.cached(2 * PIECE))
        self.assertTrue(self.cached(3 * PIECE - 4096))
        self.assertFalse(self.cached(PIECE))

    def test_kept(self) -> None:
        """On demand all of it stays."""
        self.drop()
        self.assertEqual(self.data, self.read(KindReads(keep=True)))
        self.assertTrue(all(self.cached(place) for place in range(0, SIZE, PIECE)))

    def test_part(self) -> None:
        """A part that begins and ends anywhere is that part."""
        for keep in (False, True):
            found = self.read(KindReads(keep=keep), 777, SIZE - 999)
            self.assertEqual(self.data[777 : SIZE - 999], found)

    def test_file_system_that_cannot_tell(self) -> None:
        """Where the kernel does not tell what is cached, files are read as usual."""
        real = os.preadv

        def without(fd: int, views: list[memoryview], place: int, flags: int = 0) -> int:
            if flags:
                raise OSError(95, "Operation not supported")
            return real(fd, views, place)

        self.patch(os, "preadv", without)
        self.assertEqual(self.data, self.read(KindReads()))

    def test_pace(self) -> None:
        """No second sees more bytes than allowed."""
        clock = Clock()
        reads = KindReads(rate=PIECE, clock=clock.seconds, sleep=clock.advance)
        self.assertEqual(self.data, self.read(reads))
        self.assertAlmostEqual(SIZE / PIECE, clock.seconds(), 3)
