"""The HA port with TLS: what slaves get, and what becomes of those that may not have it."""

from __future__ import annotations

import random
from hashlib import sha256
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import connectProtocol
from twisted.internet.task import Clock, deferLater
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase, TestCase

from lab.harness.certificates import Authority
from rmqha.config.settings import ClientAuth, TlsMode
from rmqha.ha.master.master import MasterFactory
from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.slave.reconnect import ha_endpoint
from rmqha.net.tls.gate import HANDSHAKE_TIMEOUT, TlsGate
from rmqha.net.tls.identity import TlsIdentity
from rmqha.net.tls.material import TlsFiles
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls
from rmqha.net.zero_copy_send import listen
from rmqha.wire.ha_frame import encode_report
from tests.ha.master.test_master_sockets import Copier, master
from tests.support.sending_log import MemoryLog

reactor: Any = _reactor
LOCAL = "127.0.0.1"
HELLO = bytes.fromhex("16030100c8010000c40303")


def identity(authority: Authority, name: str = "", *, mutual: bool = True) -> TlsIdentity:
    """What one end of replication shows, maybe a certificate of a name, and believes."""
    key, path = authority.certificate(name) if name else (None, None)
    files = TlsFiles(key=key, certificates=path, trusted=authority.root if mutual else None)
    found = TlsIdentity(
        "replication", "of replication", files, ClientAuth.REQUIRE if mutual else ClientAuth.NONE
    )
    found.load()
    return found


class TlsSlavesTests(TestCase):
    """A master that takes TLS alone, over loopback."""

    timeout = 60

    async def serve(self, gate: TlsGate) -> None:
        self.log = MemoryLog(file_size=3_000_000)
        self.log.put(random.Random(1).randbytes(5_000_000))
        self.factory: MasterFactory = master(self.log, reactor, gate=gate)
        self.port = listen(reactor, self.factory, 0, LOCAL)
        self.addCleanup(self.factory.stop)
        self.addCleanup(self.port.stopListening)

    async def copier(self, tls: OutgoingTls) -> Copier:
        copier = Copier()
        copier.until = self.log.end
        endpoint = ha_endpoint(reactor, LOCAL, self.port.getHost().port, tls=tls)
        await connectProtocol(endpoint, copier)
        return copier

    async def copied(self, copier: Copier) -> None:
        """It has the whole log, and the next SYNC writes too."""
        await copier.reached
        for size in (1, 70_000, 1_000_000):
            status = await self.factory.transfer.wait(*self.log.put(bytes(size)))
            self.assertEqual(status, PutStatus.PUT_OK)
        copier.until, copier.reached = self.log.end, Deferred()
        if copier.offset < self.log.end:
            await copier.reached
        expected = sha256(self.log.content(0, self.log.end)).hexdigest()
        self.assertEqual(copier.digest.hexdigest(), expected)

    async def left(self, count: int) -> None:
        """So many connections have ended."""
        while self.factory.closed.total() < count:
            await deferLater(reactor, 0.01, lambda: None)

    async def test_mutual(self) -> None:
        """A slave with a certificate of the same root copies; one of another root, one without, one
        in clear text and one that speaks something else get no byte, each is counted by its
        reason, and the first one goes on.
        """
        ours, others = Authority(Path(self.mktemp())), Authority(Path(self.mktemp()), "others")
        shown = identity(ours, "master")
        await self.serve(TlsGate(TlsMode.ENFORCING, shown, "haTlsMode"))
        good = await self.copier(OutgoingTls(identity=identity(ours, "slave"), names=True))
        await self.copied(good)
        stranger = OutgoingTls(identity=identity(others, "slave"), believe_all=True)
        nobody = OutgoingTls(identity=identity(ours), believe_all=True)
        refused = [await self.copier(each) for each in (stranger, nobody, IN_CLEAR_TEXT)]
        for one in refused:
            await one.closed
            self.assertEqual(one.copied, 0)
        await self.left(3)
        self.assertEqual(
            self.factory.closed, {"tls-certificate": 1, "tls-no-certificate": 1, "clear-text": 1}
        )
        self.assertEqual([each.acked for each in self.factory.replicas()], [self.log.end])
        await self.copied(good)
        good.transport.loseConnection()
        await good.closed

    async def test_permissive(self) -> None:
        """One port feeds slaves in clear text without a copy, and others in TLS."""
        gate = TlsGate(TlsMode.PERMISSIVE, identity(Authority(Path(self.mktemp())), "master"))
        await self.serve(gate)
        clear = await self.copier(IN_CLEAR_TEXT)
        encrypted = await self.copier(
            OutgoingTls(identity=identity(Authority(Path(self.mktemp())), mutual=False))
        )
        self.assertEqual(gate.mode, TlsMode.PERMISSIVE)
        await clear.reached
        await encrypted.closed
        # It asked for no certificate of a slave that has none: the roots want one.
        self.assertEqual(self.factory.closed, {"tls-no-certificate": 1})
        clear.transport.loseConnection()
        await clear.closed

    async def test_encryption_alone(self) -> None:
        """Without roots nobody shows a certificate but the master."""
        shown = identity(Authority(Path(self.mktemp())), "master", mutual=False)
        await self.serve(TlsGate(TlsMode.PERMISSIVE, shown))
        nobody = identity(Authority(Path(self.mktemp())), mutual=False)
        copier = await self.copier(OutgoingTls(identity=nobody))
        await self.copied(copier)
        copier.transport.loseConnection()
        await copier.closed

    async def test_wrong_master(self) -> None:
        """A slave does not take the log of a master whose certificate is of another root."""
        await self.serve(
            TlsGate(TlsMode.ENFORCING, identity(Authority(Path(self.mktemp())), "master"))
        )
        copier = await self.copier(
            OutgoingTls(identity=identity(Authority(Path(self.mktemp())), "slave"))
        )
        await copier.closed
        self.assertEqual(copier.copied, 0)
        await self.left(1)
        self.assertEqual(self.factory.closed, {"tls-certificate": 1})


class FirstByteTests(SynchronousTestCase):
    """Without sockets: what the first byte decides."""

    def begin(self, gate: TlsGate, data: bytes) -> MasterFactory:
        """A peer connects and says something."""
        self.clock = Clock()
        factory = master(MemoryLog(file_size=10_000), self.clock, gate=gate)
        factory.start()
        self.addCleanup(factory.stop)
        self.protocol: Any = factory.buildProtocol(IPv4Address("TCP", LOCAL, 5))
        self.protocol.makeConnection(StringTransport())
        self.protocol.dataReceived(data)
        return factory

    def test_modes(self) -> None:
        """A port that has no certificate closes on a TLS hello; it is no report of exabytes."""
        context: Any = object()
        for gate, data, closed in (
            (TlsGate(TlsMode.DISABLED, context), HELLO, {"tls-disabled": 1}),
            (TlsGate(TlsMode.PERMISSIVE), HELLO, {"tls-disabled": 1}),
            (TlsGate(TlsMode.ENFORCING, context), encode_report(0), {"clear-text": 1}),
            (TlsGate(TlsMode.PERMISSIVE, context), encode_report(0), {}),
            (TlsGate(TlsMode.DISABLED), encode_report(0), {}),
        ):
            self.assertEqual(self.begin(gate, data).closed, closed)

    def test_endless_handshake(self) -> None:
        """A peer that begins a handshake and says nothing more is closed in ten seconds."""
        shown = identity(Authority(Path(self.mktemp())), "master")
        clock = Clock()
        factory = master(MemoryLog(file_size=10_000), clock, gate=TlsGate(TlsMode.ENFORCING, shown))
        factory.start()
        self.addCleanup(factory.stop)
        protocol: Any = factory.buildProtocol(IPv4Address("TCP", LOCAL, 5))
        transport: Any = StringTransport()
        transport.startTLS = lambda context: None
        transport.protocol = StringTransport()
        transport.protocol.dataReceived = lambda data: None
        protocol.makeConnection(transport)
        protocol.dataReceived(HELLO)
        clock.pump([1.0] * int(HANDSHAKE_TIMEOUT + 1))
        self.assertEqual(factory.closed, {"tls-handshake": 1})
