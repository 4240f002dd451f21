"""A bounded set of open files, written and read by position.

A store may have tens of thousands of consume queue files, more than a process
may keep open or map.  Writes go through C{pwrite}, so a full disk is an error
with a number and never a signal (see docs/architecture.rst, Disk full).

Making a whole file system durable in one call.

One fsync a file costs a round to the disk each: tens of thousands of small files take minutes,
where C{syncfs} writes them out together.  It writes out what others left there too, so it is
for many files only.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import TypeVar

from attrs import define, field

from rmqha.errors import FlushFailed
from rmqha.logfiles.blocks.open_file import opened
from rmqha.store.files.mapped import NO_DESCRIPTOR, create_whole, disk_error, write_all

TELLS_ERRORS = (5, 8)
"""The kernel since which C{syncfs} says that something could not be written."""

_libc = ctypes.CDLL(None, use_errno=True)


def sync_file_systems(paths: Iterable[str]) -> bool:
    """Make the files, and the names, of all file systems durable that some paths are on.  Blocking.

    @param paths: Files and folders; those that are gone need nothing.
    @return: Whether that is certain.  If not, which file it is has to be found out one by one:
        something could not be written, of ours or of others, or the kernel is too old to tell.
    """
    if _kernel() < TELLS_ERRORS:
        return False
    seen: set[int] = set()
    for path in paths:
        try:
            device = os.stat(path).st_dev
            if device not in seen:
                seen.add(device)
                _sync(path)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _kernel() -> tuple[int, int]:
    numbers = os.uname().release.split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (IndexError, ValueError):
        return 0, 0


def _sync(path: str) -> None:
    with opened(path) as fd:
        if _libc.syncfs(fd) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), path)


MOST_OPEN = 8192
"""Most descriptors kept open, where the process may have as many as it likes: the queues of a
thousand topics.  To open a file anew for each unit costs as much again as to write it."""

MANY = 1000
"""Files to flush from which their whole file system is written out instead: a fifth of the time on
a disk where an fsync takes two milliseconds."""

SHARE = 8
"""A process that may open few files keeps so much less of them here: one in eight."""

FEW = 2048
"""Of what it may open beyond so many, it keeps half."""

_T = TypeVar("_T")


def open_limit(files: int) -> int:
    """How many descriptors are kept open by a process that may have C{files} of them."""
    return max(1, min(MOST_OPEN, max(files // SHARE, (files - FEW) // 2)))


@define
class Descriptors:
    """An LRU of file descriptors, keyed by path, that remembers what needs an fsync.

    All methods may be called from any thread; L{flush} is meant for another one.  Where the
    process has no descriptor left, the file used longest ago is closed for the one that is
    wanted: what is kept open here is also what this is sure of.

    @ivar limit: The most descriptors kept open.
    @ivar read_only: Open files for reading only; writing fails then.
    @ivar failure: The fsync that failed, if one did: then none is tried again, as it would
        succeed without the data being there.
    """

    limit: int = field(factory=lambda: open_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    read_only: bool = False
    failure: FlushFailed | None = field(init=False, default=None)
    _open: OrderedDict[str, int] = field(init=False, factory=OrderedDict)
    _dirty: set[str] = field(init=False, factory=set)
    _folders: set[str] = field(init=False, factory=set)
    # See L{use_open}.
    _closed: int = field(init=False, default=0)
    _swept: int = field(init=False, default=0)
    _doomed: dict[str, None] = field(init=False, factory=dict)
    _lock: Lock = field(init=False, factory=Lock)

    @property
    def opened(self) -> int:
        """How many descriptors are open now."""
        return len(self._open)

    def create(self, path: str, size: int) -> None:
        """Make a file of C{size} zero bytes, all of it a hole, with its folders.

        A file left by an attempt that failed is taken over.

        @raise DiskFull: There is no room for the file or its folders, or no descriptor.
        """
        folder = os.path.dirname(path)
        try:
            if not os.path.isdir(folder):
                self._make_folders(folder)
            with self._lock:
                self._doomed.pop(path, None)
                stale = self._take(path)
                if stale is not None:
                    os.close(stale)
                try:
                    self._get(lambda: create_whole(path, size))
                except FileExistsError:
                    os.truncate(path, size)
                self._dirty.add(path)
                self._folders.add(folder)
        except OSError as error:
            raise disk_error(error, path, size) from error

    def write(self, path: str, data: bytes | memoryview, offset: int) -> None:
        """Write all of C{data} at byte C{offset} of the file, or raise.

        @raise DiskFull: There is no room; part of the bytes may be in the file, so
            the caller must not count any of them.
        """
        with self._lock:
            fd = self._descriptor(path)
            self._dirty.add(path)
            try:
                if os.pwrite(fd, data, offset) != len(data):
                    write_all(fd, data, offset)  # says why, or finishes it
            except OSError as error:
                raise disk_error(error, path, len(data)) from error

    def read(self, path: str, size: int, offset: int) -> bytes:
        """Read up to C{size} bytes at byte C{offset}; fewer only at the file's end.

        @raise OutOfDescriptors: The file cannot be opened now.
        """
        return self.use(path, lambda fd: os.pread(fd, size, offset))

    def use(self, path: str, work: Callable[[int], _T]) -> _T:
        """Call C{work} with the file's descriptor, which stays open meanwhile.

        @raise OutOfDescriptors: The file cannot be opened now.
        """
        with self._lock:
            return work(self._descriptor(path))

    def use_open(self, work: Callable[[OrderedDict[str, int], set[str], bool, int, int], _T]) -> _T:
        """Call C{work} with what is open, which stays so meanwhile: descriptors by path, that used
        last at the end; the paths of files that were written since the last flush; whether no more
        may be open, so that the order counts; how often one was closed, and how often such a path
        was forgotten.  While these numbers stay, what it knew of either is so still.
        """
        with self._lock:
            full = len(self._open) >= self.limit
            return work(self._open, self._dirty, full, self._closed, self._swept)

    def touched(self, path: str) -> None:
        """Note that a file was changed past us, through a map."""
        with self._lock:
            self._dirty.add(path)

    def forget(self, path: str) -> None:
        """Close a file that is about to be moved."""
        with self._lock:
            fd = self._take(path)
            self._dirty.discard(path)
            self._swept += 1
        if fd is not None:
            os.close(fd)

    def remove(self, path: str) -> None:
        """Close and delete a file; one that is gone already is fine."""
        self.forget(path)
        Path(path).unlink(missing_ok=True)
        with self._lock:
            self._folders.add(os.path.dirname(path))

    def doom(self, path: str) -> None:
        """Note that a file is no longer wanted: L{remove_doomed} deletes it, unless it is created
        again before.
        """
        with self._lock:
            self._doomed[path] = None

    def remove_doomed(self) -> None:
        """Delete the files that are doomed, in the order in which they were.  Blocking.

        @raise OSError: If one cannot be deleted; the next call goes on behind it.
        """
        while True:
            with self._lock:
                path = next(iter(self._doomed), None)
                if path is None:
                    return
                del self._doomed[path]
                fd = self._take(path)
                if fd is not None:
                    os.close(fd)
                self._dirty.discard(path)
                self._swept += 1
                # With the lock, so that nobody makes it again before it is gone.
                Path(path).unlink(missing_ok=True)
                self._folders.add(os.path.dirname(path))

    def flush(self) -> int:
        """fdatasync every file written since the last call, then the folders that changed; or
        L{MANY} of them in one go.

        @return: How many files were written out.
        @raise FlushFailed: The disk refused; this is final for the store.
        @raise OutOfDescriptors: A file cannot be opened now; the next call goes on.
        """
        if self.failure is not None:
            raise self.failure
        with self._lock:
            dirty, self._dirty = self._dirty, set()
            self._swept += 1
            folders, self._folders = self._folders, set()
        count = len(dirty)
        try:
            if count >= MANY and sync_file_systems((*dirty, *folders)):
                dirty.clear()
                folders.clear()
            for path in sorted(dirty):
                self._sync(path)
                dirty.discard(path)
            for folder in sorted(folders):
                self._sync_folder(folder)
                folders.discard(folder)
        except FlushFailed as error:
            self.failure = error
            raise
        finally:
            with self._lock:
                self._dirty |= dirty
                self._folders |= folders
        return count

    def close(self) -> None:
        """Close everything.  Nothing is flushed by this."""
        with self._lock:
            opened, self._open = self._open, OrderedDict()
            self._closed += 1
        for fd in opened.values():
            os.close(fd)

    def _sync(self, path: str) -> None:
        def duplicate() -> int:
            # It shares the open file description, and with it the errors the kernel has kept for
            # it; and it cannot be closed under us by the LRU.
            descriptor = self._descriptor(path)
            return self._get(lambda: os.dup(descriptor), spare=path)

        self._make_durable(path, duplicate, os.fdatasync)

    def _sync_folder(self, folder: str) -> None:
        mode = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._make_durable(folder, lambda: self._get(lambda: os.open(folder, mode)), os.fsync)

    def _make_durable(
        self, path: str, descriptor: Callable[[], int], sync: Callable[[int], None]
    ) -> None:
        """@param descriptor: Gives one of the file, which is closed again; with the lock."""
        try:
            with self._lock:
                fd = descriptor()
        except FileNotFoundError:
            return  # deleted since it was written
        except OSError as error:
            raise disk_error(error, path, 0) from error
        try:
            sync(fd)
        except OSError as error:
            raise FlushFailed(path, os.strerror(error.errno or 0)) from error
        finally:
            os.close(fd)

    def _descriptor(self, path: str) -> int:
        fd = self._open.get(path)
        if fd is None:
            mode = os.O_RDONLY if self.read_only else os.O_RDWR
            try:
                fd = self._get(lambda: os.open(path, mode | os.O_CLOEXEC))
            except OSError as error:
                if error.errno in NO_DESCRIPTOR:
                    raise disk_error(error, path, 0) from error
                raise
            self._keep(path, fd)
        else:
            self._open.move_to_end(path)
        return fd

    def _get(self, descriptor: Callable[[], _T], spare: str = "") -> _T:
        """Get one more descriptor, if need be for one of ours.

        @param spare: A file that stays open.
        """
        while True:
            try:
                return descriptor()
            except OSError as error:
                oldest = next((path for path in self._open if path != spare), None)
                if error.errno not in NO_DESCRIPTOR or oldest is None:
                    raise
                self._closed += 1
                os.close(self._open.pop(oldest))

    def _take(self, path: str) -> int | None:
        self._closed += 1
        return self._open.pop(path, None)

    def _keep(self, path: str, fd: int) -> None:
        self._open[path] = fd
        while len(self._open) > self.limit:
            self._closed += 1
            os.close(self._open.popitem(last=False)[1])

    def _make_folders(self, folder: str) -> None:
        made = folder
        missing = []
        while not os.path.isdir(made):
            missing.append(made)
            made = os.path.dirname(made)
        os.makedirs(folder, exist_ok=True)
        with self._lock:
            self._folders.update(os.path.dirname(path) for path in missing)
