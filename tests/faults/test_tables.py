"""Tables of topics and groups in bursts: a kill -9 loses nothing acknowledged; stops end."""

from __future__ import annotations

import json
import time

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, make_topic, records, send
from lab.harness.remote import pull as pulling
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.tables import GroupConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.faults.harness import FaultTestCase, rounds

#: New topics of one burst; a queue of locks broke at some 130.
MANY = 4_000

#: Seconds within which a broker with nothing left to do has ended.
STOPS_IN = 20.0


class TableBurstTests(FaultTestCase):
    """A broker without a slave, and clients that make many topics and groups."""

    def broker(self) -> Node:
        node = Node(self.folder, "master", "broker")
        self._processes.append(node)
        node.start()
        return node

    def topics(self, node: Node) -> dict[str, int]:
        """The queues of each topic that a broker has, asked by request 21."""
        answer = Remote(node.port).ask(Command(code=RequestCode.GET_ALL_TOPIC_CONFIG))
        table = json.loads(bytes(answer.body))["topicConfigTable"]
        return {name: row["writeQueueNums"] for name, row in table.items()}

    def burst(self, node: Node, names: list[str]) -> None:
        """Make topics by sending to them, one after the other: each is made in a turn of the
        reactor of its own, while the tables of those before it are on their way to the disk.
        """
        client = Remote(node.port)
        self.assertEqual({client.ask(send(name, b"x")).code for name in names}, {0})

    def make(self, node: Node, name: str, queues: int) -> None:
        self.assertEqual(Remote(node.port).ask(make_topic(name, queues)).code, 0)

    def test_topics_then_kill(self) -> None:
        """Four thousand topics made by sending, one by an administrator with five messages, then
        kill -9 at some moment: all are there, with their queues and messages.
        """
        for _ in rounds(1):
            node = self.broker()
            names = [f"T{number}" for number in range(MANY)]
            self.burst(node, names)
            self.make(node, "Late", 16)
            client = Remote(node.port)
            for queue in range(8, 13):
                self.assertEqual(client.ask(send("Late", b"m", queue)).code, 0)
            self.passes(self.random.random() * 3)
            node.kill9()
            node.start()
            found = self.topics(node)
            self.assertEqual(set(names) - set(found), set())
            self.assertGreaterEqual(found["Late"], 13)
            answer = Remote(node.port).ask(pulling("Late", "g", 0, 8))
            self.assertEqual([record.body for record in records(answer)], [b"m"])
            node.kill9()

    def test_late_change_is_written(self) -> None:
        """After a burst a change is on the disk within seconds, as at any other time."""
        node = self.broker()
        self.burst(node, [f"T{number}" for number in range(300)])
        self.make(node, "Late", 16)
        path = node.root / "config" / "topics.json"
        until(lambda: '"Late"' in path.read_text(encoding="utf-8"), "Late is in topics.json", 10.0)
        node.kill9()
        node.start()
        self.assertEqual(self.topics(node)["Late"], 16)

    def test_bursts_then_stop(self) -> None:
        """A stop in a burst of topics and groups ends soon, with all acknowledged on the disk."""
        node = self.broker()
        client = Remote(node.port)
        self.burst(node, [f"T{number}" for number in range(1_500)])
        groups = [
            Command(
                code=RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=json_body.write(GroupConfig(group_name=f"g{number}")),
            )
            for number in range(300)
        ]
        self.assertEqual({client.ask(group).code for group in groups}, {0})
        began = time.monotonic()
        node.term(STOPS_IN)
        self.tell(f"stopped in {time.monotonic() - began:.1f} s")
        config = node.root / "config"
        kept = json.loads((config / "subscriptionGroup.json").read_text(encoding="utf-8"))
        self.assertLessEqual(
            {f"g{number}" for number in range(300)}, set(kept["subscriptionGroupTable"])
        )
        topics = json.loads((config / "topics.json").read_text(encoding="utf-8"))
        self.assertLessEqual(
            {f"T{number}" for number in range(1_500)}, set(topics["topicConfigTable"])
        )
