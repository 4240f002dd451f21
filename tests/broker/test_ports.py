"""The client ports: what they answer before, while and after there is something to serve."""

from __future__ import annotations

from attrs import define
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import ServerFactory
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker import ports
from rmqha.broker.ports import CLOSED, NOT_ON_VIP, ClientPorts, ServedPort
from rmqha.config.settings import RemotingSettings
from rmqha.config.values import NETWORKS
from rmqha.net.connection_shares import ConnectionShares
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.broker.support import Client

PULL, SEND = RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE_V2


def yes(connection: RemotingProtocol, command: Command) -> Answer:
    """Answer with success."""
    return command.answer(0, "yes")


@define
class FakeLane:
    """Serves so many frames of a byte each, whatever they are."""

    serves: frozenset[int]
    count: int = 0
    asked: int = 0

    @property
    def codes(self) -> tuple[tuple[int, int], ...]:
        return tuple((code, self.count) for code in self.serves)

    def serve_run(
        self, connection: RemotingProtocol, data: bytes, at: int, stop: int
    ) -> tuple[int, int]:
        self.asked += 1
        return self.count, len(data) if self.count else at


class ListTests(SynchronousTestCase):
    def test_allowed(self) -> None:
        """With a list nobody else is let in at either port, and it is counted."""
        reactor = MemoryReactorClock()
        allowed = NETWORKS.parse("10.0.0.0/24")
        factories: list[ServerFactory] = []
        self.patch(
            ports,
            "listen_twice",
            lambda reactor, first, vip, port, interface: factories.extend([first, vip]) or [],
        )
        settings = RemotingSettings(allowed_peers=allowed)
        clients = ClientPorts(settings, 10911, reactor, ConnectionShares(files=1000))
        clients.listen()
        self.assertEqual(2, len(factories))
        for factory in factories:
            friend, stranger = (
                factory.buildProtocol(IPv4Address("TCP", host, 40000))
                for host in ("10.0.0.7", "10.0.1.7")
            )
            self.assertIsNotNone(friend)
            self.assertIsNone(stranger)
        self.assertEqual({"not-allowed": 2}, clients.status()["closed"])


class DoorTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A broker of two codes, and a door for each port."""
        self.registry = Registry()
        for code in (PULL, SEND):
            self.registry.register(code, yes)

    def client(self, door: ServedPort) -> Client:
        return Client(Connections(Clock(), door, ConnectionLimits()))

    def test_closed(self) -> None:
        """Until it is open, and once it is shut, nothing is available."""
        door = ServedPort()
        client = self.client(door)
        answers = [client.ask(SEND)]
        door.open(self.registry)
        answers.append(client.ask(SEND))
        door.shut()
        answers.append(client.ask(SEND))
        self.assertEqual([answer.code for answer in answers], [14, 0, 14])
        self.assertEqual([answer.remark for answer in answers], [CLOSED, "yes", CLOSED])

    def test_vip(self) -> None:
        """The VIP port serves all but pulls."""
        door = ServedPort(NOT_ON_VIP)
        door.open(self.registry)
        client = self.client(door)
        self.assertEqual(client.ask(SEND).code, 0)
        answer = client.ask(PULL)
        self.assertEqual((answer.code, answer.remark), (3, " request type 11 not supported"))

    def test_lanes(self) -> None:
        """Lanes are asked in turn, but for those that serve what the VIP port does not."""
        lanes = [FakeLane(frozenset({SEND})), FakeLane(frozenset({PULL}), 1)]
        self.registry.lanes += lanes
        doors = ServedPort(), ServedPort(NOT_ON_VIP)
        for door in doors:
            door.open(self.registry)
            self.client(door).ask(SEND)
        self.assertEqual([lane.asked for lane in lanes], [2, 1])
        self.assertEqual([dict(door.served) for door in doors], [{PULL: 1}, {SEND: 1}])
        doors[0].shut()
        self.client(doors[0]).ask(SEND)
        self.assertEqual([lane.asked for lane in lanes], [2, 1])

    def test_served(self) -> None:
        """Requests are counted by their code, and those that nothing serves by their client too."""
        door = ServedPort()
        door.open(self.registry)
        client = self.client(door)
        for code in (SEND, SEND, PULL, 9999, 9998):
            client.ask(code)
        self.assertEqual(dict(door.served), {SEND: 2, PULL: 1})
        host = client.connection.host
        self.assertEqual(dict(door.refused.counts), {(9999, host): 1, (9998, host): 1})


class ClientPortsTests(SynchronousTestCase):
    def test_none(self) -> None:
        """A node may have no client port at all."""
        ports = ClientPorts(RemotingSettings(), 0, Clock(), ConnectionShares(files=100))
        self.assertEqual(ports.listen(), [])
        ports.open(Registry(), lambda connection: None)
        ports.shut()
        self.successResultOf(ports.close())
        self.assertEqual(ports.status()["connections"], 0)
