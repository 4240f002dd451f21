"""A store leaves its set, offline: what it knows of it is put aside, the log stays as it is.

That is the way back where the controllers have lost what they knew.  They count master epochs from
the first again, and so a log that has seen later ones believes none of theirs, and asks for an id
that they have not given.  Without all that the store is a new member that has a log.

What was there is kept in a folder of its own.  The identity is the last to go: whatever dies before
has left a store that is refused as before, and the command can be given again.

Source: docs/states.rst, Wiped controllers.
"""

from __future__ import annotations

import os
from pathlib import Path

from attrs import frozen

from rmqha.controller.identity import APPLIED_SUFFIX, Identity
from rmqha.errors import Refused, TableUnreadable
from rmqha.ha.master_epoch import EpochJournal, EpochStart
from rmqha.logfiles.json_table import fsync_folder
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.owner import as_owner
from rmqha.wire.store_layout import (
    BACKUP_SUFFIX,
    BEFORE_RESET,
    BROKER_IDENTITY,
    EPOCH_FILE_CHECKPOINT,
    GROWTH,
    HELD,
    LOCK,
    MASTER_EPOCHS,
    OWN_FOLDER,
    REGISTERED,
)

_OF_A_SET = (
    EPOCH_FILE_CHECKPOINT,
    f"{OWN_FOLDER}/{HELD}",
    f"{OWN_FOLDER}/{GROWTH}",
    f"{OWN_FOLDER}/{REGISTERED}",
)
_IDENTITIES = (f"{BROKER_IDENTITY}{APPLIED_SUFFIX}", BROKER_IDENTITY)


@frozen(kw_only=True)
class LeftSet:
    """What was put aside.

    @ivar folder: Where it is now.
    @ivar moved: Which files, below the store's root.
    @ivar identity: Who the store was; C{None} if it had no id, or none that can be read.
    @ivar newest: The log's newest epoch; C{None} if it had none, or none that can be read.
    """

    folder: Path
    moved: tuple[str, ...]
    identity: Identity | None
    newest: EpochStart | None

    @property
    def led_last(self) -> bool:
        """Whether this store was master in the newest epoch that it knows."""
        one, newest = self.identity, self.newest
        return one is not None and newest is not None and newest.writer == one.id


def leave_set(root: Path, commitlog: Path) -> LeftSet:
    """Put aside what a store knows of its set.  Blocking.  All that is made belongs to the store's
    owner.

    @param root: The store's root.
    @param commitlog: The folder with its log.
    @raise StoreLocked: If a node is running on it.
    @raise NotTheOwner: If it is another user's.
    @raise ForeignFile: If a part of it is not its owner's.
    @raise Refused: If it knows nothing of a set.
    @raise DiskFull: If there is no room; what was moved by then stays moved.
    """
    with as_owner(root, commitlog):
        lock = StoreLock(root / LOCK)
        lock.take()
        try:
            return _leave(root)
        finally:
            lock.release()


def _leave(root: Path) -> LeftSet:
    if not any((root / name).exists() for name in (*_OF_A_SET, *_IDENTITIES)):
        raise Refused("reset", f"{root} knows nothing of a set: there is nothing to put aside")
    journal, identity = _journal(root), identity_in(root)
    number, folder = _next_folder(root / OWN_FOLDER)
    moved: list[str] = []
    for name in (*_OF_A_SET, f"{OWN_FOLDER}/{MASTER_EPOCHS}"):
        # Without its backup a table's absence is final.
        moved += _move(root, f"{name}{BACKUP_SUFFIX}", folder)
        moved += _move(root, name, folder)
    EpochJournal(reset=number).write(root)
    for name in _IDENTITIES:
        moved += _move(root, name, folder)
    newest = journal.starts[-1] if journal is not None and journal.starts else None
    return LeftSet(folder=folder, moved=tuple(moved), identity=identity, newest=newest)


def _journal(root: Path) -> EpochJournal | None:
    try:
        return EpochJournal.read(root)
    except TableUnreadable:
        return None


def identity_in(root: Path) -> Identity | None:
    """Who a store is in its set; C{None} if it has no id, or none that can be read."""
    try:
        return Identity.parse((root / BROKER_IDENTITY).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _next_folder(parent: Path) -> tuple[int, Path]:
    """Make a folder whose number is above all that are there."""
    parent.mkdir(exist_ok=True)
    numbers = [path.name.removeprefix(BEFORE_RESET) for path in parent.glob(f"{BEFORE_RESET}*")]
    number = 1 + max((int(each) for each in numbers if each.isdecimal()), default=0)
    folder = parent / f"{BEFORE_RESET}{number}"
    folder.mkdir()
    fsync_folder(parent)
    return number, folder


def _move(root: Path, name: str, folder: Path) -> list[str]:
    """Durable on return.

    @return: The name, if there was such a file.
    """
    path = root / name
    try:
        os.replace(path, folder / path.name)
    except FileNotFoundError:
        return []
    fsync_folder(folder)
    fsync_folder(path.parent)
    return [name]
