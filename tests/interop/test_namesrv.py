"""Stock brokers and clients that find each other through our name server."""

from __future__ import annotations

import socket
from typing import Any

from lab.harness.nodes import NameServer, until
from lab.stock.brokers import BOOT, Broker
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode
from tests.interop.cases import InteropTestCase


def ask(address: str, code: int, **ext: str) -> Command:
    """Ask a name server, over a connection of its own."""
    host, _, port = address.rpartition(":")
    decoder = FrameDecoder()
    with socket.create_connection((host, int(port)), 10.0) as connection:
        connection.sendall(encode(Command(code=code, opaque=1, ext=ext)))
        while True:
            data = connection.recv(65536)
            assert data, f"{address} closed"
            found = decoder.receive(data)
            if found:
                return found[0]


class NamesrvTests(InteropTestCase):
    """Our name server, a Java master and its slave, Java clients."""

    roles = "our name server, Java brokers"

    def setUp(self) -> None:
        """Start the name server, then the brokers.  They register with a stock one too."""
        super().setUp()
        self.server = NameServer(self.folder)
        self._processes.append(self.server)
        self.names = self.server.start().client_address
        given = {
            "namesrvAddr": f"{self.names};{self.tool.names}",
            "registerNameServerPeriod": 10000,
        }
        self.master = self.broker("master", **given)
        self.slave = self.broker("slave", role="SLAVE", **given)

    def known(self) -> dict[str, tuple[str, int]]:
        """The live brokers: their names and ids by address."""
        return {
            row["address"]: (row["brokerName"], row["brokerId"])
            for row in self.server.status()["brokers"]
        }

    def both_values(self, code: int, **ext: str) -> list[Any]:
        """What both name servers answer, ours first."""
        answers = [ask(names, code, **ext) for names in (self.names, self.tool.names)]
        for answer in answers:
            self.assertEqual(0, answer.code, answer.remark)
        return [fastjson.loads(bytes(answer.body)) for answer in answers]

    def assert_same(self, topic: str) -> None:
        """Our name server tells of a topic and of the cluster what the stock one does."""
        ours, java = self.both_values(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        self.assertEqual(java, ours)
        addresses = ours["brokerDatas"][0]["brokerAddrs"]
        expected = {"0": self.master.client_address, "1": self.slave.client_address}
        self.assertEqual(expected, addresses)
        ours, java = self.both_values(RequestCode.GET_BROKER_CLUSTER_INFO)
        self.assertEqual(java, ours)
        ours, java = self.both_values(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        self.assertLessEqual({topic, "TBW102"}, set(ours["topicList"]))

    def send(self, count: int) -> None:
        """Send with a stock producer that knows our name server only."""
        statuses = self.tool.do(
            "put", BOOT, namesrv=self.names, topic=self.topic, kind="single", size=100,
            count=count, first=0, threads=2, wait=False, tell=False, properties=0,
        )  # fmt: skip
        self.assertEqual({"SEND_OK": count}, statuses)

    def until_gone(self, broker: Broker, timeout: float) -> None:
        """Wait until a broker is no longer known."""
        until(
            lambda: broker.client_address not in self.known(),
            f"{broker.name} is gone",
            timeout,
            tell=self.server.tail,
        )

    def test_brokers(self) -> None:
        """From the brokers' start to their ends, clean and not, with a new name server between."""
        self.addCleanup(self.tool.do, "leave", BOOT, namesrv=self.names)
        with self.scenario("Java master and slave register; the slave learns its master"):
            self.master.start()
            self.slave.start()
            self.assertEqual(
                {
                    self.master.client_address: ("broker-a", 0),
                    self.slave.client_address: ("broker-a", 1),
                },
                self.known(),
            )
        with self.scenario("Java producer and consumer; routes are those of the stock one"):
            self.send(50)
            self.assertEqual(50, len(self.tool.pull(self.topic, self.names)))
            self.assert_same(self.topic)
            self.slave.until_max(self.master.max_offset())
        with self.scenario("our name server is killed and comes back: so do the brokers"):
            self.server.kill9()
            self.server.start()
            until(lambda: len(self.known()) == 2, "both are back", 40.0, tell=self.server.tail)
            self.assert_same(self.topic)
            self.send(10)
        with self.scenario("a broker that stops is gone at once"):
            self.slave.stop()
            self.until_gone(self.slave, 2.0)
            self.assertIn("unregistered, it was at", self.server.log())
        with self.scenario("a broker that is killed is gone at once"):
            self.master.kill9()
            self.until_gone(self.master, 2.0)
            self.assertEqual(17, ask(self.names, 105, topic=self.topic).code)
        self.assertIn(self.server.term(), (0, -15))
        self.assertEqual([], self.server.complaints())


class Namesrv4Tests(NamesrvTests):
    version = "4.9.7"


class Namesrv5Tests(NamesrvTests):
    version = "5.3.3"
