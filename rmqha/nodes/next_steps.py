"""What to do about each reason why a node is not well: the next command, and the page with the
rest.

Source: docs/status.rst, Health.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from rmqha.nodes.poll import PollResult
from rmqha.nodes.summary import STOCK, attention


@frozen
class NextStep:
    """What comes next.

    @ivar command: What to type on the node's machine, or to do.
    @ivar page: Where the whole of it is, below C{docs}.
    """

    command: str
    page: str


_STATUS, _STATES, _RUNBOOKS = "status.rst", "states.rst", "runbooks"

_RESTART = "systemctl restart rmqha@broker"
_ROOM = NextStep("du -sh {store}.* {store}/*", f"{_RUNBOOKS}/disk-nearly-full.rst")
_TWO = NextStep("rmqha diverge {store} --against NEW-MASTER:10912", f"{_RUNBOOKS}/two-masters.rst")
_REPAIR = NextStep("rmqha verify {store}", f"{_RUNBOOKS}/damaged-file.rst")
_COMPARE = "rmqha diverge {store} --against {master}"
_TABLES = NextStep("rmqha tables {store}", f"{_STATES}, Damaged tables")
_DISK = NextStep(
    f"dmesg | tail; when the disk works again {_RESTART}", f"{_STATES}, A failed fsync"
)
_CHECK = "rmqha config check /etc/rmqha/broker.conf"
_JOB = NextStep("rmqha status {node} --all", f"{_STATUS}, Periodic jobs")
_MASTER = "rmqha failover /etc/rmqha/broker.conf --dry-run"

NEXT_STEPS: Mapping[str, NextStep] = {
    "recovering": NextStep("rmqha status {node} --watch 1", f"{_STATES}, Node states"),
    "stopped": NextStep("systemctl start rmqha@broker", f"{_STATES}, Node states"),
    "failed": _DISK,
    "fenced": _TWO,
    "read-only": _ROOM,
    "disk-full": _ROOM,
    "disk-filling": _ROOM,
    "member": NextStep(
        "rmqha controller status CONTROLLERS --set NAME", f"{_STATES}, Members of a set"
    ),
    "no-controller": NextStep(
        "rmqha controller status CONTROLLERS", f"{_STATES}, Members of a set"
    ),
    "no-lease": NextStep("rmqha set list FILE", "guide/etcd.rst, When etcd is away"),
    "paused": NextStep("rmqha set resume FILE", "guide/etcd.rst, A pause"),
    "etcd-alarm": NextStep("etcdctl alarm list", "guide/etcd.rst, When etcd is full"),
    "no-master": NextStep(_MASTER, f"{_RUNBOOKS}/master-dead.rst"),
    "first-copy": NextStep("rmqha status {node} --watch 1", f"{_STATES}, Replication states"),
    "too-few-replicas": NextStep("rmqha slots {node}", f"{_RUNBOOKS}/slave-dead.rst"),
    "replica-away": NextStep("rmqha slots {node}", f"{_RUNBOOKS}/slave-dead.rst"),
    "older-tables": _TABLES,
    "changed-tables": _TABLES,
    "lost-tail": NextStep(
        "rmqha repair {store} --from REPLICA:10912 --dry-run", f"{_STATES}, A lost tail"
    ),
    "clock-behind-log": NextStep("timedatectl", f"{_STATES}, A clock that was wrong"),
    "cold-difference": NextStep(_COMPARE, f"{_STATES}, Cold damage"),
    "cold-damage": _REPAIR,
    "faults-from-master": _REPAIR,
    "not-registered": NextStep(_CHECK, f"{_STATUS}, Health"),
    "another-broker": NextStep(_CHECK, f"{_STATUS}, Health"),
    "twin": _TWO,
    "name-servers-disagree": NextStep(
        "rmqha status --name-server HOST:9876, of each of them", f"{_RUNBOOKS}/two-masters.rst"
    ),
    "not-publishing": NextStep("rmqha status {node} --all", f"{_STATUS}, Health"),
    "accounts": NextStep(_CHECK, "guide/access-control.rst"),
    "tls-files": NextStep(_CHECK, "guide/tls.rst"),
    "tls-expiry": NextStep("rmqha status {node} --all", "guide/tls.rst, Renew them"),
    "failing-job": _JOB,
    "stuck-job": _JOB,
    "dead-job": NextStep(_RESTART, f"{_STATUS}, Periodic jobs"),
    "replication-unproven": NextStep(_COMPARE, f"{_STATES}, Replication states"),
    "replication-below-min": NextStep(
        "rmqha reinit MASTER {store}", f"{_STATES}, Below the master's first byte"
    ),
    "replication-ahead": NextStep(_COMPARE, f"{_STATES}, Ahead"),
    "replication-diverged": NextStep(_COMPARE, f"{_STATES}, Diverged"),
    "replication-lower-epoch": _TWO,
    "replication-gap": NextStep("rmqha events {node}", f"{_STATES}, Replication states"),
    "replication-file-size": NextStep(
        "rmqha reinit MASTER {store}", f"{_STATES}, Replication states"
    ),
    "replication-disk-full": _ROOM,
    "replication-failed": _DISK,
    "replication-stopped": NextStep("systemctl start rmqha@broker", f"{_STATES}, Node states"),
}
"""By the name of a reason, or by how a group of names begins."""

UNREACHED = NextStep("systemctl status rmqha@broker", f"{_RUNBOOKS}/master-dead.rst")
"""For a node that gives no answer."""

NOT_LOOKED_INTO = NextStep("mqadmin brokerStatus -b {node}", "guide/behind-java.rst")
"""For a node of RocketMQ, which tells no reasons."""


def next_step(reason: str) -> NextStep | None:
    """That of a reason; C{None} for one of a version that has others."""
    found = (name for name in NEXT_STEPS if reason == name or reason.startswith(f"{name}-"))
    return NEXT_STEPS.get(max(found, key=len, default=""))


def advice(node: str, seen: PollResult) -> Iterator[tuple[str, NextStep | None]]:
    """What is wrong with a node, and what comes next; after that what should be looked at.

    @param node: The address that a person gave.
    """
    status: Mapping[str, Any] = seen.status or {}
    upstream = status.get("upstream") or {}
    known = {"node": node, "store": status.get("store"), "master": upstream.get("address")}
    names = defaultdict(lambda: "...", {name: at for name, at in known.items() if at})
    for reason in seen.reasons:
        step = next_step(reason.get("name", ""))
        if step is not None:
            step = NextStep(step.command.format_map(names), step.page)
        yield f"{reason.get('name')}: {reason.get('text')}", step
    if status.get("product") == STOCK:
        text = f"{status.get('reason')}: whether anything is wrong with it is not known"
        yield text, NextStep(NOT_LOOKED_INTO.command.format_map(names), NOT_LOOKED_INTO.page)
    for text in attention(status):
        yield text, None
