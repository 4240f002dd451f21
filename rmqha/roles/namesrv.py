"""The name server: tells clients where brokers are.  It has no store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort

from rmqha.config.load import NAMESRV
from rmqha.config.settings import Settings
from rmqha.logfiles import json_table
from rmqha.metrics.broker_families import of_calls
from rmqha.metrics.family import Sample
from rmqha.namesrv.kv import KvConfig
from rmqha.namesrv.service import NameServer
from rmqha.net.remoting.connections import ConnectionLimits
from rmqha.net.zero_copy_send import listen
from rmqha.roles.host.service_manager import READY
from rmqha.roles.process import Process
from rmqha.wire.remoting.bodies.route import ClusterInfo


class NamesrvNode(Process):
    """A name server's service tree.

    @ivar server: What it is, once it was started.
    """

    role = NAMESRV
    server: NameServer

    def listen(self) -> list[IListeningPort]:
        """Read what was kept, and listen.

        @raise FileUnreadable: If the system does not let C{kvConfigPath} be read.
        @raise TableUnreadable: If nothing of it makes sense.
        @raise BodyInvalid: If it is of another shape.
        """
        settings, remoting = self.settings.namesrv, self.settings.remoting
        kv = KvConfig(self._save)
        found = json_table.read_generation(settings.kv_path)
        if found.fault and found.table is not None:
            self._log.warn(
                "{path} is damaged or gone ({fault}): going on with the generation before it, "
                "{path}.bak",
                path=settings.kv_path,
                fault=found.fault,
            )
        kv.load(found.table)
        limits = ConnectionLimits(connections=lambda: self.shares.clients)
        self.server = NameServer(
            settings,
            self.reactor,
            kv,
            gate=self.tls.client_ports(),
            limits=limits,
            connecting=remoting.allowed_peers,
        )
        factory = self.server.factory
        return [listen(self.reactor, factory, settings.listen_port, remoting.bind_address)]

    def begin(self) -> None:
        """Begin to look for brokers that are gone."""
        self.tell_shares()
        self.set_aside()
        self.server.start()
        self.health_log.start()
        self.notify(READY)
        self._log.info(
            "Name server listening on port {port}", port=self.settings.namesrv.listen_port
        )

    def adopt(self, settings: Settings) -> None:
        """Take over the log's level, and the lists of who may connect, and change something."""
        self.log_from(settings.log.level)
        self.settings = evolve(
            self.settings,
            log=evolve(self.settings.log, level=settings.log.level),
            remoting=evolve(self.settings.remoting, allowed_peers=settings.remoting.allowed_peers),
        )
        self._admin_peers.change(settings.admin.port_allowed_peers)
        self.server.allow(settings.remoting.allowed_peers, settings.namesrv.allowed_peers)
        self._log.info(
            "A reload of the configuration set clientAllowedPeers, namesrvAllowedPeers, "
            "adminPortAllowedPeers and logLevel; all else needs a restart"
        )

    async def end(self) -> None:
        """Close all connections."""
        await self.server.stop()

    def _save(self, table: dict[str | int, Any]) -> Deferred[None]:
        path = self.settings.namesrv.kv_path

        def save() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            json_table.replace(path, table)

        return self._in_thread(save)

    def known_brokers(self) -> ClusterInfo | None:
        """All brokers that are registered."""
        return self.server.table.cluster_info()

    def metric_labels(self) -> dict[str, str]:
        """A name server's, by the name that RocketMQ has for it."""
        return {"node_type": "nameserver"}

    def own_samples(self) -> Iterator[Sample | None]:
        """A process's, and how long requests took."""
        yield from super().own_samples()
        yield from of_calls(self.server.registry.calls)
