"""What a node does to lead a set, and to lead no more.

The store stays open through both; what changes is who writes its log, and the broker that clients
talk to.  Who is master is decided elsewhere (L{rmqha.roles.member}), one decision after the other.

Source: docs/architecture.rst, Members of a set.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from rmqha.config.broker_settings import BrokerRole
from rmqha.config.settings import Settings
from rmqha.controller.coordinator import SetMembership, SetState
from rmqha.controller.epoch_labels import end_of
from rmqha.controller.member_state import MemberState
from rmqha.controller.other_members import ends_of, labels_of
from rmqha.errors import DiskFull, FileUnreadable, TableUnreadable
from rmqha.ha.elected.counted_on import CountedOn
from rmqha.ha.elected.set_master import SetMaster, SetRules
from rmqha.ha.elected.written_growth import WrittenGrowth
from rmqha.ha.master.put_service import Writer
from rmqha.ha.master_epoch import EpochJournal
from rmqha.roles.slave import SlaveNode
from rmqha.roles.upstream.elected import ElectedUpstream
from rmqha.shutdown import Shutdown
from rmqha.store.store import Store
from rmqha.store.tables.held_file import Held
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.remoting.bodies.controller import LAST_END, EpochCache, EpochRange
from rmqha.wire.remoting.bodies.status import HaStatus

REMEMBERED = 10
"""Changes of the role that the status tells."""


class LeadingNode(SlaveNode):
    """A slave that may lead.

    @ivar member: C{controller.state} of the status.
    @ivar why: The reason of it, in words.
    @ivar membership: Its id, and its signs of life.
    @ivar elected: Its way to whoever else leads.
    @ivar counted_on: Up to where it was counted on to hold its log.
    @ivar master: Its set, while it leads; C{None} otherwise.
    """

    member = MemberState.NO_CONTROLLER
    why = ""
    membership: SetMembership
    elected: ElectedUpstream
    master: SetMaster | None = None
    _leads: int | None = None
    _writer: Writer | None = None
    _growth: WrittenGrowth | None = None

    def __init__(self, settings: Settings, reactor: Any, *, repair: bool = False) -> None:
        self._as_configured = settings
        super().__init__(settings, reactor, repair=repair)
        self.counted_on = CountedOn(root=settings.store.root, in_thread=self._in_thread)
        self._changes: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        # Since when others are asked where their logs end, and for which epoch.
        self._comparing = (-1, 0.0)

    async def _lead(self, state: SetState) -> str:
        """Lead in a new epoch, or not at all.

        @return: What keeps us from it.
        """
        number = state.master_epoch
        if self.master is not None:
            await self._demote(f"elected again, in master epoch {number}")
        unknown = "" if self.counted_on.lost else await self._compare_ends(state)
        if lost := self.counted_on.lost:
            return self._refuse("lost-log", lost)
        if unknown:
            self._become(MemberState.WAITING, unknown)
            return unknown
        if self.member is not MemberState.REFUSED:
            self._become(MemberState.PROMOTING, f"elected in master epoch {number}")
        try:
            await self._end_following()
            refused = await self._promote(state)
        except Exception:
            # Who leads in part would be taken for one that leads.
            await self._demote("the promotion did not succeed")
            raise
        if not refused:
            self._become(MemberState.LEADING, f"in master epoch {number}")
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
        name, upstream = self.settings.broker.name, self.elected
        ends = await ends_of(upstream.group, upstream.client, name, others)
        theirs, end = max(ends.values(), default=-1), self.store.log.confirmed
        if theirs > end:
            now = Held(id=self.membership.id, epoch=state.master_epoch, offset=theirs)
            await self.counted_on.lacks(now, end)
            return ""
        missing, seconds = sorted(others - ends.keys()), self.reactor.seconds()
        epoch, since = self._comparing
        if epoch != state.master_epoch:
            self._comparing, since = (state.master_epoch, seconds), seconds
        if not missing or seconds - since >= self.settings.controller.late_after:
            return ""
        return (
            f"master epoch {state.master_epoch} is ours still, and members that may have more of "
            f"its log do not say where theirs end: {missing}"
        )

    async def _promote(self, state: SetState) -> str:
        store, journal, number = self.store, self.epochs.journal, state.master_epoch
        log = store.log
        if log.end > log.confirmed:
            log.rewind()
        store.clamp_confirm()
        if self._marker.exists():
            if log.end > log.min_offset and not journal.starts:
                return self._refuse("unfinished-copy", "the copy of another log is not complete")
            self._mark_bootstrap(False)
        growth = WrittenGrowth(
            coordinator=self.elected.group,
            root=self.settings.store.root,
            in_thread=self._in_thread,
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
                return self._refuse("growth", str(error))
        try:
            await self.epochs.keep(journal)
        except (DiskFull, OSError) as error:
            return self._refuse("epochs", f"the new epoch cannot be written: {error}")
        if state.in_sync.union(*asked_before) <= {self.membership.id}:
            # Alone in its set at first, as after each election: all of it is confirmed.  Whoever
            # leads on in an epoch may have written what the others have not got.
            store.confirm(log.confirmed)
        await store.took_over()
        await self.read_tables()
        role = self._as_configured.broker.role
        self._wear(role if role.is_master else BrokerRole.SYNC_MASTER, 0)
        master = self._set_master(state, journal, growth, asked_before)
        self._writer = Writer(store, master.transfer, self.settings.broker.role)
        self.master, self._growth, self._leads = master, growth, number
        self.serving.lend(master.factory)
        master.start()
        await self.open_broker(store, master.writer(self._writer))
        if self.broker is not None:
            self.broker.topics.lead(number)
            self.broker.groups.lead(number)
            self.broker.modes.lead(number)
        return ""

    def _set_master(
        self,
        state: SetState,
        journal: EpochJournal,
        growth: WrittenGrowth,
        asked_before: tuple[frozenset[int], ...],
    ) -> SetMaster:
        store, group, client = self.store, self.elected.group, self.elected.client
        controller, name = self.settings.controller, self.settings.broker.name
        self.serving.read_slots()
        master = SetMaster(
            own=self.membership.id,
            state=state,
            labels=tuple(EpochLabel(one.epoch, one.start) for one in journal.starts),
            log=store.log,
            settings=self.settings.ha,
            rules=SetRules(
                least=controller.min_in_sync,
                alone_is_enough=controller.alone_is_enough,
                awaited=self.settings.broker.role is BrokerRole.SYNC_MASTER,
                late_after=controller.late_after,
                allow_last_file=controller.allow_last_file,
            ),
            clock=self.reactor,
            coordinator=growth,
            members=group.members,
            doubt=lambda: self.membership.doubt(state.master_epoch),
            labels_of=lambda address, token: Deferred.fromCoroutine(
                labels_of(client, address, name, token)
            ),
            superseded=self.elected.watch.hurry,
            confirm_from=store.readable,
            asked_before=asked_before,
            slots=self.serving.slots,
            most=lambda: self.shares.ha,
            gate=self.tls.ha_port(),
        )
        master.confirm_moved.append(lambda: store.confirm(master.confirm))
        return master

    def _let_in(self, store: Store) -> None:
        """Only who leads feeds others."""

    async def _end_following(self) -> None:
        """Nobody writes our log, and nobody reads of a master's."""
        changing = Shutdown("following", self.reactor)
        if self.follower is not None:
            # It waits for a repair, which opens the store and begins to follow again.
            await changing.step("replication from the master", self.follower.stopService)
        if self.repairs is not None:
            await changing.step("repairing the log", self.repairs.stop)
        if self.comparison is not None:
            await changing.step("comparing the log", self.comparison.stop)
        self.follower = self.repairs = self.comparison = None
        self.elected.leave()
        await changing.step("the broker", self.shut_broker)

    async def _demote(self, why: str) -> None:
        """Lead no more: no write that waits is acknowledged, and none is taken."""
        self._become(MemberState.DEMOTING, why)
        changing = Shutdown("leading", self.reactor)
        ending = changing.step("the set", self._leave_at_once)
        await changing.step("the broker", self.shut_broker)
        await ending

    def leave(self) -> Deferred[None]:
        """End the epoch that we lead, if we do."""
        return Deferred.fromCoroutine(self._leave())

    def _leave_at_once(self) -> Deferred[None]:
        # Whoever does not read would hold up the change of the role.
        return Deferred.fromCoroutine(self._leave(gently=False))

    async def _leave(self, *, gently: bool = True) -> None:
        master, growth = self.master, self._growth
        self.master = self._growth = self._leads = self._writer = None
        if master is not None and growth is not None:
            written = growth.close()
            await master.end(gently=gently)
            await self.serving.end(gently=gently)
            # Whoever leads on in this epoch reads it.
            await written

    def _wear(self, role: BrokerRole, number: int) -> None:
        """What this node is to clients and name servers from now on.

        @param number: The C{brokerId} in routes.
        """
        now = self.settings if self.broker is None else self.broker.current.settings
        broker = evolve(now.broker, role=role, id=number)
        self.settings = evolve(now, broker=broker)

    # --- for the broker -------------------------------------------------------------------

    def _labels(self, token: int | None) -> EpochCache:
        broker, end = self.settings.broker, self.store.log.confirmed
        labels = [EpochLabel(one.epoch, one.start) for one in self.epochs.journal.starts]
        last = len(labels) - 1
        return EpochCache(
            cluster_name=broker.cluster,
            broker_name=broker.name,
            broker_id=broker.id,
            epoch_list=tuple(
                EpochRange(
                    epoch=each.label,
                    start_offset=each.start,
                    end_offset=LAST_END if number == last else end_of(labels, number, end),
                )
                for number, each in enumerate(labels)
            ),
            max_offset=end,
            compares_bytes=True,
            generation=self.store.publisher.point.generation,
            token_told=None if token is None else self.elected.tell_token(token),
        )

    def ha_status(self) -> HaStatus:
        """As a master or as a slave."""
        if self.master is None:
            return super().ha_status()
        return self.serving.ha_status(self.store.log.end)

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

    # --- the status -----------------------------------------------------------------------

    def _become(self, state: MemberState, why: str) -> None:
        if (state, why) == (self.member, self.why):
            return
        if state is not self.member:
            self._log.info(
                "Member of set {name}: {before} -> {state}{why}",
                name=self.settings.broker.name,
                before=self.member.value,
                state=state.value,
                why=f": {why}" if why else "",
            )
            self._changes.append(
                {
                    "time": self.environment.now_ms(),
                    "state": state.value,
                    "reason": why,
                    "masterEpoch": self.epochs.number,
                }
            )
        self.member, self.why = state, why
        self._changed()

    def _refuse(self, reason: str, why: str) -> str:
        self._become(MemberState.REFUSED, f"{reason}: {why}")
        return self.why
