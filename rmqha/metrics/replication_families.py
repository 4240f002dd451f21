"""What /status tells of replication: on a master, and on a slave.

Source: docs/guide/metrics.rst; docs/operations.rst, Status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rmqha.broker.cluster.metadata_tables import TableState
from rmqha.controller.member_state import MemberState
from rmqha.ha.master.replicas import ReplicaState
from rmqha.ha.states import SyncState
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
        _tables(lambda row: row["state"] == TableState.ADOPTED.value),
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


def _tables(value: Callable[[Status], Any]) -> Read:
    """Something of each table that a slave copies."""

    def read(status: Status) -> Found:
        for name, row in (status.get("metadata") or {}).items():
            if isinstance(row, Mapping) and "adopted" in row:
                yield (name,), value(row)

    return read
