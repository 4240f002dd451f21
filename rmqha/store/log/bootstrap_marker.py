"""The marker of a copy from nothing that is not finished (C{rmqha/bootstrapping.json}).

While it is there the log may begin again at any time, and nothing else may take it for a
whole one: neither slaves behind it nor a master's role.
"""

from __future__ import annotations

from pathlib import Path

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import StoreError
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.listing import LOG_NAME
from rmqha.store.files.mapped import disk_error
from rmqha.wire.store_layout import BACKUP_SUFFIX, BOOTSTRAPPING, OWN_FOLDER


class UnfinishedCopy(StoreError):
    """A store is an unfinished copy of a master's, and is to be a master's."""

    sentence = (
        "{path} says that this is an unfinished copy of a master's store, "
        "with {held} bytes of log files: only a slave can finish it"
    )
    path: str
    held: int


def marker(root: Path) -> Path:
    """Where a store keeps it."""
    return root / OWN_FOLDER / BOOTSTRAPPING


def begin(root: Path, master: str) -> None:
    """Write it: from here on the log is an unfinished copy.

    @param master: Whose log is copied, for whoever reads the file.
    @raise DiskFull: If there is no room for it.
    @raise OutOfDescriptors: If no file can be opened.
    @raise OSError: If it cannot be written for another reason.
    """
    path = marker(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        json_table.replace(path, {"master": master})
    except OSError as error:
        raise disk_error(error, str(path), 0) from error


def end(root: Path) -> None:
    """Remove it, and what is kept of one before: the copy is complete.

    @raise OSError: If it cannot be removed.
    """
    path = marker(root)
    try:
        for name in (path, path.with_name(path.name + BACKUP_SUFFIX)):
            name.unlink(missing_ok=True)
        fsync_folder(path.parent)
    except OSError as error:
        raise disk_error(error, str(path), 0) from error


def refuse_unfinished(settings: StoreSettings) -> None:
    """Refuse to take an unfinished copy for a whole store.

    @raise UnfinishedCopy: If it is one.
    """
    path = marker(settings.root)
    if path.exists():
        files = (file for file in settings.commitlog.glob("*") if LOG_NAME.fullmatch(file.name))
        raise UnfinishedCopy(str(path), sum(file.stat().st_size for file in files))
