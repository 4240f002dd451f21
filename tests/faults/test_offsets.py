"""Consumer offsets through crashes, role changes and damaged tables: what is consumed again."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from typing import Any

from attrs import define, field

from lab.harness.nodes import Node, until
from lab.harness.remote import Follower, Remote, pull, records, send
from lab.harness.remote import commit as committing
from rmqha.store.tables.checked_table import CheckedTables
from tests.faults.harness import rounds
from tests.faults.test_promote import BRISK, PromotionTestCase
from tests.support import client

LOOPBACK = {"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}

TOPIC, GROUP, QUEUES = "Orders", "billing", 4

#: Seconds that a message takes.
WORK = 0.002

#: Seconds within which a commit is on the disk, as docs/operations.rst promises it, and on a slave,
#: which hears of it after that.  A machine that does other things may be late now and then.
PROMISED, PROMISED_BY_SLAVE = 0.2, 0.4

#: Seconds that no kill may exceed, on a machine that does ten other things.  A stock broker, and
#: the table alone, take five, and a stock slave ten.
DURABLE, REPLICATED = 2.0, 4.0

#: Kills of a round that keep the promise, and most that there are for it.
KEPT, KILLS = 2, 4


@define(eq=False)
class Commits:
    """What one busy consumer did: messages taken in turn, times and offsets of commits by queue."""

    done: dict[int, list[tuple[float, int]]] = field(factory=dict)

    def consume(self, node: Node, seconds: float) -> None:
        with Remote(node.port) as broker:
            positions = {queue: self.done.get(queue, [(0.0, 0)])[-1][1] for queue in range(QUEUES)}
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for queue, offset in positions.items():
                    found = len(records(broker.ask(pull(TOPIC, GROUP, offset, queue))))
                    assert found, f"no messages behind {offset} in queue {queue}"
                    # Each message is a step of its own, as with a consumer that takes its time.
                    for _ in range(min(found, 4)):
                        offset += 1
                        time.sleep(WORK)
                        assert broker.ask(committing(TOPIC, GROUP, offset, queue)).code == 0
                        self.done.setdefault(queue, []).append((time.monotonic(), offset))
                    positions[queue] = offset

    def repeated(self, node: Node) -> tuple[int, float]:
        """What a consumer that starts now is given again: how many messages, and how many seconds
        before the
        last commit the first of them was committed.
        """
        count, age = 0, 0.0
        last = max(moment for each in self.done.values() for moment, _ in each)
        for queue, each in self.done.items():
            kept = client.committed(f"127.0.0.1:{node.port}", GROUP, TOPIC, queue) or 0
            lost = [moment for moment, offset in each if offset > kept]
            count += len(lost)
            age = max([age, *(last - moment for moment in lost)])
        return count, age


class OffsetTestCase(PromotionTestCase):
    def clients(self, node: Node) -> str:
        return f"127.0.0.1:{node.port}"

    def couple(self, **keys: Any) -> tuple[Any, Node]:
        """A pair with a topic, a group and messages; its slave knows the tables."""
        master = self.master(brokerRole="ASYNC_MASTER", **LOOPBACK, **keys).start()
        slave = self.slave(
            master.address, **{**LOOPBACK, "haMasterClientAddress": self.clients(master)}
        ).start()
        client.make_topic(self.clients(master), TOPIC, QUEUES)
        client.make_group(self.clients(master), GROUP)
        return master, slave

    def filled(self, count: int) -> tuple[Any, Node]:
        """A pair of which both have so many messages."""
        master, slave = self.couple()
        self.fill(master, count)
        slave.until_synced(master.status()["maxOffset"])
        return master, slave

    def alone(self) -> Node:
        """A master without a slave, with a topic and a group."""
        node = Node(self.folder, "master", "alone", **LOOPBACK)
        self._processes.append(node)
        node.start()
        client.make_topic(self.clients(node), TOPIC, QUEUES)
        client.make_group(self.clients(node), GROUP)
        return node

    def fill(self, node: Node, count: int) -> None:
        """Send messages, each another one, to all queues in turn."""
        commands = [send(TOPIC, b"%d" % number, number % QUEUES) for number in range(count)]
        with Remote(node.port) as broker:
            self.assertEqual({answer.code for answer in broker.ask_all(commands)}, {0})

    def until_followed(self, slave: Node) -> None:
        """Wait until a slave hears of each commit."""
        slave.until(
            lambda status: status["metadata"]["offsetFeed"]["live"], "the slave follows offsets"
        )

    def promoted(self, slave: Node, **keys: Any) -> Node:
        new = Node(
            self.folder,
            "master",
            "promoted",
            root=slave.root,
            **{**BRISK, **LOOPBACK, "brokerRole": "ASYNC_MASTER", **keys},
        )
        self._processes.append(new)
        return new.start()

    def table(self, node: Node) -> dict[int, int]:
        """The group's offsets on a running node."""
        found = {
            queue: client.committed(self.clients(node), GROUP, TOPIC, queue)
            for queue in range(QUEUES)
        }
        return {queue: offset for queue, offset in found.items() if offset is not None}


class CrashTests(OffsetTestCase):
    def test_master_killed(self) -> None:
        """A kill -9 of a busy master repeats what was committed in its last moments: a fifth of a
        second, and less than a table that is written every five seconds would repeat.
        """
        for _ in rounds(1):
            node = self.alone()
            self.fill(node, 4000)
            commits = Commits()
            ages: list[float] = []
            while sum(age < PROMISED for age in ages) < KEPT and len(ages) < KILLS:
                commits.consume(node, self.random.uniform(2.0, 3.5))
                node.kill9()
                node.start()
                count, age = commits.repeated(node)
                total = sum(map(len, commits.done.values()))
                self.tell(f"kill: {count} of {total} again, the oldest {age * 1000:.0f} ms")
                self.assertLess(age, DURABLE, node.tail())
                ages.append(age)
                # A consumer goes on where the broker says, and not before.
                for queue, offset in self.table(node).items():
                    commits.done[queue] = [(time.monotonic(), offset)]
            self.assertEqual(KEPT, sum(age < PROMISED for age in ages), ages)
            node.kill9()
            shutil.rmtree(node.root)

    def test_slave_promoted(self) -> None:
        """A promotion after a kill -9 of both repeats what the slave had not heard: a moment."""
        self.at_best(self._promotion, PROMISED_BY_SLAVE, "committed before the kill")

    def _promotion(self) -> float:
        """Promote the slave of a killed pair: seconds from the first lost to the last commit."""
        master, slave = self.filled(4000)
        self.until_followed(slave)
        commits = Commits()
        commits.consume(master, self.random.uniform(2.5, 4.0))
        master.kill9()
        self.passes(self.random.uniform(0.0, 0.5))
        slave.kill9()
        self.promote(slave)
        new = self.promoted(slave)
        count, age = commits.repeated(new)
        total = sum(map(len, commits.done.values()))
        self.tell(f"promotion: {count} of {total} again, the oldest {age * 1000:.0f} ms")
        self.assertLess(age, REPLICATED, slave.tail())
        new.kill9()
        for node in (master, slave):
            shutil.rmtree(node.root)
        return age

    def test_set_back(self) -> None:
        """A group set back stays there through kills, on both nodes, and goes on from there."""
        master, slave = self.filled(400)
        self.until_followed(slave)
        for offset in (10, 90, 5, 7):
            client.commit(self.clients(master), GROUP, TOPIC, 0, offset)
            self.until_offset(slave, 0, offset)
            self.passes(self.random.uniform(0.5, 1.5))
        for node in (master, slave):
            node.kill9()
        self.assertEqual(self.table(slave.start())[0], 7)
        self.assertEqual(self.table(master.start())[0], 7)

    def until_offset(self, node: Node, queue: int, offset: int) -> None:
        """Wait until a node has an offset."""
        until(
            lambda: self.table(node).get(queue) == offset,
            f"{node.name} has {offset}",
            tell=lambda: f"{self.table(node)}\n{node.tail()}",
        )

    def test_committed_at_a_slave(self) -> None:
        """What was committed at a slave whose master is away is not forgotten when the slave is
        killed a moment later: the master is told when it is back.
        """
        master, slave = self.filled(400)
        client.commit(self.clients(master), GROUP, TOPIC, 0, 10)
        self.until_offset(slave, 0, 10)
        master.kill9()
        client.commit(self.clients(slave), GROUP, TOPIC, 0, 60)
        self.passes(DURABLE)
        slave.kill9()
        slave.start()
        self.assertEqual(slave.status()["metadata"]["owed"], 1)
        master.start()
        self.until_offset(master, 0, 60)


class RoleTests(OffsetTestCase):
    """Planned role changes, and the tables of both nodes."""

    def test_planned(self) -> None:
        """Consumers go on at the slave while the master is stopped; a planned promotion with the
        master's tables repeats nothing of what was consumed at either.
        """
        master, slave = self.filled(400)
        consumers = [self.consumer({0: master, 1: slave}, queue) for queue in range(QUEUES)]
        for consumer in consumers:
            consumer.run(lambda consumer=consumer: len(consumer.got) >= 40)
        # What only the master knows: its slave is stopped, and comes back when it is gone.
        slave.term()
        for consumer in consumers:
            consumer.run(lambda consumer=consumer: len(consumer.got) >= 72)
        self.assertEqual(0, master.stop(), master.tail())
        slave.start()
        for consumer in consumers[:2]:
            consumer.run(lambda consumer=consumer: len(consumer.got) >= 100)
        until(
            lambda: slave.status()["metadata"]["owed"] == 2,
            "the slave owes offsets",
            tell=slave.tail,
        )
        slave.term()
        said = self.rmqha("promote", slave.root, "--conf", slave.conf, "--dry-run")
        self.assertIn("no consumer offset or delay level", said)
        copied = self.folder / "tables"
        shutil.copytree(master.root / "config", copied)
        done = json.loads(
            self.rmqha("promote", slave.root, "--conf", slave.conf, "--tables", copied, "--json")
        )
        self.assertEqual(done["owedOffsets"], 2)
        self.assertGreaterEqual(done["mergedTables"]["offsets"], 2)
        new = self.promoted(slave)
        after = [self.consumer({0: new}, queue, at) for queue, at in self.table(new).items()]
        for consumer in after:
            consumer.run(lambda consumer=consumer: consumer.offset >= 100)
        seen = Counter(body for consumer in (*consumers, *after) for body in consumer.got)
        again = sum(count - 1 for count in seen.values())
        self.tell(f"planned: {len(seen)} messages, {again} consumed again")
        self.assertEqual((len(seen), again), (400, 0))

    def consumer(self, nodes: dict[int, Node], queue: int, offset: int = 0) -> Follower:
        ports = {number: node.port for number, node in nodes.items()}
        found = Follower(ports, TOPIC, GROUP, queue)
        found.offset = offset
        self.addCleanup(found.close)
        return found


class DamageTests(OffsetTestCase):
    """Tables that the disk or an operator changed."""

    def test_damaged(self) -> None:
        """C{consumerOffset.json} cut anywhere, or with a digit changed, after a kill -9 or a clean
        stop: no offset goes back or on, and the status, the log and C{/healthz} say so.
        """
        node = self.alone()
        path = node.root / "config" / "consumerOffset.json"
        self.fill(node, 2000)
        expected: dict[int, int] = {}
        for number, ends in enumerate((node.kill9, node.term)):
            for generation in range(2):
                expected = dict.fromkeys(range(QUEUES), 100 + 40 * number + 10 * generation)
                for queue, offset in expected.items():
                    client.commit(self.clients(node), GROUP, TOPIC, queue, offset)
                text = f":{expected[0]}"
                until(lambda text=text: path.exists() and text in path.read_text(), "it is written")
            self.passes(DURABLE)
            ends()
            whole = path.read_bytes()
            if number == 1:
                damaged = whole.replace(f"0:{expected[0]}".encode(), b"0:9")
            else:
                damaged = whole[: self.random.randrange(len(whole))]
            path.write_bytes(damaged)
            node.start()
            self.assertEqual(self.table(node), expected, node.tail())
            older = node.status()["remoting"]["olderTables"]
            self.assertIn("consumerOffset.json", older)
            self.assertIn("going on with the generation before it", node.log())
            self.assertEqual(node.health(), 503)
        kept = list((node.root / "rmqha" / "aside").glob("consumerOffset.json-*"))
        self.assertTrue(kept)

    def test_edited(self) -> None:
        """A table that the operator edits while the node is stopped is taken as it is once it is
        accepted, also when that sets a group back.
        """
        node = self.alone()
        path = node.root / "config" / "consumerOffset.json"
        self.fill(node, 400)
        for offset in (20, 77):
            client.commit(self.clients(node), GROUP, TOPIC, 0, offset)
            text = f":{offset}"
            until(lambda text=text: path.exists() and text in path.read_text(), "it is written")
        node.kill9()
        path.write_bytes(path.read_bytes().replace(b":77", b":31"))
        self.rmqha("tables", node.root, code=1)
        self.rmqha("tables", node.root, "--accept", "consumerOffset.json")
        node.start()
        self.assertEqual(self.table(node), {0: 31})
        self.assertEqual(node.status()["remoting"]["olderTables"], {})
        self.assertEqual(CheckedTables(node.root).read(path).fault, "")
