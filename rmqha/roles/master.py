"""
The master: takes writes, serves the log to slaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IListeningPort

from rmqha.config.settings import Settings
from rmqha.ha.epoch import Epoch
from rmqha.ha.master.put_service import Writer
from rmqha.ha.master.replicas import ReplicaState
from rmqha.periodic import Job
from rmqha.roles.node import Node
from rmqha.roles.serving import Serving
from rmqha.store.log.bootstrap_marker import refuse_unfinished
from rmqha.store.opening import Opening
from rmqha.wire.remoting.bodies.status import HaConnectionInfo, HaStatus


class MasterNode(Node):
    """
    A master's service tree.

    @ivar writer: Takes writes, once C{ready} has fired.
    @ivar serving: Its slaves.
    """

    role = "master"
    writer: Writer

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
            ours_from=Epoch.crashed_from(self.settings.store.root),
            before=refuse_unfinished,
        )

    def listen(self) -> list[IListeningPort]:
        """
        Open the HA port; slaves are refused there until L{serve}.
        """
        return self.serving.listen()

    def serve(self) -> None:
        """
        Begin an epoch, let slaves and clients in.
        """
        transfer = self.serving.begin(self.store).transfer
        self.writer = Writer(self.store, transfer, self.settings.broker.role)
        self.open_broker(self.writer)
        self._log.info("Accepting writes; {guarantee}", guarantee=self.guarantee())

    def unserve(self) -> Deferred[None]:
        """
        Answer waiting writes, close all connections, end the epoch.
        """
        shut = self.shut_broker()
        # Writes that wait are answered by this, before their connections are closed.
        ended = self.serving.end()
        rest = DeferredList([shut, self.clients.close()], consumeErrors=True)
        return ended.addCallback(lambda _: rest)

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
        return self.writer.guarantee() if self.serving.factory is not None else "none: not serving"

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


def make_service(settings: Settings, reactor: Any, *, repair: bool = False) -> IService:
    """
    Build a master from its configuration.

    @param repair: Cut a damaged log at the damage.
    """
    return MasterNode(settings, reactor, repair=repair)
