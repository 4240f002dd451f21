"""Garbage and hostile peers on the HA port of a member that leads."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Any

from lab.harness.nodes import Node, until
from lab.stock.brokers import BOOT
from rmqha.wire.ha_frame import encode_report as classic_report
from rmqha.wire.ha_v2 import SlaveHandshake, encode_handshake, encode_report
from tests.interop.scenario_cases import ScenarioTestCase

NOBODY = 99
"""An id that the controllers do not know."""

GARBAGE = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "a request": bytes.fromhex("000000650000005f") + b'{"code":105,"language":"JAVA"}',
    "a classic slave": classic_report(0),
    "ones": b"\xff" * 64,
}


class PeerTests(ScenarioTestCase):
    """Two members of ours, and somebody else."""

    roles = "two members of ours"

    def closed(self, node: Node) -> dict[str, int]:
        """Which connections a node has closed, by the reason."""
        found: dict[str, int] = node.status()["closedConnections"]
        return found

    def say(self, master: Node, words: Sequence[bytes], reason: str) -> bytes:
        """Connect and say something, word by word, until it is closed; what was answered."""
        before = self.closed(master).get(reason, 0)
        heard = b""
        with socket.create_connection(master.address, timeout=BOOT) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for number, word in enumerate(words):
                    if number and len(word) > 1:
                        # It is an answer to what was answered.
                        heard += peer.recv(1 << 16)
                    peer.sendall(word)
                while piece := peer.recv(1 << 16):
                    heard += piece
            except ConnectionError:
                pass
        until(
            lambda: self.closed(master).get(reason, 0) > before,
            f"closed: {reason}",
            tell=lambda: f"{self.closed(master)}\n{master.tail()}",
        )
        return heard

    def test_hostile(self) -> None:
        """Each is closed for a reason that is counted; the SyncStateSet and the member that is in
        it do not notice, and no write counts what was said.
        """
        nodes = self.set_of(2)
        master = self.led(nodes)
        (other,) = (node for node in nodes if node is not master)
        group = self.group(self.decider)
        with self.scenario("garbage and hostile peers on the HA port under load"):
            load = self.load()
            before = self.decided(group)
            reconnects = other.status()["upstream"]["reconnects"]
            for name, data in GARBAGE.items():
                reason = "tls-disabled" if name == "TLS" else "other-protocol"
                for words in ([data], [data[at : at + 1] for at in range(min(16, len(data)))]):
                    self.assertEqual(b"", self.say(master, words, reason))
            learner = encode_handshake(SlaveHandshake(id=-1, learner=True))
            nobody, own = (
                encode_handshake(SlaveHandshake(id=number))
                for number in (NOBODY, self.id_of(master))
            )
            end = master.status()["maxOffset"]
            far = encode_report(end + (1 << 40))
            for words, reason in (
                ([nobody], "unknown-member"),
                ([nobody[at : at + 1] for at in range(16)], "unknown-member"),
                ([own], "own-id"),
                ([encode_report(0)], "no-handshake"),
                ([learner + encode_report(0)], "early-report"),
                ([learner, far], "ahead"),
                ([learner, encode_report(-1)], "negative"),
                ([learner, encode_report(end), far], "above-max"),
                ([learner, encode_report(end), learner], "late-handshake"),
                ([learner, encode_report(end), GARBAGE["HTTP"]], "other-protocol"),
            ):
                self.say(master, words, reason)
            self.assertEqual(self.decided(group), before)
            self.assertEqual(other.status()["upstream"]["reconnects"], reconnects)
            self.until_again(load)
            self.enough(load)
        with self.scenario("with a hostile peer in place of the slave no write is acknowledged"):
            other.term()
            self.until_in_sync(master, 1)
            for words in ([own], [encode_report(end)], [learner, encode_report(0)]):
                with socket.create_connection(master.address, timeout=BOOT) as peer:
                    peer.sendall(words[0])
                    for word in words[1:]:
                        peer.recv(1 << 16)
                        peer.sendall(word)
                    self.assertEqual(
                        {"SLAVE_NOT_AVAILABLE": 5}, self.tool.put(5, self.topic).wait()
                    )
            other.start()
            self.until_in_sync(master, 2)
        with self.scenario("with a hostile peer that has a member's id no write is acknowledged"):
            member = encode_handshake(SlaveHandshake(id=self.id_of(other)))
            self.say(master, [member, encode_report(end)], "not-its-connection")
            self.until_in_sync(master, 2)
            other.freeze()
            end = master.status()["maxOffset"]
            for begin in (0, end):
                with socket.create_connection(master.address, timeout=BOOT) as peer:
                    peer.sendall(member)
                    peer.recv(1 << 16)
                    peer.sendall(encode_report(begin) + encode_report(end))
                    self.assertNotIn("SEND_OK", self.tool.put(3, self.topic).wait())
                    with contextlib.suppress(ConnectionError):  # it may be closed by now
                        peer.sendall(encode_report(master.status()["maxOffset"]))
                    self.assertNotIn("SEND_OK", self.tool.put(3, self.topic).wait())
            other.thaw()
            self.until_in_sync(master, 2)
        self.assert_settled(nodes)

    def decided(self, group: Any) -> Any:
        return self.successResultOf(group.current())
