"""
The master: takes writes, serves the log to slaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.internet.interfaces import IListeningPort

from rmqha.config.settings import Settings
from rmqha.ha.master.put_service import Writer
from rmqha.ha.master.replicas import ReplicaState
from rmqha.health import HealthReason
from rmqha.logfiles.log_writer import crashed_from
from rmqha.periodic import Job
from rmqha.roles.node import UNHEALTHY, Node
from rmqha.roles.serving import Serving
from rmqha.shutdown import Shutdown
from rmqha.store.log.bootstrap_marker import refuse_unfinished
from rmqha.store.opening import Opening
from rmqha.store.store import Store
from rmqha.wire.remoting.bodies.status import HaConnectionInfo, HaStatus


class MasterNode(Node):
    """
    A master's service tree.

    @ivar writer: Takes writes; C{None} before C{ready} has fired.
    @ivar serving: Its slaves.
    """

    role = "master"
    unready = UNHEALTHY  # whatever else it still does, it takes no writes
    writer: Writer | None = None

    def __init__(self, settings: Settings, reactor: Any, *, repair: bool = False) -> None:
        super().__init__(settings, reactor, repair=repair)
        self.serving = Serving(settings, reactor)

    def opening(self) -> Opening:
        """
        A master's log is never cut without being told to, and is a whole one.
        """
        return Opening(
            master=True,
            repair=self.repair,
            ours_from=crashed_from(self.settings.store.root),
            before=refuse_unfinished,
        )

    def listen(self) -> list[IListeningPort]:
        """
        Open the HA port; slaves are refused there until L{serve}.
        """
        return self.serving.listen()

    def serve(self, store: Store) -> None:
        """
        Begin an epoch, let slaves and clients in.
        """
        transfer = self.serving.begin(store).transfer
        self.writer = Writer(store, transfer, self.settings.broker.role)
        self.open_broker(store, self.writer)
        self._log.info("Accepting writes; {guarantee}", guarantee=self.guarantee())

    async def unserve(self) -> None:
        """
        Answer waiting writes, close all connections, end the epoch.
        """
        shutdown = Shutdown("serving", self.reactor)
        broker = shutdown.step("the broker", self.shut_broker)
        # Writes that wait are answered by this, before their connections are closed.
        slaves = shutdown.step("replication to slaves", self.serving.end)
        clients = shutdown.step("client connections", self.clients.close)
        for step in (slaves, broker, clients):
            await step
        shutdown.finish()

    def held_from(self) -> int | None:
        """
        What the slaves still need.
        """
        return self.serving.held_from()

    def acknowledged(self) -> int | None:
        """
        What the replicas that a write waits for hold.
        """
        return self.serving.acknowledged()

    def ha_status(self) -> HaStatus:
        factory = self.serving.factory
        rows = tuple(
            HaConnectionInfo(
                addr=replica.address,
                slave_ack_offset=replica.acked or 0,
                diff=replica.lag_bytes or 0,
                in_sync=replica.state is ReplicaState.IN_SYNC,
                transferred_byte_in_second=replica.speed,
                transfer_from_where=replica.sent or 0,
            )
            for replica in (factory.replicas() if factory is not None else ())
        )
        return HaStatus(
            master=True,
            master_commit_log_max_offset=self.store.log.end,
            in_sync_slave_nums=sum(row.in_sync for row in rows),
            ha_connection_info=rows,
        )

    def guarantee(self) -> str:
        """
        What an acknowledged write means here, in words.
        """
        if self.writer is None or self.serving.factory is None:
            return "none: not serving"
        return self.writer.guarantee()

    def health(self) -> Iterator[HealthReason]:
        """
        A node's reasons, and those of the HA port.
        """
        yield from super().health()
        yield from self.serving.health()

    def jobs(self) -> Iterator[Job]:
        """
        A node's, and those of the HA port.
        """
        yield from super().jobs()
        yield from self.serving.jobs()

    def status(self) -> dict[str, Any]:
        """
        A node's status, the replicas, and what became of the writes.
        """
        status = super().status() | self.serving.status()
        if self.serving.factory is not None:
            results = self.serving.factory.transfer.results
            status["writes"] = {key.value: n for key, n in results.items()}
        return status
