"""What all nodes share: starting with real ports, and failing to."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import treq
from attrs import evolve
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError, ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool

from lab.harness.compare_stores import derived_faults
from lab.harness.ports import client_port, free_ports
from rmqha.config.load import load
from rmqha.errors import DiskFull, FileUnreadable, StoreLocked, TableUnreadable
from rmqha.ha.slave import follow_state
from rmqha.logfiles import json_table
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.roles.host.exit_codes import FOR_A_PERSON
from rmqha.roles.master import MasterNode
from rmqha.roles.node import Node
from rmqha.roles.slave import SlaveNode
from rmqha.store.files import mapped
from rmqha.store.files.lock import StoreLock, is_locked
from rmqha.store.log.bootstrap_marker import UnfinishedCopy, marker
from rmqha.store.published import readers
from rmqha.wire.log.record import Message
from rmqha.wire.remoting.command import Command
from tests.broker.support import sending
from tests.support.effort import slow
from tests.support.health import unhealthy
from tests.support.logs import content
from tests.support.unreadable import make_unreadable

LONG = 20.0


class NodeCase(TestCase):
    timeout = 60

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="node-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def node(self, role: str, name: str = "", **keys: object) -> Any:
        """A node that was not started."""
        ha, admin = free_ports(2)
        given = {
            "storePathRootDir": self.folder / (name or role),
            "mappedFileSizeCommitLog": 1 << 20,
            "listenPort": client_port(),
            "haListenPort": ha,
            "adminListenPort": admin,
        } | keys
        settings = load(None, [f"{key}={value}" for key, value in given.items()], role)
        kind = MasterNode if role == "master" else SlaveNode
        node: Node = kind(settings, reactor)
        self.patch(node, "exit_with", lambda code: self.fail("it has an exit code"))
        return node

    async def started(self, node: Any) -> Any:
        """Start one and wait until it is open."""
        node.startService()
        self.addCleanup(node.stopService)
        await node.ready
        return node

    async def until(self, condition: Any) -> None:
        waited = 0.0
        while not condition():
            await deferLater(reactor, 0.01)
            waited += 0.01
            self.assertLess(waited, LONG, "it did not come true")

    def run_async(self, steps: Any) -> Deferred[None]:
        """A coroutine as a test's result."""
        return Deferred.fromCoroutine(steps)


class LocalAddressTests(NodeCase):
    def test_ha_port(self) -> Deferred[None]:
        """Another node's HA port is connected to from haLocalAddress."""
        return self.run_async(self._call("master", "slave"))

    async def _call(self, *roles: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for role in roles:
                node = self.node(role, haLocalAddress="127.0.0.2")
                endpoint = node.dialled("127.0.0.1", listener.getsockname()[1])
                protocol = await endpoint.connect(Factory.forProtocol(Protocol))
                connection, (host, _) = listener.accept()
                protocol.transport.loseConnection()
                connection.close()
                self.assertEqual(host, "127.0.0.2")
                await deferLater(reactor, 0)
                node.abandon()


class StartTests(NodeCase):
    """What goes wrong at once is raised at once."""

    def taken(self) -> int:
        """A port somebody listens on."""
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port: int = listener.getsockname()[1]
        return port

    async def _refused(self, node: Any, error: type[Exception]) -> None:
        self.assertRaises(error, node.startService)
        self.assertFalse(node.running)
        await deferLater(reactor, 0)
        for key in ("admin", "ha"):
            port = getattr(node.settings, key).listen_port
            with socket.socket() as trial:
                if port != self.port:
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    trial.bind(("127.0.0.1", port))

    def test_admin_port_in_use(self) -> Deferred[None]:
        """A used admin port: nothing is left open, the store is not locked."""
        self.port = self.taken()
        node = self.node("slave", adminListenPort=self.port)
        self.addCleanup(lambda: self.assertFalse(is_locked(node.settings.store.root / "lock")))
        return self.run_async(self._refused(node, CannotListenError))

    def test_ha_port_in_use(self) -> Deferred[None]:
        """A used HA port: the admin port, which was open already, is closed."""
        self.port = self.taken()
        node = self.node("master", haListenPort=self.port, haListenAddress="127.0.0.1")
        return self.run_async(self._refused(node, CannotListenError))

    def test_client_port_in_use(self) -> Deferred[None]:
        """A used client port, or VIP port two below it: the same."""

        async def steps() -> None:
            for number in (client_port(), client_port()):
                self.port = number
                with socket.socket() as listener:
                    listener.bind(("", number))
                    listener.listen()
                    for listen in (number, number + 2):
                        node = self.node("master", listenPort=listen)
                        await self._refused(node, CannotListenError)

        return self.run_async(steps())

    def test_bad_certificate(self) -> Deferred[None]:
        """A certificate that cannot be read is a failed start too."""
        self.port = -1
        node = self.node("master", tlsKeyPath=self.folder / "k", tlsCertPath=self.folder / "c")
        return self.run_async(self._refused(node, TlsFilesInvalid))

    def test_locked(self) -> Deferred[None]:
        """A store somebody has: the ports are closed again."""
        self.port = -1
        node = self.node("slave")
        lock = StoreLock(node.settings.store.root / "lock")
        lock.take()
        self.addCleanup(lock.release)
        return self.run_async(self._refused(node, StoreLocked))


class HealthTests(NodeCase):
    """The admin port of a whole node."""

    async def _get(self, node: Any, path: str) -> tuple[int, Any]:
        pool = HTTPConnectionPool(reactor, persistent=False)
        url = f"http://127.0.0.1:{node.settings.admin.listen_port}/{path}"
        answer = await treq.get(url, agent=Agent(reactor, pool=pool))
        return answer.code, json.loads(await treq.content(answer))

    async def _recovering(self) -> None:
        node = self.node("slave")
        work: list[Any] = []
        given = node.environment
        node.store_service.environment = evolve(
            given, in_thread=lambda *a, **k: work.append((a, k)) or opened
        )
        opened: Deferred[Any] = Deferred()
        node.startService()
        self.addCleanup(node.stopService)
        self.assertEqual((await self._get(node, "healthz"))[0], 503)
        code, status = await self._get(node, "status")
        self.assertEqual((code, status["state"]), (200, "recovering"))
        node.store_service.environment = given
        arguments, more = work[0]
        given.in_thread(*arguments, **more).chainDeferred(opened)
        await node.ready
        self.assertEqual((await self._get(node, "healthz"))[0], 200)
        self.assertEqual((await self._get(node, "status"))[1]["state"], "serving")
        node.following.follower.sync.fail("made up")
        code, said = await self._get(node, "healthz")
        self.assertEqual(code, 503)
        self.assertIn("failed: made up", said["reason"])

    def test_readers(self) -> Deferred[None]:
        """The status tells where the files' readers are, or were, if the disk does not answer."""

        async def steps() -> None:
            node = await self.started(self.node("master"))
            folder = node.settings.store.root / "rmqha" / "readers"
            self.assertEqual((await self._get(node, "status"))[1]["readers"], [])
            folder.mkdir()
            (folder / "lake.json").write_text('{"offset": 7, "time": 1}')
            (row,) = (await self._get(node, "status"))[1]["readers"]
            self.assertEqual(("lake", "ahead", 7), (row["name"], row["state"], row["offset"]))
            (folder / "lake.json").unlink()
            self.patch(readers, "LOOK_PATIENCE", 0.01)
            stuck: Deferred[Any] = Deferred()
            silent = evolve(node.environment, in_thread=lambda *arguments: stuck)
            self.patch(node.readers, "environment", silent)
            for _ in range(2):
                self.assertEqual((await self._get(node, "status"))[1]["readers"], [row])
            stuck.errback(OSError(5, "made up"))
            self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

        return self.run_async(steps())

    def test_recovering(self) -> Deferred[None]:
        """/healthz is 503 while the node recovers and in a stop state, 200 between."""
        return self.run_async(self._recovering())

    def test_ports_are_told(self) -> Deferred[None]:
        """The log names each port that is opened, in words and not by a class."""
        lines: list[str] = []

        def note(event: LogEvent) -> None:
            lines.append(formatEvent(event))

        async def steps() -> None:
            globalLogPublisher.addObserver(note)
            self.addCleanup(globalLogPublisher.removeObserver, note)
            node = await self.started(self.node("master"))
            ports = node.settings.broker.listen_port, node.settings.ha.listen_port
            for line in (
                f"client port starting on {ports[0]}",
                f"VIP port starting on {ports[0] - 2}",
                f"HA port starting on {ports[1]}",
                f"admin port starting on {node.settings.admin.listen_port}",
            ):
                self.assertIn(line, lines)
            await node.stopService()
            self.assertEqual([line for line in lines if " at 0x" in line], [])

        return self.run_async(steps())

    def test_clean_stop(self) -> Deferred[None]:
        """After a clean stop there is no abort, no lock and no port."""

        async def steps() -> None:
            node = await self.started(self.node("slave"))
            abort = node.settings.store.root / "abort"
            self.assertTrue(abort.exists())
            await node.stopService()
            self.assertFalse(abort.exists())
            self.assertFalse(is_locked(node.settings.store.root / "lock"))
            try:
                await self._get(node, "healthz")
            except ConnectionRefusedError:
                return
            self.fail("its port is still open")

        return self.run_async(steps())


class ClientTests(NodeCase):
    """The client ports of a whole node."""

    def asked(self, port: int, code: int, ext: dict[str, str], body: bytes = b"") -> Any:
        """Ask one of this host's ports."""
        client = RemotingClient(reactor)
        self.addCleanup(client.close)
        return client.request(f"127.0.0.1:{port}", Command(code=code, ext=ext, body=body))

    def test_send(self) -> Deferred[None]:
        """Both ports take messages, and the status counts them."""

        async def steps() -> None:
            node = await self.started(self.node("master"))
            port = node.settings.broker.listen_port
            for number in (port, port - 2):
                answer = await self.asked(number, 310, sending("T"), b"hello")
                self.assertEqual(answer.code, 0, answer.remark)
            self.assertEqual(answer.ext["queueOffset"], "1")
            self.assertEqual(node.status()["remoting"]["requests"], {"SEND_MESSAGE_V2": 2})
            await node.stopService()
            topics = json_table.read(node.settings.store.root / "config" / "topics.json")
            self.assertIn("T", topics["topicConfigTable"])

        return self.run_async(steps())

    def test_sync(self) -> Deferred[None]:
        """A SYNC master without a slave says that there was none; the message is stored."""

        async def steps() -> None:
            keys = {"brokerRole": "SYNC_MASTER", "flushCommitLogThoroughInterval": 200}
            node = await self.started(self.node("master", **keys))
            port = node.settings.broker.listen_port
            answer = await self.asked(port, 310, sending("T"), b"hello")
            self.assertEqual((answer.code, answer.ext["queueOffset"]), (11, "0"))
            await self.until(lambda: node.status()["published"]["durable"])
            self.assertEqual(node.status()["published"]["confirm"], 0)

        return self.run_async(steps())

    def test_slave(self) -> Deferred[None]:
        """A slave answers, and takes no messages."""

        async def steps() -> None:
            node = await self.started(self.node("slave"))
            answer = await self.asked(node.settings.broker.listen_port, 310, sending("T"), b"x")
            self.assertEqual(answer.code, 14)

        return self.run_async(steps())

    async def _cannot_start(self, node: Any, error: type[Exception]) -> None:
        """It ends with the reason and an exit code."""
        codes: list[int] = []
        self.patch(node, "exit_with", codes.append)
        stops: list[bool] = []
        # Only once it runs does the test runner put its own stop there.
        await deferLater(reactor, 0)
        self.patch(reactor, "stop", lambda: stops.append(True))
        node.startService()
        self.addCleanup(node.stopService)
        await self.assertFailure(node.ready, error)
        await self.until(lambda: stops)
        self.assertEqual(codes, [FOR_A_PERSON])

    def test_damaged_table(self) -> Deferred[None]:
        """A node does not start with a table that cannot be read: it would forget its topics."""
        node = self.node("master")
        config = node.settings.store.root / "config"
        config.mkdir(parents=True)
        (config / "topics.json").write_text("garbage", encoding="ascii")
        return self.run_async(self._cannot_start(node, TableUnreadable))

    def test_unreadable_table(self) -> Deferred[None]:
        """Nor with one it may not read, though there is one before it: offsets would go back."""
        node = self.node("master")
        config = node.settings.store.root / "config"
        config.mkdir(parents=True)
        for name in ("consumerOffset.json", "consumerOffset.json.bak"):
            (config / name).write_text("{}", encoding="ascii")
        make_unreadable(self, config / "consumerOffset.json", errno.EACCES)
        return self.run_async(self._cannot_start(node, FileUnreadable))

    def test_unfinished_copy(self) -> Deferred[None]:
        """Nobody is a master of a part of what his master had."""
        node = self.node("master")
        path = marker(node.settings.store.root)
        path.parent.mkdir(parents=True)
        path.write_text("{}", encoding="ascii")
        (node.settings.store.root / "commitlog").mkdir()
        return self.run_async(self._cannot_start(node, UnfinishedCopy))


@slow
class PairTests(NodeCase):
    """Both roles on the real reactor: zero-copy both ways."""

    def write(self, master: Any, count: int, size: int = 1000) -> list[Deferred[Any]]:
        return [
            master.writer.put(
                Message(
                    topic="T",
                    queue_id=n % 4,
                    body=os.urandom(size),
                    properties=b"",
                    born_timestamp=1,
                    born_host=("127.0.0.1", 1),
                    store_host=("127.0.0.1", 2),
                ),
                wait=True,
            )
            for n in range(count)
        ]

    async def _pair(self, **keys: object) -> tuple[Any, Any]:
        master = await self.started(self.node("master", brokerRole="SYNC_MASTER"))
        address = f"127.0.0.1:{master.settings.ha.listen_port}"
        slave = await self.started(self.node("slave", haMasterAddress=address, **keys))
        await self.until(lambda: slave.following.follower.sync.state.value == "in-sync")
        return master, slave

    async def _same(self, master: Any, slave: Any) -> None:
        end = master.store.log.end
        await self.until(lambda: slave.store.log.confirmed == end)
        self.assertEqual(content(slave.store.log), content(master.store.log))

    def test_follows(self) -> Deferred[None]:
        """Several files of writes arrive, are acknowledged, and are indexed."""

        async def steps() -> None:
            master, slave = await self._pair()
            results = [await each for each in self.write(master, 3000)]
            self.assertEqual({each.status.value for each in results}, {"PUT_OK"})
            await self._same(master, slave)
            self.assertGreater(len(slave.store.log.folder.files), 2)
            for node in (master, slave):
                publisher, end = node.store.publisher, node.store.log.end
                await self.until(lambda told=publisher, end=end: told.point.confirm == end)
                self.assertEqual(publisher.point.broker_name, node.settings.broker.name)
            await slave.stopService()
            await master.stopService()
            self.assertEqual(derived_faults(slave.settings.store), [])

        return self.run_async(steps())

    def test_full_disk(self) -> Deferred[None]:
        """A full disk has its name on the zero-copy path too, and goes on by itself."""

        async def steps() -> None:
            self.patch(follow_state, "DISK_RETRY", 0.2)
            master, slave = await self._pair()
            self.write(master, 10)
            await self._same(master, slave)
            log = slave.store.log
            real = mapped.MappedFile.allocate
            full = True

            def allocate(file: Any, upto: int, **more: Any) -> None:
                if full and slave.settings.store.root in file.path.parents:
                    raise DiskFull(str(file.path), upto)
                real(file, upto, **more)

            self.patch(mapped.MappedFile, "allocate", allocate)
            writes = self.write(master, 1500)
            await self.until(lambda: slave.following.follower.sync.state.value == "disk-full")
            self.assertIn("disk-full", unhealthy(slave))
            end = log.end
            file = log.folder.at(end - 1)
            self.assertFalse(any(file.view[end - file.start :]))
            full = False
            await self.until(lambda: slave.following.follower.sync.state.value == "in-sync")
            await self._same(master, slave)
            for each in writes:
                await each

        return self.run_async(steps())
