"""
The files of a log as they lie on disk, whatever state they are in.

A node refuses a folder with a missing or cut file; a person who has to find out what
happened needs to read the rest of it.  So nothing is refused here: what is wrong is
told with its path, and what can be read has its place.

Source: docs/operations.rst, Verify.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG

from attrs import frozen

from rmqha.store.files.mapped import LOG_NAME, file_name
from rmqha.wire.log.layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_BLANK, MIN_RECORD

QUARANTINE_NAME = re.compile(r"(\d{20})-(\d{20})(?:\.\d+)?\.log", re.ASCII)
"""First and last physical offset of what L{rmqha.store.log.truncate.quarantine} kept."""

STRAY = "not a log file"
"""The reason of a L{Finding} about a name that is none of the log's."""


@frozen
class Finding:
    """
    Something that is not as it should be.

    @ivar path: The file, or the folder of a queue.
    @ivar offset: Where: a physical offset in a log, a queue offset in a queue, the
        number of an entry in an index, 0 for a file as a whole.
    @ivar reason: What is wrong, with its numbers.
    """

    path: str
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} at {self.offset}: {self.reason}"


@frozen
class FoundFile:
    """
    A run of the log's bytes in one file.

    @ivar path: The file.
    @ivar start: Physical offset of the first byte.
    @ivar end: Physical offset of the end of the log file it is, or was, part of.
    @ivar place: Where the first byte stands in C{path}.
    @ivar size: Bytes that C{path} has of it; the rest up to C{end} reads as zeros.
    """

    path: Path
    start: int
    end: int
    place: int
    size: int


@frozen
class FoundFiles:
    """
    What a folder, or a quarantine file, holds of a log.

    @ivar file_size: Size of each log file, in bytes: given, or the likeliest.
    @ivar pieces: In the order of the log; readable ones only.
    @ivar findings: What is wrong with names and sizes.
    """

    file_size: int
    pieces: tuple[FoundFile, ...]
    findings: tuple[Finding, ...]


def in_folder(folder: Path, file_size: int | None = None) -> FoundFiles:
    """
    List the files of a C{commitlog} folder; one that does not exist holds none.

    @param file_size: C{mappedFileSizeCommitLog}, if it is known.
    """
    findings = []
    sizes: dict[int, int] = {}
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        status = path.stat(follow_symlinks=True) if path.exists() else None
        if status is None or not S_ISREG(status.st_mode) or not LOG_NAME.fullmatch(path.name):
            findings.append(Finding(str(path), 0, STRAY))
        else:
            sizes[int(path.name)] = status.st_size
    wanted = file_size or likely_size(sizes)
    placed, pieces = [], []
    for start, size in sizes.items():
        path = folder / file_name(start)
        if size != wanted:
            findings.append(Finding(str(path), start, f"{size} bytes, expected {wanted}"))
        if start % wanted:
            reason = f"extra: {start} is not a multiple of the file size {wanted}"
            findings.append(Finding(str(path), start, reason))
            continue
        placed.append(start)
        problem = unreadable(path)
        if problem:
            findings.append(Finding(str(path), start, f"unreadable: {problem}"))
        else:
            pieces.append(FoundFile(path, start, start + wanted, 0, min(size, wanted)))
    for before, after in pairwise(placed):
        if before + wanted != after:
            count = (after - before) // wanted - 1
            reason = f"missing, {count} files: the log goes on in {file_name(after)}"
            path = folder / file_name(before + wanted)
            findings.append(Finding(str(path), before + wanted, reason))
    return FoundFiles(wanted, tuple(pieces), tuple(findings))


def likely_size(sizes: dict[int, int]) -> int:
    """
    The file size most of a log's files agree on, by their sizes and by their names.

    @param sizes: Size of each file, by its first offset; ascending.
    @return: In bytes; 1 GiB, RocketMQ's default, if nothing tells.
    """
    votes = Counter(size for size in sizes.values() if size)
    votes.update(after - before for before, after in pairwise(sizes))
    if not votes:
        return 1 << 30
    return max(votes, key=lambda size: (votes[size], size))


def unreadable(path: Path) -> str:
    """
    Why a file cannot be opened, in the system's words; empty if it can.
    """
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""


def in_quarantine(path: Path, file_size: int | None = None) -> FoundFiles:
    """
    The log bytes a quarantine file kept.

    Its name says their offsets.  Without a file size the blanks among them tell where
    log files ended.
    """
    match = QUARANTINE_NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path.name} is not named like a quarantine file")
    start, end = (int(group) for group in match.groups())
    held = path.stat().st_size
    findings = []
    if held != end - start:
        reason = f"{held} bytes, its name says {end - start}"
        findings.append(Finding(str(path), start, reason))
    if file_size is None:
        ends = _ends_by_blanks(path, start, held)
        file_size = max([after - before for before, after in pairwise([start, *ends])])
    else:
        first_end = start - start % file_size + file_size
        ends = [*range(first_end, end, file_size)]
        ends.append(ends[-1] + file_size if ends else first_end)
    pieces, position = [], start
    for file_end in ends:
        place = position - start
        size = max(0, min(held - place, file_end - position))
        pieces.append(FoundFile(path, position, file_end, place, size))
        position = file_end
    return FoundFiles(file_size, tuple(pieces), tuple(findings))


def _ends_by_blanks(path: Path, start: int, held: int) -> list[int]:
    """
    Follow the sizes of records and note where a blank says that its file ends.
    """
    ends = []
    position = 0
    with open(path, "rb", buffering=0) as file:
        while position + MIN_BLANK <= held:
            head = os.pread(file.fileno(), MIN_BLANK, position)
            size = int.from_bytes(head[:4], "big", signed=True)
            magic = int.from_bytes(head[4:], "big", signed=True)
            if magic == MAGIC_BLANK and size >= MIN_BLANK:
                ends.append(start + position + size)
            elif magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD:
                break
            position += size
    # Trailing zeros of the last record were not kept: leave room for them.
    if not ends or ends[-1] < start + held:
        ends.append(start + held + 4096)
    return ends
