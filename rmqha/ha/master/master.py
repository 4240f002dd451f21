"""The sending side of replication: one L{MasterFactory} a log, one
L{MasterProtocol<rmqha.ha.master.connection.MasterProtocol>} a connection.

Reports go to the ledger and from there to the writes that wait; frames go out as soon
as the log has grown, or, where no write waits for replicas, together with what comes within
L{GATHERING}.  One sweep looks after heartbeats, silence and lost replicas of
all connections.  What peers do wrong is counted by reason, and logged at a bounded
rate.

How a master and one of its slaves speak to each other.

What a connection does is the same in every protocol of the HA port: it believes reports as far as
the ledger does, and sends the log from there on.  What a slave's bytes say and what stands before a
frame is its dialect: the classic one here, that of controller mode in
L{rmqha.ha.elected.members}.

Source: docs/protocol/ha.rst, The master's side and Bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from rmqha.config.ha_settings import HASettings, ReplicaIdentity
from rmqha.ha.master.connection import MasterProtocol
from rmqha.ha.master.ledger import Claim, Ledger
from rmqha.ha.master.replicas import IN_SYNC_WITHIN, ReplicaState, ReplicaView, Timeline
from rmqha.ha.master.slots import RetentionSlots
from rmqha.ha.master.transfer import GroupTransfer
from rmqha.ha.states import Standing
from rmqha.health import HealthReason
from rmqha.net.door import Door, host_of
from rmqha.net.tls.gate import CLEAR_TEXT, TlsGate
from rmqha.periodic import NodePart, Periodic
from rmqha.store.files.mapped import OutOfDescriptors
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.ha_frame import MAX_BODY, OBSERVER, OFFSET_REPORT, TRANSFER_HEADER, OffsetReports

_REPORT = OFFSET_REPORT.size
_unpack_report = OFFSET_REPORT.unpack


class Dialect(Protocol):
    """One connection's.

    @ivar header: What stands before a frame's body, by the physical offset of its first byte and
        its size; of size 0 it is a heartbeat.
    """

    @property
    def header(self) -> Callable[[int, int], bytes]:
        """Makes the header of a transfer from the offset and the size of its body, both in
        bytes.
        """

    def single(self, data: bytes) -> int | None:
        """The one report that C{data} is, as nearly all data is; C{None} if it may be anything
        else, or continues something.
        """

    def receive(self, data: bytes) -> list[int]:
        """Take what the slave said, and act on what is no report.

        @return: The reports that C{data} completed, in order.
        @raise ProtocolViolation: With a C{reason}, of one word.
        """

    def first(self, claim: Claim, offset: int) -> int:
        """Take the first report.

        @return: The offset to send from.
        @raise ReportRejected: As L{Claim.first} says.
        """

    def frame_end(self, position: int, stop: int) -> int:
        """Up to where frames may reach that begin at C{position}.

        @param stop: More is not wanted.
        """

    def ended(self) -> None:
        """The connection is given up."""


class ClassicDialect:
    """That of RocketMQ's master and slave without a controller."""

    header = staticmethod(TRANSFER_HEADER.pack)

    def __init__(self, connection: MasterProtocol) -> None:
        self._connection = connection
        self._reports = OffsetReports()
        self._silent = True

    def single(self, data: bytes) -> int | None:
        """A report of eight bytes."""
        if len(data) != _REPORT or self._reports.pending:
            return None
        offset: int = _unpack_report(data)[0]
        return offset

    def receive(self, data: bytes) -> list[int]:
        """Take reports.  What stands before an observer's first one is none."""
        whole = self._reports.receive(data)
        if self._silent and whole:
            self._silent = False
            if whole[0] == OBSERVER:
                self._connection.observer = True
                del whole[0]
        return whole

    def first(self, claim: Claim, offset: int) -> int:
        """Take the first report."""
        return claim.look(offset) if self._connection.observer else claim.first(offset)

    def frame_end(self, position: int, stop: int) -> int:
        """Wherever a file ends."""
        return stop

    def ended(self) -> None:
        """Nothing is kept."""


TURN = 1 << 20
"""
Most body bytes one connection is given before the others get their turn.
"""

GATHERING = 0.005
"""
Seconds for which new bytes wait for more where no write waits for replicas: a frame costs both
sides as much as some ten messages in it.  Source: docs/protocol/ha.rst, The master's side.
"""

STRANGERS = 8
"""Connections of one address that have acknowledged nothing beyond the offset they began at; for
one more the oldest of them is closed."""

SWEEP = 1.0
"""
Seconds between two looks at all connections; less when a heartbeat is due more often.
"""

VERDICTS = {
    "ahead": ReplicaState.AHEAD,
    "unproven": ReplicaState.UNPROVEN,
    "below-min": ReplicaState.BELOW_MIN,
    "lost": ReplicaState.LOST,
}
"""
Reasons for a close that say something about a replica, not only about a peer.
"""

VERDICT_KEPT = 60.0
"""
Seconds a verdict is shown after the last connection it was made on; a stock slave is
back within 10.
"""

MOST_VERDICTS = 64
"""
Verdicts shown at most; garbage from many addresses looks like slaves that are ahead.
"""


MOST_NEWS = 10
"""
Lines about replicas that come and go, between two sweeps.
"""


class MasterFactory(ServerFactory, NodePart):
    """Serve one log to its replicas.

    @ivar log: What is served.
    @ivar settings: The C{ha*} keys.
    @ivar clock: Its C{seconds} must not jump: give it a monotonic one.
    @ivar ledger: Who holds what.
    @ivar transfer: The writes that wait for it.
    @ivar standing: What the log is worth: on a slave it is itself a copy.
    @ivar known: Told the address of each replica that has acknowledged what it was sent.
    @ivar batch: Most body bytes of a frame.
    @ivar turn: Most body bytes of a turn.
    @ivar door: Who is connected, and who may be.
    @ivar closed: How many connections ended, or were refused, by reason: C{peer} (it left),
        C{not-allowed}, C{too-many}, C{no-report}, C{silent}, C{lost}, C{stopped},
        C{internal}, C{upstream} (our log is doubtful), C{crowded-out} (others came), or the
        reason of a L{ReportRejected} or of a L{TlsRefused <rmqha.net.tls.errors.TlsRefused>}.
    @ivar slots: What is kept for replicas that are away.
    @ivar dialect: Makes how a connection is spoken with.
    @ivar gate: Whether TLS is spoken; by default it is not.
    @ivar timeline: When the log had grown to where.
    @ivar sent: Bytes of the log that were given to peers, observers included.
    """

    noisy = False
    _log = Logger()

    def __init__(
        self,
        *,
        log: CommitLog,
        settings: HASettings,
        clock: IReactorTime,
        ledger: Ledger,
        transfer: GroupTransfer,
        standing: Callable[[], Standing] = lambda: Standing.WHOLE,
        most: Callable[[], int] | None = None,
        slots: RetentionSlots | None = None,
        known: Callable[[str], None] = lambda host: None,
        dialect: Callable[[MasterProtocol], Dialect] = ClassicDialect,
        timeline: Timeline | None = None,
        gate: TlsGate = CLEAR_TEXT,
    ) -> None:
        """@param most: Most connections at once; what the settings say by default.
        @param slots: What is kept for replicas that are away; by default for none.
        """
        self.log = log
        self.settings = settings
        self.clock = clock
        self.ledger = ledger
        self.transfer = transfer
        self.standing = standing
        self.slots = slots or RetentionSlots(clock=clock, grace=0.0)
        self.known = known
        self.dialect = dialect
        self.batch = min(settings.batch, MAX_BODY)
        self.turn = TURN
        if settings.max_send_rate:
            self.turn = max(self.batch, min(TURN, settings.max_send_rate // 20))
        self.door: Door[MasterProtocol] = Door(
            clock=clock,
            log=self._log,
            most=most or (lambda: settings.max_connections),
            allowed=settings.allowed_peers,
            strangers=STRANGERS,
        )
        self.closed = self.door.closed
        self.timeline = timeline or Timeline()
        self.gate = gate
        self._fed: dict[MasterProtocol, None] = {}
        self._verdicts: dict[str, tuple[float, ReplicaView]] = {}
        self._news = 0
        self.sent = 0
        # Feeds what has gathered.
        self._soon: IDelayedCall | None = None
        self._interval = min(SWEEP, settings.heartbeat / 4, settings.housekeeping / 4)
        self._sweeping = Periodic("HA heartbeats and housekeeping", clock, self._sweep, vital=True)

    # --- life ---------------------------------------------------------------

    def startFactory(self) -> None:
        """The first port listens: Twisted calls it."""
        self.start()

    def start(self) -> None:
        """Follow the log, and begin to sweep.  Doing it twice is the same as once."""
        if self._sweeping.running or self.door.stopping:
            return
        self.timeline.note(self.log.confirmed, self.clock.seconds())
        # Before dispatch and the others, and before answers that wait for the disk: if writes
        # wait for replicas, these work meanwhile.  If none does, this only notes that it is due.
        self.log.appended.insert(0, self._log_moved)
        if self.settings.send_flushed_only:
            self.log.flush_listeners.insert(0, self._log_moved)
        self._sweeping.start(self._interval)

    def stop(self, *, gently: bool = True) -> Deferred[None]:
        """Answer all waiting writes, close all connections, take no more.

        @param gently: Let peers have what was written to them, and what has gathered.
        @return: Fires when the last connection is gone.
        """
        if not self.door.stopping:
            self.door.shut()
            if self._sweeping.running:
                self._sweeping.stop()
                self.log.appended.remove(self._log_moved)
                if self.settings.send_flushed_only:
                    self.log.flush_listeners.remove(self._log_moved)
                if self._soon is not None:
                    self._soon.cancel()
                    if gently:
                        self._feed_now()
            self.transfer.stop()
        gone = self.door.stop(gently=gently)
        self.door.quiet.flush()
        return gone

    # --- connections --------------------------------------------------------

    def buildProtocol(self, addr: IAddress | None) -> MasterProtocol | None:
        """Take a connection, or refuse it before anything is read."""
        host = host_of(addr)
        return MasterProtocol(self, host) if self.door.admits(host, self._shut) else None

    def _shut(self) -> str:
        return "upstream" if self.standing() is Standing.DOUBTFUL else ""

    def joined(self, connection: MasterProtocol) -> Claim:
        """A peer connected: open its claim."""
        self.door.entered(connection, expected=self.slots.known(connection.host))
        by_address = self.settings.replica_identity is ReplicaIdentity.ADDRESS
        identity = connection.host if by_address else connection.peer
        return self.ledger.open(identity, connection.host)

    def fed(self, connection: MasterProtocol, offset: int, origin: int) -> None:
        """A peer made an acceptable first report."""
        self._fed[connection] = None
        if connection.observer:
            self._tell(
                "Observer {peer} compares from byte {offset}: our end is {end}",
                peer=connection.peer,
                offset=offset,
                end=self.log.confirmed,
            )
            return
        # One of which no byte could be compared asks from the beginning, and is not empty.
        refused = self._verdicts.pop(connection.host, None) is not None
        connection.began = offset or int(refused)
        self._tell(
            "Replica {peer} first reports byte {offset}: sending from {origin}, our end is {end}",
            peer=connection.peer,
            offset=offset,
            origin=origin,
            end=self.log.confirmed,
        )

    def left(
        self, connection: MasterProtocol, claim: Claim, reason: str, error: Exception | None
    ) -> None:
        """A connection is given up, by either side."""
        self.closed[reason] += 1
        was_fed = connection in self._fed
        self._fed.pop(connection, None)
        observer = connection.observer
        if connection.slot is not None:
            if reason == "stopped":
                self.slots.we_leave(connection.slot, claim.held)
            else:
                self.slots.left(
                    connection.slot, claim.held, sent=claim.sent, heard=connection.heard
                )
        if reason in VERDICTS and not observer:
            self._judge(connection, VERDICTS[reason], error)
        if error is not None or reason in ("silent", "no-report"):
            self.door.quiet.warn(
                reason,
                connection.host,
                "Closed replica connection {address}: {error}",
                address=connection.peer,
                error=error or reason,
            )
        elif was_fed:
            self._tell(
                "Replica {peer} left ({reason}): sent up to {sent}, acknowledged up to {acked}",
                peer=connection.peer,
                reason=reason,
                sent=claim.sent,
                acked=claim.acked,
            )

    def starved(self, connection: MasterProtocol, error: OutOfDescriptors) -> None:
        """What a replica needs next cannot be read now; the next sweep tries again."""
        self.door.quiet.warn(
            type(error).__name__,
            connection.host,
            "Cannot send to replica {address} now, retrying: {error}",
            address=connection.peer,
            error=error,
        )

    def proven(self, connection: MasterProtocol) -> None:
        """A peer acknowledged what it was sent."""
        self.door.known(connection)
        claim = connection.claim
        if claim is not None and not connection.observer:
            connection.slot = self.slots.proved(
                claim.host, claim.held, began=connection.began, opened=connection.opened
            )
            self.known(connection.host)

    # --- the log and the clock ----------------------------------------------

    def limit(self) -> int:
        """Just past the last byte that may be sent.

        With C{haSendFlushedOnly} that is what a power cut cannot take from us; without it
        slaves could be left ahead of their own master.
        """
        log = self.log
        if self.settings.send_flushed_only:
            return min(log.confirmed, log.flushed)
        return log.confirmed

    def held_from(self) -> int | None:
        """The lowest offset that a replica fed now still needs, or one that is away, for
        retention; C{None} when none needs any.  Retention may pass it when the disk demands
        it: the replica is lost then, and is closed.
        """
        held = self.ledger.held_from(), self.slots.held_from()
        return min((offset for offset in held if offset is not None), default=None)

    def _log_moved(self) -> None:
        """There is more to send.  Where no write waits for replicas, its answer leaves first, and
        what comes within L{GATHERING} goes together.  A slave that feeds nobody has no timer for
        it, which would cost each of its sleeps.
        """
        self.timeline.note(self.log.confirmed, self.clock.seconds())
        if self.transfer.hurries:
            self._feed()
        elif self._soon is None and self._fed:
            self._soon = self.clock.callLater(GATHERING, self._feed_now)

    def _feed_now(self) -> None:
        self._soon = None
        self._feed()

    def _feed(self) -> None:
        limit = self.limit()
        for connection in tuple(self._fed):
            try:
                connection.pump(limit)
            except Exception:
                # Ours, and no reason to fail the write that called us.
                self._fail(connection)

    def _sweep(self) -> None:
        now = self.clock.seconds()
        self.timeline.note(self.log.confirmed, now)
        if self.standing() is Standing.DOUBTFUL:
            for connection in tuple(self.door.inside):
                connection.close("upstream")
        # What may be sent can grow without the log: with what is known about its end.
        self._feed()
        self.ledger.breathe(self._interval)
        self._look_at_slots()
        # Early rather than late: the next sweep would be past the interval.
        heartbeat_after = self.settings.heartbeat - self._interval
        for connection in [each for each in self.door.inside if each.claim is not None]:
            try:
                connection.look(now, heartbeat_after)
            except Exception:
                self._fail(connection)
        for host, (since, _) in list(self._verdicts.items()):
            if now - since > VERDICT_KEPT:
                del self._verdicts[host]
        self.door.quiet.sweep()
        if self._news > MOST_NEWS:
            self._log.info(
                "Held back {n} more lines about replicas that came or left",
                n=self._news - MOST_NEWS,
            )
        self._news = 0

    def _look_at_slots(self) -> None:
        for connection in self._fed:
            if connection.slot is not None and connection.claim is not None:
                connection.slot.offset = connection.claim.held
        log = self.log
        self.slots.sweep(log.min_offset, log.end, log.file_size)

    def _fail(self, connection: MasterProtocol) -> None:
        self._log.failure(
            "Sending to replica {peer} failed, closing its connection", peer=connection.peer
        )
        connection.close("internal")

    def _tell(self, message: str, **fields: object) -> None:
        """Log that a replica comes or goes, at a bounded rate."""
        self._news += 1
        if self._news <= MOST_NEWS:
            self._log.info(message, **fields)

    # --- the status ---------------------------------------------------------

    def health(self) -> Iterator[HealthReason]:
        """Too few replicas for a SYNC write, as if one were stored now."""
        needed = self.transfer.needed
        found = self._in_time(needed)
        if found < needed and not self.door.stopping:
            yield HealthReason(
                "too-few-replicas",
                f"{found} of {needed} replicas that a SYNC write waits for hold the log as it was "
                f"{self.transfer.timeout:g} s ago (slaveTimeout)",
            )

    def _in_time(self, enough: int) -> int:
        """Count the distinct replicas that would hold a write before its sender is told that they
        do not.

        @param enough: Stop counting here.
        """
        now, end, count = self.clock.seconds(), self.log.confirmed, 0
        timeline, transfer = self.timeline, self.transfer
        for acked in self.ledger.best():
            if count >= enough:
                break
            late = acked < end and (
                timeline.before(acked) or timeline.age(acked, now) > transfer.timeout
            )
            count += not late and end - acked < transfer.fallbehind_max
        return count

    @property
    def connections(self) -> int:
        """Open connections, whatever their state."""
        return len(self.door.inside)

    def replicas(self) -> list[ReplicaView]:
        """How each replica is doing: one row for each connection that has reported, so that each
        of several behind one address is seen, one for each replica of which none has, and one
        for each that was judged lately and is not fed now.
        """
        now = self.clock.seconds()
        groups: dict[str, list[tuple[Claim, MasterProtocol]]] = {}
        for connection in self.door.inside:
            claim = connection.claim
            if claim is not None and not connection.observer:
                groups.setdefault(claim.identity, []).append((claim, connection))
        rows = []
        for group in groups.values():
            shown = [pair for pair in group if pair[0].live] or group[:1]
            rows += [self._view(claim, connection, len(group), now) for claim, connection in shown]
        fed = {connection.host for connection in self._fed}
        rows += [row for host, (_, row) in self._verdicts.items() if host not in fed]
        return sorted(rows, key=lambda row: row.address)

    def _view(
        self, claim: Claim, connection: MasterProtocol, connections: int, now: float
    ) -> ReplicaView:
        if not claim.live:
            return ReplicaView(
                address=connection.peer, state=ReplicaState.WAITING, connections=connections
            )
        held = claim.held
        lag_bytes = max(0, self.log.confirmed - held)
        lag_seconds = self.timeline.age(held, now) if lag_bytes else 0.0
        close = lag_seconds < IN_SYNC_WITHIN and not self.timeline.before(held)
        return ReplicaView(
            address=connection.peer,
            state=ReplicaState.IN_SYNC if close or not lag_bytes else ReplicaState.FEEDING,
            sent=claim.sent,
            acked=claim.acked,
            lag_bytes=lag_bytes,
            lag_seconds=lag_seconds,
            speed=connection.speed.last(),
            connections=connections,
        )

    def _judge(
        self, connection: MasterProtocol, state: ReplicaState, error: Exception | None
    ) -> None:
        """Remember what was wrong with a replica."""
        row = ReplicaView(address=connection.peer, state=state, detail=str(error or ""))
        self._verdicts.pop(connection.host, None)
        self._verdicts[connection.host] = (self.clock.seconds(), row)
        if len(self._verdicts) > MOST_VERDICTS:
            del self._verdicts[next(iter(self._verdicts))]
