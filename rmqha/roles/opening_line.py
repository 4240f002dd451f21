"""What a node says first, and what can be done when it cannot start."""

from __future__ import annotations

import errno

from twisted.internet.error import CannotListenError

from rmqha.config.load import MEMBER, NAMESRV
from rmqha.config.settings import Settings
from rmqha.config.values import Endpoint
from rmqha.config.vocabulary import KEYS
from rmqha.errors import StoreLocked
from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.wire.ports import VIP_STEP


def opening_line(settings: Settings, role: str, version: str) -> str:
    """The first line of a node's log: what runs, on which files and ports, and of a slave its
    master.
    """
    remoting, admin = settings.remoting, settings.admin
    if role == NAMESRV:
        parts = [
            f"rmqha {version} name server",
            f"key-value configuration {settings.namesrv.kv_path}",
            f"clients on {_port(remoting.bind_address, settings.namesrv.listen_port)}",
        ]
    else:
        broker, ha = settings.broker, settings.ha
        parts = [
            f"rmqha {version} {_who(settings, role)}",
            f"broker {broker.name}/{broker.id}",
            f"store {settings.store.root}",
            f"clients on {_port(remoting.bind_address, broker.listen_port)}",
            f"replicas on {_port(ha.listen_address, ha.listen_port)}",
        ]
    return ", ".join([*parts, f"admin on {_port(admin.listen_address, admin.listen_port)}"])


def _who(settings: Settings, role: str) -> str:
    broker, ha, controllers = settings.broker, settings.ha, settings.controller
    if role == MEMBER:
        return f"member of the set at {_deciders(settings)}"
    if broker.role.is_master:
        return f"{role} ({broker.role})"
    if controllers.enabled:
        return f"learner of the set at {_deciders(settings)}"
    if ha.master is not None:
        return f"{role} of {Endpoint().show(ha.master)}"
    if broker.namesrv:
        return f"{role} of the master that name servers {broker.namesrv} tell"
    return f"{role} without a master"


def _port(address: str, port: int) -> str:
    """Where a port is; one that listens on all addresses is its number."""
    if not port:
        return "no port"
    return Endpoint().show((address, port)) if address else str(port)


def next_step(error: BaseException, settings: Settings, role: str) -> str:
    """What to do about a node that cannot start, as a further sentence; empty if the error says
    that itself.
    """
    if isinstance(error, (KeyFileInvalid, TlsFilesInvalid)):
        files = ((key.name, key.value_in(settings)) for key in KEYS)
        named = (name for name, at in files if at and str(error).startswith(f"{at}: "))
        return next((f" ({name})" for name in named), "")
    broker = settings.broker.listen_port
    clients = (settings.namesrv.listen_port,) if role == NAMESRV else (broker, broker - VIP_STEP)
    if isinstance(error, StoreLocked):
        return ". Stop that node, or give this one another folder: --store DIR"
    if isinstance(error, CannotListenError) and error.socketError.errno == errno.EADDRINUSE:
        return (
            f" Stop what listens on port {error.port}, or give this node other ports: "
            "--set listenPort=PORT, from which its HA and admin ports are counted"
        )
    if isinstance(error, CannotListenError):
        if error.port in clients:
            address, port = "bindAddress", "listenPort"
        elif error.port == settings.admin.listen_port:
            address, port = "adminListenAddress", "adminListenPort"
        else:
            address, port = "haListenAddress", "haListenPort"
        if error.socketError.errno == errno.EADDRNOTAVAIL:
            return f" {address}={error.interface} is no address of this machine"
        return f" The keys of this port are {port} and {address}"
    return ""


def _deciders(settings: Settings) -> str:
    """Who elects the master."""
    if settings.controller.etcd:
        return f"etcd {';'.join(settings.etcd.addresses)}"
    return f"controllers {settings.controller.addresses}"
