"""Copy a log up to a place, checking every record on the way.

The copy's files have names that end in C{.partial} until its owner says that all is done: a node
does not start on half of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from attrs import define, field, frozen

from rmqha.archive.source import RestoreSource
from rmqha.archive.target import RestoreTarget
from rmqha.errors import DiskFull, LogCorrupt
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import next_valid, scan
from rmqha.logfiles.walk_file import Walked
from rmqha.reserve import NO_SPACE
from rmqha.store.files.mapped import write_all, zero_range
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.record import Fault
from rmqha.wire.store_layout import PARTIAL_SUFFIX

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@frozen(kw_only=True)
class CopiedLog:
    """What was copied.

    @ivar start: The first byte, a physical offset.
    @ivar end: Just past the last record.
    @ivar records: How many.
    @ivar last_stored: Store time of the last one, in milliseconds since 1970.
    """

    start: int
    end: int
    records: int
    last_stored: int


@define(eq=False)
class _CopiedFiles:
    """The files of the copy, one open at a time.

    @ivar paths: Those that were begun, in order.
    """

    folder: Path
    file_size: int
    paths: list[Path] = field(factory=list, init=False)
    _fd: int = field(default=-1, init=False)
    _start: int = field(default=-1, init=False)

    def write(self, offset: int, data: memoryview) -> None:
        """Write a run of bytes of one file, behind the run before."""
        start = offset - offset % self.file_size
        if start != self._start:
            self.close()
            path = self.folder / (file_name(start) + PARTIAL_SUFFIX)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            self._start = start
            self.paths.append(path)
            os.ftruncate(self._fd, self.file_size)
        write_all(self._fd, data, offset - start)

    def drop(self, start: int, end: int) -> None:
        """Take back bytes of the file that was written last."""
        zero_range(self._fd, start - self._start, end - self._start)

    def close(self) -> None:
        """Make the file durable that is open."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def copy_log(
    source: RestoreSource,
    target: RestoreTarget,
    folder: Path,
    progress: Progress | None = None,
) -> CopiedLog:
    """Copy whole records up to the target; they are on the disk when this returns.  Blocking.

    @param folder: Where the copy goes, an empty folder.
    @raise TargetOutside: If the log has nothing before the target, or does not reach it.
    @raise GapInLog: If files are missing before it.
    @raise LogCorrupt: If a record before it is damaged.
    @raise DiskFull: If there is no room.
    """
    raw, limit = source.raw, source.limit(target)
    files = _CopiedFiles(folder, raw.file_size)
    start, end, blank, records, stored = raw.min_offset, raw.min_offset, 0, 0, 0
    later: int | None = None
    try:
        for found in _walked(source, limit):
            block = found.block
            later = target.first_later(found)
            stop = block.end if later is None else later
            kept = int((block.start < stop).sum())
            if stop > block.base:
                files.write(block.base, found.view[: stop - block.base])
                end, blank = stop, block.blank if later is None else 0
            if kept:
                records, stored = records + kept, int(found.store_times()[kept - 1])
            if progress is not None:
                progress(end - start, limit - start)
            if later is not None:
                break
        if blank:
            # It is log only if a file follows it, and none does.
            end -= blank
            files.drop(end, end + blank)
        files.close()
        fsync_folder(folder)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise DiskFull(str(folder), raw.file_size) from error
        raise
    finally:
        files.close()
        raw.close()
    if not records or (target.time is not None and later is None):
        raise source.outside(target, before=not records)
    return CopiedLog(start=start, end=end, records=records, last_stored=stored)


def _walked(source: RestoreSource, limit: int) -> Iterator[Walked]:
    """The records of a log, each checked, and those that are as damaged as the master had them.

    @raise LogCorrupt: Where another one is damaged.
    """
    raw, position = source.raw, source.raw.min_offset
    while position < limit:
        for view, block in scan(raw, position, limit):
            yield Walked(view, block)
        if block.fault is None or block.fault is Fault.INCOMPLETE:
            return
        size = source.copied.size_at(raw, block.end, block.fault)
        if not size:
            following = next_valid(raw, block.end + 1)
            raise LogCorrupt(
                raw.at(block.end).where,
                block.end,
                block.fault.value,
                limit if following is None else following,
            )
        yield _damaged(raw, block.end, size)
        position = block.end + size


def _damaged(raw: RawLog, offset: int, size: int) -> Walked:
    """One record that is passed as it is."""
    block = Block(
        base=offset,
        end=offset + size,
        start=np.array([offset], np.int64),
        size=np.array([size], np.int32),
        fault=None,
        blank=0,
    )
    return Walked(raw.read(offset, size), block)


def finish_files(folder: Path) -> None:
    """Give the files of a copy the names of log files, first to last.  Blocking."""
    for path in sorted(folder.glob("*" + PARTIAL_SUFFIX)):
        path.rename(path.with_name(path.name.removesuffix(PARTIAL_SUFFIX)))
        fsync_folder(folder)
