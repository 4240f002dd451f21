"""Real sockets: views of mapped memory, TLS on the same port, and ports in use."""

from __future__ import annotations

import os
import shutil
import socket
import struct
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import CannotListenError, ConnectionLost
from twisted.trial.unittest import TestCase

from lab.harness.certificates import Authority, certificate
from rmqha.config.settings import ClientAuth, TlsMode
from rmqha.errors import RemotingUnreachable
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits
from rmqha.net.remoting.handlers import Registry
from rmqha.net.remoting.server import RemotingFactory, listen_twice
from rmqha.net.tls.gate import TlsGate
from rmqha.net.tls.identity import TlsIdentity
from rmqha.net.tls.material import TlsFiles
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls
from rmqha.net.zero_copy_send import listen, regions
from rmqha.wire.remoting.answers import Answer, Scattered
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.frame import encode
from tests.support.effort import slow

reactor: Any = _reactor
LOCAL = "127.0.0.1"
BODY = os.urandom(1 << 20)
WHERE = 500


def views(connection: RemotingProtocol, command: Command) -> Answer:
    """Answer with a megabyte in two pieces, and say how it goes out."""
    view = memoryview(BODY)
    how = "views" if regions(connection.transport) is not None else "bytes"
    return Scattered(command.answer(remark=how), [view[:WHERE], view[WHERE:]])


def identity(asked: ClientAuth = ClientAuth.NONE, **files: Path) -> TlsIdentity:
    """What somebody shows, and believes."""
    found = TlsIdentity("test", "of a test", TlsFiles(**files), asked)
    found.load()
    return found


def believing(root: Path, **files: Path) -> OutgoingTls:
    """A client that believes the certificates of one root."""
    return OutgoingTls(identity=identity(trusted=root, **files))


class LoopbackTests(TestCase):
    def setUp(self) -> None:
        self.registry = Registry()
        self.registry.register(11, views)

    def serve(self, gate: TlsGate | None = None, limits: ConnectionLimits | None = None) -> str:
        self.factory = RemotingFactory(self.registry, reactor, gate=gate, limits=limits)
        port = listen(reactor, self.factory, 0, LOCAL)
        self.addCleanup(port.stopListening)
        self.addCleanup(self.factory.connections.stop)
        return f"{LOCAL}:{port.getHost().port}"

    def client(self, tls: OutgoingTls = IN_CLEAR_TEXT) -> RemotingClient:
        client = RemotingClient(reactor, tls=tls)
        self.addCleanup(client.close)
        return client

    def ask(self, client: RemotingClient, address: str) -> Deferred[list[Command]]:
        """Ask eight times at once, in both kinds of header."""
        kinds = list(SerializeType) * 4
        return gatherResults(
            [client.request(address, Command(code=11, serialize=kind), 20.0) for kind in kinds],
            consumeErrors=True,
        )

    async def test_views(self) -> None:
        """In clear text bodies leave as views, and arrive whole and in order."""
        for answer in await self.ask(self.client(), self.serve()):
            self.assertEqual((answer.remark, answer.body == BODY), ("views", True))

    async def test_permissive(self) -> None:
        """One port takes clear text and TLS, and never sends the one as the other."""
        key, path = certificate(Path(self.mktemp()))
        address = self.serve(TlsGate(TlsMode.PERMISSIVE, identity(key=key, certificates=path)))
        for tls, how in ((IN_CLEAR_TEXT, "views"), (believing(path), "bytes")):
            for answer in await self.ask(self.client(tls), address):
                self.assertEqual((answer.remark, answer.body == BODY), (how, True))

    async def test_enforcing(self) -> None:
        """A port that wants TLS closes a connection in clear text."""
        key, path = certificate(Path(self.mktemp()))
        address = self.serve(TlsGate(TlsMode.ENFORCING, identity(key=key, certificates=path)))
        with self.assertRaises(ConnectionLost):
            await self.client().request(address, Command(code=11))
        self.assertEqual(self.factory.connections.closed, {"clear-text": 1})
        await self.client(believing(path)).request(address, Command(code=11))

    async def test_disabled(self) -> None:
        """A port without TLS closes a connection that begins it."""
        address = self.serve()
        with self.assertRaises((ConnectionLost, RemotingUnreachable)):
            await self.client(OutgoingTls(identity=identity())).request(address, Command(code=11))
        self.assertEqual(self.factory.connections.closed, {"tls-disabled": 1})

    async def test_client_certificate(self) -> None:
        """A port that asks for certificates takes nobody without one."""
        key, path = certificate(Path(self.mktemp()))
        files = {"key": key, "certificates": path, "trusted": path}
        context = identity(ClientAuth.REQUIRE, **files)
        address = self.serve(TlsGate(TlsMode.PERMISSIVE, context))
        with self.assertRaises((ConnectionLost, RemotingUnreachable)):
            await self.client(believing(path)).request(address, Command(code=11))
        self.assertEqual(self.factory.connections.closed, {"tls-no-certificate": 1})

    async def refused(self, address: str, tls: OutgoingTls) -> str:
        """Why a client of ours does not get through; the caller checks the port's counts."""
        client = self.client(tls)
        with self.assertRaises((ConnectionLost, RemotingUnreachable)) as caught:
            await client.request(address, Command(code=11))
        return str(caught.exception)

    async def test_wrong_certificate(self) -> None:
        """A certificate of another root is refused, by client and server, and each says so."""
        ours, others = Authority(Path(self.mktemp())), Authority(Path(self.mktemp()), "others")
        key, path = ours.certificate("broker")
        theirs, certificates = others.certificate("client")
        context = identity(ClientAuth.REQUIRE, key=key, certificates=path, trusted=ours.root)
        address = self.serve(TlsGate(TlsMode.PERMISSIVE, context))
        text = await self.refused(address, believing(others.root))
        self.assertIn("its certificate is not accepted: self signed cert in chain", text)
        stranger = believing(ours.root, key=theirs, certificates=certificates)
        text = await self.refused(address, stranger)
        self.assertIn("it does not accept our certificate", text)
        self.assertEqual(self.factory.connections.closed, {"tls-certificate": 2})
        own = believing(ours.root, key=key, certificates=path)
        await self.client(own).request(address, Command(code=11))

    async def test_expired(self) -> None:
        """Of a certificate that has ended a client says just that."""
        authority = Authority(Path(self.mktemp()))
        key, path = authority.certificate("broker", days=-1)
        address = self.serve(TlsGate(TlsMode.PERMISSIVE, identity(key=key, certificates=path)))
        text = await self.refused(address, believing(authority.root))
        self.assertIn("cert has expired (of CN=broker)", text)
        everything = OutgoingTls(identity=identity(trusted=authority.root), believe_all=True)
        await self.client(everything).request(address, Command(code=11))

    async def test_names(self) -> None:
        """A client that looks at names believes only a certificate of its address."""
        authority = Authority(Path(self.mktemp()))
        key, path = authority.certificate("broker", address="127.0.0.2")
        address = self.serve(TlsGate(TlsMode.PERMISSIVE, identity(key=key, certificates=path)))
        await self.client(believing(authority.root)).request(address, Command(code=11))
        strict = OutgoingTls(identity=identity(trusted=authority.root), names=True)
        self.assertIn("of another host", await self.refused(address, strict))
        key, path = authority.certificate("broker")
        address = self.serve(TlsGate(TlsMode.PERMISSIVE, identity(key=key, certificates=path)))
        await self.client(strict).request(address, Command(code=11))

    async def test_replaced(self) -> None:
        """A replaced certificate is shown to the next connection; the old one goes on."""
        first, second = Authority(Path(self.mktemp())), Authority(Path(self.mktemp()))
        key, path = first.certificate("broker")
        shown = identity(key=key, certificates=path)
        address = self.serve(TlsGate(TlsMode.PERMISSIVE, shown))
        old = self.client(believing(first.root))
        await old.request(address, Command(code=11))
        for new, here in zip(second.certificate("broker"), (key, path), strict=True):
            shutil.copy(new, here)
        shown.take(shown.changed())
        await self.client(believing(second.root)).request(address, Command(code=11))
        await old.request(address, Command(code=11))
        self.assertNotIn("tls-certificate", self.factory.connections.closed)

    @slow
    async def test_not_reading(self) -> None:
        """A client that asks for 200 MiB and reads nothing is dropped; one that reads is served."""
        address = self.serve(limits=ConnectionLimits(unread=100 << 20))
        host, _, port = address.partition(":")
        lost: Deferred[RemotingProtocol] = Deferred()
        self.factory.connections.lost.append(lost.callback)
        served = self.ask(self.client(), address)
        with socket.create_connection((host, int(port))) as bad:
            bad.sendall(encode(Command(code=11)) * 200)
            await served
            await lost
        self.factory.connections.lost.clear()
        self.assertEqual(self.factory.connections.closed, {"not-reading": 1})
        await self.ask(self.client(), address)

    async def test_released(self) -> None:
        """When what answers show is to change, who has not read is disconnected, alone."""
        address = self.serve()
        host, _, port = address.partition(":")
        reads = self.client()
        await self.ask(reads, address)
        lost: Deferred[RemotingProtocol] = Deferred()
        self.factory.connections.lost.append(lost.callback)
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(encode(Command(code=11)) * 50)
            await self.ask(reads, address)
            self.factory.connections.release()
            await lost
        self.factory.connections.lost.clear()
        self.assertEqual(self.factory.connections.closed, {"released": 1})
        await self.ask(reads, address)

    async def test_reset(self) -> None:
        """A client that resets its connection while it is answered harms nobody else."""
        address = self.serve()
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port))) as bad:
            bad.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.ask(self.client(), address)


class ListeningTests(TestCase):
    def test_two_ports(self) -> None:
        """Both are open, two numbers apart; if one is taken the other is let go."""
        factory = RemotingFactory(Registry(), reactor)
        for _ in range(20):
            probe = listen(reactor, factory, 0, LOCAL)
            number = probe.getHost().port
            self.addCleanup(probe.stopListening)
            try:
                # The VIP port of this number is the probe's.
                with self.assertRaises(CannotListenError):
                    listen_twice(reactor, factory, factory, number + 2, LOCAL)
                ports = listen_twice(reactor, factory, factory, number - 1, LOCAL)
            except CannotListenError:
                continue
            for port in ports:
                self.addCleanup(port.stopListening)
            self.assertEqual([port.getHost().port for port in ports], [number - 1, number - 3])
            return
        self.fail("no free ports")
