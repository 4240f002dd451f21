"""Sets that go from one kind of coordinator to another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import SkipTest

from lab.harness.etcd import MISSING, PROGRAM, addresses_of, etcd
from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT
from tests.interop.scenario_cases import ScenarioTestCase


class CoordinatorTests(ScenarioTestCase):
    """A set that leaves its controllers for etcd, and comes back to them."""

    roles = "two members of ours, with controllers and with etcd"
    full_only = ("test_to_etcd_and_back",)

    def rmqha(self, *arguments: object) -> str:
        """Run a command.

        @return: What it printed.
        """
        program = Path(sys.executable).with_name("rmqha")
        told = [str(program), *map(str, arguments)]
        done = subprocess.run(told, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def listed(self, node: Node, epoch: int) -> None:
        """All are listed, in sync, with the same log, in a master epoch."""

        def same() -> bool:
            found = json.loads(self.rmqha("set", "list", node.conf, "--json"))
            behind = [(each["inSync"], each["behind"]) for each in found["members"]]
            return found["masterEpoch"] == epoch and behind == [(True, 0)] * 2

        until(same, "both are listed", BOOT, tell=node.tail, pause=0.5)

    def write(self, nodes: list[Node], count: int = 50) -> None:
        self.until_in_sync(self.led(nodes), 2)
        self.until_same(*nodes)
        sends = self.tool.put(count, self.topic)
        self.assertEqual({"SEND_OK": count}, sends.wait())
        self.acked += sends.acked
        self.until_same(*nodes)

    def moved(self, nodes: list[Node], **keys: Any) -> list[Node]:
        """Steps 1 and 3 to 6 of the guide, of members whose coordinator is to forget the set.

        @param keys: What names the new one.
        @return: The members, the last master first.
        """
        last = self.led(nodes)
        other = next(node for node in nodes if node is not last)
        other.term()
        self.until_in_sync(last, 1)
        last.term()
        self.forget()
        for node in (last, other):
            self.rmqha("controller", "reset", node.root)
            for key in ("controllerType", "controllerAddr", "etcdAddresses"):
                node.keys.pop(key, None)
            role = ("SYNC_MASTER", 0) if node is last else ("SLAVE", 1)
            node.keys |= keys | dict(zip(("brokerRole", "brokerId"), role, strict=True))
            node.write_conf()
        if "etcdAddresses" in keys:
            self.rmqha("set", "init", last.conf)
        last.start()
        self.until_state(last, "leading")
        other.start()
        self.until_in_sync(last, 2)
        return [last, other]

    def test_to_etcd_and_back(self) -> None:
        """The same bytes with either, and ids and epochs that begin anew with each."""
        if PROGRAM is None:
            raise SkipTest(MISSING)
        nodes = self.set_of(2)
        addresses = self.decider.address
        cluster = etcd(self.folder, 1)
        self._processes += cluster
        with self.scenario("controllers coordinate it"):
            self.write(nodes)
            self.listed(nodes[0], 1)
        with self.scenario("etcd does"):
            self.forget = self.forgotten_by_controllers
            where = {"controllerType": "etcd", "etcdAddresses": addresses_of(cluster)}
            nodes = self.moved(nodes, **where, etcdLeaseSeconds=3)
            self.write(nodes)
            self.listed(nodes[0], 1)
        with self.scenario("its master is killed (-9) under load"):
            load = self.load()
            nodes[0].kill9()
            self.until_state(nodes[1], "leading")
            nodes[0].start()
            self.until_in_sync(nodes[1], 2)
            self.until_again(load)
            self.enough(load)
            self.write(nodes)
        with self.scenario("controllers coordinate it again"):
            conf = nodes[0].conf
            self.forget = lambda: self.rmqha("set", "remove", conf, "--all")
            nodes = self.moved(nodes, controllerAddr=addresses)
            self.write(nodes)
            self.listed(nodes[0], 1)
            for node in reversed(nodes):
                node.term()
            self.assert_same_log(*nodes)
            for node in nodes:
                self.assertEqual([], node.cuts)
                self.assert_holds(node, self.acked)
                self.assert_quiet(node)

    def forgotten_by_controllers(self) -> None:
        words = ["cleanBrokerMetadata", "-a", self.decider.address, "-bn", "broker-a", "-c"]
        said = self.tool.do(
            "mqadmin", BOOT, namesrv=self.tool.names, words=[*words, "interop", "-l"], seconds=0
        )
        self.assertIn("success", said["printed"], said)
