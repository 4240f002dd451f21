"""The master of a set, as its members' connections and its writes see it: one object for one master
epoch.

It is made when the epoch is in the epoch file and before a write is taken, and ended, for good,
before this node does anything else than lead in that epoch.  Whoever makes it tells it what the
controller says (L{InSyncSet.told}), and is told in return when that is due.

SYNC writes of an elected master: answered when every member that may be elected holds them.

A write counts as acknowledged when all members of every SyncStateSet that may be in force have
reported it, at least one beside the master among the members that are connected has, and the set is
as large as C{minInSyncReplicas} asks for.  A set that shrinks to the master alone acknowledges
nothing by that.

Source: docs/protocol/controller.rst, What a master tells, The SyncStateSet and What a write waits
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmqha.config.controller_settings import ControllerSettings
from rmqha.config.ha_settings import HASettings, ReplicaIdentity
from rmqha.errors import HandshakeRejected, NotWritable, TooFewInSync
from rmqha.ha.elected.in_sync import InSyncSet
from rmqha.ha.elected.labelled_log import LabelledLog
from rmqha.ha.elected.members import MemberDialect, Proofs
from rmqha.ha.master.ledger import Claim, Ledger
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.master.put_service import PutResult, Putter
from rmqha.ha.master.transfer import Done, GroupTransfer, PutStatus, Waiting
from rmqha.health import HealthReason
from rmqha.periodic import NodePart, Periodic, cancelled
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.record_run import RequestRun
from rmqha.wire.ha_v2 import FOLLOWERS, MAX_BODY, SlaveHandshake
from rmqha.wire.log.record import Message


@define(eq=False, kw_only=True)
class SetTransfer(GroupTransfer):
    """Resolves writes once the set holds them.

    @ivar rules: What the configuration says of it.
    @ivar hurries: Whether writes wait for the set, however many it has.
    """

    needed: int = 0
    in_sync: InSyncSet
    rules: ControllerSettings
    hurries: bool

    def acked(self, claim: Claim) -> None:
        """A claim moved: what the set holds has, and what that completes is resolved."""
        self.in_sync.acked()
        super().acked(claim)

    def look(self) -> None:
        """Who counts has changed, or what counts for a member: resolve what that completes."""
        due: list[Waiting] = []
        self._look_aside(due)
        self._look_below(self.in_sync.reach(), due)

    def held(self, begin: int, end: int) -> bool:
        """Whether a write is held by all that may be elected, and by enough."""
        return self.in_sync.smallest >= self.rules.min_in_sync and self.in_sync.hold(begin, end)

    def _known(self, begin: int, end: int) -> PutStatus | None:
        if self._stopped is not None:
            return self._stopped
        if self.held(begin, end):
            return PutStatus.PUT_OK
        if self.in_sync.alone and not self._somebody_near(end):
            return PutStatus.PUT_OK if self.rules.alone_is_enough else PutStatus.SLAVE_NOT_AVAILABLE
        return None

    def _somebody_near(self, end: int) -> bool:
        claims = self.in_sync.claims.values()
        return any(end - claim.acked < self.fallbehind_max for claim in claims)

    def _limit(self, claim: Claim) -> int:
        return self.in_sync.reach()


LOOK = 1.0
"""Seconds between two looks at the set."""

TELL = 0.1
"""Seconds without a frame after which the confirm offset is told that has moved since."""

_SLACK = 0.001


@define(eq=False)
class MemberWriter:
    """Passes an elected master's writes on, if they may be taken: nothing of one that may not is
    stored.  What became of them is told as it may be at that moment, whenever it was taken.

    @ivar writer: Takes them.
    @ivar require: Raises L{NotWritable<rmqha.errors.NotWritable>} if they may not.
    @ivar answer: Makes of what became of a write what its sender may be told now.
    """

    writer: Putter
    require: Callable[[], None]
    answer: Callable[[PutStatus], PutStatus]

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        """Store a message as the writer below does.

        @raise NotWritable: If none is taken now; nothing is stored.
        """
        self.require()
        return self.writer.put(message, batch=batch, wait=wait).addCallback(self._told)

    def _told(self, result: PutResult) -> PutResult:
        status = self.answer(result.status)
        return result if status is result.status else evolve(result, status=status)

    def put_run(self, run: RequestRun, born_host: bytes, done: Done) -> None:
        """Store the messages of a run as the writer below does.

        @raise NotWritable: If none is taken now; nothing is stored.
        """
        self.require()
        self.writer.put_run(run, born_host, lambda status: done(self.answer(status)))


@define(eq=False, kw_only=True)
class SetMaster(NodePart):
    """The master of one set in one master epoch.

    @ivar labelled: Our log, as members are told of it: the newest label is that of this epoch.
    @ivar log: Our log.
    @ivar in_sync: The SyncStateSet, as the controller decided it with us as master in this epoch.
    @ivar proofs: Whose logs are known to be ours, and who the members are.
    @ivar settings: The C{ha*} keys.
    @ivar rules: What else the configuration says.
    @ivar awaited: Whether writes wait for the set: C{brokerRole} is not C{ASYNC_MASTER}.
    @ivar clock: Its C{seconds} must not jump.
    @ivar doubt: Says why this node cannot be sure that it leads, at that moment; C{""} if it can.
    @ivar feeding: Makes what takes the members' connections.
    @ivar confirm_moved: Called after the confirm offset has moved.
    @ivar factory: Takes the members' connections.
    @ivar transfer: The writes that wait for the set.
    @ivar fenced: Why no write is taken although this node leads, in words; C{""} if it is.  To be
        set by who knows that no controller can be asked.
    """

    labelled: LabelledLog
    log: CommitLog
    in_sync: InSyncSet
    proofs: Proofs
    settings: HASettings
    clock: IReactorTime
    rules: ControllerSettings = field(factory=ControllerSettings)
    awaited: bool = True
    doubt: Callable[[], str] = lambda: ""
    feeding: Callable[..., MasterFactory] = MasterFactory
    confirm_moved: list[Callable[[], None]] = field(factory=list, init=False)
    factory: MasterFactory = field(init=False)
    transfer: SetTransfer = field(init=False)
    fenced: str = field(default="", init=False)
    # Who was answered, in the order they came; those that are no learners by id.
    _heard: dict[MemberDialect, None] = field(factory=dict, init=False)
    _by_id: dict[int, MemberDialect] = field(factory=dict, init=False)
    _looking: Periodic = field(init=False)
    _telling: IDelayedCall | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        log = self.log
        # Who is one replica is told by what it says of itself, in the name of its claim.
        settings = evolve(self.settings, replica_identity=ReplicaIdentity.ADDRESS)
        ledger = Ledger(log=log, start=log.confirmed, accept_unproven=True)
        self.transfer = SetTransfer(
            ledger=ledger,
            clock=self.clock,
            timeout=settings.slave_timeout,
            fallbehind_max=settings.fallbehind_max,
            in_sync=self.in_sync,
            rules=self.rules,
            hurries=self.awaited,
        )
        self.in_sync.changed = self.transfer.look
        self.in_sync.confirm_moved = self._confirm_moved
        self.factory = self.feeding(
            log=log,
            settings=settings,
            clock=self.clock,
            ledger=ledger,
            transfer=self.transfer,
            dialect=lambda connection: MemberDialect(connection, self),
            timeline=self.in_sync.timeline,
        )
        self.in_sync.limit = self.factory.limit
        self.factory.batch = min(self.factory.batch, MAX_BODY)
        self._looking = Periodic("SyncStateSet", self.clock, self._look, vital=True)

    # --- life -----------------------------------------------------------------------

    def start(self) -> None:
        """Let members in."""
        self.factory.start()
        # Before frames go out, so that they tell of it.
        self.log.appended.insert(0, self._log_moved)
        self.log.flush_listeners.insert(0, self._log_moved)
        self._looking.start(LOOK)
        self.in_sync.acked()

    def end(self) -> Deferred[None]:
        """This is not our epoch any more, or this node stops: no write that waits is acknowledged,
        none is taken, and all connections end, when members have what was written to them.  Doing
        it again changes nothing.

        @return: Fires when the last connection is gone.
        """
        if not self._ended:
            self._ended = True
            self.in_sync.close()
            self.transfer.stop(PutStatus.FLUSH_SLAVE_TIMEOUT)
            if self._looking.running:
                self._looking.stop()
                self.log.appended.remove(self._log_moved)
                self.log.flush_listeners.remove(self._log_moved)
            self._telling = cancelled(self._telling)
        return self.factory.stop()

    # --- writes -----------------------------------------------------------------------

    def writer(self, below: Putter) -> MemberWriter:
        """What takes this node's writes.

        @param below: Stores them, and waits for L{transfer}.
        """
        return MemberWriter(below, self.require, self.answer)

    def answer(self, status: PutStatus) -> PutStatus:
        """What the sender of a write may be told of it now: nobody is told that all is well while
        it is in doubt that this node leads.
        """
        doubted = status is PutStatus.PUT_OK and self.doubt()
        return PutStatus.FLUSH_SLAVE_TIMEOUT if doubted else status

    def require(self) -> None:
        """See that a write may be taken.

        @raise NotWritable: If this node does not lead, or cannot know whether it does.
        @raise TooFewInSync: If the set is too small.
        """
        if self._ended:
            raise NotWritable("demoting", "this node does not lead its set any more")
        if why := self.fenced or self.doubt():
            raise NotWritable("fenced", why)
        if self.in_sync.smallest < self.rules.min_in_sync:
            raise TooFewInSync(self.in_sync.smallest, self.rules.min_in_sync)

    # --- what members are told ----------------------------------------------------------

    @property
    def confirm(self) -> int:
        """Below it every member of the SyncStateSet holds the log: what may be read."""
        return self.in_sync.confirm

    def _log_moved(self) -> None:
        try:
            self.in_sync.acked()
        except Exception:
            # Ours, and no reason to fail the write that called us.
            self._log.failure("Following the log's end in the SyncStateSet failed")

    def _confirm_moved(self) -> None:
        for listener in self.confirm_moved:
            listener()
        if self._telling is None and self._heard and not self._ended:
            self._telling = self.clock.callLater(TELL, self._tell_confirm)

    def _tell_confirm(self) -> None:
        """Tell the confirm offset to those that are sent nothing else."""
        self._telling = None
        fed = [each for each in self._heard if each.claim is not None]
        behind = [each for each in fed if each.confirm_told < self.confirm]
        for dialect in behind:
            if dialect.connection.idle_for(TELL - _SLACK):
                dialect.connection.heartbeat()
        if any(each.confirm_told < self.confirm for each in behind):
            self._telling = self.clock.callLater(TELL, self._tell_confirm)

    # --- members that come and go ---------------------------------------------------------

    def hear(self, dialect: MemberDialect, said: SlaveHandshake) -> None:
        """Somebody says who it is: with an id above all members' it is a learner."""
        dialect.said = said = evolve(said, learner=said.learner or said.id >= FOLLOWERS)
        if said.from_last_file and not self.rules.allow_last_file:
            raise HandshakeRejected("last-file", said.id)
        self.proofs.roster.judge(said, dialect.connection.host, partial(self._judged, dialect))

    def _judged(self, dialect: MemberDialect, error: HandshakeRejected | None) -> None:
        connection, said = dialect.connection, dialect.said
        if connection.claim is None or said is None:
            return
        if error is None and not said.learner:
            other = self._by_id.get(said.id)
            if other is not None and other.connection.host != connection.host:
                error = HandshakeRejected("other-address", said.id, other.connection.host)
            elif other is not None:
                other.connection.close("replaced")
        if error is not None:
            connection.close(error.reason, error)
            return
        self._heard[dialect] = None
        if not said.learner:
            self._by_id[said.id] = dialect
        dialect.answer()

    def began(self, dialect: MemberDialect) -> None:
        """A slave's first report was taken."""
        claim = dialect.claim
        if claim is not None and dialect.counts and not dialect.doubt:
            claim.trust()
            self.in_sync.joined(dialect.number, claim)
            self.transfer.look()

    def lost(self, dialect: MemberDialect) -> None:
        """A connection is given up."""
        self._heard.pop(dialect, None)
        self.proofs.lost(dialect)
        if self._by_id.get(dialect.number) is dialect:
            del self._by_id[dialect.number]
            self.in_sync.lost(dialect.number)

    def _look(self) -> None:
        self.in_sync.look()
        self.proofs.look()

    # --- the status -------------------------------------------------------------------------

    def health(self) -> Iterator[HealthReason]:
        """A set from which nobody else could be elected, or too small for a write."""
        found = self.in_sync.smallest
        if found < max(2, self.rules.min_in_sync):
            yield HealthReason(
                "too-few-replicas",
                f"the SyncStateSet has {found} members: "
                + (
                    f"writes need {self.rules.min_in_sync} (minInSyncReplicas)"
                    if found < self.rules.min_in_sync
                    else "no other member can become master without loss"
                ),
            )

    def status(self) -> dict[str, Any]:
        """What C{/status} says of the set."""
        return {**self.in_sync.status(), "members": [each.status() for each in self._heard]}
