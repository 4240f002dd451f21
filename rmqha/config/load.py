"""
C{broker.conf}, C{--set} and C{--role} to L{Settings}, or everything that is wrong.

RocketMQ ignores unknown keys and values it cannot parse.  A typo in C{flushDiskType}
then costs data months later, so here nothing is ignored silently: all problems are
collected and raised together, each with its place.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from rmqha.config.checks import check_all, check_namesrv
from rmqha.config.errors import ConfigProblems
from rmqha.config.keys import FILE, Vocabulary
from rmqha.config.namesrv import FILE as NAMESRV_FILE
from rmqha.config.settings import (
    AdminSettings,
    BrokerRole,
    BrokerSettings,
    FlushDisk,
    HASettings,
    NamesrvSettings,
    PullSettings,
    RegistrationSettings,
    RemotingSettings,
    Settings,
    StoreSettings,
    TransactionSettings,
    fitting_message_size,
    host_name,
)
from rmqha.config.sources import DEFAULT, Chosen, SettingsDraft, read
from rmqha.errors import BadValue

HA_PORT_STEP = 1
"""C{haListenPort} is this far above C{listenPort} (docs/protocol/ha.rst, Ports)."""

CLIENT_PORT_STEP = 1
"""C{haMasterClientAddress} is this far below C{haMasterAddress}: what L{HA_PORT_STEP} means
for a master that took it."""

ADMIN_PORT_STEP = 3
"""C{adminListenPort} is this far above C{listenPort}: RocketMQ uses -2 and +1."""

SECTIONS: dict[str, type[Any]] = {
    "broker": BrokerSettings,
    "remoting": RemotingSettings,
    "store": StoreSettings,
    "pull": PullSettings,
    "transactions": TransactionSettings,
    "registration": RegistrationSettings,
    "ha": HASettings,
    "admin": AdminSettings,
    "namesrv": NamesrvSettings,
}
"""What L{Settings} is made of."""

ROLES: dict[str, tuple[BrokerRole, ...]] = {
    "master": (BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER),
    "slave": (BrokerRole.SLAVE,),
}
"""What C{--role} allows C{brokerRole} to be; the first one is its default."""

NAMESRV = "namesrv"
"""The role that is no broker's: it has a file of its own."""

ROLE_NAMES = (*ROLES, NAMESRV)
"""What C{--role} can be."""


@frozen
class Row:
    """
    One key and its value, as C{rmqha config check} shows it.

    @ivar key: The key's name.
    @ivar value: Its value as it would be written into the file.
    @ivar is_default: Whether an absent key would mean the same.
    @ivar source: C{file:line}, C{--set} or C{default}; C{""} if unknown.
    """

    key: str
    value: str
    is_default: bool
    source: str = ""


def load(path: Path | None, overrides: Sequence[str] = (), role: str | None = None) -> Settings:
    """
    Read a node's settings.

    @param path: The file, C{None} for defaults alone.
    @param overrides: C{key=value} each; they win over the file.
    @param role: One of L{ROLE_NAMES}, C{None} to go by C{brokerRole}.
    @raise ConfigProblems: With everything that is wrong.
    """
    return _settle(path, overrides, role)[0]


def check(
    path: Path | None, overrides: Sequence[str] = (), role: str | None = None
) -> tuple[Settings, list[Row]]:
    """
    Like L{load}, and a row for each key that says where its value comes from.

    @raise ConfigProblems: With everything that is wrong.
    """
    settings, draft = _settle(path, overrides, role)
    sources = {name: chosen.where for name, chosen in draft.chosen.items()}
    return settings, _rows(settings, draft.known, sources)


def describe(settings: Settings) -> list[Row]:
    """
    A row for each key of a broker's settings that are already loaded.
    """
    return _rows(settings, FILE, {})


def _rows(settings: Settings, known: Vocabulary, sources: dict[str, str]) -> list[Row]:
    defaults = SettingsDraft(known)
    _fill_defaults(defaults, settings)
    rows = []
    for key in known.keys:
        value = getattr(getattr(settings, key.section), key.field)
        text = key.kind.show(value)
        is_default = key.kind.show(defaults.value(key.name)) == text
        rows.append(Row(key.name, text, is_default, sources.get(key.name, "")))
    return rows


def _settle(
    path: Path | None, overrides: Sequence[str], role: str | None
) -> tuple[Settings, SettingsDraft]:
    draft = read(path, overrides, NAMESRV_FILE if role == NAMESRV else FILE)
    if role == NAMESRV:
        _fill_defaults(draft)
        check_namesrv(draft)
    else:
        _settle_role(draft, role)
        _fill_defaults(draft)
        check_all(draft)
    if draft.problems:
        raise ConfigProblems(tuple(draft.problems))
    return _build(draft), draft


def _settle_role(draft: SettingsDraft, role: str | None) -> None:
    """
    Choose what C{--role} says, and refuse a C{brokerRole} that contradicts it.
    """
    if role is None or not draft.sound("brokerRole"):
        return
    if role not in ROLES:
        draft.problems.append(BadValue("--role", role, " or ".join(ROLE_NAMES)))
        draft.broken.add("brokerRole")
        return
    allowed = ROLES[role]
    given = draft.chosen.get("brokerRole")
    if given is None:
        _default(draft, "brokerRole", allowed[0], where="--role")
    elif given.value not in allowed:
        draft.refuse("brokerRole", f"--role {role} was asked for, which is {' or '.join(allowed)}")


def _fill_defaults(draft: SettingsDraft, known: Settings | None = None) -> None:
    """
    Give every key nobody gave the value its absence means.

    @param known: Settings whose values decide dependent defaults, instead of the draft's.
    """

    def of(name: str) -> Any:
        if known is None:
            return draft.value(name)
        key = by_name[name]
        return getattr(getattr(known, key.section), key.field)

    by_name = draft.known.by_name
    for key in draft.known.keys:
        if key.default is not None:
            _default(draft, key.name, key.default_value())
    base = of("listenPort") or by_name["listenPort"].default_value()
    _default(draft, "adminListenPort", base + ADMIN_PORT_STEP)
    if draft.known is FILE:
        _fill_broker_defaults(draft, of, base)


def _fill_broker_defaults(draft: SettingsDraft, of: Callable[[str], Any], base: int) -> None:
    _default(draft, "brokerRole", BrokerRole.ASYNC_MASTER)
    _default(draft, "brokerId", 0 if of("brokerRole").is_master else 1)
    _default(draft, "brokerName", host_name())
    address = local_address()
    _default(draft, "brokerIP1", address)
    _default(draft, "brokerIP2", address)
    _default(draft, "storePathCommitLog", of("storePathRootDir") / "commitlog")
    _default(draft, "maxMessageSize", fitting_message_size(of("mappedFileSizeCommitLog")))
    _default(draft, "haSendFlushedOnly", of("flushDiskType") is FlushDisk.SYNC_FLUSH)
    _default(draft, "haListenPort", base + HA_PORT_STEP)
    _default(draft, "haMasterClientAddress", _client_port(of("haMasterAddress")))


def _client_port(master: tuple[str, int] | None) -> tuple[str, int] | None:
    """
    Where a stock master's clients connect.
    """
    if master is None or master[1] <= CLIENT_PORT_STEP:
        return None
    return master[0], master[1] - CLIENT_PORT_STEP


def _default(draft: SettingsDraft, name: str, value: Any, where: str = DEFAULT) -> None:
    if name not in draft.chosen:
        key = draft.known.by_name[name]
        draft.chosen[name] = Chosen(
            key=key, name=name, text=key.kind.show(value), value=value, where=where
        )


def _build(draft: SettingsDraft) -> Settings:
    fields: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for chosen in draft.chosen.values():
        fields[chosen.key.section][chosen.key.field] = chosen.value
    sections: dict[str, Any] = {name: cls(**fields[name]) for name, cls in SECTIONS.items()}
    return Settings(
        **sections,
        ignored=tuple(draft.ignored),
        notes=tuple(draft.notes),
    )


def local_address() -> str:
    """
    The address this host sends from, or the loopback one if it has no network.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # A datagram socket sends nothing when it connects; it only picks a route.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
