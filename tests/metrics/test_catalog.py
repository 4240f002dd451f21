"""The metrics that there are, and those that the status has."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rmqha.metrics.catalog import FAMILIES, of_status
from rmqha.metrics.family import MetricType

MASTER: dict[str, Any] = {
    "role": "master",
    "version": "1.2",
    "uptimeSeconds": 12.5,
    "state": "serving",
    "minOffset": 0,
    "maxOffset": 4096,
    "dispatchedOffset": 4000,
    "masterEpoch": 3,
    "fencedBy": None,
    "lostTail": {"from": 100, "to": 350},
    "truncatedBytes": 60,
    "retention": {"diskUse": 0.25, "deletedBytes": 0, "lostBytes": 7},
    "scrub": {"position": None, "readBytes": 5, "faultCount": 2, "lastPassAge": None},
    "readers": [
        {"name": "lake", "behindBytes": 9, "behindSeconds": 1.5, "silentSeconds": 2.0},
        {"name": "torn", "state": "unreadable: not a reader's position"},
    ],
    "replicas": [
        {"address": "10.0.0.2", "state": "in-sync", "lagBytes": 0, "lagSeconds": 0.0},
        {"address": "10.0.0.3", "state": "feeding", "lagBytes": 77, "lagSeconds": None},
    ],
    "replicasNeeded": 1,
    "connections": 2,
    "closedConnections": {"peer": 4},
    "sentBytes": 8192,
    "retentionSlots": [{"address": "10.0.0.4", "connected": False, "bytes": 50}],
    "endedSlots": {"bytes": 2},
    "periodicJobs": [{"name": "flushing the log", "failures": 1, "secondsSinceRun": 0.5}],
    "remoting": {
        "connections": 6,
        "requests": {"PULL_MESSAGE": 7},
        "refusedRequests": [{"code": 200050, "name": "x", "client": "10.9.9.9", "count": 3}],
        "closed": {"peer": 1},
        "twin": "",
        "nameServers": {"a:9876": "registered", "b:9876": "not yet"},
        "olderTables": {},
        "delayed": {"levels": {"3": {"pending": 4}}, "lateMillis": {"p99": 31}},
    },
}

SLAVE: dict[str, Any] = {
    "role": "slave",
    "state": "serving",
    "maxOffset": 10,
    "upstream": {
        "state": "in-sync",
        "lagBytes": 0,
        "lagSeconds": 0.0,
        "secondsSilent": 1.0,
        "secondsDisconnected": 0.0,
        "bootstrapping": False,
    },
    "controller": {
        "state": "leading",
        "secondsSilent": 0.5,
        "confirmOffset": 7,
        "set": {"syncStateSet": [1, 2]},
        "lease": {"secondsLeft": 2.5, "leads": True},
        "etcd": {
            "latencySeconds": 0.01,
            "members": [
                {"address": "e1:2379", "answers": False, "failures": 3},
                {"address": "e2:2379", "answers": True, "failures": 0},
            ],
            "alarms": ["NOSPACE"],
        },
    },
    "metadata": {
        "master": "10.0.0.1:10911",
        "topics": {"state": "adopted", "adopted": 1_700_000_000_000},
        "groups": {"state": "refused", "adopted": None},
        "owed": 5,
    },
}

NAMESRV: dict[str, Any] = {
    "role": "namesrv",
    "state": "serving",
    "connections": 5,
    "closed": {"idle": 2},
    "topics": 9,
    "refusedRequests": [{"code": 1, "name": "x", "client": "c", "count": 2}],
    "brokers": [
        {
            "brokerName": name,
            "brokerId": number,
            "cluster": "C",
            "address": f"{name}:{number}",
            "secondsSilent": 1.0,
        }
        for name, number in (("a", 0), ("a", 1), ("b", 1))
    ],
    "refusedMasters": [{"brokerName": "a", "address": "a:9"}],
}


def told(status: dict[str, Any]) -> dict[str, float]:
    """The samples of a status, by name and labels as they are written."""
    found = {}
    for family, values, value in of_status(status):
        labels = ",".join(map("=".join, zip(family.labels, values, strict=True)))
        assert isinstance(value, float), family.name
        found[f"{family.name}{{{labels}}}" if labels else family.name] = value
    return found


class CatalogTests(SynchronousTestCase):
    def test_names(self) -> None:
        """Names are legal and differ, counters end as Prometheus wants, units are in the name."""
        self.assertEqual(
            [name for name, n in Counter(f.name for f in FAMILIES).items() if n > 1], []
        )
        for family in FAMILIES:
            self.assertTrue(re.fullmatch("(rocketmq|rmqha)_[a-z0-9_]+", family.name), family.name)
            counts = family.type is MetricType.COUNTER
            self.assertEqual(family.name.endswith("_total"), counts, family.name)
            own = family.name.startswith("rmqha_")
            if own and family.unit in ("seconds", "bytes", "ratio"):
                self.assertIn(f"_{family.unit}", family.name)
            for label in family.labels:
                self.assertTrue(re.fullmatch("[a-z][a-z_]*", label), label)
                self.assertNotIn(label, ("cluster", "node_type", "node_id", "broker_id"))

    def test_texts(self) -> None:
        """Each says what it tells in one line, as a sentence, and has a unit."""
        for family in FAMILIES:
            self.assertTrue(family.unit, family.name)
            self.assertTrue(re.fullmatch(r"[^\n\\]+\.", family.text), family.name)


class StatusTests(SynchronousTestCase):
    def test_master(self) -> None:
        """A master's log, replicas, readers, and clients."""
        found = told(MASTER)
        wanted = {
            "rmqha_info{version=1.2,role=master}": 1,
            "rmqha_uptime_seconds": 12.5,
            "rmqha_state{state=serving}": 1,
            "rmqha_state{state=failed}": 0,
            "rmqha_log_max_offset_bytes": 4096,
            "rmqha_lost_tail_bytes": 250,
            "rmqha_truncated_bytes_total": 60,
            "rmqha_disk_use_ratio": 0.25,
            "rmqha_lost_bytes_total": 7,
            "rmqha_scrub_faults": 2,
            "rmqha_reader_behind_bytes{reader=lake}": 9,
            "rmqha_reader_behind_seconds{reader=lake}": 1.5,
            "rmqha_reader_silent_seconds{reader=lake}": 2,
            "rmqha_master_epoch": 3,
            "rmqha_fenced": 0,
            "rmqha_twin": 0,
            "rmqha_replicas_needed": 1,
            "rmqha_replicas_in_sync": 1,
            "rmqha_replica_lag_bytes{replica=10.0.0.3}": 77,
            "rmqha_replica_lag_seconds{replica=10.0.0.2}": 0,
            "rmqha_replica_state{replica=10.0.0.3,state=feeding}": 1,
            "rmqha_ha_connections": 2,
            "rmqha_ha_closed_total{reason=peer}": 4,
            "rmqha_ha_sent_bytes_total": 8192,
            "rmqha_retention_slot_bytes{replica=10.0.0.4,connected=false}": 50,
            "rmqha_retention_slots_ended_total{reason=bytes}": 2,
            "rmqha_client_connections": 6,
            "rmqha_client_closed_total{reason=peer}": 1,
            "rmqha_requests_total{request=PULL_MESSAGE}": 7,
            "rmqha_refused_requests_total{code=200050,client=10.9.9.9}": 3,
            "rmqha_registered{nameserver=a:9876}": 1,
            "rmqha_registered{nameserver=b:9876}": 0,
            "rmqha_older_tables": 0,
            "rmqha_delayed_messages{level=3}": 4,
            "rmqha_delayed_late_p99_seconds": 0.031,
            "rmqha_job_failures_total{job=flushing the log}": 1,
        }
        self.assertEqual({name: found.get(name) for name in wanted}, wanted)

    def test_unknown(self) -> None:
        """What a node does not know gives no sample: 0 would be a claim."""
        found = told(MASTER)
        for name in (
            "rmqha_replica_lag_seconds{replica=10.0.0.3}",
            "rmqha_reader_behind_bytes{reader=torn}",
            "rmqha_scrub_position_bytes",
            "rmqha_log_min_offset_bytes{}",
            "rmqha_upstream_lag_seconds",
            "rmqha_route_topics",
        ):
            self.assertNotIn(name, found)

    def test_slave(self) -> None:
        """A slave's master, and the tables it copies."""
        found = told(SLAVE)
        wanted = {
            "rmqha_upstream_state{state=in-sync}": 1,
            "rmqha_upstream_state{state=diverged}": 0,
            "rmqha_upstream_lag_seconds": 0,
            "rmqha_upstream_disconnected_seconds": 0,
            "rmqha_upstream_bootstrapping": 0,
            "rmqha_metadata_in_sync{table=topics}": 1,
            "rmqha_metadata_in_sync{table=groups}": 0,
            "rmqha_metadata_adopted_timestamp_seconds{table=topics}": 1_700_000_000,
            "rmqha_offsets_owed": 5,
            "rmqha_member_state{state=leading}": 1,
            "rmqha_member_state{state=fenced}": 0,
            "rmqha_controller_silent_seconds": 0.5,
            "rmqha_sync_state_set": 2,
            "rmqha_confirm_offset_bytes": 7,
            "rmqha_lease_seconds": 2.5,
            "rmqha_lease_leads": 1,
            "rmqha_etcd_answering{address=e1:2379}": 0,
            "rmqha_etcd_answering{address=e2:2379}": 1,
            "rmqha_etcd_latency_seconds": 0.01,
            "rmqha_etcd_failures_total{address=e1:2379}": 3,
            "rmqha_etcd_alarms": 1,
        }
        self.assertEqual({name: found.get(name) for name in wanted}, wanted)

    def test_namesrv(self) -> None:
        """A name server's brokers: two masters of a name are a split, none is an outage."""
        found = told(NAMESRV)
        silent = "broker_cluster=C,broker_name=b,broker_id_there=1,address=b:1"
        wanted = {
            "rmqha_masters{broker_name=a}": 2,
            "rmqha_masters{broker_name=b}": 0,
            "rmqha_brokers{broker_cluster=C,broker_name=a}": 2,
            "rmqha_brokers{broker_cluster=C,broker_name=b}": 1,
            "rmqha_route_topics": 9,
            "rmqha_client_connections": 5,
            "rmqha_client_closed_total{reason=idle}": 2,
            "rmqha_refused_requests_total{code=1,client=c}": 2,
            "rmqha_broker_silent_seconds{" + silent + "}": 1,
        }
        self.assertEqual({name: found.get(name) for name in wanted}, wanted)
        self.assertNotIn("rmqha_ha_connections", found)
        self.assertNotIn("rmqha_state{state=serving}", found)
