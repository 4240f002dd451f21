"""Since when a store's log is where it is: what came back is not deleted for the age of its
messages.

A log file expires by the time of its last record, on a slave as on its master.  What a restore, a
copy of the folder, an unpacked backup or a promotion brings back may be long expired by that, and
would be gone at the next C{deleteWhen}.  So age counts from the later of that time and the moment
at which the log came here, as it does on a stock broker, which goes by the files' own times.

C{rmqha/arrived.json} has that moment, and inode and birth of the log's folder and of the file's
own.  A copy has other ones, however it was made, so a start that finds others, or no such file,
takes the present moment.  A volume that was set back to a snapshot has the same: C{rmqha promote}
of a slave's store writes the moment anew, and so does a start after the file was deleted.

Source: docs/guide/backup.rst, How long what came back is kept.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from struct import Struct

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import make_folder
from rmqha.wire.store_layout import ARRIVED, OWN_FOLDER

_STATX = Struct("=I28xQ40xqI164x")
"""Of C{struct statx}: what of it is told, the inode, and the birth in seconds and nanoseconds."""

_INODE_AND_BIRTH = 0x100 | 0x800
_BIRTH = 0x800
_CURRENT_FOLDER = -100

_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def birth(path: Path) -> list[int]:
    """Which file a file is: the inode's number, and the nanoseconds since 1970 at its birth, 0
    where the file system does not tell; two zeros if there is no such file.

    A copy has another birth, whatever its name and its times, and though the number of a file that
    was deleted is soon given to another.  Python's C{os.stat} does not tell a birth on Linux.

    @raise OSError: If it cannot be told.
    """
    if not path.exists():
        return [0, 0]
    if _statx is None:
        return [path.stat().st_ino, 0]
    found = ctypes.create_string_buffer(_STATX.size)
    if _statx(_CURRENT_FOLDER, os.fsencode(path), 0, _INODE_AND_BIRTH, found):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    told, inode, seconds, nanos = _STATX.unpack(found)
    return [inode, seconds * 10**9 + nanos if told & _BIRTH else 0]


def since(settings: StoreSettings, now: float) -> float:
    """When the log came here, as a start would take it.  Blocking.

    @param now: Seconds since 1970, as all times here.
    @return: C{now}, if the store is not known to have been here before.
    """
    path = settings.root / OWN_FOLDER / ARRIVED
    try:
        found = json_table.read(path) or {}
    except TableUnreadable:
        return now
    at = found.get("millis")
    same = found.get("folders") == _folders(settings)
    # A clock that was ahead then must not keep files for ever.
    return min(at / 1000, now) if same and type(at) is int else now


def keep(settings: StoreSettings, moment: float) -> None:
    """Write it down, if it is not so already; durable on return.

    @raise DiskFull: If there is no room.
    """
    path = settings.root / OWN_FOLDER / ARRIVED
    for folder in (path.parent, settings.commitlog):
        make_folder(folder)
    table: json_table.Table = {"millis": round(moment * 1000), "folders": _folders(settings)}
    try:
        if json_table.read(path) == table:
            return
    except TableUnreadable:
        pass
    json_table.replace(path, table)


def _folders(settings: StoreSettings) -> list[list[int]]:
    return [birth(settings.commitlog), birth(settings.root / OWN_FOLDER)]
