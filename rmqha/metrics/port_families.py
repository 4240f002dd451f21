"""What /status tells of the process, its ports, and what a name server knows.

Source: docs/guide/metrics.rst; docs/status.rst, Status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rmqha.broker.cluster.registration import REGISTERED
from rmqha.metrics.status_family import (
    MILLIS,
    Found,
    Read,
    Status,
    StatusFamily,
    at,
    counted,
    counter,
    each,
    gauge,
    get,
    labels_of,
    length,
)


def of_processes() -> Iterator[StatusFamily]:
    """Of the process, whatever its role."""
    yield gauge(
        "info", "1", "Always 1; the labels say what runs.", "version", _info, "version", "role"
    )
    yield gauge("uptime_seconds", "seconds", "How long the process has been up.", "uptimeSeconds")
    yield gauge(
        "job_seconds_since_run",
        "seconds",
        "How long ago a periodic job was last begun.",
        "periodicJobs",
        each("periodicJobs", "secondsSinceRun", "name"),
        "job",
    )
    yield counter(
        "job_failures",
        "runs",
        "Failed runs of a periodic job.",
        "periodicJobs",
        each("periodicJobs", "failures", "name"),
        "job",
    )


def of_certificates() -> Iterator[StatusFamily]:
    """Of the certificates that the process shows."""
    yield gauge(
        "tls_certificate_seconds_left",
        "seconds",
        "How long a certificate is still valid, by what it is for; below 0 it is not any more.",
        "tls.secondsLeft",
        each("tls", "secondsLeft", "role"),
        "role",
    )
    yield counter(
        "tls_reloads",
        "reloads",
        "Changed certificate files that came into force.",
        "tls.reloads",
        each("tls", "reloads", "role"),
        "role",
    )
    yield counter(
        "tls_reload_failures",
        "reloads",
        "Changed certificate files that could not be used.",
        "tls.reloadFailures",
        each("tls", "reloadFailures", "role"),
        "role",
    )
    yield counter(
        "clear_text_connections",
        "connections",
        "Connections in clear text to a port that takes TLS too.",
        "clearText.connections",
        each("clearText", "connections", "port"),
        "port",
    )


def _info(status: Status) -> Found:
    if "version" in status:
        yield labels_of(status, ("version", "role")), 1


def of_ports() -> Iterator[StatusFamily]:
    """Of the ports that clients connect to."""
    yield gauge(
        "client_connections",
        "connections",
        "Open connections of clients, on the client ports or the name server's.",
        "remoting.connections",
        _either("connections", at("remoting.connections")),
    )
    yield counter(
        "client_closed",
        "connections",
        "Ended or refused connections of clients, by reason.",
        "remoting.closed",
        _either("closed", counted("remoting.closed")),
        "reason",
    )
    yield counter(
        "outgoing_closed",
        "connections",
        "Ended connections to name servers and other brokers, by reason.",
        "remoting.toOtherNodes.closed",
        counted("remoting.toOtherNodes.closed"),
        "reason",
    )
    yield counter(
        "requests",
        "requests",
        "Requests that are served, by name.",
        "remoting.requests",
        counted("remoting.requests"),
        "request",
    )
    yield counter(
        "refused_requests",
        "requests",
        "Requests that nothing here serves, by code and client.",
        "remoting.refusedRequests",
        _refused,
        "code",
        "client",
    )
    yield gauge(
        "registered",
        "1",
        "Whether the last registration at a name server went well.",
        "remoting.nameServers",
        lambda status: (
            ((server,), said == REGISTERED)
            for server, said in (get(status, "remoting.nameServers") or {}).items()
        ),
        "nameserver",
    )
    yield gauge(
        "older_tables",
        "tables",
        "Tables whose newest file could not be read at the start.",
        "remoting.olderTables",
        length("remoting.olderTables"),
    )
    yield gauge(
        "offset_journal_pending",
        "offsets",
        "Changed offsets that the journal does not have yet.",
        "remoting.offsetJournal.pending",
    )


def _either(of_namesrv: str, of_broker: Read) -> Read:
    """What a name server has at the top of its status, a broker has with its client ports."""

    def read(status: Status) -> Found:
        if status.get("role") != "namesrv":
            return of_broker(status)
        value = status.get(of_namesrv)
        if isinstance(value, Mapping):
            return (((name,), n) for name, n in value.items())
        return (((), value),)

    return read


def _refused(status: Status) -> Found:
    rows = get(status, "remoting.refusedRequests") or status.get("refusedRequests") or ()
    return (((str(row["code"]), row["client"]), row["count"]) for row in rows)


def of_delays() -> Iterator[StatusFamily]:
    """Of delayed messages."""
    yield gauge(
        "delayed_messages",
        "messages",
        "Messages that wait in a delay level.",
        "remoting.delayed.levels",
        lambda status: (
            ((level,), row["pending"])
            for level, row in (get(status, "remoting.delayed.levels") or {}).items()
        ),
        "level",
    )
    yield counter(
        "delayed_undeliverable",
        "messages",
        "Delayed messages that could not be delivered.",
        "remoting.delayed.undeliverable",
    )
    for name in ("p50", "p99", "max"):
        yield gauge(
            f"delayed_late_{name}_seconds",
            "seconds",
            "How late delayed messages were delivered.",
            f"remoting.delayed.lateMillis.{name}",
            at(f"remoting.delayed.lateMillis.{name}", MILLIS),
        )


def of_timers() -> Iterator[StatusFamily]:
    """Of timer messages."""
    yield gauge(
        "timer_messages",
        "messages",
        "Messages that wait for a time of their own.",
        "remoting.timers.pending",
        lambda status: (
            ((topic,), count)
            for topic, count in (get(status, "remoting.timers.pending") or {}).items()
        ),
        "topic",
    )
    yield counter(
        "timer_undeliverable",
        "messages",
        "Timer messages that could not be delivered.",
        "remoting.timers.undeliverable",
    )
    for name in ("p50", "p99", "max"):
        yield gauge(
            f"timer_late_{name}_seconds",
            "seconds",
            "How late timer messages were delivered.",
            f"remoting.timers.lateMillis.{name}",
            at(f"remoting.timers.lateMillis.{name}", MILLIS),
        )


def of_pop() -> Iterator[StatusFamily]:
    """Of messages that were handed out."""
    yield gauge(
        "pop_check_points", "check points", "Open check points.", "remoting.pop.checkPoints"
    )
    yield gauge(
        "pop_unacked_messages",
        "messages",
        "Messages that were handed out and are not acknowledged.",
        "remoting.pop.unacked",
        lambda status: (
            ((group,), count)
            for group, count in (get(status, "remoting.pop.unacked") or {}).items()
        ),
        "group",
    )
    yield gauge(
        "pop_first_due_timestamp_seconds",
        "seconds",
        "When the first open check point is due, in seconds since 1970.",
        "remoting.pop.firstDue",
        at("remoting.pop.firstDue", MILLIS),
    )
    yield counter(
        "pop_revived",
        "messages",
        "Messages that came again, as they were not acknowledged in time.",
        "remoting.pop.revived",
    )
    yield counter(
        "pop_not_revived",
        "messages",
        "Messages that were deleted or damaged before they could come again.",
        "remoting.pop.notRevived",
    )
    yield gauge("pop_waiting", "requests", "Pops that wait for a message.", "remoting.pop.waiting")


def of_name_servers() -> Iterator[StatusFamily]:
    """Of a name server."""
    labels = "cluster", "brokerName", "brokerId"
    shown = "broker_cluster", "broker_name", "broker_id_there"
    yield gauge(
        "broker_silent_seconds",
        "seconds",
        "Since a broker last registered or sent a heartbeat.",
        "brokers.secondsSilent",
        each("brokers", "secondsSilent", *labels, "address"),
        *shown,
        "address",
    )
    yield gauge(
        "brokers",
        "brokers",
        "Registered brokers of a brokerName, its master and its slaves.",
        "brokers",
        _brokers,
        *shown[:2],
    )
    yield gauge(
        "masters",
        "masters",
        "Live masters of a brokerName, those refused included: not 1 is wrong.",
        "brokers, refusedMasters",
        _masters,
        "broker_name",
    )
    yield gauge("route_topics", "topics", "Topics with a route.", "topics", _route_topics)


def _brokers(status: Status) -> Found:
    rows = status.get("brokers") or ()
    return Counter(labels_of(row, ("cluster", "brokerName")) for row in rows).items()


def _masters(status: Status) -> Found:
    if status.get("role") != "namesrv":
        return
    rows = status.get("brokers") or ()
    masters = Counter({row["brokerName"]: 0 for row in rows})
    masters.update(row["brokerName"] for row in rows if row["brokerId"] == 0)
    masters.update(row["brokerName"] for row in status.get("refusedMasters") or ())
    for name, count in masters.items():
        yield (name,), count


def _route_topics(status: Status) -> Found:
    if status.get("role") == "namesrv":
        yield (), status.get("topics")
