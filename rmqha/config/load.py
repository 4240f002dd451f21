"""C{broker.conf}, C{--set} and C{--role} to L{Settings}, or everything that is wrong.

RocketMQ ignores unknown keys and values it cannot parse.  A typo in C{flushDiskType}
then costs data months later, so here nothing is ignored silently: all problems are
collected and raised together, each with its place.

What several keys must be together, such as sizes, times and ports, is checked here too: each check
refuses the key that a person would change, and names the other one's value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from rmqha.config.broker_settings import BrokerRole, TimerSettings
from rmqha.config.controller_settings import ControllerType
from rmqha.config.errors import ConfigProblems
from rmqha.config.settings import ClientAuth, Settings, TlsMode, TlsSettings
from rmqha.config.sources import DEFAULT, SettingsDraft, read
from rmqha.config.store_settings import DEFAULT_MAX_MESSAGE_SIZE, fitting_message_size
from rmqha.config.values import INT_MAX
from rmqha.config.vocabulary import BROKER_FILE, NAMESRV_FILE, SECTIONS, TLS_FILE, Vocabulary
from rmqha.errors import BadValue
from rmqha.wire.log.layout import MAX_RECORD_OVERHEAD, MIN_BLANK
from rmqha.wire.ports import VIP_STEP
from rmqha.wire.store_layout import CONFIG, CONSUMEQUEUE, INDEX

_INDEX_HEADER = 40
_INDEX_SLOT = 4
_INDEX_ENTRY = 20
"""Bytes of an index file's parts (docs/protocol/store.rst, Index files)."""

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check_broker(draft: SettingsDraft) -> None:
    """Check a broker's keys against each other, once all are chosen."""
    _check_identity(draft)
    _check_sizes(draft)
    _check_times(draft)
    _check_ports(draft)
    _check_folders(draft)
    _check_master_address(draft)
    _check_controller(draft)
    _check_tls(draft)
    check_own_tls(draft)


def check_namesrv(draft: SettingsDraft) -> None:
    """Check a name server's keys against each other, once all are chosen."""
    if draft.sound("listenPort", "adminListenPort"):
        _check_distinct(draft, ("listenPort", "adminListenPort"), {})
    _check_tls(draft)


def _check_identity(draft: SettingsDraft) -> None:
    if not draft.sound("brokerId", "brokerRole"):
        return
    broker_id = draft.value("brokerId")
    role = draft.value("brokerRole")
    if role.is_master and broker_id != 0:
        draft.refuse("brokerId", f"a master ({role}) has 0; a slave says brokerRole=SLAVE")
    elif not role.is_master and broker_id == 0:
        draft.refuse("brokerId", "a slave needs 1 or more; 0 is the master")


def _check_sizes(draft: SettingsDraft) -> None:
    if draft.sound("mappedFileSizeCommitLog", "maxMessageSize"):
        _check_message_size(draft)
    if draft.sound("maxHashSlotNum", "maxIndexNum"):
        _check_index_size(draft)


def _check_message_size(draft: SettingsDraft) -> None:
    file_size = draft.value("mappedFileSizeCommitLog")
    most = file_size - MIN_BLANK - MAX_RECORD_OVERHEAD
    if draft.value("maxMessageSize") > most:
        draft.refuse(
            "maxMessageSize",
            f"at most {most} with mappedFileSizeCommitLog={file_size}: "
            f"a body, {MAX_RECORD_OVERHEAD} bytes around it and {MIN_BLANK} must fit a log file",
        )
    elif not draft.given("maxMessageSize") and most < DEFAULT_MAX_MESSAGE_SIZE:
        draft.notes.append(
            f"maxMessageSize is {fitting_message_size(file_size)} instead of "
            f"{DEFAULT_MAX_MESSAGE_SIZE}: a record must fit a log file of {file_size} bytes"
        )


def _check_index_size(draft: SettingsDraft) -> None:
    slots, entries = draft.value("maxHashSlotNum"), draft.value("maxIndexNum")
    index_size = _INDEX_HEADER + _INDEX_SLOT * slots + _INDEX_ENTRY * entries
    if index_size > INT_MAX:
        name = "maxIndexNum" if draft.given("maxIndexNum") else "maxHashSlotNum"
        draft.refuse(
            name,
            f"{slots} slots and {entries} entries make an index file of {index_size} bytes, "
            f"at most {INT_MAX} are possible",
        )


def _check_times(draft: SettingsDraft) -> None:
    _check_roll_window(draft)
    heartbeat = draft.chosen["haSendHeartbeatInterval"]
    housekeeping = draft.chosen["haHousekeepingInterval"]
    if heartbeat.value < housekeeping.value or not draft.sound(
        "haSendHeartbeatInterval", "haHousekeepingInterval"
    ):
        return
    if draft.given("haHousekeepingInterval"):
        draft.refuse(
            "haHousekeepingInterval",
            f"more than haSendHeartbeatInterval={heartbeat.text}, or idle peers are closed",
        )
    else:
        draft.refuse(
            "haSendHeartbeatInterval",
            f"less than haHousekeepingInterval={housekeeping.text}, or idle peers are closed",
        )


def _check_roll_window(draft: SettingsDraft) -> None:
    if not draft.sound("timerRollWindowSlot", "timerPrecisionMs", "fileReservedTime"):
        return
    slot = TimerSettings.slot(draft.value("timerPrecisionMs"))
    most = int(draft.value("fileReservedTime") * 1000 / slot) - 1
    if draft.value("timerRollWindowSlot") > most:
        draft.refuse(
            "timerRollWindowSlot",
            f"at most {most} with fileReservedTime={draft.chosen['fileReservedTime'].text}: a "
            "message that waits longer is deleted with its log file",
        )


def _check_ports(draft: SettingsDraft) -> None:
    if not draft.sound("listenPort", "haListenPort", "adminListenPort"):
        return
    listen = draft.value("listenPort")
    if 0 < listen <= VIP_STEP:
        draft.refuse("listenPort", f"above {VIP_STEP}: there is a port {VIP_STEP} below it too")
    used: dict[int, str] = {listen - VIP_STEP: "listenPort"} if listen else {}
    _check_distinct(draft, ("listenPort", "haListenPort", "adminListenPort"), used)


def _check_distinct(draft: SettingsDraft, names: tuple[str, ...], used: dict[int, str]) -> None:
    for name in names:
        port = draft.value(name)
        if port > 65535:
            draft.refuse("listenPort", f"{name} would be {port}, the highest port is 65535")
        elif port and port in used:
            at_fault = name if draft.given(name) or not draft.given(used[port]) else used[port]
            other = used[port] if at_fault == name else name
            draft.refuse(at_fault, f"{port} is already a port of {other}")
        else:
            used[port] = name


def _check_folders(draft: SettingsDraft) -> None:
    if not draft.sound("storePathRootDir", "storePathCommitLog"):
        return
    root: Path = draft.value("storePathRootDir")
    taken = [root, *(root / name for name in (CONSUMEQUEUE, INDEX, CONFIG))]
    if draft.value("storePathCommitLog") in taken:
        draft.refuse("storePathCommitLog", "a folder of its own, used for nothing else")


def _check_master_address(draft: SettingsDraft) -> None:
    master = draft.value("haMasterAddress")
    if master is None or not draft.sound("brokerRole", "haListenPort", "listenPort"):
        return
    if draft.value("brokerRole").is_master:
        draft.notes.append(
            f"haMasterAddress={draft.chosen['haMasterAddress'].text} is for slaves; "
            "a master does not use it"
        )
        return
    host, port = master
    bound = draft.value("haListenAddress")
    mine = (bound,) if bound else (*_LOOPBACK, draft.value("brokerIP1"), draft.value("brokerIP2"))
    if host in mine and port == draft.value("haListenPort"):
        draft.refuse(
            "haMasterAddress",
            "another node's HA port; this is the node's own: two brokers on one machine differ in "
            f"listenPort, such as {draft.value('listenPort') + 10}",
        )


def _check_controller(draft: SettingsDraft) -> None:
    keys = ("enableControllerMode", "asyncLearner", "controllerAddr", "brokerRole", "haListenPort")
    etcd = ("controllerType", "etcdAddresses", "etcdUser", "etcdPasswordFile")
    if not draft.sound(
        *keys, *etcd, "haMasterAddress", "minInSyncReplicas", "allAckInSyncStateSet"
    ):
        return
    if not draft.value("enableControllerMode"):
        _check_classic(draft)
        return
    kind = draft.value("controllerType")
    asked = "etcdAddresses" if kind is ControllerType.ETCD else "controllerAddr"
    if not draft.value(asked):
        which = "" if kind is ControllerType.ROCKETMQ else f" and controllerType={kind}"
        draft.refuse(asked, f"not empty with enableControllerMode=true{which}")
    elif bool(draft.value("etcdUser")) != (draft.value("etcdPasswordFile") is not None):
        draft.refuse("etcdUser", "a user needs etcdPasswordFile, and that needs a user")
    elif draft.value("haMasterAddress") is not None:
        draft.refuse("haMasterAddress", "empty: the controller says who is master")
    elif not draft.value("asyncLearner"):
        _check_member(draft)
    elif draft.value("brokerRole").is_master:
        draft.refuse("asyncLearner", "false with a brokerRole of a master")
    elif draft.value("haListenPort"):
        draft.refuse("haListenPort", "0: nobody can follow a learner")


def _check_classic(draft: SettingsDraft) -> None:
    mode = "without enableControllerMode=true"
    if draft.value("asyncLearner"):
        draft.refuse("asyncLearner", f"false {mode}")
    if draft.value("allAckInSyncStateSet"):
        draft.refuse(
            "allAckInSyncStateSet",
            f"false {mode}: writes wait for inSyncReplicas copies, not for a set that changes",
        )
    if draft.value("minInSyncReplicas") > 1:
        draft.refuse(
            "minInSyncReplicas",
            f"1 {mode}: inSyncReplicas is never lowered, so it has no minimum; set inSyncReplicas",
        )


def _check_member(draft: SettingsDraft) -> None:
    if not draft.value("haListenPort"):
        draft.refuse("haListenPort", "not 0: members follow each other")
    if draft.given("allAckInSyncStateSet") and not draft.value("allAckInSyncStateSet"):
        draft.notes.append(
            "allAckInSyncStateSet=false is not followed: a SYNC write waits for all of the "
            "SyncStateSet"
        )


def _check_tls(draft: SettingsDraft) -> None:
    if not draft.sound("tlsMode", "tlsKeyPath", "tlsCertPath", "tlsTrustCertPath", "tlsClientAuth"):
        return
    _check_pair(draft, "tlsKeyPath", "tlsCertPath", "tlsMode")
    if (
        draft.value("tlsClientAuth") is not ClientAuth.NONE
        and draft.value("tlsTrustCertPath") is None
    ):
        draft.refuse("tlsClientAuth", "asking for certificates needs tlsTrustCertPath")


def _check_pair(draft: SettingsDraft, key_name: str, cert_name: str, mode: str = "") -> None:
    key, cert = draft.value(key_name), draft.value(cert_name)
    if (key is None) != (cert is None):
        missing = cert_name if cert is None else key_name
        draft.refuse(missing, "a key needs its certificate, and a certificate its key")
    elif mode and cert is None and draft.value(mode) is TlsMode.ENFORCING:
        draft.refuse(mode, f"enforcing needs {key_name} and {cert_name}")


def check_own_tls(draft: SettingsDraft) -> None:
    """Check the keys of TLS that a node connects with, and of replication."""
    names = [key.name for key in draft.known.keys if key.section == "tls"]
    if not draft.sound(*names):
        return
    _check_pair(draft, "tlsClientKeyPath", "tlsClientCertPath")
    _check_pair(draft, "haTlsKeyPath", "haTlsCertPath", "haTlsMode")
    _check_pair(draft, "etcdTlsKeyPath", "etcdTlsCertPath")
    if draft.value("etcdTlsCertPath") and not draft.value("etcdTlsTrustCertPath"):
        draft.refuse("etcdTlsTrustCertPath", "not empty with etcdTlsCertPath")
    checks = draft.value("tlsClientAuthServer")
    if checks and draft.value("tlsClientTrustCertPath") is None:
        draft.refuse("tlsClientAuthServer", "checking certificates needs tlsClientTrustCertPath")
    elif draft.value("tlsCheckNames") and not checks and draft.value("tlsEnable"):
        draft.refuse("tlsCheckNames", "false, or tlsClientAuthServer true: both are checked")


ROLES: dict[str, tuple[BrokerRole, ...]] = {
    "master": (BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER),
    "slave": (BrokerRole.SLAVE,),
    "member": (BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE),
}
"""What C{--role} allows C{brokerRole} to be; the first one is its default."""

OF_A_SLAVE = ("brokerRole", "brokerId", "haMasterAddress", "haMasterClientAddress")
"""Keys that are others in a master's file."""

BEFORE = ".before-failover"
"""What the name of a slave's file ends with that is kept where it was made a master's."""

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
    return Settings(**sections, ignored=tuple(draft.ignored), notes=tuple(draft.notes))
