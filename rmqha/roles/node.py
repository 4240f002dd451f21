"""What a master and a slave are both made of: the store, its threads, the broker.

A node starts in two halves.  What can go wrong at once (the store's lock, a port in
use) does so in C{startService}, so that twistd, daemonized or not, ends with an exit
code and the reason.  What takes time (recovery) comes after; if that fails the node
logs the reason, stops the reactor and ends the process with an exit code too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IListeningPort, IStreamClientEndpoint
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.admin.events import Facts
from rmqha.broker.access.acl_file import AclFile
from rmqha.broker.broker import Broker, RequestHandler
from rmqha.broker.clients.registry import ClientRegistry
from rmqha.broker.ports import ClientPorts
from rmqha.broker.state import TABLES
from rmqha.broker.tables.current_settings import CHANGEABLE, changes_between, with_changes
from rmqha.config.settings import Settings
from rmqha.errors import NotWritable, RequestRefused, StoreError
from rmqha.event_file import event_path
from rmqha.ha import promotion
from rmqha.ha.master.put_service import Putter
from rmqha.ha.master_epoch import MasterEpochs
from rmqha.ha.slave.reconnect import ha_endpoint
from rmqha.ha.states import NodeState
from rmqha.health import HealthProbe, HealthReason
from rmqha.metrics import node_families
from rmqha.metrics.broker_families import of_broker
from rmqha.metrics.family import Sample
from rmqha.net.connection_shares import ConnectionShares
from rmqha.net.remoting import config_changes
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.remoting.credentials import read_credentials
from rmqha.page.told import GroupRow
from rmqha.periodic import NodePart
from rmqha.roles.host.exit_codes import exit_code
from rmqha.roles.host.service_manager import READY
from rmqha.roles.process import NAMED, Process
from rmqha.roles.serving import Serving
from rmqha.shutdown import Shutdown
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.fsync_thread import fsync_thread
from rmqha.store.lost_tail import LostTail
from rmqha.store.opening import Opening
from rmqha.store.published.readers import KnownReaders
from rmqha.store.service import StoreService
from rmqha.store.store import Store
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.remoting.bodies.status import HaStatus
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer

ALARMING = frozenset({NodeState.READ_ONLY, NodeState.DISK_FULL, NodeState.FENCED, NodeState.FAILED})
"""States the log warns of: each start and clean stop passes through the others."""

UNHEALTHY = frozenset(NodeState) - {NodeState.SERVING}
"""States in which C{/healthz} says 503."""

CLOSED = frozenset({NodeState.RECOVERING, NodeState.STOPPED, NodeState.FAILED})
"""States in which C{/readyz} says so too, whatever the role; a master has others."""

RELOAD = "A reload of the configuration"
"""Who has changed settings, for the log."""


class Replication(NodePart):
    """How a node has the bytes of another's log: a master has not."""

    reopening = False

    def doubt(self, start: int, end: int) -> str:
        """Why bytes C{[start, end)} of the log may not be the master's; empty where they are."""
        return ""

    def bad_record(self, error: StoreError) -> None:
        """Dispatch found a bad record in the log."""

    def failed(self, reason: str) -> None:
        """The store can take nothing any more."""

    def missing(self, lost: LostTail) -> bool:
        """Whether what was lost at the log's end is not here again."""
        return True


class Node(Process):
    """The parts all brokers share.

    @ivar environment: What every store of this node is given.
    @ivar store_service: Opens the store, and closes it; a slave's repair replaces it.
    @ivar clients: The client ports.
    @ivar broker: What they serve, while the store is open.
    @ivar serving: Its slaves.
    @ivar following: Has its log follow a master's.
    @ivar unready: States in which this role does not do what it promises its clients.
    @ivar decided: Keys that others decide about while this role runs.
    @ivar epochs: The master epochs of the log.
    @ivar readers: Those that read the log's files under a name.
    @ivar truncated: Bytes that were cut off the log's end since the start, by all stores.
    """

    _log = Logger()
    unready = CLOSED
    decided: frozenset[str] = frozenset()

    def __init__(self, settings: Settings, reactor: Any, *, repair: bool = False) -> None:
        super().__init__(settings, reactor)
        self.repair = repair
        self.ready: Deferred[None] = Deferred()
        self._fsync, self._stop_fsync = fsync_thread(reactor, "rmqha-fsync")
        self._told = ""
        self.clients = ClientPorts(
            settings.remoting,
            settings.broker.listen_port,
            reactor,
            self.shares,
            self.tls.client_ports,
        )
        self.accounts: AclFile | None = None
        if settings.access.enabled and settings.access.accounts is not None:
            thread = self._in_own_thread("accounts")
            self.accounts = AclFile(path=settings.access.accounts, clock=reactor, in_thread=thread)
        self.credentials = read_credentials(settings.access.credentials)
        self.broker: Broker | None = None
        self._present = ClientRegistry()
        self._tables: CheckedTables | None = None
        self.epochs = MasterEpochs(settings.store.root, self._in_thread)
        self.truncated = 0
        self.following = Replication()
        self.serving = Serving(
            settings=settings,
            reactor=reactor,
            shares=self.shares,
            in_thread=self._in_thread,
            known=self.slave_joined,
            is_master=lambda: self.settings.broker.role.is_master,
            tls=self.tls.ha_port,
        )
        self.environment = self._environment()
        self.store_service = self.new_store_service()
        self.readers = KnownReaders(settings.store, self.environment)

    # --- for a role to say ----------------------------------------------------

    def connection_shares(self, settings: Settings) -> ConnectionShares:
        """What is left beside the files of the store."""
        ha = settings.ha
        return ConnectionShares(
            files=0,
            clients_wanted=settings.remoting.max_connections,
            ha_wanted=ha.max_connections if ha.listen_port else 0,
            stored=self._stored,
        )

    def _stored(self) -> int:
        store = self.store_service.opened
        return 0 if store is None else store.most_open

    def opening(self) -> Opening:
        """How this role opens its store.  A slave's log may always be cut at damage: its master has
        the bytes.
        """
        elected = self.settings.controller.enabled
        return Opening(master=False, repair=True, follows_confirm=elected)

    def listen(self) -> list[IListeningPort]:
        """Open the HA port; slaves are refused there until they are served."""
        return self.serving.listen()

    def admitted(self) -> Deferred[None]:
        """The store is open: fires when it may be served, or fails with why it may not."""
        return succeed(None)

    def prepared(self, store: Store) -> Deferred[None]:
        """The store is open for the first time, and a slave's, whatever it is to become: do what
        comes before this role's work.  Fires when it may be served, fails if it must not be.
        """
        return self._in_thread(promotion.forget_intent, store.settings.root)

    def serve(self, store: Store) -> Deferred[None]:
        """The store is open: begin this role's work.  Fires when clients are let in."""
        raise NotImplementedError

    async def unserve(self) -> None:
        """End this role's work; the store is still open.

        @raise ShutdownFailed: If a step of that failed; the others were taken.
        """

    def acknowledged(self) -> int | None:
        """Up to where as many replicas hold the log as a write waits for, or, behind an elected
        master, up to where the set has it; C{None} if a write waits for none.
        """
        store = self.store_service.opened
        return None if store is None or not self.settings.controller.enabled else store.readable

    def lost_tail(self) -> LostTail | None:
        """What is missing at the log's end, as far as that is known."""
        store = self.store_service.opened
        lost = None if store is None else store.lost
        return lost if lost is not None and self.following.missing(lost) else None

    # --- the service --------------------------------------------------------------

    def begin(self) -> None:
        """Read the accounts, listen for clients, take the store's lock, begin to recover.

        @raise KeyFileInvalid: If the accounts cannot be read.
        """
        if self.accounts is not None:
            self.accounts.start()
        self._ports += self.clients.listen()
        self.store_service.startService()

    def abandon(self) -> None:
        """End the thread that fsyncs."""
        if self.accounts is not None:
            self.accounts.stop()
        self._stop_fsync()

    def startService(self) -> None:
        """Take the lock, listen, begin to recover.

        @raise StoreLocked: If a running node has the store.
        @raise CannotListenError: If a port is in use.
        """
        super().startService()
        opened: Deferred[None] = self.store_service.ready.addCallback(
            lambda store: Deferred.fromCoroutine(self._opened(store))
        )
        opened.addErrback(self._not_opened)

    async def _opened(self, store: Store) -> None:
        self.epochs.load(store.log.confirmed)
        await self.admitted()
        if self.running:
            await self.prepared(store)
            await self.events.keep_in(event_path(store.settings.root))
            await self.read_tables()
        if self.running:
            self.tell_shares()
            self.health_log.start()
            await self.serve(store)
        if self.running and not self.ready.called:
            self.notify(READY)
            self.ready.callback(None)

    def read_tables(self) -> Deferred[None]:
        """Have a thread read the tables of the next broker, while there is none.  Where they are
        wanted, on the reactor, ten thousand topics would be a fifth of a second.
        """

        def read(tables: CheckedTables) -> None:
            self._tables = tables

        root = self.settings.store.root
        return self._in_thread(CheckedTables.read_ahead, root, TABLES).addCallback(read)

    def _not_opened(self, failure: Failure) -> None:
        if not self.running:
            return  # stopped while it was being opened
        if not self.ready.called:
            self.ready.addErrback(lambda _: None)
            self.ready.errback(failure)
        if not failure.check(*NAMED):
            self._log.failure("Start of the node failed", failure)
        self._log.critical("Cannot start: {error}", error=failure.getErrorMessage())
        self.exit_with(exit_code(failure.value))
        self.reactor.stop()

    async def end(self) -> None:
        """Close connections, flush, leave the store as a clean stop does."""
        shutdown = Shutdown("the node", self.reactor)
        if self.accounts is not None:
            await shutdown.step("reading accounts", self.accounts.stop)
        await shutdown.step("serving", self.unserve)
        await shutdown.step("events", self.events.leave)
        await shutdown.step("the store", self.store_service.stopService)
        await shutdown.step("the fsync thread", self._stop_fsync)
        shutdown.finish()

    # --- the store ----------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store that is open, or was open last.

        @raise NotWritable: If it is still being opened.
        """
        store = self.store_service.opened
        if store is None:
            raise NotWritable(self.store_service.state, "the store is not open yet")
        return store

    def _environment(self) -> StoreEnvironment:
        return StoreEnvironment(
            clock=self.reactor,
            in_thread=self._in_thread,
            fsync=self._fsync,
            broker_name=self.settings.broker.name,
            cluster=self.settings.broker.cluster,
            changed=self._changed,
            bad_record=self._bad_record,
            held_from=self.serving.held_from,
            acknowledged=self.acknowledged,
            truncated=self._count_truncated,
        )

    def _bad_record(self, error: StoreError) -> None:
        self.following.bad_record(error)

    def _count_truncated(self, size: int) -> None:
        self.truncated += size

    def new_store_service(self, **changes: Any) -> StoreService:
        """What opens the store.

        @param changes: How otherwise than this role does.
        """
        opening = evolve(self.opening(), **changes)
        return StoreService(self.settings.store, opening, self.environment)

    # --- clients ------------------------------------------------------------------

    def open_broker(self, store: Store, writer: Putter | None) -> Deferred[None]:
        """Serve clients, now that the store is open.

        @param writer: Takes writes; C{None} on a slave.
        @return: Fires when they are let in.
        @raise FileUnreadable: Or C{TableUnreadable} or C{BodyInvalid}, as L{Broker} says.
        """
        self.broker = Broker(
            self.settings,
            store,
            writer,
            self.reactor,
            self._in_thread,
            ha=self.ha_status,
            told=self.told,
            slave_listens=self.slave_listens,
            present=self._present,
            epochs=self.epochs,
            doubt=self.following.doubt,
            tables=self._tables,
            more=self.broker_parts(),
            accounts=self.accounts,
            credentials=self.credentials,
            tls=self.tls.requests,
        )
        self._tables = None
        current = self.broker.current
        current.changed.append(lambda: self._take(current.settings))
        return self.broker.prepare().addCallback(self._let_clients_in, self.broker)

    def _take(self, settings: Settings) -> None:
        changes = changes_between(self.settings, settings)
        if changes:
            self.events.note("configuration", "; ".join(map(str, changes)))
        self.settings = settings
        self.settings_changed()

    def _let_clients_in(self, _: None, broker: Broker) -> None:
        if broker is self.broker:
            self.set_aside(writes=broker.writer is not None)
            broker.start(self.clients)
            self._changed()

    def settings_changed(self) -> None:
        """Some of the settings are others now: let in whom they name, and log what they say."""
        self.log_from(self.settings.log.level)
        self.clients.allow(self.settings.remoting.allowed_peers)
        self.serving.allow(self.settings.ha.allowed_peers)
        self._admin_peers.change(self.settings.admin.port_allowed_peers)

    def adopt(self, settings: Settings) -> None:
        """Take over what can change while a broker runs."""
        for note in settings.notes:
            self._log.warn("{note}", note=note)
        others = [
            one for one in changes_between(self.settings, settings) if one.key not in self.decided
        ]
        if not others:
            self._log.info("{reload} changed nothing", reload=RELOAD)
        texts = {one.key: one.after for one in others if one.key in CHANGEABLE}
        try:
            if self.broker is not None:
                changes = self.broker.current.change(texts)
            else:
                made, changes = with_changes(self.settings, texts)
                self._take(made)
        except RequestRefused as error:
            self._log.error("All settings stay as they are: {error}", error=error.remark)
            return
        config_changes.tell(self._log, RELOAD, changes)
        for one in others:
            if one.key not in CHANGEABLE:
                self._log.warn("Only the next start changes {change}", change=one)

    def shut_broker(self) -> Deferred[None]:
        """Serve clients no more; those that are connected stay so.

        @return: Fires when nothing of the store is used any more.
        """
        self.clients.shut()
        broker, self.broker = self.broker, None
        return succeed(None) if broker is None else broker.stop()

    def broker_parts(self) -> tuple[RequestHandler, ...]:
        """What a broker of this role answers beside."""
        return ()

    def ha_status(self) -> HaStatus:
        """How replication is doing, as request 907 tells it."""
        return self.serving.ha_status(self.store.log.end)

    def drop_slot(self, address: str) -> bool:
        """Keep no files any more for a slave that is away."""
        return self.serving.slots.drop(address)

    def slave_joined(self, host: str) -> None:
        """A slave at C{host} has acknowledged what it was sent."""

    def told(self, answer: RegisterBrokerAnswer) -> None:
        """A name server said where this broker's master is, if it has one."""

    def slave_listens(self, host: str, port: int) -> None:
        """A slave of ours at C{host} has told its HA port, 0 for none."""

    # --- other nodes ----------------------------------------------------------------

    def name_servers(self) -> Sequence[str]:
        """Those it registers at."""
        return [server for server in self.settings.broker.namesrv.split(";") if server]

    def connect(self, *, close_on_timeout: bool = False) -> RemotingClient:
        """A client that signs what it asks, where there are accounts."""
        return RemotingClient(
            self.reactor,
            close_on_timeout=close_on_timeout,
            credentials=self.credentials,
            tls=self.tls.requests,
        )

    def dialled(self, host: str, port: int) -> IStreamClientEndpoint:
        """Another node's HA port."""
        local = self.settings.ha.local_address
        return ha_endpoint(self.reactor, host, port, local_address=local, tls=self.tls.dialling)

    # --- what it can do -------------------------------------------------------------

    @property
    def state(self) -> NodeState:
        """What the node can do: with its store open it does not serve before clients are let in,
        and while a repair closes and opens the store it recovers.
        """
        state = NodeState(self.store_service.state or NodeState.SERVING)
        if state is NodeState.STOPPED and self.running:
            return NodeState.RECOVERING
        if state is not NodeState.SERVING:
            return state
        let_in = self.clients.serving or not self.running
        return NodeState.SERVING if let_in else NodeState.RECOVERING

    @property
    def reason(self) -> str:
        """Why, in words; empty when all is well."""
        return self.store_service.reason

    def _changed(self) -> None:
        state = f"{self.state}: {self.reason}".rstrip(": ")
        if state != self._told:
            self._told = state
            log = self._log.warn if self.state in ALARMING else self._log.info
            log("{role} is {state}", role=self.role, state=state)
        if self.store_service.state == NodeState.FAILED.value:
            self.following.failed(self.store_service.reason)

    # --- how it is --------------------------------------------------------------

    def health(self) -> Iterator[HealthReason]:
        """What is wrong now: the node's own state, a lost tail, and what its parts give."""
        if self.state in UNHEALTHY:
            ready = HealthProbe.READY if self.state in self.unready else HealthProbe(0)
            yield HealthReason(
                self.state.value, self.reason, fails=HealthProbe.HEALTH | ready, told=True
            )
        lost = self.lost_tail()
        if lost is not None:
            yield HealthReason("lost-tail", lost.text)
        yield from super().health()

    def facts(self) -> Facts:
        """A process's, the state, and what the log has lost and got."""
        found = {"state": (self.state.value, self.reason), **super().facts()}
        fenced, store = self.epochs.journal.fenced_by, self.store_service.opened
        found["master epoch"] = str(self.epochs.number), ""
        found["fenced"] = "no" if fenced is None else "yes", str(fenced or "")
        if store is not None:
            retention = store.retention
            found["cuts of published bytes"] = str(len(store.publisher.point.cuts)), ""
            found["damaged ranges"] = str(store.scrubber.status()["faultCount"]), ""
            found["bytes deleted that a replica needed"] = str(retention.lost_bytes), ""
        return found

    def metric_labels(self) -> dict[str, str]:
        """A broker's, by the names that RocketMQ has for them."""
        broker = self.settings.broker
        return {
            "cluster": broker.cluster,
            "node_type": "broker",
            "node_id": broker.name,
            "broker_id": str(broker.id),
        }

    def own_samples(self) -> Iterator[Sample | None]:
        """A process's, and those of the store and the broker."""
        yield from super().own_samples()
        store, broker = self.store_service.opened, self.broker
        if store is not None:
            yield node_families.of_durations(node_families.FSYNC, store.flusher.took)
        if broker is None:
            return
        yield node_families.of_durations(node_families.READ_LATENCY, broker.counts.reads_took)
        if broker.writer is not None:
            yield from node_families.of_writes(broker.writer)
        yield from of_broker(broker)

    def groups_behind(self) -> Iterator[GroupRow | None]:
        """The consumer groups that have something to consume."""
        broker = self.broker
        if broker is None:
            return
        now = broker.store.now_ms()
        for found in broker.lags.each(broker.consumers.broadcasts):
            if found is None or not found[2].messages:
                yield None
                continue
            topic, group, lag = found
            seconds = None if lag.since is None else max(0, now - lag.since) / 1000
            yield GroupRow(group=group, topic=topic, messages=lag.messages, seconds=seconds)

    def status(self) -> dict[str, Any]:
        """What C{/status} says; docs/status.rst, Status, lists the fields."""
        store = self.store_service.opened
        log = None if store is None else store.log
        lost, recovery, broker = self.lost_tail(), self.store_service.recovery, self.broker
        return {
            **self.identity(),
            "state": self.state.value,
            "reason": self.reason,
            "minOffset": log.min_offset if log is not None else None,
            "maxOffset": log.end if log is not None else None,
            "confirmedOffset": log.confirmed if log is not None else None,
            "flushedOffset": log.flushed if log is not None else None,
            "dispatchedOffset": store.dispatcher.position if store is not None else None,
            "syncGuarantee": self.guarantee(),
            **self.epochs.status(),
            "clusterName": self.settings.broker.cluster,
            "brokerName": self.settings.broker.name,
            "brokerId": self.settings.broker.id,
            "store": str(self.settings.store.root),
            "recovery": None if recovery is None else recovery.status(),
            "lostTail": None if lost is None else {"from": lost.start, "to": lost.to},
            "truncatedBytes": self.truncated,
            "retention": store.retention.status() if store is not None else None,
            **({"putMillis": None} if broker is None else broker.puts_status()),
            "servedFaults": broker.served.faults if broker is not None else None,
            "derivedFaults": store.dispatcher.fault_count if store is not None else None,
            "published": store.publisher.status() if store is not None else None,
            "faultsFromMaster": store.faults_from_master() if store is not None else None,
            "scrub": store.scrubber.status() if store is not None else None,
            "readers": self.readers.rows,
            "remoting": self.clients.status() | ({} if broker is None else broker.status()),
            **super().status(),
        }

    def looked(self) -> Deferred[None]:
        """Look at what L{status} tells and only a thread may read: the readers of the files."""
        store = self.store_service.opened
        return succeed(None) if store is None else self.readers.look(store.publisher.point.confirm)

    def guarantee(self) -> str:
        """What an acknowledged write means here, in words."""
        return "none: a slave takes no writes"
