"""POP with access control: frames of clients that sign, and of some that may not."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from rmqha.wire.remoting.bodies.pop import BatchAck, BatchAckBody
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write
from tests.broker.access.cases import AccessTestCase, Signing
from tests.broker.pop.support import bodies
from tests.broker.support import SEND_V2, sending

TOPIC, GROUP, OTHER = "Orders", "billing", "shipping"
"""What account C{consumer} may consume, and the groups it is in."""


class PoppingTests(AccessTestCase):
    """Who may be handed messages, and who may say of them that they are done with."""

    def setUp(self) -> None:
        super().setUp()
        self.begin()
        self.serving.timers.start()
        self.passes(0.02)
        for number in range(3):
            answer = self.by("operator").ask(SEND_V2, b"%d" % number, **sending(TOPIC))
            self.assertEqual(answer.code, 0, answer.remark)
        self.passes(0.02)
        self.good = self.by("consumer")

    def passes(self, seconds: float) -> None:
        self.clock.pump([0.001] * round(seconds * 1000))

    def pop(self, by: Signing, topic: str = TOPIC, group: str = GROUP, most: int = 1) -> Command:
        fields: dict[str, Any] = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": 0,
            "maxMsgNums": most,
            "invisibleTime": 10_000,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
        }
        return by.ask(Code.POP_MESSAGE, **{name: str(value) for name, value in fields.items()})

    def named(self, popped: Command, **more: str) -> dict[str, str]:
        """What names the first message of an answer."""
        told = popped.ext
        start, offset = (
            told[name].split(" ")[2].split(",")[0] for name in ("startOffsetInfo", "msgOffsetInfo")
        )
        handle = (
            f"{start} {told['popTime']} {told['invisibleTime']} {told['reviveQid']} 0 broker-a 0 "
            f"{offset}"
        )
        named = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
        return named | {"extraInfo": handle, "offset": offset} | more

    def batch(self, popped: Command, **more: str) -> bytes:
        """The body of a batch of acks that names it."""
        told = popped.ext
        fields: dict[str, Any] = {
            "group": GROUP,
            "topic": TOPIC,
            "start": int(told["startOffsetInfo"].split(" ")[2]),
            "queue_id": 0,
            "revive_queue": int(told["reviveQid"]),
            "pop_time": int(told["popTime"]),
            "invisible": int(told["invisibleTime"]),
            "bits": b64encode(b"\x01").decode(),
        }
        return write(BatchAckBody(acks=(BatchAck(**fields | more),), broker_name="broker-a"))

    def strangers(self) -> tuple[Signing, ...]:
        """Who does not sign, and an account that may do nothing."""
        return self.by(), self.by("nothing"), self.by("producer")

    def left(self) -> int:
        """How many messages are not done with."""
        return self.serving.revival.points.unacked.total()

    def test_handed_out(self) -> None:
        """A group's account is handed messages of a topic that it may consume, no other; refused
        is also to look, and to wait.
        """
        self.assertEqual(bodies(self.pop(self.good)), [b"0"])
        self.assert_denied(self.pop(self.good, topic="Secrets"))
        self.assert_denied(self.pop(self.good, group="closed"))
        named = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
        for by in self.strangers():
            self.assert_denied(self.pop(by))
            self.assert_denied(by.ask(Code.PEEK_MESSAGE, **named, maxMsgNums="1"))
            self.assert_denied(by.ask(Code.NOTIFICATION, **named, pollTime="0", bornTime="0"))
            self.assert_denied(by.ask(Code.POLLING_INFO, **named))
        self.passes(1)
        self.assertEqual(self.serving.offsets.get(GROUP, TOPIC, 0), 1)

    def test_done(self) -> None:
        """An ack counts, and a change, if the group's account sends it, and no other's."""
        first, second, third = (self.pop(self.good) for _ in range(3))
        for by in self.strangers():
            self.assert_denied(by.ask(Code.ACK_MESSAGE, **self.named(first)))
            change = self.named(first, invisibleTime="0")
            self.assert_denied(by.ask(Code.CHANGE_MESSAGE_INVISIBLETIME, **change))
            self.assert_denied(by.ask(Code.BATCH_ACK_MESSAGE, self.batch(first)))
        other = self.named(first, consumerGroup="closed")
        self.assert_denied(self.good.ask(Code.ACK_MESSAGE, **other))
        self.assert_denied(self.good.ask(Code.BATCH_ACK_MESSAGE, self.batch(first, group="closed")))
        self.assertEqual(self.left(), 3)
        self.assertEqual(self.good.ask(Code.ACK_MESSAGE, **self.named(first)).code, 0)
        self.assertEqual(self.good.ask(Code.BATCH_ACK_MESSAGE, self.batch(second)).code, 0)
        self.assertEqual(self.left(), 1)
        change = self.named(third, invisibleTime="20000")
        self.assertEqual(self.good.ask(Code.CHANGE_MESSAGE_INVISIBLETIME, **change).code, 0)

    def test_came_again(self) -> None:
        """What came again is a group's own: its account pops and acknowledges it by the topic, and
        that of another group may not.
        """
        self.assertEqual(len(bodies(self.pop(self.good, most=3))), 3)
        for _ in range(220):
            self.passes(0.05)
        again = self.pop(self.good)
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        named = self.named(again, topic=retry)
        named["extraInfo"] = named["extraInfo"].replace(" 0 broker-a", " 1 broker-a")
        self.assert_denied(self.good.ask(Code.ACK_MESSAGE, **named | {"consumerGroup": OTHER}))
        self.assert_denied(self.pop(self.good, topic=retry, group=OTHER))
        self.assertEqual(self.good.ask(Code.ACK_MESSAGE, **named).code, ResponseCode.SUCCESS)
        self.assertEqual(self.left(), 0)
