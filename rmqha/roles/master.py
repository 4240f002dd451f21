"""
The master: takes writes, serves the log to slaves.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IListeningPort
from twisted.internet.protocol import ServerFactory

from rmqha.config.settings import Settings
from rmqha.ha.incarnation import Incarnation
from rmqha.ha.ledger import Ledger
from rmqha.ha.master import MasterFactory
from rmqha.ha.transfer import GroupTransfer, replicas_needed
from rmqha.ha.writer import Writer
from rmqha.net.regions import RegionServerEndpoint
from rmqha.roles.node import Node, listen_now
from rmqha.store.opening import Opening

BACKLOG = 1024


class Gate(ServerFactory):
    """
    Holds the HA port from the start, and lets nobody in before the store is open.
    """

    noisy = False
    inner: MasterFactory | None = None

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """
        Refuse, or let the factory decide.
        """
        if self.inner is None or addr is None:
            return None
        return self.inner.buildProtocol(addr)


class MasterNode(Node):
    """
    A master's service tree.

    @ivar writer: Takes writes, once C{ready} has fired.
    @ivar factory: Feeds the slaves.
    """

    role = "master"
    writer: Writer
    factory: MasterFactory | None = None
    incarnation: Incarnation | None = None

    def opening(self) -> Opening:
        """
        A master's log is never cut without being told to.
        """
        return Opening(
            master=True,
            repair=self.repair,
            ours_from=Incarnation.crashed_from(self.settings.store.root),
        )

    def listen(self) -> list[IListeningPort]:
        """
        Listen for slaves.
        """
        self._gate = Gate()
        ha = self.settings.ha
        endpoint = RegionServerEndpoint(self.reactor, ha.listen_port, BACKLOG, ha.listen_address)
        return [listen_now(endpoint, self._gate)]

    def serve(self) -> None:
        """
        Begin an incarnation and let slaves in.
        """
        ha, log = self.settings.ha, self.store.log
        role = self.settings.broker.role
        self.incarnation = Incarnation.begin(self.settings.store.root, log)
        ledger = Ledger(
            log=log,
            start=self.incarnation.start,
            marks=dict(self.incarnation.marks),
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
        self.factory = MasterFactory(log, ha, self.reactor, ledger, transfer)
        self.factory.start()
        self.store.held_from = self.factory.held_from
        self._gate.inner = self.factory
        self.writer = Writer(self.store, transfer, role)
        self._log.info(
            "Serving [{min}, {end}) on port {port}; {guarantee}",
            min=log.min_offset,
            end=log.end,
            port=ha.listen_port,
            guarantee=self.guarantee(),
        )

    def unserve(self) -> Deferred[None]:
        """
        Answer waiting writes, close all connections, end the incarnation.
        """
        if self.factory is None:
            return succeed(None)
        return self.factory.stop().addCallback(lambda _: self._end_incarnation())

    def _end_incarnation(self) -> None:
        if self.incarnation is not None and self.factory is not None:
            self.incarnation.close(self.store.log, self.factory.ledger.all_marks())

    def guarantee(self) -> str:
        """
        What an acknowledged write means here, in words.
        """
        return self.writer.guarantee() if self.factory is not None else "none: not serving yet"

    def status(self) -> dict[str, Any]:
        """
        A node's status, and the replicas.
        """
        status = super().status()
        factory = self.factory
        status["replicas"] = [row.as_json() for row in factory.replicas()] if factory else []
        if factory is not None and self.incarnation is not None:
            status["connections"] = factory.connections
            status["closedConnections"] = dict(factory.closed)
            status["writes"] = {key.value: n for key, n in factory.transfer.results.items()}
            status["incarnation"] = {"id": self.incarnation.id, "start": self.incarnation.start}
        return status


def make_service(settings: Settings, reactor: Any, *, repair: bool = False) -> IService:
    """
    A master's service tree.
    """
    return MasterNode(settings, reactor, repair=repair)
