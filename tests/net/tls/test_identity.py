"""Certificates in files: read, replaced, broken, and about to end."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import ssl
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import Logger, formatEvent
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from lab.harness.certificates import Authority, certificate
from rmqha.config.settings import RemotingSettings, TlsMode, TlsSettings
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.net.tls.gate import MOST_HOSTS, ClearText
from rmqha.net.tls.identity import DAY, LOOK_EVERY
from rmqha.net.tls.material import TlsFiles, TlsMaterial
from rmqha.net.tls.node_tls import NodeTls


def at_once(function: Callable[..., Any], *args: Any) -> Deferred[Any]:
    """A thread that takes no time."""
    return maybeDeferred(function, *args)


class IdentityTests(SynchronousTestCase):
    """A node with a certificate for its client ports."""

    def setUp(self) -> None:
        self.authority = Authority(Path(self.mktemp()))
        self.key, self.cert = self.authority.certificate("node", days=90)
        self.clock = Clock()
        settings = RemotingSettings(tls_key=self.key, tls_cert=self.cert)
        self.tls = NodeTls(settings, TlsSettings(), self.clock, at_once)
        self.identities = self.tls.identities
        self.identities.load()
        self.identities.start()
        self.addCleanup(self.identities.stop)

    def row(self) -> dict[str, Any]:
        (row,) = self.identities.status()
        return row

    def health(self) -> str:
        return "; ".join(str(reason) for reason in self.identities.health())

    def test_reload(self) -> None:
        """A certificate that was replaced is in force a moment later."""
        before = self.row()["secondsLeft"]
        self.authority.certificate("node", days=180)
        self.clock.advance(LOOK_EVERY)
        self.assertGreater(self.row()["secondsLeft"], before + 80 * DAY)
        self.assertEqual((self.row()["reloads"], self.row()["reloadFailures"]), (1, 0))
        self.assertEqual(self.health(), "")

    def test_nothing_changed(self) -> None:
        """Files that are as they were are not read again."""
        self.clock.pump([LOOK_EVERY] * 3)
        self.assertEqual(self.row()["reloads"], 0)

    def test_bad_file(self) -> None:
        """A file that cannot be used changes nothing, is told once, and forgotten when mended."""
        before, good = self.row()["secondsLeft"], self.cert.read_bytes()
        self.cert.write_bytes(b"garbage")
        self.clock.pump([LOOK_EVERY] * 3)
        self.assertTrue(before - 60 < self.row()["secondsLeft"] <= before)
        self.assertEqual(self.row()["reloadFailures"], 1)
        self.assertEqual(
            self.health(),
            f"tls-files-clients: {self.cert}: there is no certificate in it; those read before are "
            "in force",
        )
        self.cert.write_bytes(good)
        self.clock.advance(LOOK_EVERY)
        self.assertEqual((self.health(), self.row()["reloads"]), ("", 1))

    def test_pipe(self) -> None:
        """A pipe in a file's place that nobody writes to is a fault: it is not waited for."""
        self.cert.unlink()
        os.mkfifo(self.cert)
        self.clock.advance(LOOK_EVERY)
        self.assertIn(f"{self.cert}: this is no regular file", self.health())

    def test_hangs(self) -> None:
        """A read that does not come back, of a file system that is gone, is told within ten seconds
        of the change, and until it does.
        """
        held: Deferred[Any] = Deferred()
        self.identities.in_thread = lambda function: held
        self.clock.pump([1.0] * 9)
        self.assertEqual(self.health(), "")
        self.clock.advance(1.0)
        self.assertIn(f"{self.cert}: these have not been read for 8 s; those read", self.health())
        held.callback(None)
        self.assertEqual(self.health(), "")

    def test_half_replaced(self) -> None:
        """A new key beside the old certificate is a fault until the certificate follows."""
        key, cert = Authority(Path(self.mktemp())).certificate("node", days=90)
        shutil.copy(key, self.key)
        self.clock.advance(LOOK_EVERY)
        self.assertIn("the key does not belong to", self.health())
        shutil.copy(cert, self.cert)
        self.clock.advance(LOOK_EVERY)
        self.assertEqual(self.health(), "")

    def test_gone(self) -> None:
        """A file that is deleted changes nothing either."""
        self.cert.unlink()
        self.clock.advance(LOOK_EVERY)
        self.assertIn("No such file", self.health())

    def test_expiry(self) -> None:
        """A node whose certificate ends soon is not well, and says when it ends."""
        self.authority.certificate("node", days=3)
        self.clock.advance(LOOK_EVERY)
        self.assertRegex(
            self.health(), r"tls-expiry-clients: .*node.crt, ends on .* UTC, in [23]\.\d days"
        )
        self.authority.certificate("node", days=-1)
        self.clock.advance(LOOK_EVERY)
        self.assertIn("is not valid any more", self.health())

    def test_never(self) -> None:
        """That can be switched off."""
        self.authority.certificate("node", days=-1)
        self.identities.near = 0.0
        self.clock.advance(LOOK_EVERY)
        self.assertEqual(self.health(), "")


class FilesTests(SynchronousTestCase):
    """What is refused at the start, and by which words."""

    def refusal(self, **files: Path) -> str:
        """Why files cannot be used."""
        return str(self.assertRaises(TlsFilesInvalid, TlsMaterial.read, TlsFiles(**files)))

    def test_refusals(self) -> None:
        """The file is named, and never quoted."""
        key, cert = certificate(Path(self.mktemp()))
        nowhere = Path("nowhere.pem")
        self.assertEqual(self.refusal(trusted=nowhere), "nowhere.pem: No such file or directory")
        wrong = f"{cert}: this is not a private key in PEM without a password"
        self.assertEqual(self.refusal(key=cert, certificates=cert), wrong)
        self.assertIn("no certificate in it", self.refusal(key=key, certificates=key))
        broken = Path(self.mktemp())
        broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        self.assertIn("cannot be read", self.refusal(trusted=broken))


class NodeTlsTests(SynchronousTestCase):
    """Which connections speak TLS, by the settings."""

    def node(self, remoting: RemotingSettings | None = None, **keys: Any) -> NodeTls:
        remoting = remoting or RemotingSettings()
        return NodeTls(remoting, TlsSettings(**keys), Clock(), at_once)

    def roles(self, **keys: Any) -> list[str]:
        return [each.role for each in self.node(**keys).identities.all]

    def test_by_default(self) -> None:
        """A node without keys of TLS speaks none."""
        node = self.node()
        self.assertIsNone(node.requests.identity)
        self.assertIsNone(node.dialling.identity)
        self.assertIsNotNone(node.client_ports().refusal(True, "h"))
        self.assertIsNotNone(node.ha_port().refusal(True, "h"))
        self.assertEqual((self.roles(), node.identities.looking.running), ([], False))

    def test_replication(self) -> None:
        """A certificate for replication alone opens the HA port for TLS, and dials clear."""
        files = {"ha_key": Path("k"), "ha_cert": Path("c")}
        node = self.node(**files)
        self.assertIsNone(node.ha_port().refusal(True, "h"))
        self.assertIsNone(node.ha_port().refusal(False, "h"))
        self.assertIsNone(node.dialling.identity)
        strict = self.node(**files, ha_mode=TlsMode.ENFORCING, ha_enabled=True)
        refusal = strict.ha_port().refusal(False, "h")
        assert refusal is not None
        self.assertEqual(str(refusal), "it speaks clear text, and haTlsMode is enforcing")
        self.assertIsNotNone(strict.dialling.identity)
        self.assertEqual(self.roles(**files), ["replication"])

    def test_clear_text(self) -> None:
        """O4: who speaks clear text to a port that takes TLS too is counted by address, and told
        once a minute; where nothing else can be spoken nobody is.
        """
        self.assertEqual([], self.node().clear_text)
        clock, lines = Clock(), list[str]()
        observer = lambda event: lines.append(formatEvent(event))  # noqa: E731
        self.patch(ClearText, "_log", Logger(observer=observer))
        node = NodeTls(
            RemotingSettings(tls_key=Path("k"), tls_cert=Path("c")),
            TlsSettings(ha_key=Path("k"), ha_cert=Path("c")),
            clock,
            at_once,
        )
        for _ in range(3):
            self.assertIsNone(node.client_ports().refusal(False, "10.0.0.1"))
            clock.advance(10)
        self.assertIsNone(node.client_ports().refusal(True, "10.0.0.2"))
        self.assertIsNone(node.ha_port().refusal(False, "10.0.0.3"))
        clients, ha = [each.status() for each in node.clear_text]
        peer = {"host": "10.0.0.1", "connections": 3, "secondsSince": 10.0}
        self.assertEqual({"port": "clients", "connections": 3, "peers": [peer]}, clients)
        self.assertEqual(("ha", 1), (ha["port"], ha["connections"]))
        self.assertEqual(2, len(lines))
        self.assertIn("tlsMode=permissive takes TLS too: 10.0.0.1 (1)", lines[0])
        clock.advance(60)
        node.client_ports().refusal(False, "10.0.0.9")
        self.assertIn("10.0.0.1 (2), 10.0.0.9 (1)", lines[2])

    def test_many_clear_text(self) -> None:
        """However many addresses come, what is kept of them stays small."""
        port = ClearText("ha", Clock())
        for number in range(MOST_HOSTS + 50):
            port.on_connection(f"10.0.{number // 256}.{number % 256}", "haTlsMode")
        status = port.status()
        self.assertEqual(MOST_HOSTS + 50, status["connections"])
        self.assertEqual(MOST_HOSTS + 1, len(status["peers"]))
        self.assertEqual(("others", 50), (status["peers"][0]["host"], port.connections["others"]))

    def test_disabled(self) -> None:
        """Files that nothing uses are not read."""
        files = {"ha_key": Path("k"), "ha_cert": Path("c")}
        self.assertEqual(self.roles(**files, ha_mode=TlsMode.DISABLED), [])
        self.assertEqual(self.roles(client_key=Path("k"), client_cert=Path("c")), [])


class MemoryTests(SynchronousTestCase):
    """What a connection leaves behind whose peer just goes."""

    def setUp(self) -> None:
        key, cert = Authority(Path(self.mktemp())).certificate("node")
        settings = RemotingSettings(tls_key=key, tls_cert=cert)
        tls = NodeTls(settings, TlsSettings(), Clock(), at_once)
        tls.identities.load()
        factory = TLSMemoryBIOFactory(
            tls.client_ports().context, False, Factory.forProtocol(Protocol), Clock()
        )
        self.port: Any = factory.buildProtocol(None)
        self.port.makeConnection(StringTransport())
        # What is only in a cycle stays.
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def hello(self, answers: int) -> None:
        """Have a client begin a handshake, which reads so often what the port says."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        said, says = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(said, says)
        for turn in range(answers + 1):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            self.port.dataReceived(says.read())
            if turn < answers:
                said.write(self.port.transport.value())
                self.port.transport.clear()

    def left(self) -> Any:
        """What is there of OpenSSL's part once the connection is lost."""
        known = weakref.ref(self.port.getHandle())
        self.port.connectionLost(Failure(ConnectionLost()))
        return known()

    def test_half(self) -> None:
        """Of half a handshake OpenSSL's part is gone at once, without a collection."""
        self.hello(0)
        self.assertIsNone(self.left())

    def test_whole(self) -> None:
        """Of a whole one as well, where the peer says no farewell."""
        self.hello(1)
        self.assertIsNotNone(self.port.getHandle().get_peer_finished())
        self.assertIsNone(self.left())
