"""C{broker.conf}, C{--set} and C{--role} to L{Settings}, or everything that is wrong.

RocketMQ ignores unknown keys and values it cannot parse.  A typo in C{flushDiskType}
then costs data months later, so here nothing is ignored silently: all problems are
collected and raised together, each with its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from rmqha.config.broker_settings import BrokerRole
from rmqha.config.checks import check_broker, check_namesrv, check_own_tls
from rmqha.config.errors import ConfigProblems
from rmqha.config.settings import Settings, TlsSettings
from rmqha.config.sources import DEFAULT, SettingsDraft, read
from rmqha.config.vocabulary import (
    BROKER_FILE,
    NAMESRV_FILE,
    SECTIONS,
    TLS_FILE,
    Vocabulary,
)
from rmqha.errors import BadValue

ROLES: dict[str, tuple[BrokerRole, ...]] = {
    "master": (BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER),
    "slave": (BrokerRole.SLAVE,),
    "member": (BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE),
}
"""What C{--role} allows C{brokerRole} to be; the first one is its default."""

MEMBER = "member"
"""The role whose broker is a master or a slave as controllers decide."""

NAMESRV = "namesrv"
"""The role that is no broker's: it has a file of its own."""

PLAIN_ACL = "plain_acl.yml"
"""RocketMQ's name of the file of accounts."""

ROLE_NAMES = (*ROLES, NAMESRV)
"""What C{--role} can be."""


@frozen
class Row:
    """One key and its value, as C{rmqha config check} shows it.

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
    """Read a node's settings.

    @param path: The file, C{None} for defaults alone.
    @param overrides: C{key=value} each; they win over the file.
    @param role: One of L{ROLE_NAMES}, C{None} to go by C{brokerRole}.
    @raise ConfigProblems: With everything that is wrong.
    """
    return _settle(path, overrides, role)[0]


def check(
    path: Path | None, overrides: Sequence[str] = (), role: str | None = None
) -> tuple[Settings, list[Row]]:
    """Like L{load}, and a row for each key that says where its value comes from.

    @raise ConfigProblems: With everything that is wrong.
    """
    settings, draft = _settle(path, overrides, role)
    sources = {name: chosen.where for name, chosen in draft.chosen.items()}
    return settings, _rows(settings, draft.known, sources)


def load_tls(path: Path) -> TlsSettings:
    """Read the keys of TLS that a tool needs which connects to nodes, such as those of mqadmin's
    C{tls.config.file}.

    @raise ConfigProblems: With everything that is wrong.
    """
    draft = read(path, (), TLS_FILE)
    if "tlsEnable" not in draft.chosen:
        draft.choose("tlsEnable", value=True, where=DEFAULT)
    draft.fill()
    check_own_tls(draft)
    if draft.problems:
        raise ConfigProblems(tuple(draft.problems))
    return TlsSettings(**{chosen.key.field: chosen.value for chosen in draft.chosen.values()})


def describe(settings: Settings) -> list[Row]:
    """A row for each key of a broker's settings that are already loaded."""
    return _rows(settings, BROKER_FILE, {})


def _rows(settings: Settings, known: Vocabulary, sources: Mapping[str, str]) -> list[Row]:
    def of(name: str) -> Any:
        return known.by_name[name].value_in(settings)

    rows = []
    for key in known.keys:
        text = key.kind.show(of(key.name))
        is_default = key.kind.show(key.absent(of)) == text
        rows.append(Row(key.name, text, is_default, sources.get(key.name, "")))
    return rows


def _settle(
    path: Path | None, overrides: Sequence[str], role: str | None
) -> tuple[Settings, SettingsDraft]:
    if role == NAMESRV:
        draft = read(path, overrides, NAMESRV_FILE)
        draft.fill()
        check_namesrv(draft)
    else:
        draft = read(path, overrides, BROKER_FILE)
        _settle_role(draft, role)
        draft.fill()
        member = _settle_member(draft, role)
        _settle_ha_port(draft, member=member)
        _settle_accounts(draft, path)
        check_broker(draft)
    if draft.problems:
        raise ConfigProblems(tuple(draft.problems))
    return _build(draft), draft


def _settle_role(draft: SettingsDraft, role: str | None) -> None:
    """Choose what C{--role} says, and refuse a C{brokerRole} that contradicts it."""
    if role is None or not draft.sound("brokerRole"):
        return
    if role not in ROLES:
        draft.problems.append(BadValue("--role", role, " or ".join(ROLE_NAMES)))
        draft.broken.add("brokerRole")
        return
    allowed = ROLES[role]
    given = draft.chosen.get("brokerRole")
    if given is None:
        draft.choose("brokerRole", allowed[0], where="--role")
    elif given.value not in allowed:
        draft.refuse("brokerRole", f"--role {role} was asked for, which is {' or '.join(allowed)}")


def _settle_member(draft: SettingsDraft, role: str | None) -> bool:
    """Refuse a role that the mode does not have.

    @return: Whether the node is a member of a set.
    """
    mode, learner = "enableControllerMode", "asyncLearner"
    if not draft.sound(mode, learner):
        return role == MEMBER
    member = draft.value(mode) and not draft.value(learner)
    if role == MEMBER and not draft.value(mode):
        draft.refuse(mode, "true with --role member")
    elif role == MEMBER and draft.value(learner):
        draft.refuse(learner, "false with --role member")
    elif member and role not in (None, MEMBER):
        draft.refuse(mode, f"false with --role {role}: a node of a set is --role member")
    return bool(member)


def _settle_ha_port(draft: SettingsDraft, *, member: bool) -> None:
    """On a slave a HA port of 0 is none; on a master RocketMQ 5.3 takes it for an absent one.  A
    learner has none.
    """
    if draft.value("asyncLearner") and not draft.given("haListenPort"):
        draft.choose("haListenPort", 0, where="asyncLearner")
        return
    slave = draft.sound("brokerRole") and not draft.value("brokerRole").is_master and not member
    if draft.value("haListenPort") == 0 and not slave:
        chosen = draft.chosen["haListenPort"]
        draft.chosen["haListenPort"] = evolve(chosen, value=chosen.key.absent(draft.value))


def _settle_accounts(draft: SettingsDraft, path: Path | None) -> None:
    """The accounts are beside the configuration, as those of a stock broker are."""
    if not draft.value("aclEnable") or draft.value("aclPlainFile") is not None:
        return
    if path is None:
        draft.refuse("aclPlainFile", "a file, as there is no configuration file to look beside")
    else:
        draft.choose("aclPlainFile", path.absolute().parent / PLAIN_ACL, DEFAULT)


def _build(draft: SettingsDraft) -> Settings:
    values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for chosen in draft.chosen.values():
        values[chosen.key.section][chosen.key.field] = chosen.value
    sections: dict[str, Any] = {
        section: declared(**values[section]) for section, declared in SECTIONS.items()
    }
    return Settings(
        **sections,
        ignored=tuple(draft.ignored),
        notes=tuple(draft.notes),
    )
