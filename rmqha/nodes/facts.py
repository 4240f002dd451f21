"""What the page of a node tells of it: a text for each fact, and what the node has refused.

Source: docs/guide/page.rst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from rmqha.config.load import NAMESRV
from rmqha.nodes.summary import (
    NORMAL,
    Status,
    attention,
    brokers_and_masters,
    disk_of,
    duration,
    log_of,
    member_of,
    registration_of,
    replication_of,
    size,
    state_of,
    waiting_of,
    writes_of,
)


@frozen
class Fact:
    """One thing about a node, in words."""

    name: str
    text: str


def facts_of(status: Status) -> tuple[Fact, ...]:
    """All of a node, each with its name; what it does not tell is left out."""
    version = status.get("version", "unknown")
    found = [
        ("state", state_of(status)),
        ("version", f"rmqha {version}, up {duration(status.get('uptimeSeconds'))}"),
        *(brokers_and_masters(status) if status.get("role") == NAMESRV else _broker(status)),
        ("attention", "; ".join(attention(status))),
    ]
    return tuple(Fact(name, text) for name, text in found if text)


def _broker(status: Status) -> list[tuple[str, str]]:
    remoting = status.get("remoting") or {}
    epoch = status.get("masterEpoch")
    return [
        ("epoch", "" if epoch is None else f"master epoch {epoch}"),
        ("replication", replication_of(status)),
        ("set", member_of(status)),
        ("log", log_of(status)),
        ("writes", writes_of(status) or ("none yet" if "writes" in status else "")),
        ("put p99", _p99(status)),
        ("disk", disk_of(status)),
        ("scrub", _scrub(status)),
        ("slots", _slots(status)),
        ("registration", registration_of(status)),
        ("clients", f"{remoting.get('connections', 0)} connections"),
        *waiting_of(status),
    ]


def _p99(status: Status) -> str:
    # 0 is that there were no writes lately.
    found = (status.get("putMillis") or {}).get("p99")
    return f"{found:.1f} ms" if found else ""


def _scrub(status: Status) -> str:
    found = status.get("scrub")
    if not found:
        return ""
    start, end, at = (found.get(name) for name in ("passFrom", "passTo", "position"))
    if not found.get("bytesPerSecond"):
        going = "off"
    elif at is not None and end is not None and end > start:
        going = f"{(at - start) / (end - start):.0%} of a pass"
    elif found.get("lastPassAge") is not None:
        going = f"last pass {duration(found['lastPassAge'])} ago"
    else:
        going = "no pass yet"
    faults = found.get("faultCount") or 0
    return f"{going}; {faults} damaged ranges" if faults else f"{going}; nothing damaged"


def _slots(status: Status) -> str:
    rows = status.get("retentionSlots")
    if rows is None:
        return ""
    away = [row for row in rows if not row.get("connected")]
    if not away:
        return f"{len(rows)} known, none away" if rows else "none"
    held = size(sum(row.get("bytes") or 0 for row in away))
    return f"{held} kept for {', '.join(str(row.get('address')) for row in away)}"


@frozen
class Refusal:
    """Connections or requests that a node did not serve, as often as it was so.

    @ivar port: C{clients} or C{HA}.
    @ivar reason: As the status has it; of a request its name, or its code.
    @ivar client: The host it came from, where that is known.
    @ivar count: Since the start of the node.
    """

    port: str
    reason: str
    client: str = ""
    count: int = 0


def refusals_of(status: Status) -> list[Refusal]:
    """The commonest first."""
    remoting = status.get("remoting") or {}
    found = [
        *_closed("HA", status.get("closedConnections")),
        *_closed("clients", remoting.get("closed") or status.get("closed")),
    ]
    rows = remoting.get("refusedRequests") or status.get("refusedRequests") or ()
    for row in rows:
        reason = f"request {row.get('name') or row.get('code')}"
        found.append(Refusal("clients", reason, str(row.get("client", "")), row.get("count", 0)))
    return sorted(found, key=lambda refusal: -refusal.count)


def _closed(port: str, counts: Mapping[str, int] | None) -> Iterator[Refusal]:
    for reason, count in (counts or {}).items():
        if reason not in NORMAL:
            yield Refusal(port, reason, count=count)


def lag_of(status: Status) -> tuple[float | None, float | None]:
    """How far a slave is behind its master, or the last of a master's replicas behind it.

    @return: In seconds and in bytes; C{None} for what is not known, or where there is nobody.
    """
    upstream = status.get("upstream")
    rows = [upstream] if upstream is not None else status.get("replicas") or []
    seconds, held = (
        [row[name] for row in rows if row.get(name) is not None]
        for name in ("lagSeconds", "lagBytes")
    )
    return max(seconds, default=None), max(held, default=None)
