"""The files of the commit log: named by their first byte, all of one size, mapped.

Three facts about Linux shape this module (docs/architecture.rst, Mapped files):

  - a store through a map into a page of which the disk does not have every block
    kills the process with SIGBUS, so whole pages get blocks before anything is
    written to them, in files that a stock broker made sparse too;
  - the first touch of a fresh page through a map is slow and done by the
    reactor, so a thread makes the pages ahead of the end present;
  - C{mmap.close} fails while a view lives, and truncating a mapped file makes
    reads fatal, so a map is only ever dropped, and a cut is made by zeroing.

Source of names and sizes: docs/protocol/store.rst, Files.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from pathlib import Path
from threading import Lock
from typing import Self, cast

from attrs import define, field
from twisted.python.failure import Failure

from rmqha.errors import DiskFull, FileUnreadable, FlushFailed, StoreError
from rmqha.logfiles.blocks.open_file import data_extents, opened
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.listing import LOG_NAME, file_name, list_log
from rmqha.reserve import NO_SPACE
from rmqha.store.files.pages import page_end, populate
from rmqha.wire.store_layout import PARTIAL_SUFFIX

_ZEROS = bytes(1 << 20)

NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What C{open} and C{dup} fail with when others have taken all there is.  Nothing was written
then, so nothing is lost: it is tried again."""


class OutOfDescriptors(DiskFull):
    """The process, or the machine, has no file descriptor left for the next step of the log.  As
    with a full disk nothing is lost and it may pass: writes are refused until there is one again.
    """

    sentence = "no file descriptor left to open {path}"


class ArchiveNotAStore(StoreError):
    """A node, or a command that changes stores, was given an archive, or what an interrupted
    restore left.

    @ivar path: The first log file that is not finished.
    """

    path: str
    files: int

    def __str__(self) -> str:
        more = f" and {self.files - 1} more" if self.files > 1 else ""
        return (
            f"{self.path}{more} is not finished: this is an archive, or an interrupted restore; "
            "rmqha restore makes a store of an archive"
        )


class BrokenSequence(StoreError):
    """The files of the log do not follow one another."""

    sentence = "{path} starts at byte {found}, the file before it ends at {expected}"
    path: str
    expected: int
    found: int


class FileSizeMismatch(StoreError):
    """A mapped file on disk has not the configured size."""

    sentence = "{path} has {found} bytes, mappedFileSizeCommitLog is {configured}"
    path: str
    found: int
    configured: int


def disk_error(error: OSError, path: str, wanted: int) -> Exception:
    """What an error of the disk is called here.

    @param wanted: Bytes that C{path} was to grow by.
    @return: L{DiskFull} or L{OutOfDescriptors} for what may pass, else the error itself.
    """
    if error.errno in NO_SPACE:
        return DiskFull(path, wanted)
    if error.errno in NO_DESCRIPTOR:
        return OutOfDescriptors(path, wanted)
    return error


def none_left(error: object) -> bool:
    """Whether an error says that there is no descriptor, so that the same may work later."""
    if isinstance(error, (OSError, FileUnreadable)):
        return error.errno in NO_DESCRIPTOR
    return isinstance(error, OutOfDescriptors)


def not_now(failure: Failure) -> None:
    """Let a job that found no descriptor end well: what it wanted is done when it is run again."""
    if not none_left(failure.value):
        failure.raiseException()


def zero_range(fd: int, start: int, end: int) -> int:
    """Turn C{[start, end)} of a file into zeros, touching only what is not.

    @return: How many bytes, at 1 MiB granularity, held something else.
    """
    cleared = 0
    for position, stop in data_extents(fd, start, end):
        while position < stop:
            piece = os.pread(fd, min(len(_ZEROS), stop - position), position)
            if not piece:
                break
            if not is_zero(piece):
                write_all(fd, memoryview(_ZEROS)[: len(piece)], position)
                cleared += len(piece)
            position += len(piece)
    return cleared


def is_zero(piece: bytes | memoryview) -> bool:
    """Whether a piece of at most 1 MiB is all zeros."""
    return piece == (_ZEROS if len(piece) == len(_ZEROS) else _ZEROS[: len(piece)])


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """C{pwrite} until everything is written."""
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        offset += count
        view = view[count:]


def create_whole(path: str, size: int) -> None:
    """Make a new file of zeros, all of it a hole, that has its size before it has its name: a stock
    broker refuses a store in which a kill has left a shorter one.  Where the file system, or the
    system, knows no files without a name, the name comes first.

    @raise OSError: If that is impossible, or the name is taken; nothing is left behind.
    """
    try:
        with opened(os.path.dirname(path), os.O_RDWR | os.O_TMPFILE) as fd:
            os.ftruncate(fd, size)
            # With a descriptor, whatever it is of, the link is followed.
            os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd)
    except OSError as error:
        if error.errno in NO_SPACE | NO_DESCRIPTOR | {errno.EEXIST}:
            raise
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
            try:
                os.ftruncate(fd, size)
            except BaseException:
                os.unlink(path)
                raise


@define(eq=False, kw_only=True)
class MappedFile:
    """One log file, mapped when first read or written.

    @ivar path: Where it is.
    @ivar start: Physical offset of its first byte.
    @ivar size: Its size, in bytes, always the whole of C{mappedFileSizeCommitLog}.
    @ivar allocated: Bytes from the file's start that surely have blocks behind them;
        nothing above may be stored to through the map.
    """

    path: Path
    start: int
    size: int
    allocated: int = 0
    _fd: int = field(default=-1, repr=False)
    _growing: Lock = field(factory=Lock, init=False, repr=False)
    _gone: bool = field(default=False, init=False)
    _view: memoryview | None = field(default=None, repr=False)

    @classmethod
    def create(cls, folder: Path, start: int, size: int, suffix: str = "") -> Self:
        """Make a new, sparse file of full size.

        @param suffix: What its name ends in.
        @raise DiskFull: If even the name does not fit; nothing is left behind.
        """
        path = folder / (file_name(start) + suffix)
        try:
            create_whole(str(path), size)
        except OSError as error:
            raise disk_error(error, str(path), size) from error
        return cls(path=path, start=start, size=size, allocated=0)

    @property
    def end(self) -> int:
        """Physical offset just past the file."""
        return self.start + self.size

    @property
    def fd(self) -> int:
        """The open descriptor; it is opened when first asked for.

        @raise OutOfDescriptors: If there is none left; asking again later is fine.
        """
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise disk_error(error, str(self.path), self.size) from error
        return self._fd

    @property
    def view(self) -> memoryview:
        """The whole file.  A kept slice keeps the mapping.

        @raise OutOfDescriptors: If there is none left; asking again later is fine.
        """
        if self._view is None:
            try:
                self._view = memoryview(mmap.mmap(self.fd, self.size))  # it takes a descriptor too
            except OSError as error:
                raise disk_error(error, str(self.path), self.size) from error
        return self._view

    def allocate(self, upto: int, *, prefault: bool = False) -> None:
        """Give C{[allocated, upto)} blocks, and the rest of the last page.  Safe to call from a
        thread while the part below L{allocated} is being written.

        @param upto: Bytes from the file's start; more than the file is cut to it.
        @param prefault: Also make the pages present, see L{rmqha.store.files.pages}.
        @raise DiskFull: If the disk has no room; L{allocated} says how far it got.
        """
        upto = min(page_end(upto), self.size)
        if self.allocated < upto:
            with self._growing:
                # Read again under the lock: the reactor may have grown it meanwhile.
                position = self.allocated
                # And nothing is done to a file that another process may write by now.
                if position >= upto or self._gone:
                    return
                view = self.view if prefault else None
                try:
                    os.posix_fallocate(self.fd, position, upto - position)
                except OSError as error:
                    raise disk_error(error, str(self.path), upto - position) from error
                self.allocated = upto
            if view is not None:
                # Without the lock: the reactor must never wait for this.
                populate(view, position, upto)

    def zero(self, start: int, end: int) -> int:
        """Turn bytes C{[start, end)} of the file into zeros.

        @return: About how many bytes were not zero before.
        """
        return zero_range(self.fd, start, end)

    def remove(self) -> int:
        """Delete the file.  Views keep what they show until they are dropped.

        @return: Its size, in bytes.
        """
        with self._growing:
            self._gone = True
            self.path.unlink(missing_ok=True)
            self._release()
        return self.size

    def map_ref(self) -> weakref.ref[mmap.mmap] | None:
        """What tells whether the mapping lives; C{None} if the file is not mapped."""
        return None if self._view is None else weakref.ref(cast("mmap.mmap", self._view.obj))

    def close(self) -> None:
        """Forget the map and close the descriptor.  It may still be read, but never grows
        again: a thread that is allocating ahead must not write into a store that was
        opened anew.
        """
        with self._growing:
            self._gone = True
            self._release()

    def _release(self) -> None:
        self._view = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


@define(eq=False)
class LogFolder:
    """The files of one commit log, oldest first, each continuing the one before.

    @ivar file_size: Size of every file, in bytes.
    @ivar files: Oldest first; may be empty.
    @ivar strays: Names in the folder that are not log files: ignored and reported.
    @ivar partial: Whether it is an archive's: a file that is not finished has a name that says so.
    """

    path: Path
    file_size: int
    files: list[MappedFile] = field(factory=list)
    strays: list[str] = field(factory=list)
    partial: bool = field(default=False, kw_only=True)

    @classmethod
    def load(cls, path: Path, file_size: int, *, tidy: bool = True, partial: bool = False) -> Self:
        """Find the files of a folder; a missing folder is an empty log.

        A last file of no bytes is what a crash may leave, of a stock broker or where files have a
        name before they have a size (L{create_whole}); it is removed.

        @param tidy: Without it that file is only passed over.
        @param partial: Whether files may be unfinished, as those at an archive's end are.
        @raise FileSizeMismatch: If a file has not C{file_size} bytes.
        @raise BrokenSequence: If a file is missing between two others.
        @raise ArchiveNotAStore: If a file is not finished.
        """
        folder = cls(path, file_size, partial=partial)
        if not path.is_dir():
            return folder
        listed = list_log(path)
        folder.strays = [*listed.strays]
        for name in filter(LOG_NAME.fullmatch, listed.strays):
            raise FileSizeMismatch(str(path / name), (path / name).stat().st_size, file_size)
        if listed.partial and not partial:
            first = path / listed.name(min(listed.partial))
            raise ArchiveNotAStore(str(first), len(listed.partial))
        if tidy and listed.unbegun is not None:
            (path / listed.name(listed.unbegun)).unlink()
        for start, found in listed.sizes.items():
            file = path / listed.name(start)
            if found != file_size:
                raise FileSizeMismatch(str(file), found, file_size)
            if folder.files and start != folder.files[-1].end:
                raise BrokenSequence(str(file), folder.files[-1].end, start)
            folder.files.append(MappedFile(path=file, start=start, size=file_size))
        return folder

    def create_next(self, offset: int) -> MappedFile:
        """Add the file that holds C{offset} at the end of the folder.

        The name is durable when this returns: bytes are acknowledged behind it.

        @param offset: The end of the last file; anything on an empty log.
        @raise DiskFull: If there is no room.
        @raise FlushFailed: If the name cannot be made durable.
        """
        start = self.files[-1].end if self.files else offset - offset % self.file_size
        try:
            if not self.path.is_dir():
                self.path.mkdir(parents=True)
                fsync_folder(self.path.parent)
            suffix = PARTIAL_SUFFIX if self.partial else ""
            file = MappedFile.create(self.path, start, self.file_size, suffix)
        except OSError as error:
            raise disk_error(error, str(self.path), self.file_size) from error
        try:
            fsync_folder(self.path)
        except OSError as error:
            file.remove()
            if error.errno in NO_DESCRIPTOR:
                raise OutOfDescriptors(str(self.path), self.file_size) from error
            raise FlushFailed(str(self.path), str(error)) from error
        self.files.append(file)
        return file

    def drop_behind(self, end: int) -> int:
        """Delete the files that start behind C{end}, last to first.

        The one that starts just there is kept: a blank before it is log only because a
        file follows.

        @return: How many bytes went.
        """
        gone = 0
        while self.files and self.files[-1].start > end:
            gone += self.files.pop().remove()
        return gone

    def at(self, offset: int) -> MappedFile:
        """The file that holds a byte.

        @raise ValueError: If no file does.
        """
        if self.files:
            row = (offset - self.files[0].start) // self.file_size
            if 0 <= row < len(self.files):
                return self.files[row]
        raise ValueError(f"byte {offset} is in no log file")

    def sync(self) -> None:
        """Make created and removed names durable."""
        fsync_folder(self.path)

    def close(self) -> None:
        """Close all files; what was written is in the page cache, and not flushed by this."""
        for file in self.files:
            file.close()
