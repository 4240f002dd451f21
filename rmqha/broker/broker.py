"""The broker of a node: everything clients ask for, over one open store.

It is made when the store is open and thrown away when it closes; a slave's repair makes a new
one.  What clients are told lives in the store's folder; who they are, and what they want, the new
one is given.

Source: docs/architecture.rst, The broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rmqha.broker.access.access_control import AccessControl, TrustedLane
from rmqha.broker.access.acl_file import AclFile
from rmqha.broker.access.acl_requests import AclRequests
from rmqha.broker.access.needs import AccountNeed, Stated, Wanted
from rmqha.broker.admin.cleaning import Cleaning
from rmqha.broker.admin.configuration import BrokerConfiguration
from rmqha.broker.admin.forwarding import Forwarding
from rmqha.broker.admin.online import Online
from rmqha.broker.admin.permissions import guarded
from rmqha.broker.admin.reset_offsets import Resets
from rmqha.broker.admin.runtime_info import Runtime
from rmqha.broker.admin.statistics import Statistics
from rmqha.broker.admin.topics_and_groups import Administration
from rmqha.broker.clients.heartbeats import SWEEP, Heartbeats
from rmqha.broker.clients.registry import ClientRegistry, Member
from rmqha.broker.cluster.broker_members import Members
from rmqha.broker.cluster.duplicate_id import DuplicateIdCheck
from rmqha.broker.cluster.fencing import Fencing
from rmqha.broker.cluster.later_slaves import LaterSlaves
from rmqha.broker.cluster.master_twin import MasterTwinCheck, TwinSearch
from rmqha.broker.cluster.metadata_offsets import OffsetSync
from rmqha.broker.cluster.metadata_tables import Copies
from rmqha.broker.cluster.offsets_from_slaves import Return
from rmqha.broker.cluster.offsets_owed import Owed
from rmqha.broker.cluster.registration import Registration
from rmqha.broker.cluster.slave_sync import MetadataSync
from rmqha.broker.consuming.consumer_progress import Progress
from rmqha.broker.consuming.long_polling import LongPolling
from rmqha.broker.consuming.lookups import Lookups
from rmqha.broker.consuming.offset_changes import OffsetChanges
from rmqha.broker.consuming.pull import Pulls
from rmqha.broker.consuming.pull_lane import PullLane
from rmqha.broker.consuming.queue_locks import Locks
from rmqha.broker.consuming.queue_reader import QueueReader, physical_memory
from rmqha.broker.consuming.served_records import Doubt, ServedRecords, trusted
from rmqha.broker.delay.delay_offsets import LevelOffsets
from rmqha.broker.delay.schedule import Schedule
from rmqha.broker.meters.group_lag import GroupLags
from rmqha.broker.pop.assignment import Assignments, RoutedQueues
from rmqha.broker.pop.revive import Revival
from rmqha.broker.pop.service import PopService
from rmqha.broker.ports import ClientPorts
from rmqha.broker.sending.admission import Admission
from rmqha.broker.sending.half_messages import HalfMessages
from rmqha.broker.sending.reply import Replies
from rmqha.broker.sending.retry import Retries
from rmqha.broker.sending.send import Sending
from rmqha.broker.sending.timer_acceptance import TimerAcceptance
from rmqha.broker.sending.transactions import Transactions
from rmqha.broker.sending.write_lane import WriteLane, write_lane
from rmqha.broker.state import BrokerState, LateTopics
from rmqha.broker.tables.persisted import Persisted
from rmqha.broker.tables.pop_order_file import OrderFile
from rmqha.broker.timer.recall import Recalls
from rmqha.broker.timer.stock_checkpoint import StockCheckpoint
from rmqha.broker.timer.timers import Timers
from rmqha.config.settings import Settings
from rmqha.ha.master.put_service import Putter
from rmqha.ha.master_epoch import MasterEpochs
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.health import HealthReason
from rmqha.logfiles.published import DeletedTopic
from rmqha.net.allowed_peers import Allowed, Network
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.remoting.handlers import Registry
from rmqha.net.remoting.server_names import ServerNames, look_up
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls
from rmqha.periodic import NodePart, Periodic, in_slices
from rmqha.shutdown import Shutdown
from rmqha.store.derived.deleted_topics import Deletion
from rmqha.store.files.allocate import InThread
from rmqha.store.files.one_thread import OneThread
from rmqha.store.store import Store
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.table_verdict import Source, TableRead
from rmqha.wire.remoting.bodies.status import HaStatus
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer
from rmqha.wire.remoting.headers.slave import EpochClaim
from rmqha.wire.remoting.signature import Credentials

STOP_WITHIN = 30.0
"""Seconds that a stop waits for each part of a broker: what a thread that hangs keeps from ending
must not keep the log from being flushed and closed."""


class RequestHandler(Protocol):
    """A part of the broker that answers requests of some codes."""

    def handlers(self) -> Mapping[Any, Stated]:
        """Its functions by request code, with what they need; no two parts may have the same
        code.
        """


class Broker(BrokerState, NodePart):
    """All parts of a broker.

    @ivar served: Judges what is sent to consumers.
    @ivar levels: How far the delay levels are.
    @ivar schedule: Delayed messages.
    @ivar timers: Messages that are delivered at a time of their own.
    @ivar revival: Messages that were handed out, and come again.
    @ivar pop: Hands them out.
    @ivar metadata: Keeps a slave's tables like its master's; it does nothing on a master.
    @ivar siblings: On a slave, looks for another broker of our name and id.
    @ivar twins: On a master, looks for another master of our name.
    @ivar fencing: Stops a master's writes when there is one with a higher epoch.
    @ivar registry: All handlers.
    @ivar needs: What each request needs of who sends it, by code.
    @ivar retries: Messages that come again, and dead letters.
    @ivar transactions: Half messages, and how they ended.
    @ivar lags: How far groups are behind.
    @ivar access: Access control; C{None} where there is none.
    @ivar routed: The queues of topics on all brokers.
    @ivar lane: The short way for messages; C{None} on a slave, or where it is not compiled.
    """

    _log = Logger()
    lane: WriteLane | None = None

    def __init__(
        self,
        settings: Settings,
        store: Store,
        writer: Putter | None,
        reactor: Any,
        in_thread: InThread,
        *,
        ha: Callable[[], HaStatus] = lambda: HaStatus(master=False),
        told: Callable[[RegisterBrokerAnswer], None] = lambda answer: None,
        slave_listens: Callable[[str, int], None] = lambda host, port: None,
        present: ClientRegistry | None = None,
        epochs: MasterEpochs | None = None,
        doubt: Doubt = trusted,
        tables: CheckedTables | None = None,
        more: tuple[RequestHandler, ...] = (),
        accounts: AclFile | None = None,
        credentials: Credentials | None = None,
        tls: OutgoingTls = IN_CLEAR_TEXT,
    ) -> None:
        """@param store: It is open.
        @param writer: C{None} on a slave.
        @param ha: How replication is doing.
        @param told: Called with what a name server says of this broker's master.
        @param slave_listens: Told where a slave of ours listens for others: address and HA port.
        @param present: The clients of the broker before this one.
        @param epochs: The log's master epochs; by default those of a new store.
        @param doubt: Where the log may not be the master's.
        @param tables: The store's, L{TABLES} among them read ahead; by default they are read now.
        @param more: What this role answers beside.
        @param accounts: Who may do what; by default everybody may do everything.
        @param credentials: What requests to other nodes are signed with, if they are.
        @param tls: How other nodes are connected to.
        @raise FileUnreadable: If the system does not let one of the tables be read.
        @raise TableUnreadable: If one of them makes no sense.
        @raise BodyInvalid: If one is not of its kind.
        """
        super().__init__(
            settings,
            store,
            writer,
            reactor,
            in_thread,
            files=tables or CheckedTables(settings.store.root),
            present=present or ClientRegistry(),
            epochs=epochs or MasterEpochs(store.settings.root, in_thread),
        )
        self._orders = OrderFile(self.order, self.offsets, self.files)
        self._orders.load()
        self._bringing_back = self.bring_back()
        self._stopping = False
        self._late_topics = LateTopics(self)
        self.served = ServedRecords(store.log, store.scrubber.doubt, doubt)
        levels = LevelOffsets(self.files, store, self.lookup, reactor, in_thread)
        levels.load()
        self._files: tuple[Persisted | OrderFile, ...] = (
            *(table.file for table in (*self.tables, levels)),
            self._orders,
        )
        self.levels = levels
        self.schedule = Schedule(self, levels)
        self.revival = Revival(self)
        self.timers = Timers(self, offsets=levels, revival=self.revival)
        self._timercheck = StockCheckpoint(self, levels)
        self.lags = GroupLags(self)
        self._connect = partial(RemotingClient, reactor, credentials=credentials, tls=tls)
        self._client = self._connect()
        names_of = partial(ServerNames, partial(look_up, reactor), self.clock)
        self.registration = Registration(self, self._client, told, names_of)
        self._client.dialled = self.registration.names.dialled
        self._cold = OneThread(reactor, "cold pulls")
        self._ha, self._slave_listens = ha, slave_listens
        self._accounts = accounts
        self.access = None if accounts is None else AccessControl(table=lambda: accounts.table)
        self._among_brokers()
        self.registry = Registry(self._together, reactor.seconds)
        self.needs: dict[int, AccountNeed] = {}
        allowed = Allowed(settings.admin.allowed_peers)
        self.current.changed.append(
            lambda: allowed.change(self.current.settings.admin.allowed_peers)
        )
        self.current.changed.append(lambda: store.change(self.current.settings.store))
        master = writer is not None
        parts = *self._taking(), *self._clients(), *self._giving(), *self._administering(), *more
        for part in parts:
            for code, stated in part.handlers().items():
                self.needs[code] = stated[0]
                handler = guarded(stated, allowed=allowed, master=master, access=self.access)
                self.registry.register(code, handler)
        self._sweeping = Periodic("forgetting silent clients", reactor, self._sweep, vital=True)

    @contextmanager
    def _together(self) -> Generator[None]:
        """Surround requests that came together."""
        with self.store.log.together(), self.pop.together():
            yield

    def _may_see(self, member: Member, wanted: Wanted) -> bool:
        """Whether a client may be sent what only some accounts may know."""
        host, account = member.connection.host, member.account
        return self.access is None or self.access.permits(host, account, wanted)

    # --- the parts ------------------------------------------------------------------

    def _taking(self) -> tuple[RequestHandler, ...]:
        """Make what stores messages: sending, transactions, delays, replies."""
        store, broker = self.store, self.settings.broker
        admission = Admission(broker, self.topics, store.now_ms)
        self.current.changed.append(lambda: admission.apply(self.current.settings.broker))
        retries = self.retries = Retries(self, admission, self.registry.calls)
        acceptance = TimerAcceptance(self.settings.timers, store.now_ms)
        sending = Sending(state=self, admission=admission, retries=retries, timers=acceptance)
        replies = Replies(self, admission, self._may_see)
        self.transactions = Transactions(
            self, HalfMessages(self.lookup, self.offsets), self._may_see
        )
        self.lane = write_lane(self, admission, self.transactions, sending, self.access)
        if self.lane is not None:
            self.registry.lanes.append(self.lane)
            self.current.changed.append(self.lane.forget)
        recalls = Recalls(self, acceptance)
        return sending, retries, replies, recalls, self.transactions

    def _clients(self) -> tuple[RequestHandler, ...]:
        self._heartbeats, self._locks = Heartbeats(self), Locks(self)
        self.routed = RoutedQueues(self, self._client, lambda: self.registration.servers)
        assignments = Assignments(
            self,
            queues=self.routed.of,
            known=lambda: self.writer is not None or self.metadata.copies.knows_modes,
        )
        return self._heartbeats, self._locks, assignments

    def _giving(self) -> tuple[RequestHandler, ...]:
        """Make what clients read by: pulls, lookups, consumer progress."""
        reader = QueueReader(self, self.served, physical_memory())
        self._holds = LongPolling(self.clock, self.store.queues, self.store.dispatcher)
        pulls = Pulls(self, reader, self._holds, self._cold)
        self.current.changed.append(lambda: reader.apply(self.current.settings.pull))
        lane, access = PullLane(pulls, self.registry.calls), self.access
        self.registry.lanes.append(lane if access is None else TrustedLane(lane, access))
        self.pop = PopService(self, self.revival, reader)
        self.pop.acks.calls = self.registry.calls
        if self.lane is not None:
            self.lane.acked = self.pop.acks.take
        progress = Progress(self, reader, self.levels.table)
        self._changes = OffsetChanges(self)
        lookups = Lookups(self, self.served)
        return pulls, self.pop, progress, self._changes, lookups

    def _administering(self) -> tuple[RequestHandler, ...]:
        """What tells administrators of it all, and lets them change it."""
        store = self.store
        return (
            Administration(
                state=self,
                publication=self.registration.publication,
                deleted_topics=self._deletion.known,
                topic_gone=self._topic_gone,
                group_gone=self._group_gone,
                retry_topics=self.pop.retry_topics,
                slave_listens=self._slave_listens,
            ),
            AclRequests(self, self._accounts),
            BrokerConfiguration(self),
            Cleaning(store),
            Forwarding(self),
            Online(self),
            Resets(self, self.pop.pops),
            Runtime(
                state=self,
                delays=self.levels.table,
                timers=self.timers.info,
                ha=self._ha,
                first=store.log.end,
                on_claim=lambda *it: None if self.writer is None else self.fencing.on_claim(*it),
            ),
            Statistics(self),
            LaterSlaves(
                address=lambda: self.registration.address,
                ha_address=lambda: self.registration.ha_address,
                log_end=lambda: store.log.confirmed,
                master=self.writer is not None,
                takes_tokens=self.settings.controller.enabled,
                timers_at=self.timers.checkpoint,
                timers_by_topic=self.timers.metrics,
            ),
        )

    def _among_brokers(self) -> None:
        """What brokers of one name do for each other."""
        store, clock = self.store, self.clock
        members = Members(self._client, self.name, self.cluster)
        self._return = Return(self, self._client, members, lambda: self.registration.servers)
        self.siblings = DuplicateIdCheck(members, self.registration)
        self._among_masters(members)
        self._deletion = Deletion(
            store.queues, store.settings.root, store.log, clock, self.in_thread
        )
        copies = Copies(
            self,
            offsets=OffsetSync(self, Owed(self)),
            orders=self._orders,
            delays=self.levels.adopt,
            forget=self._deletion.forget,
        )
        self.metadata = MetadataSync(copies, self._connect)

    def _among_masters(self, members: Members) -> None:
        """What a master does about other masters of its name."""
        address = self.registration.address
        self.fencing = Fencing(
            self,
            replicas=_only(self.settings.ha.allowed_peers),
            ask=self._who,
            stop_registering=self.registration.suspend,
        )
        self.current.changed.append(self._replicas_changed)
        self.twins = MasterTwinCheck(
            search=TwinSearch(
                members=members,
                name=self.name,
                address=address,
                run_id=self.epochs.run_id,
                ask=self._who,
            ),
            servers=lambda: self.registration.servers,
            epochs=self.epochs,
            met=self.fencing.on_higher,
            clock=self.clock,
        )

    def _replicas_changed(self) -> None:
        self.fencing.replicas = _only(self.current.settings.ha.allowed_peers)

    def _who(self, address: str) -> Deferred[MasterBounds]:
        """Ask who is at an address, and tell that we are a master."""
        claim = EpochClaim(
            broker_name=self.name,
            master_epoch=self.epochs.number,
            master_addr=self.registration.address,
        )
        return master_bounds.ask(self._client, address, claim)

    async def _topic_gone(self, topic: str) -> None:
        """What is in the log of a topic by now is in no queue any more, whatever happens."""
        self.counts.forget_topic(topic)
        self.pop.topic_gone(topic)
        self.modes.delete(topic)
        self.order.forget_topic(topic)
        end = self.store.log.confirmed
        # By its last bytes the log is known for the one in which the topic was deleted.
        with self._deletion.begun(topic, end):
            await self.store.flusher.flush()
            await self._deletion.forget({topic: DeletedTopic(end)})
        await self.offsets.save()
        await self.modes.file.save_now()
        await self.topics.file.save_now()

    def _group_gone(self, group: str) -> None:
        self.counts.forget_group(group)
        self.pop.group_gone(group)
        self.modes.forget_group(group)
        self.order.forget_group(group)

    # --- life -------------------------------------------------------------------------

    def prepare(self) -> Deferred[None]:
        """Make good what a crash took from a master's tables, and learn of its slaves how far
        consumers came while it was away.  One that was fenced before is so from now on.

        @return: Fires when it may serve, after some seconds at the latest.
        """
        if self.writer is None:
            return succeed(None)
        self.fencing.start()
        return Deferred.fromCoroutine(self._prepare())

    async def _prepare(self) -> None:
        await in_slices(self.clock, self._bringing_back)
        if not self._stopping:
            await self._return.gather()

    def start(self, ports: ClientPorts) -> None:
        """Answer clients and register with the name servers, once L{prepare} has fired."""
        self._heartbeats.forget_ended()
        ports.open(self.registry, self._heartbeats.lost)
        self._sweeping.start(SWEEP)
        self._timercheck.start()
        self.counts.start()
        self.counts.watch(self.store.queues)
        self.lags.start()
        if self.writer is not None:
            self._late_topics.start()
            self.transactions.start()
            self.schedule.start()
            self.timers.start()
            self.twins.start()
        else:
            self.metadata.start()
            self.siblings.start()
        self.registration.start()

    def _sweep(self) -> None:
        self._heartbeats.sweep()
        self._locks.sweep()
        self.order.sweep(self.store.now_ms())

    def stop(self) -> Deferred[None]:
        """Write the tables for the last time; the ports are closed already.

        @return: Fires when nothing of the store is used any more; fails with L{ShutdownFailed}
            if a step of it failed.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._stopping = True
        self._late_topics.stop()
        shutdown = Shutdown("the broker", self.clock, deadline=STOP_WITHIN)
        at_once = (
            ("bringing tables back", self._bringing_back.close),
            ("forgetting silent clients", self._sweeping.stop),
            ("long polling", self._holds.stop),
            # Where groups are is written only then.
            ("the log", self.store.flusher.flush),
            ("handing out", self.pop.stop),
            ("slaves that wait for offsets", self._changes.stop),
            ("cold pulls", partial(self.in_thread, self._cold.stop)),
            ("statistics", self.counts.stop),
            ("ages of consumer lag", self.lags.stop),
            ("the check for a duplicate broker id", self.siblings.stop),
            ("the check for another master", self.twins.stop),
        )
        for name, stop in at_once:
            await shutdown.step(name, stop)
        leaving = shutdown.step("registration", self._leave)
        writing = shutdown.step("tables", self._write_tables)
        delivering = shutdown.step("delayed messages", self._stop_delivering)
        for step in (leaving, writing, delivering):
            await step
        await shutdown.step("checksums of tables", lambda: self.in_thread(self.files.settle))
        shutdown.finish()

    async def _stop_delivering(self) -> None:
        """Deliver no more; then it is written how far that was."""
        await self.timers.stop()
        await self.schedule.stop()
        await self._timercheck.stop()

    async def _leave(self) -> None:
        """Take leave of the name servers, and ask other brokers nothing more."""
        try:
            await self.registration.stop()
        finally:
            await self._client.close()

    async def _write_tables(self) -> None:
        shutdown = Shutdown("the broker's tables", self.clock)
        changing = [
            shutdown.step("transaction checks", self.transactions.stop),
            shutdown.step("metadata sync", self.metadata.stop),
        ]
        for step in changing:
            await step
        writing = [shutdown.step(type(table).__name__, table.stop) for table in self.tables]
        for step in writing:
            await step
        shutdown.finish()

    def health(self) -> Iterator[HealthReason]:
        """Tables that are older than what was acknowledged, a master that is another broker's, and
        other brokers in this one's place.
        """
        older = self._older_tables()
        if older:
            rows = ", ".join(f"{name} ({fault})" for name, fault in older.items())
            yield HealthReason(
                "older-tables", f"older than what was acknowledged: {rows}", told=True
            )
        changed = self._changed_tables()
        if changed:
            rows = ", ".join(f"{name} ({fault})" for name, fault in changed.items())
            yield HealthReason("changed-tables", f"loaded as they are: {rows}", told=True)
        if self.siblings.twin:
            yield HealthReason("twin", self.siblings.twin)

    def _older_tables(self) -> dict[str, str]:
        """Why files were not read at the start, but those that they had replaced; and damage of the
        journal of offsets.
        """
        return self._faults(lambda read: read.older) | self.offsets.journal_damage()

    def _changed_tables(self) -> dict[str, str]:
        """What was wrong with files that were read all the same."""
        return self._faults(lambda read: read.source is Source.CHANGED)

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        return {
            "topics": len(self.topics.names()),
            "groups": len(self.groups.names()),
            "olderTables": self._older_tables(),
            "changedTables": self._changed_tables(),
            "offsetJournal": self.offsets.journal.status(),
            "nameServers": self.registration.status(),
            "nameServersDisagree": self.registration.disagreement,
            "twin": self.siblings.twin or self.twins.twin,
            **self.fencing.status(),
            "delayed": self.schedule.status(),
            "timers": self.timers.status(),
            "pop": self.pop.status(),
            "toOtherNodes": self._client.connections.status(),
            "laneMessages": None if self.lane is None else self.lane.messages,
        }

    def puts_status(self) -> dict[str, Any]:
        """What C{/status} says of the writes; a slave takes none."""
        return {"putMillis": None} if self.writer is None else self.counts.puts_took.status()

    def _faults(self, wanted: Callable[[TableRead], bool]) -> dict[str, str]:
        """What was wrong with tables at the start, by their files' names."""
        reads = {file.path.name: file.read for file in self._files}
        return {name: read.fault for name, read in reads.items() if read and wanted(read)}


def _only(networks: Sequence[Network]) -> Allowed | None:
    """Those that a list names; C{None} for a list that names nobody and so means everybody."""
    return Allowed(networks) if networks else None
