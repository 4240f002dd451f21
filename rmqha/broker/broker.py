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

from attrs import AttrsInstance
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rmqha.broker.access.access_control import AccessControl
from rmqha.broker.access.acl_file import AclFile
from rmqha.broker.access.acl_requests import AclRequests
from rmqha.broker.access.guard import TrustedLane
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
from rmqha.broker.bring_back import LateTopics, bring_back
from rmqha.broker.clients.heartbeats import SWEEP, Heartbeats
from rmqha.broker.clients.registry import Member, Present
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
from rmqha.broker.consuming.queue_locks import Locks
from rmqha.broker.consuming.queue_reader import QueueReader, physical_memory
from rmqha.broker.consuming.served_records import Doubt, ServedRecords, trusted
from rmqha.broker.delay.delay_offsets import LevelOffsets
from rmqha.broker.delay.schedule import Schedule
from rmqha.broker.meters.group_lag import GroupLags
from rmqha.broker.meters.latency import TimedPuts
from rmqha.broker.meters.meters import Meters
from rmqha.broker.pop.assignment import Assignments, RoutedQueues
from rmqha.broker.pop.revive import Revival
from rmqha.broker.pop.service import PopService
from rmqha.broker.ports import ClientPorts
from rmqha.broker.sending.admission import Admission
from rmqha.broker.sending.half_messages import HalfMessages
from rmqha.broker.sending.messages import Messages
from rmqha.broker.sending.reply import Replies
from rmqha.broker.sending.retry import Retries
from rmqha.broker.sending.send import CLIENTS_FLAGS, Sending
from rmqha.broker.sending.timer_acceptance import TimerAcceptance
from rmqha.broker.sending.transactions import Transactions
from rmqha.broker.sending.write_lane import WriteLane, write_lane
from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.broker.tables.current_settings import CurrentSettings
from rmqha.broker.tables.persisted import Persisted
from rmqha.broker.tables.pop_order import PopOrder
from rmqha.broker.tables.pop_order_file import OrderFile
from rmqha.broker.tables.request_modes import ModeTable
from rmqha.broker.tables.subscription_groups import Groups
from rmqha.broker.tables.topics import Topics
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
from rmqha.net.remoting.handlers import Handler, Registry
from rmqha.net.remoting.server_names import look_up
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls
from rmqha.periodic import Job, Periodic, in_slices
from rmqha.shutdown import Shutdown
from rmqha.store.derived.deleted_topics import Deletion
from rmqha.store.derived.lookup import Lookup
from rmqha.store.files.allocate import InThread
from rmqha.store.store import Store
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.table_verdict import Source, TableRead
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets, DelayOffsets
from rmqha.wire.remoting.bodies.pop_order import OrderTable
from rmqha.wire.remoting.bodies.request_modes import RequestModes
from rmqha.wire.remoting.bodies.status import HaStatus
from rmqha.wire.remoting.bodies.tables import GroupTable, TopicTable
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer
from rmqha.wire.remoting.headers.slave import EpochClaim
from rmqha.wire.remoting.signature import Credentials
from rmqha.wire.store_layout import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    POP_ORDER,
    REQUEST_MODES,
    SUBSCRIPTION_GROUPS,
    TIMER_CHECKPOINT,
    TOPICS,
)

TABLES: Mapping[str, type[AttrsInstance]] = {
    TOPICS: TopicTable,
    SUBSCRIPTION_GROUPS: GroupTable,
    CONSUMER_OFFSETS: ConsumerOffsets,
    DELAY_OFFSETS: DelayOffsets,
    REQUEST_MODES: RequestModes,
    POP_ORDER: OrderTable,
}
"""The files that a broker reads when it is made, and what is in them."""

STOP_WITHIN = 30.0
"""Seconds that a stop waits for each part of a broker: what a thread that hangs keeps from ending
must not keep the log from being flushed and closed."""


class RequestHandler(Protocol):
    """A part of the broker that answers requests of some codes."""

    def handlers(self) -> Mapping[Any, Stated]:
        """Its functions by request code, with what they need; no two parts may have the same
        code.
        """


class Broker:
    """All parts of a broker, and what they share.

    @ivar topics: The table of topics.
    @ivar groups: The table of groups.
    @ivar offsets: The table of consumers' offsets.
    @ivar order: What groups pop in order.
    @ivar modes: The table of how groups consume topics.
    @ivar served: Judges what is sent to consumers.
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
    @ivar counts: How much happens.
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
        present: Present | None = None,
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
        self.settings = settings
        self.store = store
        self.counts = Meters(reactor, settings.broker.cluster)
        self.writer = (
            None if writer is None else TimedPuts(writer, reactor.seconds, self.counts.puts_took)
        )
        self.reactor = reactor
        self.epochs = epochs or MasterEpochs(store.settings.root, in_thread)
        self._in_thread = in_thread
        files = self._checked = tables or CheckedTables(settings.store.root)
        self.topics = Topics(files, settings.broker, reactor, in_thread, store.now_ms)
        self.groups = Groups(files, settings.broker, reactor, in_thread, store.now_ms)
        pause = settings.store.offset_journal_interval
        self.offsets = ConsumerOffsetTable(files, reactor, in_thread, pause)
        self.modes = ModeTable(files, settings.pop, reactor, in_thread, store.now_ms)
        self._tables = (self.topics, self.groups, self.offsets, self.modes)
        for table in self._tables:
            table.load()
        self.order = PopOrder()
        self._orders = OrderFile(self.order, self.offsets, files)
        self._orders.load()
        self._bringing_back = bring_back(self.topics, self.offsets, self.order, store)
        self._stopping = False
        self._late_topics = LateTopics(self.topics, store)
        self.served = ServedRecords(store.log, store.scrubber.doubt, doubt)
        self.messages = Messages.of(settings)
        self.lookup = Lookup(store.log, store.queues, store.index, self.messages.levels)
        levels = LevelOffsets(files, store, self.lookup, reactor, in_thread)
        levels.load()
        self._files: tuple[Persisted | OrderFile, ...] = (
            *(table.file for table in (*self._tables, levels)),
            self._orders,
        )
        self.schedule = Schedule(
            store=store,
            writer=self.writer,
            lookup=self.lookup,
            messages=self.messages,
            offsets=levels,
            unread=self._is_unread,
            clock=reactor,
        )
        self.revival = Revival(
            cluster=settings.broker.cluster,
            broker=settings.broker.name,
            lookup=self.lookup,
            messages=self.messages,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            writer=self.writer,
            clock=reactor,
            now_ms=store.now_ms,
            outlived=store.queues.outlived,
        )
        self.timers = Timers(
            settings=settings.timers,
            store=store,
            writer=self.writer,
            lookup=self.lookup,
            messages=self.messages,
            offsets=levels,
            clock=reactor,
            revival=self.revival,
            delivered=self.counts.delivered.add,
        )
        self._timercheck = StockCheckpoint(files.path(TIMER_CHECKPOINT), levels, reactor, in_thread)
        self.lags = GroupLags(self.lookup, self.topics, self.offsets, self.counts, reactor)
        present = present or Present()
        self.producers, self.consumers = present.producers, present.consumers
        self.current = CurrentSettings(settings)
        self._connect = partial(RemotingClient, reactor, credentials=credentials, tls=tls)
        self._client = self._connect()
        self.registration = Registration(
            self._client,
            self.current,
            self.topics,
            reactor,
            told,
            in_thread=in_thread,
            look_up=partial(look_up, reactor),
            epochs=self.epochs,
        )
        self._client.dialled = self.registration.names.dialled
        self._ha, self._slave_listens = ha, slave_listens
        self._accounts = accounts
        self.access = None if accounts is None else AccessControl(table=lambda: accounts.table)
        self._among_brokers(in_thread)
        self.registry = Registry(self._together, reactor.seconds)
        self.needs: dict[int, AccountNeed] = {}
        allowed = Allowed(settings.admin.allowed_peers)
        self.current.changed.append(
            lambda: allowed.change(self.current.settings.admin.allowed_peers)
        )
        self.current.changed.append(lambda: store.change(self.current.settings.store))
        for part in (*self._parts(), *more):
            for code, stated in part.handlers().items():
                self.needs[code] = stated[0]
                self.registry.register(code, self._guarded(stated, allowed))
        self._sweeping = Periodic("forgetting silent clients", reactor, self._sweep, vital=True)

    @contextmanager
    def _together(self) -> Generator[None]:
        """Surround requests that came together."""
        with self.store.log.together(), self.pop.together():
            yield

    def _guarded(self, stated: Stated, allowed: Allowed) -> Handler:
        master = self.writer is not None
        return guarded(stated, allowed=allowed, master=master, access=self.access)

    def _may_see(self, member: Member, wanted: Wanted) -> bool:
        """Whether a client may be sent what only some accounts may know."""
        host, account = member.connection.host, member.account
        return self.access is None or self.access.permits(host, account, wanted)

    # --- the parts ------------------------------------------------------------------

    def _parts(self) -> tuple[RequestHandler, ...]:
        return (*self._taking(), *self._clients(), *self._giving(), *self._administering())

    def _taking(self) -> tuple[RequestHandler, ...]:
        """Make what stores messages: sending, transactions, delays, replies."""
        store, broker = self.store, self.settings.broker
        admission = Admission(broker, self.topics, store.now_ms)
        self.current.changed.append(lambda: admission.apply(self.current.settings.broker))
        retries = self.retries = Retries(
            store=store,
            writer=self.writer,
            lookup=self.lookup,
            messages=self.messages,
            admission=admission,
            topics=self.topics,
            groups=self.groups,
            sent_back=self.counts.sent_back,
        )
        acceptance = TimerAcceptance(self.settings.timers, store.now_ms)
        sending = Sending(
            settings=broker,
            store=store,
            writer=self.writer,
            messages=self.messages,
            admission=admission,
            topics=self.topics,
            retries=retries,
            timers=acceptance,
        )
        replies = Replies(
            current=self.current,
            writer=self.writer,
            messages=self.messages,
            admission=admission,
            producers=self.producers,
            may_see=self._may_see,
        )
        self.transactions = Transactions(
            store=store,
            writer=self.writer,
            halves=HalfMessages(self.lookup, self.offsets),
            topics=self.topics,
            producers=self.producers,
            current=self.current,
            clock=self.reactor,
            messages=self.messages,
            may_see=self._may_see,
        )
        if self.writer is not None:
            self.lane = write_lane(
                writer=self.writer,
                admission=admission,
                topics=self.topics,
                messages=self.messages,
                transactions=self.transactions,
                refuse=sending.unavailable,
                always=sending.always,
                clients_flags=CLIENTS_FLAGS,
                store=store,
                half_messages=not broker.reject_transactions,
                broker=broker.name,
                timers=self.settings.timers,
            )
        if self.lane is not None:
            access = self.access
            self.registry.lane = self.lane if access is None else TrustedLane(self.lane, access)
            self.current.changed.append(self.lane.forget)
        recalls = Recalls(
            settings=broker,
            writer=self.writer,
            messages=self.messages,
            topics=self.topics,
            acceptance=acceptance,
        )
        return sending, retries, replies, recalls, self.transactions

    def _clients(self) -> tuple[RequestHandler, ...]:
        """What knows who is there."""
        self._heartbeats = Heartbeats(
            self.producers,
            self.consumers,
            self.groups,
            self.topics,
            self.reactor,
            notify=self.settings.pull.notify,
            filters=lambda: self.current.settings.pull.property_filter,
        )
        self._locks = Locks(self.reactor, self._has_queue)
        self.routed = RoutedQueues(
            client=self._client,
            servers=lambda: self.registration.servers,
            name=self.settings.broker.name,
            topics=self.topics,
            clock=self.reactor,
        )
        assignments = Assignments(
            settings=self.settings.pop,
            modes=self.modes,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            queues=self.routed.of,
            known=lambda: self.writer is not None or self.metadata.copies.knows_modes,
            changed=self.offsets.journal.stir,
        )
        return self._heartbeats, self._locks, assignments

    def _giving(self) -> tuple[RequestHandler, ...]:
        """Make what clients read by: pulls, lookups, consumer progress."""
        store, settings, slave = self.store, self.settings, self.writer is None
        served, memory = self.served, physical_memory()
        reader = QueueReader(
            served,
            store.queues,
            settings.pull,
            memory,
            slave=slave,
            next_offset=store.next_offset,
        )
        self._holds = LongPolling(self.reactor, store.queues, store.dispatcher)
        pulls = Pulls(
            settings=settings.pull,
            reader=reader,
            holds=self._holds,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            offsets=self.offsets,
            permission=settings.broker.permission,
            slave=slave,
            went=self.counts.went,
            took=self.counts.reads_took.add,
        )
        self.current.changed.append(
            lambda: pulls.apply(self.current.settings.pull, self.current.settings.broker.permission)
        )
        self.pop = PopService(
            settings=settings,
            revival=self.revival,
            order=self.order,
            reader=reader,
            dispatcher=store.dispatcher,
            clock=self.reactor,
            went=self.counts.went,
        )
        progress = Progress(
            self.offsets,
            reader,
            store.queues,
            self.topics,
            self.groups,
            delays=self.schedule.offsets,
            slave=slave,
        )
        self._changes = OffsetChanges(self.offsets, store.queues, self.reactor, self._in_thread)
        most = settings.store.max_msgs_num_batch
        lookups = Lookups(self.lookup, served, settings.pull, most)
        return pulls, self.pop, progress, self._changes, lookups

    def _administering(self) -> tuple[RequestHandler, ...]:
        """What tells administrators of it all, and lets them change it."""
        store, name, lookup = self.store, self.settings.broker.name, self.lookup
        return (
            Administration(
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                consumers=self.consumers,
                published=self.registration.published,
                deleted_topics=self._deletion.known,
                topic_gone=self._topic_gone,
                group_gone=self._group_gone,
                retry_topics=self.pop.retry_topics,
                slave_listens=self._slave_listens,
            ),
            AclRequests(
                file=self._accounts,
                broker_name=name,
                broker_address=self.registration.address,
                cluster_name=self.settings.broker.cluster,
                now_ms=store.now_ms,
            ),
            BrokerConfiguration(self.current, self.topics),
            Cleaning(store),
            Forwarding(name, lookup, self.consumers),
            Online(self.producers, self.consumers, self.reactor, store.now_ms),
            Resets(
                name=name,
                lookup=lookup,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                consumers=self.consumers,
                pops=self.pop.pops,
            ),
            Runtime(
                current=self.current,
                store=store,
                lookup=lookup,
                counts=self.counts,
                puts=self.writer,
                delays=self.schedule.offsets,
                timers=self.timers.info,
                ha=self._ha,
                first=store.log.end,
                epochs=self.epochs,
                claimed=lambda *said: None if self.writer is None else self.fencing.claimed(*said),
            ),
            Statistics(
                name=name,
                address=self.registration.address,
                lookup=lookup,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                consumers=self.consumers,
                counts=self.counts,
            ),
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

    def _among_brokers(self, in_thread: InThread) -> None:
        """What brokers of one name do for each other."""
        store, broker, clock = self.store, self.settings.broker, self.reactor
        members = Members(self._client, broker.name, broker.cluster)
        self._return = Return(
            client=self._client,
            members=members,
            servers=lambda: self.registration.servers,
            offsets=self.offsets,
            known=lambda topic: self.topics.get(topic) is not None,
            begin=store.begin,
            clock=clock,
            in_thread=in_thread,
        )
        self.siblings = DuplicateIdCheck(members, self.registration, broker.id, clock)
        self._among_masters(members)
        self._deletion = Deletion(store.queues, store.settings.root, store.log, clock, in_thread)
        copies = Copies(
            tables=self._checked,
            name=broker.name,
            cluster=broker.cluster,
            topics=self.topics,
            groups=self.groups,
            modes=self.modes,
            offsets=OffsetSync(
                self.offsets,
                clock,
                in_thread,
                known=self._knows,
                owed=Owed(clock, store.queues.end),
            ),
            orders=self._orders,
            delays=self.schedule.adopt,
            forget=self._deletion.forget,
            begin=partial(store.queues.begin, sure=True),
            clock=clock,
            in_thread=in_thread,
        )
        self.metadata = MetadataSync(
            copies=copies,
            log_end=lambda: store.log.confirmed,
            connect=self._connect,
            clock=clock,
            now_ms=store.now_ms,
            ha_port=self.settings.ha.listen_port,
        )

    def _among_masters(self, members: Members) -> None:
        """What a master does about other masters of its name."""
        broker, replicas = self.settings.broker, self.settings.ha.allowed_peers
        address = self.registration.address
        self.fencing = Fencing(
            name=broker.name,
            epochs=self.epochs,
            replicas=_only(replicas),
            ask=self._who,
            stop_writes=self.store.fence,
            stop_registering=self.registration.suspend,
            clock=self.reactor,
        )
        self.current.changed.append(self._replicas_changed)
        self.twins = MasterTwinCheck(
            search=TwinSearch(
                members=members,
                name=broker.name,
                address=address,
                run_id=self.epochs.run_id,
                ask=self._who,
            ),
            servers=lambda: self.registration.servers,
            epochs=self.epochs,
            met=self.fencing.met,
            clock=self.reactor,
        )

    def _replicas_changed(self) -> None:
        self.fencing.replicas = _only(self.current.settings.ha.allowed_peers)

    def _who(self, address: str) -> Deferred[MasterBounds]:
        """Ask who is at an address, and tell that we are a master."""
        claim = EpochClaim(
            broker_name=self.settings.broker.name,
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

    def _knows(self, topic: str, group: str) -> bool:
        return self.topics.get(topic) is not None and self.groups.get(group) is not None

    def _has_queue(self, topic: str, queue_id: int) -> bool:
        config = self.topics.get(topic)
        return config is not None and 0 <= queue_id < config.read_queue_nums

    def _is_unread(self, topic: str, queue_id: int) -> bool:
        """Whether a topic has shrunk, and this queue of it is no longer read."""
        config = self.topics.get(topic)
        return config is not None and queue_id >= config.read_queue_nums

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
        await in_slices(self.reactor, self._bringing_back)
        if not self._stopping:
            await self._return.gather()

    def start(self, ports: ClientPorts) -> None:
        """Answer clients and register with the name servers, once L{prepare} has fired."""
        self._heartbeats.forget_ended()
        ports.open(self.registry, self._heartbeats.lost)
        self._sweeping.start(SWEEP)
        self._timercheck.start()
        self.counts.start()
        self.counts.watch(self.store.dispatcher, self.store.queues)
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
        shutdown = Shutdown("the broker", self.reactor, deadline=STOP_WITHIN)
        at_once = (
            ("bringing tables back", self._bringing_back.close),
            ("forgetting silent clients", self._sweeping.stop),
            ("long polling", self._holds.stop),
            ("handing out", self.pop.stop),
            ("slaves that wait for offsets", self._changes.stop),
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
        await shutdown.step("checksums of tables", lambda: self._in_thread(self._checked.settle))
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
        """Write the tables when nothing changes them any more."""
        shutdown = Shutdown("the broker's tables", self.reactor)
        changing = [
            shutdown.step("transaction checks", self.transactions.stop),
            shutdown.step("metadata sync", self.metadata.stop),
        ]
        for step in changing:
            await step
        writing = [shutdown.step(type(table).__name__, table.stop) for table in self._tables]
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
        yield from self.metadata.health()
        yield from self.twins.health()
        yield from self.registration.health()

    def _older_tables(self) -> dict[str, str]:
        """Why files were not read at the start, but those that they had replaced; and damage of the
        journal of offsets.
        """
        return self._faults(lambda read: read.older) | self.offsets.journal_damage()

    def _changed_tables(self) -> dict[str, str]:
        """What was wrong with files that were read all the same."""
        return self._faults(lambda read: read.source is Source.CHANGED)

    def jobs(self) -> Iterator[Job]:
        """What is done again and again."""
        yield self._sweeping
        for table in self._tables:
            yield from table.jobs()
        yield from self.schedule.jobs()
        yield self._timercheck.job
        yield from self.counts.jobs()
        yield from self.lags.jobs()
        yield from self.transactions.jobs()
        yield from self.metadata.jobs()
        yield from self.siblings.jobs()
        yield from self.twins.jobs()
        yield from self.registration.jobs()
        yield from self._client.connections.jobs()

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

    def _faults(self, wanted: Callable[[TableRead], bool]) -> dict[str, str]:
        """What was wrong with tables at the start, by their files' names."""
        reads = {file.path.name: file.read for file in self._files}
        return {name: read.fault for name, read in reads.items() if read and wanted(read)}


def _only(networks: Sequence[Network]) -> Allowed | None:
    """Those that a list names; C{None} for a list that names nobody and so means everybody."""
    return Allowed(networks) if networks else None
