"""Requests of consumers whose fields are not what they should be."""

from __future__ import annotations

import re

from attrs import NOTHING, fields

from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import wire_name
from tests.broker.consumer_side import GROUP, TOPIC, ConsumingTestCase, heartbeat, wants
from tests.support.request_headers import REQUESTS

GOOD = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "subscription": "*",
    "expressionType": "TAG",
    "clientID": "c1",
    "key": "k",
    "sysFlag": "4",
    "boundaryType": "lower",
}
BAD = (
    "",
    "abc",
    "-1",
    "1.5",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "x" * 300,
    "a@b",
    "../../etc",
    "\0\1\2",
    "ÿ中\U0001f600",
)
CLASS_NAME = re.compile(r"[A-Za-z]+(Error|Exception|Fault): ")


class BadFieldTests(ConsumingTestCase):
    """Whatever stands in a field, there is one answer, and it is not that we failed."""

    def setUp(self) -> None:
        self.broker = self.consuming()
        for _ in range(3):
            self.broker.put(KEYS="k")
        self.broker.dispatch()
        self.peer = self.broker.peer()
        self.peer.send(heartbeat("c1", wants()))
        self.peer.sent()

    def assert_answered(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        """One answer comes, in words of ours."""
        self.peer.send(Command(code=code, ext=ext, body=body))
        self.broker.flush()
        answers = [sent for sent in self.peer.sent() if sent.is_response]
        self.assertEqual(len(answers), 1, (code, ext))
        self.assertIsNone(CLASS_NAME.match(answers[0].remark or ""), (code, ext, answers[0]))
        self.assertTrue(self.peer.connection.opened)

    def test_each_field(self) -> None:
        """One field after the other is wrong, or missing."""
        for code in sorted(self.broker.registry.codes()):
            header = REQUESTS[code].request
            if header is None:
                continue
            names = [wire_name(attribute) for attribute in fields(header)]
            good = {name: GOOD.get(name, "0") for name in names}
            self.assert_answered(code, good)
            for attribute in fields(header):
                name = wire_name(attribute)
                for text in BAD:
                    self.assert_answered(code, good | {name: text})
                left = {other: text for other, text in good.items() if other != name}
                if attribute.default is NOTHING:
                    self.peer.send(Command(code=code, ext=left))
                    (answer,) = self.peer.sent()
                    self.assertEqual(answer.remark, f"the custom field <{name}> is null")

    def test_bodies(self) -> None:
        """Bodies that are no JSON, or of another shape."""
        for code in (Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
            for body in (b"", b"{", b"[]", b"1", b'{"clientID":[]}', b"\xff\xfe", b"{" * 5000):
                self.assert_answered(code, {}, body)
        self.assert_answered(Code.CHECK_CLIENT_CONFIG, {}, b'{"subscriptionData":7}')
