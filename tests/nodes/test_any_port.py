"""Tests for L{rmqha.nodes.any_port}."""

from __future__ import annotations

from typing import Any

from attrs import define, field
from treq.testing import StubTreq
from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.admin.http import AdminSite
from rmqha.errors import RemotingUnreachable
from rmqha.nodes.any_port import AnyPortClient
from rmqha.nodes.poll import PollResult
from rmqha.wire.remoting.bodies.route import ClusterInfo, KvTable
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write
from tests.cli.nodes.test_status import Node

HOST = "10.0.0.1"
OURS = {"brokerVersionDesc": "V5_3_3", "masterEpoch": "3"}
STOCK = {
    "brokerVersionDesc": "V4_9_7",
    "bootTimestamp": "1700000000000",
    "commitLogMaxOffset": "4096",
}
REFUSED = "Connection was refused by other side: refused"
KEYS = {"brokerName": "broker-a", "brokerId": "0", "brokerClusterName": "C"}


@define
class Hosts:
    """What listens on a host, and which of its ports were sent something.

    @ivar brokers: By client port: runtime information, and configuration, C{None} if it is refused.
    """

    brokers: dict[int, tuple[dict[str, str], dict[str, str] | None]] = field(factory=dict)
    servers: tuple[int, ...] = ()
    admin: int = 0
    ha: int = 0
    told: set[int] = field(factory=set)

    async def is_ha_port(self, address: tuple[str, int]) -> bool:
        """What a harmless question brings."""
        return address[1] == self.ha

    def request(self, address: str, command: Command, timeout: float) -> Deferred[Command]:
        """As a client of the remoting protocol."""
        port = int(address.rpartition(":")[2])
        self.told.add(port)
        if port in self.servers:
            if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
                return succeed(command.answer(body=write(ClusterInfo())))
            return succeed(command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no"))
        if port not in self.brokers:
            return fail(RemotingUnreachable(address, "connection refused"))
        table, keys = self.brokers[port]
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return succeed(command.answer(body=write(KvTable(table=table))))
        if keys is None:
            return succeed(command.answer(ResponseCode.NO_PERMISSION, "no"))
        text = "".join(f"{key}={value}\n" for key, value in keys.items())
        return succeed(command.answer(body=text.encode()))

    async def get(self, url: str, **more: Any) -> Any:
        port = int(url.split("/")[2].rpartition(":")[2])
        self.told.add(port)
        if port != self.admin:
            raise ConnectionRefusedError("refused")
        return await StubTreq(AdminSite(Node())).get(url, **more)


class AnyPortTests(SynchronousTestCase):
    """One node, named by one of its ports."""

    def look(self, hosts: Hosts, port: int, **more: Any) -> tuple[PollResult, AnyPortClient]:
        asked: Any = hosts
        more |= {"remoting": asked, "is_ha_port": hosts.is_ha_port}
        look = AnyPortClient(asked, f"{HOST}:{port}", Clock(), **more)
        return self.successResultOf(ensureDeferred(look.once())), look

    def test_any_port_of_ours(self) -> None:
        """Each leads to its admin port, by default or not, and without a configuration told."""
        for keys, admin in (
            ({"haListenPort": "20912", "adminListenPort": "7000"}, 7000),
            ({"haListenPort": "20912", "adminListenPort": "0"}, 20914),
            (None, 20914),
        ):
            hosts = Hosts({20911: (OURS, keys)}, admin=admin)
            for port in (20911, 20912, admin):
                seen, look = self.look(hosts, port)
                self.assertEqual(seen, PollResult("", Node().status()), port)
                self.assertEqual(look.address, f"{HOST}:{admin}")
            seen, _ = self.look(hosts, 20911, is_client=True)
            self.assertEqual(seen.problem, "")

    def test_found_once(self) -> None:
        """The next look goes to the admin port alone."""
        hosts = Hosts({20911: (OURS, None)}, admin=20914)
        _, look = self.look(hosts, 20911)
        hosts.told.clear()
        self.successResultOf(ensureDeferred(look.once()))
        self.assertEqual(hosts.told, {20914})

    def test_stock_broker(self) -> None:
        """It is shown as what it tells its clients; a node of another make is no error."""
        for port in (10911, 10912):
            hosts = Hosts({10911: (STOCK, KEYS | {"brokerRole": "SYNC_MASTER"})})
            seen, look = self.look(hosts, port)
            assert seen.status is not None, seen
            self.assertEqual(seen.problem, "")
            self.assertEqual(seen.status["reason"], "stock, no admin port")
            self.assertEqual(seen.status["role"], "SYNC_MASTER")
            self.assertEqual(seen.status["maxOffset"], 4096)
            self.failureResultOf(ensureDeferred(look.admin()), ValueError)

    def test_ha_port_is_told_nothing(self) -> None:
        """A stock master takes any bytes there for what a slave holds."""
        hosts = Hosts({10911: (STOCK, KEYS)}, admin=10914)
        self.look(hosts, 10912)
        self.assertEqual(hosts.told, {10911})
        hosts = Hosts({10911: (STOCK, KEYS | {"haListenPort": "7000"})}, ha=7000)
        seen, _ = self.look(hosts, 7000)
        self.assertEqual(
            seen, PollResult("10.0.0.1:7000 is an HA port: name the client port", None)
        )
        self.assertEqual(hosts.told, {6999})

    def test_name_servers(self) -> None:
        """One of ours has an admin port, one of RocketMQ's answers."""
        seen, _ = self.look(Hosts(servers=(9876,), admin=9879), 9876)
        self.assertEqual(seen.status, Node().status())
        seen, look = self.look(Hosts(servers=(9876,)), 9876)
        assert seen.status is not None, seen
        self.assertIn("no admin port: 10.0.0.1:9879 cannot be reached", seen.status["reason"])
        self.assertEqual(look.address, f"{HOST}:9876")

    def test_admin_port_not_reached(self) -> None:
        """A node whose admin port listens for its own machine is told so, and is unreached."""
        seen, _ = self.look(Hosts({10911: (OURS, None)}), 10911)
        self.assertIsNone(seen.status)
        self.assertIn("10.0.0.1:10914 cannot be reached", seen.problem)
        told = "it serves clients at 10.0.0.1:10911; adminListenAddress says who may ask for more"
        self.assertTrue(seen.problem.endswith(told), seen.problem)

    def test_nobody(self) -> None:
        """Where nothing answers that is said of the port that was named."""
        seen, _ = self.look(Hosts(), 20914)
        self.assertEqual(seen, PollResult(f"10.0.0.1:20914 cannot be reached: {REFUSED}", None))
