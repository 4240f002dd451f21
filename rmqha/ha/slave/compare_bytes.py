"""Our bytes beside the master's, and the first byte head of a log that starts at byte 1.

The master's bytes from the first one that is not ours on are taken for a moment longer, so that the
record they belong to can be judged on both sides, and kept.  Nothing of them is log, and nothing is
reported for them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmqha.errors import FrameOffsetMismatch
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.scan import HEAD, candidates
from rmqha.periodic import cancelled
from rmqha.wire.log.layout import (
    BODY_AT,
    FIELDS,
    HEAD_MOST,
    MAGIC_BLANK,
    MIN_RECORD,
    born_extra,
    store_extra,
)
from rmqha.wire.log.record import Fault, check, magic_at


def first_difference(log: LogReader, offset: int, data: memoryview) -> int | None:
    """Compare bytes a master sent with ours.

    @param offset: Where they belong; the whole range is ours to read.
    @return: Physical offset of the first byte that differs, or C{None}.
    """
    position = 0
    while position < len(data):
        ours = log.read(offset + position, len(data) - position)
        theirs = data[position : position + len(ours)]
        if bytes(ours) != bytes(theirs):
            differs = np.frombuffer(ours, np.uint8) != np.frombuffer(theirs, np.uint8)
            return offset + position + int(np.argmax(differs))
        position += len(ours)
    return None


def missing_first_byte(head: bytes | bytearray, file_size: int) -> int | None:
    """Byte 0 of a log whose bytes from 1 on are known.

    It is the highest byte of the first record's size, which the record's own lengths
    tell: a record is at most 64 KiB longer than its body, so only one value fits.

    @param head: The log from byte 1 on.
    @param file_size: Size of the master's first file: what a blank's size would be.
    @return: The byte, or C{None} while C{head} is too short to tell.
    """
    if len(head) < HEAD_MOST:
        return None
    record = b"\0" + head
    if magic_at(record, 0) == MAGIC_BLANK:
        return file_size >> 24
    sys_flag = int.from_bytes(record[FIELDS["sys_flag"].place], "big")
    hosts = born_extra(sys_flag) + store_extra(sys_flag)
    at = FIELDS["body_length"].offset(sys_flag)
    body = int.from_bytes(record[at : BODY_AT + hosts], "big")
    least = MIN_RECORD + hosts + body
    low = int.from_bytes(record[1:4], "big")
    high = least >> 24
    # What no record can say is cut to a byte; the record's check will name it.
    return (high if (high << 24) + low >= least else high + 1) & 0xFF


PATIENCE = 2.0
"""Seconds for which they are waited for: while we do, the master takes us for a slave that does
not acknowledge."""

MOST = 8 << 20
"""Most bytes that are taken: no record is larger."""


CANDIDATES = 100
"""Most places that are looked at again when more has come."""


@define(eq=False, kw_only=True)
class TheirVersion:
    """Collects until a whole record of the master's lies behind the difference.

    @ivar at: Physical offset of the first byte that differs.
    @ivar file_end: Physical offset of the end of the file that holds it.
    @ivar file_size: Size of a log file, in bytes.
    @ivar over: Told all of them, once.
    """

    at: int
    file_end: int
    file_size: int
    clock: IReactorTime
    over: Callable[[bytes], None]
    _data: bytearray = field(factory=bytearray, init=False)
    _searched: int = field(default=0, init=False)
    # Where records may begin, of which no more may be here yet than that.
    _places: list[int] = field(factory=list, init=False)
    _timer: IDelayedCall | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._timer = self.clock.callLater(PATIENCE, self.end)

    def take(self, offset: int, data: memoryview, *, frame_ended: bool) -> None:
        """The next bytes are here.

        @raise FrameOffsetMismatch: If they are others.
        """
        if self._timer is None:
            return
        if offset != self.at + len(self._data):
            raise FrameOffsetMismatch(self.at + len(self._data), offset)
        room = min(MOST, self.file_end - self.at) - len(self._data)
        self._data += data[:room]
        if len(data) >= room or (frame_ended and self._found_record()):
            self.end()

    def end(self) -> None:
        """No more will come, or none is wanted; twice is the same as once."""
        if self._timer is not None:
            self.cancel()
            self.over(bytes(self._data))

    def cancel(self) -> None:
        """Tell nobody."""
        self._timer = cancelled(self._timer)

    def _found_record(self) -> bool:
        """Whether a whole, valid record begins behind the difference: the one that differs ends
        before it.
        """
        start, self._searched = max(self._searched - HEAD + 1, 1), len(self._data)
        self._places += candidates(bytes(self._data[start:]), self.at + start)
        del self._places[:-CANDIDATES]
        with memoryview(self._data) as data:
            return any(self._is_record(data, place) for place in self._places)

    def _is_record(self, data: memoryview, place: int) -> bool:
        verdict = check(
            data, place - self.at, len(data), place, self.file_end, max_size=self.file_size
        )
        return not isinstance(verdict, Fault)
