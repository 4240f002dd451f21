"""Sets that etcd coordinates, among stock name servers and clients."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import SkipTest

from lab.harness.etcd import MISSING, PROGRAM, addresses_of, etcd
from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT, Sends
from tests.interop import cases
from tests.interop.scenario_cases import ScenarioTestCase

PROGRAMS = Path(sys.executable)
"""Beside it is C{rmqha}."""

ELECTIONS = cases.rounds(3, 10)


class WithEtcdTestCase(ScenarioTestCase):
    """Not without etcd."""

    def setUp(self) -> None:
        """See that it is there."""
        if PROGRAM is None:
            raise SkipTest(MISSING)
        super().setUp()

    def one(self) -> dict[str, Any]:
        """Start it.

        @return: What members of a set that it coordinates have in their files.
        """
        cluster = etcd(self.folder, 1)
        self._processes += cluster
        return {"controllerType": "etcd", "etcdAddresses": addresses_of(cluster)}

    def rmqha(self, *arguments: object) -> str:
        """Run a command.

        @return: What it printed.
        """
        told = [str(PROGRAMS.with_name("rmqha")), *map(str, arguments)]
        done = subprocess.run(told, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


class ElectionTests(WithEtcdTestCase):
    """An operator elects one after the other under four stock producers, which ask the name server
    for routes each half a second.
    """

    roles = "three members of ours, with etcd"
    full_only = ("test_elections",)

    def test_elections(self) -> None:
        """Nothing is lost, and writes go on at once."""
        nodes = self.set_of(3, **self.one())
        load = self.load()
        silences = []
        for number in range(ELECTIONS):
            master = self.led(nodes)
            other = [node for node in nodes if node is not master][number % 2]
            self.until_in_sync(master, 3)
            silences.append(self.silence(load, master, other))
            self.tell(f"{master.name} to {other.name}: silent for {silences[-1]:.2f} s")
            self.until_state(other, "leading")
        self.enough(load)
        median, longest = statistics.median(silences), max(silences)
        self.tell(f"{len(silences)} elections: median {median:.2f} s, longest {longest:.2f} s")
        self.assert_settled(nodes)

    def tell(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def silence(self, load: Sends, master: Node, other: Node) -> float:
        """Have a member elected.

        @return: The longest time without an acknowledgement until some came from it.
        """
        told = [PROGRAMS.with_name("rmqha"), "set", "elect", master.conf, "--id", self.id_of(other)]
        seen, longest, last, ended = len(load.sent), 0.0, time.monotonic(), 0.0
        words = [*map(str, told)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as command:
            while not ended or last < ended + 1.0:
                time.sleep(0.005)
                now, came = time.monotonic(), load.sent[seen:]
                seen += len(came)
                if any(each.status == "SEND_OK" for each in came):
                    longest, last = max(longest, now - last), now
                if not ended and command.poll() is not None:
                    self.assertEqual(command.returncode, 0)
                    ended = now
                self.assertLess(now - last, BOOT, "acknowledged again")
        return longest


class CoordinatorTests(WithEtcdTestCase):
    """A set that leaves its controllers for etcd, and comes back to them."""

    roles = "two members of ours, with controllers and with etcd"
    full_only = ("test_to_etcd_and_back",)

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
        nodes = self.set_of(2)
        addresses, where = self.decider.address, self.one()
        with self.scenario("controllers coordinate it"):
            self.write(nodes)
            self.listed(nodes[0], 1)
        with self.scenario("etcd does"):
            self.forget = self.forgotten_by_controllers
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
