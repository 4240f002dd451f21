"""Build a master's store from an archive, or from another store, as it was at some moment.

The log is copied up to there, queues and index are built from it, the tables come along if there
are any, and what is left is what C{rmqha promote} does: offsets above a queue's end are brought
back, an epoch begins, and the master epoch is raised.  Nothing else that the source knows of its
own life is taken over: the new store's log parts from the old one's at its end, and no replica may
take it for the same.

Source: docs/guide/archive.rst, Restore.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from attrs import evolve, frozen

from rmqha.archive.copy_log import CopiedLog, copy_log, finish_files
from rmqha.archive.source import RestoreSource
from rmqha.archive.target import RestoreTarget
from rmqha.config.store_settings import StoreSettings
from rmqha.errors import Refused
from rmqha.ha.promotion import Promotion, promote
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.published import DELETED
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.derived.rebuild import Progress, RebuiltFiles, rebuild
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.owner import as_owner
from rmqha.store.log import copied_damage_file
from rmqha.store.offline.detect_sizes import offline_settings
from rmqha.store.tables.merge_tables import NAMES, MergedTables, merge_tables, write_merged
from rmqha.wire.store_layout import COMMITLOG, CONFIG, LOCK

Bar = Callable[[str], AbstractContextManager[Progress | None]]
"""Shows how far a step is, by its name."""


@frozen(kw_only=True)
class RestoredStore:
    """What was built.

    @ivar copied: The log.
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
