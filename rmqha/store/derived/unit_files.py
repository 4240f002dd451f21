"""The files of one consume queue: its units by queue offset, and where it goes on.

Source: docs/protocol/store.rst, Consume queues.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from rmqha.logfiles.blocks.open_file import opened
from rmqha.logfiles.listing import Finding, file_name
from rmqha.store.files.descriptors import Descriptors
from rmqha.wire.columnar.queue_units import SIZES, UNIT
from rmqha.wire.lane.compiled import built
from rmqha.wire.store_layout import UNIT_SIZE

# Units read in the first step of a scan, and at most in one: 4 KB and 640 KB.  Most of many
# queues have few units, and to read a hole costs as much as to read data.
_FIRST_UNITS = 204
SCAN_UNITS = 1 << 15

# Where no record begins.
NOWHERE = (1 << 63) - 1

COMPILED = built(Path(__file__).with_name("write_run"))
"""Whether units are written in compiled code where there is nothing unusual about them."""


if TYPE_CHECKING or not COMPILED:

    @define(eq=False)
    class QueueEnd:
        """Where a queue goes on: what compiled code looks at and moves, so that it is where that
        finds it at once.

        @ivar max_offset: The queue offset just past the last unit.
        @ivar highest: The highest queue offset seen in the log, -1 for none.
        @ivar end_physical: Physical offset just past the last unit's record, 0 for none.
        @ivar file_start: Where the file begins in the queue that was written last, in bytes; -1 for
            none.
        @ivar file: Its path.
        """

        max_offset: int = field(init=False, default=0)
        highest: int = field(init=False, default=-1)
        end_physical: int = field(init=False, default=0)
        file_start: int = field(init=False, default=-1)
        file: str = field(init=False, default="")
        # Where the first message is: below the log's first byte it has to be looked for again.
        _min_physical: int = field(init=False, default=NOWHERE)
        # The next queue offset of the running pass over the whole log, -1 before the first.
        _mended: int = field(init=False, default=-1)
        _came: int = field(init=False, default=0)
        _came_bytes: int = field(init=False, default=0)

        def take_came(self) -> tuple[int, int]:
            """Give how many messages came since this was last asked, and their bytes."""
            found = self._came, self._came_bytes
            self._came = self._came_bytes = 0
            return found

        def go_on_in(self, file_start: int, file: str) -> None:
            """Note which file is the last."""
            self.file_start, self.file = file_start, file

    @define(eq=False)
    class Tally:
        """What came to all queues of a store.

        @ivar messages: How many messages.
        @ivar size: Bytes of them in the log.
        @ivar steps: How many of them are not larger than each of L{SIZES}, but than the one before;
            and how many are larger than all.
        """

        messages: int = field(init=False, default=0)
        size: int = field(init=False, default=0)
        steps: list[int] = field(init=False, factory=lambda: [0] * (len(SIZES) + 1))

        def add(self, queue: QueueEnd, raw: bytes) -> None:
            """Count what came to a queue.

            @param raw: Its units, all of messages.
            """
            for each, count in Counter(size for _, size, _ in UNIT.iter_unpack(raw)).items():
                self.steps[bisect_left(SIZES, each)] += count
                self.messages += count
                self.size += each * count
                queue._came += count
                queue._came_bytes += each * count

else:
    from rmqha.store.derived.write_run import QueueEnd
    from rmqha.store.derived.write_run import Tally as Tally


@define(eq=False, kw_only=True)
class UnitFiles(QueueEnd):
    """The units of one queue, in files of one size.

    @ivar folder: Where its files are, as text.
    @ivar topic: Its topic.
    @ivar queue_id: Its number in the topic.
    @ivar file_size: Size of each file, in bytes, a multiple of 20.
    """

    folder: str
    topic: str
    queue_id: int
    file_size: int
    descriptors: Descriptors
    # Byte position of the first file, -1 while there is none.
    _first: int = field(init=False, default=-1)
    # The piece that recovery read last, and its first queue offset: it asks for it again.
    _piece: tuple[int, bytes] | None = field(init=False, default=None)

    @property
    def first_offset(self) -> int:
        """The queue offset where the first file starts."""
        return max(self._first, 0) // UNIT_SIZE

    def paths(self) -> list[str]:
        if self._first < 0:
            return []
        return [
            self._path(start)
            for start in range(self._first, self.max_offset * UNIT_SIZE, self.file_size)
        ]

    # --- reading ---

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code at a queue offset; C{None} outside the queue."""
        raw = self.units(offset, 1)
        return UNIT.unpack(raw) if raw else None

    def units(self, offset: int, count: int) -> bytes:
        """The raw units from a queue offset on, as many as there are up to C{count}.

        Pre-blank units are given as they are: physical offset 0, size 2147483647.
        """
        if not self.first_offset <= offset < self.max_offset:
            return b""
        if self._piece is not None:
            first, piece = self._piece
            end = min(offset + count, self.max_offset) - first
            if first <= offset and end * UNIT_SIZE <= len(piece):
                return piece[(offset - first) * UNIT_SIZE : end * UNIT_SIZE]
        position = offset * UNIT_SIZE
        end = min(offset + count, self.max_offset) * UNIT_SIZE
        parts = []
        while position < end:
            start = position - position % self.file_size
            size = min(end, start + self.file_size) - position
            path = self.file if start == self.file_start else self._path(start)
            parts.append(self.descriptors.read(path, size, position - start))
            position += size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_apart(self, offset: int, count: int) -> bytes:
        """Units as L{units} gives them, of one file and past the shared descriptors: the reactor
        does not wait for the disk, and no other file is closed for this one.
        """
        position = offset * UNIT_SIZE
        start = position - position % self.file_size
        size = min(min(offset + count, self.max_offset) * UNIT_SIZE, start + self.file_size)
        try:
            with opened(self._path(start)) as fd:
                return os.pread(fd, size - position, position - start)
        except FileNotFoundError:
            return b""  # deleted meanwhile, with its topic

    def _pieces(
        self, offset: int, read: Callable[[int, int], bytes]
    ) -> Iterator[tuple[int, bytes]]:
        """The units from a queue offset on, in pieces that grow.

        @param read: Gives units from an offset on, at most so many; C{b""} ends it.
        """
        count = _FIRST_UNITS
        while offset < self.max_offset:
            raw = read(offset, count)
            if not raw:
                return
            yield offset, raw
            offset += len(raw) // UNIT_SIZE
            count = min(8 * count, SCAN_UNITS)

    def _path(self, start: int) -> str:
        return f"{self.folder}/{file_name(start)}"

    def _fault(self, offset: int, reason: str) -> Finding:
        return Finding(self.folder, offset, reason)
