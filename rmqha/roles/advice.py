"""What is allowed and still not wise: ports that are open to everybody, and keys that do not fit.

A node says the first at its start, in one warning; C{rmqha config check} says all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address

from rmqha.config.broker_settings import BrokerRole
from rmqha.config.settings import ClientAuth, RemotingSettings, Settings, TlsMode
from rmqha.config.store_settings import FlushDisk

_IN_NAMES = re.compile(r"[%|a-zA-Z0-9_-]")
"""What a topic's name may have in it."""


def open_ports(settings: Settings, *, namesrv: bool) -> list[str]:
    """The ports that serve whoever reaches them, each with the keys that would change that.

    A port on a loopback address is open to the machine's own users alone, and not meant.

    @param namesrv: Whether it is a name server's settings.
    """
    remoting = settings.remoting
    ports = [] if namesrv else list(_brokers(settings))
    if namesrv and _everybody(remoting) and not settings.namesrv.allowed_peers:
        ports.append(
            f"name server port {settings.namesrv.listen_port} "
            "(namesrvAllowedPeers, clientAllowedPeers)"
        )
    admin = settings.admin
    if admin.listen_port and not admin.port_allowed_peers and _beyond(admin.listen_address):
        ports.append(f"admin port {admin.listen_port} (adminPortAllowedPeers)")
    return ports


def _brokers(settings: Settings) -> Iterator[str]:
    port = settings.broker.listen_port
    if port and _everybody(settings.remoting) and not settings.access.enabled:
        yield f"client port {port} (aclEnable, clientAllowedPeers)"
    ha, tls = settings.ha, settings.tls
    certified = tls.ha_mode is TlsMode.ENFORCING and tls.ha_trusted is not None
    restricted = certified or bool(ha.allowed_peers)
    if ha.listen_port and not restricted and _beyond(ha.listen_address):
        yield f"HA port {ha.listen_port} (haAllowedPeers, haTlsMode)"


def _everybody(remoting: RemotingSettings) -> bool:
    """Whether any peer may ask a client port."""
    certified = remoting.tls is TlsMode.ENFORCING and remoting.tls_client_auth is ClientAuth.REQUIRE
    return not (remoting.allowed_peers or certified) and _beyond(remoting.bind_address)


def _beyond(address: str) -> bool:
    """Whether who is on another machine can reach what listens on an address; empty is all."""
    return not address or not ip_address(address).is_loopback


def open_warning(settings: Settings, *, namesrv: bool) -> str:
    """The same as one sentence; empty if there is nothing to say."""
    ports = open_ports(settings, namesrv=namesrv)
    if not ports:
        return ""
    return (
        "Every peer that reaches these ports is served, as no list and no access control restricts "
        "them: " + ", ".join(ports)
    )


def masterless(settings: Settings) -> str:
    """Why a slave has no way to find its master; empty if it has one, or is none."""
    broker = settings.broker
    told = broker.role.is_master or broker.namesrv or settings.controller.enabled
    if told or settings.ha.master is not None:
        return ""
    return "namesrvAddr and haMasterAddress are empty: this slave finds no master"


def advice(settings: Settings, *, namesrv: bool) -> list[str]:
    """All that is allowed and not wise, a sentence each."""
    found = [open_warning(settings, namesrv=namesrv)]
    if not namesrv:
        found += _of_a_broker(settings)
    return [text for text in found if text]


def _values(settings: Settings) -> Iterator[str]:
    """Values that peers, tools or clients cannot use as they are."""
    broker, ha = settings.broker, settings.ha
    master = "" if ha.master is None else ha.master[0]
    hosts = {"brokerIP1": broker.ip1, "brokerIP2": broker.ip2, "haMasterAddress": master}
    for key, host in hosts.items():
        if host in ("0.0.0.0", "::"):
            yield f"{key}={host}: no other machine connects to this; give what it reaches"
    for key, name in (("brokerName", broker.name), ("brokerClusterName", broker.cluster)):
        strange = sorted({letter for letter in name if not _IN_NAMES.fullmatch(letter)})
        if strange:
            yield (
                f"{key}={name}: a topic has this name, and Java clients and tools refuse "
                f"{' '.join(map(repr, strange))} in one; a comment behind a value is part of it"
            )
    texts = {
        "brokerName": broker.name,
        "brokerClusterName": broker.cluster,
        "namesrvAddr": broker.namesrv,
        "storePathRootDir": str(settings.store.root),
        "storePathCommitLog": str(settings.store.commitlog),
    }
    for key, text in texts.items():
        if "${" in text or " #" in text:
            yield f"{key}={text}: this is taken by the letter, placeholders and comments too"


def _of_a_broker(settings: Settings) -> Iterator[str]:
    broker, ha = settings.broker, settings.ha
    yield from _values(settings)
    if broker.listen_port and broker.role.is_master and not broker.namesrv:
        yield "namesrvAddr is empty: no client finds this master by its topics"
    yield masterless(settings)
    if settings.tls.ha_enabled and ha.master is not None and ha.master_client is None:
        yield (
            "haTlsEnable=true with haMasterClientAddress=off: a stock master would take TLS for an "
            "acknowledgement, and is not asked whether it is one"
        )
    if broker.role is BrokerRole.SYNC_MASTER and settings.store.flush_disk is FlushDisk.ASYNC_FLUSH:
        yield (
            "SYNC_MASTER with flushDiskType=ASYNC_FLUSH: an acknowledged write is in the memory of "
            "two machines, and lost if both lose their power"
        )
