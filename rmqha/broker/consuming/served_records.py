"""What is sent to clients is looked at first: a disk may have lost what it once had.

A consumer that is sent what is no record reads on from wherever its first four bytes say, and one
that is sent another record than it asked for loses a message.  So each record of an answer must be
what its queue unit says: magic, size, stored offset and queue offset.  What is not is never sent;
the answer ends before it, or is an error that names the file.

Measured: 0.1 microseconds a record where all have one size, 0.2 where not; to make columns of them
first, with numpy or without, takes as long.  See docs/architecture.rst, Cold damage.

Source: docs/states.rst, Cold damage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct

from attrs import define, field
from twisted.logger import Logger

from rmqha.errors import RequestRefused
from rmqha.logfiles.scan import judge
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.log.layout import MAGIC_V1, MAGIC_V2, MIN_RECORD, struct_of
from rmqha.wire.log.record import Fault
from rmqha.wire.remoting.codes import ResponseCode

TOLD = 1000
"""Most places that are remembered as told."""

_FEW = 4
"""Up to so many records are looked at one by one."""

_HEAD = struct_of("size", "magic", "queue_offset", "physical_offset")


Doubt = Callable[[int, int], str]
"""Says why the log's bytes C{[start, end)} are not to be trusted; nothing where they are."""


def trusted(start: int, end: int) -> str:
    """Doubt nothing."""
    return ""


def first_wrong(
    view: memoryview, starts: Sequence[int], sizes: Sequence[int], queue_offsets: Sequence[int]
) -> int:
    """Hold records against their queue units.

    @param view: The log from C{starts[0]} on, without a gap up to the end of the last record.
    @param starts: Their physical offsets.
    @param sizes: Their sizes, in bytes.
    @param queue_offsets: Their places in the queue.
    @return: Which is the first that is not what its unit says; how many there are if all are.
    """
    count, first = len(starts), sizes[0]
    if count > _FEW and first >= MIN_RECORD and sizes.count(first) == count:
        # So it is where a producer's messages are alike; then it takes half as long.
        found = _heads(first, count).unpack_from(view)
        if (
            found[::4].count(first) == count
            and found[1::4].count(MAGIC_V1) == count
            and found[2::4] == tuple(queue_offsets)
            and found[3::4] == tuple(starts)
        ):
            return count
    return _one_by_one(view, starts, sizes, queue_offsets)


def _one_by_one(
    view: memoryview, starts: Sequence[int], sizes: Sequence[int], queue_offsets: Sequence[int]
) -> int:
    head, place, row = _HEAD.unpack_from, 0, 0
    for start, size, number in zip(starts, sizes, queue_offsets, strict=True):
        if size < MIN_RECORD:
            break
        found = head(view, place)
        if found != (size, MAGIC_V1, number, start) and found != (size, MAGIC_V2, number, start):
            break
        place += size
        row += 1
    return row


@lru_cache(maxsize=256)
def _heads(size: int, count: int) -> Struct:
    """Reads the heads of records of one size that stand side by side."""
    head = _HEAD.format
    return Struct(head + f"{size - _HEAD.size}x{head[1:]}" * (count - 1))


@define(eq=False)
class ServedRecords:
    """Judges what is about to be sent, and counts what was not.

    @ivar log: The log it comes from.
    @ivar damage: Where damage is known already.
    @ivar doubt: Where the log may not be the master's.
    @ivar faults: How often a record was not what it was asked for as.
    """

    log: CommitLog
    damage: Doubt = trusted
    doubt: Doubt = trusted
    faults: int = field(default=0, init=False)
    _told: set[int] = field(factory=set, init=False)

    _log = Logger()

    def doubted(self, start: int, end: int) -> str:
        """Why bytes must not be sent, before they are looked at."""
        return self.damage(start, end) or self.doubt(start, end)

    def refusal(self, offset: int, size: int, what: str) -> RequestRefused:
        """The answer instead of a record that is not sent.

        @param offset: Where it should be, physical.
        @param size: How long it should be, in bytes.
        @param what: What was asked for.
        """
        doubted = self.doubt(offset, offset + size)
        if doubted:
            return RequestRefused(ResponseCode.SYSTEM_ERROR, f"{what} is not served: {doubted}")
        reason = self.damage(offset, offset + size)
        if not reason:
            reason = f"{self.path_of(offset)} at byte {offset}: {self._wrong(offset, size)}"
        self.faults += 1
        text = f"{what} is not served: {reason}"
        if offset not in self._told:
            if len(self._told) >= TOLD:
                self._told.clear()
            self._told.add(offset)
            self._log.error("Damage met while serving: {text}", text=text)
        return RequestRefused(ResponseCode.SYSTEM_ERROR, text)

    def _wrong(self, offset: int, size: int) -> str:
        wanted = f"{size} bytes are to be there"
        try:
            found = judge(self.log, offset)
        except ValueError as error:
            return f"{wanted}, but {error}"
        if isinstance(found, Fault):
            return found.value
        return f"{wanted}, but a record of {found} bytes, or of another message, is"

    def path_of(self, offset: int) -> str:
        """The log file of a byte; the folder, if none holds it."""
        try:
            return str(self.log.folder.at(offset).path)
        except ValueError:
            return str(self.log.folder.path)
