"""Tests for L{rmqha.store.files.mapped}: names, allocation, zeroing, deletion."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rmqha.errors import DiskFull, FlushFailed
from rmqha.logfiles.listing import file_name
from rmqha.store.files import mapped
from rmqha.store.files.allocate import Allocator
from rmqha.store.files.mapped import (
    ArchiveNotAStore,
    BrokenSequence,
    FileSizeMismatch,
    LogFolder,
    MappedFile,
    OutOfDescriptors,
    zero_range,
)
from tests.support.ha_frames import append_frame
from tests.support.logs import Disk, Held, LogTestCase

SIZE = 1 << 16


class LoadTests(LogTestCase):
    def made(self, *starts: int, size: int = SIZE) -> Path:
        folder = self.folder()
        for start in starts:
            MappedFile.create(folder, start, size).close()
        return folder

    def test_missing(self) -> None:
        """A folder that is not there is an empty log."""
        self.assertEqual(LogFolder.load(self.folder() / "none", SIZE).files, [])

    def test_in_order(self) -> None:
        """Files are in the order of their offsets, wherever the first one starts."""
        folder = LogFolder.load(self.made(3 * SIZE, SIZE, 2 * SIZE), SIZE)
        self.assertEqual([file.start for file in folder.files], [SIZE, 2 * SIZE, 3 * SIZE])
        self.assertEqual(folder.at(2 * SIZE - 1).start, SIZE)
        self.assertEqual(folder.at(2 * SIZE).start, 2 * SIZE)
        for outside in (SIZE - 1, 4 * SIZE):
            with self.assertRaises(ValueError):
                folder.at(outside)

    def test_strays(self) -> None:
        """Other names, folders too, are reported and not touched."""
        path = self.made(0)
        names = ["0", "00000000000000065536.bak", "lost+found", "٠" * 20]
        for name in names[:2] + names[3:]:
            (path / name).write_bytes(b"x")
        (path / names[2]).mkdir()
        folder = LogFolder.load(path, SIZE)
        self.assertEqual(sorted(folder.strays), sorted(names))
        self.assertEqual(len(folder.files), 1)
        self.assertTrue(all((path / name).exists() for name in names))

    def test_wrong_size(self) -> None:
        """A file of another size is named with both sizes."""
        path = self.made(0, SIZE)
        os.truncate(path / file_name(0), SIZE - 1)
        with self.assertRaises(FileSizeMismatch) as caught:
            LogFolder.load(path, SIZE)
        self.assertEqual(
            str(caught.exception), str(FileSizeMismatch(str(path / file_name(0)), SIZE - 1, SIZE))
        )

    def test_missing_between(self) -> None:
        """A file that is missing is named by what should be there."""
        path = self.made(0, 2 * SIZE)
        with self.assertRaises(BrokenSequence) as caught:
            LogFolder.load(path, SIZE)
        self.assertEqual(
            str(caught.exception),
            str(BrokenSequence(str(path / file_name(2 * SIZE)), SIZE, 2 * SIZE)),
        )

    def test_empty_last(self) -> None:
        """A last file of no bytes is what a crash left of a roll; one in between is damage."""
        path = self.made(0)
        (path / file_name(SIZE)).touch()
        self.assertEqual(len(LogFolder.load(path, SIZE).files), 1)
        self.assertFalse((path / file_name(SIZE)).exists())
        MappedFile.create(path, SIZE, SIZE).close()
        os.truncate(path / file_name(0), 0)
        with self.assertRaises(FileSizeMismatch):
            LogFolder.load(path, SIZE)

    def test_unfinished(self) -> None:
        """A node does not start on an archive: it would leave out what is at its end."""
        path = self.made(0, SIZE)
        for start in (SIZE, 0):
            (path / file_name(start)).rename(path / (file_name(start) + ".partial"))
            with self.assertRaises(ArchiveNotAStore) as caught:
                LogFolder.load(path, SIZE)
        self.assertEqual(
            str(caught.exception), str(ArchiveNotAStore(str(path / f"{0:020d}.partial"), 2))
        )
        self.assertIn("and 1 more is not finished: this is an archive", str(caught.exception))

    def test_archive(self) -> None:
        """Who receives one finds its unfinished files, and makes more of them."""
        path = self.made(0, SIZE)
        (path / file_name(SIZE)).rename(path / (file_name(SIZE) + ".partial"))
        folder = LogFolder.load(path, SIZE, partial=True)
        folder.create_next(2 * SIZE)
        names = [f"{0:020d}", f"{SIZE:020d}.partial", f"{2 * SIZE:020d}.partial"]
        self.assertEqual([file.path.name for file in folder.files], names)
        self.assertEqual(sorted(found.name for found in path.iterdir()), names)


class CreateTests(LogTestCase):
    def test_full_size_at_once(self) -> None:
        """A new file has its size and is all zero."""
        folder = LogFolder(self.folder() / "a" / "commitlog", SIZE)
        file = folder.create_next(3 * SIZE + 5)
        self.assertEqual((file.start, file.end), (3 * SIZE, 4 * SIZE))
        self.assertEqual(file.path.read_bytes(), bytes(SIZE))
        self.assertEqual(folder.create_next(0).start, 4 * SIZE)

    def test_no_room_leaves_nothing(self) -> None:
        """When the disk is full no empty file stays behind, and it works later."""
        folder = LogFolder(self.folder(), SIZE)
        real = os.ftruncate
        full = True

        def ftruncate(fd: int, size: int) -> None:
            if full:
                raise OSError(errno.ENOSPC, "full")
            real(fd, size)

        self.patch(mapped.os, "ftruncate", ftruncate)
        self.assertRaises(DiskFull, folder.create_next, 0)
        self.assertEqual((list(folder.path.iterdir()), folder.files), ([], []))
        full = False
        folder.create_next(0)

    def test_killed(self) -> None:
        """No kill leaves a file of a size that stock brokers refuse: it comes before the name."""
        folder = LogFolder(self.folder(), SIZE)
        real, seen = os.ftruncate, []

        def ftruncate(fd: int, size: int) -> None:
            seen.append(list(folder.path.iterdir()))
            real(fd, size)

        self.patch(mapped.os, "ftruncate", ftruncate)
        file = folder.create_next(0)
        self.addCleanup(folder.close)
        self.assertEqual((seen, file.path.stat().st_size), ([[]], SIZE))

    def test_name_first(self) -> None:
        """Where no file can be without a name it has one at once, but for one that gets no size."""
        folder = LogFolder(self.folder(), SIZE)
        self.addCleanup(folder.close)
        real, truncate = os.open, os.ftruncate
        room = [False, True]

        def opening(path: object, flags: int, *arguments: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "not supported")
            return real(path, flags, *arguments)  # type: ignore[arg-type]

        def ftruncate(fd: int, size: int) -> None:
            if not room.pop(0):
                raise OSError(errno.ENOSPC, "full")
            truncate(fd, size)

        self.patch(mapped.os, "open", opening)
        self.patch(mapped.os, "ftruncate", ftruncate)
        self.assertRaises(DiskFull, folder.create_next, 0)
        self.assertEqual(list(folder.path.iterdir()), [])
        self.assertEqual(folder.create_next(0).path.stat().st_size, SIZE)

    def test_no_descriptor(self) -> None:
        """Without a descriptor nothing stays behind or has failed for good: it works later."""
        folder = LogFolder(self.folder(), SIZE)
        real = os.open
        fails: list[bool] = []

        def opening(path: object, *arguments: Any, **more: Any) -> int:
            if fails and fails.pop(0):
                raise OSError(errno.EMFILE, "too many open files")
            return real(path, *arguments, **more)  # type: ignore[arg-type]

        self.patch(mapped.os, "open", opening)
        for fails[:] in ([True], [False, True]):
            self.assertRaises(OutOfDescriptors, folder.create_next, 0)
            self.assertEqual((list(folder.path.iterdir()), folder.files), ([], []))
        folder.create_next(0)

    def test_name_not_durable(self) -> None:
        """A name that cannot be made durable is no file of the log."""
        folder = LogFolder(self.folder(), SIZE)
        real = mapped.fsync_folder
        bad = True

        def sync(path: Path) -> None:
            if bad:
                raise OSError(errno.EIO, "I/O error")
            real(path)

        self.patch(mapped, "fsync_folder", sync)
        self.assertRaises(FlushFailed, folder.create_next, 0)
        self.assertEqual((list(folder.path.iterdir()), folder.files), ([], []))
        bad = False
        folder.create_next(0)


class AllocateTests(LogTestCase):
    """Blocks behind what is stored through the map."""

    def setUp(self) -> None:
        self.disk = Disk().install(self)
        self.file = MappedFile.create(self.folder(), 0, SIZE)
        self.addCleanup(self.file.close)

    def test_only_what_is_missing(self) -> None:
        """Blocks are asked for once, and never beyond the file."""
        for upto in (100, 50, SIZE + 1, SIZE):
            self.file.allocate(upto)
        self.assertEqual((self.disk.asked, self.file.allocated), ([4096, SIZE - 4096], SIZE))

    def test_whole_pages(self) -> None:
        """The whole page gets blocks: where they are smaller, one byte stored through a map would
        otherwise end the process on a full disk.
        """
        self.file.allocate(4097)
        self.assertEqual((self.file.allocated, self.disk.asked), (8192, [8192]))

    def test_prefault_spares_what_is_written(self) -> None:
        """Zeros go only where nothing was allocated before."""
        self.file.allocate(1000)
        self.file.view[:1000] = b"x" * 1000
        self.file.allocate(SIZE, prefault=True)
        self.assertEqual(self.file.path.read_bytes(), b"x" * 1000 + bytes(SIZE - 1000))

    def test_full(self) -> None:
        """Without room nothing is counted as allocated."""
        self.disk.full = True
        error = self.assertRaises(DiskFull, self.file.allocate, 500)
        self.assertEqual((error.wanted, self.file.allocated), (4096, 0))

    def test_not_after_close(self) -> None:
        """A thread that allocates ahead never writes into a file somebody else may have."""
        held = Held()
        log = self.log(file_size=SIZE)
        log.allocator.in_thread, log.allocator.step = held, 100
        append_frame(log, 0, b"x" * 100)
        file = log.folder.files[0]
        log.folder.close()
        file.path.write_bytes(b"y" * SIZE)
        held.work()
        self.assertEqual(file.path.read_bytes(), b"y" * SIZE)

    def test_smaller_step(self) -> None:
        """When a whole step does not fit what is needed may."""
        real = mapped.os.posix_fallocate

        def fallocate(fd: int, start: int, size: int) -> None:
            if size > 4096:
                raise OSError(errno.ENOSPC, "full")
            real(fd, start, size)

        self.patch(mapped.os, "posix_fallocate", fallocate)
        Allocator(step=1 << 14).ensure(self.file, 900)
        self.assertEqual(self.file.allocated, 4096)

    def test_ahead(self) -> None:
        """One thread at a time fills the window, again when half of it is used."""
        held = Held()
        allocator = Allocator(held, window=3 * 4096, step=1024)
        allocator.ensure(self.file, 10)
        allocator.ensure(self.file, 20)
        self.assertEqual(len(held.calls), 1)
        held.work()
        self.assertEqual(self.file.allocated, 4 * 4096)
        allocator.ensure(self.file, 5000)
        self.assertEqual(held.calls, [])
        allocator.ensure(self.file, 11_000)
        held.work()
        self.assertEqual(self.file.allocated, 6 * 4096)

    def test_ahead_fails_quietly_on_a_full_disk(self) -> None:
        """No room ahead is no error yet; anything else is logged, and asked for again."""
        held = Held()
        allocator = Allocator(held, window=3 * 4096, step=1024)
        allocator.ensure(self.file, 10)
        self.disk.full = True
        held.work()
        allocator.ensure(self.file, 20)
        self.disk.full = False

        def broken(fd: int, start: int, size: int) -> None:
            raise OSError(errno.EIO, "broken")

        self.patch(mapped.os, "posix_fallocate", broken)
        held.work()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)


class ZeroTests(LogTestCase):
    """Zeroing touches what is not zero."""

    @given(
        st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, 9000)), max_size=5),
        st.integers(0, SIZE),
        st.integers(0, SIZE),
    )
    def test_range(self, written: list[tuple[int, int]], low: int, high: int) -> None:
        """Just the range is zero afterwards, holes or not."""
        low, high = sorted((low, high))
        path = self.folder() / "file"
        expected = bytearray(SIZE)
        with open(path, "xb+") as file:
            file.truncate(SIZE)
            for start, size in written:
                data = b"z" * min(size, SIZE - start)
                os.pwrite(file.fileno(), data, start)
                expected[start : start + len(data)] = data
            zero_range(file.fileno(), low, high)
        expected[low:high] = bytes(high - low)
        self.assertEqual(path.read_bytes(), expected)

    def test_many_megabytes(self) -> None:
        """Pieces of a large file are put together rightly."""
        size = (5 << 19) + 77
        path = self.folder() / "file"
        path.write_bytes(b"z" * size)
        with open(path, "rb+") as file:
            self.assertEqual(zero_range(file.fileno(), 5, size - 3), size - 8)
            os.pwrite(file.fileno(), bytes(3), size - 3)
        self.assertEqual(path.read_bytes(), b"z" * 5 + bytes(size - 5))

    def test_file_system_without_holes(self) -> None:
        """Where nobody can tell holes from data all is looked at."""
        path = self.folder() / "file"
        path.write_bytes(b"z" * 100)

        def lseek(*args: Any) -> int:
            raise OSError(errno.EINVAL, "no")

        self.patch(mapped.os, "lseek", lseek)
        with open(path, "rb+") as file:
            zero_range(file.fileno(), 10, 100)
        self.assertEqual(path.read_bytes(), b"z" * 10 + bytes(90))


class RemoveTests(LogTestCase):
    def test_views_live_on(self) -> None:
        """Whoever holds a view goes on reading; the mapping goes with the last one."""
        file = MappedFile.create(self.folder(), 0, SIZE)
        file.allocate(10)
        file.view[:4] = b"abcd"
        part = file.view[:4].toreadonly()
        reference = file.map_ref()
        assert reference is not None
        self.assertEqual(file.remove(), SIZE)
        self.assertFalse(file.path.exists())
        self.assertEqual(bytes(part), b"abcd")
        self.assertIsNotNone(reference())
        del part
        self.assertIsNone(reference())

    def test_not_mapped(self) -> None:
        """A file nobody read has no mapping to wait for; deleting twice is no error."""
        file = MappedFile.create(self.folder(), 0, SIZE)
        self.assertIsNone(file.map_ref())
        file.remove()
        file.remove()

    def test_behind(self) -> None:
        """Files behind an end go, last to first; the one that starts there stays."""
        folder = LogFolder(self.folder(), SIZE)
        for _ in range(4):
            folder.create_next(0)
        self.assertEqual(folder.drop_behind(SIZE), 2 * SIZE)
        self.assertEqual([file.start for file in folder.files], [0, SIZE])
        self.assertEqual(len(list(folder.path.iterdir())), 2)
