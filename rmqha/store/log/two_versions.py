"""A place where our log and the master's differ: on which side are its records right?

That bytes differ says nothing about whose disk has lost them.  So the records from there on are
decoded and checked on both sides.  The CRC covers the body only, or all of a record where a 5.x
broker wrote the property for it: a bit in the properties decodes on both sides, and then only the
checksum that a node keeps of each record tells.  Both versions of the first record are kept,
whatever becomes of the log.

Source: docs/states.rst, Diverged.
"""

from __future__ import annotations

import os
from pathlib import Path

from attrs import evolve, field, frozen
from isal.isal_zlib import crc32

from rmqha.errors import DiskFull
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.quarantine_file import version_name
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.scan import scan
from rmqha.reserve import NO_SPACE
from rmqha.store.log.record_checksums import KeptChecksums
from rmqha.wire.log.record import Fault, check
from rmqha.wire.log.record_crc import whole_crc_holds
from rmqha.wire.store_layout import OWN_FOLDER, QUARANTINE

UNREADABLE = 64 << 10
"""Most bytes kept of a version of which nobody knows where its record ends."""


_BAD = -1


@frozen(kw_only=True)
class TwoVersions:
    """What the records of two logs are worth from a difference on.

    @ivar start: Physical offset of the first record that differs.
    @ivar both: How many decode and check on both sides.
    @ivar ours: How many on ours alone.
    @ivar theirs: How many on the other alone.
    @ivar neither: How many on neither.
    @ivar first_ours: Size of the first record on our side, 0 if it is none.
    @ivar first_theirs: The same of the other.
    @ivar kept: Which version of the first is right by what is kept of it: C{ours}, C{theirs},
        C{both} if each side's own checksum speaks for its own, or C{""} if none tells.
    """

    start: int
    both: int = field(default=0)
    ours: int = field(default=0)
    theirs: int = field(default=0)
    neither: int = field(default=0)
    first_ours: int = field(default=0)
    first_theirs: int = field(default=0)
    kept: str = field(default="")

    @property
    def records(self) -> int:
        """How many there are, on any side."""
        return self.both + self.ours + self.theirs + self.neither

    def sentence(self, ours: str = "ours", theirs: str = "the master's") -> str:
        """The verdict, for a person.

        @param ours: What our side is called.
        @param theirs: What the other is called.
        """
        total = self.records
        if not total:
            return f"no whole record could be compared from byte {self.start} on"
        parts = [f"{self.both} of {total} records decode on both sides"]
        for count, where in (
            (self.ours, f"only on {ours}"),
            (self.theirs, f"only on {theirs}"),
            (self.neither, "on neither"),
        ):
            if count:
                parts.append(f"{count} {where}")
        text = ", ".join(parts)
        if self.kept == "both":
            text += "; each side's checksum says that its own version of the first is right"
        elif self.kept:
            right = ours if self.kept == "ours" else theirs
            text += f"; the checksum kept of the first says that {right} is right"
        elif self.first_ours and self.first_theirs:
            text += "; no checksum tells which version of the first is right"
        return text


def judge_versions(
    ours: memoryview | bytes, theirs: memoryview | bytes, start: int, file_end: int, file_size: int
) -> TwoVersions:
    """Decode and check the records of two versions of a piece of a log.

    @param ours: Our bytes.
    @param theirs: The other's; not always as many.
    @param start: Physical offset of the first byte, where a record begins.
    @param file_end: Physical offset of the end of its file.
    @param file_size: Size of a log file, in bytes.
    """
    both = only_ours = only_theirs = neither = 0
    first: tuple[int, int] | None = None
    waiting, seen = [0], set[int]()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        mine, others = (_size(side, place, start, file_end, file_size) for side in (ours, theirs))
        first = first or (max(mine, 0), max(others, 0))
        both += mine > 0 and others > 0
        only_ours += mine > 0 >= others
        only_theirs += others > 0 >= mine
        neither += mine == others == _BAD
        waiting += [place + size for size in (mine, others) if size > 0]
    assert first is not None, "the first place was looked at"
    return TwoVersions(
        start=start,
        both=both,
        ours=only_ours,
        theirs=only_theirs,
        neither=neither,
        first_ours=first[0],
        first_theirs=first[1],
    )


def judge_by_checksums(
    found: TwoVersions, ours: memoryview | bytes, theirs: memoryview | bytes, *kept: KeptChecksums
) -> TwoVersions:
    """Say which version of the first record is right by what one side keeps of it, or each.
    Blocking.
    """
    known = {checksums.of(found.start) for checksums in kept}
    right = [
        side
        for side, version, size in (
            ("ours", ours, found.first_ours),
            ("theirs", theirs, found.first_theirs),
        )
        if size and crc32(version[:size]) in known
    ]
    return evolve(found, kept="both" if len(right) > 1 else "".join(right))


def _size(side: memoryview | bytes, place: int, start: int, file_end: int, file_size: int) -> int:
    """The size of a record that decodes and checks.

    @return: 0 where there is none, as at the end of the file or of the bytes at hand; L{_BAD}
        for what is damaged.
    """
    found = check(side, place, len(side), start + place, file_end, max_size=file_size)
    if isinstance(found, Fault):
        return 0 if found in (Fault.INCOMPLETE, Fault.NOTHING, Fault.FILE_END) else _BAD
    if found > 0 and whole_crc_holds(side[place : place + found]) is False:
        return _BAD
    return max(found, 0)


def judge_place(
    root: Path, log: LogReader, at: int, theirs: bytes
) -> tuple[TwoVersions, bytes, bytes]:
    """Judge a difference.  Blocking: it walks the file that holds the place.

    @param root: The store's root.
    @param log: Ours.
    @param at: Physical offset of the first byte that differs.
    @param theirs: The other's bytes from there on.
    @return: The verdict, and the bytes of each side from the first record on that differs.
    """
    start = _record_start(log, at)
    ours = bytes(log.read(start, at - start + len(theirs)))
    whole = ours[: at - start] + theirs
    found = judge_versions(ours, whole, start, log.file_end(start), log.file_size)
    return judge_by_checksums(found, ours, whole, KeptChecksums(root, log.file_size)), ours, whole


def keep_versions(root: Path, log: LogReader, at: int, theirs: bytes) -> tuple[TwoVersions, str]:
    """Judge a difference, and keep both versions of the first record.  Blocking, as L{judge_place}.

    @param theirs: The master's bytes from there on.
    @return: The verdict, and where the versions are, in words.
    """
    found, ours, whole = judge_place(root, log, at, theirs)
    start = found.start
    known = max(found.first_ours, found.first_theirs) or UNREADABLE
    try:
        paths = [
            _kept(root, start, version[: size or known], side)
            for version, size, side in (
                (ours, found.first_ours, "ours"),
                (whole, found.first_theirs, "master"),
            )
        ]
    except DiskFull as error:
        return found, f"neither version of the record at byte {start} could be kept: {error}"
    names = " and ".join(str(path.relative_to(root)) for path in paths)
    return found, f"both versions of the record at byte {start} are kept: {names}"


def _record_start(log: LogReader, at: int) -> int:
    """Where the record begins that holds a byte, as far as the file can be followed."""
    position = log.file_end(at) - log.file_size
    position = max(position, log.min_offset)
    for _, block in scan(log, position, at + 1, crc=False):
        if block.end <= at:
            position = block.end
        elif len(block.start):
            position = int(block.start[-1])
    return position


def _kept(root: Path, start: int, version: bytes, side: str) -> Path:
    """Write one version to the quarantine, once.

    @raise DiskFull: If there is no room for it.
    """
    folder = root / OWN_FOLDER / QUARANTINE
    number = 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            path = folder / version_name(start, start + len(version), side, number)
            if not path.exists():
                break
            if path.read_bytes() == version:
                return path
            number += 1
        with open(path, "xb") as out:
            out.write(version)
            out.flush()
            os.fsync(out.fileno())
        fsync_folder(folder)
    except OSError as error:
        if error.errno in NO_SPACE:
            path.unlink(missing_ok=True)
            raise DiskFull(str(path), len(version)) from error
        raise
    return path
