"""A master in memory: what it has, and how it answers one connection."""

from __future__ import annotations

from attrs import define, field

from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.ha_frame import TRANSFER_HEADER
from tests.support.ha_frames import encode_header
from tests.support.logs import OVERHEAD, STORED, content, encoded
from tests.support.scripted_master import Connection

OPENING = 2 * TRANSFER_HEADER.size + 1
"""Bytes of two frames by which one sees that the first was not all."""


def record(size: int, author: int) -> bytearray:
    """A record whose body tells who wrote it."""
    return encoded(size, body=bytes([author]) * (size - OVERHEAD))


@define(eq=False, kw_only=True)
class ModelMaster:
    """One master's log and habits.

    @ivar author: In the body of each record that it writes.
    @ivar first: Its oldest byte: what its files have below is deleted.
    @ivar stock: Whether it speaks as a stock master: silent where ours closes, and a report of 0
        is answered from its last file.
    @ivar tells: Whether its client port answers.
    @ivar epoch: Its master epoch.
    """

    log: CommitLog
    author: int
    first: int = 0
    stock: bool = False
    tells: bool = False
    epoch: int = 0

    @property
    def end(self) -> int:
        return self.log.end

    def write(self, *sizes: int) -> None:
        for size in sizes:
            self.log.put([record(size, self.author)], [0], STORED)

    def has(self, start: int, end: int) -> bytes:
        """Its bytes, as far as it has them."""
        return content(self.log, max(start, self.first), min(end, self.end))

    def starts_at(self, report: int) -> int | None:
        """Where its bytes begin for one who reports so much; C{None} if it sends none."""
        if report == 0:
            last = self.end - self.end % self.log.file_size
            return max(self.first, last) if self.stock else self.first
        return report if self.first <= report <= self.end else None


@define(eq=False)
class MasterSession:
    """The master's end of one connection of a slave.

    @ivar began: When, in the clock's seconds.
    @ivar start: Where its bytes begin; C{None} before it was asked, or if it sends none.
    @ivar whole: Up to where bodies have gone out as whole frames.
    @ivar partly: Up to where any byte has.
    @ivar told: Where its log ended when the last whole frame was made; C{None} before.
    @ivar at_end_told: Whether that frame, shorter than one before it, showed that this is all.
    @ivar seen: How many of the slave's reports were looked at.
    """

    master: ModelMaster
    connection: Connection
    began: float
    batch: int
    start: int | None = None
    answers: bool = False
    whole: int = 0
    partly: int = 0
    told: int | None = None
    at_end_told: bool = False
    largest: int = 0
    heard: bool = False
    seen: int = 0
    _position: int = field(default=0, init=False)
    _queue: bytearray = field(factory=bytearray, init=False)
    # Of each frame that is not out: how much of the queue is left behind it, and what it is.
    _frames: list[tuple[int, int, int, int]] = field(factory=list, init=False)
    _made: int = field(default=0, init=False)
    _sent: int = field(default=0, init=False)

    @property
    def open(self) -> bool:
        return self.connection.open

    def asked(self) -> bool:
        """Whether the slave has said where to begin; then that is settled."""
        reports = self.connection.reports()
        if reports and not self.answers and self.start is None:
            self.start = self.master.starts_at(reports[0])
            if self.start is not None:
                self.answers = True
                self.whole = self.partly = self._position = self.start
            if self.master.stock:
                self._add(reports[0], b"")
        return bool(reports)

    def frame(self, *, idle: bool = True) -> None:
        """Make the next frame: what it has next, or a heartbeat."""
        log, start = self.master.log, self._position
        body = bytes(log.read(start, self.batch)) if start < log.end else b""
        if body or idle:
            self._add(start, body)
            self._position += len(body)

    def _add(self, offset: int, body: bytes) -> None:
        self._queue += encode_header(offset, len(body)) + body
        self._made += TRANSFER_HEADER.size + len(body)
        self._frames.append((self._made, offset, len(body), self.master.end))

    def send(self, most: int, piece: int) -> None:
        """Send at most so many bytes of what was made, in pieces; of a stock master's opening
        heartbeat not less than itself and what follows at once.
        """
        data = bytes(self._queue[: most if self._sent else max(most, OPENING)])
        for at in range(0, len(data), piece):
            if not self.open:
                break
            part = data[at : at + piece]
            del self._queue[: len(part)]
            self._sent += len(part)
            self.heard = True
            self._goes_out()
            self.connection.send(part)

    def _goes_out(self) -> None:
        while self._frames and self._frames[0][0] <= self._sent:
            _, offset, size, self.told = self._frames.pop(0)
            self.whole = self.partly = end = max(self.whole, offset + size)
            self.at_end_told = size < self.largest and (
                not size or end % self.master.log.file_size > 0
            )
            self.largest = max(self.largest, size)
        if self._frames:
            made, offset, size, _ = self._frames[0]
            out = self._sent - (made - size)
            self.partly = max(self.partly, offset + max(0, out)) if size else self.partly

    @property
    def pending(self) -> int:
        """How many bytes were made and are not out."""
        return len(self._queue)

    @property
    def at_end(self) -> bool:
        """Whether all that its log has was made into frames."""
        return self._position >= self.master.end

    def false(self, data: bytes) -> None:
        """Send what no master sends, in place of what it would."""
        self.heard, self.at_end_told = True, False
        self.connection.send(data)
