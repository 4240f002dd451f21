"""What a node does to lead a set, and to lead no more.

The store stays open through both; what changes is who writes its log, and the broker that clients
talk to.  Who is master is decided elsewhere (L{rmqha.roles.member}), one decision after the other.

Source: docs/architecture.rst, Members of a set.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from rmqha.config.broker_settings import BrokerRole
from rmqha.controller.coordinator import SetMembership, SetState
from rmqha.controller.member_state import MemberState
from rmqha.controller.other_members import ends_of, labels_of
from rmqha.errors import DiskFull, FileUnreadable, TableUnreadable
from rmqha.ha.elected.counted_on import CountedOn
from rmqha.ha.elected.in_sync import InSyncSet
from rmqha.ha.elected.labelled_log import LabelledLog
from rmqha.ha.elected.members import Proofs
from rmqha.ha.elected.roster import Roster
from rmqha.ha.elected.set_master import SetMaster
from rmqha.ha.elected.written_growth import WrittenGrowth
from rmqha.ha.master.put_service import Writer
from rmqha.ha.master_epoch import EpochJournal
from rmqha.periodic import NodePart
from rmqha.roles.elected_upstream import ElectedUpstream
from rmqha.roles.node import Node
from rmqha.roles.slave import Following
from rmqha.shutdown import Shutdown
from rmqha.store.tables.held_file import Held
from rmqha.wire.ha_v2 import EpochLabel

HANDOVER = 0.5
"""Seconds for the master before this one to end the connection by which this member followed it."""

HEARD = 1.0
"""Seconds after which it is not waited for: it may stand still."""

PAUSE = 0.01
"""Seconds between two looks at that connection: no write is acknowledged meanwhile."""


@define(eq=False, kw_only=True)
class Lead(NodePart):
    """A member's lead of its set, one epoch or more of it.

    @ivar node: The member, which follows otherwise.
    @ivar membership: Its id, and its signs of life.
    @ivar following: What it does otherwise.
    @ivar become: Told how the member stands, and why; gives back why.
    @ivar counted_on: Up to where it was counted on to hold its log.
    @ivar configured: Its role in the configuration.
    @ivar master: The set, while it leads; C{None} otherwise.
    @ivar epoch: The one that it leads in.
    """

    node: Node
    membership: SetMembership
    following: Following
    elected: ElectedUpstream
    become: Callable[[MemberState, str], str]
    counted_on: CountedOn = field(init=False)
    configured: BrokerRole = field(init=False)
    master: SetMaster | None = field(default=None, init=False)
    epoch: int | None = field(default=None, init=False)
    _writer: Writer | None = field(default=None, init=False)
    _growth: WrittenGrowth | None = field(default=None, init=False)
    # Since when others are asked where their logs end, and for which epoch.
    _comparing: tuple[int, float] = field(default=(-1, 0.0), init=False)

    def __attrs_post_init__(self) -> None:
        settings, in_thread = self.node.settings, self.node.environment.in_thread
        self.configured = settings.broker.role
        self.counted_on = CountedOn(root=settings.store.root, in_thread=in_thread)

    async def begin(self, state: SetState) -> str:
        """Lead in a new epoch, or not at all.

        @return: What keeps us from it.
        """
        number = state.master_epoch
        if self.master is not None:
            await self.demote(f"elected again, in master epoch {number}")
        unknown = "" if self.counted_on.lost else await self._compare_ends(state)
        if lost := self.counted_on.lost:
            return self.become(MemberState.REFUSED, f"lost-log: {lost}")
        if unknown:
            return self.become(MemberState.WAITING, unknown)
        self.become(MemberState.PROMOTING, f"elected in master epoch {number}")
        try:
            await self._take_over()
            await self.following.unfollow(self.elected.leave)
            refused = await self._promote(state)
        except Exception:
            # Who leads in part would be taken for one that leads.
            await self.demote("the promotion did not succeed")
            raise
        if not refused:
            self.become(MemberState.LEADING, f"in master epoch {number}")
        return refused

    async def _compare_ends(self, state: SetState) -> str:
        """Others are in the set where a process before this one has led in this epoch.  What they
        have beyond our end was ours, and a power cut has taken it: it may be acknowledged, and
        other bytes at its place would have the same label.  Who has it is to be elected.

        Who does not answer is waited for as long as a member that does not come: no write can be
        acknowledged meanwhile.

        @return: Why it is not known yet; empty if it is.
        """
        others = state.in_sync - {self.membership.id}
        if not others:
            return ""
        name, upstream = self.node.settings.broker.name, self.elected
        ends = await ends_of(upstream.group, upstream.client, name, others)
        theirs, end = max(ends.values(), default=-1), self.node.store.log.confirmed
        if theirs > end:
            now = Held(id=self.membership.id, epoch=state.master_epoch, offset=theirs)
            await self.counted_on.lacks(now, end)
            return ""
        missing, seconds = sorted(others - ends.keys()), self.node.reactor.seconds()
        epoch, since = self._comparing
        if epoch != state.master_epoch:
            self._comparing, since = (state.master_epoch, seconds), seconds
        if not missing or seconds - since >= self.node.settings.controller.late_after:
            return ""
        return (
            f"master epoch {state.master_epoch} is ours still, and members that may have more of "
            f"its log do not say where theirs end: {missing}"
        )

    async def _promote(self, state: SetState) -> str:
        node = self.node
        store, journal, number = node.store, node.epochs.journal, state.master_epoch
        log = store.log
        if log.end > log.confirmed:
            log.rewind()
        store.clamp_confirm()
        if self.following.marker.exists():
            if log.end > log.min_offset and not journal.starts:
                return self.become(
                    MemberState.REFUSED, "unfinished-copy: the copy of another log is not complete"
                )
            self.following.mark_bootstrap(False)
        growth = WrittenGrowth(
            coordinator=self.elected.group,
            root=node.settings.store.root,
            in_thread=node.environment.in_thread,
        )
        asked_before: tuple[frozenset[int], ...] = ()
        newest = journal.starts[-1] if journal.starts else None
        if newest is None or newest.epoch < number:
            journal = journal.led(number, log.confirmed, self.membership.id)
        else:
            # A process before this one led in this epoch.
            try:
                asked_before = await growth.recall(state)
            except (TableUnreadable, FileUnreadable) as error:
                return self.become(MemberState.REFUSED, f"growth: {error}")
        try:
            await node.epochs.keep(journal)
        except (DiskFull, OSError) as error:
            return self.become(
                MemberState.REFUSED, f"epochs: the new epoch cannot be written: {error}"
            )
        if state.in_sync.union(*asked_before) <= {self.membership.id}:
            # Alone in its set at first, as after each election: all of it is confirmed.  Whoever
            # leads on in an epoch may have written what the others have not got.
            store.confirm(log.confirmed)
        await store.took_over()
        await node.read_tables()
        role = self.configured
        self.wear(role if role.is_master else BrokerRole.SYNC_MASTER, 0)
        master = self._set_master(state, journal, growth, asked_before)
        self._writer = Writer(store, master.transfer, node.settings.broker.role)
        self.master, self._growth, self.epoch = master, growth, number
        node.serving.lend(master.factory)
        master.start()
        await node.open_broker(store, master.writer(self._writer))
        if (broker := node.broker) is not None:
            for table in (broker.topics, broker.groups, broker.modes):
                table.lead(number)
        return ""

    def _set_master(
        self,
        state: SetState,
        journal: EpochJournal,
        growth: WrittenGrowth,
        asked_before: tuple[frozenset[int], ...],
    ) -> SetMaster:
        node, settings = self.node, self.node.settings
        store, group, client = node.store, self.elected.group, self.elected.client
        controller, name = settings.controller, settings.broker.name
        node.serving.read_slots()
        clock, own = node.reactor, self.membership.id
        labelled = LabelledLog(tuple(EpochLabel(one.epoch, one.start) for one in journal.starts))
        master = SetMaster(
            labelled=labelled,
            log=store.log,
            in_sync=InSyncSet(
                own=own,
                state=state,
                coordinator=growth,
                clock=clock,
                newest_start=labelled.newest_start,
                asked_before=set(asked_before),
                late_after=controller.late_after,
                confirm=store.readable,
                superseded=self.elected.watch.hurry,
            ),
            proofs=Proofs(
                ours=labelled,
                log=store.log,
                labels_of=lambda address, token: Deferred.fromCoroutine(
                    labels_of(client, address, name, token)
                ),
                roster=Roster(
                    own=own,
                    ask=lambda: group.members().addCallback(
                        lambda known: {**known, **self.elected.stock}
                    ),
                    clock=clock,
                    any_host=bool(settings.ha.allowed_peers),
                ),
                clock=clock,
                accept=settings.ha.accept_unproven,
            ),
            settings=settings.ha,
            rules=controller,
            awaited=settings.broker.role is BrokerRole.SYNC_MASTER,
            clock=clock,
            doubt=lambda: self.membership.doubt(state.master_epoch),
            feeding=node.serving.feeding(),
        )
        master.confirm_moved.append(lambda: store.confirm(master.confirm))
        return master

    async def _take_over(self) -> None:
        """Take what the master before us has sent.  Other members have it too, and would have to
        cut it off before they can acknowledge anything of ours.
        """
        follower, seconds = self.following.follower, self.node.reactor.seconds
        connection = None if follower is None else follower.sync.connection
        if connection is None or connection.heard is None:
            return
        until = min(connection.heard + HEARD, seconds() + HANDOVER)
        while not connection.finished and seconds() < until:
            await deferLater(self.node.reactor, PAUSE)

    async def demote(self, why: str) -> None:
        """Lead no more: no write that waits is acknowledged, and none is taken."""
        self.become(MemberState.DEMOTING, why)
        changing = Shutdown("leading", self.node.reactor)
        # Members have what was written: whoever leads next is not to lack what others got.
        ending = changing.step("the set", lambda: Deferred.fromCoroutine(self.end()))
        await changing.step("the broker", self.node.shut_broker)
        await ending

    async def end(self) -> None:
        """End the epoch that we lead, if we do."""
        master, growth = self.master, self._growth
        self.master = self._growth = self.epoch = self._writer = None
        if master is not None and growth is not None:
            written = growth.close()
            await master.end()
            await self.node.serving.end()
            # Whoever leads on in this epoch reads it.
            await written

    def wear(self, role: BrokerRole, number: int) -> None:
        """What this node is to clients and name servers from now on.

        @param number: The C{brokerId} in routes.
        """
        node = self.node
        now = node.settings if node.broker is None else node.broker.current.settings
        broker = evolve(now.broker, role=role, id=number)
        node.settings = evolve(now, broker=broker)

    def guarantee(self) -> str:
        """What an acknowledged write means here, in words."""
        if self._writer is None:
            return "none: this member does not lead"
        if self._writer.role is BrokerRole.SYNC_MASTER:
            return (
                "SYNC: an acknowledged write is held by every member that may be elected, and by "
                "one beside this one at least"
            )
        return self._writer.guarantee()
