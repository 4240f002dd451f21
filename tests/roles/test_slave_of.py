"""What C{--slave-of} finds out of a master's ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from lab.harness.ports import free_port
from rmqha.errors import BadValue
from rmqha.net.remoting import ha_port
from rmqha.net.remoting.ha_port import keeps_slaves
from rmqha.roles.tap import MasterPortUnknown, keys_of_master
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode


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
