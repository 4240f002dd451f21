"""F39, F40 and F47: tables that come back older, or not whole, and name servers that are away."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from attrs import evolve

from lab.harness import compare_stores
from lab.harness.nodes import NameServer, Node, until
from lab.harness.writer import Driver
from rmqha.logfiles import json_table
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import encode
from tests.faults.harness import FaultTestCase, seconds
from tests.support import client

LOOPBACK = {"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}

#: A broker registers at this pace at the most.
OFTEN = {"registerNameServerPeriod": 10_000}

ALL = ("topics", "groups", "requestModes", "consumerOffsets", "delayOffsets")


def clients(node: Node) -> str:
    """Where a node's clients connect."""
    return f"127.0.0.1:{node.port}"


class MetadataTestCase(FaultTestCase):
    """A pair whose slave copies the tables."""

    def with_tables(self, **keys: Any) -> tuple[Driver, Node]:
        """A pair in sync, with a topic, a group, messages and an offset."""
        master = self.master(brokerRole="ASYNC_MASTER", **LOOPBACK, **keys).start()
        asked = keys.get("haMasterClientAddress", clients(master))
        slave = self.slave(
            master.address, **{**LOOPBACK, **keys, "haMasterClientAddress": asked}
        ).start()
        self.fill(master)
        return master, slave

    def fill(self, master: Driver) -> None:
        """Make a topic and a group, 40 messages in each of 4 queues, which a consumer could have
        got: an offset above what is in a queue is refused.
        """
        client.make_topic(clients(master), "Demo")
        client.make_group(clients(master), "g")
        master.put(160, topic="Demo").wait()
        master.until(lambda status: status["dispatchedOffset"] >= status["maxOffset"], "dispatched")

    def until_offset(self, node: Node, offset: int, queue_id: int = 0, timeout: float = 30) -> None:
        """Wait until the group has an offset."""
        until(
            lambda: client.committed(clients(node), "g", "Demo", queue_id) == offset,
            f"{node.name} has {offset}",
            timeout,
            tell=lambda: f"{client.committed(clients(node), 'g', 'Demo', queue_id)}\n{node.tail()}",
            pause=0.1,
        )

    def until_metadata(self, slave: Node, timeout: float = 30.0, **states: str) -> dict[str, Any]:
        """Wait until it stands so with some tables."""
        status = slave.until(
            lambda status: all(
                (status["metadata"] or {}).get(name, {}).get("state") == state
                for name, state in states.items()
            ),
            f"metadata {states}",
            timeout,
        )
        found: dict[str, Any] = status["metadata"]
        return found

    def without_complaints(self, *nodes: Node) -> None:
        """Stop nodes; none of them met anything without a name."""
        for node in nodes:
            node.term()
            self.assertEqual([], node.complaints(), node.log()[-20_000:])


class ModesTests(MetadataTestCase):
    def modes(self, node: Node) -> Any:
        answer = client.must(clients(node), RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        return json.loads(bytes(answer.body))["messageRequestModeMap"]

    def test_killed(self) -> None:
        """A mode that was set is at the slave at once, and stays through kill -9 of either."""
        master, slave = self.with_tables()
        slave.until(lambda status: status["metadata"]["offsetFeed"]["live"], "it follows", 30.0)
        mode = {"topic": "Demo", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2}
        client.must(
            clients(master), RequestCode.SET_MESSAGE_REQUEST_MODE, json.dumps(mode).encode()
        )
        expected = {"Demo": {"g": mode}}
        until(lambda: self.modes(slave) == expected, "the slave has the mode", 3.0, pause=0.1)
        # What is told is written a moment later.
        slave.until(lambda status: status["metadata"]["requestModes"]["changes"] == 1, "once", 3.0)
        master.kill9()
        self.assertEqual(expected, self.modes(slave))
        slave.kill9()
        slave.start()
        self.assertEqual(expected, self.modes(slave))
        master.start()
        self.assertEqual(expected, self.modes(master))
        self.until_metadata(slave, **dict.fromkeys(ALL, "adopted"))
        self.without_complaints(slave, master)


class RegressionTests(MetadataTestCase):
    """F39: a master that comes back with an old C{consumerOffset.json}."""

    def old_offsets(self, master: Driver) -> None:
        """Stop a master and give it back the offsets of before."""
        file = master.root / "config" / "consumerOffset.json"
        self.assertEqual(0, master.stop(), master.tail())
        table = json_table.read(file)
        assert table is not None
        self.assertEqual(30, table["offsetTable"]["Demo@g"][0])
        table["offsetTable"]["Demo@g"][0] = 5
        json_table.replace(file, table)
        file.with_name(file.name + ".bak").unlink(missing_ok=True)

    def test_slave_keeps(self) -> None:
        """The slave keeps the higher offset, and follows a reset of the master's new life."""
        master, slave = self.with_tables()
        client.commit(clients(master), "g", "Demo", 0, 30)
        self.until_offset(slave, 30)
        self.old_offsets(master)
        master.start()
        slave.until(lambda status: status["metadata"]["regressions"] == 1, "a regression")
        self.assertEqual(30, client.committed(clients(slave), "g", "Demo", 0))
        self.assertEqual(5, client.committed(clients(master), "g", "Demo", 0))
        self.assertIn("g in queue 0 of Demo from 30 to 5", slave.log())
        client.commit(clients(master), "g", "Demo", 0, 8)
        self.until_metadata(slave, consumerOffsets="adopted")
        self.assertEqual(30, client.committed(clients(slave), "g", "Demo", 0))
        self.passes(11)
        client.commit(clients(master), "g", "Demo", 0, 7)
        self.until_offset(slave, 7)
        self.assertIn("g in queue 0 of Demo from 8 to 7", slave.log())
        self.without_complaints(slave, master)

    def test_master_asks(self) -> None:
        """With a name server the master asks its slave before it serves, and is where its
        consumers were; offsets committed at the slave meanwhile count.
        """
        names = NameServer(self.folder)
        self._processes.append(names)
        names.start()
        master, slave = self.with_tables(namesrvAddr=names.client_address)
        client.commit(clients(master), "g", "Demo", 0, 30)
        self.until_offset(slave, 30)
        self.old_offsets(master)
        client.commit(clients(slave), "g", "Demo", 1, 12)
        master.start()
        until(
            lambda: client.committed(clients(master), "g", "Demo", 0) is not None,
            "the master serves",
        )
        self.assertEqual(30, client.committed(clients(master), "g", "Demo", 0))
        self.assertEqual(12, client.committed(clients(master), "g", "Demo", 1))
        self.until_metadata(slave, consumerOffsets="adopted")
        self.assertEqual(0, slave.status()["metadata"]["regressions"])
        self.without_complaints(slave, master, names)

    def test_given_back(self) -> None:
        """Without a name server the slave tells the master what was committed here meanwhile."""
        master, slave = self.with_tables()
        client.commit(clients(master), "g", "Demo", 0, 10)
        self.until_offset(slave, 10)
        self.assertEqual(0, master.stop(), master.tail())
        client.commit(clients(slave), "g", "Demo", 0, 25)
        self.passes(6)  # until it is noted on the disk
        slave.kill9()
        slave.start()
        self.assertEqual(25, client.committed(clients(slave), "g", "Demo", 0))
        self.assertEqual(1, slave.status()["metadata"]["owed"])
        master.start()
        self.until_offset(master, 25)
        slave.until(lambda status: status["metadata"]["givenBack"] == 1, "it is counted")
        self.assertEqual(25, client.committed(clients(slave), "g", "Demo", 0))
        self.without_complaints(slave, master)


class GarbledTests(MetadataTestCase):
    """F40: answers that are not whole, and a slave that is killed between."""

    TOPICS = 4000

    NAMES: ClassVar = {
        RequestCode.GET_ALL_TOPIC_CONFIG: "topics",
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "groups",
        RequestCode.GET_ALL_CONSUMER_OFFSET: "consumerOffsets",
    }

    FAULTS: ClassVar[dict[str, Callable[[GarbledTests, Command], bytes | None]]] = {
        "empty": lambda self, answer: encode(evolve(answer, body=b"{}")),
        "cut": lambda self, answer: encode(
            evolve(answer, body=answer.body[: self.random.randrange(1, len(answer.body))])
        ),
        "noise": lambda self, answer: encode(
            evolve(answer, body=self.random.randbytes(len(answer.body)))
        ),
        "none": lambda self, answer: None,
    }

    def test_garbled(self) -> None:
        """Empty, cut, garbled and missing answers leave all tables as they were, in memory and on
        the disk; then the next good one is taken, all of its 4,000 topics.
        """
        master = self.master(brokerRole="ASYNC_MASTER", **LOOPBACK).start()
        between = client.Between(clients(master))
        self.addCleanup(between.close)
        slave = self.slave(
            master.address, **LOOPBACK, haMasterClientAddress=f"127.0.0.1:{between.port}"
        ).start()
        self.fill(master)
        client.commit(clients(master), "g", "Demo", 0, 30)
        self.until_offset(slave, 30)
        kept = slave.root / "config" / "consumerOffset.json"
        until(lambda: kept.exists() and "Demo@g" in kept.read_text(), "the offset is on the disk")
        # Offsets come as they change, the topics they are in with the next round.
        until(lambda: "Demo" in client.topic_names(clients(slave)), "the topic is known", pause=0.3)
        self.make_many(clients(master))
        for round_of in ("cut noise none", "empty none cut"):
            faults = dict(zip(self.NAMES, round_of.split(), strict=True))
            seen: set[int] = set()

            def change(
                request: Command, answer: Command, faults: Any = faults, seen: Any = seen
            ) -> bytes | None:
                if request.code not in faults:
                    return encode(answer)
                seen.add(request.code)
                return self.FAULTS[faults[request.code]](self, answer)

            between.change = change
            until(lambda seen=seen: len(seen) == 3, "all are asked for", 30.0)
            states = {
                self.NAMES[code]: "unreachable" if fault == "none" else "refused"
                for code, fault in faults.items()
            }
            found = self.until_metadata(slave, **states)
            self.assertEqual("adopted", found["delayOffsets"]["state"])
            for restart in (False, True):
                if restart:
                    slave.kill9()
                    slave.start()
                self.assertIn("Demo", client.topic_names(clients(slave)), round_of)
                self.assertIn("g", client.group_names(clients(slave)), round_of)
                self.assertEqual(30, client.committed(clients(slave), "g", "Demo", 0), round_of)
        between.change = lambda request, answer: encode(answer)
        self.until_metadata(slave, **dict.fromkeys(ALL, "adopted"))
        self.assertEqual(client.topic_names(clients(master)), client.topic_names(clients(slave)))
        self.without_complaints(slave, master)
        table: Any = json_table.read(slave.root / "config" / "topics.json")
        self.assertLess(self.TOPICS, len(table["topicConfigTable"]))

    def make_many(self, address: str) -> None:
        """Make a lot of topics by one request."""
        configs = [{"topicName": f"Many-{n:04}"} for n in range(self.TOPICS)]
        body = json.dumps({"topicConfigList": configs}).encode()
        client.must(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)

    def test_another_cluster(self) -> None:
        """Of a client port that is another broker's nothing is taken, and the log is copied on."""
        other = self.master("other", brokerName="broker-z", **LOOPBACK).start()
        client.make_topic(clients(other), "Strange")
        master = self.master(brokerRole="ASYNC_MASTER", **LOOPBACK).start()
        slave = self.slave(master.address, **LOOPBACK)
        # The log's bounds are asked there as well: both logs are empty.
        slave.keys["haMasterClientAddress"] = clients(other)
        slave.start()
        found = self.until_metadata(slave, **dict.fromkeys(ALL, "refused"))
        for name in ALL:
            self.assertIn("no topic broker-a", found[name]["reason"])
        self.assertNotIn("Strange", client.topic_names(clients(slave)))
        self.without_complaints(slave, master, other)

    def test_deleted_topic(self) -> None:
        """A topic deleted on the master loses its queues on the slave; the log keeps what it is,
        and a new life of the topic is served.
        """
        master, slave = self.with_tables()
        slave.until_synced(master.status()["maxOffset"])
        until(lambda: "Demo" in client.topic_names(clients(slave)), "the slave has the topic")
        folder = slave.root / "consumequeue" / "Demo"
        self.assertTrue(folder.is_dir())
        client.must(clients(master), RequestCode.DELETE_TOPIC_IN_BROKER, topic="Demo")
        until(lambda: not folder.exists(), "the queues are gone", tell=slave.tail)
        self.assertNotIn("Demo", client.topic_names(clients(slave)))
        slave.kill9()
        self.assertEqual([], compare_stores.derived_faults(self.settings(slave), exact=False))
        slave.start()
        self.assertFalse(folder.exists(), "a start after a crash makes none anew")
        client.make_topic(clients(master), "Demo")
        master.put(8, topic="Demo").wait()
        slave.until_synced(master.status()["maxOffset"])
        until(lambda: "Demo" in client.topic_names(clients(slave)), "the slave has it again")
        ends = {
            clients(node): [
                client.must(
                    clients(node), RequestCode.GET_MAX_OFFSET, topic="Demo", queueId=queue
                ).ext["offset"]
                for queue in range(4)
            ]
            for node in (master, slave)
        }
        self.assertEqual(ends[clients(master)], ends[clients(slave)])
        self.assertEqual(0, slave.status()["derivedFaults"])
        self.without_complaints(slave, master)


class NameServerTests(MetadataTestCase):
    """F47: name servers that go and come back."""

    def registered(self, names: NameServer) -> set[int]:
        """The ids of the brokers it knows."""
        return {row["brokerId"] for row in names.status()["brokers"]}

    def until_registered(self, names: NameServer) -> None:
        until(
            lambda: self.registered(names) == {0, 1},
            f"{names.name} knows both",
            30.0,
            tell=names.tail,
            pause=0.1,
        )

    def test_away(self) -> None:
        """Two of three, then all of them: replication and tables go on; each that comes back is
        told within a registration's period.
        """
        servers = [NameServer(self.folder / str(n)) for n in range(3)]
        self._processes += servers
        for server in servers:
            server.start()
        given = {**OFTEN, "namesrvAddr": ";".join(server.client_address for server in servers)}
        master, slave = self.with_tables(**given)
        for server in servers:
            self.until_registered(server)
        reconnects = slave.until_synced(master.status()["maxOffset"])["upstream"]["reconnects"]
        for gone in (servers[:2], servers[2:]):
            for server in gone:
                server.kill9()
            self.passes(seconds(2, 60))
            master.put(100, topic="Demo").wait()
            slave.until_synced(master.status()["maxOffset"])
        client.commit(clients(master), "g", "Demo", 0, 33)
        self.until_offset(slave, 33)
        for server in servers:
            server.start()
        for server in servers:
            self.until_registered(server)
        status = slave.status()
        self.assertEqual(reconnects, status["upstream"]["reconnects"])
        self.assertEqual("adopted", status["metadata"]["topics"]["state"])
        self.without_complaints(slave, master, *servers)

    def test_learned(self) -> None:
        """A slave that has its master from a name server alone keeps following it when that is
        gone, and asks for its tables where its clients connect.
        """
        names = NameServer(self.folder)
        self._processes.append(names)
        names.start()
        given = {**LOOPBACK, **OFTEN, "namesrvAddr": names.client_address}
        master = self.master(brokerRole="ASYNC_MASTER", **given).start()
        slave = Node(self.folder, "slave", "slave", **given)
        self._processes.append(slave)
        until(lambda: self.registered(names) == {0}, "the master is known", pause=0.1)
        slave.start()
        self.fill(master)
        slave.until_synced(master.status()["maxOffset"])
        client.commit(clients(master), "g", "Demo", 0, 3)
        self.until_offset(slave, 3)
        self.assertEqual(clients(master), slave.status()["metadata"]["master"])
        names.kill9()
        client.commit(clients(master), "g", "Demo", 0, 4)
        self.until_offset(slave, 4)
        self.without_complaints(slave, master)
