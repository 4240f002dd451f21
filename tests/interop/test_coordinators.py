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
from lab.harness.remote import Remote, bodies, pull
from lab.stock.brokers import BOOT, Broker, Sends
from rmqha.wire.ha_v2 import FOLLOWERS
from tests.interop import cases
from tests.interop.mixed_cases import SLOW_CUT
from tests.interop.scenario_cases import GROUP, ScenarioTestCase
from tests.support.commands import RMQHA, rmqha

PROGRAMS = Path(sys.executable)
"""Beside it is C{rmqha}."""

ELECTIONS = cases.rounds(3, 10)


class WithEtcdTestCase(ScenarioTestCase):
    def setUp(self) -> None:
        """See that it is there."""
        if PROGRAM is None:
            raise SkipTest(MISSING)
        super().setUp()

    def one(self) -> dict[str, Any]:
        """Start it, and return what members of a set that it coordinates have in their files."""
        cluster = etcd(self.folder, 1)
        self._processes += cluster
        return {"controllerType": "etcd", "etcdAddresses": addresses_of(cluster)}

    def rmqha(self, *arguments: object) -> str:
        """Run a command, and return what it printed."""
        done = rmqha(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


class ElectionTests(WithEtcdTestCase):
    """Members are elected in turn under four stock producers, which look for routes often."""

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
        """Have a member elected: the longest time until some acknowledgement came from it."""
        told = [RMQHA, "set", "elect", master.conf, "--id", self.id_of(other)]
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


class FollowerTests(WithEtcdTestCase):
    """A stock broker in controller mode whose controllers are the members of a set with etcd: it
    has the whole log, counts for nothing, and is never elected.
    """

    roles = "two members of ours with etcd, and a Java broker that follows"
    long = True
    full_only = ("test_stock_as_member",)

    def follower(self, nodes: list[Node], **keys: Any) -> Broker:
        return self.broker(
            "java-follower",
            role="SLAVE",
            enableControllerMode="true",
            controllerAddr=";".join(f"127.0.0.1:{node.port}" for node in nodes),
            slaveReadEnable="true",
            **keys,
        )

    def number_of(self, follower: Broker) -> int:
        """Its id, as it keeps it."""
        text = (follower.root / "brokerIdentity").read_text(encoding="utf-8")
        return int(text.rpartition("#")[2])

    def until_fed(self, nodes: list[Node], follower: Broker) -> None:
        """Wait until it has what the master has, as messages come; only members are in sync."""
        master = self.led(nodes)
        self.until_in_sync(master, len(nodes))
        follower.until_max(master.status()["maxOffset"], SLOW_CUT)
        # Producers have to hear first of a master that was just elected.
        until(self.put, "messages are acknowledged", BOOT, tell=self.tool.tail)
        follower.until_max(master.status()["maxOffset"])
        found = master.status()["controller"]["set"]
        self.assertEqual({self.id_of(node) for node in nodes}, set(found["syncStateSet"]))
        (row,) = (each for each in found["members"] if each["learner"])
        self.assertGreaterEqual(row["id"], FOLLOWERS)
        self.assertEqual(("", False), (row["doubt"], row["counts"]))

    def put(self) -> bool:
        """Send messages, and return whether all are acknowledged."""
        sent = self.tool.put(50, self.topic)
        told = sent.wait()
        self.acked += sent.acked
        return told == {"SEND_OK": 50}

    def read_at(self, port: int) -> list[bytes]:
        """What a consumer is given of a queue, where it asks this broker."""
        with Remote(port) as there:
            return bodies(there.ask(pull(self.topic, GROUP, 0)))

    def test_stock(self) -> None:
        """It follows masters that are elected and killed, and after a restart of its own."""
        self.followed(asyncLearner="true")

    def test_stock_as_member(self) -> None:
        """The same where it does not say that it is but a learner."""
        self.followed()

    def followed(self, **keys: Any) -> None:
        nodes = self.set_of(2, **self.one())
        follower = self.follower(nodes, **keys)
        with self.scenario("a Java broker follows"):
            follower.start()
            self.until_fed(nodes, follower)
            ours = self.read_at(self.led(nodes).port)
            self.assertTrue(ours)
            until(
                lambda: self.read_at(follower.port) == ours,
                "readers get the same",
                BOOT,
                tell=follower.tail,
                pause=0.5,
            )
        number = self.number_of(follower)
        with self.scenario("it follows whom an operator elects"):
            other = next(node for node in nodes if node is not self.led(nodes))
            self.rmqha("set", "elect", other.conf, "--id", self.id_of(other))
            self.until_state(other, "leading")
            self.until_fed(nodes, follower)
        with self.scenario("the master is killed (-9) under load: it follows the next one"):
            load = self.load()
            master = self.led(nodes)
            master.kill9()
            self.until_state(next(node for node in nodes if node is not master), "leading")
            master.start()
            self.until_in_sync(self.led(nodes), 2)
            self.enough(load)
            self.until_fed(nodes, follower)
        with self.scenario("it is started where nobody leads: not elected, and follows again"):
            master = self.led(nodes)
            other = next(node for node in nodes if node is not master)
            self.rmqha("set", "pause", master.conf)
            follower.stop()
            master.kill9()
            # Up to the end of its lease the dead one is master.
            self.until_state(other, "waiting")
            follower.launch()
            until(
                lambda: "only its members are elected" in follower.log(),
                "it is not elected",
                BOOT,
                tell=follower.tail,
            )
            self.assertIsNone(self.leader([other]))
            self.rmqha("set", "resume", other.conf)
            self.until_state(other, "leading")
            master.start()
            self.until_fed(nodes, follower)
            self.assertEqual(number, self.number_of(follower))
        with self.scenario("byte-equal, every SEND_OK held"):
            known = json.loads(self.rmqha("set", "list", nodes[0].conf, "--json"))["members"]
            self.assertEqual(2, len(known), known)
            follower.stop()
            for node in sorted(nodes, key=lambda node: node is self.leader(nodes)):
                node.term()
            for each in (*nodes, follower):
                self.assert_same_log(nodes[0], each)
                self.assert_holds(each, self.acked)
            self.assert_quiet(*nodes)


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
        """Steps 1 and 3 to 6 of the guide, of members whose coordinator is to forget the set; and
        return the
        members, the last master first.
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
