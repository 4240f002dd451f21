"""What a node does with its log before it goes on with it: find the end, tell a torn tail from
damage, cut.

After a clean stop the last three files are checked, after a crash everything since
the newest file whose first record the checkpoint calls flushed.  Where the log ends is decided
in L{rmqha.logfiles.log_end}.  What lies behind decides what that means: nothing valid, and a
crash tore the tail; a valid record, and something has damaged the log, which a master must not
repair by cutting away what it acknowledged (docs/states.rst, A damaged log).

Rules: docs/protocol/store.rst, Recovery.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from attrs import asdict, define, field, frozen

from rmqha.errors import LogCorrupt
from rmqha.logfiles.blocks.open_file import data_extents
from rmqha.logfiles.log_end import LogEnd, Progress, damage_behind, find_log_end
from rmqha.logfiles.scan import HEAD, candidates, data_end, judge
from rmqha.store.files.mapped import LogFolder, MappedFile
from rmqha.wire.log.copied_damage import CopiedDamage
from rmqha.wire.log.layout import BODY_AT, IP6_EXTRA
from rmqha.wire.log.record import Fault, stored_at

CLEAN_FILES = 3
"""How many of the last files are checked after a clean stop, as stock brokers do."""

PIECE = 1 << 20
"""Bytes searched at once for a file's last record."""

LAST_PIECES = 8
"""Pieces at a file's end in which its last record is looked for."""


@frozen(kw_only=True)
class Recovery(LogEnd):
    """What recovery found; nothing was changed yet.

    @ivar tail: Just past the last byte behind C{end} that may not be zero.
    @ivar corrupt: Set if a valid record follows the end: damage, not a torn tail.
    """

    tail: int
    corrupt: LogCorrupt | None

    def status(self) -> dict[str, Any]:
        """C{recovery} of C{/status}."""
        return {
            "from": self.start,
            "end": self.end,
            "records": self.records,
            "endedBy": self.reason.value if self.reason is not None else "end of files",
        }


@define(eq=False)
class FolderReader:
    """All bytes of a folder's files, valid or not, as a log.  They are read by C{pread}: behind a
    log's end there are holes, and where memory is the disk (tmpfs) a look at one through the map
    takes a page of it, which a full one has not, and kills the process.
    """

    folder: LogFolder
    file_size: int = field(init=False)
    min_offset: int = field(init=False)
    end: int = field(init=False)
    confirmed: int = field(init=False)

    @classmethod
    def of_file(cls, file: MappedFile) -> FolderReader:
        return cls(LogFolder(file.path.parent, file.size, [file]))

    def __attrs_post_init__(self) -> None:
        files = self.folder.files
        self.file_size = self.folder.file_size
        self.min_offset = files[0].start if files else 0
        self.end = self.confirmed = files[-1].end if files else 0

    def file_end(self, offset: int) -> int:
        """Physical offset of the end of the file that holds C{offset}."""
        return self.folder.at(offset).end

    def read(self, offset: int, size: int) -> memoryview:
        """At most C{size} bytes: they end where the file does."""
        file = self.folder.at(offset)
        start = offset - file.start
        return memoryview(os.pread(file.fd, min(size, file.size - start), start))

    def stored_at(self, offset: int) -> int:
        """Store time of the record at C{offset}, in milliseconds since 1970."""
        return stored_at(self.read(offset, BODY_AT + 2 * IP6_EXTRA), 0)

    def extents(self, offset: int) -> Iterator[tuple[int, int]]:
        """Physical ranges from C{offset} on that may hold something, file by file."""
        for file in self.folder.files:
            if file.end > offset:
                first = max(offset - file.start, 0)
                for start, stop in data_extents(file.fd, first, file.size):
                    yield file.start + start, file.start + stop


def first_file(folder: LogFolder, *, crashed: bool, safe_time: int, durable: int = 0) -> int:
    """Where checking starts, as a row of C{folder.files}.

    @param crashed: Whether the last run ended without a clean stop.
    @param safe_time: Up to which store time the checkpoint calls everything flushed,
        in milliseconds since 1970.
    @param durable: Up to where the log was surely on the disk, 0 if nobody knows: a clock that was
        set back has later files with earlier times.
    """
    files = folder.files
    if not crashed:
        return max(0, len(files) - CLEAN_FILES)
    for row in range(len(files) - 1, 0, -1):
        stored = first_stored_at(files[row])
        if 0 < stored <= safe_time and not 0 < durable < files[row].start:
            return row
    return 0


def first_stored_at(file: MappedFile) -> int:
    """Store time of a file's first record in milliseconds, 0 if there is none."""
    reader = FolderReader.of_file(file)
    size = judge(reader, file.start, crc=False)
    return 0 if isinstance(size, Fault) or size < 0 else reader.stored_at(file.start)


def recover(
    folder: LogFolder,
    row: int,
    *,
    crc: bool = True,
    nul_is_torn_from: int = 0,
    copied: CopiedDamage | None = None,
    progress: Progress | None = None,
) -> Recovery:
    """Check the log from a file on, and look at what lies behind its end.

    @param row: The file to start with, from L{first_file}.
    @param crc: Whether bodies are checked (C{checkCRCOnRecover}).
    @param nul_is_torn_from: See L{rmqha.logfiles.log_writer}.
    @param copied: Damaged records that are as the master had them.
    """
    reader = FolderReader(folder)
    start = folder.files[row].start if folder.files else 0
    found = find_log_end(
        reader, start, crc=crc, nul_is_torn_from=nul_is_torn_from, copied=copied, progress=progress
    )
    ended_inside = found.reason is not None
    return Recovery(
        **asdict(found, recurse=False),
        tail=data_end(reader, found.end) if ended_inside or found.blank else found.end,
        corrupt=_damage(reader, found.end, found.reason),
    )


def _damage(reader: FolderReader, end: int, reason: Fault | None) -> LogCorrupt | None:
    """The error that a valid record behind the end is."""
    found = None if reason is None else damage_behind(reader, end)
    if reason is None or found is None:
        return None
    return LogCorrupt(str(reader.folder.at(end).path), end, reason.value, found)


def last_record_of(file: MappedFile) -> int | None:
    """The last record of a full file: looked for backwards from its end, bodies unchecked.
    Blocking.

    @return: Its physical offset; C{None} if there is none in the last megabytes.
    """
    high, reader = file.size, FolderReader.of_file(file)
    for _ in range(LAST_PIECES):
        low = max(0, high - PIECE)
        # A record may begin in this piece and say where it is in the next.
        data = os.pread(file.fd, min(high + HEAD, file.size) - low, low)
        for place in reversed(candidates(data, file.start + low)):
            verdict = judge(reader, place, crc=False)
            if not isinstance(verdict, Fault) and verdict > 0:
                return place
        if low == 0:
            break
        high = low
    return None


def cut(folder: LogFolder, end: int, *, changed_from: int | None = None) -> None:
    """Leave nothing behind C{end}: zero the rest of its file, delete later files last to
    first, and fsync what is left.  Blocking; safe to repeat.

    The file that starts just at C{end} is kept (and zeroed): the blank before it is
    log only because a file follows.

    @param changed_from: Files from this offset on may not be on the disk, though what
        they hold is log: after a crash, everything checked.
    """
    for file in folder.files:
        if file.end > end and file.start <= end:
            file.zero(max(end - file.start, 0), file.size)
        if file.end > (end if changed_from is None else changed_from) and file.start <= end:
            os.fsync(file.fd)
    folder.drop_behind(end)
    if folder.path.is_dir():
        folder.sync()
