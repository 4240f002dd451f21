"""The pipeline's sockets with TLS."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from lab.harness.certificates import Authority
from rmqha.pipeline.producing.settings import SendOptions
from rmqha.pipeline.remoting.peers import BlockingConnection
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode

SOON = 5.0


class TlsTests(SynchronousTestCase):
    """A broker that takes TLS alone, and asks for certificates."""

    def setUp(self) -> None:
        self.authority = Authority(Path(self.mktemp()).absolute())
        key, path = self.authority.certificate("broker")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path, key)
        context.load_verify_locations(self.authority.root)
        context.verify_mode = ssl.CERT_REQUIRED
        listening = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listening.close)
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"

        def serve() -> None:
            try:
                accepted, _ = listening.accept()
                with context.wrap_socket(accepted, server_side=True) as peer:
                    (request,) = FrameDecoder().receive(peer.recv(1 << 16))
                    peer.sendall(encode(request.answer(body=request.body)))
            except OSError:
                pass

        self.thread = Thread(target=serve)
        self.thread.start()
        self.addCleanup(self.thread.join, SOON)

    def options(self, authority: Authority) -> SendOptions:
        """Those of a producer that believes one root."""
        key, path = self.authority.certificate("producer")
        file = Path(self.mktemp()).absolute()
        file.write_text(
            f"tls.client.keyPath={key}\ntls.client.certPath={path}\n"
            f"tls.client.trustCertPath={authority.root}\n"
        )
        return SendOptions.parse({"nameServer": self.address, "tlsConfigFile": str(file)})

    def test_asks(self) -> None:
        """A producer with a certificate asks and is answered."""
        tls = self.options(self.authority).tls
        with BlockingConnection(self.address, SOON, tls) as connection:
            answer = connection.ask(Command(code=1, body=b"hello"), SOON)
        self.assertEqual(answer.body, b"hello")

    def test_other_root(self) -> None:
        """It does not believe a broker of another root."""
        tls = self.options(Authority(Path(self.mktemp()).absolute(), "others")).tls
        error = self.assertRaises(OSError, BlockingConnection, self.address, SOON, tls)
        self.assertIn("certificate verify failed", str(error))

    def test_clear_text(self) -> None:
        """Without the file it speaks clear text, and is not let in."""
        self.assertIsNone(SendOptions.parse({"nameServer": self.address}).tls)
        with BlockingConnection(self.address, SOON) as connection:
            self.assertRaises(OSError, connection.ask, Command(code=1), SOON)
