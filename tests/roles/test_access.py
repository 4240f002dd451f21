"""Nodes with access control, and nodes that sign."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from rmqha.broker.access.acl_file import LOOK_EVERY
from rmqha.config.settings import AccessSettings
from rmqha.net.key_file import KeyFileInvalid
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from tests.roles.nodes import NodeReactor, PuppetSlave, settings
from tests.support.access_table import PLAIN_ACL, credentials
from tests.support.logs import LogTestCase


class AccessNodeTests(LogTestCase):
    """A slave, which has clients and is one itself."""

    def node(self, **keys: Path | bool) -> PuppetSlave:
        """A node that is not started."""
        self.reactor = NodeReactor()
        given = settings(self.folder() / "store", master_client=("10.0.0.1", 10911))
        made = PuppetSlave(evolve(given, access=AccessSettings(**keys)), self.reactor)  # type: ignore[arg-type]
        self.patch(made, "without_traceback", lambda error: None)
        return made

    def start(self, node: PuppetSlave) -> None:
        node.startService()
        self.addCleanup(self.stop, node)
        self.successResultOf(node.ready)

    def stop(self, node: PuppetSlave) -> None:
        stopped = node.stopService()
        for _ in range(5):
            self.reactor.advance(0)
        self.successResultOf(stopped)

    def accounts(self) -> Path:
        path = self.folder() / "plain_acl.yml"
        path.write_bytes(PLAIN_ACL.read_bytes())
        return path

    def test_no_start(self) -> None:
        """Without accounts it does not start."""
        node = self.node(enabled=True, accounts=self.folder() / "plain_acl.yml")
        error = self.assertRaises(KeyFileInvalid, node.startService)
        self.assertIn("plain_acl.yml: No such file", str(error))

    def test_unhealthy(self) -> None:
        """Accounts that cannot be used any more make it unhealthy, until they can."""
        path = self.accounts()
        node = self.node(enabled=True, accounts=path)
        self.start(node)
        assert node.broker is not None
        self.assertIsNotNone(node.broker.access)

        def names() -> set[str]:
            return {reason.name for reason in node.health()}

        self.assertNotIn("accounts", names())
        path.write_text("accounts: 5", encoding="utf-8")
        self.reactor.advance(LOOK_EVERY)
        self.assertIn("accounts", names())
        path.write_bytes(PLAIN_ACL.read_bytes())
        self.reactor.advance(LOOK_EVERY)
        self.assertNotIn("accounts", names())

    def test_signs(self) -> None:
        """What it asks its master is signed."""
        path = self.folder() / "tools.yml"
        path.write_text("accessKey: consumer\nsecretKey: consumer-secret\n", encoding="utf-8")
        node = self.node(credentials=path)
        self.start(node)
        for _ in range(5):
            self.reactor.advance(0)
        (_, port, factory, *_), *_ = self.reactor.tcpClients
        self.assertEqual(port, 10911)
        connection = factory.buildProtocol(None)
        transport = StringTransport()
        connection.makeConnection(transport)
        for _ in range(5):
            self.reactor.advance(0)
        asked = FrameDecoder().receive(transport.value())
        self.assertTrue(asked)
        for command in asked:
            again = Command(code=command.code, ext=dict(command.ext), body=command.body)
            credentials("consumer").sign(again)
            self.assertEqual(again.ext, command.ext)
        connection.connectionLost(Failure(ConnectionDone()))
