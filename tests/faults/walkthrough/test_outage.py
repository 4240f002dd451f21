"""A master is killed, and comes back."""

from __future__ import annotations

import threading

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, progress
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.offsets import MaxOffsetRequest
from tests.faults.walkthrough.cluster import GROUP, QUEUES, SOON, TOPIC, WalkthroughCase, until_all


class PlannedTests(WalkthroughCase):
    def test_restart(self) -> None:
        """A producer that never pauses is told C{SEND_OK} all the time: the master refuses first,
        so that the other pair takes over, and only then it is restarted.
        """
        client = self.client()
        self.produce(client, 20)
        sent: list[str] = []
        problems: list[str] = []
        ending = threading.Event()

        def work() -> None:
            while not ending.is_set():
                new = self.bodies(5)
                for body, answer in zip(new, client.send(TOPIC, new), strict=True):
                    sent.append(body)
                    if answer.status != "SEND_OK":
                        problems.append(f"{body}: {answer}")

        producing = threading.Thread(target=work, daemon=True)
        producing.start()
        until(lambda: len(sent) > 50, "some writes", SOON)
        master = self.masters["broker-a"]
        change = Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n")
        with Remote(master.port) as administrator:
            self.assertEqual(0, administrator.ask(change).code)
        end = master.status()["maxOffset"]
        told = len(sent)
        until(lambda: len(sent) > told + 50, "writes to the other pair", SOON)
        self.assertEqual(end, master.status()["maxOffset"])
        master.term()
        self.assertEqual(end, self.slaves["broker-a"].status()["maxOffset"])
        master.start()
        self.until_served(master)
        self.until_replica("broker-a")
        self.assertEqual({0: 20}, self.direct(master, 20))
        ending.set()
        producing.join(SOON)
        self.assertEqual([], problems[:5], len(sent))
        held = set(self.held(master)) | set(self.held(self.masters["broker-b"]))
        self.assertLessEqual(set(sent), held)
        self.end_all_well()


class OutageTests(WalkthroughCase):
    """The master of one pair is killed without a warning."""

    def offsets(self, node: Node) -> list[int]:
        """How far the group is in each queue, in the words of one broker; -1 where it never was."""
        found = []
        with Remote(node.port) as client:
            for queue in range(QUEUES):
                answer = client.ask(progress(TOPIC, GROUP, queue))
                found.append(int(answer.ext["offset"]) if answer.code == 0 else -1)
        return found

    def kill(self, broker: str) -> Node:
        """Kill a master, wait until the name server knows, and return its slave."""
        self.masters[broker].kill9()
        gone = f"127.0.0.1:{self.masters[broker].port}"
        until(
            lambda: gone not in [row["address"] for row in self.names.status()["brokers"]],
            "the name server knows",
            SOON,
        )
        return self.slaves[broker]

    def test_killed(self) -> None:
        """Nothing acknowledged is lost: it is read from the slave; writes go to the other pair."""
        client = self.client()
        before = self.produce(client, 120)
        slave = self.kill("broker-a")
        taken = self.masters["broker-b"].status()["writes"]["PUT_OK"]
        after = self.produce(client, 40)
        taken = self.masters["broker-b"].status()["writes"]["PUT_OK"] - taken
        self.assertEqual(40, taken)
        # Somebody who comes now: its route has only the slave of the pair.
        reader = self.client()
        consumer = reader.consume(TOPIC, GROUP)
        until_all(before + after, lambda: consumer.bodies, "all read")
        on_slave = set(self.held(slave))
        self.assertGreater(len(on_slave & set(before)), 20)
        self.assertEqual(sorted(before + after), sorted(consumer.bodies))
        self.end_all_well("broker-b")

    def test_back(self) -> None:
        """The master comes back with its store: the slave compares and goes on, SYNC promises
        again, and what the group committed to the slave meanwhile is known to the master.
        """
        client = self.client()
        before = self.produce(client, 120)
        slave = self.kill("broker-a")
        reader = self.client()
        consumer = reader.consume(TOPIC, GROUP)
        until_all(before, lambda: consumer.bodies, "all read")
        consumer.stop()
        ends = self.queue_ends(slave)
        self.assertGreater(sum(ends), 20)
        until(lambda: self.offsets(slave) == ends, "committed to the slave", SOON)
        reader.process.term()
        probes = slave.status()["upstream"]["probes"]
        self.masters["broker-a"].start()
        self.until_served(self.masters["broker-a"])
        self.until_copied("broker-a")
        self.assertGreater(slave.status()["upstream"]["probes"], probes)
        until(
            lambda: self.offsets(self.masters["broker-a"]) == ends,
            "the master knows",
            SOON,
            tell=lambda: f"{self.offsets(self.masters['broker-a'])}, not {ends}",
        )
        self.until_replica("broker-a")
        self.assertEqual({0: 20}, self.direct(self.masters["broker-a"], 20))
        self.assertEqual(ends, [min(pair) for pair in zip(ends, self.offsets(slave), strict=True)])
        again = self.client().consume(TOPIC, GROUP)
        new = self.produce(client, 20)
        until_all(new, lambda: again.bodies, "all new read")
        self.assertEqual([], sorted(set(again.bodies) & set(before)))
        self.end_all_well()

    def queue_ends(self, node: Node) -> list[int]:
        """Messages in each queue of the topic."""
        with Remote(node.port) as client:
            asked = [MaxOffsetRequest(topic=TOPIC, queue_id=queue) for queue in range(QUEUES)]
            answers = [
                client.ask(Command.request(RequestCode.GET_MAX_OFFSET, request))
                for request in asked
            ]
        return [int(answer.ext["offset"]) for answer in answers]
