"""A connection to a master that only looks: it asks as a slave does, compares what comes
with a log on the disk, and keeps what lies behind the parting.

The first report is a question, as a slave's (L{rmqha.ha.slave.probe}), and it is the only
one: it is repeated, so that the connection lives, and never raised.  So whatever the
master makes of it, it learns of no byte that it did not have to send from there.
Source: docs/architecture.rst, The divergence guard.
"""

from __future__ import annotations

from typing import BinaryIO

from attrs import define, field

from rmqha.errors import ProtocolViolation
from rmqha.ha.onlooker import Onlooker
from rmqha.ha.slave.compare_bytes import first_difference
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.store.offline.compare import FirstDifference, Progress, record_start
from rmqha.wire.ha_frame import BodyPart, TransferDecoder

MOST_KEPT = 256 << 20
"""Most bytes of the master's own that are fetched: the connection is to be short."""


@define(eq=False, kw_only=True)
class ObserverProtocol(Onlooker):
    """Compare one log with a master's, from one place on.

    @ivar ours: The log; compared up to its C{end}.
    @ivar whole: Just past its last whole, valid record.
    @ivar report: What to ask for: an offset the master is known, or likely, to have.
    @ivar deepest: Whether this is the last question: then a difference in the very first
        record is an answer too.
    @ivar end: Where the master's log ends, if it has told; else found out.
    @ivar kept: Where the bytes from C{at} on go, as the master has them.
    @ivar compared: Just past the last byte compared.
    @ivar at: The first record not shared; C{None} while there is none.
    @ivar difference: The first byte not shared.
    """

    ours: OfflineLog
    whole: int
    deepest: bool
    end: int | None
    kept: BinaryIO
    progress: Progress | None = None
    compared: int = field(init=False)
    at: int | None = field(default=None, init=False)
    difference: FirstDifference | None = field(default=None, init=False)
    _decoder: TransferDecoder = field(factory=TransferDecoder, init=False)
    _largest: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.compared = self.report

    # --- what comes -----------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Compare what our log has too, keep what only the master's has."""
        if self._over:
            return
        try:
            for event in self._decoder.receive(data):
                if isinstance(event, BodyPart):
                    self._body(event)
                elif self.answered:
                    # The opening one only echoes the report; behind bytes it is the end.
                    self._continues(event.offset)
                    self._ends(self.cursor)
                if self.done.called:
                    return
        except ProtocolViolation as error:
            self._fail(error)
            return
        self._go_on()
        if self.answered and self.progress is not None and self.end is not None:
            self.progress(self.cursor - self.report, self.end - self.report)

    def _body(self, part: BodyPart) -> None:
        self._continues(part.offset)
        data = part.data if self.end is None else part.data[: self.end - part.offset]
        self.answered = True
        self.cursor += len(data)
        if self.at is None:
            data = self._compare(part.offset, data)
        if self._over:
            return
        if self.at is not None:
            self._keep(data)
        if self.cursor == self.end:
            self._ends(self.cursor)
        elif not part.left:
            self._frame_ended(part.frame, self.cursor)

    def _frame_ended(self, size: int, offset: int) -> None:
        """A frame shorter than others that closes no file ends where the master does."""
        self._largest = max(self._largest, size)
        if size < self._largest and offset % self.ours.file_size and self.end is None:
            self._ends(offset)

    def _compare(self, offset: int, data: memoryview) -> memoryview:
        """Hold bytes against ours.

        @return: Those of them behind the place where nothing compares any more.
        """
        ours = data[: self.ours.end - offset]
        differs = first_difference(self.ours, offset, ours)
        if differs is None:
            self.compared = offset + len(ours)
            if self.compared == self.ours.end:
                self._part(self.compared)
            return data[len(ours) :]
        self.compared = differs
        self.difference = FirstDifference(
            differs,
            str(self.ours.raw.at(differs).path),
            self.peer,
            self.ours.read(differs, 1)[0],
            data[differs - offset],
        )
        self._part(differs)
        return data[differs - offset :]

    def _part(self, offset: int) -> None:
        """What comes from C{offset} on is the master's own."""
        at = record_start(self.ours, offset)
        if self.difference is None:
            at = min(at, self.whole)
        elif at <= self.report and not self.deepest:
            self._finish(False)
            return
        self.at = at
        while at < offset:
            shared = self.ours.read(at, offset - at)
            self.kept.write(shared)
            at += len(shared)

    def _keep(self, data: memoryview) -> None:
        assert self.at is not None, "they have parted"
        self.kept.write(data)
        if self.cursor - self.at >= MOST_KEPT:
            self._finish(True)

    def _ends(self, offset: int) -> None:
        """The master has no more."""
        self.end = offset
        if self.at is None:
            self._part(offset)
        self._finish(True)
