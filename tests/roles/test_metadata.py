"""Where a slave asks for its master's tables, and when a master lets clients in."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort

from rmqha.broker.cluster.master_twin import TIMEOUT
from rmqha.ha.states import NodeState
from rmqha.net.remoting.handlers import Registry
from rmqha.roles.master import MasterNode
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.fsync import FsyncInThread
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer
from tests.roles.nodes import NodeReactor, PuppetSlave, settings
from tests.support.logs import LogTestCase, now

HA = "10.0.0.1:10912"


class AddressTests(LogTestCase):
    """A slave's ways to its master's client port."""

    def start(self, **keys: Any) -> PuppetSlave:
        self.reactor = NodeReactor()
        self.node = PuppetSlave(settings(self.folder() / "store", **keys), self.reactor)
        self.node.startService()
        self.addCleanup(self.stop)
        self.successResultOf(self.node.ready)
        return self.node

    def stop(self) -> None:
        stopped = self.node.stopService()
        for _ in range(5):
            self.reactor.advance(0)
        self.successResultOf(stopped)

    def asked(self) -> str | None:
        found: str | None = self.node.status()["metadata"]["master"]
        return found

    def dialled(self) -> list[tuple[str, int]]:
        """The client ports it connected to for that."""
        for _ in range(5):
            self.reactor.advance(0)
        return [(host, port) for host, port, *_ in self.reactor.tcpClients]

    def told(self, clients: str | None, ha: str | None = HA) -> None:
        """A name server tells it something."""
        self.node.told(RegisterBrokerAnswer(ha_server_addr=ha, master_addr=clients))

    def test_configured(self) -> None:
        """The configured counts until a name server knows better, and when it knows no more."""
        self.start(master_client=("10.0.0.1", 10911))
        self.assertEqual("10.0.0.1:10911", self.asked())
        self.assertEqual([("10.0.0.1", 10911)], self.dialled())
        self.told("10.0.0.1:20911")
        self.assertEqual("10.0.0.1:20911", self.asked())
        self.told(None, None)
        self.assertEqual("10.0.0.1:20911", self.asked())

    def test_learned(self) -> None:
        """With no address it waits for a name server."""
        self.start(master=None)
        self.assertIsNone(self.asked())
        self.assertEqual([], self.dialled())
        self.told("10.0.0.1:10911")
        self.assertEqual("10.0.0.1:10911", self.asked())

    def test_itself(self) -> None:
        """Its own address is not its master's."""
        node = self.start()
        assert node.broker is not None
        self.told(node.broker.registration.address)
        self.assertIsNone(self.asked())

    def test_let_in(self) -> None:
        """When the master lets it in it asks at once, and not only when the time has come."""
        node = self.start(master_client=("10.0.0.1", 10911))
        self.dialled()
        self.reactor.tcpClients.clear()
        self.reactor.advance(3.0)  # the first attempt is given up
        node.endpoint.accept()
        self.reactor.advance(1.0)
        self.assertEqual([("10.0.0.1", 10911)], self.dialled()[:1])


class PlainMaster(MasterNode):
    """A master without threads and without slaves."""

    def _in_thread(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return now(function, *args, **kwargs)

    def _environment(self) -> StoreEnvironment:
        # By default old files go at four in the morning, also of the day of the test.
        return evolve(
            super()._environment(),
            fsync=FsyncInThread(now),
            disk_use=lambda folder: 0.1,
            local_hour=lambda now: 12,
        )

    def listen(self) -> list[IListeningPort]:
        return []


class ReturnTests(LogTestCase):
    def start(self, namesrv: str) -> MasterNode:
        """A master that has looked for another one, as long as its name server may take."""
        self.reactor = NodeReactor()
        given = settings(self.folder() / "store", role="master", master=None)
        given = evolve(given, broker=evolve(given.broker, namesrv=namesrv))
        node = PlainMaster(given, self.reactor)
        node.startService()
        self.addCleanup(self.stop, node)
        self.reactor.advance(TIMEOUT)
        return node

    def stop(self, node: MasterNode) -> None:
        stopped = node.stopService()
        self.reactor.advance(5.0)
        self.reactor.advance(5.0)
        self.successResultOf(stopped)

    def code(self, node: MasterNode) -> int:
        """What a client is answered."""
        door: Registry = node.clients._doors[0]
        answer: Any = door.serve(None, Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET))  # type: ignore[arg-type]
        if isinstance(answer, Deferred):
            answer = self.successResultOf(answer)
        return int(answer.code)

    def test_at_once(self) -> None:
        """Without name servers it serves at once."""
        self.assertEqual(ResponseCode.SUCCESS, self.code(self.start("")))

    def test_waits(self) -> None:
        """With one that does not answer it is ready, and answers clients, after three seconds."""
        node = self.start("10.0.0.9:9876")
        self.assertEqual(NodeState.RECOVERING, node.state)
        self.assertNoResult(node.ready)
        self.assertEqual(ResponseCode.SERVICE_NOT_AVAILABLE, self.code(node))
        self.reactor.advance(2.9)
        self.assertEqual(ResponseCode.SERVICE_NOT_AVAILABLE, self.code(node))
        self.reactor.advance(0.2)
        self.successResultOf(node.ready)
        self.assertEqual(NodeState.SERVING, node.state)
        self.assertEqual(ResponseCode.SUCCESS, self.code(node))

    def test_stopped(self) -> None:
        """One that is stopped before never does."""
        node = self.start("10.0.0.9:9876")
        stopped = node.stopService()
        self.reactor.advance(5.0)
        self.successResultOf(stopped)
        self.assertEqual(ResponseCode.SERVICE_NOT_AVAILABLE, self.code(node))
