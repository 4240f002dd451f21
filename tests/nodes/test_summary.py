"""What matters of a node, for people."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from twisted.trial.unittest import SynchronousTestCase

from rmqha.cli.nodes.arguments import exit_code
from rmqha.cli.nodes.status import several
from rmqha.nodes.find import admin_of, brokers_in
from rmqha.nodes.poll import PollResult
from rmqha.nodes.summary import attention, duration, lines
from rmqha.wire.remoting.bodies.route import BrokerData, ClusterInfo

MASTER: dict[str, Any] = {
    "role": "master",
    "version": "0.1",
    "uptimeSeconds": 11_520.0,
    "pid": 4711,
    "clusterName": "C",
    "brokerName": "broker-a",
    "brokerId": 0,
    "state": "serving",
    "reason": "",
    "minOffset": 0,
    "maxOffset": 2_660_709,
    "flushedOffset": 2_660_709,
    "dispatchedOffset": 2_659_709,
    "retention": {"diskUse": 0.41, "lostBytes": 0},
    "replicas": [
        {"address": "10.0.0.2", "state": "in-sync", "lagBytes": 0, "lagSeconds": 0.0},
        {"address": "10.0.0.3", "state": "feeding", "lagBytes": 70_000, "lagSeconds": 65.0},
    ],
    "replicasNeeded": 1,
    "closedConnections": {"peer": 3, "not-serving": 1},
    "writes": {"PUT_OK": 10_200, "SLAVE_NOT_AVAILABLE": 7},
    "remoting": {
        "connections": 12,
        "topics": 47,
        "groups": 3,
        "nameServers": {"a:9876": "registered", "b:9876": "not yet"},
        "refusedRequests": [],
    },
}

SLAVE: dict[str, Any] = MASTER | {
    "role": "slave",
    "brokerId": 1,
    "replicas": [],
    "replicasNeeded": 0,
    "writes": {},
    "upstream": {
        "state": "catching-up",
        "reason": "",
        "address": "10.0.0.1:10912",
        "lagBytes": None,
        "lagSeconds": 3.25,
        "secondsSilent": 0.5,
    },
}

NAMESRV: dict[str, Any] = {
    "role": "namesrv",
    "version": "0.1",
    "uptimeSeconds": 12.0,
    "pid": 1,
    "state": "serving",
    "reason": "",
    "connections": 4,
    "topics": 9,
    "brokers": [
        {"brokerName": "a", "brokerId": 1, "address": "10.0.0.2:10911", "secondsSilent": 3.0}
    ],
}


class LinesTests(SynchronousTestCase):
    def told(self, status: dict[str, Any], problem: str = "") -> dict[str, str]:
        found = lines(PollResult(problem, status))
        self.assertEqual(len(found), 6)
        return dict(found)

    def test_master(self) -> None:
        """Who it is, what it holds, who has it too, and whom it serves; with units.  Where nobody
        has it, and nobody needs to, that is no count of none.
        """
        self.assertEqual(
            self.told(MASTER),
            {
                "node": "broker-a/0, master in C; rmqha 0.1, up 3 h 12 min, process 4711",
                "state": "serving",
                "log": "bytes 0 to 2660709 (2.7 MB); 1.0 kB not yet in the queues; disk 41% full",
                "replication": "1 of 2 replicas in sync; 10.0.0.2 in-sync, 0 bytes and 0.0 s "
                "behind; 10.0.0.3 feeding, 70.0 kB and 1 min 5 s behind",
                "clients": "12 connections; 47 topics, 3 groups; registered at 1 of 2 name "
                "servers; writes 10200 PUT_OK, 7 SLAVE_NOT_AVAILABLE",
                "attention": "nothing",
            },
        )
        alone = MASTER | {"replicas": [], "replicasNeeded": 0}
        self.assertEqual(self.told(alone)["replication"], "no replicas")
        short = MASTER | {"replicas": []}
        self.assertEqual(self.told(short)["replication"], "0 of 1 replicas in sync")

    def test_handed_out(self) -> None:
        """What was handed out and not acknowledged is told by group, the one with most first, and
        how many timer messages wait by topic; nothing of both where there is nothing.
        """
        pop = {"checkPoints": 3, "unacked": {"audit": 2, "billing": 40}}
        busy = {"connections": 1, "pop": pop, "timers": {"pending": {"orders": 7}}}
        self.assertEqual(
            self.told(MASTER | {"remoting": busy, "writes": {}})["clients"],
            "1 connections; not acknowledged: 40 of billing, 2 of audit (3 check points); timer "
            "messages: 7 of orders",
        )

    def test_behind_one_address(self) -> None:
        """Replicas that count as one for a write have a row each, and that is said."""
        row = {"state": "in-sync", "lagBytes": 0, "lagSeconds": 0.0, "connections": 2}
        rows = [{"address": f"10.0.0.2:{port}", **row} for port in (4000, 4001)]
        told = self.told(MASTER | {"replicas": rows})["replication"]
        self.assertTrue(told.startswith("2 of 2 replicas in sync; 10.0.0.2:4000"), told)
        self.assertEqual(2, told.count("behind (one of 2 that count as one)"))

    def test_slave(self) -> None:
        """A slave tells of its master; bytes that are not known are not called 0."""
        found = self.told(SLAVE)
        self.assertEqual(found["state"], "serving, catching-up")
        self.assertEqual(
            found["replication"],
            "catching-up with 10.0.0.1:10912; 3.2 s behind; master heard 0.5 s ago",
        )

    def test_slave_ahead(self) -> None:
        """A slave whose log is longer than its master's is not called behind it."""
        upstream = SLAVE["upstream"] | {"state": "ahead", "reason": "412 bytes more"}
        found = self.told(SLAVE | {"upstream": upstream})
        self.assertEqual(
            found["replication"],
            "ahead with 10.0.0.1:10912; 412 bytes more; master heard 0.5 s ago",
        )

    def test_member(self) -> None:
        """A member of a set has one more: its set, and its lease or the controller."""
        member = {"state": "master", "id": 2, "masterEpoch": 7, "leader": "10.0.0.9:9878"}
        known = {"set": {"syncStateSet": [1, 2]}}
        status = MASTER | {"controller": member | known}
        self.assertEqual(
            "member 2, master, epoch 7; in sync 1, 2; controller 10.0.0.9:9878 leads",
            dict(lines(PollResult("", status)))["set"],
        )
        etcd = {
            "lease": {"secondsLeft": 2.25},
            "etcd": {
                "latencySeconds": 0.0034,
                "members": [
                    {"address": "a:2379", "answers": False},
                    {"address": "b:2379", "answers": True},
                ],
            },
        }
        followed = {"upstream": {"controller": {"syncStateSet": [1, 3]}}}
        status = SLAVE | followed | {"controller": member | {"state": "slave"} | etcd}
        self.assertEqual(
            "member 2, slave, epoch 7; in sync 1, 3; lease for 2.2 s; "
            "etcd b:2379 answers in 3.4 ms",
            dict(lines(PollResult("", status)))["set"],
        )
        away = {"lease": {"secondsLeft": None}, "etcd": {"latencySeconds": None, "members": []}}
        status = SLAVE | {"controller": member | {"state": "fenced"} | away}
        self.assertEqual(
            "member 2, fenced, epoch 7; no lease; no etcd answers",
            dict(lines(PollResult("", status)))["set"],
        )

    def test_namesrv(self) -> None:
        """A name server tells which brokers it knows, and which names have no master."""
        found = self.told(NAMESRV)
        self.assertEqual(found["node"], "name server; rmqha 0.1, up 12.0 s, process 1")
        self.assertEqual(found["brokers"], "a/1 10.0.0.2:10911 heard 3.0 s ago")
        self.assertEqual(found["masters"], "none of a")
        self.assertEqual(found["clients"], "4 connections; 9 topics")

    def test_opening(self) -> None:
        """A node whose store is not open yet has its six lines too."""
        status: dict[str, Any] = {
            "role": "slave",
            "state": "recovering",
            "reason": "reading",
            "maxOffset": None,
        }
        found = self.told(status)
        self.assertEqual((found["state"], found["log"]), ("recovering: reading", "not open yet"))

    def test_attention(self) -> None:
        """What is wrong comes first, then what should be looked at."""
        wrong = MASTER | {
            "retention": {"diskUse": 0.5, "lostBytes": 2000},
            "scrub": {"faultCount": 2},
            "readers": [{"name": "lake", "state": "stale"}],
            "retentionSlots": [{"address": "10.0.0.9", "connected": False, "bytes": 5000}],
            "closedConnections": {"peer": 1, "negative": 4},
            "periodicJobs": [{"name": "flushing the log", "failuresInARow": 1}],
            "remoting": {
                "refusedRequests": [
                    {"code": 1, "name": "POP_MESSAGE", "client": "10.0.0.7", "count": 9}
                ]
            },
        }
        self.assertEqual(
            self.told(wrong, "it is unhealthy")["attention"].split("; "),
            [
                "it is unhealthy",
                "2.0 kB deleted that a replica needed",
                "2 damaged ranges in the log",
                "Spark streams that read no more: lake",
                "5.0 kB kept for replicas that are away: 10.0.0.9",
                "HA port connections refused: 4 negative",
                "9 requests refused, the most POP_MESSAGE from 10.0.0.7",
                "failing: flushing the log",
            ],
        )

    def test_full_stop(self) -> None:
        """N6: a reason that ends as a sentence is followed by no second mark."""
        reason = "Connection was refused by other side: 111: Connection refused."
        upstream = SLAVE["upstream"] | {"reason": reason}
        found = self.told(SLAVE | {"upstream": upstream})["replication"]
        self.assertIn("Connection refused; 3.2 s behind", found)

    def test_filling(self) -> None:
        """N6: a disk that fills up is told of before writes are refused."""
        for use, expected in ((0.81, ["disk 81% full"]), (0.8, []), (None, [])):
            found = list(attention(MASTER | {"retention": {"diskUse": use}}))
            self.assertEqual([text for text in found if "disk" in text], expected)

    def test_returned(self) -> None:
        """O8: of a master that became a slave, its master is none of the replicas away."""
        rows = [
            {"address": address, "connected": False, "bytes": 5000}
            for address in ("10.0.0.9", "10.0.0.8")
        ]
        returned = {"role": "slave", "state": "serving", "maxOffset": 0, "retentionSlots": rows}
        returned["upstream"] = {"address": "10.0.0.9:10912", "state": "in-sync"}
        self.assertEqual(
            "5.0 kB kept for replicas that are away: 10.0.0.8", self.told(returned)["attention"]
        )

    def test_durations(self) -> None:
        """A time has its two largest units."""
        for seconds, text in (
            (0.04, "0.0 s"),
            (59.94, "59.9 s"),
            (60, "1 min 0 s"),
            (3599, "59 min 59 s"),
            (7260, "2 h 1 min"),
            (200_000, "2 d 7 h"),
            (None, "unknown"),
        ):
            self.assertEqual(duration(seconds), text)


class SeveralTests(SynchronousTestCase):
    """L{several}, and where the nodes of a name server are."""

    def test_rows(self) -> None:
        """Each node has a row, one that does not answer too."""
        console = Console(file=io.StringIO(), width=250)
        rows = [
            ("10.0.0.1:10914", PollResult("", MASTER)),
            ("10.0.0.2:10914", PollResult("", SLAVE)),
            ("10.0.0.3:9879", PollResult("", NAMESRV)),
            ("10.0.0.4:10914", PollResult("10.0.0.4:10914 cannot be reached: refused", None)),
        ]
        console.print(several(rows), markup=False)
        said = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
        self.assertEqual(said[0][:40], "node role state version up log ends at b")
        self.assertEqual(said[1], "broker-a/0 master serving 0.1 3 h 12 min 2660709 1 of 2")
        self.assertIn("broker-a/1 slave serving, catching-up 0.1 3 h 12 min 2660709 3.2 s", said[2])
        self.assertNotIn("0 of 0", "\n".join(said))
        self.assertEqual(said[3], "10.0.0.3:9879 namesrv serving 0.1 12.0 s")
        self.assertIn("cannot be reached: refused", said[4])

    def test_found(self) -> None:
        """Masters come before their slaves; a name server's admin port is three above."""
        data = {
            name: BrokerData(broker_name=name, cluster="C", broker_addrs=addresses)
            for name, addresses in (
                ("b", {1: "10.0.0.4:10911", 0: "10.0.0.3:10911"}),
                ("a", {0: "[::1]:10921"}),
            )
        }
        self.assertEqual(
            [broker.address for broker in brokers_in(ClusterInfo(broker_addr_table=data))],
            ["[::1]:10921", "10.0.0.3:10911", "10.0.0.4:10911"],
        )
        self.assertEqual(admin_of("10.0.0.9:9876"), "10.0.0.9:9879")

    def test_codes(self) -> None:
        """Unhealthy and unreachable end a command in different ways."""
        self.assertEqual(exit_code(PollResult("", MASTER)), 0)
        self.assertEqual(exit_code(PollResult("disk-full", MASTER)), 1)
        self.assertEqual(exit_code(PollResult("refused", None)), 3)
