"""The slave: follows a master, never lets its log differ without saying so, and serves
what it holds to further slaves (docs/architecture.rst, Cascades).

A divergence policy cuts a log that is not its master's, or copies the master's anew.  Whether that
may be done is found out while the store is open; the files are changed under its lock, while it is
opened once more.

Source: docs/architecture.rst, The divergence guard.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

from attrs import define, evolve
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IListeningPort, IStreamClientEndpoint
from twisted.internet.task import deferLater

from rmqha.admin.events import Facts
from rmqha.config.ha_settings import DivergencePolicy
from rmqha.config.settings import Settings
from rmqha.config.store_settings import FlushDisk, StoreSettings
from rmqha.errors import FileUnreadable, Refused, RmqhaError, StoreError
from rmqha.ha import promotion
from rmqha.ha.cold_comparison import ColdComparison
from rmqha.ha.fetch_range import MasterReplica
from rmqha.ha.live_repair import LiveRepair
from rmqha.ha.slave.follow_state import FollowState
from rmqha.ha.slave.follower import Follower
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.ha.slave.reconnect import ha_endpoint
from rmqha.ha.slave.repair import Divergence, plan_cut
from rmqha.ha.slave.reportable import accepted, flushed
from rmqha.ha.states import NodeState, Standing, SyncState
from rmqha.periodic import NodePart
from rmqha.roles.node import Node
from rmqha.roles.serving import Serving
from rmqha.roles.upstream.elected import ElectedUpstream
from rmqha.roles.upstream.upstream import Upstream
from rmqha.shutdown import Shutdown
from rmqha.store import lost_tail
from rmqha.store.files.allocate import InThread
from rmqha.store.files.mapped import LogFolder, none_left
from rmqha.store.log import bootstrap_marker, copied_damage_file
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.truncate import aside_of, intend, set_log_aside
from rmqha.store.log.two_versions import keep_versions
from rmqha.store.lost_tail import LostTail, begin_anew
from rmqha.store.opening import Opening
from rmqha.store.store import Store
from rmqha.wire.remoting.bodies.status import HaClientInfo, HaStatus
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer

Reopen = Callable[[Callable[[StoreSettings], None], str], Deferred[str]]
"""Closes the store, does something to its files, and opens it again; fires with the text."""


class Permit(Protocol):
    """Whether the log may be cut as the present master wants it."""

    def __call__(self, policy: DivergencePolicy, *, at: int, end: int) -> Coroutine[Any, Any, None]:
        """@param at: The first byte that would go.
        @param end: Where the log ends.
        @raise RmqhaError: If it may not be.
        """


@define(eq=False, kw_only=True)
class PolicyRepair:
    """Carries policies out on the store of a slave.

    @ivar log: The log that is open.
    @ivar permit: Asked before bytes go.
    @ivar unseen: Whether nobody can have seen anything of the log, so that all of it may go.
    """

    settings: Settings
    log: Callable[[], CommitLog]
    permit: Permit
    unseen: Callable[[], bool]
    reopen: Reopen
    in_thread: InThread
    now_ms: Callable[[], int]

    def repair(self, policy: DivergencePolicy, divergence: Divergence | None) -> Deferred[str]:
        """Carry a policy out: close the store, do it under the lock while opening anew.

        @param divergence: Where the logs part, as far as that is known.
        @return: Fires with what was done; fails with why nothing was.
        """
        if policy is DivergencePolicy.TRUNCATE:
            if divergence is None:
                return fail(Refused("truncate", "it is not known where the logs part"))
            return self.in_thread(
                plan_cut,
                self.log(),
                divergence,
                self.settings.ha.max_truncate,
                to_nothing=self.unseen(),
            ).addCallback(self._truncate)
        if bootstrap_marker.marker(self.settings.store.root).exists():
            return self.reopen(self._start_over, "starting the unfinished copy over")
        aside = aside_of(self.settings.store.commitlog)
        if aside.exists():
            return fail(Refused("rebootstrap", f"{aside} exists: only one old log is kept aside"))
        permitted = Deferred.fromCoroutine(self.permit(policy, at=0, end=self.log().end))
        text = f"the old log is now {aside}; copying the master's from its start"
        return permitted.addCallback(lambda _: self.reopen(self._set_aside, text))

    def _truncate(self, at: int) -> Deferred[str]:
        end = self.log().end

        def cut(settings: StoreSettings) -> None:
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            try:
                intend(settings.root, folder, at, end)
            finally:
                folder.close()

        permitted = Deferred.fromCoroutine(self.permit(DivergencePolicy.TRUNCATE, at=at, end=end))
        text = f"cut the log from byte {end} back to {at}; the tail is in quarantine"
        return permitted.addCallback(lambda _: self.reopen(cut, text))

    def _set_aside(self, settings: StoreSettings) -> None:
        begin_anew(settings.root, self.now_ms)
        # In this order: a marker beside the old log would let it be deleted.
        set_log_aside(settings.commitlog)
        bootstrap_marker.begin(settings.root, str(self.settings.ha.master))

    def _start_over(self, settings: StoreSettings) -> None:
        begin_anew(settings.root, self.now_ms)
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        while folder.files:
            folder.files.pop().remove()


LET_IN_RETRY = 5.0
"""Seconds between two tries to write down that serving begins."""

TABLES_RETRY = 1.0
"""Seconds between two tries to read the tables after a repair, where no descriptor is left."""


class SlaveNode(Node):
    """A slave's service tree.

    @ivar follower: Replication, once C{ready} has fired.
    @ivar upstream: Where the master is.
    @ivar serving: The slaves behind this one.
    @ivar repairs: Mends the log of the store that is open.
    @ivar comparison: Compares it with the master's while nothing else is to do.
    @ivar policy_repair: What is done to a log that is not the master's.
    """

    role = "slave"
    upstream: Upstream | ElectedUpstream
    serving: Serving
    follower: Follower | None = None
    repairs: LiveRepair | None = None
    comparison: ColdComparison | None = None
    _reopening = False

    def __init__(self, settings: Settings, reactor: Any, *, repair: bool = False) -> None:
        super().__init__(settings, reactor, repair=repair)
        self.serving = Serving(
            settings=settings,
            reactor=reactor,
            shares=self.shares,
            in_thread=self._in_thread,
            standing=self._standing,
            tls=self.tls.ha_port,
        )
        self.upstream = self._upstream()
        self.policy_repair = PolicyRepair(
            settings=settings,
            log=lambda: self.store.log,
            permit=self.upstream.permit,
            unseen=self.upstream.unseen,
            reopen=self._reopen,
            in_thread=self._in_thread,
            now_ms=self.environment.now_ms,
        )

    def _upstream(self) -> Upstream | ElectedUpstream:
        if self.settings.controller.enabled:
            return self._elected_upstream()
        return Upstream(
            settings=self.settings,
            reactor=self.reactor,
            epochs=self.epochs,
            in_thread=self._in_thread,
            connect=self.connect,
            dialled=self._dialled,
            moved=self._ask_master,
        )

    def _elected_upstream(self, **more: Any) -> ElectedUpstream:
        return ElectedUpstream(
            settings=self.settings,
            reactor=self.reactor,
            epochs=self.epochs,
            store=lambda: self.store,
            dialled=self._dialled,
            moved=self._ask_master,
            now_ms=self.environment.now_ms,
            connect=self.connect,
            etcd_tls=self.tls.etcd,
            **more,
        )

    def opening(self) -> Opening:
        """A slave's log may always be cut at damage: its master has the bytes."""
        elected = self.settings.controller.enabled
        return Opening(master=False, repair=True, follows_confirm=elected)

    def listen(self) -> list[IListeningPort]:
        """Listen for slaves behind this one."""
        return self.serving.listen()

    def prepared(self, store: Store) -> Deferred[None]:
        """It is a slave's store, whatever it was to become."""
        return self._in_thread(promotion.forget_intent, store.settings.root)

    def serve(self, store: Store) -> Deferred[None]:
        """Begin to follow, or go on after a repair."""
        self._let_in(store)
        return self.follow(store)

    def follow(self, store: Store) -> Deferred[None]:
        """Serve readers, and have the log follow a master's.

        @return: Fires when clients are let in.
        """
        let_in = self.open_broker(store, None)
        self._ask_master()
        self.comparison = ColdComparison(
            store=store,
            master=self._compared_with,
            rate=self.settings.ha.compare_rate,
            clock=self.reactor,
            in_thread=self._in_thread,
        )
        self.comparison.start()
        self.repairs = LiveRepair(
            store=store,
            master=self._master,
            differs=self.comparison.differ,
            clock=self.reactor,
            in_thread=self._in_thread,
        )
        self.repairs.start()
        if self.follower is None:
            self._follow()
        return let_in

    def _follow(self) -> None:
        upstream = self.upstream
        upstream.recall()
        self.follower = upstream.follower = Follower(
            sync=FollowState(
                port=MasterClientPort(upstream.bounds(), self.reactor, upstream.address),
                current_log=lambda: self.store.log,
                settings=evolve(self.settings.ha, policy=upstream.policy),
                bootstrapping=self.mark_bootstrap,
                is_bootstrapping=self.marker.exists(),
                reportable=upstream.reportable(
                    flushed if self.settings.store.flush_disk is FlushDisk.SYNC_FLUSH else accepted
                ),
                client=upstream.client_port,
                followed=upstream.followed,
                dialect=upstream.dialect,
                listener=upstream.listener,
                copied=self._keep_copied,
                judge=self._judge,
            ),
            endpoint=upstream.endpoint(),
            repair=self.policy_repair.repair,
            nowhere=upstream.nowhere,
            connected=self._ask_master,
        )
        self.follower.startService()
        upstream.begin()

    def _master(self) -> MasterReplica | None:
        """The master as one that has the bytes of our log: while it was compared, and follows."""
        follower = self.follower
        if follower is None or follower.endpoint is None or self.settings.controller.enabled:
            return None
        if follower.sync.state not in (SyncState.IN_SYNC, SyncState.CATCHING_UP):
            return None
        return MasterReplica(
            endpoint=follower.endpoint,
            port=evolve(follower.sync.port),
            file_size=self.settings.store.file_size,
        )

    def _compared_with(self) -> MasterReplica | None:
        """The master, while the log is known to be no more and no less than its."""
        master = self._master()
        if master is None or self.follower is None:
            return None
        in_sync = self.follower.sync.state is SyncState.IN_SYNC
        return master if in_sync else None

    def told(self, answer: RegisterBrokerAnswer) -> None:
        """A name server said where the master is."""
        self.upstream.told(answer)

    def _ask_master(self) -> None:
        """Have the master's tables asked for soon, where its clients connect: a name server knows
        best, for it is the master that said so.
        """
        broker, address = self.broker, self.upstream.client_port
        if broker is not None and address != broker.registration.address:
            broker.metadata.follow(address, self.upstream.epoch)
            broker.metadata.hurry()

    def _dialled(self, host: str, port: int) -> IStreamClientEndpoint:
        local = self.settings.ha.local_address
        return ha_endpoint(self.reactor, host, port, local_address=local, tls=self.tls.dialling)

    async def unserve(self) -> None:
        """Disconnect on both sides, and let a repair that is under way come to its end."""
        # Of a follower that was stopped nobody can say any more whether it was in sync.
        nothing_lost = self.store_service.opened is not None and self.lost_tail() is None
        shutdown = Shutdown("serving", self.reactor)
        await shutdown.step("the choice of a master", self.upstream.stop)
        await self._end_mending(shutdown)
        steps = [
            shutdown.step("the broker", self.shut_broker),
            # Writes that wait are answered by this, before their connections are closed.
            shutdown.step("the lead", self.leave),
            shutdown.step("client connections", self.clients.close),
        ]
        if self.follower is not None:
            steps.append(shutdown.step("replication from the master", self.follower.stopService))
        if self._reopening:
            # It would be opened for nothing.
            steps.append(shutdown.step("the store", self.store_service.stopService))
        for step in steps:
            await step
        await shutdown.step("the connection to the master's client port", self.upstream.close)
        await shutdown.step("replication to slaves", self.serving.end)
        if nothing_lost:
            root = self.settings.store.root
            await shutdown.step("the lost tail", self._in_thread, lost_tail.forget, root)
        shutdown.finish()

    async def unfollow(self, left: Callable[[], None]) -> None:
        """Nobody writes our log, and nobody reads of a master's.

        @param left: Called between both.
        """
        changing = Shutdown("following", self.reactor)
        if self.follower is not None:
            # It waits for a repair, which opens the store and begins to follow again.
            await changing.step("replication from the master", self.follower.stopService)
        await self._end_mending(changing)
        self.follower = self.repairs = self.comparison = None
        left()
        await changing.step("the broker", self.shut_broker)

    async def _end_mending(self, shutdown: Shutdown) -> None:
        if self.repairs is not None:
            await shutdown.step("repairing the log", self.repairs.stop)
        if self.comparison is not None:
            await shutdown.step("comparing the log", self.comparison.stop)

    def leave(self) -> Deferred[None]:
        """End the lead of a node that may have it."""
        return succeed(None)

    def acknowledged(self) -> int | None:
        """Behind an elected master, up to where the set has the log."""
        store = self.store_service.opened
        return None if store is None or not self.settings.controller.enabled else store.readable

    def settings_changed(self) -> None:
        """Some of the settings are others now; the HA port has a list too."""
        super().settings_changed()
        self.serving.allow(self.settings.ha.allowed_peers)

    def held_from(self) -> int | None:
        """What the slaves behind this one still need."""
        return self.serving.held_from()

    def doubt(self, start: int, end: int) -> str:
        """While the logs differ nothing is served from the first difference on."""
        return "" if self.follower is None else self.follower.sync.doubt(end)

    def drop_slot(self, address: str) -> bool:
        """Keep no files any more for a slave that is away."""
        return self.serving.slots.drop(address)

    def bad_record(self, error: StoreError) -> None:
        """The master sent what is no record, or the disk changed it: the connection ends."""
        if self.follower is not None:
            self.follower.bad_record(error)

    # --- slaves behind this one -----------------------------------------------------

    def _let_in(self, store: Store) -> None:
        """Serve a log, once it is no unfinished copy: its epoch begins there."""
        if not self.settings.ha.listen_port or self.serving.factory is not None:
            return
        service = self.store_service
        if not (self.running and service.running and store is service.opened):
            return
        if store.log.confirmed == store.log.min_offset or self.marker.exists():
            return
        try:
            self.serving.begin(store)
        except (StoreError, OSError) as error:
            self._log.error(
                "Not serving downstream slaves yet, retrying in {s} s: {error}",
                s=LET_IN_RETRY,
                error=error,
            )
            self.reactor.callLater(LET_IN_RETRY, self._let_in, store)

    def _standing(self) -> Standing:
        return Standing.PART if self.follower is None else self.follower.sync.state.standing

    # --- bootstrap ----------------------------------------------------------------

    @property
    def marker(self) -> Path:
        return bootstrap_marker.marker(self.settings.store.root)

    def mark_bootstrap(self, on: bool) -> None:
        root = self.settings.store.root
        if on:
            bootstrap_marker.begin(root, str(self.settings.ha.master))
        else:
            bootstrap_marker.end(root)
            self._let_in(self.store)

    def _keep_copied(self, log: CommitLog) -> None:
        """Write down that a record is damaged as it is on the master.  Without room it is found
        again at the next start, and fetched again.
        """
        self.environment.in_thread(
            copied_damage_file.save, self.settings.store.root, log.copied
        ).addErrback(
            lambda failure: self._log.warn(
                "Damaged records of the master are not written down: {error}",
                error=failure.getErrorMessage(),
            )
        )

    def _judge(self, log: CommitLog, at: int, theirs: bytes) -> Deferred[str]:
        """Hold the master's version of a place against ours, and keep both."""
        root = self.settings.store.root
        judged = self._in_thread(keep_versions, root, log, at, theirs)
        return judged.addCallback(lambda found: f"{found[0].told()}; {found[1]}")

    # --- repairs ------------------------------------------------------------------

    def _reopen(self, before: Callable[[StoreSettings], None], text: str) -> Deferred[str]:
        """Close the store, do something to its files, and open it again, done or not.  The
        slaves behind us are gone before.

        @param text: What to say when it is done.
        """
        return Deferred.fromCoroutine(self._close_and_open(before, text))

    async def _close_and_open(self, before: Callable[[StoreSettings], None], text: str) -> str:
        readers = Shutdown("those that read the log, for a repair")
        wrong: list[Exception] = []

        def careful(settings: StoreSettings) -> None:
            try:
                readers.finish()
                before(settings)
            except (RmqhaError, OSError) as error:
                wrong.append(error)

        self._refuse_when_stopping()
        closing = Shutdown("the slave, for a repair")
        await self._end_mending(closing)
        await closing.step("the broker", self.shut_broker)
        await readers.step("client connections", self.clients.release)
        await readers.step("replication to slaves", self.serving.end, gently=False)
        await closing.step("the store", self.store_service.stopService)
        self._refuse_when_stopping()
        self._reopening = True
        try:
            service = self._new_store_service(evolve(self.opening(), before=careful, patient=True))
            self.store_service = service
            service.startService()
            store = await service.ready
            self.epochs.become(self.epochs.journal.cut(store.log.confirmed))
            await self._read_tables_again()
            # What a stop has ended already must not begin again.
            self._refuse_when_stopping()
            await self.serve(store)
        finally:
            self._reopening = False
        if wrong:
            raise wrong[0]
        self.events.note("repair", text)
        return text

    async def _read_tables_again(self) -> None:
        """Read the tables, as soon as there are file descriptors for that: others may have taken
        them since this process has started.
        """
        while True:
            try:
                return await self.read_tables()
            except FileUnreadable as error:
                if not none_left(error):
                    raise
                self._log.warn(
                    "Cannot read the tables again, retrying in {s} s: {error}",
                    s=TABLES_RETRY,
                    error=error,
                )
            await deferLater(self.reactor, TABLES_RETRY, lambda: None)
            self._refuse_when_stopping()

    def _refuse_when_stopping(self) -> None:
        if not self.running:
            raise Refused("repair", "the node is stopping")

    # --- how it is --------------------------------------------------------------

    @property
    def state(self) -> NodeState:
        """What the node can do: while a repair closes and opens the store it recovers."""
        state = super().state
        return NodeState.RECOVERING if state is NodeState.STOPPED and self.running else state

    def _changed(self) -> None:
        super()._changed()
        service = self.store_service
        if service.state == NodeState.FAILED.value and self.follower is not None:
            self.follower.sync.fail(service.reason)

    def parts(self) -> Iterator[NodePart | None]:
        """A node's, the HA port, and what makes the log the master's."""
        yield from super().parts()
        sync = None if self.follower is None else self.follower.sync
        yield from (self.serving, sync, self.upstream, self.repairs, self.comparison)

    def facts(self) -> Facts:
        """A node's, how it stands to its master, and what it was given back."""
        found = dict(super().facts())
        if self.follower is not None:
            sync = self.follower.sync
            found["replication"] = sync.state.value, sync.reason
        if self.repairs is not None:
            found["ranges repaired from the master"] = str(self.repairs.repaired), ""
        return {**found, **self.serving.facts()}

    def status(self) -> dict[str, Any]:
        """A node's status, the replicas, and the upstream."""
        status = super().status() | self.serving.status()
        store = self.store_service.opened if self.store_service.running else None
        stored = store.last_record_stored() if store is not None else 0
        status["upstream"] = self.upstream.status(stored)
        status["repair"] = None if self.repairs is None else self.repairs.status()
        comparison = self.comparison
        status["comparison"] = None if comparison is None else comparison.status()
        status["metadata"] = None if self.broker is None else self.broker.metadata.status()
        status["promotion"] = None if self.promotion is None else self.promotion.status()
        return status

    def lost_tail(self) -> LostTail | None:
        """What is missing, until it was fetched again, or the master was found to have no more."""
        lost, follower = super().lost_tail(), self.follower
        if lost is None or self.store.log.confirmed >= lost.to:
            return None
        in_sync = follower is not None and follower.sync.state is SyncState.IN_SYNC
        return None if in_sync else lost

    def ha_status(self) -> HaStatus:
        """The master, as far as it is known here."""
        log, follower = self.store.log, self.follower
        connection = None if follower is None else follower.sync.connection
        read, written = (0.0, 0.0) if connection is None else connection.last()
        return HaStatus(
            master=False,
            ha_client_runtime_info=HaClientInfo(
                master_addr=None if follower is None else follower.sync.port.peer,
                transferred_byte_in_second=0 if connection is None else connection.speed.last(),
                max_offset=log.end,
                last_read_timestamp=self._milliseconds(read),
                last_write_timestamp=self._milliseconds(written),
            ),
        )

    def _milliseconds(self, moment: float) -> int:
        """A moment of the reactor's clock in milliseconds since 1970; 0 for none."""
        ago = self.reactor.seconds() - moment
        return self.environment.now_ms() - int(ago * 1000) if moment else 0
