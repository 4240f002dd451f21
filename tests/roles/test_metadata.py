"""Where a slave asks for its master's tables, and what C{--slave-of} finds out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Thread
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.trial.unittest import SynchronousTestCase

from lab.harness.ports import free_port
from rmqha.broker.cluster.master_twin import TIMEOUT
from rmqha.errors import BadValue
from rmqha.ha.states import NodeState
from rmqha.net.remoting import ha_port
from rmqha.net.remoting.ha_port import keeps_slaves
from rmqha.net.remoting.handlers import Registry
from rmqha.roles.master import MasterNode
from rmqha.roles.tap import MasterPortUnknown, keys_of_master
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.fsync import FsyncInThread
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode
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


class ByNumberTests(SynchronousTestCase):
    """RocketMQ's own ports are taken unasked: a slave starts without its master."""

    def test_host(self) -> None:
        """A host alone is the client port 10911, and the HA port behind it."""
        for text, host in (("10.0.0.5", "10.0.0.5"), ("fe80::5", "[fe80::5]"), ("[::1]", "[::1]")):
            wanted = [f"haMasterAddress={host}:10912", f"haMasterClientAddress={host}:10911"]
            self.assertEqual(wanted, keys_of_master(text))
        self.assertEqual(keys_of_master("10.0.0.5"), keys_of_master("10.0.0.5:10911"))

    def test_ha_port(self) -> None:
        """10912 is the HA port."""
        self.assertEqual(["haMasterAddress=broker-a:10912"], keys_of_master("broker-a:10912"))

    def test_no_address(self) -> None:
        """What is no address is refused with what it should be."""
        for text in ("", "10.0.0.5:", "10.0.0.5:http", "a:0", "a:70000", "a b", "a,b"):
            said = str(self.assertRaises(BadValue, keys_of_master, text))
            self.assertIn(f"--slave-of={text} is not allowed: HOST, or HOST:PORT", said)


class ByAnswerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.patch(ha_port, "SILENCE", 0.05)
        self.heard: list[bytes] = []

    @contextmanager
    def server(self, *conversations: str) -> Iterator[tuple[str, int]]:
        """A port with a conversation for each connection: its C{host:port}, and the port."""
        with closing(socket.create_server(("127.0.0.1", 0))) as listening:
            thread = Thread(target=self.serve, args=(listening, conversations), daemon=True)
            thread.start()
            port: int = listening.getsockname()[1]
            yield f"127.0.0.1:{port}", port
            thread.join(10)

    def serve(self, listening: socket.socket, conversations: tuple[str, ...]) -> None:
        for conversation in conversations:
            peer, _ = listening.accept()
            with peer:
                self.heard.append(peer.recv(1 << 16))
                if conversation == "frame":
                    peer.sendall(bytes(12))
                elif conversation == "silence":
                    peer.recv(1)  # until the other side has had enough
                elif conversation == "http":
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                elif conversation.startswith("config"):
                    (request,) = FrameDecoder().receive(self.heard[-1])
                    body = conversation.partition(" ")[2].encode()
                    peer.sendall(encode(request.answer(0 if body else 16, body=body)))

    def test_ha_port(self) -> None:
        """A port that sends frames, or stays open, is an HA port; it is told of no byte held."""
        for conversation in ("frame", "silence"):
            with self.server(conversation) as (address, _):
                self.assertEqual([f"haMasterAddress={address}"], keys_of_master(address))
        self.assertEqual([ha_port.REPORTS] * 2, self.heard)

    def test_client_port(self) -> None:
        """A port that closes is a client port if it tells its configuration, with the HA port."""
        for conversation, slaves in (
            ("config brokerName=a\nhaListenPort=7000\n", 7000),
            ("config haListenPort=70000\n", None),
            ("config refused", None),
            ("config", None),
        ):
            with self.server("close", conversation) as (address, port):
                wanted = [
                    f"haMasterAddress=127.0.0.1:{slaves or port + 1}",
                    f"haMasterClientAddress={address}",
                ]
                self.assertEqual(wanted, keys_of_master(address))

    def test_admin_port(self) -> None:
        """A port that answers as an HTTP server does is none."""
        with self.server("http") as (_, port):
            self.assertFalse(keeps_slaves(("127.0.0.1", port)))

    def test_port_below(self) -> None:
        """A broker that says whose HA port is next is asked first: nobody connects to that."""
        with self.server("config") as (below, port):
            named = f"127.0.0.1:{port + 1}"
            wanted = [f"haMasterAddress={named}", f"haMasterClientAddress={below}"]
            self.assertEqual(wanted, keys_of_master(named))

    def test_neither(self) -> None:
        """Where nothing answers, the error says what to do: no port is guessed."""
        free = free_port()
        said = str(self.assertRaises(MasterPortUnknown, keys_of_master, f"127.0.0.1:{free}"))
        self.assertIn(f"--slave-of 127.0.0.1:{free}: Connection refused, so it is not known", said)
        self.assertIn(f"--set haMasterAddress=127.0.0.1:{free}", said)
        with self.server("close", "close") as (address, _):
            said = str(self.assertRaises(MasterPortUnknown, keys_of_master, address))
        self.assertIn("it closed the connection without an answer", said)


class QuestionTests(SynchronousTestCase):
    """The bytes that are sent to a port of unknown kind."""

    def test_harmless(self) -> None:
        """An HA port reads them as reports of offset 0, a client port as frames of no bytes."""
        reports = [ha_port.REPORTS[at : at + 8] for at in (0, 8)]
        self.assertEqual([0, 0], [int.from_bytes(report, "big") for report in reports])
        question = encode(Command.request(26))
        self.assertGreater(int.from_bytes(question[:8], "big"), 1 << 32)
