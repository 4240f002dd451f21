"""All metrics there are, by what they are about.

Source: docs/guide/metrics.rst; docs/status.rst, Status.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rmqha.broker.cluster.metadata_tables import TableState
from rmqha.broker.cluster.registration import REGISTERED
from rmqha.controller.member_state import MemberState
from rmqha.ha.master.replicas import ReplicaState
from rmqha.ha.states import NodeState, SyncState
from rmqha.metrics import broker_families, node_families
from rmqha.metrics.family import Family, Sample
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
    each_name,
    flag,
    gauge,
    get,
    labels_of,
    length,
    millis,
    one_of,
    yes,
)


def _info(status: Status, _field: str) -> Found:
    if "version" in status:
        yield labels_of(status, ("version", "role")), 1


def _either(read: Read) -> Read:
    """What a name server has at the top of its status, a broker has with its client ports."""
    return lambda status, field: read(
        status, field.rpartition(".")[2] if status.get("role") == "namesrv" else field
    )


def _refused(status: Status, field: str) -> Found:
    rows = get(status, field) or status.get("refusedRequests") or ()
    return (((str(row["code"]), row["client"]), row["count"]) for row in rows)


def _late(name: str, field: str) -> Iterator[StatusFamily]:
    for part in ("p50", "p99", "max"):
        path = f"remoting.{field}.lateMillis.{part}"
        text = f"How late {name} messages were delivered."
        yield gauge(f"{name}_late_{part}_seconds", text, path, millis)


def _brokers(status: Status, field: str) -> Found:
    rows = status.get(field) or ()
    return Counter(labels_of(row, ("cluster", "brokerName")) for row in rows).items()


def _masters(status: Status, _fields: str) -> Found:
    if status.get("role") != "namesrv":
        return
    rows = status.get("brokers") or ()
    masters = Counter({row["brokerName"]: 0 for row in rows})
    masters.update(row["brokerName"] for row in rows if row["brokerId"] == 0)
    masters.update(row["brokerName"] for row in status.get("refusedMasters") or ())
    for name, count in masters.items():
        yield (name,), count


def _route_topics(status: Status, field: str) -> Found:
    if status.get("role") == "namesrv":
        yield (), status.get(field)


def _replica_states(status: Status, _field: str) -> Found:
    return ((labels_of(row, ("address", "state")), 1) for row in status.get("replicas") or ())


def _in_sync(status: Status, _field: str) -> Found:
    if "replicas" in status:
        states = [row["state"] for row in status["replicas"]]
        yield (), states.count(ReplicaState.IN_SYNC.value)


def _ha(status: Status, field: str) -> Found:
    if "closedConnections" in status:
        yield (), status.get(field)


def _slots(status: Status, _field: str) -> Found:
    # Of several behind one address the one that lacks most.
    most: dict[tuple[str, ...], int] = {}
    for row in status.get("retentionSlots") or ():
        labels = str(row["address"]), str(row["connected"]).lower()
        most[labels] = max(row["bytes"], most.get(labels, 0))
    yield from most.items()


def _tables(value: Callable[[Status], Any]) -> Read:
    """Something of each table that a slave copies."""

    def read(status: Status, _field: str) -> Found:
        for name, row in (status.get("metadata") or {}).items():
            if isinstance(row, Mapping) and "adopted" in row:
                yield (name,), value(row)

    return read


def _copied(row: Status) -> bool | None:
    """C{None} of a table that this master cannot have."""
    return None if row["state"] == TableState.UNKNOWN else row["state"] == TableState.ADOPTED


def _adopted(row: Status) -> float | None:
    return None if row["adopted"] is None else row["adopted"] * MILLIS


def _node_state(status: Status, field: str) -> Found:
    return one_of(NodeState)(status, field) if "maxOffset" in status else ()


def _lost_tail(status: Status, field: str) -> Found:
    if field in status:
        lost = status[field]
        yield (), lost["to"] - lost["from"] if lost else 0


PROCESS = (
    flag("info{version,role}", "Always 1; the labels say what runs.", "version", _info),
    gauge("uptime_seconds", "How long the process has been up.", "uptimeSeconds"),
    gauge(
        "job_seconds_since_run{job}",
        "How long ago a periodic job was last begun.",
        "periodicJobs",
        each("name", value="secondsSinceRun"),
        unit="seconds",
    ),
    counter(
        "job_failures{job}",
        "Failed runs of a periodic job.",
        "periodicJobs",
        each("name", value="failures"),
        unit="runs",
    ),
)
"""Of the process, whatever its role."""


CERTIFICATES = (
    gauge(
        "tls_certificate_seconds_left{role}",
        "How long a certificate is still valid, by what it is for; below 0 it is not any more.",
        "tls.secondsLeft",
        each("role"),
        unit="seconds",
    ),
    counter(
        "tls_reloads{role}",
        "Changed certificate files that came into force.",
        "tls.reloads",
        each("role"),
    ),
    counter(
        "tls_reload_failures{role}",
        "Changed certificate files that could not be used.",
        "tls.reloadFailures",
        each("role"),
        unit="reloads",
    ),
    counter(
        "clear_text_connections{port}",
        "Connections in clear text to a port that takes TLS too.",
        "clearText.connections",
        each("port"),
    ),
)
"""Of the certificates that the process shows."""


PORTS = (
    gauge(
        "client_connections",
        "Open connections of clients, on the client ports or the name server's.",
        "remoting.connections",
        _either(at),
    ),
    counter(
        "client_closed{reason}",
        "Ended or refused connections of clients, by reason.",
        "remoting.closed",
        _either(counted),
        unit="connections",
    ),
    counter(
        "outgoing_closed{reason}",
        "Ended connections to name servers and other brokers, by reason.",
        "remoting.toOtherNodes.closed",
        counted,
        unit="connections",
    ),
    counter(
        "requests{request}", "Requests that are served, by name.", "remoting.requests", counted
    ),
    counter(
        "refused_requests{code,client}",
        "Requests that nothing here serves, by code and client.",
        "remoting.refusedRequests",
        _refused,
    ),
    flag(
        "registered{nameserver}",
        "Whether the last registration at a name server went well.",
        "remoting.nameServers",
        each_name(lambda said: said == REGISTERED),
    ),
    gauge(
        "older_tables",
        "Tables whose newest file could not be read at the start.",
        "remoting.olderTables",
        length,
    ),
    gauge(
        "offset_journal_pending",
        "Changed offsets that the journal does not have yet.",
        "remoting.offsetJournal.pending",
        unit="offsets",
    ),
)
"""Of the ports that clients connect to."""


DELAYS = (
    gauge(
        "delayed_messages{level}",
        "Messages that wait in a delay level.",
        "remoting.delayed.levels",
        each_name(lambda row: row["pending"]),
    ),
    counter(
        "delayed_undeliverable",
        "Delayed messages that could not be delivered.",
        "remoting.delayed.undeliverable",
        unit="messages",
    ),
    *_late("delayed", "delayed"),
)
"""Of delayed messages."""


TIMERS = (
    gauge(
        "timer_messages{topic}",
        "Messages that wait for a time of their own.",
        "remoting.timers.pending",
        counted,
    ),
    counter(
        "timer_undeliverable",
        "Timer messages that could not be delivered.",
        "remoting.timers.undeliverable",
        unit="messages",
    ),
    *_late("timer", "timers"),
)
"""Of timer messages."""


POP = (
    gauge(
        "pop_check_points", "Open check points.", "remoting.pop.checkPoints", unit="check points"
    ),
    gauge(
        "pop_unacked_messages{group}",
        "Messages that were handed out and are not acknowledged.",
        "remoting.pop.unacked",
        counted,
    ),
    gauge(
        "pop_first_due_timestamp_seconds",
        "When the first open check point is due, in seconds since 1970.",
        "remoting.pop.firstDue",
        millis,
    ),
    counter(
        "pop_revived",
        "Messages that came again, as they were not acknowledged in time.",
        "remoting.pop.revived",
        unit="messages",
    ),
    counter(
        "pop_not_revived",
        "Messages that were deleted or damaged before they could come again.",
        "remoting.pop.notRevived",
        unit="messages",
    ),
    gauge("pop_waiting", "Pops that wait for a message.", "remoting.pop.waiting", unit="requests"),
)
"""Of messages that were handed out."""

NAME_SERVER = (
    gauge(
        "broker_silent_seconds{broker_cluster,broker_name,broker_id_there,address}",
        "Since a broker last registered or sent a heartbeat.",
        "brokers.secondsSilent",
        each("cluster", "brokerName", "brokerId", "address"),
    ),
    gauge(
        "brokers{broker_cluster,broker_name}",
        "Registered brokers of a brokerName, its master and its slaves.",
        "brokers",
        _brokers,
    ),
    gauge(
        "masters{broker_name}",
        "Live masters of a brokerName, those refused included: not 1 is wrong.",
        "brokers, refusedMasters",
        _masters,
    ),
    gauge("route_topics", "Topics with a route.", "topics", _route_topics),
)
"""Of a name server."""


MASTER = (
    gauge("master_epoch", "The master epoch of the log.", "masterEpoch"),
    flag("fenced", "Whether a master with a higher epoch was met.", "fencedBy", yes),
    flag("twin", "Whether another broker is live in this one's place.", "remoting.twin", yes),
    gauge("replicas_needed", "How many a write waits for.", "replicasNeeded", unit="replicas"),
    gauge(
        "replicas_in_sync",
        "Those that acknowledged all that is older than a second.",
        "replicas.state",
        _in_sync,
        unit="replicas",
    ),
    flag(
        "replica_state{replica,state}",
        "1 for the state that a replica is in.",
        "replicas.state",
        _replica_states,
    ),
    gauge(
        "replica_lag_bytes{replica}", "What a replica lacks.", "replicas.lagBytes", each("address")
    ),
    gauge(
        "replica_lag_seconds{replica}",
        "Age of the oldest byte that a replica lacks.",
        "replicas.lagSeconds",
        each("address"),
    ),
    gauge("ha_connections", "Open connections on the HA port.", "connections", _ha),
    counter(
        "ha_closed{reason}",
        "Ended or refused on the HA port, by reason.",
        "closedConnections",
        counted,
        unit="connections",
    ),
    counter("ha_sent_bytes", "Bytes of the log that were sent on the HA port.", "sentBytes"),
    gauge(
        "retention_slot_bytes{replica,connected}",
        "Kept for a replica: what it has not acknowledged.",
        "retentionSlots.bytes",
        _slots,
    ),
    counter(
        "retention_slots_ended{reason}",
        "Ended without their replica: its files are held back no more.",
        "endedSlots",
        counted,
        unit="slots",
    ),
)
"""Of a node that others follow."""


MEMBER = (
    flag(
        "member_state{state}",
        "1 for the state of a member of a controller's set, 0 for the others.",
        "controller.state",
        one_of(MemberState),
    ),
    gauge(
        "controller_silent_seconds",
        "Since a controller was last heard.",
        "controller.secondsSilent",
    ),
    gauge(
        "sync_state_set",
        "How many are in the SyncStateSet, told by its master.",
        "controller.set.syncStateSet",
        length,
        unit="members",
    ),
    gauge("confirm_offset_bytes", "How far a member's log is final.", "controller.confirmOffset"),
    gauge(
        "lease_seconds",
        "How long the lease in etcd surely lives; none without a lease.",
        "controller.lease.secondsLeft",
    ),
    flag(
        "lease_leads",
        "Whether etcd has said under this lease that the member is master.",
        "controller.lease.leads",
        yes,
    ),
    flag(
        "etcd_answering{address}",
        "1 for the member of etcd that answered last, 0 for the others.",
        "controller.etcd.members",
        each("address", value="answers"),
    ),
    gauge(
        "etcd_latency_seconds",
        "How long the last answer of etcd took.",
        "controller.etcd.latencySeconds",
    ),
    counter(
        "etcd_failures{address}",
        "Requests that a member of etcd did not answer, or refused.",
        "controller.etcd.members",
        each("address", value="failures"),
        unit="requests",
    ),
    gauge(
        "etcd_alarms",
        "Alarms that etcd has; with one it takes no change.",
        "controller.etcd.alarms",
        length,
    ),
)
"""Of a member of a controller's set."""


SLAVE = (
    flag(
        "upstream_state{state}",
        "1 for the state of replication on a slave, 0 for the others.",
        "upstream.state",
        one_of(SyncState),
    ),
    gauge("upstream_lag_bytes", "What the slave lacks, where it is known.", "upstream.lagBytes"),
    gauge(
        "upstream_lag_seconds", "Age of the newest record, 0 when in sync.", "upstream.lagSeconds"
    ),
    gauge("upstream_silent_seconds", "Since a master was last heard.", "upstream.secondsSilent"),
    gauge(
        "upstream_disconnected_seconds",
        "Since there was a connection to a master; 0 while there is one.",
        "upstream.secondsDisconnected",
    ),
    flag(
        "upstream_bootstrapping", "Whether the first copy is not whole.", "upstream.bootstrapping"
    ),
    counter("upstream_received_bytes", "Came from the master.", "upstream.received"),
    counter(
        "upstream_tls_refusals{reason}",
        "Connections to the master that TLS ended, by reason.",
        "upstream.tlsRefusals",
        counted,
        unit="connections",
    ),
    counter(
        "upstream_reconnects",
        "Connections to the master after the first.",
        "upstream.reconnects",
        unit="connections",
    ),
    flag(
        "metadata_in_sync{table}",
        "Whether a table of the master was adopted with the last try.",
        "metadata.*.state",
        _tables(_copied),
    ),
    gauge(
        "metadata_adopted_timestamp_seconds{table}",
        "When the master's table was last known here, since 1970.",
        "metadata.*.adopted",
        _tables(_adopted),
    ),
    gauge(
        "offsets_owed",
        "Committed here and not yet given back to the master.",
        "metadata.owed",
        unit="offsets",
    ),
)
"""Of a node that follows another."""


LOG = (
    flag("state{state}", "1 for the state the node is in, 0 for the others.", "state", _node_state),
    gauge("log_min_offset_bytes", "Where the log begins.", "minOffset"),
    gauge("log_max_offset_bytes", "Where the log ends.", "maxOffset"),
    gauge(
        "log_confirmed_offset_bytes",
        "All records before it are whole and were checked.",
        "confirmedOffset",
    ),
    gauge("log_flushed_offset_bytes", "All bytes before it are on the disk.", "flushedOffset"),
    gauge(
        "log_dispatched_offset_bytes",
        "All records before it are in consume queues and index.",
        "dispatchedOffset",
    ),
    gauge(
        "lost_tail_bytes",
        "What the log lacks of what was on the disk once.",
        "lostTail",
        _lost_tail,
    ),
    counter(
        "truncated_bytes",
        "Cut off the log's end: a torn tail, damage, or what the master does not have.",
        "truncatedBytes",
    ),
    gauge("disk_use_ratio", "How full the fuller disk is.", "retention.diskUse"),
    counter("deleted_bytes", "Log files deleted by age.", "retention.deletedBytes"),
    counter("lost_bytes", "Deleted although a replica needed them.", "retention.lostBytes"),
    counter(
        "served_faults",
        "Asked for and not sent: the log does not hold what its queue says.",
        "servedFaults",
        unit="messages",
    ),
    counter(
        "derived_faults",
        "Consume queues and index disagreed with the log, and were repaired.",
        "derivedFaults",
        unit="places",
    ),
    gauge(
        "faults_from_master",
        "Damaged records that are so on the master.",
        "faultsFromMaster.count",
        unit="records",
    ),
    gauge(
        "published_behind_bytes",
        "Confirmed, and not yet published for readers of the files.",
        "published.behindBytes",
    ),
    gauge("published_behind_seconds", "How long that has been so.", "published.behindSeconds"),
    counter("published_cuts", "Published bytes were cut off again.", "published.cuts"),
)
"""Of the log, and of what is derived of it."""


SCRUB = (
    gauge(
        "scrub_position_bytes",
        "How far a pass of the scrubber is; nothing between two.",
        "scrub.position",
    ),
    gauge("scrub_pass_end_bytes", "Where that pass ends.", "scrub.passTo"),
    counter("scrub_read_bytes", "Read by the scrubber.", "scrub.readBytes"),
    gauge(
        "scrub_last_pass_age_seconds",
        "How long ago its last whole pass ended.",
        "scrub.lastPassAge",
    ),
    gauge("scrub_faults", "Damaged ranges that are known now.", "scrub.faultCount", unit="ranges"),
    counter("compared_bytes", "Compared with the master's.", "comparison.comparedBytes"),
    gauge(
        "comparison_differences",
        "Ranges that differ from the master's.",
        "comparison.differences",
        length,
        unit="ranges",
    ),
    counter("repaired_ranges", "Replaced by the master's bytes.", "repair.ranges"),
)
"""Of what looks for cold damage, and repairs it."""


READERS = (
    gauge(
        "reader_behind_bytes{reader}",
        "Published, and not read yet by a Spark stream.",
        "readers.behindBytes",
        each("name"),
    ),
    gauge(
        "reader_behind_seconds{reader}",
        "How long the first of those have been stored.",
        "readers.behindSeconds",
        each("name"),
    ),
    gauge(
        "reader_silent_seconds{reader}",
        "Since the stream told where it is.",
        "readers.silentSeconds",
        each("name"),
    ),
)
"""Of Spark streams that have a name."""

FROM_STATUS: tuple[StatusFamily, ...] = (
    *PROCESS,
    *CERTIFICATES,
    *MASTER,
    *MEMBER,
    *SLAVE,
    *LOG,
    *SCRUB,
    *READERS,
    *DELAYS,
    *TIMERS,
    *POP,
    *PORTS,
    *NAME_SERVER,
)
"""Metrics that C{/status} has too."""

FAMILIES: tuple[Family, ...] = (*broker_families.FAMILIES, *node_families.FAMILIES, *FROM_STATUS)
"""All of ours; C{process_*} and C{python_*} are those of every Python process."""


def of_status(status: Status) -> Iterator[Sample]:
    """The samples of a status."""
    for family in FROM_STATUS:
        for labels, value in family.read(status, family.field):
            if value is not None:
                yield family, labels, float(value)
