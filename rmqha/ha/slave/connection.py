"""One connection of a slave: ask, compare, append, report.

The first report is a question (L{rmqha.ha.slave.probe}).  Bytes below our end are compared
with ours, bytes behind it are appended, and what we report as held is never more than
what was compared equal or accepted on this connection, checked record by record, and
on the disk if this slave is C{SYNC_FLUSH}.  What an answer means for the slave as a
whole is its L{ConnectionOwner}'s to decide: the protocol tells, it owns no policy.

Two paths bring bytes: C{dataReceived}, which works on any transport and does all the
asking and comparing, and the scatter path of L{rmqha.net.zero_copy_receive}, which takes over
once only appending is left.  Source: docs/protocol/ha.rst.
"""

from __future__ import annotations

import typing

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime, ITCPTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.config.ha_settings import HASettings
from rmqha.errors import FrameOffsetMismatch, ProtocolViolation, RecordCorrupt, StoreError
from rmqha.ha.slave.compare_bytes import TheirVersion, first_difference, missing_first_byte
from rmqha.ha.slave.probe import Probe, ProbeKind
from rmqha.ha.slave.reconnect import WANTS_TLS, ha_refusal
from rmqha.ha.slave.reportable import Reportable, accepted_end
from rmqha.net.door import peer_of
from rmqha.net.rate_limit import Speed, TokenBucket
from rmqha.net.tls.refusals import is_shaking_hands
from rmqha.net.zero_copy_receive import IFrameSink, scatter
from rmqha.periodic import NodePart, Periodic, cancelled
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.ha_dialect import ClassicSlaveDialect, SlaveDialect
from rmqha.wire.ha_frame import MAX_BODY, BodyPart, HaHeartbeat
from rmqha.wire.ha_v2 import HandshakeAnswer, TransferHeader, encode_token

REPORT_EVERY = 5.0
"""Most seconds between two reports: a stock master's patience is 20."""

TICK = 1.0
"""Seconds between two looks at a connection: how late housekeeping may be."""

OPENING = 1.0
"""Seconds an empty slave waits for bytes behind a heartbeat at byte 0: a stock master
opens with one whatever it has, and its bytes follow at once."""


class ConnectionOwner(typing.Protocol):
    """What a connection tells its owner."""

    def first_bytes(self, connection: SlaveProtocol, offset: int) -> bool:
        """An answer's first bytes start at C{offset}.

        @return: Whether to go on with them; if not, the owner ends the connection.
        """

    def silence(self, connection: SlaveProtocol) -> None:
        """No bytes came, for long enough, or the master closed."""

    def differs(self, connection: SlaveProtocol, offset: int) -> bool:
        """The byte at C{offset} is not ours.

        @return: Whether to go on a moment, to see the master's version in L{on_difference}.
        """

    def on_difference(self, connection: SlaveProtocol, theirs: bytes) -> None:
        """What the master has from the first byte on that is not ours."""

    def master_ends(self, connection: SlaveProtocol, offset: int) -> None:
        """The master's log ends at C{offset}, at or below our end."""

    def on_progress(self, connection: SlaveProtocol) -> None:
        """More bytes are held, and the master has more."""

    def bad_record(self, connection: SlaveProtocol, error: RecordCorrupt) -> bool:
        """A whole record that does not check.

        @return: Whether it may pass: then the log is to be checked again.
        """

    def on_error(self, connection: SlaveProtocol, error: Exception) -> None:
        """Bytes cannot be taken: a L{ProtocolViolation} of the master's, or a
        L{StoreError} of ours.
        """

    def on_connection_end(self, connection: SlaveProtocol, reason: Failure) -> None:
        """The connection is over; nothing more comes from it."""


@implementer(IFrameSink)
@define(eq=False, kw_only=True)
class SlaveProtocol(Protocol, NodePart):
    """Follow one master over one connection.

    @ivar reportable: Up to where bytes may be reported as held.
    @ivar dialect: How it speaks.
    @ivar cursor: Just past the last byte this connection compared or accepted;
        C{None} before the first.
    @ivar started: Where the stream began; C{None} before the first byte.
    @ivar received: Body bytes that came over this connection.
    @ivar speed: The same, a second.
    @ivar own_end: Our end when the connection began: below it is compared, behind it
        appended.
    @ivar reported: The last report sent.
    @ivar reporting: Repeats the report, and notices a silent master.
    @ivar finished: Whether we take nothing more from this connection.
    @ivar heard: When bytes last came from the master, in the clock's seconds; C{None} before
        the first.
    @ivar by_peer: Whether the master ended it, once it is lost.
    @ivar why: Why we ended it, for a person.
    @ivar behind: Whether what came last shows that the master has more than it sends
        while it waits for writes.
    """

    log: CommitLog
    question: Probe
    settings: HASettings
    clock: IReactorTime
    follower: ConnectionOwner
    reportable: Reportable = accepted_end
    bucket: TokenBucket | None = None
    dialect: SlaveDialect = field(factory=ClassicSlaveDialect)
    cursor: int | None = field(default=None, init=False)
    started: int | None = field(default=None, init=False)
    received: int = field(default=0, init=False)
    own_end: int = field(default=0, init=False)
    reported: int = field(default=-1, init=False)
    finished: bool = field(default=False, init=False)
    speed: Speed = field(init=False)
    reporting: Periodic = field(init=False)
    _silence: IDelayedCall | None = field(default=None, init=False)
    _resume: IDelayedCall | None = field(default=None, init=False)
    _theirs: TheirVersion | None = field(default=None, init=False)
    heard: float | None = field(default=None, init=False)
    _last_received: float = field(default=0.0, init=False)
    _largest: int = field(default=0, init=False)
    _head: bytearray | None = field(default=None, init=False)
    _frame: int = field(default=0, init=False)
    _master_idle: bool = field(default=False, init=False)
    _turn: int = field(default=0, init=False)
    _frames: int = field(default=0, init=False)
    _reported_at: float = field(default=0.0, init=False)
    _interval: float = field(default=TICK, init=False)
    _says_empty: bool = field(default=False, init=False)
    by_peer: bool = field(default=False, init=False)
    why: str = field(default="", init=False)
    behind: bool = field(default=False, init=False)
    transport: ITCPTransport = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.speed = Speed(self.clock)
        self.reporting = Periodic("reports to the master", self.clock, self._tick, vital=True)
        self._interval = min(TICK, self.settings.heartbeat / 4, self.settings.housekeeping / 4)
        self.own_end = self.log.end
        if self.question.ask is ProbeKind.START and self.question.report == 1:
            self._head = bytearray()

    # --- the connection's life ----------------------------------------------

    def connectionMade(self) -> None:
        """Ask at once; stock slaves wait five seconds here."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        self._last_received = self.clock.seconds()
        self.reported = self.question.report
        self._reported_at = self._last_received
        self.transport.write(self.dialect.opening(self.question.report))
        self.reporting.start(self._interval)
        self.log.flush_listeners.append(self.report_progress)
        if self.question.ask is not ProbeKind.EMPTY:
            self._silence = self.clock.callLater(self.settings.probe_silence, self._silent)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Leave no trace of a frame that did not arrive whole."""
        self.by_peer = not self.finished
        if self._theirs is not None:
            self._theirs.end()
        self.finish()
        self.log.discard()
        refused = ha_refusal(self.transport, reason)
        self.follower.on_connection_end(self, reason if refused is None else Failure(refused))

    def finish(self) -> None:
        """Take nothing more; safe to call twice."""
        if self.finished:
            return
        self.finished = True
        self.reporting.stop()
        if self._theirs is not None:
            self._theirs.cancel()
        self._silence, self._resume = cancelled(self._silence), cancelled(self._resume)
        if self.report_progress in self.log.flush_listeners:
            self.log.flush_listeners.remove(self.report_progress)

    def drop(self, why: str = "") -> None:
        """End the connection now.

        @param why: What the status says of it.
        """
        if self.finished:
            return
        self.why = why
        self.finish()
        if self.transport is not None:
            self.transport.abortConnection()

    def _silent(self) -> None:
        self._silence = None
        if is_shaking_hands(self.transport):
            # Our question is not asked yet: its silence says nothing of its log.
            self.drop(self._no_handshake(self.settings.probe_silence))
        elif not self.dialect.admitted:
            self.drop(f"no answer to the handshake in {self.settings.probe_silence:g} s")
        elif self._says_empty:
            self.follower.master_ends(self, 0)
        else:
            self.follower.silence(self)

    def _master_silent(self) -> None:
        seconds = self.settings.housekeeping
        if is_shaking_hands(self.transport):
            self.drop(self._no_handshake(seconds))
            return
        self._log.warn(
            "Master {peer} was silent for {seconds:g} s",
            peer=peer_of(self.transport.getPeer()),
            seconds=seconds,
        )
        self.drop(f"the master was silent for {seconds:g} s")

    def _no_handshake(self, seconds: float) -> str:
        return f"it did not end the TLS handshake in {seconds:g} s; {WANTS_TLS}"

    def _tick(self) -> None:
        """Repeat the report; notice a master that has gone without saying so."""
        now = self.clock.seconds()
        # While the rate limit holds us back, the silence is ours.
        if self._resume is None and now - self._last_received >= self.settings.housekeeping:
            self._master_silent()
        elif now - self._reported_at > min(self.settings.heartbeat, REPORT_EVERY) - self._interval:
            # Early rather than late: the next look would be past the time.
            self._report(self.next_report())

    # --- reporting ----------------------------------------------------------

    def next_report(self) -> int:
        """How far this connection may say that we hold the master's log."""
        cursor, log = self.cursor, self.log
        if cursor is None:
            return self.reported
        value = log.confirmed
        may = self.reportable(log)
        if may < value:
            value = may
        if cursor < value:
            value = cursor
        return value if value > self.reported else self.reported

    def last(self) -> tuple[float, float]:
        """When something last came from the master, and when it was last told how far we are, in
        the clock's seconds; 0 if never.
        """
        return self._last_received, self._reported_at

    def _report(self, held: int) -> None:
        if self.dialect.admitted:
            self.reported = held
            self._reported_at = self.clock.seconds()
            self.transport.write(self.dialect.report(held))

    def tell_token(self, token: int) -> bool:
        """Repeat what an elected master asked our client port to repeat here.

        @return: Whether that could be done: whether we have reported over this connection.
        """
        able = self.dialect.admitted and not self.finished
        if able:
            self.transport.write(encode_token(token))
        return able

    def report_progress(self) -> None:
        """Say that more is held, if it is."""
        if not self.finished:
            held = self.next_report()
            if held > self.reported:
                self._report(held)

    # --- the portable path --------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Decode, compare and append what came, then report once."""
        if not self.finished:
            self._decode(data)

    def _decode(self, data: bytes) -> None:
        self._last_received = self.heard = self.clock.seconds()
        try:
            for event in self.dialect.receive(data):
                if isinstance(event, BodyPart):
                    self._body(event)
                elif isinstance(event, HaHeartbeat):
                    self.heartbeat(event.offset)
                else:
                    self._elected_says(event)
                if self.finished:
                    return
            self._end_turn()
        except (ProtocolViolation, StoreError) as error:
            self.violation(error)
            return
        self._scatter()

    def _elected_says(self, word: HandshakeAnswer | TransferHeader) -> None:
        listener = self.dialect.listener
        assert listener is not None, "only an elected master says such things"
        if isinstance(word, TransferHeader):
            # Before its label is believed; a master without a log file says -1.
            offset, cursor = max(word.offset, 0), self.cursor
            if cursor is not None and offset != cursor and self._theirs is None:
                raise FrameOffsetMismatch(cursor, offset)
            listener.transfer(word)
            return
        listener.on_handshake(word)
        self._report(self.next_report())
        if self._silence is not None:
            self._silence.reset(self.settings.probe_silence)

    def _body(self, part: BodyPart) -> None:
        if self._theirs is not None:
            self._theirs.take(part.offset, part.data, frame_ended=not part.left)
            return
        if self.cursor is None and not self._first(part.offset):
            return
        self._frame = part.frame
        if self._head is not None:
            self._with_first_byte(part)
        else:
            self._take(part.offset, part.data)
        if part.left == 0 and not self.finished:
            self.frame_ends()

    def _first(self, offset: int) -> bool:
        """Settle where the stream starts."""
        exact = self.question.ask in (ProbeKind.START, ProbeKind.OVERLAP)
        if offset < 0 or (exact and offset != self.question.report):
            raise FrameOffsetMismatch(self.question.report, offset)
        self._silence = cancelled(self._silence)
        if not self.follower.first_bytes(self, offset):
            self.finish()
            return False
        self.cursor = self.started = offset
        if self.question.ask in (ProbeKind.EMPTY, ProbeKind.START):
            self.log.begin(0 if self._head is not None else offset)
            self.own_end = self.log.end
        return True

    def _with_first_byte(self, part: BodyPart) -> None:
        """Collect the head of a stream that starts at byte 1 until byte 0 is known."""
        assert self._head is not None and self.cursor is not None, "only called then"
        if part.offset != self.cursor:
            raise FrameOffsetMismatch(self.cursor, part.offset)
        self._head += part.data
        self.cursor += len(part.data)
        first = missing_first_byte(self._head, self.log.file_size)
        if first is not None:
            data = bytes([first]) + self._head
            self._head, self.cursor = None, 0
            self._take(0, memoryview(data))

    def _take(self, offset: int, data: memoryview) -> None:
        """Compare what we have, append what we do not."""
        assert self.cursor is not None, "the stream has started"
        if offset != self.cursor:
            raise FrameOffsetMismatch(self.cursor, offset)
        ours = data[: max(0, self.own_end - offset)]
        known = ours[max(0, self.log.min_offset - offset) :]
        if known:
            differs = first_difference(self.log, offset + len(ours) - len(known), known)
            if differs is not None:
                self.cursor = differs
                if self.follower.differs(self, differs):
                    self._see(differs, data[differs - offset :])
                return
        self.cursor = offset + len(ours)
        self.received += len(ours)
        self._turn += len(ours)
        rest = data[len(ours) :]
        while rest:
            room = self.log.reserve(self.cursor, len(rest))
            room[:] = rest[: len(room)]
            self.body_received(len(room))
            rest = rest[len(room) :]

    def _see(self, at: int, data: memoryview) -> None:
        """Our log and the master's part here: take a little more of the master's, only to look
        at.
        """
        self._theirs = TheirVersion(
            at=at,
            file_end=self.log.file_end(at),
            file_size=self.log.file_size,
            clock=self.clock,
            over=lambda theirs: self.follower.on_difference(self, theirs),
        )
        self._theirs.take(at, data, frame_ended=True)

    # --- IFrameSink: what both paths share ----------------------------------

    def frame_starts(self, offset: int, size: int) -> None:
        """A frame's header is in (scatter path).

        @raise FrameOffsetMismatch: If it does not continue the stream.
        """
        if offset != self.cursor:
            raise FrameOffsetMismatch(self.cursor or 0, offset)
        self._frame, self._master_idle = size, False

    def room(self, offset: int, left: int) -> memoryview:
        """Where the next body bytes go (scatter path)."""
        return self.log.reserve(offset, left)

    def body_received(self, count: int) -> None:
        """So many bytes are in the reserved room."""
        assert self.cursor is not None, "the stream has started"
        self.cursor += count
        self.log.staged(count)
        self.received += count
        self._turn += count

    def frame_ends(self) -> None:
        """The frame is complete."""
        assert self.cursor is not None, "the stream has started"
        self._frames += 1
        if self._head is None and self.cursor > self.own_end:
            self.log.accept()
        if self._frame < self._largest:
            # A frame shorter than usual that does not close a file ends where the master
            # could read at that moment.
            self._master_idle = self.cursor % self.log.file_size != 0
        else:
            self._largest = self._frame
            self._master_idle = False

    def heartbeat(self, offset: int) -> None:
        """An empty frame: the next offset the master would send.

        Before any bytes it only echoes our question, as even a master that can answer
        opens with one.  The answer to a report of 0 is an echo too, but one that nothing
        follows says that the master is empty.
        """
        if self._theirs is not None:
            self._theirs.end()
            return
        if self.cursor is None:
            if offset == 0 and self.question.report == 0:
                self._says_empty = True
                if self._silence is None:
                    self._silence = self.clock.callLater(OPENING, self._silent)
            return
        if offset != self.cursor:
            raise FrameOffsetMismatch(self.cursor, offset)
        self._master_idle = True
        if self.cursor < self.own_end:
            self.follower.master_ends(self, self.cursor)

    def turn_ends(self) -> None:
        """A read turn of the scatter path is over."""
        self._last_received = self.heard = self.clock.seconds()
        try:
            self._end_turn()
        except (ProtocolViolation, StoreError) as error:
            self.violation(error)

    def _end_turn(self) -> None:
        """Check what came, tell the log's readers, report, and keep to the rate."""
        if self.finished or self.cursor is None or self._theirs is not None:
            return
        frames, self._frames = self._frames, 0
        turn, self._turn = self._turn, 0
        self.speed.count(turn)
        if self.cursor >= self.own_end and self._head is None:
            if not (turn or self._master_idle):
                return  # a header, which a stock master sends by itself
            self._verify()
            # First of all: a write waits for it.
            self.report_progress()
            self.log.progress()
            if self._master_idle:
                self.follower.master_ends(self, self.cursor)
            else:
                self.behind = frames > 1 or self._frame >= self.settings.batch
                self.follower.on_progress(self)
        else:
            self.report_progress()
        wait = self.bucket.take(turn) if self.bucket is not None and turn else 0.0
        if wait > 0.0 and not self.finished:
            IPushProducer(self.transport).pauseProducing()
            if self._resume is None:
                self._resume = self.clock.callLater(wait, self._go_on)
            else:
                self._resume.reset(wait)

    def _verify(self) -> None:
        """Check what came.

        @raise RecordCorrupt: At a bad record that may not pass.
        """
        while True:
            try:
                self.log.verify()
                return
            except RecordCorrupt as error:
                if not self.follower.bad_record(self, error):
                    raise

    def _go_on(self) -> None:
        """The rate limit allows more: read again."""
        self._resume = None
        self._last_received = self.heard = self.clock.seconds()
        IPushProducer(self.transport).resumeProducing()

    def violation(self, error: Exception) -> None:
        """Nothing more can be taken from this connection."""
        if not self.finished:
            self.follower.on_error(self, error)
            self.drop(str(error))

    def _scatter(self) -> None:
        """Hand the socket to the zero-copy path once only appending is left."""
        if self.finished or self.cursor is None or self.cursor < self.own_end:
            return
        client = scatter(self.transport) if self.settings.zero_copy else None
        if client is not None and self._head is None:
            handover = self.dialect.handover()
            if handover is not None:
                headers = self.dialect.headers(self._elected_says)
                client.start_scatter(self, handover, MAX_BODY, headers)
