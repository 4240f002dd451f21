"""A file that keeps what was cut from a log, read like the log it was part of.

Source: docs/states.rst, Diverged.
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

from rmqha.logfiles.listing import Finding, FoundFile, FoundFiles
from rmqha.wire.log.layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_BLANK, MIN_RECORD

QUARANTINE_NAME = re.compile(r"(\d{20})-(\d{20})(?:\.(?:ours|master))?(?:\.\d+)?\.log", re.ASCII)
"""First and last physical offset of what L{rmqha.store.log.truncate.quarantine} kept, or of one of
two versions of a record."""


def quarantine_name(start: int, end: int) -> str:
    """Name a file that keeps C{[start, end)} of a log."""
    return f"{start:020d}-{end:020d}.log"


def version_name(start: int, end: int, side: str, number: int = 1) -> str:
    """Name a file that keeps one of two versions of a record.

    @param side: C{ours} or C{master}.
    @param number: Which version of that side it is.
    """
    more = "" if number == 1 else f".{number}"
    return f"{start:020d}-{end:020d}.{side}{more}.log"


def in_quarantine(path: Path, file_size: int | None = None) -> FoundFiles:
    """The log bytes a quarantine file kept.

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
    """Follow the sizes of records and note where a blank says that its file ends."""
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
