"""The files of a log, as a reader finds them: opened to be read, never mapped.

A map would kill the process when the guard of a replica cuts the log under it; what is
read by C{preadv} at worst is not there.  A file that was opened stays readable after
retention deleted it, so only what is opened too late is lost.

Source of names and sizes: docs/protocol/store.rst, Files.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial, wraps
from logging import getLogger
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from attrs import field, frozen

from rmqha.errors import NotAStore
from rmqha.logfiles.blocks.open_file import OpenLogFile, opened
from rmqha.logfiles.listing import LogFile, likely_size, list_log, log_folder, root_of
from rmqha.wire.log.layout import FIELDS, IP6_EXTRA, MAGIC_BLANK, MAGIC_BYTES, MIN_BLANK
from rmqha.wire.log.record import magic_at, stored_at
from rmqha.wire.store_layout import COMMITLOG

DLEDGER = "dledger-*/data"
"""Folder of the log of a store whose brokers agree by DLedger, one for each of them."""

_LOOKS = 5
# Bytes of a record up to its store time, with a born host of IPv6.
_STORED_BY = FIELDS["store_timestamp"].place.stop + IP6_EXTRA
"""Times a log is looked at anew because a file was deleted meanwhile."""

_T = TypeVar("_T")
_P = ParamSpec("_P")

_log = getLogger(__name__)


@frozen
class LogFiles:
    """The files of one log, in its order; there may be gaps between them.

    @ivar root: The store's root.
    """

    root: Path
    files: tuple[LogFile, ...]
    _starts: list[int] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_starts", [file.start for file in self.files])

    @classmethod
    def find(cls, path: Path) -> Self:
        """List the files of a store.

        @param path: The store's root, or its C{commitlog} folder.
        @raise NotAStore: If there is no log; one without files is empty.
        """
        root = root_of(path)
        folder = log_folder(root)
        try:
            listed = list_log(folder)
        except FileNotFoundError as error:
            raise NotAStore(str(path), _lacks(root, folder)) from error
        except NotADirectoryError as error:
            what = f"its {COMMITLOG} is a file" if root.is_dir() else "it is a file"
            raise NotAStore(str(path), what) from error
        except PermissionError as error:
            raise NotAStore(str(path), f"no permission to read it: {error.strerror}") from error
        sizes = {start: size for start, size in listed.sizes.items() if size}
        return cls(
            root,
            tuple(
                LogFile(folder / listed.name(start), start, end) for start, end in _placed(sizes)
            ),
        )

    @property
    def first(self) -> int:
        """Physical offset of the first byte there is, 0 without files."""
        return self._starts[0] if self._starts else 0

    @property
    def limit(self) -> int:
        """Physical offset just past the last file, written or not."""
        return self.files[-1].end if self.files else 0

    def at(self, offset: int) -> LogFile | None:
        """The file that holds a byte, C{None} if none does."""
        file = self.below(offset)
        return file if file is not None and offset < file.end else None

    def below(self, offset: int) -> LogFile | None:
        """The last file that does not begin above a place."""
        row = bisect_right(self._starts, offset) - 1
        return self.files[row] if row >= 0 else None

    def above(self, offset: int) -> LogFile | None:
        """The first file that begins above a place."""
        row = bisect_right(self._starts, offset)
        return self.files[row] if row < len(self.files) else None

    def pieces(self, start: int, end: int) -> Iterator[tuple[LogFile, int, int]]:
        """The parts of C{[start, end)} that lie in files.

        @return: Each file, and the first and last offset of its part.
        """
        for file in self.files:
            low, high = max(start, file.start), min(end, file.end)
            if low < high:
                yield file, low, high

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of C{[start, end)} that lie in no file."""
        gaps = []
        position = start
        for _, low, high in self.pieces(start, end):
            if low > position:
                gaps.append((position, low))
            position = high
        if position < end:
            gaps.append((position, end))
        return gaps


def _lacks(root: Path, folder: Path) -> str:
    """Why a folder without a log is none of a store's."""
    if not root.exists():
        return "it does not exist"
    if folder != root / COMMITLOG:
        return f"its commit log is not in {folder}"
    if any(root.glob(DLEDGER)):
        return "it is a DLedger store, which has another format"
    return f"it has no folder {COMMITLOG}"


def _placed(sizes: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Start and end of each file; a last one that was cut short is as long as the others."""
    usual = likely_size(sizes)
    starts = [*sizes, None]
    for start, following in zip(sizes, starts[1:], strict=True):
        end = start + usual
        yield start, end if following is None else min(end, following)


def first_stored(places: Iterable[tuple[Path, int]]) -> int | None:
    """Store time of the first record at or behind a place, C{None} if it cannot be told.

    @param places: Files, and where a record may be in them: the place itself, and, as that may be
        a blank or the end of a file, where the next file begins.
    @return: In milliseconds since 1970.
    """
    for path, place in places:
        try:
            with opened(path) as fd:
                head = os.pread(fd, _STORED_BY, place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        if len(head) == _STORED_BY and head[4:8] in MAGIC_BYTES:
            return stored_at(head, 0)
        if len(head) >= MIN_BLANK and magic_at(head, 0) != MAGIC_BLANK:
            return None
    return None


def opened_log(file: LogFile) -> closing[OpenLogFile]:
    """A log's file, open for the time of a block.

    @raise FileNotFoundError: If it was deleted.
    """
    return closing(file.open())


def settled(look: Callable[[], _T]) -> _T:
    """Look at logs, and again if a file was deleted after it had been listed: then it is not
    listed any more.
    """
    for _ in range(_LOOKS):
        try:
            return look()
        except FileNotFoundError as error:
            _log.info("a log file changed while it was read, reading again: %s", error)
    return look()


def settling(look: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have a function look at logs as L{settled} does."""

    @wraps(look)
    def looking(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return settled(partial(look, *args, **kwargs))

    return looking
