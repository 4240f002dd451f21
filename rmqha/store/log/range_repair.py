"""Write a replica's bytes over damaged ranges of a log, so that a crash at any step is finished.

Order: the replica's bytes lie in files of their own, what stands in the ranges is copied to
quarantine, an intent file makes the change certain, the bytes are written in place and synced,
queues and index are looked at, then the intent goes.  Everything after the intent can be
repeated: C{rmqha repair} does so, and so does a node that starts (L{rmqha.store.opening}).

An intent is obeyed without asking, so it is believed only when it speaks of this log: it has a
checksum, the replica's bytes have theirs, and the bytes around each range, which were equal when
it was decided, have to be equal still.  One that is not believed is put aside: the log is only as
damaged as it was, and every reader finds that by itself.

In a log that is in use it is the same: a byte of a range is wrong or already right, so who reads
meanwhile reads no worse than before.

Source: docs/operations.rst, Repair from a replica.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, field, frozen
from isal.isal_zlib import crc32
from twisted.logger import Logger

from rmqha.errors import DiskFull, TableUnreadable
from rmqha.logfiles.blocks.open_file import opened
from rmqha.logfiles.json_table import Table, fsync_folder, read, remove, render, replace
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.published import read_copied_damage
from rmqha.logfiles.quarantine_file import quarantine_name
from rmqha.logfiles.raw_log import RawLog
from rmqha.reserve import NO_SPACE
from rmqha.store.environment import Step
from rmqha.store.files.mapped import write_all, zero_range
from rmqha.store.log import copied_damage_file
from rmqha.store.log.record_checksums import drop
from rmqha.store.log.truncate import PIECE, quarantine_bytes
from rmqha.wire.store_layout import BACKUP_SUFFIX, FETCHED, OWN_FOLDER, REPAIR

IGNORED_SUFFIX = ".ignored"
"""Of an intent that was not believed and is not to be met again."""

Range = tuple[int, int]
"""First physical offset, and the one just past the last."""

_log = Logger()


def _ranges(pairs: Any) -> tuple[Range, ...]:
    return tuple((int(start), int(stop)) for start, stop in pairs)


@frozen(kw_only=True)
class Patch:
    """Bytes of a replica's, and which of them are to stand in the log.

    @ivar fetched: The file they are in, below the store's root; its name says their offsets.
    @ivar crc: CRC-32 of that file.
    @ivar ranges: What is to be written, ascending.
    @ivar equal: What both logs have: it was compared.
    @ivar clear: What is to be zeros: behind the log's end nothing may be left.
    """

    fetched: str
    crc: int
    ranges: tuple[Range, ...] = field(converter=_ranges)
    equal: tuple[Range, ...] = field(converter=_ranges)
    clear: tuple[Range, ...] = field(default=(), converter=_ranges)


@frozen(kw_only=True)
class RepairIntent:
    """A repair that has been decided.

    @ivar peer: Whose bytes they are, for people.
    @ivar file_size: Size of each file of the log, in bytes.
    @ivar patches: What is to be done.
    @ivar kept: What stood there: quarantine files below the store's root.
    @ivar creates: Whether files that are missing are made.  Not while a node runs: there a file
        that is missing was deleted by retention.
    """

    peer: str
    file_size: int
    patches: tuple[Patch, ...]
    kept: tuple[str, ...] = ()
    creates: bool = True

    @property
    def ranges(self) -> tuple[Range, ...]:
        return tuple(each for patch in self.patches for each in patch.ranges)

    def as_table(self) -> Table:
        """The intent's file: what it says, and a CRC-32 of just that."""
        table: Table = {name: value for name, value in asdict(self).items()}  # noqa: C416
        return {**table, "crc": _crc(table)}

    @classmethod
    def of_table(cls, table: Table) -> RepairIntent:
        """@raise ValueError: If it is no intent, or its checksum is another."""
        said = {name: value for name, value in table.items() if name != "crc"}
        try:
            if table["crc"] != _crc(said):
                raise ValueError(f"its checksum is not {table['crc']}")
            return cls(
                peer=said["peer"],
                file_size=said["file_size"],
                patches=tuple(Patch(**patch) for patch in said["patches"]),
                kept=tuple(said["kept"]),
                creates=bool(said["creates"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _crc(table: Table) -> int:
    return crc32(render(table))


def fetched_path(root: Path, start: int, stop: int) -> Path:
    """Where a replica's bytes C{[start, stop)} lie until they are in the log; the folder is
    made.
    """
    place = root / OWN_FOLDER / FETCHED
    if not place.is_dir():
        place.mkdir(parents=True)
        fsync_folder(root / OWN_FOLDER)
        fsync_folder(root)
    return place / quarantine_name(start, stop)


def file_crc(path: Path) -> int:
    """CRC-32 of a whole file."""
    crc = 0
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            crc = crc32(piece, crc)
    return crc


def intend_repair(root: Path, ours: RawLog, intent: RepairIntent, step: Step) -> RepairIntent:
    """Keep what stands in the ranges and make the repair certain.  Blocking.

    @param ours: The log as it is.
    @return: The intent, which knows what was kept.
    @raise DiskFull: If there is no room; nothing was changed then.
    """
    kept = []
    for patch in intent.patches:
        for start, stop in (*patch.ranges, *patch.clear):
            for first, last in _held(ours, start, stop):
                path = quarantine_bytes(root, first, last, _bytes(ours, first, last))
                kept.append(str(path.relative_to(root)))
    step("quarantined")
    certain = evolve(intent, kept=tuple(kept))
    replace(root / OWN_FOLDER / REPAIR, certain.as_table())
    step("intended")
    return certain


def _held(ours: RawLog, start: int, stop: int) -> Iterator[Range]:
    """The parts of a range that lie in files there are."""
    position: int | None = start
    while position is not None and position < stop:
        if ours.has(position):
            end = min(ours.run_end(position), stop)
            yield position, end
            position = end
        else:
            position = ours.next_start(position)


def _bytes(log: RawLog, start: int, stop: int) -> Iterator[memoryview]:
    while start < stop:
        piece = log.read(start, min(PIECE, stop - start))
        yield piece
        start += len(piece)


def pending_repair(root: Path, commitlog: Path) -> RepairIntent | None:
    """A repair that was decided of just this log and may not be finished.  Blocking: it reads the
    replica's bytes.  One that cannot be believed is put aside, loudly.

    @raise FileUnreadable: If the system does not let it be read.
    """
    path = root / OWN_FOLDER / REPAIR
    try:
        table = read(path)
        if not table:
            return None
        intent = RepairIntent.of_table(table)
        doubt = _doubt(root, commitlog, intent)
    except (TableUnreadable, ValueError) as error:
        doubt = str(error)
    if not doubt:
        return intent
    aside = path.with_name(path.name + IGNORED_SUFFIX)
    path.with_name(path.name + BACKUP_SUFFIX).unlink(missing_ok=True)
    os.replace(path, aside)
    fsync_folder(path.parent)
    _log.critical(
        "Ignoring the repair in {path}, which is not of this log as it is: {why}; kept as {aside}",
        path=path,
        why=doubt,
        aside=aside,
    )
    return None


def _doubt(root: Path, commitlog: Path, intent: RepairIntent) -> str:
    """Why an intent does not speak of this log; empty if it does."""
    ours = RawLog.open(commitlog, intent.file_size)
    try:
        for patch in intent.patches:
            path = root / patch.fetched
            if not path.is_file():
                return f"{path} is missing"
            if file_crc(path) != patch.crc:
                return f"{path} is damaged"
            theirs = RawLog.open(path, intent.file_size)
            try:
                at = first_other(ours, theirs, patch.equal)
            finally:
                theirs.close()
            if at is not None and at < (first := ours.next_start(0) or 0):
                return f"the log begins at byte {first} by now, behind what was compared"
            if at is not None:
                return f"byte {at} is not the one that was compared"
    finally:
        ours.close()
    return ""


def first_other(ours: RawLog, theirs: RawLog, ranges: tuple[Range, ...]) -> int | None:
    """The first byte of some ranges that one log lacks, or that differs; C{None} if there is
    none.
    """
    for start, stop in ranges:
        position = start
        while position < stop:
            if not (ours.has(position) and theirs.has(position)):
                return position
            size = min(PIECE, stop - position)
            a, b = bytes(ours.read(position, size)), bytes(theirs.read(position, size))
            size = min(len(a), len(b))
            if a[:size] != b[:size]:
                return position + next(row for row in range(size) if a[row] != b[row])
            position += size
    return None


def write_repair(root: Path, commitlog: Path, intent: RepairIntent, step: Step) -> None:
    """Write a replica's bytes into the log, durably.  Blocking; safe to repeat.

    @raise DiskFull: If there is no room; a later call goes on.
    """
    commitlog.mkdir(parents=True, exist_ok=True)
    for patch in intent.patches:
        theirs = RawLog.open(root / patch.fetched, intent.file_size)
        try:
            for start, stop in patch.ranges:
                _write(commitlog, intent, start, stop, theirs)
                step("written")
            for start, stop in patch.clear:
                _clear(commitlog, intent.file_size, start, stop)
        finally:
            theirs.close()
    fsync_folder(commitlog)
    step("synced")


def _write(commitlog: Path, intent: RepairIntent, start: int, stop: int, theirs: RawLog) -> None:
    size = intent.file_size
    while start < stop:
        first = start - start % size
        end = min(stop, first + size)
        path = commitlog / file_name(first)
        with nullcontext() if intent.creates else suppress(FileNotFoundError):
            flags = os.O_CREAT if intent.creates else 0
            _write_file(path, size, start - first, end - first, theirs, first, flags)
        start = end


def _clear(commitlog: Path, file_size: int, start: int, stop: int) -> None:
    """Leave nothing behind the log's end: later files go, last to first."""
    first = start - start % file_size
    for later in reversed(range(first + file_size, stop, file_size)):
        (commitlog / file_name(later)).unlink(missing_ok=True)
    path = commitlog / file_name(first)
    if path.exists():
        _write_file(path, file_size, start - first, min(stop - first, file_size), None, first)


def _write_file(
    path: Path,
    file_size: int,
    start: int,
    stop: int,
    theirs: RawLog | None,
    first: int,
    flags: int = 0,
) -> None:
    """Write a part of one file, and make it a whole file of the log.

    When it was last written stays as it was: what is old is deleted by that.

    @param start: Where the part begins, from the file's start.
    @param first: Physical offset of the file's first byte.
    @param flags: With C{O_CREAT} a file that is missing is made.
    @raise FileNotFoundError: If it is missing otherwise.
    """
    there = path.exists()
    with opened(path, os.O_RDWR | flags) as fd:
        try:
            before = os.fstat(fd)
            if before.st_size < file_size:
                os.ftruncate(fd, file_size)
            if theirs is None:
                zero_range(fd, start, stop)
            else:
                for piece in _bytes(theirs, first + start, first + stop):
                    write_all(fd, piece, start)
                    start += len(piece)
            os.fsync(fd)
            if there:
                os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull(str(path), stop - start) from error
            raise


def finish_repair(root: Path, intent: RepairIntent, step: Step = lambda name: None) -> None:
    """Log, queues and index are right: the intent has done its work."""
    drop(root, intent.file_size, intent.ranges)
    copied = read_copied_damage(root)
    if copied.forget(intent.ranges):
        copied_damage_file.save(root, copied)
    remove(root / OWN_FOLDER / REPAIR)
    drop_fetched(root)
    step("done")


def drop_fetched(root: Path) -> None:
    """Remove what was fetched and is not needed any more."""
    place = root / OWN_FOLDER / FETCHED
    if place.is_dir():
        for path in place.iterdir():
            path.unlink(missing_ok=True)
        place.rmdir()
        fsync_folder(place.parent)
