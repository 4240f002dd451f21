"""What a broker passes from one client to another: replies, questions, resets."""

from __future__ import annotations

import json
from typing import Any

from rmqha.wire.log.properties import parse
from rmqha.wire.log.record import decode
from rmqha.wire.remoting.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.offsets import ConsumerStatus, ResetOffsets
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import LanguageCode, RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import read, write
from tests.broker.support import NOW, SEND_V2, BrokerTestCase, Client, properties, sending
from tests.support.frames import frames

REPLY = {
    "MSG_TYPE": "reply",
    "REPLY_TO_CLIENT": "asker",
    "CORRELATION_ID": "c1",
    "TTL": "3000",
    "UNIQ_KEY": "U9",
}


class BetweenTestCase(BrokerTestCase):
    def member(
        self,
        client_id: str,
        *topics: str,
        language: LanguageCode = LanguageCode.JAVA,
        version: int = 407,
    ) -> Client:
        """A client in group C{pg} or, with topics, in group C{cg}."""
        client = self.client()
        wishes = tuple(SubscriptionData(topic=topic, sub_string="*") for topic in topics)
        consumers = (ConsumerData(group_name="cg", subscription_data_set=wishes),)
        body = HeartbeatData(
            client_id=client_id,
            producer_data_set=() if topics else (ProducerData(group_name="pg"),),
            consumer_data_set=consumers if topics else (),
        )
        client.send(
            Command(
                code=RequestCode.HEART_BEAT, language=language, version=version, body=write(body)
            )
        )
        client.heard()
        return client

    def admin(self, code: int, **ext: str) -> Client:
        """Somebody asks; the answer may be long in coming."""
        client = self.client()
        client.send(Command(code=code, opaque=77, ext=ext))
        return client

    def answer(self, client: Client) -> Command:
        self.clock.advance(0)
        (answer,) = client.heard()
        self.assertEqual(answer.opaque, 77)
        return answer

    def pushed(self, client: Client) -> Command:
        """The one request that has come to a client."""
        self.clock.advance(0)
        (request,) = (one for one in client.heard() if not one.is_response and one.code != 40)
        return request

    def reply(self, client: Client, request: Command, code: int = 0, body: bytes = b"") -> None:
        """A client answers what it was asked."""
        client.send(request.answer(code, None, body=body))


class ReplyTests(BetweenTestCase):
    """Codes 324, 325 and 326."""

    def send_reply(self, **more: str) -> Client:
        ext = sending("C_REPLY_TOPIC", properties=properties(**(REPLY | more)))
        client = self.client()
        client.send(Command(code=325, opaque=77, ext=ext, body=b"the reply"))
        return client

    def test_through(self) -> None:
        """The reply comes to who asked, with the fields a stock broker sends, and is kept."""
        self.broker()
        asker = self.member("asker")
        replier = self.send_reply()
        push = self.pushed(asker)
        stock = next(
            frame for frame in frames("client-request-reply-4.9.7") if frame.request_code == 326
        )
        self.assertEqual(push.ext.keys(), stock.ext.keys())
        self.assertEqual((push.code, push.body), (326, b"the reply"))
        self.assertEqual(push.ext["bornHost"], "10.1.2.3:40000")
        self.assertEqual(push.ext["storeHost"], "10.0.0.9:10911")
        given = parse(push.ext["properties"].encode())
        self.assertEqual(given, REPLY | {"PUSH_REPLY_TIME": str(NOW)})
        self.assertEqual(replier.heard(), [])
        self.reply(asker, push)
        answer = self.answer(replier)
        self.assertEqual((answer.code, answer.remark), (0, None))
        self.assertEqual(answer.ext["queueOffset"], "0")
        record = self.record("C_REPLY_TOPIC")
        self.assertEqual((record.body, record.properties), (b"the reply", REPLY))
        self.assertEqual(answer.ext["msgId"], record.offset_msg_id)

    def test_not_taken(self) -> None:
        """A reply that cannot be brought is told so, and kept all the same."""
        self.broker()
        replier = self.send_reply()
        answer = self.answer(replier)
        remark = "push reply message fail, channel of <asker> not found."
        self.assertEqual((answer.code, answer.remark), (1, remark))
        self.assertEqual(answer.ext["queueOffset"], "0")
        asker = self.member("asker")
        replier = self.send_reply()
        self.reply(asker, self.pushed(asker), 1)
        answer = self.answer(replier)
        self.assertEqual((answer.code, answer.remark), (1, "push reply message to askerfail."))
        replier = self.send_reply()
        self.pushed(asker)
        self.clock.advance(10)
        self.assertEqual(self.answer(replier).code, 1)
        self.assertEqual(self.record("C_REPLY_TOPIC", 0, 2).body, b"the reply")

    def test_to_nobody(self) -> None:
        """A reply has to say whose it is."""
        self.broker(store_replies=False)
        replier = self.send_reply(REPLY_TO_CLIENT="")
        answer = self.answer(replier)
        self.assertEqual(answer.remark, "reply message properties[REPLY_TO_CLIENT] is null")
        self.assertEqual(answer.ext["msgId"], "0")

    def test_checked(self) -> None:
        """A reply's topic is looked at like any message's."""
        self.broker()
        ext = sending("SELF_TEST_TOPIC", properties=properties(**REPLY))
        answer = self.client().ask(RequestCode.SEND_REPLY_MESSAGE_V2, ext)
        assert answer is not None
        self.assertEqual(answer.code, 16)
        self.assertIn("MSG_REGION", answer.ext)


class QuestionTests(BetweenTestCase):
    """Codes 307, 309 and 223."""

    def test_running_info(self) -> None:
        """The question goes to the client as it is, and so does its answer back."""
        self.broker()
        consumer = self.member("c1", "T")
        ext = {"consumerGroup": "cg", "clientId": "c1", "jstackEnable": "true"}
        admin = self.admin(307, **ext)
        question = self.pushed(consumer)
        self.assertEqual((question.code, question.ext), (307, ext))
        self.assertFalse(question.is_oneway)
        self.reply(consumer, question, body=b'{"properties":{}}')
        answer = self.answer(admin)
        self.assertEqual((answer.code, answer.body), (0, b'{"properties":{}}'))

    def test_nobody(self) -> None:
        """Who is not there, is too old or does not answer cannot be asked."""
        self.broker()
        ext = {"consumerGroup": "cg", "clientId": "c1"}
        self.assertEqual(
            self.answer(self.admin(307, **ext)).remark, "The Consumer <cg> <c1> not online"
        )
        old = self.member("old", "T", version=10)
        answer = self.answer(self.admin(307, consumerGroup="cg", clientId="old"))
        self.assertEqual(answer.code, 1)
        self.assertIn("version=10", str(answer.remark))
        consumer = self.member("c1", "T")
        admin = self.admin(307, **ext)
        self.pushed(consumer)
        self.clock.advance(10)
        self.assertEqual(self.answer(admin).code, 207)
        admin = self.admin(307, **ext)
        consumer.connection.connectionLost()
        self.assertEqual(self.answer(admin).code, 207)
        self.assertEqual([one for one in old.heard() if one.code != 40], [])

    def test_consume_directly(self) -> None:
        """A consumer is given the stored message."""
        self.broker()
        sent = self.client().ask(SEND_V2, sending("T"), b"take this")
        assert sent is not None
        consumer = self.member("c1", "T")
        ext = {"consumerGroup": "cg", "clientId": "c1", "msgId": sent.ext["msgId"]}
        admin = self.admin(309, **ext)
        question = self.pushed(consumer)
        self.assertEqual(question.ext, ext | {"brokerName": "broker-a"})
        at = int(sent.ext["msgId"][-16:], 16)
        self.assertEqual(decode(bytes(question.body), 0, at).body, b"take this")
        self.reply(consumer, question, body=b'{"consumeResult":"CR_SUCCESS"}')
        self.assertEqual(self.answer(admin).body, b'{"consumeResult":"CR_SUCCESS"}')
        for bad in ("", "zz", "0" * 31 + "5", "F" * 32):
            self.assertEqual(self.answer(self.admin(309, **(ext | {"msgId": bad}))).code, 1)

    def test_status(self) -> None:
        """All consumers, or one, are asked for their offsets; who says nothing is left out."""
        self.broker()
        one, two = self.member("c1", "T"), self.member("c2", "T")
        one.heard()
        table = {MessageQueue("broker-a", 0, "T"): 5}
        admin = self.admin(223, topic="T", group="cg")
        question = self.pushed(one)
        self.pushed(two)
        self.assertEqual((question.code, question.ext), (221, {"topic": "T", "group": "cg"}))
        self.reply(one, question, body=write(ConsumerStatus(message_queue_table=table)))
        self.clock.advance(5)
        found = read(ConsumerStatus, self.answer(admin).body)
        self.assertEqual(found.consumer_table, {"c1": table})
        admin = self.admin(223, topic="T", group="cg", clientAddr="c2")
        self.assertEqual(one.heard(), [])
        self.pushed(two)
        nobody = self.answer(self.admin(223, topic="T", group="none"))
        self.assertEqual(nobody.remark, "No Any Consumer online in the consumer group: [none]")


class ResetTests(BetweenTestCase):
    """Codes 222 and 220."""

    def begin(self) -> None:
        """Four messages, a second apart, in one queue of two."""
        broker = self.broker()
        broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        producer = self.client()
        for _ in range(4):
            producer.ask(SEND_V2, sending("T"), b"x")
            self.clock.advance(1)
        for queue_id, offset in ((0, 3), (1, 0)):
            broker.offsets.commit("cg", "T", queue_id, offset, "test")

    def reset(self, **more: Any) -> Command:
        ext = {"topic": "T", "group": "cg", "timestamp": str(NOW + 1000), "isForce": "true"}
        return self.answer(self.admin(222, **(ext | more)))

    def offsets(self, answer: Command) -> dict[int, int]:
        """What an answer says, by queue id."""
        self.assertEqual(answer.code, 0, answer.remark)
        table = read(ResetOffsets, answer.body).offset_table
        return {queue.queue_id: offset for queue, offset in table.items()}

    def test_by_time(self) -> None:
        """Consumers are told where the time is, each in the form it reads."""
        self.begin()
        java = self.member("c1", "T")
        cpp = self.member("c2", "T", language=LanguageCode.CPP)
        java.heard()
        answer = self.reset()
        self.assertEqual(self.offsets(answer), {0: 1, 1: 0})
        push = self.pushed(java)
        self.assertTrue(push.is_oneway)
        self.assertEqual(
            (push.code, push.ext),
            (220, {"topic": "T", "group": "cg", "timestamp": str(NOW + 1000), "isForce": "true"}),
        )
        self.assertEqual(push.body, answer.body)
        self.assertNotIn(b" ", bytes(push.body))
        rows = json.loads(bytes(self.pushed(cpp).body))["offsetTable"]
        self.assertEqual(
            rows[0], {"brokerName": "broker-a", "offset": 1, "queueId": 0, "topic": "T"}
        )
        self.assertEqual(self.serving.offsets.get("cg", "T", 0), 3)

    def test_ends(self) -> None:
        """A time before all messages is the first, one after all of them is the end."""
        self.begin()
        self.member("c1", "T")
        for timestamp, expected in ((-1, 4), (0, 0), (NOW + 9_000, 4)):
            self.assertEqual(self.offsets(self.reset(timestamp=str(timestamp)))[0], expected)

    def test_all_expired(self) -> None:
        """Where all messages are gone any time is the end: nothing is behind that could be read."""
        self.begin()
        store = self.serving.store
        store.queues.start.offset = store.log.end
        for timestamp in (0, NOW + 1_000, NOW + 9_000):
            self.assertEqual(self.offsets(self.reset(timestamp=str(timestamp), queueId="0"))[0], 4)

    def test_not_forced(self) -> None:
        """Without force a group does not skip what it has not seen."""
        self.begin()
        self.member("c1", "T")
        self.assertEqual(self.offsets(self.reset(isForce="false", timestamp="-1"))[0], 3)
        self.assertEqual(self.offsets(self.reset(isForce="false", timestamp="0"))[0], 0)

    def test_one_queue(self) -> None:
        """A 5.x tool may mean one queue, and an offset."""
        self.begin()
        self.member("c1", "T")
        self.assertEqual(self.offsets(self.reset(queueId="-1", offset="-1")), {0: 1, 1: 0})
        self.assertEqual(self.offsets(self.reset(queueId="0", offset="2")), {0: 2})
        self.assertEqual(self.offsets(self.reset(queueId="0", offset="999")), {0: 4})
        self.assertEqual(self.reset(queueId="7").code, 29)

    def test_before_its_first_start(self) -> None:
        """A group that has consumed nothing is put where it is to begin, whoever asks."""
        self.begin()
        for group, fields, expected in (
            ("of4", {}, {0: 1, 1: 0}),
            ("of5", {"queueId": "-1", "offset": "-1"}, {0: 1, 1: 0}),
            ("unforced", {"isForce": "false", "timestamp": "-1"}, {0: 4, 1: 0}),
            ("one", {"queueId": "0", "offset": "2"}, {0: 2}),
        ):
            self.assertEqual(self.offsets(self.reset(group=group, **fields)), expected, group)
            self.assertEqual(self.serving.offsets.queues(group, "T"), expected, group)
            self.assertIsNotNone(self.serving.groups.get(group))

    def test_a_queue_it_never_read(self) -> None:
        """That a group has an offset in some queues only does not keep it from being moved."""
        self.begin()
        self.serving.offsets.commit("half", "T", 0, 3, "test")
        moved = self.offsets(self.reset(group="half", queueId="-1", offset="-1"))
        self.assertEqual(moved, {0: 1, 1: 0})
        self.assertEqual(self.serving.offsets.queues("half", "T"), moved)

    def test_offline(self) -> None:
        """A 5.x tool leaves it to the broker to set the offsets of a group without consumers."""
        self.begin()
        self.assertEqual(self.offsets(self.reset(queueId="-1", offset="-1")), {0: 1, 1: 0})
        self.assertEqual(self.serving.offsets.queues("cg", "T"), {0: 1, 1: 0})
        self.reset(queueId="-1", offset="-1", timestamp="-1")
        self.assertEqual(self.serving.offsets.queues("cg", "T"), {0: 4, 1: 0})

    def test_refused(self) -> None:
        """What cannot be reset is refused in RocketMQ's words, which mqadmin understands."""
        self.begin()
        offline, at = self.reset(), NOW + 1000
        self.assertEqual(
            (offline.code, offline.remark),
            (
                206,
                f"Consumer not online, so can not reset offset, Group: cg Topic: T Timestamp: {at}",
            ),
        )
        self.assertEqual(
            self.reset(topic="nope").remark,
            "[reset-offset] reset offset failed, no topic in this broker. topic=nope",
        )
        unknown = self.reset(group="a@b")
        self.assertEqual((unknown.code, unknown.remark), (26, "the consumer group[a@b] not exist"))
        self.member("old", "T", version=5)
        self.assertIn("version=5", str(self.reset().remark))
