"""The HA port of a node, for both roles: who is let in, and what is known of them.

A master serves the log it writes, a slave the log it holds and has verified; it is one
code.  What differs is how much a log is worth to others
(L{Standing<rmqha.ha.states.Standing>}).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, evolve, field
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from rmqha.admin.events import Facts
from rmqha.config.settings import Settings
from rmqha.errors import StoreError
from rmqha.ha.epoch import Epoch
from rmqha.ha.master.ledger import Ledger
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.master.replicas import ReplicaState
from rmqha.ha.master.slots import RetentionSlots
from rmqha.ha.master.transfer import GroupTransfer, replicas_needed
from rmqha.ha.states import Standing
from rmqha.health import HealthReason
from rmqha.logfiles import json_table
from rmqha.metrics.family import Sample
from rmqha.metrics.node_families import ACK_WAIT, of_durations
from rmqha.net.allowed_peers import Network
from rmqha.net.connection_shares import ConnectionShares
from rmqha.net.tls.gate import CLEAR_TEXT, TlsGate
from rmqha.net.zero_copy_send import listen
from rmqha.periodic import NodePart
from rmqha.store.files.allocate import InThread
from rmqha.store.store import Store
from rmqha.wire.remoting.bodies.status import HaConnectionInfo, HaStatus
from rmqha.wire.store_layout import OWN_FOLDER, SLOTS


class HaPort(ServerFactory):
    """Holds the HA port from the start, and refuses connections while there is nothing to serve.

    @ivar refused: How many found it closed.
    """

    noisy = False
    inner: MasterFactory | None = None
    refused = 0

    def logPrefix(self) -> str:
        """What Twisted says is listening."""
        return "HA port"

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Refuse, or let the factory decide."""
        if self.inner is None or addr is None:
            self.refused += 1
            return None
        return self.inner.buildProtocol(addr)


@define(eq=False, kw_only=True)
class Serving(NodePart):
    """What a node does for the slaves behind it.

    @ivar reactor: Listens, and is the clock.
    @ivar shares: How many connections there may be.
    @ivar in_thread: Runs what blocks.
    @ivar standing: What the log is worth.
    @ivar known: Told the address of each replica that has acknowledged what it was sent.
    @ivar is_master: Whether the log is written here.
    @ivar tls: Whether the port speaks TLS, once the certificates are read.
    @ivar factory: Feeds the slaves; C{None} while none is let in.
    @ivar epoch: The log's, as long.
    @ivar ending: Fed them last, while their connections end.
    @ivar slots: What is kept for slaves that are away.
    """

    settings: Settings
    reactor: Any
    shares: ConnectionShares
    in_thread: InThread
    known: Callable[[str], None]
    is_master: Callable[[], bool]
    tls: Callable[[], TlsGate] = lambda: CLEAR_TEXT
    standing: Callable[[], Standing] = field(default=lambda: Standing.WHOLE, init=False)
    factory: MasterFactory | None = field(default=None, init=False)
    epoch: Epoch | None = field(default=None, init=False)
    ending: MasterFactory | None = field(default=None, init=False)
    gate: HaPort = field(factory=HaPort, init=False)
    slots: RetentionSlots = field(init=False)
    _read: bool = field(default=False, init=False)
    _closed: Counter[str] = field(factory=Counter, init=False)
    _sent: int = field(default=0, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        ha = self.settings.ha
        self.slots = RetentionSlots(
            clock=self.reactor,
            grace=ha.retention_grace,
            most_bytes=ha.retention_bytes,
            save=lambda table: self.in_thread(json_table.replace, self._slots_path, table),
        )

    @property
    def _slots_path(self) -> Path:
        return self.settings.store.root / OWN_FOLDER / SLOTS

    def read_slots(self) -> None:
        """Take over what was kept before, once the store is ours."""
        if not self._read:
            self.slots.read(self._slots_path)
            self._read = True

    def listen(self) -> list[IListeningPort]:
        """Open the port, if it is wanted.

        @raise CannotListenError: If it is in use.
        """
        ha = self.settings.ha
        if not ha.listen_port:
            return []
        return [listen(self.reactor, self.gate, ha.listen_port, ha.listen_address)]

    def allow(self, networks: tuple[Network, ...]) -> None:
        """Let only these connect from now on, or everybody; who may not any more goes."""
        ha = evolve(self.settings.ha, allowed_peers=networks)
        self.settings = evolve(self.settings, ha=ha)
        if self.gate.inner is not None:
            self.gate.inner.door.allow(networks)

    def begin(self, store: Store) -> MasterFactory:
        """Begin an epoch of an open store's log, and let slaves in: on a full disk that has no room
        for the epoch once retention, or somebody, has made some.
        """
        ha, log, role = self.settings.ha, store.log, self.settings.broker.role
        root = self.settings.store.root
        self.read_slots()
        self.epoch = Epoch.next_of(root, log, master=role.is_master)
        ledger = Ledger(
            log=log,
            start=self.epoch.start,
            marks=dict(self.epoch.marks),
            first_sync=ha.first_sync,
            accept_unproven=ha.accept_unproven,
        )
        transfer = GroupTransfer(
            ledger=ledger,
            clock=self.reactor,
            needed=replicas_needed(role, ha.in_sync_replicas),
            timeout=ha.slave_timeout,
            fallbehind_max=ha.fallbehind_max,
        )
        factory = self.feeding()(
            log=log,
            settings=ha,
            clock=self.reactor,
            ledger=ledger,
            transfer=transfer,
            standing=self.standing,
            known=self.known,
        )
        factory.start()
        self.factory = factory
        store.with_room(partial(self._let_in, factory, self.epoch))
        return factory

    def feeding(self) -> Callable[..., MasterFactory]:
        """Makes what takes the connections of slaves, or of a set's members."""
        return partial(
            MasterFactory, most=lambda: self.shares.ha, slots=self.slots, gate=self.tls()
        )

    def _let_in(self, factory: MasterFactory, epoch: Epoch) -> None:
        if self.factory is not factory:
            return
        log = factory.log
        epoch.save(log)
        self.gate.inner = factory
        self._log.info(
            "Serving slaves on HA port {port}: the log holds bytes {min} to {end}",
            min=log.min_offset,
            end=log.confirmed,
            port=self.settings.ha.listen_port,
        )

    def lend(self, factory: MasterFactory) -> None:
        """Let slaves in by a factory that an elected master made.  Its log has no epoch of ours:
        what members hold is proven by labels.
        """
        self.read_slots()
        self.factory = self.gate.inner = factory

    def acknowledged(self) -> int | None:
        """Up to where as many replicas hold the log as a write waits for: -1 with too few
        replicas, C{None} if it waits for none.
        """
        needed = self._needed()
        if not needed:
            return None
        return -1 if self.factory is None else self.factory.ledger.quorum(needed)

    def _needed(self) -> int:
        """How many replicas a write waits for."""
        return replicas_needed(self.settings.broker.role, self.settings.ha.in_sync_replicas)

    def held_from(self) -> int | None:
        """The lowest offset a slave still needs, or one that is away; C{None} if none does."""
        factory = self.factory or self.ending
        if factory is None:
            # Not serving yet: who was there before will be back.
            self.read_slots()
            return self.slots.held_from()
        return factory.held_from()

    async def end(self, *, gently: bool = True) -> None:
        """Refuse new connections, close all there are, end the epoch.

        @param gently: Let slaves have what was written to them; without it the log
            is not read once this has begun.
        @return: When the last connection is gone.
        """
        factory, epoch = self.factory, self.epoch
        if factory is None:
            return
        self.ending = factory
        self.factory = self.gate.inner = None
        try:
            await factory.stop(gently=gently)
        finally:
            self.ending = None
            self._closed += factory.closed
            self._sent += factory.sent
            await self.slots.flush()
            self.slots.we_are_back()
        if epoch is None:
            return
        # Not after a failure: slaves that are still fed would know more than the marks.
        try:
            epoch.close(factory.log, factory.ledger.all_marks())
        except (StoreError, OSError) as error:
            # The next begins anew: marks that are lost refuse rather than believe.
            self._log.error(
                "Cannot close the log's epoch, the next start begins a new one: {error}",
                error=error,
            )

    def ha_status(self, end: int) -> HaStatus:
        """The slaves, as request 907 tells of them.

        @param end: Where the log ends.
        """
        rows = tuple(
            HaConnectionInfo(
                addr=replica.address,
                slave_ack_offset=replica.acked or 0,
                diff=replica.lag_bytes or 0,
                in_sync=replica.state is ReplicaState.IN_SYNC,
                transferred_byte_in_second=replica.speed,
                transfer_from_where=replica.sent or 0,
            )
            for replica in (self.factory.replicas() if self.factory is not None else ())
        )
        return HaStatus(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(row.in_sync for row in rows),
            ha_connection_info=rows,
        )

    def health(self) -> Iterator[HealthReason]:
        """A C{SYNC_MASTER} that lacks the replicas its writes wait for, and replicas of a master
        that were there and are away.
        """
        if self.factory is None:
            return
        away = self.slots.away(self.settings.ha.slave_timeout)
        if away and self.settings.broker.role.is_master:
            now, told = self.reactor.seconds(), []
            for slot in away:
                assert slot.since is not None
                told.append(f"{slot.address} for {now - slot.since:.0f} s")
            yield HealthReason(
                "replica-away",
                f"{', '.join(told)}; of one that is not to come back, drop the retention slot",
            )

    def samples(self) -> Iterator[Sample]:
        """How long a master's writes wait for replicas."""
        if self.factory is not None and self.is_master():
            yield of_durations(ACK_WAIT, self.factory.transfer.waited)

    def facts(self) -> Facts:
        """For whom no files are held back any more."""
        return {"retention slots ended": (str(self.slots.ended.total()), self.slots.last_ended)}

    def fields(self) -> dict[str, Any]:
        """What C{/status} says of the slaves."""
        factory, epoch = self.factory, self.epoch
        # Those that are being sent away count until they are counted with the earlier ones.
        counting = factory or self.ending
        closed = self._closed + (counting.closed if counting is not None else Counter())
        if self.gate.refused:
            closed["not-serving"] = self.gate.refused
        status: dict[str, Any] = {
            "replicas": [row.as_json() for row in factory.replicas()] if factory else [],
            "replicasNeeded": self._needed(),
            "connections": factory.connections if factory else 0,
            "closedConnections": dict(closed),
            "sentBytes": self._sent + (counting.sent if counting is not None else 0),
            "retentionSlots": self.slots.rows(factory.log.end) if factory else [],
            "endedSlots": dict(self.slots.ended),
        }
        if epoch is not None:
            status["epoch"] = {"id": epoch.id, "start": epoch.start}
        return status
