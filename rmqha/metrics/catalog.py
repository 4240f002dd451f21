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
    at,
    counted,
    each,
    each_name,
    families,
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


READERS: Mapping[str, Read] = {
    "millis": millis,
    "yes": yes,
    "counted": counted,
    "length": length,
    "member state": one_of(MemberState),
    "sync state": one_of(SyncState),
    "node state": _node_state,
    "lost tail": _lost_tail,
    "either": _either(at),
    "either counted": _either(counted),
    "info": _info,
    "refused": _refused,
    "registered": each_name(lambda said: said == REGISTERED),
    "pending": each_name(lambda row: row["pending"]),
    "brokers": _brokers,
    "silent": each("cluster", "brokerName", "brokerId", "address"),
    "masters": _masters,
    "route topics": _route_topics,
    "replica states": _replica_states,
    "in sync": _in_sync,
    "ha": _ha,
    "slots": _slots,
    "tables copied": _tables(_copied),
    "tables adopted": _tables(_adopted),
}
"""How fields are read that are not one number each, by the words of the table."""

FROM_STATUS = tuple(
    families(
        READERS,
        """\
# of the process, whatever its role
flag info{version,role} = version : info
    Always 1; the labels say what runs.
gauge uptime_seconds = uptimeSeconds
    How long the process has been up.
gauge job_seconds_since_run{job} seconds = periodicJobs : each(name).secondsSinceRun
    How long ago a periodic job was last begun.
counter job_failures{job} runs = periodicJobs : each(name).failures
    Failed runs of a periodic job.
# of the certificates that the process shows
gauge tls_certificate_seconds_left{role} seconds = tls.secondsLeft : each(role)
    How long a certificate is still valid, by what it is for; below 0 it is not any more.
counter tls_reloads{role} = tls.reloads : each(role)
    Changed certificate files that came into force.
counter tls_reload_failures{role} reloads = tls.reloadFailures : each(role)
    Changed certificate files that could not be used.
counter clear_text_connections{port} = clearText.connections : each(port)
    Connections in clear text to a port that takes TLS too.
# of a node that others follow
gauge master_epoch = masterEpoch
    The master epoch of the log.
flag fenced = fencedBy : yes
    Whether a master with a higher epoch was met.
flag twin = remoting.twin : yes
    Whether another broker is live in this one's place.
gauge replicas_needed replicas = replicasNeeded
    How many a write waits for.
gauge replicas_in_sync replicas = replicas.state : in sync
    Those that acknowledged all that is older than a second.
flag replica_state{replica,state} = replicas.state : replica states
    1 for the state that a replica is in.
gauge replica_lag_bytes{replica} = replicas.lagBytes : each(address)
    What a replica lacks.
gauge replica_lag_seconds{replica} = replicas.lagSeconds : each(address)
    Age of the oldest byte that a replica lacks.
gauge ha_connections = connections : ha
    Open connections on the HA port.
counter ha_closed{reason} connections = closedConnections : counted
    Ended or refused on the HA port, by reason.
counter ha_sent_bytes = sentBytes
    Bytes of the log that were sent on the HA port.
gauge retention_slot_bytes{replica,connected} = retentionSlots.bytes : slots
    Kept for a replica: what it has not acknowledged.
counter retention_slots_ended{reason} slots = endedSlots : counted
    Ended without their replica: its files are held back no more.
# of a member of a controller's set
flag member_state{state} = controller.state : member state
    1 for the state of a member of a controller's set, 0 for the others.
gauge controller_silent_seconds = controller.secondsSilent
    Since a controller was last heard.
gauge sync_state_set members = controller.set.syncStateSet : length
    How many are in the SyncStateSet, told by its master.
gauge confirm_offset_bytes = controller.confirmOffset
    How far a member's log is final.
gauge lease_seconds = controller.lease.secondsLeft
    How long the lease in etcd surely lives; none without a lease.
flag lease_leads = controller.lease.leads : yes
    Whether etcd has said under this lease that the member is master.
flag etcd_answering{address} = controller.etcd.members : each(address).answers
    1 for the member of etcd that answered last, 0 for the others.
gauge etcd_latency_seconds = controller.etcd.latencySeconds
    How long the last answer of etcd took.
counter etcd_failures{address} requests = controller.etcd.members : each(address).failures
    Requests that a member of etcd did not answer, or refused.
gauge etcd_alarms = controller.etcd.alarms : length
    Alarms that etcd has; with one it takes no change.
# of a node that follows another
flag upstream_state{state} = upstream.state : sync state
    1 for the state of replication on a slave, 0 for the others.
gauge upstream_lag_bytes = upstream.lagBytes
    What the slave lacks, where it is known.
gauge upstream_lag_seconds = upstream.lagSeconds
    Age of the newest record, 0 when in sync.
gauge upstream_silent_seconds = upstream.secondsSilent
    Since a master was last heard.
gauge upstream_disconnected_seconds = upstream.secondsDisconnected
    Since there was a connection to a master; 0 while there is one.
flag upstream_bootstrapping = upstream.bootstrapping
    Whether the first copy is not whole.
counter upstream_received_bytes = upstream.received
    Came from the master.
counter upstream_tls_refusals{reason} connections = upstream.tlsRefusals : counted
    Connections to the master that TLS ended, by reason.
counter upstream_reconnects connections = upstream.reconnects
    Connections to the master after the first.
flag metadata_in_sync{table} = metadata.*.state : tables copied
    Whether a table of the master was adopted with the last try.
gauge metadata_adopted_timestamp_seconds{table} = metadata.*.adopted : tables adopted
    When the master's table was last known here, since 1970.
gauge offsets_owed offsets = metadata.owed
    Committed here and not yet given back to the master.
# of the log, and of what is derived of it
flag state{state} = state : node state
    1 for the state the node is in, 0 for the others.
gauge log_min_offset_bytes = minOffset
    Where the log begins.
gauge log_max_offset_bytes = maxOffset
    Where the log ends.
gauge log_confirmed_offset_bytes = confirmedOffset
    All records before it are whole and were checked.
gauge log_flushed_offset_bytes = flushedOffset
    All bytes before it are on the disk.
gauge log_dispatched_offset_bytes = dispatchedOffset
    All records before it are in consume queues and index.
gauge lost_tail_bytes = lostTail : lost tail
    What the log lacks of what was on the disk once.
counter truncated_bytes = truncatedBytes
    Cut off the log's end: a torn tail, damage, or what the master does not have.
gauge disk_use_ratio = retention.diskUse
    How full the fuller disk is.
counter deleted_bytes = retention.deletedBytes
    Log files deleted by age.
counter lost_bytes = retention.lostBytes
    Deleted although a replica needed them.
counter served_faults messages = servedFaults
    Asked for and not sent: the log does not hold what its queue says.
counter derived_faults places = derivedFaults
    Consume queues and index disagreed with the log, and were repaired.
gauge faults_from_master records = faultsFromMaster.count
    Damaged records that are so on the master.
gauge published_behind_bytes = published.behindBytes
    Confirmed, and not yet published for readers of the files.
gauge published_behind_seconds = published.behindSeconds
    How long that has been so.
counter published_cuts = published.cuts
    Published bytes were cut off again.
# of what looks for cold damage, and repairs it
gauge scrub_position_bytes = scrub.position
    How far a pass of the scrubber is; nothing between two.
gauge scrub_pass_end_bytes = scrub.passTo
    Where that pass ends.
counter scrub_read_bytes = scrub.readBytes
    Read by the scrubber.
gauge scrub_last_pass_age_seconds = scrub.lastPassAge
    How long ago its last whole pass ended.
gauge scrub_faults ranges = scrub.faultCount
    Damaged ranges that are known now.
counter compared_bytes = comparison.comparedBytes
    Compared with the master's.
gauge comparison_differences ranges = comparison.differences : length
    Ranges that differ from the master's.
counter repaired_ranges = repair.ranges
    Replaced by the master's bytes.
# of Spark streams that have a name
gauge reader_behind_bytes{reader} = readers.behindBytes : each(name)
    Published, and not read yet by a Spark stream.
gauge reader_behind_seconds{reader} = readers.behindSeconds : each(name)
    How long the first of those have been stored.
gauge reader_silent_seconds{reader} = readers.silentSeconds : each(name)
    Since the stream told where it is.
# of delayed messages
gauge delayed_messages{level} = remoting.delayed.levels : pending
    Messages that wait in a delay level.
counter delayed_undeliverable messages = remoting.delayed.undeliverable
    Delayed messages that could not be delivered.
gauge delayed_late_p50_seconds = remoting.delayed.lateMillis.p50 : millis
    How late delayed messages were delivered.
gauge delayed_late_p99_seconds = remoting.delayed.lateMillis.p99 : millis
    How late delayed messages were delivered.
gauge delayed_late_max_seconds = remoting.delayed.lateMillis.max : millis
    How late delayed messages were delivered.
# of timer messages
gauge timer_messages{topic} = remoting.timers.pending : counted
    Messages that wait for a time of their own.
counter timer_undeliverable messages = remoting.timers.undeliverable
    Timer messages that could not be delivered.
gauge timer_late_p50_seconds = remoting.timers.lateMillis.p50 : millis
    How late timer messages were delivered.
gauge timer_late_p99_seconds = remoting.timers.lateMillis.p99 : millis
    How late timer messages were delivered.
gauge timer_late_max_seconds = remoting.timers.lateMillis.max : millis
    How late timer messages were delivered.
# of messages that were handed out
gauge pop_check_points check points = remoting.pop.checkPoints
    Open check points.
gauge pop_unacked_messages{group} = remoting.pop.unacked : counted
    Messages that were handed out and are not acknowledged.
gauge pop_first_due_timestamp_seconds = remoting.pop.firstDue : millis
    When the first open check point is due, in seconds since 1970.
counter pop_revived messages = remoting.pop.revived
    Messages that came again, as they were not acknowledged in time.
counter pop_not_revived messages = remoting.pop.notRevived
    Messages that were deleted or damaged before they could come again.
gauge pop_waiting requests = remoting.pop.waiting
    Pops that wait for a message.
# of the ports that clients connect to
gauge client_connections = remoting.connections : either
    Open connections of clients, on the client ports or the name server's.
counter client_closed{reason} connections = remoting.closed : either counted
    Ended or refused connections of clients, by reason.
counter outgoing_closed{reason} connections = remoting.toOtherNodes.closed : counted
    Ended connections to name servers and other brokers, by reason.
counter requests{request} = remoting.requests : counted
    Requests that are served, by name.
counter refused_requests{code,client} = remoting.refusedRequests : refused
    Requests that nothing here serves, by code and client.
flag registered{nameserver} = remoting.nameServers : registered
    Whether the last registration at a name server went well.
gauge older_tables = remoting.olderTables : length
    Tables whose newest file could not be read at the start.
gauge offset_journal_pending offsets = remoting.offsetJournal.pending
    Changed offsets that the journal does not have yet.
# of a name server
gauge broker_silent_seconds{broker_cluster,broker_name,broker_id_there,address} = \
brokers.secondsSilent : silent
    Since a broker last registered or sent a heartbeat.
gauge brokers{broker_cluster,broker_name} = brokers : brokers
    Registered brokers of a brokerName, its master and its slaves.
gauge masters{broker_name} = brokers, refusedMasters : masters
    Live masters of a brokerName, those refused included: not 1 is wrong.
gauge route_topics = topics : route topics
    Topics with a route.
""",
    )
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
