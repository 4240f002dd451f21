"""One slave's connection, as its master sees it.

A peer is sent nothing before a first report that the ledger takes.  What it may then
do wrong ends its connection and its claim, with a reason that the factory counts.  One that says
it is an observer is sent everything to the last byte, though our log may be but a part, and
counts for nothing: a master that fetches its lost tail back from its own slave.

On a plain TCP connection of L{rmqha.net.zero_copy_send} a frame's body is a view of the log, and
a small frame is given to the kernel before the append that caused it returns.  On every
other transport (TLS, in memory) header and body are written as bytes: the same stream,
and the reference for it.

Source: docs/protocol/ha.rst, The master's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import (
    IDelayedCall,
    IHandshakeListener,
    IPushProducer,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.errors import HandshakeRejected, StoreError
from rmqha.ha.master.ledger import Claim, ReportRejected
from rmqha.ha.master.slots import RetentionSlot
from rmqha.ha.states import Standing
from rmqha.net.door import peer_of
from rmqha.net.rate_limit import Speed, TokenBucket
from rmqha.net.tls.errors import TlsRefused
from rmqha.net.tls.gate import HANDSHAKE, HANDSHAKE_TIMEOUT, TOO_SLOW
from rmqha.net.tls.refusals import tls_refusal
from rmqha.net.zero_copy_send import ZeroCopyServer, regions
from rmqha.periodic import cancelled
from rmqha.store.files.mapped import OutOfDescriptors
from rmqha.wire.ha_v2 import HaStateUnexpected

if TYPE_CHECKING:
    from rmqha.ha.master.master import MasterFactory


class LogLost(StoreError):
    """The bytes a replica needs next were deleted; it cannot go on from where it is."""

    needed: int
    oldest: int

    def __str__(self) -> str:
        return (
            f"{self.oldest - self.needed} bytes that the replica needs are deleted: "
            f"it is at byte {self.needed}, our log begins at {self.oldest}"
        )


@implementer(IPushProducer, IHandshakeListener)
class MasterProtocol(Protocol):
    """Feed one slave and believe it as far as the ledger does.

    @ivar claim: What it may say; C{None} once the connection is given up.
    @ivar dialect: How it is spoken with.
    @ivar observer: Whether it has said that it only compares.
    @ivar began: Its first report; 0 only if its log is empty.
    @ivar slot: What will be kept for it when it leaves, once it has acknowledged what it was sent.
    @ivar host: The peer's address without the port.
    @ivar peer: Host and port, for people.
    @ivar opened: When it connected, in the clock's seconds.
    @ivar heard: When it last made a whole report, in the clock's seconds.
    @ivar speed: Body bytes a second.
    """

    claim: Claim | None = None
    began = -1
    slot: RetentionSlot | None = None
    _stranger = True
    observer = False
    _paused = False
    _greeted = False
    _later: IDelayedCall | None = None
    _greeting = True
    _handshake: float | None = None
    transport: Any

    def __init__(self, factory: MasterFactory, host: str) -> None:
        self.factory = factory
        self.host = self.peer = host
        self._clock = factory.clock
        self.dialect = factory.dialect(self)
        self._bucket = TokenBucket(factory.settings.max_send_rate, factory.clock)
        self.speed = Speed(factory.clock)
        self.opened = self.heard = self._written = factory.clock.seconds()

    # --- connection ---------------------------------------------------------

    def connectionMade(self) -> None:
        """Wait for the first report; nothing is sent before it."""
        transport = self.transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
        self.peer = peer_of(transport.getPeer())
        self._use_regions()
        transport.registerProducer(self, True)
        self.claim = self.factory.joined(self)

    def _use_regions(self) -> None:
        self._regions = regions(self.transport) if self.factory.settings.zero_copy else None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Nothing this peer said counts any longer."""
        refused = None if self.claim is None else tls_refusal(self.transport, reason)
        self._end("peer" if refused is None else refused.reason, refused)
        self.factory.door.left(self)

    def close(self, reason: str, error: Exception | None = None, *, gently: bool = False) -> None:
        """Give the peer up.

        @param reason: One word, for the counters.
        @param error: What it did, for the log.
        @param gently: Let it have what was written; a peer that is wrong gets nothing more.
        """
        if self._end(reason, error):
            self.transport.unregisterProducer()
            if gently:
                self.transport.loseConnection()
            else:
                self.transport.abortConnection()

    def _end(self, reason: str, error: Exception | None) -> bool:
        claim, self.claim = self.claim, None
        if claim is None:
            return False
        claim.close()
        self.dialect.ended()
        self._paused = True
        self._later = cancelled(self._later)
        self.factory.left(self, claim, reason, error)
        return True

    # --- reports ------------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Take reports, in any pieces.  Those that came together count together: if one of
        them is wrong, none does.
        """
        if self._greeting and self._greet(data):
            return
        claim = self.claim
        if claim is None:
            return
        try:
            offset = self.dialect.single(data) if claim.live else None
            if offset is not None:
                claim.report(offset)
            else:
                whole = self.dialect.receive(data)
                if not whole:
                    return
                self._believe(claim, whole)
        except (ReportRejected, HandshakeRejected, HaStateUnexpected) as error:
            self.close(error.reason, error)
            return
        self._reported(claim)

    def _greet(self, data: bytes) -> bool:
        """See whether the peer speaks TLS, by its first byte.

        @return: Whether the bytes were taken care of.
        """
        self._greeting = False
        hello = data[0] == HANDSHAKE
        refused = self.factory.gate.refusal(hello, self.host)
        if refused is not None:
            self.close(refused.reason, refused)
        elif hello:
            self._handshake = self._clock.seconds()
            self.transport.startTLS(self.factory.gate.context)
            self._use_regions()
            self.transport.protocol.dataReceived(data)
        return refused is not None or hello

    def handshakeCompleted(self) -> None:
        """TLS is up."""
        self._handshake = None

    def take(self, reports: list[int]) -> None:
        """Take reports that the dialect has held back."""
        claim = self.claim
        if claim is None or not reports:
            return
        try:
            self._believe(claim, reports)
        except ReportRejected as error:
            self.close(error.reason, error)
        else:
            self._reported(claim)

    def _believe(self, claim: Claim, reports: list[int]) -> None:
        if not claim.live:
            offset = reports.pop(0)
            self.factory.fed(self, offset, self.dialect.first(claim, offset))
            self.pump(self.factory.limit())
        for offset in reports:
            claim.report(offset)

    def _reported(self, claim: Claim) -> None:
        if self._stranger and claim.proven:
            self._stranger = False
            self.factory.proven(self)
        self.heard = self._clock.seconds()
        if not self.observer:
            self.factory.transfer.acked(claim)

    # --- frames -------------------------------------------------------------

    def pump(self, limit: int) -> None:
        """Send what the log has below C{limit}, as much as one turn and the transport allow.

        A slave concludes from a short frame, and from a heartbeat, that the log ends
        there.  Where it does not, it gets whole frames.
        """
        claim = self.claim
        if self._paused or self._later is not None or claim is None or not claim.live:
            return
        position = claim.sent
        ends = self._tells_end()
        if not ends:
            limit = self._whole_frames(position, limit)
        if position < limit:
            oldest = self.factory.log.min_offset
            if position < oldest:
                self.close("lost", LogLost(position, oldest))
                return
            stop = min(limit, position + self.factory.turn)
            if stop < limit:
                stop = self._whole_frames(position, stop)
            try:
                if self._regions is not None:
                    self._send_views(self._regions, claim, position, stop)
                else:
                    self._send_bytes(claim, position, stop)
            except OutOfDescriptors as error:
                self.factory.starved(self, error)
                return
            finally:
                self.factory.sent += claim.sent - position
            self._written = self._clock.seconds()
            sent = claim.sent
            self.speed.count(sent - position)
            if sent < limit or self.factory.settings.max_send_rate:
                self._go_on_later(sent - position, sent < limit)
        if ends and not self._greeted and claim.sent == limit and not self._paused:
            # A slave that probes learns from it, without waiting for the next one, that
            # what it got is all there is.
            self._greeted = True
            self.heartbeat()

    def _tells_end(self) -> bool:
        """Whether this peer may learn where our log ends.

        Once it has, it holds nothing that we did not send it, whatever our log is worth
        since.  An observer concludes nothing from it.
        """
        return self._greeted or self.observer or self.factory.standing() is Standing.WHOLE

    def _whole_frames(self, position: int, stop: int) -> int:
        """Where frames that begin at C{position} end at or before C{stop}, each as large as
        any unless a file ends with it.
        """
        first = max(position, stop - stop % self.factory.log.file_size)
        whole: int = stop - (stop - first) % self.factory.batch
        return whole

    def _send_views(
        self, transport: ZeroCopyServer, claim: Claim, position: int, stop: int
    ) -> None:
        """The zero-copy path: headers, and views of the log."""
        log, batch, header = self.factory.log, self.factory.batch, self.dialect.header
        parts: list[bytes | memoryview] = []
        while position < stop:
            span = log.read(position, self.dialect.frame_end(position, stop) - position)
            size = len(span)
            if size <= batch:
                parts += (header(position, size), span)
            else:
                for at in range(0, size, batch):
                    body = span[at : at + batch]
                    parts += (header(position + at, len(body)), body)
            position += size
        claim.sent = position
        transport.writeParts(parts)

    def _send_bytes(self, claim: Claim, position: int, stop: int) -> None:
        """The portable path.  The transport pauses us when it has enough."""
        log, batch = self.factory.log, self.factory.batch
        while position < stop and not self._paused:
            end = self.dialect.frame_end(position, stop)
            body = bytes(log.read(position, min(batch, end - position)))
            header = self.dialect.header(position, len(body))
            claim.sent = position = position + len(body)
            self.transport.writeSequence((header, body))

    def _go_on_later(self, size: int, more: bool) -> None:
        """Come back when the rate allows it, or when the others had their turn."""
        delay = self._bucket.take(size) if self.factory.settings.max_send_rate else 0.0
        if delay > 0 or (more and not self._paused):
            self._later = self._clock.callLater(delay, self._go_on)

    def _go_on(self) -> None:
        self._later = None
        self.pump(self.factory.limit())

    def heartbeat(self) -> None:
        """Send an empty frame at the offset that comes next."""
        claim = self.claim
        if claim is not None:
            self.transport.write(self.dialect.header(claim.sent, 0))
            self._written = self._clock.seconds()

    def look(self, now: float, heartbeat_after: float) -> None:
        """A sweep: close what is silent, lost or mute, keep the rest alive.

        @param heartbeat_after: Write silence that calls for an empty frame, in seconds.
        """
        claim = self.claim
        if claim is None:
            return
        housekeeping = self.factory.settings.housekeeping
        oldest = self.factory.log.min_offset
        if self._handshake is not None and now - self._handshake >= HANDSHAKE_TIMEOUT:
            self.close("tls-handshake", TlsRefused("tls-handshake", TOO_SLOW))
        elif not claim.live:
            if now - self.opened >= housekeeping:
                self.close("no-report")
        elif now - self.heard >= housekeeping:
            self.close("silent")
        elif claim.sent < oldest:
            self.close("lost", LogLost(claim.sent, oldest))
        elif self._paused or not self._tells_end() or claim.sent < self.factory.limit():
            # A heartbeat says that the log ends here; what the rate holds back is log too.
            return
        elif now - self._written > heartbeat_after:
            self.heartbeat()

    def idle_for(self, seconds: float) -> bool:
        """Whether all that may be sent was, so long ago."""
        claim = self.claim
        if claim is None or not claim.live or self._paused or self._later is not None:
            return False
        return (
            claim.sent >= self.factory.limit() and self._clock.seconds() - self._written >= seconds
        )

    # --- IPushProducer ------------------------------------------------------

    def pauseProducing(self) -> None:
        """The transport has enough for now."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The transport has sent what it had: give it more."""
        if self.claim is not None:
            self._paused = False
            self._written = self._clock.seconds()
            self.pump(self.factory.limit())

    def stopProducing(self) -> None:
        """The transport will take nothing more."""
        self._paused = True
