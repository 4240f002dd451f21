"""The master: takes writes, serves the log to slaves; unless another master of its name does.

After a crash, between the opening of its log and its first write, it asks its replicas for the tail
that it may have lost (L{rmqha.ha.tail_fetch}), makes what they gave its own, and decides whether it
may serve: never with a loss that its own marks prove and nobody made good, unless an operator has
said so.

Source: docs/states.rst, A lost tail.
"""

from __future__ import annotations

from functools import partial
from ipaddress import ip_address
from typing import Any, TypeVar

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rmqha.admin.events import Facts
from rmqha.broker.cluster.broker_members import Members
from rmqha.broker.cluster.master_twin import TIMEOUT, LiveMaster, TwinSearch
from rmqha.config.settings import Settings
from rmqha.config.values import ENDPOINT
from rmqha.errors import LogShortened, TailNotFetched, TwinMaster
from rmqha.ha.known_replicas import KnownReplicas
from rmqha.ha.master.put_service import Writer
from rmqha.ha.master_epoch import HigherMaster
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.followed import end_following
from rmqha.ha.tail_fetch import TailFetch, TailFetchState
from rmqha.logfiles.log_writer import crashed_from
from rmqha.net.remoting.server_names import ServerNames, look_up
from rmqha.periodic import NodePart
from rmqha.roles.node import UNHEALTHY, Node
from rmqha.shutdown import Shutdown
from rmqha.store import lost_tail
from rmqha.store.derived.clamp_offsets import clamp_consumers, clamp_delays
from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.log.bootstrap_marker import refuse_unfinished
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.two_versions import TwoVersions, judge_place
from rmqha.store.lost_tail import LostTail
from rmqha.store.opening import Opening
from rmqha.store.store import Store
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer


@define(eq=False, kw_only=True)
class TailRecovery(NodePart):
    """One start's way to a log that may be written.

    @ivar node: Its C{repair} is whether an operator accepts what is missing (C{--repair}).
    @ivar replicas: Those of the runs before.
    @ivar ours_from: Where the last run began to write, if it crashed.
    @ivar fetch: The asking, once it has begun.
    @ivar skipped: Why nobody was asked; empty if somebody was, or nothing called for it.
    @ivar asking: Whether it is not over, or has not begun.
    """

    node: Node
    replicas: KnownReplicas
    ours_from: int | None = field(init=False)
    fetch: TailFetch | None = field(default=None, init=False)
    skipped: str = field(default="", init=False)
    asking: bool = field(default=True, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.ours_from = crashed_from(self.node.settings.store.root)

    # --- whom to ask ----------------------------------------------------------

    def addresses(self) -> list[tuple[str, int]]:
        """The HA ports to ask: those that the configuration names, or else those of the replicas
        there were.  One that has not told its port is taken to have ours.
        """
        ha = self.node.settings.ha
        if ha.tail_sources:
            named = (part.strip() for part in ha.tail_sources.split(";"))
            return [ENDPOINT.parse(part) for part in named if part]
        return [
            (host, port)
            for host, ports in self.replicas.ports.items()
            for port in ports or [ha.listen_port]
            if port and not self._is_ours(host, port)
        ]

    def _is_ours(self, host: str, port: int) -> bool:
        if port != self.node.settings.ha.listen_port:
            return False
        return host == self.node.settings.broker.ip1 or ip_address(host).is_loopback

    def can_ask(self) -> bool:
        """Whether there is anybody to ask, and the operator did not say no."""
        return self.node.settings.ha.tail_fetch_timeout > 0 and bool(self.addresses())

    # --- the way ----------------------------------------------------------------

    async def run(self, store: Store) -> None:
        """Ask if a crash, or a loss that is proven, calls for it.

        @raise LogShortened: If bytes are missing that were on the disk, no replica gave them,
            and the operator has not accepted that; L{TailNotFetched} if any was asked.
        @raise FlushFailed: If what they gave cannot be made durable.
        """
        try:
            if store.lost is not None or self.ours_from is not None:
                await self._ask(store)
            if store.lost is not None and self.node.running:
                await self._settle(store, store.lost)
        finally:
            self.asking = False

    async def _ask(self, store: Store) -> None:
        timeout, addresses = self.node.settings.ha.tail_fetch_timeout, self.addresses()
        if not timeout:
            self.skipped = "haTailFetchTimeout=0"
        elif not addresses:
            self.skipped = "no replica is known"
        elif store.log.end == store.log.min_offset:
            self.skipped = "the log is empty, there is nothing to compare"
        if self.skipped:
            self._log.info(
                "Not asking replicas for a lost tail of the log: {why}", why=self.skipped
            )
            return
        self.fetch = TailFetch(
            log=store.log,
            settings=self.node.settings.ha,
            clock=self.node.reactor,
            timeout=timeout,
            judge=self._judge,
        )
        over = self.fetch.run(addresses, self.node.dialled)
        store.environment.changed()
        await over
        if store.log.end > self.fetch.start:
            await store.flusher.flush()
            await store.took_over()

    def _judge(self, log: CommitLog, at: int, theirs: bytes) -> Deferred[str]:
        """Hold a replica's version of a place against ours."""
        root = self.node.settings.store.root

        def told(found: tuple[TwoVersions, bytes, bytes]) -> str:
            versions = found[0]
            text = versions.sentence(theirs="the replica's")
            if versions.kept == "theirs" or (versions.first_theirs and not versions.first_ours):
                text += f"; stop this node and mend it: rmqha repair {root} --from that address"
            return text

        return self.node.environment.in_thread(judge_place, root, log, at, theirs).addCallback(told)

    async def _settle(self, store: Store, lost: LostTail) -> None:
        """A loss was proven when the store was opened: is it made good?"""
        root, end = self.node.settings.store.root, store.log.confirmed
        if end >= lost.to:
            await self.node.environment.in_thread(lost_tail.forget, root)
            store.lost = None
            self._log.warn(
                "The lost tail of the log is back: bytes {start} to {to} came from replicas",
                start=lost.start,
                to=lost.to,
            )
            return
        store.lost = lost = evolve(lost, start=end)
        if not self.node.repair:
            kind = LogShortened if self.fetch is None else TailNotFetched
            raise lost.error(self.node.settings.store.commitlog, kind)
        moved = await self.node.environment.in_thread(_clamp, store)
        for each in moved:
            self._log.warn("Moved an offset back, as the log was cut: {moved}", moved=each)

    def stop(self) -> Deferred[None]:
        """The node stops: ask no more.

        @return: Fires when nothing touches the log any longer.
        """
        return succeed(None) if self.fetch is None else self.fetch.stop()

    # --- for /status ------------------------------------------------------------

    @property
    def reason(self) -> str:
        """What is under way, in words; empty if nothing is."""
        if not self.asking or self.fetch is None:
            return ""
        if self.fetch.state is not TailFetchState.FETCHING:
            return "making the fetched tail of the log durable"
        rows = (f"{source.address} ({source.reason})" for source in self.fetch.sources)
        return f"asking replicas for a lost tail of the log: {', '.join(rows)}"

    def fields(self) -> dict[str, Any]:
        """How it went, if anything called for it."""
        skipped = {"state": "skipped", "reason": self.skipped} if self.skipped else None
        return {"tailFetch": skipped if self.fetch is None else self.fetch.status()}


def _clamp(store: Store) -> list[object]:
    settings = store.settings
    levels = DelayLevels.parse(settings.delay_levels)
    lookup = Lookup(RecordReader(store.log, levels), store.queues, None)
    return [*clamp_consumers(settings.root, lookup), *clamp_delays(settings.root, lookup)]


T = TypeVar("T")


class MasterNode(Node):
    """A master's service tree.

    @ivar writer: Takes writes; C{None} before C{ready} has fired.
    @ivar serving: Its slaves.
    """

    role = "master"
    unready = UNHEALTHY  # whatever else it still does, it takes no writes
    writer: Writer | None = None
    _looking_for_twin: Deferred[None] | None = None

    def __init__(
        self, settings: Settings, reactor: Any, *, repair: bool = False, force: bool = False
    ) -> None:
        """With C{force} it starts beside another master, and although this one was fenced."""
        super().__init__(settings, reactor, repair=repair)
        self.force = force

    def opening(self) -> Opening:
        """A master's log is never cut without being told to, and is a whole one."""
        self.replicas = KnownReplicas.load(self.settings.store.root, self._in_thread)
        self.tail = TailRecovery(node=self, replicas=self.replicas)
        return Opening(
            master=True,
            repair=self.repair,
            ours_from=self.tail.ours_from,
            fetches=self.tail.can_ask(),
            before=refuse_unfinished,
        )

    # --- other masters ------------------------------------------------------------

    def admitted(self) -> Deferred[None]:
        """A master is not served beside a live one of its name whose epoch is not lower.

        @return: Fails with L{TwinMaster} if there is one.
        """
        if self.force:
            return self._forced()
        if not self.settings.broker.namesrv:
            return succeed(None)

        def over(result: T) -> T:
            self._looking_for_twin = None
            return result

        looking = self._looking_for_twin = Deferred.fromCoroutine(self._refuse_twin())
        looking.addBoth(over)
        return looking

    def _forced(self) -> Deferred[None]:
        journal = self.epochs.journal
        if journal.fenced_by is not None:
            self._log.critical(
                "Starting with --force although {higher}, ours is {number}",
                higher=journal.fenced_by,
                number=journal.number,
            )
        return self.epochs.become(evolve(journal, higher=None))

    async def _refuse_twin(self) -> None:
        broker = self.settings.broker
        client = self.connect()
        names = ServerNames(partial(look_up, self.reactor), self.reactor, self.name_servers)
        client.dialled = names.dialled
        search = TwinSearch(
            members=Members(client, broker.name, broker.cluster),
            name=broker.name,
            address=broker.address,
            run_id=self.epochs.run_id,
            ask=lambda address: master_bounds.ask(client, address),
        )

        def met(one: LiveMaster) -> None:
            if one.epoch >= self.epochs.number:
                raise TwinMaster(
                    broker.name, search.address, self.epochs.number, one.address, one.epoch
                )
            self._log.warn(
                "{address} is a live master of {name} too; its master epoch {epoch} is lower than "
                "ours, {number}: stop it, or start it as a slave",
                address=one.address,
                name=broker.name,
                epoch=one.epoch,
                number=self.epochs.number,
            )

        try:
            await names.looked().addTimeout(TIMEOUT, self.reactor, lambda result, _: None)
            await search.look(names.servers, met=met)
        finally:
            client.close()

    def told(self, answer: RegisterBrokerAnswer) -> None:
        """A name server of ours told that another master is in the routes."""
        if self.broker is None or answer.master_epoch is None or not answer.master_addr:
            return
        self.broker.fencing.on_higher(
            HigherMaster(answer.master_epoch, answer.master_addr, "told by a name server")
        )

    # --- the work -----------------------------------------------------------------

    def prepared(self, store: Store) -> Deferred[None]:
        """After a crash, let replicas give back what the log has lost."""
        return Deferred.fromCoroutine(self._with_its_tail(store))

    async def _with_its_tail(self, store: Store) -> None:
        end = store.log.confirmed
        await self.tail.run(store)
        if store.log.confirmed > end:
            # An epoch may have begun in what came back.
            self.epochs.load(store.log.confirmed)

    def serve(self, store: Store) -> Deferred[None]:
        """Begin an epoch, let slaves and clients in."""
        end_following(self.settings.store.root, store.log.confirmed)
        transfer = self.serving.begin(store).transfer
        self.writer = Writer(store, transfer, self.settings.broker.role)
        return self.open_broker(store, self.writer).addCallback(
            lambda _: self._log.info("Accepting writes; {guarantee}", guarantee=self.guarantee())
        )

    async def unserve(self) -> None:
        """Answer waiting writes, close all connections, end the epoch."""
        shutdown = Shutdown("serving", self.reactor)
        if self._looking_for_twin is not None:
            self._looking_for_twin.cancel()
        await shutdown.step("fetching the log's tail", self.tail.stop)
        broker = shutdown.step("the broker", self.shut_broker)
        # Writes that wait are answered by this, before their connections are closed.
        slaves = shutdown.step("replication to slaves", self.serving.end)
        clients = shutdown.step("client connections", self.clients.close)
        for step in (slaves, broker, clients):
            await step
        await shutdown.step("the addresses of replicas", self.replicas.close)
        shutdown.finish()

    def acknowledged(self) -> int | None:
        """What the replicas that a write waits for hold."""
        return self.serving.acknowledged()

    def guarantee(self) -> str:
        """What an acknowledged write means here, in words."""
        if self.writer is None or self.serving.factory is None:
            return "none: not serving"
        return self.writer.guarantee()

    def facts(self) -> Facts:
        """A node's, and how its replicas are."""
        found, factory = dict(super().facts()), self.serving.factory
        for replica in factory.replicas() if factory is not None else ():
            found[f"replica {replica.address}"] = replica.state.value, replica.detail
        return found

    @property
    def reason(self) -> str:
        """Why, in words."""
        return super().reason or self.tail.reason

    def slave_joined(self, host: str) -> None:
        """Remember it for the start after a crash."""
        self.replicas.joined(host)

    def slave_listens(self, host: str, port: int) -> None:
        """Remember where it listens too."""
        self.replicas.listens(host, port)
