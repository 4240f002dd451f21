"""Access control: what stock brokers let pass, and stock clients that sign."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

import yaml

from lab.harness.nodes import Node, until
from lab.harness.remote import make_topic
from lab.stock import jars
from lab.stock.brokers import BOOT, broker_ports
from lab.stock.clients import Client, CppClient, NodeClient, Other
from rmqha.pipeline.remoting.peers import BlockingConnection
from rmqha.wire.remoting.command import Command
from tests.interop import matrix
from tests.interop.cases import InteropTestCase
from tests.interop.sites import SiteTestCase
from tests.support.access_table import PLAIN_ACL, AccessRow, access_rows, credentials
from tests.support.commands import ended

#: Seconds that a broker has for an answer.
PATIENCE = 10.0


def ask(address: str, command: Command) -> Command:
    """One request, on a connection of its own."""
    with BlockingConnection(address, PATIENCE) as connection:
        return connection.ask(command, PATIENCE)


def verdict(address: str, row: AccessRow) -> str:
    """What a broker says of a request of the table."""
    said = ask(address, row.request())
    if "AclException" not in str(said.remark):
        return "allowed"
    return "denied" if said.code == 1 else f"denied with {said.code}"


class AccessTableTests(InteropTestCase):
    """The table of requests, asked of a broker of ours and of a stock one with the same file."""

    version = "4.9.7"

    def test_table(self) -> None:
        """They say the same of each, but for what ours refuses besides."""
        port = broker_ports()
        ours = Node(
            self.folder,
            "master",
            "ours",
            brokerIP1="127.0.0.1",
            listenPort=port,
            aclEnable="true",
            aclPlainFile=PLAIN_ACL,
        )
        self._processes.append(ours)
        ours.start()
        conf = self.folder / "home" / "conf"
        conf.mkdir(parents=True)
        (conf / "plain_acl.yml").write_bytes(PLAIN_ACL.read_bytes())
        stock = self.broker("stock", aclEnable="true")
        relative = os.path.relpath(conf / "plain_acl.yml", jars.HERE / "home")
        stock.jvm = (*jars.CLEAR, f"-Drocketmq.acl.plain.file={relative}")
        with self.scenario("a table of requests to brokers with access control", "master"):
            stock.launch()
            until(lambda: "boot success" in stock.log(), "it has started", BOOT, tell=stock.tail)
            rows = access_rows()
            self.assertEqual(
                [],
                [
                    (row.what, row.stock, said)
                    for row in rows
                    if (said := verdict(stock.client_address, row)) != row.stock
                ],
            )
            self.assertEqual(
                [],
                [
                    (row.what, row.verdict, said)
                    for row in rows
                    if (said := verdict(f"127.0.0.1:{port}", row)) != row.verdict
                ],
            )


class OursAccessClientsTests(SiteTestCase):
    """Clients that sign, at a broker of ours."""

    version = "4.9.7"

    #: What the clients' account may do.
    ACCOUNT = {
        "accessKey": "clients",
        "secretKey": "clients-secret",
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["Allowed=PUB|SUB", "Denied=DENY"],
    }

    def our_broker(self, **keys: object) -> Node:
        accounts = yaml.safe_load(PLAIN_ACL.read_bytes())
        accounts["accounts"].append(self.ACCOUNT)
        path = self.folder / "plain_acl.yml"
        path.write_text(yaml.safe_dump(accounts), encoding="utf-8")
        path.chmod(0o600)
        return super().our_broker(aclEnable="true", aclPlainFile=path, **keys)

    def make_topic(self, topic: str, queues: int = 4) -> None:
        command = make_topic(topic, queues)
        credentials("operator").sign(command)
        self.assertEqual(ask(self.address, command).code, 0)

    def test_clients(self) -> None:
        """A permitted topic can be written and read; a denied one cannot be written, nor can any
        without an account or with a wrong secret.
        """
        for topic in ("Allowed", "Denied"):
            self.make_topic(topic)
        clients = [self.java(), *self.others((NodeClient, CppClient))]
        self.side_by_side(self.signs, clients)
        self.assert_well()

    def test_mqadmin(self) -> None:
        """The stock tool makes an account, says who is white, and removes the account again."""
        home = self.folder / "mqadmin"
        shutil.copytree(jars.HERE / "home", home)
        operator = credentials("operator")
        tools = f"accessKey: {operator.access_key}\nsecretKey: {operator.secret_key}\n"
        (home / "conf" / "tools.yml").write_text(tools, encoding="utf-8")
        made = "-a newcomer -s newcomer-secret -m false -i DENY -t Allowed=PUB,Denied=DENY"
        for line, said in (
            (f"updateAclConfig {made}", "success"),
            ("clusterAclConfigVersion", "plain_acl.yml"),
            ("updateGlobalWhiteAddr -g 10.9.*.*,10.8.0.1", "success"),
        ):
            self.assertIn(said, self.mqadmin(home, line), line)
        content = yaml.safe_load((self.folder / "plain_acl.yml").read_bytes())
        self.assertEqual(content["globalWhiteRemoteAddresses"], ["10.9.*.*", "10.8.0.1"])
        newcomer = content["accounts"][-1]
        self.assertEqual(newcomer["topicPerms"], ["Allowed=PUB", "Denied=DENY"])
        self.assertIn("success", self.mqadmin(home, "deleteAclConfig -a newcomer"))
        self.assertIn("there is none", self.mqadmin(home, "deleteAclConfig -a newcomer"))

    def mqadmin(self, home: Path, line: str) -> str:
        """What a command prints, in a process that signs."""
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        name, *words = line.split()
        command = [
            f"-Drocketmq.home.dir={home}" if word.startswith("-Drocketmq.home.dir") else word
            for word in jars.java(self.version, main, self.folder, name, "-b", self.address, *words)
        ]
        done = ended(*command, timeout=BOOT)
        return done.stdout + done.stderr

    def signs(self, client: Client) -> None:
        account: dict[str, Any] = {name: self.ACCOUNT[name] for name in ("accessKey", "secretKey")}
        with self.row(client, "signs: what is permitted is allowed"):
            bodies = [f"{client.slug} {n} \N{GREEK SMALL LETTER MU}" for n in range(5)]
            send = partial(client.send, group=f"{client.slug}-signing", **account)
            answers = send("Allowed", bodies)
            self.assertEqual(["SEND_OK"] * 5, [answer.status for answer in answers], answers)
            consumer = client.consume("Allowed", f"{client.slug}-readers", **account)
            consumer.until_got(bodies)
            consumer.stop()
        what = "signs, and speaks TLS"
        if isinstance(client.process, Other):
            # Neither ali-ons 3.12 nor the library of rocketmq 0.4.4 has a word of TLS: the one
            # opens plain sockets alone, the other's library names no key and no call for it.
            self.fill(client, what, matrix.NO_TLS)
        else:
            with self.row(client, what):
                bodies = [f"{client.slug} encrypted {n}" for n in range(5)]
                answers = send("Allowed", bodies, tls=True)
                self.assertEqual(["SEND_OK"] * 5, [answer.status for answer in answers], answers)
                group = f"{client.slug}-encrypted"
                consumer = client.consume("Allowed", group, tls=True, **account)
                consumer.until_got(bodies)
                consumer.stop()
        with self.row(client, "signs: what is denied is refused"):
            self.assert_refused(send("Denied", ["x"]))
            wrong = account | {"accessKey": "everything", "secretKey": "wrong-secret"}
            group = f"{client.slug}-wrong"
            self.assert_refused(client.send("Allowed", ["x"], group=group, **wrong))
            group = f"{client.slug}-without"
            self.assert_refused(client.send("Allowed", ["x"], group=group))

    def assert_refused(self, answers: list[Any]) -> None:
        self.assertNotIn("SEND_OK", [answer.status for answer in answers], answers)


class OursAccessClients5Tests(OursAccessClientsTests):
    """The Java client of 5.x, which signs in the same way."""

    version = "5.3.3"

    def test_mqadmin(self) -> None:
        """That of 5.x has other commands, for other accounts."""
        raise SkipTest("mqadmin of 5.x knows no accounts of 4.x")

    def others(self, kinds: Any = ()) -> list[Client]:
        """Those of other languages were asked already."""
        return []


class OursTlsClientsTests(SiteTestCase):
    """Clients at a name server and a broker of ours that take TLS alone."""

    version = "5.3.3"

    def our_broker(self, **keys: object) -> Node:
        """One that takes nothing else."""
        return super().our_broker(tlsMode="enforcing", **keys)

    def certified(self) -> dict[str, object]:
        """The name server takes nothing else either."""
        return {**super().certified(), "tlsMode": "enforcing"}

    def start_broker(self) -> None:
        """Start it; that it is registered it says itself, as the helper asks in clear text."""
        broker = self.our_broker_started()
        broker.until(
            lambda status: "registered" in status["remoting"]["nameServers"].values(), "registered"
        )

    def our_broker_started(self) -> Node:
        assert isinstance(self.serving, Node), "it is ours"
        return self.serving.start()

    def test_clients(self) -> None:
        """The Java client works with TLS; without, or without certificates, it is refused."""
        clients = [self.java(), *self.others((NodeClient, CppClient))]
        self.side_by_side(self.enters, clients)
        status = self.name_server.status()
        self.assertGreaterEqual(status["closed"]["clear-text"], len(clients))
        self.assertIn("it speaks clear text, and tlsMode is enforcing", self.name_server.log())
        self.assert_well()

    def enters(self, client: Client) -> None:
        topic = f"Strict-{client.slug}"
        with self.row(client, "clear text where TLS alone is taken: refused"):
            try:
                answers = client.send(topic, ["x"], group=f"{client.slug}-clear")
            except AssertionError:
                answers = []  # it did not even start
            self.assertNotIn("SEND_OK", [answer.status for answer in answers], answers)
        what = "TLS where nothing else is taken"
        if isinstance(client.process, Other):
            self.fill(client, what, matrix.NO_TLS)
            return
        with self.row(client, what):
            sent = [f"strict {n}" for n in range(5)]
            answers = client.send(topic, sent, tls=True)
            self.assertEqual({"SEND_OK"}, {answer.status for answer in answers}, answers)
            consumer = client.consume(topic, f"{client.slug}-strict", tls=True)
            consumer.until_got(sent)
            consumer.stop()
