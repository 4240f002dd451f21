"""Replace the derived files of a stopped store by new ones made from its log.

They are built beside the old ones and change places with them only when they are
whole and on disk.  A run that is interrupted leaves the old ones; one that dies just
between the two renames of a folder is put right by the next, and a node that starts
meanwhile makes what is missing itself.

Source: docs/operations.rst, Rebuild.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import LogCorrupt, Refused
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.log_end import damage_behind
from rmqha.logfiles.offline_log import OfflineLog, Progress
from rmqha.logfiles.scan import judge
from rmqha.store.derived import dispatch_mark
from rmqha.store.derived.rebuild import RebuiltFiles, open_derived, rebuild
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.owner import as_owner
from rmqha.wire.log.record import Fault
from rmqha.wire.store_layout import (
    CONSUMEQUEUE,
    INDEX,
    LOCK,
    OWN_FOLDER,
    REBUILD,
)


@contextmanager
def exclusively(root: Path, commitlog: Path) -> Iterator[None]:
    """Keep nodes away from a store, and finish first what an earlier run left half done.  What is
    made meanwhile is the store's owner's.

    @param commitlog: The folder with the log, wherever that is.
    @raise StoreLocked: If a node is running on the store.
    @raise NotTheOwner: If it is another user's.
    @raise ForeignFile: If a part of it is not its owner's.
    """
    lock = StoreLock(root / LOCK)
    with as_owner(root, commitlog):
        lock.take()
        try:
            for name in (CONSUMEQUEUE, INDEX):
                _put_back(root / OWN_FOLDER / REBUILD, root, name)
            yield
        finally:
            lock.release()


def remake(
    log: OfflineLog, settings: StoreSettings, progress: Progress | None = None
) -> RebuiltFiles:
    """Rebuild queues, and the index if it is enabled.  Blocking; only L{exclusively}.

    @param log: The store's log.
    @raise Refused: If log files are missing or not whole.
    @raise LogCorrupt: If the log is damaged: records behind the damage would be lost
        to every consumer.
    """
    root = settings.root
    _refuse_damage(log)
    place = root / OWN_FOLDER / REBUILD
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    made = rebuild(log, place, settings, progress, ends=_known_ends(log, settings))
    json_table.remove(dispatch_mark.mark_path(root))
    _swap(place, root, CONSUMEQUEUE)
    if settings.index_enable:
        _swap(place, root, INDEX)
    shutil.rmtree(place)
    return made


def _known_ends(log: OfflineLog, settings: StoreSettings) -> list[tuple[str, int, int]]:
    """Where the queues go on that have no message in the log: their files tell, and so does what
    was noted of them.
    """
    mark = dispatch_mark.load(dispatch_mark.mark_path(settings.root), log)
    queues, _ = open_derived(settings.root, settings, read_only=True)
    try:
        queues.start.offset = log.min_offset
        queues.load()
        queues.inspect(log.min_offset)
        idle = [(topic, *end) for topic, ends in queues.idle_ends().items() for end in ends.items()]
    finally:
        queues.close()
    return [*(() if mark is None else mark.queues), *idle]


def _refuse_damage(log: OfflineLog) -> None:
    raw = log.raw
    if raw.first_finding is not None:
        raise Refused("rebuild", str(raw.first_finding))
    if log.end >= raw.end:
        return
    verdict = judge(raw, log.end)
    found = damage_behind(raw, log.end)
    if found is not None:
        reason = verdict.value if isinstance(verdict, Fault) else "a gap"
        raise LogCorrupt(str(raw.at(log.end).path), log.end, reason, found)


def _old(place: Path, name: str) -> Path:
    return place / f"old-{name}"


def _put_back(place: Path, root: Path, name: str) -> None:
    """Finish what a run left that died between two renames."""
    old = _old(place, name)
    if old.exists() and not (root / name).exists():
        os.rename(old, root / name)
        fsync_folder(root)


def _swap(place: Path, root: Path, name: str) -> None:
    new, held, old = place / name, root / name, _old(place, name)
    new.mkdir(exist_ok=True)
    fsync_folder(new)
    if held.exists():
        os.rename(held, old)
    try:
        os.rename(new, held)
    except BaseException:
        _put_back(place, root, name)
        raise
    fsync_folder(root)
