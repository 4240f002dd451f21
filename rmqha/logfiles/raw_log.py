"""The bytes of a log's files, without a lock and without a map.

Offline tools look at stores that may be damaged, in use, or cut while they look: so
bytes come by C{pread}, what is not there reads as zeros, and what is wrong is told
instead of raised (docs/architecture.rst, Mapped files).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from attrs import define, field

from rmqha.errors import NotAStore
from rmqha.logfiles.blocks.open_file import OpenLogFile, read_at
from rmqha.logfiles.listing import (
    LOG_NAME,
    STRAY,
    Finding,
    FoundFile,
    FoundFiles,
    in_folder,
    log_folder,
)
from rmqha.logfiles.log_writer import LogWriter
from rmqha.logfiles.quarantine_file import QUARANTINE_NAME, in_quarantine
from rmqha.wire.store_layout import CHECKPOINT, COMMITLOG, CONSUMEQUEUE, LOCK, PARTIAL_SUFFIX

BESIDE = (CHECKPOINT, CONSUMEQUEUE, LOCK)
"""What shows that a folder is a store whose log was not begun yet, or is gone."""


@define(kw_only=True, eq=False)
class RawLog:
    """All bytes of a log's files, valid or not.

    @ivar path: What was asked for: a folder, or a quarantine file.
    @ivar root: The store's root, C{None} if only a log was given.
    @ivar file_size: Size of each file, in bytes.
    @ivar pieces: The files that can be read, in the order of the log.
    @ivar findings: What is wrong with files; grows when reading one fails.
    @ivar writer: Who wrote its end, as far as is known.
    """

    path: Path
    root: Path | None
    file_size: int
    pieces: tuple[FoundFile, ...]
    findings: list[Finding]
    writer: LogWriter
    _starts: list[int] = field(init=False)
    _piece: FoundFile | None = field(default=None, init=False)
    _read: OpenLogFile | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._starts = [piece.start for piece in self.pieces]

    @classmethod
    def open(cls, path: Path, file_size: int | None = None) -> Self:
        """Find the log of a store's root, of a C{commitlog} folder or a quarantine file.

        @param file_size: C{mappedFileSizeCommitLog}, if it is known.
        @raise NotAStore: If there is none.
        """
        if path.is_file():
            return cls._of(path, None, _quarantined(path, file_size))
        if not path.is_dir():
            raise NotAStore(str(path), "it does not exist")
        if any((path / name).exists() for name in (COMMITLOG, *BESIDE)):
            folder = log_folder(path)
            return cls._of(folder, path, in_folder(folder, file_size))
        root = path.parent if path.name == COMMITLOG else None
        if root is None and not any(map(_is_log_file, path.iterdir())):
            raise NotAStore(str(path), f"it holds neither {COMMITLOG} nor log files")
        return cls._of(path, root, in_folder(path, file_size))

    @classmethod
    def _of(cls, path: Path, root: Path | None, found: FoundFiles) -> Self:
        # What was cut was judged before: all that a quarantine file holds is shown.
        writer = LogWriter(master=True) if path.is_file() else LogWriter.of(root)
        return cls(
            path=path,
            root=root,
            file_size=found.file_size,
            pieces=found.pieces,
            findings=list(found.findings),
            writer=writer,
        )

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte there is."""
        return self.pieces[0].start if self.pieces else 0

    @property
    def end(self) -> int:
        """Physical offset of the end of the last file."""
        return self.pieces[-1].end if self.pieces else 0

    @property
    def confirmed(self) -> int:
        """The same: nothing was checked."""
        return self.end

    @property
    def held(self) -> int:
        """Bytes in all files, whatever they are."""
        return sum(piece.size for piece in self.pieces)

    @property
    def first_finding(self) -> Finding | None:
        """The first thing that is wrong with the log's own files, strays apart."""
        return next((found for found in self.findings if found.reason != STRAY), None)

    def at(self, offset: int) -> FoundFile:
        """The piece that holds a byte.

        @raise ValueError: If none does.
        """
        row = bisect_right(self._starts, offset) - 1
        if row < 0 or offset >= self.pieces[row].end:
            raise ValueError(f"byte {offset} is in no readable file of {self.path}")
        return self.pieces[row]

    def has(self, offset: int) -> bool:
        """Whether a byte lies in a file that can be read."""
        row = bisect_right(self._starts, offset) - 1
        return row >= 0 and offset < self.pieces[row].end

    def file_end(self, offset: int) -> int:
        """Physical offset of the end of the file that holds C{offset}."""
        return self.at(offset).end

    def run_end(self, offset: int) -> int:
        """Physical offset at which the first gap between files begins, from C{offset} on."""
        row = bisect_right(self._starts, offset) - 1
        end = self.pieces[row].end
        for piece in self.pieces[row + 1 :]:
            if piece.start != end:
                break
            end = piece.end
        return end

    def run_start(self, offset: int) -> int:
        """Physical offset at which the last gap between files ends, below C{offset}."""
        row = bisect_right(self._starts, offset - 1) - 1
        if row < 0:
            return self.min_offset
        while row and self.pieces[row - 1].end == self.pieces[row].start:
            row -= 1
        return self._starts[row]

    def next_start(self, offset: int) -> int | None:
        """Physical offset of the first file at or behind C{offset}."""
        row = bisect_right(self._starts, offset - 1)
        return self._starts[row] if row < len(self._starts) else None

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of one file; zeros where it has none."""
        piece = self.at(offset)
        size = min(size, piece.end - offset)
        inside = offset - piece.start
        there = max(0, min(size, piece.size - inside))
        data = self._pread(piece, there, inside) if there else b""
        return memoryview(data if len(data) == size else data.ljust(size, b"\0"))

    def extents(self, offset: int) -> Iterator[tuple[int, int]]:
        """Physical ranges from C{offset} on that may hold something, file by file."""
        for piece in self.pieces:
            if piece.end > offset:
                yield from self._extents(piece, offset)

    def _extents(self, piece: FoundFile, offset: int) -> list[tuple[int, int]]:
        shift = piece.start - piece.place
        first = max(offset, piece.start) - shift
        try:
            ranges = self._open(piece).extents(first, piece.place + piece.size)
        except OSError as error:
            self._failed(piece, error)
            return []
        return [(start + shift, stop + shift) for start, stop in ranges]

    def _pread(self, piece: FoundFile, size: int, inside: int) -> bytes:
        try:
            return read_at(self._open(piece), piece.place + inside, size)
        except OSError as error:
            self._failed(piece, error)
            return b""

    def _failed(self, piece: FoundFile, error: OSError) -> None:
        """Tell once for each file that it cannot be read."""
        reason = f"unreadable: {os.strerror(error.errno or 0)}"
        finding = Finding(piece.where, piece.start, reason)
        if finding not in self.findings:
            self.findings.append(finding)

    def _open(self, piece: FoundFile) -> OpenLogFile:
        if self._read is None or self._piece is not piece:
            self.close()
            self._read, self._piece = piece.open(), piece
        return self._read

    def close(self) -> None:
        """Close the file that was read last; reading opens it again."""
        if self._read is not None:
            self._read.close()
        self._read, self._piece = None, None

    def __del__(self) -> None:
        # Many logs are looked at once and let go: none leaves a descriptor behind.
        self.close()


def _is_log_file(path: Path) -> bool:
    return bool(LOG_NAME.fullmatch(path.name.removesuffix(PARTIAL_SUFFIX)))


def _quarantined(path: Path, file_size: int | None) -> FoundFiles:
    if not QUARANTINE_NAME.fullmatch(path.name):
        raise NotAStore(str(path), "a file can only be a quarantine file, <at>-<end>.log")
    if file_size is None:
        # <root>/rmqha/quarantine/<file>: the log it was cut from tells the size.
        parents = path.resolve().parents
        log = parents[2] / COMMITLOG if len(parents) > 2 else None
        if log is not None and log.is_dir():
            found = in_folder(log)
            file_size = found.file_size if found.pieces else None
    return in_quarantine(path, file_size)
