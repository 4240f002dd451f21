"""A set whose every connection is TLS: a member and a learner, both processes, and a controller."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from lab.harness.certificates import Authority
from lab.harness.nodes import Folder, Node
from lab.harness.remote import send
from rmqha.config.settings import ClientAuth, TlsMode
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Registry
from rmqha.net.remoting.server import RemotingFactory
from rmqha.net.tls.gate import TlsGate
from rmqha.net.tls.identity import TlsIdentity
from rmqha.net.tls.material import TlsFiles
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.net.zero_copy_send import listen
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.roles.test_member import WholeSet
from tests.support.effort import slow

reactor: Any = _reactor
LOCAL = "127.0.0.1"
ASKED = (
    Code.GET_METADATA_INFO,
    Code.GET_REPLICA_INFO,
    Code.GET_NEXT_BROKER_ID,
    Code.APPLY_BROKER_ID,
    Code.REGISTER_BROKER,
    Code.ELECT_MASTER,
    Code.ALTER_SYNC_STATE_SET,
    Code.GET_SYNC_STATE_DATA,
    RequestCode.BROKER_HEARTBEAT,
)

REFUSALS = {"clear-text", "tls-disabled", "tls-certificate", "tls-no-certificate", "tls-handshake"}


@slow
class SetWithTlsTests(TestCase):
    """C{tlsMode=enforcing}, C{haTlsMode=enforcing}, and certificates of one root on all sides."""

    timeout = 120

    def setUp(self) -> None:
        """The controller listens, and takes nobody without a certificate."""
        self.folder = Folder()
        self.addCleanup(self.folder.remove)
        self.authority = Authority(self.folder.path / "tls")
        registry = Registry()
        for code in ASKED:
            registry.register(code, self.asked)
        gate = TlsGate(TlsMode.ENFORCING, self.identity("controller", ClientAuth.REQUIRE))
        self.factory = RemotingFactory(registry, reactor, gate=gate)
        port = listen(reactor, self.factory, 0, LOCAL)
        self.addCleanup(self.factory.connections.stop)
        self.addCleanup(port.stopListening)
        self.address = f"{LOCAL}:{port.getHost().port}"
        self.set = WholeSet((self.address,), self.address)

    def identity(self, name: str, asked: ClientAuth = ClientAuth.NONE) -> TlsIdentity:
        key, path = self.authority.certificate(name)
        files = TlsFiles(key=key, certificates=path, trusted=self.authority.root)
        found = TlsIdentity("test", "of a test", files, asked)
        found.load()
        return found

    def asked(self, connection: RemotingProtocol, command: Command) -> Deferred[Command] | None:
        if command.code == RequestCode.BROKER_HEARTBEAT:
            return None
        return self.set.request(self.address, command)

    def node(self, role: str, name: str, **keys: object) -> Node:
        key, path = self.authority.certificate(name)
        files = {
            f"{prefix}{suffix}": value
            for prefix in ("tls", "tlsClient", "haTls")
            for suffix, value in (
                ("KeyPath", key),
                ("CertPath", path),
                ("TrustCertPath", self.authority.root),
            )
        }
        more = {
            "enableControllerMode": "true",
            "controllerAddr": self.address,
            "controllerAloneAnswer": "ok",
            "brokerIP1": LOCAL,
            "brokerIP2": LOCAL,
            "tlsMode": "enforcing",
            "tlsClientAuth": "require",
            "tlsCheckNames": "true",
            "haTlsMode": "enforcing",
        }
        node = Node(self.folder.path, role, name, **more, **files, **keys)
        self.addCleanup(node.kill9)
        return node

    async def test_set(self) -> None:
        """The member is elected and takes a write, the learner copies it, none is refused."""
        member = self.node("member", "member", brokerRole="SYNC_MASTER", brokerId=0)
        learner = self.node("slave", "learner", asyncLearner="true", haListenPort=0)
        self.set.address = f"{LOCAL}:{member.port}"
        self.set.names = ("broker-a",)
        member.launch()
        await deferToThread(
            member.until, lambda status: status["controller"]["state"] == "leading", "leading"
        )
        client = RemotingClient(reactor, tls=OutgoingTls(identity=self.identity("client")))
        self.addCleanup(client.close)
        answer = await client.request(f"{LOCAL}:{member.port}", send("TopicA", b"hello"), 20.0)
        self.assertEqual(answer.code, 0, answer.remark)
        end = (await deferToThread(member.status))["maxOffset"]
        self.assertGreater(end, 0)
        learner.launch()
        status = await deferToThread(
            learner.until, lambda status: (status["dispatchedOffset"] or 0) >= end, "copied"
        )
        self.assertEqual(status["upstream"]["tlsRefusals"], {})
        leading = await deferToThread(member.status)
        self.assertEqual(set(leading["remoting"]["closed"]) & REFUSALS, set())
        self.assertEqual(set(self.factory.connections.closed) & REFUSALS, set())
        for node in (learner, member):
            await deferToThread(node.term)
            self.assertEqual(node.complaints(), [])
