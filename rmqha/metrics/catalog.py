"""All metrics there are, by what they are about.

Source: docs/guide/metrics.rst; docs/status.rst, Status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rmqha.broker.cluster.metadata_tables import TableState
from rmqha.controller.member_state import MemberState
from rmqha.ha.master.replicas import ReplicaState
from rmqha.ha.states import NodeState, SyncState
from rmqha.metrics import broker_families, node_families
from rmqha.metrics.family import Family, Sample
from rmqha.metrics.port_families import (
    of_certificates,
    of_delays,
    of_name_servers,
    of_pop,
    of_ports,
    of_processes,
    of_timers,
)
from rmqha.metrics.status_family import (
    MILLIS,
    Found,
    Read,
    Status,
    StatusFamily,
    counted,
    counter,
    each,
    gauge,
    labels_of,
    length,
    one_of,
    yes,
)


def of_masters() -> Iterator[StatusFamily]:
    """Of a node that others follow."""
    yield gauge("master_epoch", "epoch", "The master epoch of the log.", "masterEpoch")
    yield gauge(
        "fenced", "1", "Whether a master with a higher epoch was met.", "fencedBy", yes("fencedBy")
    )
    yield gauge(
        "twin",
        "1",
        "Whether another broker is live in this one's place.",
        "remoting.twin",
        yes("remoting.twin"),
    )
    yield gauge(
        "replicas_needed",
        "replicas",
        "How many a write waits for.",
        "replicasNeeded",
    )
    yield gauge(
        "replicas_in_sync",
        "replicas",
        "Those that acknowledged all that is older than a second.",
        "replicas.state",
        _in_sync,
    )
    yield gauge(
        "replica_state",
        "1",
        "1 for the state that a replica is in.",
        "replicas.state",
        lambda status: (
            (labels_of(row, ("address", "state")), 1) for row in status.get("replicas") or ()
        ),
        "replica",
        "state",
    )
    for name, unit, text in (
        ("lagBytes", "bytes", "What a replica lacks."),
        ("lagSeconds", "seconds", "Age of the oldest byte that a replica lacks."),
    ):
        read = each("replicas", name, "address")
        yield gauge(f"replica_lag_{unit}", unit, text, f"replicas.{name}", read, "replica")
    yield gauge(
        "ha_connections", "connections", "Open connections on the HA port.", "connections", _ha
    )
    yield counter(
        "ha_closed",
        "connections",
        "Ended or refused on the HA port, by reason.",
        "closedConnections",
        counted("closedConnections"),
        "reason",
    )
    yield counter(
        "ha_sent_bytes",
        "bytes",
        "Bytes of the log that were sent on the HA port.",
        "sentBytes",
    )
    yield gauge(
        "retention_slot_bytes",
        "bytes",
        "Kept for a replica: what it has not acknowledged.",
        "retentionSlots.bytes",
        _slots,
        "replica",
        "connected",
    )
    yield counter(
        "retention_slots_ended",
        "slots",
        "Ended without their replica: its files are held back no more.",
        "endedSlots",
        counted("endedSlots"),
        "reason",
    )


def _in_sync(status: Status) -> Found:
    if "replicas" in status:
        states = [row["state"] for row in status["replicas"]]
        yield (), states.count(ReplicaState.IN_SYNC.value)


def _ha(status: Status) -> Found:
    if "closedConnections" in status:
        yield (), status.get("connections")


def _slots(status: Status) -> Found:
    # Of several behind one address the one that lacks most.
    most: dict[tuple[str, ...], int] = {}
    for row in status.get("retentionSlots") or ():
        labels = str(row["address"]), str(row["connected"]).lower()
        most[labels] = max(row["bytes"], most.get(labels, 0))
    yield from most.items()


def of_members() -> Iterator[StatusFamily]:
    """Of a member of a controller's set."""
    yield gauge(
        "member_state",
        "1",
        "1 for the state of a member of a controller's set, 0 for the others.",
        "controller.state",
        one_of("controller.state", MemberState),
        "state",
    )
    yield gauge(
        "controller_silent_seconds",
        "seconds",
        "Since a controller was last heard.",
        "controller.secondsSilent",
    )
    yield gauge(
        "sync_state_set",
        "members",
        "How many are in the SyncStateSet, told by its master.",
        "controller.set.syncStateSet",
        length("controller.set.syncStateSet"),
    )
    yield gauge(
        "confirm_offset_bytes",
        "bytes",
        "How far a member's log is final.",
        "controller.confirmOffset",
    )
    yield gauge(
        "lease_seconds",
        "seconds",
        "How long the lease in etcd surely lives; none without a lease.",
        "controller.lease.secondsLeft",
    )
    yield gauge(
        "lease_leads",
        "1",
        "Whether etcd has said under this lease that the member is master.",
        "controller.lease.leads",
        yes("controller.lease.leads"),
    )
    yield gauge(
        "etcd_answering",
        "1",
        "1 for the member of etcd that answered last, 0 for the others.",
        "controller.etcd.members",
        each("controller.etcd.members", "answers", "address"),
        "address",
    )
    yield gauge(
        "etcd_latency_seconds",
        "seconds",
        "How long the last answer of etcd took.",
        "controller.etcd.latencySeconds",
    )
    yield counter(
        "etcd_failures",
        "requests",
        "Requests that a member of etcd did not answer, or refused.",
        "controller.etcd.members",
        each("controller.etcd.members", "failures", "address"),
        "address",
    )
    yield gauge(
        "etcd_alarms",
        "alarms",
        "Alarms that etcd has; with one it takes no change.",
        "controller.etcd.alarms",
        length("controller.etcd.alarms"),
    )


def of_slaves() -> Iterator[StatusFamily]:
    """Of a node that follows another."""
    yield gauge(
        "upstream_state",
        "1",
        "1 for the state of replication on a slave, 0 for the others.",
        "upstream.state",
        one_of("upstream.state", SyncState),
        "state",
    )
    for name, field, unit, text in (
        ("lag_bytes", "lagBytes", "bytes", "What the slave lacks, where it is known."),
        ("lag_seconds", "lagSeconds", "seconds", "Age of the newest record, 0 when in sync."),
        ("silent_seconds", "secondsSilent", "seconds", "Since a master was last heard."),
        (
            "disconnected_seconds",
            "secondsDisconnected",
            "seconds",
            "Since there was a connection to a master; 0 while there is one.",
        ),
        ("bootstrapping", "bootstrapping", "1", "Whether the first copy is not whole."),
    ):
        yield gauge(f"upstream_{name}", unit, text, f"upstream.{field}")
    yield counter(
        "upstream_received_bytes",
        "bytes",
        "Came from the master.",
        "upstream.received",
    )
    yield counter(
        "upstream_tls_refusals",
        "connections",
        "Connections to the master that TLS ended, by reason.",
        "upstream.tlsRefusals",
        counted("upstream.tlsRefusals"),
        "reason",
    )
    yield counter(
        "upstream_reconnects",
        "connections",
        "Connections to the master after the first.",
        "upstream.reconnects",
    )
    yield gauge(
        "metadata_in_sync",
        "1",
        "Whether a table of the master was adopted with the last try.",
        "metadata.*.state",
        _tables(_copied),
        "table",
    )
    yield gauge(
        "metadata_adopted_timestamp_seconds",
        "seconds",
        "When the master's table was last known here, since 1970.",
        "metadata.*.adopted",
        _tables(lambda row: None if row["adopted"] is None else row["adopted"] * MILLIS),
        "table",
    )
    yield gauge(
        "offsets_owed",
        "offsets",
        "Committed here and not yet given back to the master.",
        "metadata.owed",
    )


def _copied(row: Status) -> bool | None:
    """C{None} of a table that this master cannot have."""
    return None if row["state"] == TableState.UNKNOWN else row["state"] == TableState.ADOPTED


def _tables(value: Callable[[Status], Any]) -> Read:
    """Something of each table that a slave copies."""

    def read(status: Status) -> Found:
        for name, row in (status.get("metadata") or {}).items():
            if isinstance(row, Mapping) and "adopted" in row:
                yield (name,), value(row)

    return read


def of_logs() -> Iterator[StatusFamily]:
    """Of the log, and of what is derived of it."""
    yield gauge(
        "state",
        "1",
        "1 for the state the node is in, 0 for the others.",
        "state",
        lambda status: one_of("state", NodeState)(status) if "maxOffset" in status else (),
        "state",
    )
    for name, text in (
        ("min", "Where the log begins."),
        ("max", "Where the log ends."),
        ("confirmed", "All records before it are whole and were checked."),
        ("flushed", "All bytes before it are on the disk."),
        ("dispatched", "All records before it are in consume queues and index."),
    ):
        yield gauge(f"log_{name}_offset_bytes", "bytes", text, f"{name}Offset")
    yield gauge(
        "lost_tail_bytes",
        "bytes",
        "What the log lacks of what was on the disk once.",
        "lostTail",
        _lost_tail,
    )
    yield counter(
        "truncated_bytes",
        "bytes",
        "Cut off the log's end: a torn tail, damage, or what the master does not have.",
        "truncatedBytes",
    )
    yield gauge("disk_use_ratio", "ratio", "How full the fuller disk is.", "retention.diskUse")
    yield counter("deleted_bytes", "bytes", "Log files deleted by age.", "retention.deletedBytes")
    yield counter(
        "lost_bytes",
        "bytes",
        "Deleted although a replica needed them.",
        "retention.lostBytes",
    )
    yield counter(
        "served_faults",
        "messages",
        "Asked for and not sent: the log does not hold what its queue says.",
        "servedFaults",
    )
    yield counter(
        "derived_faults",
        "places",
        "Consume queues and index disagreed with the log, and were repaired.",
        "derivedFaults",
    )
    yield gauge(
        "faults_from_master",
        "records",
        "Damaged records that are so on the master.",
        "faultsFromMaster.count",
    )
    yield gauge(
        "published_behind_bytes",
        "bytes",
        "Confirmed, and not yet published for readers of the files.",
        "published.behindBytes",
    )
    yield gauge(
        "published_behind_seconds",
        "seconds",
        "How long that has been so.",
        "published.behindSeconds",
    )
    yield counter("published_cuts", "cuts", "Published bytes were cut off again.", "published.cuts")


def _lost_tail(status: Status) -> Found:
    if "lostTail" in status:
        lost = status["lostTail"]
        yield (), lost["to"] - lost["from"] if lost else 0


def of_scrubs() -> Iterator[StatusFamily]:
    """Of what looks for cold damage, and repairs it."""
    yield gauge(
        "scrub_position_bytes",
        "bytes",
        "How far a pass of the scrubber is; nothing between two.",
        "scrub.position",
    )
    yield gauge("scrub_pass_end_bytes", "bytes", "Where that pass ends.", "scrub.passTo")
    yield counter("scrub_read_bytes", "bytes", "Read by the scrubber.", "scrub.readBytes")
    yield gauge(
        "scrub_last_pass_age_seconds",
        "seconds",
        "How long ago its last whole pass ended.",
        "scrub.lastPassAge",
    )
    yield gauge("scrub_faults", "ranges", "Damaged ranges that are known now.", "scrub.faultCount")
    yield counter(
        "compared_bytes", "bytes", "Compared with the master's.", "comparison.comparedBytes"
    )
    yield gauge(
        "comparison_differences",
        "ranges",
        "Ranges that differ from the master's.",
        "comparison.differences",
        length("comparison.differences"),
    )
    yield counter("repaired_ranges", "ranges", "Replaced by the master's bytes.", "repair.ranges")


def of_readers() -> Iterator[StatusFamily]:
    """Of Spark streams that have a name."""
    for name, unit, text in (
        ("behindBytes", "bytes", "Published, and not read yet by a Spark stream."),
        ("behindSeconds", "seconds", "How long the first of those have been stored."),
        ("silentSeconds", "seconds", "Since the stream told where it is."),
    ):
        metric = f"reader_{name.removesuffix(unit.title())}_{unit}"
        yield gauge(metric, unit, text, f"readers.{name}", each("readers", name, "name"), "reader")


FROM_STATUS: tuple[StatusFamily, ...] = (
    *of_processes(),
    *of_certificates(),
    *of_masters(),
    *of_members(),
    *of_slaves(),
    *of_logs(),
    *of_scrubs(),
    *of_readers(),
    *of_delays(),
    *of_timers(),
    *of_pop(),
    *of_ports(),
    *of_name_servers(),
)
"""Metrics that C{/status} has too."""

FAMILIES: tuple[Family, ...] = (
    *broker_families.FAMILIES,
    *node_families.FAMILIES,
    *FROM_STATUS,
)
"""All of ours; C{process_*} and C{python_*} are those of every Python process."""


def of_status(status: Status) -> Iterator[Sample]:
    """The samples of a status."""
    for family in FROM_STATUS:
        for labels, value in family.read(status):
            if value is not None:
                yield family, labels, float(value)
