"""The log of a store on disk: what a node would have, without being one.

Source: docs/operations.rst, Offline tools.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from attrs import define, field

from rmqha.logfiles.listing import Finding
from rmqha.logfiles.log_end import find_log_end
from rmqha.logfiles.published import read_copied_damage
from rmqha.logfiles.raw_log import RawLog

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


def _find_end(raw: RawLog, progress: Progress | None) -> int:
    """Where a log ends, at the latest where a file is missing."""
    if not raw.pieces:
        return raw.min_offset
    done = 0

    def checked(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, raw.end - raw.min_offset)

    start = raw.min_offset
    torn_from = raw.writer.nul_is_torn_from
    found = find_log_end(
        raw,
        start,
        raw.run_end(start),
        nul_is_torn_from=torn_from,
        copied=read_copied_damage(raw.root),
        progress=checked,
    )
    return found.end


@define(eq=False, init=False)
class OfflineLog:
    """A log read from its files: never locked, never mapped, never changed.

    @ivar raw: The files.
    @ivar end: Just past the last whole, valid record, or the blank before another file.
    """

    raw: RawLog
    end: int = field()

    def __init__(self, path: Path, file_size: int | None = None, end: int | None = None) -> None:
        """Open a log.

        @param path: A store's root, a C{commitlog} folder, or a quarantine file.
        @param file_size: C{mappedFileSizeCommitLog}; without it, what the files say.
        @param end: Where it ends; without it every record is checked to find out.
        @raise NotAStore: If there is no log.
        """
        self.raw = RawLog.open(path, file_size)
        self.end = _find_end(self.raw, None) if end is None else end

    @classmethod
    def of(cls, raw: RawLog, end: int | None = None, progress: Progress | None = None) -> Self:
        """Take a log whose files are open already.

        @param progress: Told how far the search for the end is, if there is one.
        """
        made = cls.__new__(cls)
        made.raw = raw
        made.end = _find_end(raw, progress) if end is None else end
        return made

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with files: missing, extra, cut, unreadable."""
        return self.raw.findings

    @property
    def root(self) -> Path | None:
        """The store's root, C{None} if only a log was given."""
        return self.raw.root

    @property
    def file_size(self) -> int:
        return self.raw.file_size

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte."""
        return min(self.raw.min_offset, self.end)

    @property
    def confirmed(self) -> int:
        """The same as L{end}: all of it was checked."""
        return self.end

    def file_end(self, offset: int) -> int:
        """Physical offset of the end of the file that holds C{offset}."""
        return self.raw.file_end(offset)

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of the log, cut at the end of their file and at L{end}.

        @raise ValueError: If C{offset} is outside C{[min_offset, end]}.
        """
        if not self.min_offset <= offset <= self.end:
            raise ValueError(f"byte {offset} is outside [{self.min_offset}, {self.end}]")
        size = min(size, self.end - offset)
        return self.raw.read(offset, size) if size > 0 else memoryview(b"")

    def close(self) -> None:
        """Close the file that was read last."""
        self.raw.close()
