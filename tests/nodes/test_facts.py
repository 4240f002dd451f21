"""What the page tells of a node, in words, and what comes next for one that is not well."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rmqha.nodes.facts import facts_of
from rmqha.nodes.next_steps import advice, next_step
from rmqha.nodes.poll import PollResult
from rmqha.nodes.runtime_facts import runtime_facts
from tests.nodes.test_summary import MASTER, NAMESRV, SLAVE


def told(status: dict[str, Any]) -> dict[str, str]:
    """The facts by name."""
    return {fact.name: fact.text for fact in facts_of(status)}


class FactsTests(SynchronousTestCase):
    def test_master(self) -> None:
        """A master tells its epoch, writes, disk, what is scrubbed and kept, and who knows it."""
        status = MASTER | {
            "masterEpoch": 3,
            "putMillis": {"p50": 0.5, "p99": 4.25, "max": 9.0},
            "scrub": {
                "bytesPerSecond": 100,
                "position": 50,
                "passFrom": 0,
                "passTo": 200,
                "faultCount": 0,
            },
            "retentionSlots": [
                {"address": "10.0.0.2", "connected": True, "bytes": 0},
                {"address": "10.0.0.9", "connected": False, "bytes": 5000},
            ],
        }
        self.assertEqual(
            told(status),
            {
                "state": "serving",
                "version": "rmqha 0.1, up 3 h 12 min",
                "epoch": "master epoch 3",
                "replication": "1 of 2 replicas in sync; 10.0.0.2 in-sync, 0 bytes and 0.0 s "
                "behind; 10.0.0.3 feeding, 70.0 kB and 1 min 5 s behind",
                "log": "bytes 0 to 2660709 (2.7 MB); 1.0 kB not yet in the queues",
                "writes": "10200 PUT_OK, 7 SLAVE_NOT_AVAILABLE",
                "put p99": "4.2 ms",
                "disk": "41% full",
                "scrub": "25% of a pass; nothing damaged",
                "slots": "5.0 kB kept for 10.0.0.9",
                "registration": "a:9876 registered; b:9876 not yet",
                "clients": "12 connections",
                "attention": "5.0 kB kept for replicas that are away: 10.0.0.9",
            },
        )

    def test_scrub(self) -> None:
        """How far a scrub is, when the last was, and what it found."""
        for scrub, text in (
            ({"bytesPerSecond": 0}, "off; nothing damaged"),
            ({"bytesPerSecond": 9, "faultCount": 2}, "no pass yet; 2 damaged ranges"),
            (
                {"bytesPerSecond": 9, "lastPassAge": 60.0},
                "last pass 1 min 0 s ago; nothing damaged",
            ),
        ):
            self.assertEqual(told(MASTER | {"scrub": scrub})["scrub"], text)

    def test_others(self) -> None:
        """A slave has no writes, and a name server no log; a master without any says so."""
        slave = dict(SLAVE)
        del slave["writes"]
        self.assertNotIn("writes", told(slave))
        self.assertIn("3.2 s behind", told(slave)["replication"])
        idle = told(MASTER | {"writes": {}, "putMillis": {"p99": 0.0}, "retentionSlots": []})
        self.assertEqual((idle["writes"], idle["slots"]), ("none yet", "none"))
        self.assertNotIn("put p99", idle)
        names = told(NAMESRV)
        self.assertEqual(names["masters"], "none of a")
        self.assertNotIn("log", names)

    def test_handed_out(self) -> None:
        """What was handed out by POP, and what waits for its time."""
        pop = {"checkPoints": 1, "unacked": {f"g{n}": n for n in range(1, 9)}}
        found = told(MASTER | {"remoting": {"pop": pop, "timers": {"pending": {"orders": 7}}}})
        self.assertEqual(
            found["not acknowledged"],
            "8 of g8, 7 of g7, 6 of g6, 5 of g5, 4 of g4, 6 of 3 others (1 check points)",
        )
        self.assertEqual(found["timer messages"], "7 of orders")

    def test_an_older_node(self) -> None:
        """One that tells next to nothing is shown all the same."""
        self.assertEqual(told({"state": "serving"})["state"], "serving")


class RuntimeFactsTests(SynchronousTestCase):
    def test_stock(self) -> None:
        """What a stock broker tells is shown in the same words."""
        table = {
            "brokerVersionDesc": "V5_3_3",
            "bootTimestamp": "1000000",
            "commitLogMinOffset": "0",
            "commitLogMaxOffset": "2500000",
            "putTps": "12.5 11.0 9.9",
            "commitLogDiskRatio": "0.41",
        }
        self.assertEqual(
            {fact.name: fact.text for fact in runtime_facts(table, lambda: 4600.0)},
            {
                "state": "answers its clients",
                "version": "V5_3_3, up 1 h 0 min",
                "log": "bytes 0 to 2500000 (2.5 MB)",
                "writes": "12.5 a second",
                "disk": "41% full",
            },
        )

    def test_nonsense(self) -> None:
        """What is no number is left out."""
        facts = runtime_facts({"bootTimestamp": "soon", "putTps": "", "commitLogDiskRatio": "x"})
        self.assertEqual([fact.name for fact in facts], ["state"])


def seen(*names: str, **status: object) -> PollResult:
    """A node with some reasons."""
    return PollResult("unhealthy", status, [{"name": name, "text": "so it is"} for name in names])


class NextStepTests(SynchronousTestCase):
    def test_command(self) -> None:
        """It names store, master and address as they are; what is not told is left open."""
        upstream = {"address": "10.0.0.1:10912"}
        found = advice("10.0.0.2", seen("replication-diverged", store="/data", upstream=upstream))
        ((text, step),) = found
        self.assertEqual("replication-diverged: so it is", text)
        assert step is not None
        self.assertEqual("rmqha diverge /data --against 10.0.0.1:10912", step.command)
        self.assertEqual("states.rst, Diverged", step.page)
        (((_, slots),), ((_, tables),)) = (
            list(advice("10.0.0.2", seen(name))) for name in ("replica-away", "older-tables")
        )
        assert slots is not None and tables is not None
        self.assertEqual("rmqha slots 10.0.0.2", slots.command)
        self.assertEqual("rmqha tables ...", tables.command)

    def test_groups(self) -> None:
        """A name that begins as a group has the group's; one of another version has none."""
        self.assertIsNotNone(next_step("tls-files-clients"))
        self.assertIs(next_step("member-fenced"), next_step("member-refused"))
        self.assertIsNot(next_step("fenced"), next_step("member-fenced"))
        self.assertIsNone(next_step("of-tomorrow"))
        self.assertIsNone(next_step(""))

    def test_stock(self) -> None:
        """Of a node of RocketMQ it is said that nothing is known, and who knows."""
        row = PollResult("", {"product": "stock", "reason": "stock, no admin port"})
        ((text, step),) = advice("10.0.0.1:10911", row)
        self.assertIn("stock, no admin port: whether anything is wrong", text)
        assert step is not None
        self.assertEqual("mqadmin brokerStatus -b 10.0.0.1:10911", step.command)

    def test_attention(self) -> None:
        """What is not wrong yet comes last, without a command; a node that is well has nothing."""
        status = {"retention": {"diskUse": 0.82}}
        self.assertEqual([("disk 82% full", None)], list(advice("a", PollResult("", status))))
        self.assertEqual([], list(advice("a", PollResult("", {}))))
