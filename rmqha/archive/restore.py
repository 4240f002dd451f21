"""Build a master's store from an archive, or from another store, as it was at some moment.

The log is copied up to there, queues and index are built from it, the tables come along if there
are any, and what is left is what C{rmqha promote} does: offsets above a queue's end are brought
back, an epoch begins, and the master epoch is raised.  Nothing else that the source knows of its
own life is taken over: the new store's log parts from the old one's at its end, and no replica may
take it for the same.

Copy a log up to a place, checking every record on the way.

The copy's files have names that end in C{.partial} until its owner says that all is done: a node
does not start on half of it.

Source: docs/guide/archive.rst, Restore.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from attrs import define, evolve, field, frozen

from rmqha.archive.source import RestoreSource
from rmqha.archive.target import RestoreTarget
from rmqha.config.store_settings import StoreSettings
from rmqha.errors import DiskFull, LogCorrupt, Refused
from rmqha.ha.promotion import Promotion, promote
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.offline_log import OfflineLog, Progress
from rmqha.logfiles.published import DELETED
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import next_valid, scan
from rmqha.logfiles.walk_file import Walked
from rmqha.reserve import NO_SPACE
from rmqha.store.derived.rebuild import RebuiltFiles, rebuild
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.mapped import write_all, zero_range
from rmqha.store.files.owner import as_owner
from rmqha.store.log import copied_damage_file
from rmqha.store.offline.detect_sizes import offline_settings
from rmqha.store.tables.merge_tables import NAMES, MergedTables, merge_tables, write_merged
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.record import Fault
from rmqha.wire.store_layout import COMMITLOG, CONFIG, LOCK, PARTIAL_SUFFIX


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
    source: RestoreSource, target: RestoreTarget, folder: Path, progress: Progress | None = None
) -> CopiedLog:
    """Copy whole records up to the target; they are on the disk when this returns.  Blocking.

    @param folder: Where the copy goes, an empty folder.
    @raise StoreError: If the log has nothing before the target, does not reach it, or lacks files
        before it.
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


Bar = Callable[[str], AbstractContextManager[Progress | None]]
"""Shows how far a step is, by its name."""


@frozen(kw_only=True)
class RestoredStore:
    """What was built.

    @ivar rebuilt: Queues and index.
    @ivar damaged: How many records are as damaged as the master had them.
    @ivar tables: The tables that came along; C{None} without any.
    @ivar promotion: What the epoch's begin found, and which offsets were moved.
    """

    root: Path
    copied: CopiedLog
    rebuilt: RebuiltFiles
    damaged: int
    tables: MergedTables | None
    promotion: Promotion


def tables_of(store: Path) -> Path | None:
    """The store itself, if it has tables that can come along."""
    return store if any((store / CONFIG / name).exists() for name in NAMES) else None


def settings_for(source: RestoreSource, root: Path) -> StoreSettings:
    """Sizes of the new store's files: those of the old one, or RocketMQ's where there is only a
    log.
    """
    found = offline_settings(source.store or root, source.raw.path, source.raw.file_size)
    return evolve(found, root=root, commitlog=root / COMMITLOG)


def restore(
    source: RestoreSource,
    target: RestoreTarget,
    settings: StoreSettings,
    tables: Path | None,
    bar: Bar,
    epoch: int | None = None,
) -> RestoredStore:
    """Build a store.  Blocking.  What is made belongs to the owner of the folder.

    Interrupted, it leaves what no node starts on, until the log's files get their names; what is
    left then is what another C{rmqha promote} would do.

    @param settings: Of the new store.
    @param tables: A store, or a folder with its tables, which it shall have.
    @param epoch: Its master epoch, by default one above the highest that the source knows.
    @raise Refused: If there is something in the new store's folder, the file size is another, or
        C{epoch} is too low.
    @raise StoreError: As L{copy_log}, as L{merge_tables} and as
        L{promote<rmqha.ha.promotion.promote>}.
    @raise BodyInvalid: If a table is no such one.
    """
    root = settings.root
    if settings.file_size != source.raw.file_size:
        raise Refused(
            "restore",
            f"the source has log files of {source.raw.file_size} bytes, the new store is "
            f"configured for {settings.file_size}",
        )
    for folder in (root, settings.commitlog):
        if folder.exists() and any(folder.iterdir()):
            raise Refused("restore", f"{folder} is not empty")
    source.limit(target)  # Nothing is made for what is impossible.
    source.journal.raised(source.end, epoch)
    merged = None if tables is None else merge_tables(root, tables)
    root.mkdir(parents=True, exist_ok=True)
    lock = StoreLock(root / LOCK)
    with as_owner(root, settings.commitlog):
        settings.commitlog.mkdir(parents=True, exist_ok=True)
        lock.take()
        try:
            with bar("restoring the log") as progress:
                copied = copy_log(source, target, settings.commitlog, progress)
            if merged is not None:
                write_merged(root, merged)
            if source.store is not None:
                _copy_deleted(source.store, root)
            source.journal.cut(copied.end).write(root)
            source.copied.keep_within(copied.start, copied.end)
            copied_damage_file.save(root, source.copied)
            with bar("building queues and index") as progress:
                rebuilt = _rebuild(copied, settings, progress)
            finish_files(settings.commitlog)
            fsync_folder(root)
        finally:
            lock.release()
    return RestoredStore(
        root=root,
        copied=copied,
        rebuilt=rebuilt,
        damaged=len(source.copied),
        tables=merged,
        # With the tables again, for what was deleted there: only now there is a log to believe it.
        promotion=promote(settings, epoch=epoch, tables=tables),
    )


def _rebuild(copied: CopiedLog, settings: StoreSettings, progress: Progress | None) -> RebuiltFiles:
    log = OfflineLog.of(RawLog.open(settings.commitlog, settings.file_size), copied.end)
    try:
        return rebuild(log, settings.root, settings, progress)
    finally:
        log.close()


def _copy_deleted(store: Path, root: Path) -> None:
    """Which topics were deleted while their records were in the log: it is believed only if it
    speaks of what was restored.
    """
    found = json_table.read(store / DELETED)
    if found is not None:
        (root / DELETED).parent.mkdir(exist_ok=True)
        json_table.replace(root / DELETED, found)
