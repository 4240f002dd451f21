"""The name server as a process: real ports, a real file, and failing to start."""

from __future__ import annotations

import errno
import json
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import treq
from twisted.internet import reactor
from twisted.internet.error import CannotListenError
from twisted.internet.task import deferLater
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool

from lab.harness.ports import free_ports
from rmqha.config.load import load
from rmqha.errors import FileUnreadable, TableUnreadable
from rmqha.logfiles import json_table
from rmqha.net.remoting.client import RemotingClient
from rmqha.roles.namesrv import NamesrvNode
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from tests.support.log_lines import log_events
from tests.support.unreadable import make_unreadable


class NamesrvTests(TestCase):
    timeout = 60

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="namesrv-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.port, self.admin = free_ports(2)
        self.told: list[BaseException] = []

    def node(self, *more: str) -> Any:
        """A name server that was not started."""
        keys = {
            "listenPort": self.port,
            "adminListenPort": self.admin,
            "kvConfigPath": self.folder / "kv" / "kvConfig.json",
        }
        given = [*(f"{key}={value}" for key, value in keys.items()), *more]
        node = NamesrvNode(load(None, given, "namesrv"), reactor)
        self.patch(node, "without_traceback", self.told.append)
        return node

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> Command:
        """Ask it, over a connection that stays until the test ends."""
        client = RemotingClient(reactor)
        self.addCleanup(client.close)
        command = Command(code=code, ext=ext, body=body)
        return await client.request(f"127.0.0.1:{self.port}", command)

    async def test_serves(self) -> None:
        """It answers, says how it is, and keeps texts from one start to the next."""
        node = self.node()
        node.startService()
        await self.ask(Code.PUT_KV_CONFIG, namespace="n", key="k", value="v")
        body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"topicName":"t"}}}}'
        await self.ask(
            Code.REGISTER_BROKER, body, brokerName="a", brokerAddr="127.0.0.1:1", brokerId="0",
            clusterName="c", haServerAddr="127.0.0.1:2",
        )  # fmt: skip
        agent = Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False))
        url = f"http://127.0.0.1:{self.admin}"
        found = await treq.get(f"{url}/healthz", agent=agent)
        self.assertEqual((found.code, await found.json()), (200, {"healthy": True}))
        found = await treq.get(f"{url}/status", agent=agent)
        status = await found.json()
        self.assertEqual((status["role"], status["topics"]), ("namesrv", 1))
        self.assertEqual(status["brokers"][0]["address"], "127.0.0.1:1")
        await node.stopService()
        kept = json.loads((self.folder / "kv" / "kvConfig.json").read_bytes())
        self.assertEqual(kept, {"configTable": {"n": {"k": "v"}}})
        again = self.node()
        again.startService()
        answer = await self.ask(Code.GET_KV_CONFIG, namespace="n", key="k")
        self.assertEqual(answer.ext, {"value": "v"})
        await again.stopService()

    async def test_open(self) -> None:
        """A port that serves everybody is one warning at the start; another is none."""
        for keys, warnings in (((), 1), (("bindAddress=127.0.0.1",), 0)):
            events: list[dict[str, Any]] = []
            globalLogPublisher.addObserver(events.append)
            try:
                node = self.node(*keys)
                node.startService()
            finally:
                globalLogPublisher.removeObserver(events.append)
            texts = [str(e["text"]) for e in events if e["log_level"] is LogLevel.warn]
            self.assertEqual(warnings, len(texts), texts)
            for text in texts:
                self.assertIn(f"name server port {self.port} (namesrvAllowedPeers", text)
            await node.stopService()

    async def test_port_in_use(self) -> None:
        """A used port is a failed start, told in one line, and no other port stays open."""
        with socket.create_server(("", self.port)):
            node = self.node()
            self.assertRaises(CannotListenError, node.startService)
            self.assertEqual(len(self.told), 1)
            self.assertFalse(node.running)
        await deferLater(reactor, 0.0)
        with socket.create_server(("127.0.0.1", self.admin)):
            pass

    def test_damaged_file(self) -> None:
        """What was kept and cannot be read keeps it from starting."""
        path = self.folder / "kv" / "kvConfig.json"
        path.parent.mkdir()
        path.write_text("{oh")
        self.assertRaises(TableUnreadable, self.node().startService)
        self.assertIn("kvConfig.json", str(self.told[0]))

    def test_unreadable_file(self) -> None:
        """So does what the system does not let it read, though there is an older one."""
        path = self.kept()
        make_unreadable(self, path)
        error = self.assertRaises(FileUnreadable, self.node().startService)
        self.assertEqual((error.path, error.errno), (str(path), errno.EIO))
        self.assertIn("EIO", str(self.told[0]))

    async def test_older_file(self) -> None:
        """What was damaged is taken from the generation before it, and that is said."""
        self.kept().write_text("{oh")
        events = log_events(self)
        node = self.node()
        node.startService()
        answer = await self.ask(Code.GET_KV_CONFIG, namespace="n", key="k")
        self.assertEqual(answer.ext, {"value": "1"})
        await node.stopService()
        texts = [formatEvent(event) for event in events if event["log_level"] is LogLevel.warn]
        self.assertEqual(1, len([text for text in texts if "kvConfig.json.bak" in text]), texts)

    def kept(self) -> Path:
        """The file of a run before, with two generations."""
        path = self.folder / "kv" / "kvConfig.json"
        path.parent.mkdir()
        for value in ("1", "2"):
            json_table.replace(path, {"configTable": {"n": {"k": value}}})
        return path
