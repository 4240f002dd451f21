"""Cut a log back, keeping what is cut, so that a crash at any step is finished on start.

Order: the tail is copied to a quarantine file, then an intent file makes the cut
certain, then the log is zeroed and later files are deleted last to first, then queues
and index are cut, then the intent goes.  Everything after the intent can be repeated,
and L{rmqha.store.opening} does so whenever it finds one.  What was cut may be the only
copy of acknowledged writes: C{rmqha dump} reads a quarantine file (docs/states.rst,
Diverged).

An intent is obeyed without asking, so it is believed only when it speaks of this log: it has
a checksum of its own, a CRC of the log before the cut, and every byte behind the cut has to be
what was kept, or zero already.  One that came back with a backup, or that the disk changed, is
neither (L{doubt}).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from attrs import frozen
from isal.isal_zlib import crc32

from rmqha import reserve
from rmqha.errors import StoreError, TableUnreadable
from rmqha.logfiles.json_table import Table, fsync_folder, read, remove, replace
from rmqha.logfiles.quarantine_file import quarantine_name
from rmqha.logfiles.scan import data_end
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.store.environment import Step
from rmqha.store.files.mapped import LogFolder, disk_error
from rmqha.store.log.recovery import FolderReader
from rmqha.wire.store_layout import BACKUP_SUFFIX, OWN_FOLDER, QUARANTINE, TRUNCATION

PIECE = 1 << 20
"""Bytes that are copied at a time."""

IGNORED_SUFFIX = ".ignored"
"""Of an intent that was not believed and is not to be met again."""


class TruncationInvalid(StoreError):
    """A file that says where the log is to be cut does not speak of this log."""

    sentence = (
        "{path} asks for a truncation that is not of this log: {reason}; "
        "move it away to start without it"
    )
    path: str
    reason: str


@frozen
class CutIntent:
    """A cut that has been decided.

    @ivar at: Where the log shall end; a record's start.
    @ivar end: Where it ended before.
    @ivar quarantine: The file that holds what is cut, below the store's root.
    @ivar tail: CRC-32 of the log's last bytes before C{at}, which no cut changes.
    """

    at: int
    end: int
    quarantine: str
    tail: int

    def as_table(self) -> Table:
        """The file of an intent: what it says, and a CRC-32 of just that."""
        table: Table = {
            "at": self.at,
            "end": self.end,
            "quarantine": self.quarantine,
            "tail": self.tail,
        }
        return {**table, "crc": self._crc()}

    @classmethod
    def of_table(cls, table: Table) -> CutIntent:
        """@raise ValueError: If it is no intent, or its checksum is another."""
        try:
            intent = cls(
                int(table["at"]), int(table["end"]), str(table["quarantine"]), int(table["tail"])
            )
            crc = table["crc"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if crc != intent._crc() or not 0 <= intent.at <= intent.end:
            raise ValueError(f"its checksum is {crc}, what it says has {intent._crc()}")
        return intent

    def _crc(self) -> int:
        return crc32(f"{self.at} {self.end} {self.tail} {self.quarantine}".encode())


def quarantine(root: Path, folder: LogFolder, at: int, end: int) -> Path:
    """Copy C{[at, end)} of a log to C{rmqha/quarantine/<at>-<end>.log}, durably.

    @return: The file; its name tells the offsets of its bytes.
    @raise DiskFull: If there is no room for it; nothing was cut then.
    """
    return quarantine_bytes(root, at, end, _pieces(folder, at, end))


def _pieces(folder: LogFolder, at: int, end: int) -> Iterator[memoryview]:
    position = at
    while position < end:
        file = folder.at(position)
        start = position - file.start
        stop = min(start + PIECE, file.size, end - file.start)
        yield file.view[start:stop]
        position = file.start + stop


def quarantine_bytes(root: Path, at: int, end: int, pieces: Iterable[memoryview]) -> Path:
    """Keep bytes that stood in C{[at, end)} of a log in C{rmqha/quarantine/<at>-<end>.log},
    durably.

    @param pieces: The bytes, in order.
    @return: The file.
    @raise DiskFull: If there is no room for it; no file is left then.
    """
    place = root / OWN_FOLDER / QUARANTINE
    if not place.is_dir():
        try:
            reserve.write(place, 0, partial(place.mkdir, parents=True))
        except OSError as error:
            raise disk_error(error, str(place), end - at) from error
        fsync_folder(root / OWN_FOLDER)
        fsync_folder(root)
    path = place / quarantine_name(at, end)
    number = 1
    while path.exists():
        number += 1
        path = place / f"{at:020d}-{end:020d}.{number}.log"
    try:
        with reserve.write(path, 0, lambda: open(path, "xb")) as out:
            if end > at:
                room = partial(os.posix_fallocate, out.fileno(), 0, end - at)
                reserve.write(path, end - at, room)
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        fsync_folder(place)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise disk_error(error, str(path), end - at) from error
    return path


def intend(
    root: Path, folder: LogFolder, at: int, end: int, step: Step = lambda name: None
) -> CutIntent:
    """Keep the tail and make the cut certain."""
    path = quarantine(root, folder, at, end)
    step("quarantined")
    tail = tail_crc(FolderReader(folder), at)
    intent = CutIntent(at, end, str(path.relative_to(root)), tail)
    replace(root / OWN_FOLDER / TRUNCATION, intent.as_table())
    step("intended")
    return intent


def pending(root: Path) -> CutIntent | None:
    """A cut that was decided and may not be finished.

    @raise FileUnreadable: If the system does not let the file be read.
    @raise TruncationInvalid: If the file is not as it was written.
    """
    path = root / OWN_FOLDER / TRUNCATION
    try:
        table = read(path)
        return CutIntent.of_table(table) if table else None
    except (TableUnreadable, ValueError) as error:
        raise TruncationInvalid(str(path), str(error)) from error


def pending_cut(root: Path, folder: LogFolder) -> CutIntent | None:
    """A cut that was decided of just this log and may not be finished.  Blocking: it reads all
    that is to be cut.

    @raise TruncationInvalid: If the file is not as it was written, or speaks of another log.
    """
    intent = pending(root)
    why = "" if intent is None else doubt(root, folder, intent)
    if why:
        raise TruncationInvalid(str(root / OWN_FOLDER / TRUNCATION), why)
    return intent


def doubt(root: Path, folder: LogFolder, intent: CutIntent) -> str:
    """Why an intent does not speak of this log; empty if it does.

    However far the cut came, what was cut is in quarantine, the log before it is what it was,
    and each byte behind it is as it was or zero: the disk writes zeros in any order.
    """
    log, at, end = FolderReader(folder), intent.at, intent.end
    kept = root / intent.quarantine
    held = kept.stat().st_size if kept.is_file() else -1
    if held != end - at:
        found = "is missing" if held < 0 else f"has {held} bytes"
        return f"it cuts {end - at} bytes, and their copy {kept} {found}"
    if not log.min_offset <= at <= log.end:
        return f"it cuts at byte {at}, the log's files hold [{log.min_offset}, {log.end})"
    if tail_crc(log, at) != intent.tail:
        return f"the bytes before byte {at} are not those that the cut was to leave"
    behind = data_end(log, min(end, log.end))
    if behind > end:
        return f"the log goes on to byte {behind}, it went to {end} when the cut was decided"
    with open(kept, "rb") as copy:
        position = at
        while position < min(end, log.end):
            ours = np.frombuffer(log.read(position, min(PIECE, end - position)), np.uint8)
            other = (ours != np.frombuffer(copy.read(len(ours)), np.uint8)) & (ours != 0)
            if other.any():
                return f"byte {position + int(np.argmax(other))} was written after it"
            position += len(ours)
    return ""


def ignore(root: Path) -> Path:
    """Put an intent that is not believed where no start meets it again.

    @return: Where it is now.
    """
    path = root / OWN_FOLDER / TRUNCATION
    kept = path.with_name(path.name + IGNORED_SUFFIX)
    # The generation before it first: alone it would be taken for an intent.
    path.with_name(path.name + BACKUP_SUFFIX).unlink(missing_ok=True)
    if path.exists():
        os.replace(path, kept)
    fsync_folder(path.parent)
    return kept


def finish(root: Path, step: Step = lambda name: None) -> None:
    """Log, queues and index are cut: the intent has done its work."""
    remove(root / OWN_FOLDER / TRUNCATION)
    step("done")


def aside_of(commitlog: Path) -> Path:
    """Where a log is put aside: C{<commitlog>.aside}."""
    return commitlog.with_name(commitlog.name + ".aside")


def set_log_aside(commitlog: Path) -> Path:
    """Put a whole log aside for a new copy.  It is never deleted.

    @return: Where it is now: C{<commitlog>.aside}.
    @raise FileExistsError: If one copy is aside already.
    """
    aside = aside_of(commitlog)
    if aside.exists():
        raise FileExistsError(f"{aside} exists: only one old log is kept aside")
    os.rename(commitlog, aside)
    fsync_folder(commitlog.parent)
    return aside
