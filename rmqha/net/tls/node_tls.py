"""All TLS of one node, by its settings: the client ports, its own requests, and replication."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmqha.config.settings import ClientAuth, RemotingSettings, TlsMode, TlsSettings
from rmqha.net.tls.gate import ClearText, TlsGate
from rmqha.net.tls.identity import TlsIdentities, TlsIdentity
from rmqha.net.tls.material import TlsFiles
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.periodic import NodePart


class NodeTls(NodePart):
    """Made before the files are read: C{identities.load} reads them, and says what is wrong.

    @ivar requests: Of requests to name servers, controllers and other brokers.
    @ivar dialling: Of connections to HA ports.
    @ivar etcd: Of requests to etcd.
    @ivar identities: The certificates of all.
    @ivar clear_text: Who speaks clear text, for each port that takes both.
    """

    def __init__(
        self,
        remoting: RemotingSettings,
        settings: TlsSettings,
        clock: IReactorTime,
        in_thread: Callable[..., Deferred[Any]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.remoting, self.settings = remoting, settings
        self.clear_text: list[ClearText] = []
        self._clients: TlsIdentity | None = None
        self._ha: TlsIdentity | None = None
        if remoting.tls_cert is not None and remoting.tls is not TlsMode.DISABLED:
            asked = remoting.tls_client_auth
            trusted = None if asked is ClientAuth.NONE else remoting.tls_trusted
            self._clients = TlsIdentity(
                "clients",
                "of the client ports",
                TlsFiles(remoting.tls_key, remoting.tls_cert, trusted),
                asked,
            )
        requests = requests_identity(settings) if settings.enabled else None
        self.requests = outgoing(requests, settings)
        shown = settings.ha_cert is not None and settings.ha_mode is not TlsMode.DISABLED
        if settings.ha_enabled or shown:
            self._ha = replication_identity(settings)
        self.dialling = replication(self._ha if settings.ha_enabled else None, settings)
        etcd = None if settings.etcd_trusted is None else etcd_identity(settings)
        self.etcd = OutgoingTls(identity=etcd, names=True)
        every = (self._clients, requests, self._ha, etcd)
        present = (each for each in every if each is not None)
        permissive = TlsMode.PERMISSIVE
        if self._clients is not None and remoting.tls is permissive:
            self.clear_text.append(ClearText("clients", clock))
        if settings.ha_cert is not None and settings.ha_mode is permissive:
            self.clear_text.append(ClearText("ha", clock))
        self.identities = TlsIdentities(
            all=tuple(present),
            clock=clock,
            in_thread=in_thread,
            now=now,
            near=remoting.tls_expiry_alarm,
        )

    def client_ports(self) -> TlsGate:
        return TlsGate(self.remoting.tls, self._clients, clear_text=self._clear_text("clients"))

    def ha_port(self) -> TlsGate:
        shows = self._ha is not None and self.settings.ha_cert is not None
        return TlsGate(
            self.settings.ha_mode, self._ha if shows else None, "haTlsMode", self._clear_text("ha")
        )

    def _clear_text(self, port: str) -> ClearText | None:
        return next((each for each in self.clear_text if each.port == port), None)


def requests_identity(settings: TlsSettings) -> TlsIdentity:
    """What requests of ours are made with."""
    return TlsIdentity(
        "requests",
        "of requests to other nodes",
        TlsFiles(settings.client_key, settings.client_cert, settings.client_trusted),
    )


def replication_identity(settings: TlsSettings) -> TlsIdentity:
    """What both ends of replication show, and believe: with roots, each other alone."""
    return TlsIdentity(
        "replication",
        "of replication",
        TlsFiles(settings.ha_key, settings.ha_cert, settings.ha_trusted),
        ClientAuth.NONE if settings.ha_trusted is None else ClientAuth.REQUIRE,
    )


def etcd_identity(settings: TlsSettings) -> TlsIdentity:
    """What etcd is asked with: only one is believed that has the name that was dialled."""
    return TlsIdentity(
        "etcd",
        "of requests to etcd",
        TlsFiles(settings.etcd_key, settings.etcd_cert, settings.etcd_trusted),
    )


def outgoing(identity: TlsIdentity | None, settings: TlsSettings) -> OutgoingTls:
    """The same as connections need it.

    @param identity: C{None} for clear text.
    """
    return OutgoingTls(
        identity=identity, believe_all=not settings.auth_server, names=settings.check_names
    )


def replication(identity: TlsIdentity | None, settings: TlsSettings) -> OutgoingTls:
    """What HA ports are dialled with.

    @param identity: C{None} for clear text.
    """
    return OutgoingTls(
        identity=identity, names=settings.check_names and settings.ha_trusted is not None
    )
