"""
Cut a log back, keeping what is cut, so that a crash at any step is finished on start.

Order: the tail is copied to a quarantine file, then an intent file makes the cut
certain, then the log is zeroed and later files are deleted last to first, then queues
and index are cut, then the intent goes.  Everything after the intent can be repeated,
and L{rmqha.store.opening} does so whenever it finds one.  What was cut may be the only
copy of acknowledged writes: C{rmqha dump} reads a quarantine file (docs/operations.rst,
Diverged).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

from rmqha.errors import DiskFull
from rmqha.logfiles.json_table import fsync_folder, read, replace
from rmqha.logfiles.quarantine_file import quarantine_name
from rmqha.store.files.mapped import NO_SPACE, LogFolder
from rmqha.wire.store_layout import BACKUP_SUFFIX, OWN_FOLDER, QUARANTINE, TRUNCATION

PIECE = 1 << 20

Step = Callable[[str], None]
"""Told each step's name after it is done; tests die there."""


@frozen
class CutIntent:
    """
    A cut that has been decided.

    @ivar at: Where the log shall end; a record's start.
    @ivar end: Where it ended before.
    @ivar quarantine: The file that holds what is cut.
    """

    at: int
    end: int
    quarantine: str


def quarantine(root: Path, folder: LogFolder, at: int, end: int) -> Path:
    """
    Copy C{[at, end)} of a log to C{rmqha/quarantine/<at>-<end>.log}, durably.

    @return: The file; its name tells the offsets of its bytes.
    @raise DiskFull: If there is no room for it; nothing was cut then.
    """
    place = root / OWN_FOLDER / QUARANTINE
    if not place.is_dir():
        place.mkdir(parents=True)
        fsync_folder(root / OWN_FOLDER)
        fsync_folder(root)
    path = place / quarantine_name(at, end)
    number = 1
    while path.exists():
        number += 1
        path = place / f"{at:020d}-{end:020d}.{number}.log"
    try:
        with open(path, "xb") as out:
            position = at
            while position < end:
                file = folder.at(position)
                start = position - file.start
                stop = min(start + PIECE, file.size, end - file.start)
                out.write(file.view[start:stop])
                position = file.start + stop
            out.flush()
            os.fsync(out.fileno())
        fsync_folder(place)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno in NO_SPACE:
            raise DiskFull(str(path), end - at) from error
        raise
    return path


def intend(
    root: Path, folder: LogFolder, at: int, end: int, step: Step = lambda name: None
) -> CutIntent:
    """
    Keep the tail and make the cut certain.
    """
    path = quarantine(root, folder, at, end)
    step("quarantined")
    intent = CutIntent(at, end, str(path.relative_to(root)))
    replace(root / OWN_FOLDER / TRUNCATION, {"at": at, "end": end, "quarantine": intent.quarantine})
    step("intended")
    return intent


def pending(root: Path) -> CutIntent | None:
    """
    A cut that was decided and may not be finished.
    """
    table = read(root / OWN_FOLDER / TRUNCATION)
    if not table:
        return None
    return CutIntent(table["at"], table["end"], table["quarantine"])


def finish(root: Path, step: Step = lambda name: None) -> None:
    """
    Log, queues and index are cut: the intent has done its work.
    """
    # The generation before it first: alone it would be taken for an intent.
    for name in (TRUNCATION + BACKUP_SUFFIX, TRUNCATION):
        (root / OWN_FOLDER / name).unlink(missing_ok=True)
        if (root / OWN_FOLDER).is_dir():
            fsync_folder(root / OWN_FOLDER)
    step("done")


def aside_of(commitlog: Path) -> Path:
    """
    Where a log is put aside: C{<commitlog>.aside}.
    """
    return commitlog.with_name(commitlog.name + ".aside")


def set_log_aside(commitlog: Path) -> Path:
    """
    Put a whole log aside for a new copy.  It is never deleted.

    @return: Where it is now: C{<commitlog>.aside}.
    @raise FileExistsError: If one copy is aside already.
    """
    aside = aside_of(commitlog)
    if aside.exists():
        raise FileExistsError(f"{aside} exists: only one old log is kept aside")
    os.rename(commitlog, aside)
    fsync_folder(commitlog.parent)
    return aside
