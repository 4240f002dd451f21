"""A connection to an HA port that only looks: how it lives and ends.

It asks once, repeats that so that the connection lives, and goes at once when it knows what it
wanted, because a stock master takes it for a slave while it is there.
Source: docs/protocol/ha.rst, Observers.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from rmqha.errors import FrameOffsetMismatch, MasterLeft, ProtocolViolation
from rmqha.ha.slave.connection import REPORT_EVERY
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.periodic import Periodic, cancelled
from rmqha.wire.ha_frame import BodyPart, TransferDecoder, encode_report

PROBE_SILENCE = 6.0
"""Seconds without an answer after which there is none: longer than a stock master's
heartbeat interval."""

STALL = 20.0
"""Seconds without a byte after which a master that has answered is gone: a stock slave's
patience."""


@define(eq=False, kw_only=True)
class Observer(Protocol):
    """One connection, and what came of it.

    @ivar port: Whose it is.
    @ivar done: Fires with whether anything was learned; fails with L{MasterLeft} or a
        L{ProtocolViolation<rmqha.errors.ProtocolViolation>}.  Cancelling it gives up.
    @ivar greeting: What is said before the first report, in one packet with it: a stock master
        reads only the last whole report.
    @ivar ends_on: What is raised about bytes that came and ends it, as its outcome.
    @ivar report: What is asked for.
    @ivar cursor: Just past the last byte that came; where bytes are to begin before the first.
    @ivar answered: Whether any came.
    """

    greeting: ClassVar[bytes] = b""
    ends_on: ClassVar[tuple[type[Exception], ...]] = (ProtocolViolation,)

    port: MasterClientPort
    report: int
    cursor: int = field(init=False)
    answered: bool = field(default=False, init=False)
    done: Deferred[bool] = field(init=False)
    transport: ITCPTransport = field(default=None, init=False)
    _decoder: TransferDecoder = field(factory=TransferDecoder, init=False)
    _repeating: Periodic = field(init=False)
    _patience: IDelayedCall | None = field(default=None, init=False)
    _over: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.cursor = self.report
        self.done = Deferred(lambda _: self._fail(self._left("given up")))
        self._repeating = Periodic("repeating the report", self.port.clock, self._ask)

    def connectionMade(self) -> None:
        """Greet, report an offset, and wait L{PROBE_SILENCE} seconds for bytes."""
        self._patience = self.port.clock.callLater(
            PROBE_SILENCE, self._gone, f"silent for {STALL:g} s"
        )
        self.transport.write(self.greeting + encode_report(self.report))
        self._repeating.start(REPORT_EVERY)

    def _ask(self) -> None:
        self.transport.write(encode_report(self.report))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Before an answer this is one: not from there."""
        self._gone(reason.getErrorMessage())

    def _gone(self, why: str) -> None:
        if self.answered:
            self._fail(self._left(why))
        else:
            self._finish(False)

    def _left(self, why: str) -> MasterLeft:
        return MasterLeft(self.port.peer, self.cursor, why)

    def dataReceived(self, data: bytes) -> None:
        """Take what comes, and have patience again."""
        if self._over:
            return
        try:
            for event in self._decoder.receive(data):
                if isinstance(event, BodyPart):
                    self._continues(event.offset)
                    self._body(event)
                elif self.answered:
                    # The opening one only echoes the report; behind bytes it is the end.
                    self._continues(event.offset)
                    self._ended()
                if self.done.called:
                    return
        except self.ends_on as error:
            self._fail(error)
            return
        if self.answered and self._patience is not None:
            self._patience.reset(STALL)

    def _body(self, part: BodyPart) -> None:
        """The next bytes of the log are here."""
        raise NotImplementedError

    def _ended(self) -> None:
        """The master has no more for now."""
        raise NotImplementedError

    def _continues(self, offset: int) -> None:
        """@raise FrameOffsetMismatch: If what comes begins elsewhere."""
        if offset != self.cursor:
            raise FrameOffsetMismatch(self.cursor, offset)

    def _finish(self, learned: bool) -> None:
        if self._leave():
            self.done.callback(learned)

    def _fail(self, error: Exception) -> None:
        if self._leave():
            self.done.errback(error)

    def _leave(self) -> bool:
        """Go at once: while we are here the master takes us for a slave.

        @return: Whether we had not gone before.
        """
        if self._over:
            return False
        self._over = True
        self._repeating.stop()
        self._patience = cancelled(self._patience)
        self.transport.abortConnection()
        return True
