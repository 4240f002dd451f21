"""Two pairs, a name server and RocketMQ's C++ client: where every chapter begins."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any
from unittest import SkipTest

from lab.demo.traffic import Cpp, why_not
from lab.harness import compare_stores
from lab.harness.nodes import NameServer, Node, until
from lab.harness.remote import Remote, make_topic, send
from lab.stock.clients import Answer, Client
from rmqha.logfiles import json_table
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from rmqha.wire.log.record import decode
from rmqha.wire.remoting.bodies.route import TopicRoute
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.namesrv import RouteRequest
from rmqha.wire.remoting.json_body import read
from tests.faults.harness import BRISK, FaultTestCase

TOPIC, GROUP = "Orders", "billing"

QUEUES = 4
"""Of the topic, on each master."""

SOON = 60.0
"""Longest wait for what a quiet machine does in a few seconds."""

NO_ROUTE = "No route info"
"""What the C++ client says of a message that it gave up by itself, because its threads waited
for each other a moment too long; it was not sent."""

AT_ONCE = 1.5
"""Seconds: well below C{slaveTimeout}, and what a busy machine may take."""


class WalkthroughCase(FaultTestCase):
    """A cluster whose two masters are SYNC, and whose slaves are in sync, by broker name."""

    #: Keys of one pair or the other.
    more: dict[str, dict[str, Any]] = {}

    def setUp(self) -> None:
        """Start everything, and make the topic on both masters."""
        reason = why_not()
        if reason:
            raise SkipTest(f"RocketMQ's C++ client cannot run here: {reason}")
        super().setUp()
        self.names = NameServer(self.folder)
        self._processes.append(self.names)
        self.names.start()
        self.masters = {name: self.node(name, "master") for name in ("broker-a", "broker-b")}
        self.slaves = {name: self.node(name, "slave") for name in self.masters}
        for master in self.masters.values():
            master.launch()
        for name, master in self.masters.items():
            master.until(lambda status: "topics" in status["remoting"], "open", SOON)
            self.make_topic(name)
        # So that they are told of the topic as they come; later it takes them some seconds.
        for slave in self.slaves.values():
            slave.launch()
        for slave in self.slaves.values():
            slave.until_synced(0, SOON)
            slave.until(lambda _: self.knows(slave), "the topic", SOON)  # noqa: B023
        until(self.routed, "both masters are in the topic's route", SOON)
        self._bodies = itertools.count()
        self._clients = itertools.count()

    def node(self, broker: str, role: str, name: str = "", **keys: Any) -> Node:
        """One of the nodes, not started.  A slave is told of its master by the name server."""
        sync = {"brokerRole": "SYNC_MASTER"} if role == "master" else {}
        node = Node(
            self.folder,
            role,
            name or f"{broker}{'-s' if role == 'slave' else ''}",
            **{
                **BRISK,
                "brokerName": broker,
                "namesrvAddr": self.names.client_address,
                "registerNameServerPeriod": 10_000,
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                **sync,
                **self.more.get(broker, {}).get(role, {}),
                **keys,
            },
        )
        self._processes.append(node)
        return node

    def knows(self, slave: Node) -> bool:
        """Whether a slave has been told of the topic."""
        found = json_table.read(slave.root / "config" / "topics.json")
        return found is not None and TOPIC in found["topicConfigTable"]

    def routed(self) -> bool:
        """Whether the name server has the topic on both masters."""
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic=TOPIC))
        with Remote(self.names.port) as client:
            answer = client.ask(request)
        queues = read(TopicRoute, answer.body).queue_datas if answer.code == 0 else ()
        return {data.broker_name for data in queues} == set(self.masters)

    def make_topic(self, broker: str) -> None:
        self.until_served(self.masters[broker])
        with Remote(self.masters[broker].port) as client:
            answer = client.ask(make_topic(TOPIC, QUEUES), SOON)
        self.assertEqual(0, answer.code, answer)

    def until_served(self, node: Node) -> None:
        """Wait until a node that is open serves clients: a master asks its slaves first."""
        request = Command(code=RequestCode.GET_BROKER_CONFIG)

        def served() -> bool:
            with Remote(node.port) as client:
                return client.ask(request).code == 0

        until(served, f"{node.name} serves clients", SOON, tell=node.tail)

    # --- clients ------------------------------------------------------------------

    def client(self) -> Client:
        """A stock client that knows the name server alone."""
        folder = self.folder / f"client-{next(self._clients)}"
        folder.mkdir()
        process = Cpp(folder)
        self._processes.append(process)
        return Client(process.start(), Cpp.title, self.names.client_address)

    def bodies(self, count: int) -> list[str]:
        return [f"order {next(self._bodies):05}" for _ in range(count)]

    def produce(self, client: Client, count: int) -> list[str]:
        """Send that many, all stored as the master promises, and return their bodies."""
        new = self.bodies(count)
        answers = client.send(TOPIC, new)
        unsent = [body for body, one in zip(new, answers, strict=True) if NO_ROUTE in one.error]
        if unsent:
            answers = [one for one in answers if NO_ROUTE not in one.error]
            answers += client.send(TOPIC, unsent)
        self.assertEqual({"SEND_OK"}, {answer.status for answer in answers}, self.problems(answers))
        return new

    def problems(self, answers: list[Answer]) -> str:
        return str([answer for answer in answers if answer.status != "SEND_OK"][:3])

    def direct(self, node: Node, count: int) -> Counter[int]:
        """Send to one broker, as a client with such a route: how often it answered which code."""
        with Remote(node.port) as client:
            sent = [send(TOPIC, body.encode()) for body in self.bodies(count)]
            return Counter(answer.code for answer in client.ask_all(sent))

    # --- nodes --------------------------------------------------------------------

    def until_copied(self, *brokers: str) -> None:
        """Wait until slaves have what their masters have."""
        for name in brokers or tuple(self.masters):
            end = self.masters[name].status()["maxOffset"]
            self.slaves[name].until_synced(end, SOON)

    def until_replica(self, broker: str) -> None:
        """Wait until a master has a replica to wait for."""
        self.masters[broker].until(
            lambda status: any(row["state"] == "in-sync" for row in status["replicas"]),
            "a replica in sync",
            SOON,
        )

    def held(self, node: Node) -> Counter[str]:
        """The topic's messages in a node's log, running or not."""
        settings = self.settings(node)
        log = OfflineLog(settings.root, settings.file_size)
        found: Counter[str] = Counter()
        for view, block in scan(log, log.min_offset, log.end):
            for offset in block.start.tolist():
                record = decode(view, offset - block.base, offset)
                if record.topic == TOPIC:
                    found[bytes(record.body).decode()] += 1
        log.close()
        return found

    def end_all_well(self, *brokers: str) -> None:
        """Stop the cluster: pairs are equal byte for byte, derived files are what the logs make
        them, and nobody logged what has no name.
        """
        self.until_copied(*brokers)
        pairs = [(self.masters[name], self.slaves[name]) for name in brokers or self.masters]
        for master, slave in pairs:
            master.term()
            slave.term()
        for master, slave in pairs:
            found = compare_stores.damage(
                self.settings(master), self.settings(slave), (), equal=True
            )
            self.assertEqual([], found[:20], f"{master.tail()}\n{slave.tail()}")
            for node in (master, slave):
                self.assertEqual([], node.complaints(), node.log()[-20_000:])


def until_all(wanted: list[str], got: Any, what: str) -> None:
    """Wait until a list has everything."""
    left = set(wanted)

    def all_there() -> bool:
        left.difference_update(got())
        return not left

    until(all_there, what, SOON, tell=lambda: f"{len(left)} are missing, as {sorted(left)[:3]}")
