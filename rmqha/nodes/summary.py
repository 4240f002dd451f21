"""What matters of a node, for people.  A node may be of another version: what it does not tell is
left out.

Source: docs/status.rst, Status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.filesize import decimal

from rmqha.config.load import NAMESRV
from rmqha.nodes.poll import PollResult

Status = Mapping[str, Any]

STOCK = "stock"
"""C{product} of a node without an admin port, as RocketMQ's have none."""

NORMAL = frozenset({"peer", "stopped", "idle", "not-serving"})
"""Why connections end every day: a slave that is there before its master has opened its log comes
again.
"""

FILLING = 0.8
"""How full a disk is that should be looked at; the first alert's value."""

MOST = 5
"""How many groups or topics are told by name."""

_SPANS = ((86400, "d"), (3600, "h"), (60, "min"))


def duration(seconds: float | None) -> str:
    """A time for people: its two largest units."""
    if seconds is None:
        return "unknown"
    for index, (span, unit) in enumerate(_SPANS):
        if seconds >= span:
            whole, rest = divmod(int(seconds), span)
            below, name = _SPANS[index + 1] if index + 1 < len(_SPANS) else (1, "s")
            return f"{whole} {unit} {rest // below} {name}"
    return f"{seconds:.1f} s"


def size(count: float | None) -> str:
    """Bytes for people."""
    return "unknown" if count is None else decimal(int(count))


def lines(seen: PollResult) -> list[tuple[str, str]]:
    """The six lines of a node, each with its name, and that of its set if it is a member of one."""
    status = seen.status or {}
    body = brokers_and_masters(status) if status.get("role") == NAMESRV else _broker(status)
    wrong = [*([seen.problem] if seen.problem else []), *attention(status)]
    return [
        ("node", _identity(status)),
        ("state", state_of(status)),
        *body,
        ("attention", "; ".join(wrong) or "nothing"),
    ]


# --- the lines ------------------------------------------------------------------------------


def name_of(status: Status) -> str:
    """A broker's name and C{brokerId}; empty for a name server."""
    name = status.get("brokerName")
    return f"{name}/{status.get('brokerId')}" if name else ""


def _identity(status: Status) -> str:
    name = name_of(status)
    role = status.get("role")
    server = "name server" if role in (NAMESRV, None) else str(role)
    who = f"{name}, {role} in {status.get('clusterName')}" if name else server
    up = duration(status.get("uptimeSeconds"))
    version = status.get("version", "of an unknown version")
    if status.get("product") == STOCK:
        return f"{who}; RocketMQ {version}, up {up}"
    return f"{who}; rmqha {version}, up {up}, process {status.get('pid')}"


def state_of(status: Status) -> str:
    """The state of a node, of its replication if it is a slave, and why."""
    state, reason = str(status.get("state", "unknown")), status.get("reason")
    upstream = (status.get("upstream") or {}).get("state")
    both = f"{state}, {upstream}" if upstream else state
    return f"{both}: {reason}" if reason else both


def _broker(status: Status) -> list[tuple[str, str]]:
    log, use, member = log_of(status), disk_of(status), member_of(status)
    return [
        ("log", f"{log}; disk {use}" if use else log),
        ("replication", replication_of(status)),
        *([("set", member)] if member else []),
        ("clients", _clients(status)),
    ]


def log_of(status: Status) -> str:
    """Which bytes the log holds, and what of them is not where it belongs yet."""
    first, end = status.get("minOffset"), status.get("maxOffset")
    if first is None or end is None:
        return "not open yet"
    parts = [f"bytes {first} to {end} ({size(end - first)})"]
    for name, text in (("flushedOffset", "on the disk"), ("dispatchedOffset", "in the queues")):
        at = status.get(name)
        if at is not None and at < end:
            parts.append(f"{size(end - at)} not yet {text}")
    return "; ".join(parts)


def disk_of(status: Status) -> str:
    """How full the disk of the log is; empty where that is not known."""
    use = (status.get("retention") or {}).get("diskUse")
    return "" if use is None else f"{use:.0%} full"


def replication_of(status: Status) -> str:
    """How it goes with the master of a slave, or with the replicas of a master."""
    return _upstream(status) or _downstream(status)


def _upstream(status: Status) -> str:
    found = status.get("upstream")
    if found is None:
        return ""
    where = found.get("address") or "no master yet"
    parts = [f"{found.get('state')} with {where}"]
    if found.get("reason"):
        parts.append(str(found["reason"]).rstrip("."))
    if behind := behind_of(status):
        parts.append(f"{behind} behind")
    parts.append(f"master heard {duration(found.get('secondsSilent'))} ago")
    return "; ".join(parts)


def behind_of(status: Status) -> str:
    """How far a slave is behind its master; empty for what is none, and for one that has more."""
    found = status.get("upstream")
    if found is None or found.get("state") == "ahead":
        return ""
    lag, age = found.get("lagBytes"), found.get("lagSeconds")
    return f"{size(lag)}, {duration(age)}" if lag is not None else duration(age)


def _downstream(status: Status) -> str:
    rows = status.get("replicas")
    if rows is None:
        return ""  # the store is not open yet
    synced = replicas_in_sync(status)
    head = f"{synced} replicas in sync" if synced else "no replicas"
    each = [
        f"{row.get('address')} {row.get('state')}, {size(row.get('lagBytes'))} and "
        f"{duration(row.get('lagSeconds'))} behind{_together(row)}"
        for row in rows
    ]
    return "; ".join([head, *each])


def _together(row: Status) -> str:
    """Whether others behind a replica's address count as one with it."""
    connections = row.get("connections") or 0
    return f" (one of {connections} that count as one)" if connections > 1 else ""


def replicas_in_sync(status: Status) -> str:
    """How many are in sync, of how many that there are or should be; empty where nobody is."""
    rows = status.get("replicas") or ()
    wanted = max(len(rows), status.get("replicasNeeded") or 0)
    synced = sum(row.get("state") == "in-sync" for row in rows)
    return f"{synced} of {wanted}" if wanted else ""


def member_of(status: Status) -> str:
    """How a member stands in its set, and with whom that elects; empty for any other node."""
    found = status.get("controller")
    if not found:
        return ""
    known = found.get("set") or (status.get("upstream") or {}).get("controller") or {}
    parts = [f"member {found.get('id')}, {found.get('state')}, epoch {found.get('masterEpoch')}"]
    if numbers := known.get("syncStateSet"):
        parts.append(f"in sync {', '.join(map(str, numbers))}")
    if (etcd := found.get("etcd")) is None:
        leader = found.get("leader")
        parts.append(f"controller {leader} leads" if leader else "no controller leads")
    else:
        left = (found.get("lease") or {}).get("secondsLeft")
        parts.append("no lease" if left is None else f"lease for {duration(max(0.0, left))}")
        answers = [row["address"] for row in etcd.get("members") or () if row.get("answers")]
        took = 1000 * (etcd.get("latencySeconds") or 0.0)
        parts.append(
            f"etcd {answers[0]} answers in {took:.1f} ms" if answers else "no etcd answers"
        )
    return "; ".join(parts)


def _clients(status: Status) -> str:
    remoting = status.get("remoting") or {}
    parts = [f"{remoting.get('connections', 0)} connections"]
    if "topics" in remoting:
        parts.append(f"{remoting['topics']} topics, {remoting.get('groups')} groups")
    servers = remoting.get("nameServers") or {}
    if servers:
        there = sum(said == "registered" for said in servers.values())
        parts.append(f"registered at {there} of {len(servers)} name servers")
    writes = writes_of(status)
    if writes:
        parts.append(f"writes {writes}")
    parts += [f"{name}: {text}" for name, text in waiting_of(status) if text]
    return "; ".join(parts)


def waiting_of(status: Status) -> list[tuple[str, str]]:
    """What was handed out by POP, by group, and which timer messages wait, by topic; each with its
    name, and empty without any.
    """
    remoting = status.get("remoting") or {}
    pop, timers = remoting.get("pop") or {}, remoting.get("timers") or {}
    held = _most(pop.get("unacked") or {})
    held = f"{held} ({pop.get('checkPoints')} check points)" if held else ""
    return [("not acknowledged", held), ("timer messages", _most(timers.get("pending") or {}))]


def _most(counts: Mapping[str, int]) -> str:
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    told = [f"{count} of {name}" for name, count in rows[:MOST]]
    if more := rows[MOST:]:
        told.append(f"{sum(count for _, count in more)} of {len(more)} others")
    return ", ".join(told)


def writes_of(status: Status) -> str:
    """How many writes a master has answered with which status; empty without any."""
    found = (status.get("writes") or {}).items()
    return ", ".join(f"{count} {name}" for name, count in found if count)


def registration_of(status: Status) -> str:
    """What each name server said last; empty without any."""
    servers = (status.get("remoting") or {}).get("nameServers") or {}
    return "; ".join(f"{server} {said}" for server, said in servers.items())


def brokers_and_masters(status: Status) -> list[tuple[str, str]]:
    """What a name server knows, each with its name."""
    rows = status.get("brokers") or []
    brokers = [
        f"{row['brokerName']}/{row['brokerId']} {row['address']} heard "
        f"{duration(row['secondsSilent'])} ago"
        for row in rows
    ]
    masters = Counter({row["brokerName"]: 0 for row in rows})
    masters.update(row["brokerName"] for row in rows if row["brokerId"] == 0)
    without = sorted(name for name, count in masters.items() if not count)
    return [
        ("brokers", "; ".join(brokers) or "none"),
        ("masters", f"none of {', '.join(without)}" if without else f"of all {len(masters)} names"),
        ("clients", f"{status.get('connections')} connections; {status.get('topics')} topics"),
    ]


# --- what an operator should know -------------------------------------------------------------


def attention(status: Status) -> Iterator[str]:
    """What is not wrong enough for C{/healthz}, and should be looked at."""
    remoting, retention = status.get("remoting") or {}, status.get("retention") or {}
    if (retention.get("diskUse") or 0.0) > FILLING:
        yield f"disk {disk_of(status)}"
    if retention.get("lostBytes"):
        yield f"{size(retention['lostBytes'])} deleted that a replica needed"
    faults = (status.get("scrub") or {}).get("faultCount")
    if faults:
        yield f"{faults} damaged ranges in the log"
    if status.get("servedFaults"):
        yield f"{status['servedFaults']} messages could not be read"
    if unreadable := (remoting.get("delayed") or {}).get("unreadable"):
        yield f"{unreadable} delayed messages are in queues that are no longer read"
    stale = [row["name"] for row in status.get("readers") or () if row.get("state") == "stale"]
    if stale:
        yield f"Spark streams that read no more: {', '.join(map(str, stale))}"
    master = str((status.get("upstream") or {}).get("address") or "").rpartition(":")[0].strip("[]")
    away = [
        row
        for row in status.get("retentionSlots") or ()
        # Of two that have changed their roles, one is the other's slave no more.
        if not row.get("connected") and row["address"] != master
    ]
    if away:
        held = size(sum(row.get("bytes") or 0 for row in away))
        yield f"{held} kept for replicas that are away: {', '.join(row['address'] for row in away)}"
    servers = remoting.get("nameServers") or {}
    silent = [
        f"{name}: {said}" for name, said in servers.items() if said not in ("registered", "not yet")
    ]
    if silent and len(silent) < len(servers):
        yield f"not registered at {'; '.join(silent)}"
    strange = {
        name: count
        for name, count in (status.get("closedConnections") or {}).items()
        if name not in NORMAL
    }
    if strange:
        text = ", ".join(f"{count} {name}" for name, count in strange.items())
        yield f"HA port connections refused: {text}"
    refused = remoting.get("refusedRequests") or status.get("refusedRequests") or ()
    if refused:
        first = refused[0]
        yield (
            f"{sum(row['count'] for row in refused)} requests refused, the most {first['name']} "
            f"from {first['client']}"
        )
    failing = [row["name"] for row in status.get("periodicJobs") or () if row.get("failuresInARow")]
    if failing:
        yield f"failing: {', '.join(failing)}"
