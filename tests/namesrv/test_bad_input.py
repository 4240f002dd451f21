"""Every request a name server answers, with what should not be in it."""

from __future__ import annotations

import zlib
from struct import pack
from typing import Any

from rmqha.net.remoting import connections
from rmqha.wire.remoting.bodies import register
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import encode
from tests.namesrv.test_requests import TOPICS, NamesrvCase, Peer
from tests.support.bad_input import BODIES, Complaints, assert_told, bad_fields, good_fields, shown
from tests.support.request_headers import REQUESTS

GOOD: dict[str, Any] = {
    "topic": "t",
    "namespace": "n",
    "key": "k",
    "value": "v",
    "cluster": "c",
    "cluster_name": "c",
    "broker_name": "broker-b",
    "broker_addr": "10.0.0.2:10911",
    "broker_id": 0,
    "ha_server_addr": "10.0.0.2:10912",
    "compressed": False,
    "enable_acting_master": False,
    "body_crc32": 0,
    "heartbeat_timeout_millis": None,
}
"""What an attribute of a header should be."""

CHANGES = frozenset(
    {
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.UNREGISTER_BROKER,
    }
)
"""What may change the routes of the broker that is there, if it is well asked."""


class BadInputTests(NamesrvCase):
    """Whatever is asked has one answer, and what is refused leaves no trace."""

    def setUp(self) -> None:
        # All of it comes in no time, so who sends it would have to wait for ever.
        self.patch(connections, "LOOSE_RATE", 0)
        super().setUp()
        self.complaints = Complaints.of(self)
        self.broker = self.peer("10.0.0.9")
        self.assertEqual(self.register(self.broker, 0).code, 0)

    def ask(self, peer: Peer, code: int, ext: dict[str, str], body: bytes) -> Command:
        """Ask; if it is refused nothing has changed."""
        before = self.state()
        command = Command(code=code, opaque=9, version=407, ext=ext, body=body)
        (answer,) = peer.send(encode(command))
        self.assertEqual(answer.opaque, 9)
        if answer.code:
            self.assertEqual(self.state(), before, command)
        return answer

    def state(self) -> object:
        """What no refused request may change."""
        return (
            self.server.table.cluster_info(),
            self.server.table.topics(),
            self.server.table.route("t"),
            self.server.kv.table("n"),
            len(self.saved),
        )

    def assert_unharmed(self) -> None:
        """A client finds what the good broker has."""
        answer = self.peer().ask(Code.GET_ROUTEINFO_BY_TOPIC, topic="t")
        self.assertEqual(answer.code, 0)
        self.assertIn(b"10.0.0.0:10911", bytes(answer.body))
        self.assertEqual(self.complaints.events, [])

    def test_each_request(self) -> None:
        """All codes, all fields, all bodies."""
        for code in sorted(self.server.factory.connections.registry.codes()):
            header = REQUESTS[code].request
            good = good_fields(header, GOOD)
            peer = self.peer()
            for name, text, ext, refused in bad_fields(header, good):
                said = shown(code, name, text)
                answer = self.ask(peer, code, ext, TOPICS)
                assert_told(self, answer, said, field=name if refused else None)
                self.assertEqual(self.complaints.events, [], said)
            for body in BODIES:
                said = shown(code, "body", body)
                assert_told(self, self.ask(peer, code, good, body), said)
                self.assertEqual(self.complaints.events, [], said)
            self.assertTrue(peer.protocol.opened)
            if code in CHANGES:
                # What was changed stays so until the broker brings other topics, or is new.
                self.server.table.unregister("broker-a", 0, "10.0.0.0:10911")
                self.assertEqual(self.register(self.broker, 0).code, 0)
            self.assert_unharmed()
        for table in self.saved:
            for texts in table.values():
                assert isinstance(texts, dict)

    def test_bad_registrations(self) -> None:
        """A registration whose body lies about itself leaves nothing behind."""
        peer = self.peer()
        packed = zlib.compress(TOPICS)
        bomb = zlib.compress(b"\0" * (1 << 26))
        lengths = zlib.compress(pack(">i", 0x7FFFFFFF) + b"{}")
        negative = zlib.compress(pack(">i", -1) + b"{}")
        for body in (TOPICS, packed[:-5], packed, bomb, lengths, negative, b"\x78\x9c"):
            answer = self.register(
                peer, 2, body, compressed="true", bodyCrc32=register.checksum(body), brokerName="b"
            )
            self.assertEqual(answer.code, 1)
            assert_told(self, answer, repr(body[:20]))
        self.assertEqual(self.register(peer, 2, bodyCrc32=5).remark, "crc32 not match")
        self.assertEqual(len(self.server.table.cluster_info().broker_addr_table), 1)
        self.assert_unharmed()

    def test_broken_frames(self) -> None:
        """Whose frames cannot be read is let go with a reason; half a frame waits for the limit."""
        deep = b'{"code":105,"extFields":{"topic":' + b"[" * 400 + b"]" * 400 + b"}}"
        for raw, reason in (
            (b"GET / HTTP/1.1\r\n\r\n", "FrameLengthOutOfRange"),
            (pack(">iI", 20, 200), "HeaderLengthOutOfRange"),
            (pack(">iI", len(deep) + 4, len(deep)) + deep, "HeaderUndecodable"),
        ):
            peer = self.peer()
            self.assertEqual(peer.send(raw), [])
            self.assertFalse(peer.protocol.opened)
            self.assertEqual(self.server.factory.connections.closed[reason], 1)
        silent = self.peer()
        silent.send(encode(Command(code=Code.GET_ROUTEINFO_BY_TOPIC, ext={"topic": "t"}))[:-1])
        for _ in range(62):
            self.clock.advance(2)
            self.register(self.broker, 0)
        self.assertFalse(silent.protocol.opened)
        self.assert_unharmed()

    def test_replies_nobody_asked_for(self) -> None:
        """Answers to nothing are counted, and one-way requests are answered by nobody."""
        peer = self.peer()
        codes = self.server.factory.connections.registry.codes()
        for code in sorted(codes):
            self.assertEqual(peer.send(encode(Command(code=code, flag=1))), [])
            self.assertEqual(peer.send(encode(Command(code=code, flag=2, body=b"{"))), [])
        self.assertEqual(self.server.factory.connections.unasked, len(codes))
        self.assert_unharmed()
