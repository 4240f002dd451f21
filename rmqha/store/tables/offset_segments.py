"""The journal of consumer offsets on the disk: what happened to them since their table was written.

The table is written as a whole, every few seconds.  What a group committed since then would be
lost in a crash, and its messages consumed again.  So each offset that changed is appended here
many times a second; the journal begins a new file with each generation of the table, and files
that no generation on the disk needs are deleted.

An offset that moved on counts by maximum, so that a record may be applied to a table that has it
already.  One that was set back, or deleted, is a record of its own kind and counts as it stands:
applied in their order to any state they came from, the records lead to the last one.

Source: docs/protocol/store.rst, The journal of consumer offsets.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import frozen

from rmqha.errors import FileUnreadable
from rmqha.logfiles.json_table import fsync_folder, make_folder, read_file
from rmqha.wire.store_layout import JOURNAL_SUFFIX, OFFSET_JOURNAL, OWN_FOLDER

MAGIC = b"RMQHAOJ1"
"""What a file of the journal begins with."""

BACK, DROPPED, BY_CLIENT = 1, 2, 4
"""The bits of a record's kind: the offset counts though it may be lower; the group has no offsets
in the topic any more; a client committed it to this broker.  0 is an offset that moved on."""

ORDERED = 8
"""Of a record of another kind: what the group pops in order of the queue, which stands as JSON
behind L{ORDERED_MARK} in the key; empty if nothing is known any more."""

ORDERED_MARK = "\n"
"""No topic and no group has it."""

ALL_QUEUES = -1
"""The queue id of a record that is about all queues."""

_HEAD = struct.Struct(">8sq")
_BATCH = struct.Struct(">iI")
_RECORD = struct.Struct(">BiqH")

_QUEUES, _OFFSETS = range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)
_LONGEST = (1 << 16) - 1
"""What the numbers of a record can hold."""


@frozen
class OffsetChange:
    """What one record says.

    @ivar kind: Bits.
    @ivar key: C{topic@group}.
    @ivar queue_id: L{ALL_QUEUES} of a group whose offsets are gone.
    @ivar offset: In messages.
    """

    kind: int
    key: str
    queue_id: int
    offset: int


@frozen
class Segment:
    """One file of the journal.

    @ivar number: Files are applied in the order of their numbers.
    @ivar changes: What is in its whole batches.
    @ivar torn: Bytes behind the last of them.
    @ivar damaged: Bytes before a whole batch that are none: those were durable once.
    """

    number: int
    changes: tuple[OffsetChange, ...] = ()
    torn: int = 0
    damaged: int = 0

    @property
    def name(self) -> str:
        return name_of(self.number)

    def __str__(self) -> str:
        where = f"{self.damaged} bytes before others" if self.damaged else f"{self.torn} at its end"
        return f"{self.name}: {where} are no whole records"


def encode_head(number: int) -> bytes:
    """What a file begins with."""
    return _HEAD.pack(MAGIC, number)


def encode_batch(changes: Iterable[OffsetChange]) -> bytes:
    """Records that are written together, and count together or not at all.  Empty if there are
    none; what no client can have committed (numbers that do not fit) is left to the table.
    """
    parts = []
    for change in changes:
        key = change.key.encode("utf-8", "backslashreplace")
        if len(key) > _LONGEST or change.queue_id not in _QUEUES or change.offset not in _OFFSETS:
            continue
        parts.append(_RECORD.pack(change.kind, change.queue_id, change.offset, len(key)))
        parts.append(key)
    payload = b"".join(parts)
    if not payload:
        return b""
    return _BATCH.pack(len(payload), zlib.crc32(payload)) + payload


def decode(number: int, data: bytes) -> Segment:
    """Read the whole batches of a file.  A crash tears the last one; one that is not whole before
    others was damaged, and they count all the same.  Of a file with a wrong head nothing counts.
    """
    changes: list[OffsetChange] = []
    view = memoryview(data)
    position = whole = min(_HEAD.size, len(data))
    damaged = 0
    while position + _BATCH.size <= len(data):
        found = _batch(view, position)
        if found is None:
            position += 1
            continue
        damaged += position - whole
        changes += found[0]
        position = whole = found[1]
    torn = len(data) - whole
    if data[: _HEAD.size] == encode_head(number):
        return Segment(number, tuple(changes), torn, damaged)
    return Segment(number, torn=torn, damaged=whole) if changes else Segment(number, (), len(data))


def _batch(data: memoryview, position: int) -> tuple[list[OffsetChange], int] | None:
    """The records of a batch, and where it ends; C{None} if there is no whole one."""
    size, crc = _BATCH.unpack_from(data, position)
    start = position + _BATCH.size
    if not 0 < size <= len(data) - start:
        return None
    payload = data[start : start + size]
    try:
        # What is no batch ends this soon; its checksum would take all of it.
        changes = list(_records(payload))
    except (struct.error, UnicodeDecodeError):
        return None
    return (changes, start + size) if zlib.crc32(payload) == crc else None


def _records(payload: memoryview) -> Iterator[OffsetChange]:
    position = 0
    while position < len(payload):
        kind, queue_id, offset, length = _RECORD.unpack_from(payload, position)
        position += _RECORD.size + length
        if position > len(payload):
            raise struct.error("a key behind the end")
        key = str(payload[position - length : position], "utf-8")
        yield OffsetChange(kind, key, queue_id, offset)


def apply(table: dict[str, dict[int, int]], changes: Iterable[OffsetChange]) -> int:
    """Let changes happen to a table again.

    @param table: Offsets by queue id by C{topic@group}.
    @return: How many changed it.
    """
    count = 0
    for change in changes:
        if change.kind & ORDERED:
            continue
        if change.kind & DROPPED:
            count += table.pop(change.key, None) is not None
            continue
        queues = table.setdefault(change.key, {})
        before = queues.get(change.queue_id)
        if (
            before is None
            or before < change.offset
            or (change.kind & BACK and before != change.offset)
        ):
            queues[change.queue_id] = change.offset
            count += 1
    return count


# --- the folder -------------------------------------------------------------------


def folder_of(root: Path) -> Path:
    """Where the journal of a store is."""
    return root / OWN_FOLDER / OFFSET_JOURNAL


def numbers_in(folder: Path) -> list[int]:
    """The numbers of the files there are, in their order.

    @raise FileUnreadable: If the system does not let them be listed.
    """
    try:
        found = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise FileUnreadable(str(folder), error.errno or 0) from error
    names = (name.removesuffix(JOURNAL_SUFFIX) for name in found)
    return sorted(int(name) for name in names if len(name) == 20 and name.isdigit())


def name_of(number: int) -> str:
    """A file's name."""
    return f"{number:020}{JOURNAL_SUFFIX}"


def path_of(folder: Path, number: int) -> Path:
    """Where one file is."""
    return folder / name_of(number)


def read(folder: Path, first: int) -> Iterator[Segment]:
    """Read the journal.

    @param first: From this file on.
    @raise FileUnreadable: If the system does not let one of them be read: offsets in it would go
        back.
    """
    for number in numbers_in(folder):
        data = read_file(path_of(folder, number)) if number >= first else None
        if data is not None:
            yield decode(number, data)


def forget(folder: Path, least: int) -> None:
    """Delete the files that no generation of the table needs any more.

    @param least: The oldest one that is still needed.
    """
    for number in numbers_in(folder):
        if number < least:
            path_of(folder, number).unlink(missing_ok=True)


class SegmentWriter:
    """Appends to the journal.  All methods block; one is called at a time.

    @ivar size: Bytes of the file that is written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1
        self._number = -1
        self.size = 0

    def append(self, number: int, changes: Iterable[OffsetChange]) -> None:
        """Add a batch, durable on return.

        @param number: Of the file; a new one is made when it is not the last call's.
        @raise OSError: If that failed.  Whatever is in the file then, nothing more must be written
            to it: the next call is given another number.
        """
        data = encode_batch(changes)
        if not data:
            return
        new = number != self._number
        if new:
            self.close()
            make_folder(self._folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(path_of(self._folder, number), flags, 0o644)
            self._number, self.size = number, 0
            data = encode_head(number) + data
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        os.fdatasync(self._fd)
        self.size += len(data)
        if new:
            fsync_folder(self._folder)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._number = -1

    def __del__(self) -> None:
        # A journal that is let go without a stop leaves no descriptor behind.
        self.close()
