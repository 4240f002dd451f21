"""A stock pair is replaced by ours, node by node, and goes back: docs/guide/switchover.rst."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, commit, progress
from lab.stock.brokers import Broker, Sent
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.interop.cases import InteropTestCase
from tests.support.commands import RMQHA, rmqha

#: What a stock SYNC master of 5.x needs to wait for a slave.
SYNC: dict[str, object] = {"inSyncReplicas": 2, "totalReplicas": 2}


class ReplacedPairTests(InteropTestCase):
    """Stock master and slave; then our slave, then our master; and back."""

    roles = "Java pair, then ours, and back"

    def setUp(self) -> None:
        super().setUp()
        self.sent: list[Sent] = []
        self.committed = 0
        self.java = self.broker("java", role="SYNC_MASTER", **SYNC).start()
        self.java_slave = self.broker("java-slave", role="SLAVE", master=self.java.address)
        self.java_slave.start()
        with Remote(self.java.port) as client:
            body = b'{"groupName":"billing"}'
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            self.assertEqual(0, client.ask(Command(code=code, body=body)).code)

    def our_node(self) -> Node:
        """Our slave, on the store of the stock one."""
        told: dict[str, object] = {
            "namesrvAddr": self.tool.names,
            "brokerClusterName": "interop",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "maxMessageSize": 500_000,
            "fileReservedTime": 72,
            "haMasterClientAddress": self.java.client_address,
        }
        return self.our_slave(self.java.address, "ours", root=self.java_slave.root, **told)

    def traffic(self, port: int, count: int = 200) -> None:
        """Messages that are acknowledged, and a group that goes on."""

        def all_acknowledged() -> bool:
            sends = self.tool.put(1, self.topic, size=100)
            sends.wait()
            self.sent += sends.acked
            return bool(sends.acked)

        until(all_acknowledged, "a replica", 90, tell=self.tool.tail, pause=0.2)
        sends = self.tool.put(count, self.topic, size=900)
        self.assertEqual({"SEND_OK": count}, sends.wait(), sends.sent[-1:])
        self.sent += sends.acked
        self.committed += 11
        with Remote(port) as client:
            answer = client.ask(commit(self.topic, "billing", self.committed))
            self.assertEqual(0, answer.code, answer)

    def assert_progress(self, port: int) -> None:
        with Remote(port) as client:
            found = client.ask(progress(self.topic, "billing")).ext.get("offset")
        self.assertEqual(str(self.committed), found)

    def switch(self, master: str, slave: str, acts: list[Callable[[], object]]) -> str:
        """Run the command, do what it asks for, and return what it said."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-u", RMQHA, "switchover", master, slave),
                f"--journal={self.folder / 'switchover.json'}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        said = ""
        left = list(acts)
        for line in process.stdout:
            said += line
            sys.stdout.write(line)
            if "now you: " in line:
                left.pop(0)()
        process.stdout.close()
        self.assertEqual(0, process.wait(60), said)
        self.assertEqual([], left, said)
        return said

    def become_master(self, node: Node) -> None:
        """What an operator does with our slave."""
        node.term()
        before = dict(node.keys)
        for key in ("haMasterAddress", "haMasterClientAddress"):
            del node.keys[key]
        node.role = "master"
        node.keys |= {"brokerRole": "SYNC_MASTER", "brokerId": 0}
        node.write_conf()
        command = ["promote", node.root, "--conf", node.conf, "--tables", self.java.root]
        rmqha(*command, check=True)
        node.start()
        node.keys = before | node.keys

    def become_slave(self, node: Node) -> None:
        """What an operator does with our old master, whose new one has no epoch."""
        node.role = "slave"
        host, port = self.java.address
        node.keys |= {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "haMasterAddress": f"{host}:{port}",
            "haMasterClientAddress": self.java.client_address,
            "haTrustMaster": f"{host}:{port}",
        }
        node.start()

    def java_follows(self, node: Node) -> None:
        """What an operator does with a stock broker."""
        self.java.keys |= {"brokerRole": "SLAVE", "brokerId": 1}
        if self.version < "5":
            self.java.keys["haMasterAddress"] = f"127.0.0.1:{node.ha_port}"
        self.java.launch()

    def java_leads(self) -> None:
        self.java.stop()
        self.java.keys |= {"brokerRole": "SYNC_MASTER", "brokerId": 0}
        self.java.keys.pop("haMasterAddress", None)
        self.java.launch()

    def permission(self, broker: Broker) -> str:
        """What a stock broker has written into its file."""
        lines = broker.conf.read_text(encoding="utf-8").splitlines()
        return dict(line.partition("=")[::2] for line in lines).get("brokerPermission", "none")

    def test_replaced(self) -> None:
        """The slave first, then the master; then back."""
        with self.scenario("our slave goes on on the store of the stock slave"):
            self.traffic(self.java.port)
            self.java_slave.until_max(self.java.max_offset())
            self.java_slave.stop()
            ours = self.our_node().start()
            self.until_equal(self.java, ours)
            self.traffic(self.java.port)
        ours_at = f"127.0.0.1:{ours.port}"
        stuck: list[str] = []
        with self.scenario("`rmqha switchover`: our node is master, the stock one its slave"):
            said = self.switch(
                self.java.client_address,
                ours_at,
                [
                    lambda: (stuck.append(self.permission(self.java)), self.java.stop()),
                    lambda: self.become_master(ours),
                    lambda: self.java_follows(ours),
                ],
            )
            self.assertEqual(["4"], stuck, "a stock broker keeps it")
            self.assertIn(f"{self.java.client_address} is a SLAVE", said)
            self.assert_progress(ours.port)
            self.traffic(ours.port)
            self.assertEqual("6", self.permission(self.java))
        with self.scenario("`rmqha switchover` back: the stock one is master, ours its slave"):
            self.java.until_max(ours.status()["maxOffset"])
            self.switch(
                ours_at,
                self.java.client_address,
                [ours.term, self.java_leads, lambda: self.become_slave(ours)],
            )
            self.assert_progress(self.java.port)
            self.traffic(self.java.port)
        with self.scenario("in the end byte-equal, with all that was acknowledged"):
            self.assert_followed(self.java, ours, index=False)
            self.assert_holds(ours, self.sent)


class ReplacedPair4Tests(ReplacedPairTests):
    version = "4.9.7"


class ReplacedPair5Tests(ReplacedPairTests):
    version = "5.3.3"
