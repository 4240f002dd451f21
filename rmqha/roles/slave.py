"""The slave: follows a master, never lets its log differ without saying so, and serves
what it holds to further slaves (docs/architecture.rst, Cascades).

A divergence policy cuts a log that is not its master's, or copies the master's anew.  Whether that
may be done is found out while the store is open; the files are changed under its lock, while it is
opened once more.

Source: docs/architecture.rst, The divergence guard.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rmqha.admin.events import Facts
from rmqha.config.ha_settings import DivergencePolicy
from rmqha.config.settings import Settings
from rmqha.config.store_settings import FlushDisk, StoreSettings
from rmqha.errors import FileUnreadable, Refused, RmqhaError, StoreError
from rmqha.ha.cold_comparison import ColdComparison
from rmqha.ha.fetch_range import MasterReplica
from rmqha.ha.live_repair import LiveRepair
from rmqha.ha.slave.follow_state import FollowState
from rmqha.ha.slave.follower import Follower
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.ha.slave.repair import Divergence, plan_cut
from rmqha.ha.slave.reportable import accepted_end, flushed_end
from rmqha.ha.states import Standing, SyncState
from rmqha.roles.elected_upstream import ElectedUpstream
from rmqha.roles.node import Node, Replication
from rmqha.roles.upstream import NamedUpstream, Upstream
from rmqha.shutdown import Shutdown
from rmqha.store import lost_tail
from rmqha.store.files.mapped import LogFolder, none_left
from rmqha.store.log import bootstrap_marker, copied_damage_file
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.truncate import aside_of, intend, set_log_aside
from rmqha.store.log.two_versions import keep_versions
from rmqha.store.lost_tail import LostTail, begin_anew
from rmqha.store.store import Store
from rmqha.wire.remoting.bodies.status import HaClientInfo, HaStatus
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer

LET_IN_RETRY = 5.0
"""Seconds between two tries to write down that serving begins."""

TABLES_RETRY = 1.0
"""Seconds between two tries to read the tables after a repair, where no descriptor is left."""


@define(eq=False, kw_only=True)
class Following(Replication):
    """What a slave does, and a member of a set while it does not lead.

    @ivar node: Whose log follows.
    @ivar upstream: Where the master is.
    @ivar follower: Reads of it, once that has begun.
    @ivar repairs: Mends the log of the store that is open.
    @ivar comparison: Compares it with the master's while nothing else is to do.
    @ivar reopening: Whether a repair has the store closed.
    """

    node: Node
    upstream: Upstream
    follower: Follower | None = field(default=None, init=False)
    repairs: LiveRepair | None = field(default=None, init=False)
    comparison: ColdComparison | None = field(default=None, init=False)
    reopening: bool = field(default=False, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.upstream.moved = self._ask_master
        self.node.serving.standing = self._standing

    def begin(self, store: Store) -> Deferred[None]:
        """Serve readers, and have the log follow a master's.

        @return: Fires when clients are let in.
        """
        node = self.node
        self._let_in(store)
        let_in = node.open_broker(store, None)
        self._ask_master()
        clock, in_thread = node.reactor, node.environment.in_thread
        self.comparison = ColdComparison(
            store=store,
            # While the log is known to be no more and no less than its.
            master=lambda: self._master() if self._in_sync() else None,
            rate=node.settings.ha.compare_rate,
            clock=clock,
            in_thread=in_thread,
        )
        self.comparison.start()
        self.repairs = LiveRepair(
            store=store,
            master=self._master,
            differs=self.comparison.differ,
            clock=clock,
            in_thread=in_thread,
        )
        self.repairs.start()
        if self.follower is None:
            self._follow()
        return let_in

    def _follow(self) -> None:
        node, upstream = self.node, self.upstream
        synchronous = node.settings.store.flush_disk is FlushDisk.SYNC_FLUSH
        upstream.recall()
        self.follower = upstream.follower = Follower(
            sync=FollowState(
                port=MasterClientPort(
                    upstream.bounds(),
                    node.reactor,
                    upstream.address,
                    upstream.endpoint(),
                    upstream.client_port,
                ),
                current_log=lambda: node.store.log,
                settings=evolve(node.settings.ha, policy=upstream.policy),
                bootstrapping=self.mark_bootstrap,
                is_bootstrapping=self.marker.exists(),
                reportable=upstream.reportable(flushed_end if synchronous else accepted_end),
                followed=upstream.followed,
                dialect=upstream.dialect,
                copied=self._keep_copied,
                judge=self._judge,
            ),
            repair=lambda *asked: Deferred.fromCoroutine(self._repair(*asked)),
            nowhere=upstream.nowhere,
            connected=self._ask_master,
        )
        self.follower.startService()
        upstream.begin()

    def _master(self) -> MasterReplica | None:
        """The master as one that has the bytes of our log: while it was compared, and follows."""
        follower, settings = self.follower, self.node.settings
        if follower is None or settings.controller.enabled:
            return None
        if follower.sync.state not in (SyncState.IN_SYNC, SyncState.CATCHING_UP):
            return None
        return MasterReplica(port=evolve(follower.sync.port), file_size=settings.store.file_size)

    def _in_sync(self) -> bool:
        return self.follower is not None and self.follower.sync.state is SyncState.IN_SYNC

    def _ask_master(self) -> None:
        """Have the master's tables asked for soon, where its clients connect: a name server knows
        best, for it is the master that said so.
        """
        broker, address = self.node.broker, self.upstream.client_port
        if broker is not None and address != broker.registration.address:
            broker.metadata.follow(address, self.upstream.epoch)
            broker.metadata.hurry()

    async def end(self, leave: Callable[[], object] = lambda: None) -> None:
        """Disconnect on both sides, and let a repair that is under way come to its end.

        @param leave: Ends the lead of a node that may have it.
        """
        node = self.node
        # Of a follower that was stopped nobody can say any more whether it was in sync.
        nothing_lost = node.store_service.opened is not None and node.lost_tail() is None
        shutdown = Shutdown("serving", node.reactor)
        await shutdown.step("the choice of a master", self.upstream.stop)
        await self._end_mending(shutdown)
        steps = [
            shutdown.step("the broker", node.shut_broker),
            # Writes that wait are answered by this, before their connections are closed.
            shutdown.step("the lead", leave),
            shutdown.step("client connections", node.clients.close),
        ]
        if self.follower is not None:
            steps.append(shutdown.step("replication from the master", self.follower.stopService))
        if self.reopening:
            # It would be opened for nothing.
            steps.append(shutdown.step("the store", node.store_service.stopService))
        for step in steps:
            await step
        await shutdown.step("the connection to the master's client port", self.upstream.close)
        await shutdown.step("replication to slaves", node.serving.end)
        if nothing_lost:
            root = node.settings.store.root
            forget = node.environment.in_thread
            await shutdown.step("the lost tail", forget, lost_tail.forget, root)
        shutdown.finish()

    async def unfollow(self, left: Callable[[], None]) -> None:
        """Nobody writes our log, and nobody reads of a master's.

        @param left: Called between both.
        """
        changing = Shutdown("following", self.node.reactor)
        if self.follower is not None:
            # It waits for a repair, which opens the store and begins to follow again.
            await changing.step("replication from the master", self.follower.stopService)
        await self._end_mending(changing)
        self.follower = self.repairs = self.comparison = None
        left()
        await changing.step("the broker", self.node.shut_broker)

    async def _end_mending(self, shutdown: Shutdown) -> None:
        if self.repairs is not None:
            await shutdown.step("repairing the log", self.repairs.stop)
        if self.comparison is not None:
            await shutdown.step("comparing the log", self.comparison.stop)

    # --- for the node -------------------------------------------------------------------

    def doubt(self, start: int, end: int) -> str:
        """While the logs differ nothing is served from the first difference on."""
        return "" if self.follower is None else self.follower.sync.doubt(end)

    def bad_record(self, error: StoreError) -> None:
        """The master sent what is no record, or the disk changed it: the connection ends."""
        if self.follower is not None:
            self.follower.bad_record(error)

    def failed(self, reason: str) -> None:
        """Nothing can be written any more."""
        if self.follower is not None:
            self.follower.sync.fail(reason)

    def missing(self, lost: LostTail) -> bool:
        """Until it was fetched again, or the master was found to have no more."""
        return self.node.store.log.confirmed < lost.to and not self._in_sync()

    def _standing(self) -> Standing:
        return Standing.PART if self.follower is None else self.follower.sync.state.standing

    # --- slaves behind this one -----------------------------------------------------

    def _let_in(self, store: Store) -> None:
        """Serve a log, once it is no unfinished copy: its epoch begins there.  Of a set only who
        leads feeds others.
        """
        node = self.node
        settings, service = node.settings, node.store_service
        if not settings.ha.listen_port or settings.controller.member:
            return
        if not (node.running and service.running and store is service.opened):
            return
        unfinished = store.log.confirmed == store.log.min_offset or self.marker.exists()
        if unfinished or node.serving.factory is not None:
            return
        try:
            node.serving.begin(store)
        except (StoreError, OSError) as error:
            self._log.error(
                "Not serving downstream slaves yet, retrying in {s} s: {error}",
                s=LET_IN_RETRY,
                error=error,
            )
            node.reactor.callLater(LET_IN_RETRY, self._let_in, store)

    # --- bootstrap ----------------------------------------------------------------

    @property
    def marker(self) -> Path:
        return bootstrap_marker.marker(self.node.settings.store.root)

    def mark_bootstrap(self, on: bool) -> None:
        settings = self.node.settings
        if on:
            bootstrap_marker.begin(settings.store.root, str(settings.ha.master))
        else:
            bootstrap_marker.end(settings.store.root)
            self._let_in(self.node.store)

    def _keep_copied(self, log: CommitLog) -> None:
        """Write down that a record is damaged as it is on the master.  Without room it is found
        again at the next start, and fetched again.
        """
        node = self.node
        node.environment.in_thread(
            copied_damage_file.save, node.settings.store.root, log.copied
        ).addErrback(
            lambda failure: self._log.warn(
                "Damaged records of the master are not written down: {error}",
                error=failure.getErrorMessage(),
            )
        )

    def _judge(self, log: CommitLog, at: int, theirs: bytes) -> Deferred[str]:
        """Hold the master's version of a place against ours, and keep both."""
        node = self.node
        judged = node.environment.in_thread(
            keep_versions, node.settings.store.root, log, at, theirs
        )
        return judged.addCallback(lambda found: f"{found[0].sentence()}; {found[1]}")

    # --- repairs ------------------------------------------------------------------

    async def _repair(self, policy: DivergencePolicy, divergence: Divergence | None) -> str:
        """Carry a policy out: close the store, do it under the lock while opening anew.

        @param divergence: Where the logs part, as far as that is known.
        @return: What was done; it fails with why nothing was.
        """
        node = self.node
        settings = node.settings.store
        if policy is DivergencePolicy.TRUNCATE:
            if divergence is None:
                raise Refused("truncate", "it is not known where the logs part")
            at = await node.environment.in_thread(
                plan_cut,
                node.store.log,
                divergence,
                node.settings.ha.max_truncate,
                to_nothing=self.upstream.unseen(),
            )
            return await self._truncate(at)
        if self.marker.exists():
            return await self._reopen(self._start_over, "starting the unfinished copy over")
        aside = aside_of(settings.commitlog)
        if aside.exists():
            raise Refused("rebootstrap", f"{aside} exists: only one old log is kept aside")
        await self.upstream.permit(policy, at=0, end=node.store.log.end)
        text = f"the old log is now {aside}; copying the master's from its start"
        return await self._reopen(self._set_aside, text)

    async def _truncate(self, at: int) -> str:
        end = self.node.store.log.end

        def cut(settings: StoreSettings) -> None:
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            try:
                intend(settings.root, folder, at, end)
            finally:
                folder.close()

        await self.upstream.permit(DivergencePolicy.TRUNCATE, at=at, end=end)
        text = f"cut the log from byte {end} back to {at}; the tail is in quarantine"
        return await self._reopen(cut, text)

    def _set_aside(self, settings: StoreSettings) -> None:
        begin_anew(settings.root, self.node.environment.now_ms)
        # In this order: a marker beside the old log would let it be deleted.
        set_log_aside(settings.commitlog)
        bootstrap_marker.begin(settings.root, str(self.node.settings.ha.master))

    def _start_over(self, settings: StoreSettings) -> None:
        begin_anew(settings.root, self.node.environment.now_ms)
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        while folder.files:
            folder.files.pop().remove()

    async def _reopen(self, before: Callable[[StoreSettings], None], text: str) -> str:
        """Close the store, do something to its files, and open it again, done or not.  The
        slaves behind us are gone before.

        @param text: What to say when it is done.
        """
        node = self.node
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
        await closing.step("the broker", node.shut_broker)
        await readers.step("client connections", node.clients.release)
        await readers.step("replication to slaves", node.serving.end, gently=False)
        await closing.step("the store", node.store_service.stopService)
        self._refuse_when_stopping()
        self.reopening = True
        try:
            service = node.new_store_service(before=careful, patient=True)
            node.store_service = service
            service.startService()
            store = await service.ready
            node.epochs.become(node.epochs.journal.cut(store.log.confirmed))
            await self._read_tables_again()
            # What a stop has ended already must not begin again.
            self._refuse_when_stopping()
            await node.serve(store)
        finally:
            self.reopening = False
        if wrong:
            raise wrong[0]
        node.events.note("repair", text)
        return text

    async def _read_tables_again(self) -> None:
        """Read the tables, as soon as there are file descriptors for that: others may have taken
        them since this process has started.
        """
        while True:
            try:
                return await self.node.read_tables()
            except FileUnreadable as error:
                if not none_left(error):
                    raise
                self._log.warn(
                    "Cannot read the tables again, retrying in {s} s: {error}",
                    s=TABLES_RETRY,
                    error=error,
                )
            await deferLater(self.node.reactor, TABLES_RETRY, lambda: None)
            self._refuse_when_stopping()

    def _refuse_when_stopping(self) -> None:
        if not self.node.running:
            raise Refused("repair", "the node is stopping")

    # --- how it is --------------------------------------------------------------

    def facts(self) -> Facts:
        """How the log stands to the master's, and what it was given back."""
        found = {}
        if self.follower is not None:
            sync = self.follower.sync
            found["replication"] = sync.state.value, sync.reason
        if self.repairs is not None:
            found["ranges repaired from the master"] = str(self.repairs.repaired), ""
        return found

    def fields(self) -> dict[str, Any]:
        """The upstream, and what is taken over of it."""
        node, repairs, comparison = self.node, self.repairs, self.comparison
        store = node.store_service.opened if node.store_service.running else None
        stored = store.last_record_stored() if store is not None else 0
        return {
            "upstream": self.upstream.status(stored),
            "repair": None if repairs is None else repairs.status(),
            "comparison": None if comparison is None else comparison.status(),
            "metadata": None if node.broker is None else node.broker.metadata.status(),
            "promotion": None if node.promotion is None else node.promotion.status(),
        }

    def ha_status(self) -> HaStatus:
        """The master, as far as it is known here, as request 907 tells it."""
        log, follower = self.node.store.log, self.follower
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
        ago = self.node.reactor.seconds() - moment
        return self.node.environment.now_ms() - int(ago * 1000) if moment else 0


class SlaveNode(Node):
    """A slave's service tree."""

    role = "slave"
    following: Following

    def __init__(self, settings: Settings, reactor: Any, *, repair: bool = False) -> None:
        super().__init__(settings, reactor, repair=repair)
        kind = ElectedUpstream if settings.controller.enabled else NamedUpstream
        self.following = Following(node=self, upstream=kind(node=self))

    def serve(self, store: Store) -> Deferred[None]:
        """Begin to follow, or go on after a repair."""
        return self.following.begin(store)

    def told(self, answer: RegisterBrokerAnswer) -> None:
        """A name server said where the master is."""
        self.following.upstream.told(answer)

    def ha_status(self) -> HaStatus:
        """The master, as far as it is known here."""
        return self.following.ha_status()

    async def unserve(self) -> None:
        """Disconnect on both sides."""
        await self.following.end()
