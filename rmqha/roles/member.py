"""A member of a set whose master controllers elect: it follows, or leads, as is decided, without a
new process.

The store stays open through a change; what changes is who writes its log, and the broker that
clients talk to.  Changes come one after the other (L{rmqha.controller.set_watch}), and what each
decision asks of a member is in L{rmqha.controller.member_state}.

Source: docs/architecture.rst, Members of a set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from rmqha.admin.events import Facts
from rmqha.broker.broker import RequestHandler
from rmqha.broker.cluster.set_requests import SetRequests
from rmqha.broker.cluster.stock_followers import StockFollowers
from rmqha.config.broker_settings import BrokerRole
from rmqha.config.settings import Settings
from rmqha.controller.coordinator import SetMembership, SetState, SignOfLife
from rmqha.controller.epoch_labels import end_of
from rmqha.controller.identity import IdentityInvalid
from rmqha.controller.member_state import Duty, MemberStanding, MemberState, duty
from rmqha.controller.other_members import MemberLivesElsewhere
from rmqha.errors import (
    ControllerRefused,
    ElectionPaused,
    FileUnreadable,
    RmqhaError,
    TableUnreadable,
)
from rmqha.ha.master_epoch import EpochJournal, EpochStart
from rmqha.ha.states import NodeState
from rmqha.health import HealthProbe, HealthReason
from rmqha.periodic import Periodic
from rmqha.roles.elected_upstream import ElectedUpstream
from rmqha.roles.leading import Lead
from rmqha.roles.node import Node
from rmqha.roles.slave import Following
from rmqha.shutdown import Shutdown
from rmqha.store.files.mapped import none_left
from rmqha.store.store import Store
from rmqha.store.tables import epoch_file
from rmqha.store.tables.epoch_file import EpochFileInvalid
from rmqha.store.tables.held_file import Held
from rmqha.wire.ha_v2 import EpochLabel, SlaveHandshake
from rmqha.wire.remoting.bodies.controller import LAST_END, EpochCache, EpochRange
from rmqha.wire.remoting.bodies.status import HaStatus
from rmqha.wire.remoting.codes import ControllerResponseCode
from rmqha.wire.remoting.headers.controller import RoleChangedRequest
from rmqha.wire.store_layout import EPOCH_FILE_CHECKPOINT

LIFELESS = frozenset({NodeState.FAILED, NodeState.STOPPED})
"""States of a store that can take no write any more: another one has to lead."""

AGAIN = 1.0
"""Seconds to the next try to join."""

REMEMBERED = 10
"""Changes of the role that the status tells."""

KEEP = 1.0
"""Seconds between two looks at what has to be kept of this member, and at whether it is fenced."""

UNKNOWN_SET = (
    ControllerResponseCode.BROKER_METADATA_NOT_EXIST,
    ControllerResponseCode.BROKER_NEED_TO_BE_REGISTERED,
)
"""How controllers say that they do not know this member's set, or its id."""


def keep_labels(root: Path, journal: EpochJournal) -> None:
    """Write the epoch file that RocketMQ keeps.  Blocking."""
    labels = [EpochLabel(one.epoch, one.start) for one in journal.starts]
    epoch_file.write(root / EPOCH_FILE_CHECKPOINT, labels)


class MemberNode(Node):
    """A member's service tree.

    @ivar member: C{controller.state} of the status.
    @ivar why: The reason of it, in words.
    @ivar elected: Its way to whoever else leads.
    @ivar membership: Its id, and its signs of life.
    """

    role = "member"
    member = MemberState.NO_CONTROLLER
    why = ""
    following: Following
    membership: SetMembership
    lead: Lead
    decided = frozenset({"brokerId", "brokerRole"})
    _joined = False
    _joining: Deferred[None] | None = None

    def __init__(self, settings: Settings, reactor: Any, *, repair: bool = False) -> None:
        super().__init__(settings, reactor, repair=repair)
        self.epochs.keep_file = keep_labels
        self.elected = ElectedUpstream(
            node=self,
            decide=self._decided,
            speak=lambda: SlaveHandshake(id=self.membership.id),
            leads=lambda: self.lead.master is not None,
        )
        self.following = Following(node=self, upstream=self.elected)
        self.membership = self.elected.membership(self._sign_of_life)
        self.lead = Lead(
            node=self,
            following=self.following,
            membership=self.membership,
            elected=self.elected,
            become=self._become,
        )
        self._changes: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
        self._keeping = Periodic("looking after the membership", reactor, self._keep, vital=True)

    # --- to become a member -----------------------------------------------------------

    def serve(self, store: Store) -> Deferred[None]:
        """Join, the first time; after a repair follow on."""
        if self._joined:
            return Deferred.fromCoroutine(self._follow_on(store))
        self._joining = Deferred.fromCoroutine(self._join(store))
        self._joining.addErrback(self._not_joined)
        return succeed(None)

    async def _join(self, store: Store) -> None:
        while True:
            try:
                await self._recall(store)
                break
            except (TableUnreadable, FileUnreadable, OSError) as error:
                self._refuse("epochs", str(error))
                if not none_left(error):
                    return
            await deferLater(self.reactor, AGAIN, lambda: None)
        while self.running:
            try:
                await self.elected.group.find_leader()
                self._become(MemberState.JOINING, "asking the controllers for our place in the set")
                await self.membership.join()
            except IdentityInvalid as error:
                self._refuse("identity", str(error))
                return
            except MemberLivesElsewhere as error:
                if error.copied:
                    self._refuse("identity", str(error))
                    return
                self._become(self.member, str(error))
            except ControllerRefused as error:
                if error.code in UNKNOWN_SET and self.epochs.journal.starts:
                    self._refuse("unknown-set", f"{error}: the controllers lost what they knew")
                    # What it may show it shows.
                    self.lead.wear(BrokerRole.SLAVE, self.membership.id)
                    await self.open_broker(store, None)
                    return
                self._become(self.member, str(error))
            except (RmqhaError, OSError) as error:
                self._become(self.member, str(error))
            else:
                break
            await deferLater(self.reactor, AGAIN, lambda: None)
        self._joined = True
        if not self.running:
            return
        self._become(MemberState.WAITING, "it is not known who is master")
        self.membership.start()
        self._keeping.start(KEEP)
        if self.epochs.journal.starts:
            # It was a member before: what it may show it shows at once.
            self.lead.wear(BrokerRole.SLAVE, self.membership.id)
            await self.following.begin(store)
        else:
            self.elected.begin()

    async def _follow_on(self, store: Store) -> None:
        end = store.log.confirmed
        if self.following.marker.exists():
            self.lead.counted_on.look(end)
        else:
            await self.lead.counted_on.cut(end)
        await self.following.begin(store)

    def _not_joined(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        self._log.failure("Joining the set failed", failure)
        self._refuse("internal", failure.getErrorMessage())

    async def _recall(self, store: Store) -> None:
        """What this store knows of its set: a stock broker may have had it meanwhile."""
        root, end = self.settings.store.root, store.log.confirmed
        journal = self.epochs.journal
        try:
            found = await self._in_thread(epoch_file.read, root / EPOCH_FILE_CHECKPOINT)
        except EpochFileInvalid as error:
            # Labels only say where to begin to compare.
            self._log.error("Going on with our own labels of the log: {error}", error=error)
            found = epoch_file.LabelsRead(None)
        labels = [each for each in found.labels or () if each.start <= end]
        if labels and labels[-1].label > journal.number:
            known = {(one.epoch, one.start): one for one in journal.starts}
            starts = tuple(
                known.get((each.label, each.start), EpochStart(each.label, each.start))
                for each in labels
            )
            await self.epochs.keep(journal.followed(labels[-1].label, starts))
        await self.lead.counted_on.recall(end)

    def _sign_of_life(self) -> SignOfLife | None:
        """None while we must not be elected: by it a controller would believe that we can be."""
        store, refused = self.store_service.opened, self.member is MemberState.REFUSED
        if store is None or store.state in LIFELESS or self.lead.counted_on.lost or refused:
            return None
        starts, log = self.epochs.journal.starts, store.log
        epoch = starts[-1].epoch if starts else None
        return SignOfLife(epoch=epoch, end=log.confirmed, confirm=store.readable)

    # --- what is decided ----------------------------------------------------------------

    async def _decided(self, state: SetState) -> str:
        """Do what a decision asks for.

        @return: What keeps us from it.
        """
        journal = self.epochs.journal
        member = MemberStanding(
            id=self.membership.id,
            address=self.membership.address,
            epoch=journal.starts[-1].epoch if journal.starts else 0,
            leads=self.lead.epoch,
            may_be_first=self.lead.configured.is_master,
        )
        asked = duty(state, member)
        lost = self.lead.counted_on.lost
        if asked is Duty.ELECT and not lost:
            try:
                state = await self.elected.group.elect(member.id)
            except ElectionPaused as error:
                return self._wait(f"there is no master in epoch {state.master_epoch}: {error}")
            except ControllerRefused as error:
                if error.code != ControllerResponseCode.ELECT_MASTER_FAILED:
                    raise
                return self._nobody_to_elect(state)
            asked = duty(state, member)
        if asked is Duty.REFUSE:
            return self._fence_refused(
                "epoch-behind",
                f"the controller says master epoch {state.master_epoch}, and this log has one of "
                f"{member.epoch}: the controllers lost what they knew",
            )
        if asked is Duty.STEP_ASIDE and state.master is not None:
            return self._fence_refused(
                "same-id",
                f"the controllers have id {member.id} at {state.master.address}, and this node is "
                f"{member.address}: two nodes have one id; stop both, run rmqha controller reset "
                "on the one that is a copy, and start the other one first",
            )
        if asked in (Duty.ELECT, Duty.WAIT):
            why = f"there is no master in epoch {state.master_epoch}"
            if asked is Duty.WAIT:
                why += ", and brokerRole=SLAVE must not be a set's first"
            elif lost:
                why += f", and this member must not be it (lost-log): {lost}"
            return self._wait(why)
        if asked is Duty.GO_ON:
            assert self.lead.master is not None, "it leads"
            self.lead.master.in_sync.told(state)
            self._unfence()
            return ""
        if asked is Duty.LEAD:
            return await self.lead.begin(state)
        return await self._follow_decided(state)

    def _nobody_to_elect(self, state: SetState) -> str:
        return self._wait(
            f"there is no master in epoch {state.master_epoch}: only {sorted(state.in_sync)} may "
            "be elected, and none of them is alive. Start them; if that is not possible, `rmqha "
            "controller explain --set` says what can be done, and for a set with etcd "
            "docs/guide/etcd.rst, All that could be elected is lost"
        )

    def _wait(self, why: str) -> str:
        if self.member is not MemberState.LEADING:
            self._become(MemberState.WAITING, why)
        return why

    def _fence_refused(self, reason: str, why: str) -> str:
        """Do not act on a decision; another node may act on it."""
        refused = self._refuse(reason, why)
        if self.lead.master is not None:
            self.lead.master.fenced = refused
        return refused

    async def _follow_decided(self, state: SetState) -> str:
        if self.lead.master is not None:
            await self.lead.demote(f"master epoch {state.master_epoch} has another master")
        if self.following.follower is None:
            await self.read_tables()
            self.lead.wear(BrokerRole.SLAVE, self.membership.id)
            await self.following.begin(self.store)
        counted_on, follower = self.lead.counted_on, self.following.follower
        proven = follower is not None and follower.sync.present().silent is not None
        if proven:
            counted_on.has(self.store.log.confirmed)
        lost = counted_on.lost
        self._become(MemberState.FOLLOWING, lost and f"lost-log: {lost}")
        return await self.elected.follow(state)

    # --- to be sure of it -----------------------------------------------------------------

    def _keep(self) -> Deferred[None] | None:
        """Once a second: whether we are fenced, and what was counted on."""
        self._fence()
        broker = self.broker
        if self.following.follower is not None and broker is not None and self._counts():
            broker.metadata.hurry()
        return self._keep_held()

    def _fence(self) -> None:
        """A master that no controller answers may have been replaced, unless everybody is here who
        could have been elected.
        """
        master = self.lead.master
        if master is None:
            return
        if self.lead.epoch is not None and (doubt := self.membership.doubt(self.lead.epoch)):
            self._become(MemberState.FENCED, doubt)
            return
        silent = self.elected.watch.silent()
        if (
            silent < self.settings.controller.fence_after
            or master.in_sync.alone
            or master.in_sync.connected
        ):
            return
        master.fenced = f"no controller has answered for {silent:.0f} s, and a member is not here"
        self._become(MemberState.FENCED, master.fenced)

    def _unfence(self) -> None:
        if self.lead.master is not None and self.lead.master.fenced:
            self.lead.master.fenced = ""
        if self.lead.epoch is not None and self.membership.doubt(self.lead.epoch):
            return
        self._become(MemberState.LEADING, f"in master epoch {self.lead.epoch}")

    def _counts(self) -> bool:
        """Whether this member may be elected, as far as is known."""
        state = self.elected.followed.state
        if self.lead.master is not None:
            return not self.lead.master.in_sync.alone
        return state is not None and self.membership.id in state.in_sync

    def _keep_held(self) -> Deferred[None] | None:
        store = self.store_service.opened
        if store is None or not self._counts():
            return None
        # Followers report what is flushed or accepted; who leads has what is confirmed.
        offset = store.readable if self.lead.master is not None else self._reported()
        now = Held(id=self.membership.id, epoch=self.epochs.number, offset=offset)
        return self.lead.counted_on.keep(now)

    def _reported(self) -> int:
        follower = self.following.follower
        connection = None if follower is None else follower.sync.connection
        return 0 if connection is None or connection.cursor is None else connection.reported

    # --- for the broker -------------------------------------------------------------------

    def broker_parts(self) -> tuple[RequestHandler, ...]:
        """A member is asked for its labels, and told of elections; with etcd it is asked what
        controllers are asked elsewhere.
        """
        settings, watch = self.settings, self.elected.watch
        asked = SetRequests(self._labels, self._role_changed)
        if not settings.controller.etcd:
            return (asked,)
        patience = settings.controller.fence_after
        followers = StockFollowers(
            cluster=settings.broker.cluster,
            name=settings.broker.name,
            address=self.membership.address,
            state=lambda: watch.state if watch.silent() < patience else None,
            addresses=self.elected.stock,
        )
        return asked, followers

    def _role_changed(self, told: RoleChangedRequest) -> None:
        if told.master_epoch > self.epochs.number:
            self.elected.watch.hurry()

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
        if self.lead.master is None:
            return self.following.ha_status()
        return super().ha_status()

    def guarantee(self) -> str:
        """What an acknowledged write means here, in words."""
        return self.lead.guarantee()

    async def unserve(self) -> None:
        """Leave the set as one that is expected back."""
        shutdown = Shutdown("the membership", self.reactor)
        await shutdown.step("looking after the membership", self._keeping.stop)
        await shutdown.step("deciding", self.elected.stop)
        if self._joining is not None and not self._joined:
            self._joining.cancel()
        await self.following.end(self.lead.end)
        # Last: while writes are answered nobody else is to be elected.
        await shutdown.step("signs of life", self.membership.stop)
        self._become(MemberState.STOPPED, "")
        shutdown.finish()

    # --- the status -----------------------------------------------------------------------

    def health(self) -> Iterator[HealthReason]:
        """A node's reasons, and why this one is no member."""
        yield from super().health()
        if self.member in (MemberState.REFUSED, MemberState.FENCED):
            yield HealthReason(
                f"member-{self.member.value}",
                self.why,
                fails=HealthProbe.HEALTH | HealthProbe.READY,
            )

    def facts(self) -> Facts:
        """A node's, and how it stands in its set."""
        return {**super().facts(), "member": (self.member.value, self.why)}

    def status(self) -> dict[str, Any]:
        """A node's status, and the membership."""
        store = self.store_service.opened
        status = super().status()
        watch, master = self.elected.watch, self.lead.master
        status["controller"] = {
            "state": self.member.value,
            "reason": self.why,
            "id": self.membership.id,
            "masterEpoch": self.epochs.number,
            "leader": self.elected.group.leader,
            "trouble": watch.trouble,
            "secondsSilent": watch.silent(),
            "confirmOffset": None if store is None else store.readable,
            "changes": list(self._changes),
            **self.membership.status(),
            "set": None if master is None else master.status(),
        }
        return status

    def _become(self, state: MemberState, why: str) -> str:
        refused = self.member is MemberState.REFUSED and state is MemberState.PROMOTING
        if refused or (state, why) == (self.member, self.why):
            return why
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
        return why

    def _refuse(self, reason: str, why: str) -> str:
        return self._become(MemberState.REFUSED, f"{reason}: {why}")
