"""Sending: what is checked in which order, what is stored, and what is answered."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail

from rmqha.errors import FlushFailed, NotWritable, TooFewInSync
from rmqha.ha.master.transfer import PutStatus
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.codes import ResponseCode as Answered
from tests.broker.support import (
    BORN,
    NOW,
    SEND,
    SEND_BATCH,
    SEND_V2,
    BrokerTestCase,
    batch,
    long_names,
    properties,
    sending,
)

ALWAYS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


class SendTests(BrokerTestCase):
    def test_answer(self) -> None:
        """The answer says where the message is."""
        self.broker()
        answer = self.client().ask(SEND_V2, sending("T", queue_id=2), b"hello")
        self.assertEqual(answer.code, 0)
        self.assertEqual(
            answer.ext,
            {
                "msgId": "0A000009" + "00002A9F" + "0" * 16,
                "queueId": "2",
                "queueOffset": "0",
                **ALWAYS,
            },
        )

    def test_record(self) -> None:
        """The record says what the client said, who it was, and where it is stored."""
        self.broker()
        ext = sending("T", queue_id=1, flag=7, reconsume_times=2, sys_flag=0x301)
        self.client().ask(SEND_V2, ext, b"hello")
        record = self.record("T", 1)
        self.assertEqual((record.body, record.flag, record.reconsume_times), (b"hello", 7, 2))
        self.assertEqual(record.sys_flag, 0x301)
        self.assertEqual((record.born_timestamp, record.store_timestamp), (BORN, NOW))
        self.assertEqual(record.born_host, ("10.1.2.3", 40_000))
        self.assertEqual(record.store_host, ("10.0.0.9", 10911))
        self.assertEqual(record.raw_properties, b"UNIQ_KEY\x01U1\x02TAGS\x01A\x02CLUSTER\x01C\x02")

    def test_old_code(self) -> None:
        """Request 10 says the same by long names."""
        self.broker()
        answer = self.client().ask(SEND, long_names(sending("T")), b"hello")
        self.assertEqual((answer.code, answer.ext["queueOffset"]), (0, "0"))
        self.assertEqual(self.record("T").body, b"hello")

    def test_sys_flag(self) -> None:
        """Of a client's bits only those of compression are stored: others would harm the record."""
        self.broker()
        self.client().ask(SEND_V2, sending("T", sys_flag=0x7FFFFFFF), b"x")
        self.assertEqual(self.record("T").sys_flag, 0x701)

    def test_multi_tags(self) -> None:
        """The topic decides whether a message has several tags."""
        self.broker().topics.put(TopicConfig(topic_name="M", topic_filter_type="MULTI_TAG"))
        self.client().ask(SEND_V2, sending("M"), b"x")
        self.assertEqual(self.record("M").sys_flag, 2)

    def test_any_queue(self) -> None:
        """Without a queue the broker chooses one, and tells which."""
        self.broker()
        client = self.client()
        chosen = {
            client.ask(SEND_V2, sending("T", queue_id=-1), b"x").ext["queueId"] for _ in range(80)
        }
        self.assertEqual(chosen, {"0", "1", "2", "3"})

    def test_new_topic(self) -> None:
        """Sending makes a topic after its template, with no more queues than that one has."""
        broker = self.broker()
        client = self.client()
        client.ask(SEND_V2, sending("T", default_topic_queue_nums=64), b"x")
        client.ask(SEND_V2, sending("U", default_topic_queue_nums=-1, unit_mode=True), b"x")
        made = broker.topics.get("T")
        self.assertEqual((made.read_queue_nums, made.write_queue_nums, made.perm), (8, 8, 6))
        self.assertEqual(broker.topics.get("U").write_queue_nums, 1)
        self.assertEqual(broker.topics.get("U").topic_sys_flag, 1)

    def test_oneway(self) -> None:
        """A one-way message is stored, nothing is answered, and nothing waits for replicas."""
        self.broker()
        self.assertIsNone(self.client().ask(SEND_V2, sending("T"), b"x", oneway=True))
        self.assertEqual((self.record("T").body, self.writer.waited), (b"x", [False]))

    def test_wait(self) -> None:
        """A message says whether its producer wants to wait."""
        self.broker()
        client = self.client()
        for text in ("true", "false", "FALSE"):
            client.ask(SEND_V2, sending("T", properties={"WAIT": text}), b"x")
        client.ask(SEND_V2, sending("T", properties=None), b"x")
        self.assertEqual(self.writer.waited, [True, False, False, True])

    def test_region(self) -> None:
        """Producers are told the region and whether to trace, also by a refusal."""
        self.broker(region="north", trace_on=False)
        for topic in ("T", "bad name"):
            answer = self.client().ask(SEND_V2, sending(topic), b"x")
            self.assertEqual(answer.ext["MSG_REGION"], "north")
            self.assertEqual(answer.ext["TRACE_ON"], "false")


class PlaceTests(BrokerTestCase):
    """Messages that are stored elsewhere than their client said."""

    def test_delay(self) -> None:
        """A delayed message waits with its level; the answer has the queue it is meant for."""
        self.broker()
        answer = self.client().ask(
            SEND_V2, sending("T", queue_id=3, properties={"DELAY": "2"}), b"x"
        )
        self.assertEqual((answer.code, answer.ext["queueId"]), (0, "3"))
        found = self.record("SCHEDULE_TOPIC_XXXX", 1).properties
        self.assertEqual(found, {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "3", "CLUSTER": "C"})

    def test_longest_delay(self) -> None:
        """A level above the highest one is the highest."""
        self.broker()
        self.client().ask(SEND_V2, sending("T", properties={"DELAY": "99"}), b"x")
        self.assertEqual(self.record("SCHEDULE_TOPIC_XXXX", 17).properties["DELAY"], "18")

    def test_half(self) -> None:
        """A message of a transaction waits in the half topic, visible to nobody else."""
        broker = self.broker()
        given = {"TRAN_MSG": "true", "PGROUP": "pg", "DELAY": "3"}
        answer = self.client().ask(
            SEND_V2, sending("T", queue_id=2, sys_flag=4, properties=given), b"x"
        )
        self.assertEqual((answer.code, answer.ext["queueId"]), (0, "2"))
        record = self.record("RMQ_SYS_TRANS_HALF_TOPIC")
        self.assertEqual(record.sys_flag, 0)
        self.assertEqual(
            record.properties, {**given, "REAL_TOPIC": "T", "REAL_QID": "2", "CLUSTER": "C"}
        )
        self.assertEqual(broker.topics.get("RMQ_SYS_TRANS_HALF_TOPIC").write_queue_nums, 1)

    def test_retried_half(self) -> None:
        """An old client's retry that still says it belongs to a transaction is a plain message."""
        self.broker()
        given = {"TRAN_MSG": "true", "DELAY": "3"}
        self.client().ask(SEND_V2, sending("T", reconsume_times=1, properties=given), b"x")
        self.assertEqual(self.record("SCHEDULE_TOPIC_XXXX", 2).properties["REAL_TOPIC"], "T")


class BatchTests(BrokerTestCase):
    def test_batch(self) -> None:
        """Each is a record, the queue offsets follow each other, and all ids are answered."""
        self.broker()
        body = batch((b"a", properties(UNIQ_KEY="A")), (b"bc", properties(UNIQ_KEY="B")))
        ext = sending("T", batch=True, properties={"UNIQ_KEY": "ALL", "WAIT": "true"})
        answer = self.client().ask(SEND_BATCH, ext, body)
        self.assertEqual((answer.code, answer.ext["queueOffset"]), (0, "0"))
        first, second = self.record("T", 0, 0), self.record("T", 0, 1)
        self.assertEqual((first.body, second.body), (b"a", b"bc"))
        self.assertEqual(first.properties, {"UNIQ_KEY": "A", "WAIT": "true", "CLUSTER": "C"})
        self.assertEqual(second.properties["UNIQ_KEY"], "B")
        self.assertEqual(
            answer.ext["msgId"].split(","), [first.offset_msg_id, second.offset_msg_id]
        )

    def test_single_code(self) -> None:
        """The field decides, not the code: the C++ client sends batches with 310."""
        self.broker()
        body = batch((b"a", ""), (b"b", ""))
        answer = self.client().ask(SEND_V2, sending("T", batch=True), body)
        self.assertEqual((answer.code, answer.ext["msgId"].count(",")), (0, 1))

    def test_bad_batches(self) -> None:
        """A batch that lies about itself stores nothing."""
        self.broker()
        good = batch((b"a", ""))
        wrong: list[tuple[dict[str, Any], bytes]] = [
            ({"batch": False}, good),
            ({"batch": True}, b""),
            ({"batch": True}, good[:-1]),
            ({"batch": True}, good[:16] + b"\xff\xff\xff\xff" + good[20:]),
            ({"batch": True}, good[:-2] + b"\x80\x00"),
            ({"batch": True, "properties": {"DELAY": "1"}}, good),
            ({"batch": True, "properties": {"TRAN_MSG": "true"}}, good),
        ]
        for fields, body in wrong:
            answer = self.client().ask(SEND_BATCH, sending("T", **fields), body)
            self.assertEqual(answer.code, Answered.MESSAGE_ILLEGAL, fields)
        retry = sending("%RETRY%g", batch=True)
        self.assertEqual(self.client().ask(SEND_BATCH, retry, good).code, Answered.MESSAGE_ILLEGAL)
        self.assertEqual(self.serving.store.log.end, 0)


class OutcomeTests(BrokerTestCase):
    """What became of a message that was stored."""

    def test_statuses(self) -> None:
        """A message that did not reach all it should is stored, and the answer says so."""
        self.broker()
        client = self.client()
        expected = {
            PutStatus.PUT_OK: 0,
            PutStatus.FLUSH_DISK_TIMEOUT: 10,
            PutStatus.SLAVE_NOT_AVAILABLE: 11,
            PutStatus.FLUSH_SLAVE_TIMEOUT: 12,
        }
        for number, (status, code) in enumerate(expected.items()):
            self.writer.outcome = status
            answer = client.ask(SEND_V2, sending("T"), b"x")
            self.assertEqual((answer.code, answer.ext["queueOffset"]), (code, str(number)))

    def test_later(self) -> None:
        """Others are answered while a message waits for a replica."""
        self.broker()
        client = self.client()
        held: Deferred[PutStatus] = Deferred()
        self.writer.outcome = held
        self.assertIsNone(client.ask(SEND_V2, sending("T"), b"x"))
        self.writer.outcome = PutStatus.PUT_OK
        self.assertEqual(client.ask(SEND_V2, sending("T"), b"y").ext["queueOffset"], "1")
        held.callback(PutStatus.PUT_OK)
        (answer,) = client.heard()
        self.assertEqual(answer.ext["queueOffset"], "0")

    def test_gone(self) -> None:
        """Nobody waits for a replica for a client that left."""
        self.broker()
        client = self.client()
        forgotten: list[object] = []
        self.writer.outcome = Deferred(forgotten.append)
        client.ask(SEND_V2, sending("T"), b"x")
        client.connection.close("test")
        self.assertEqual(len(forgotten), 1)

    def test_stopping(self) -> None:
        """What waits when the node stops is answered as not available."""
        self.broker()
        self.writer.outcome = PutStatus.SERVICE_NOT_AVAILABLE
        self.assertEqual(self.client().ask(SEND_V2, sending("T"), b"x").code, 14)

    def test_disk_failed(self) -> None:
        """The same where the disk does not take what it was given."""
        self.broker()
        self.writer.outcome = fail(FlushFailed("a file", "Input/output error"))
        self.assertEqual(self.client().ask(SEND_V2, sending("T"), b"x").code, 14)

    def test_not_writable(self) -> None:
        """A store that takes no writes is not available, and the remark has the disk's use."""
        broker = self.broker()
        broker.store.disk_full(NotWritable("disk-full", "no room"))  # type: ignore[arg-type]
        answer = self.client().ask(SEND_V2, sending("T"), b"x")
        self.assertEqual(answer.code, 14)
        self.assertIn("[CL:  0.10 CQ:  0.10 INDEX:  0.10]", answer.remark)

    def test_too_few_in_sync(self) -> None:
        """A set that is too small for a write takes none, and says so as a stock master does."""
        self.broker()
        self.writer.outcome = TooFewInSync(1, 2)
        answer = self.client().ask(SEND_V2, sending("T"), b"x")
        self.assertEqual((answer.code, answer.remark), (1, "in-sync replicas not enough"))

    def test_slave(self) -> None:
        """A slave takes no messages, and makes no topics for them."""
        broker = self.broker(slave=True)
        for code, ext in ((SEND_V2, sending("T")), (SEND, long_names(sending("T")))):
            answer = self.client().ask(code, ext, b"x")
            self.assertEqual(answer.code, 14)
            self.assertIn("messages are put to the slave", answer.remark)
        self.assertIsNone(broker.topics.get("T"))


#: What is wrong with a message, in the order in which a stock broker finds it, with the answer's
#: code and a part of its remark.  Faults that are not of the request are in C{test_order}.
FAULTS: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"topic": "TBW 102"}, 29, "illegal characters"),
    ({"topic": "SELF_TEST_TOPIC"}, 16, "Sending message to topic[SELF_TEST_TOPIC] is forbidden"),
    ({"topic": "none", "default_topic": "nothing"}, 17, "topic[none] not exist, apply first"),
    ({"topic": "readonly"}, 16, "the topic[readonly] sending message is forbidden"),
    ({"queue_id": 4}, 29, "request queueId[4] is illegal, TopicConfig [topicName=T"),
    ({"properties": "a\nb\x01c\x02"}, 13, "control characters"),
    ({"properties": {"TIMER_DELAY_SEC": "x"}}, 13, "timer"),
    ({"properties": {"A": "x" * 40_000}}, 13, "properties is 400"),
)


class RefusalTests(BrokerTestCase):
    def setUp(self) -> None:
        """A broker with a few topics."""
        super().setUp()
        broker = self.broker()
        for name, perm in (("T", 6), ("readonly", 4)):
            broker.topics.put(
                TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=4, perm=perm)
            )

    def refused(self, code: int, part: str, body: bytes = b"x", **fields: Any) -> None:
        """A message is refused, and nothing is stored."""
        answer = self.client().ask(SEND_V2, sending(**({"topic": "T"} | fields)), body)
        self.assertEqual((answer.code, answer.ext), (code, ALWAYS), answer.remark)
        self.assertIn(part, answer.remark)
        self.assertEqual(self.serving.store.log.end, 0)

    def test_each(self) -> None:
        """Each fault has its code, and a text that names it."""
        for fields, code, part in FAULTS:
            self.refused(code, part, **fields)

    def test_order(self) -> None:
        """Of two faults the one is told that a stock broker tells."""
        for n, (fields, code, part) in enumerate(FAULTS):
            for others, _, _ in FAULTS[n + 1 :]:
                # "default_topic" alone is no fault.
                given = {**others, **fields}
                if "topic" in fields or "topic" not in others:
                    self.refused(code, part, **given)

    def test_names(self) -> None:
        """What cannot be a topic's name is refused with RocketMQ's texts."""
        self.refused(29, "The specified topic is blank.", topic=" ")
        self.refused(29, "longer than topic max length", topic="x" * 128)
        self.refused(29, "^[%|a-zA-Z0-9_-]+$", topic="T\u00e9")

    def test_read_only_queue(self) -> None:
        """A queue that is only there to be read from takes nothing."""
        self.refused(29, "readQueueNums=8, writeQueueNums=4, perm=RW-", queue_id=7)
        self.refused(29, "Producer: 10.1.2.3:40000", queue_id=8)

    def test_size(self) -> None:
        """The largest body is taken, one byte more is not."""
        self.refused(13, "msg body length limit 100000B", b"x" * 100_001)
        self.assertEqual(self.client().ask(SEND_V2, sending("T"), b"x" * 100_000).code, 0)

    def test_fields(self) -> None:
        """A mandatory field that is missing or no number is named."""
        for name in "abcdefgh":
            for bad in (None, "x"):
                ext = sending("T")
                if bad is None:
                    del ext[name]
                elif name in "abc":
                    continue
                else:
                    ext[name] = bad
                answer = self.client().ask(SEND_V2, ext, b"x")
                self.assertEqual((answer.code, answer.ext), (1, ALWAYS))
                self.assertIn(f"the custom field <{name}> is null", answer.remark)


class BrokerRefusalTests(BrokerTestCase):
    def test_not_yet(self) -> None:
        """No message is taken before the time for it has come, whatever else is wrong with it."""
        self.broker(accept_sends_from=NOW / 1000 + 10)
        answer = self.client().ask(SEND_V2, sending("bad name"), b"x")
        self.assertEqual(answer.code, 1)
        self.assertIn("broker unable to service, until 20", answer.remark)
        self.clock.advance(10)
        self.assertEqual(self.client().ask(SEND_V2, sending("T"), b"x").code, 0)

    def test_no_permission(self) -> None:
        """A broker that may not be written to refuses every topic, but a bad name is told first."""
        broker = self.broker(permission=4)
        broker.topics.put(TopicConfig(topic_name="O", order=True))
        for topic in ("O", "T", "new"):
            answer = self.client().ask(SEND_V2, sending(topic), b"x")
            self.assertEqual(answer.code, 16, topic)
            self.assertIn("the broker[10.0.0.9] sending message is forbidden", answer.remark)
        self.assertIsNone(broker.topics.get("new"))
        self.assertNotEqual(self.client().ask(SEND_V2, sending("bad name"), b"x").code, 16)

    def test_permission_is_taken_and_given(self) -> None:
        """Writing can be forbidden and allowed again while the broker runs; reading goes on."""
        self.broker()
        client = self.client()
        for permission, code in (("4", 16), ("6", 0)):
            change = f"brokerPermission={permission}\n".encode()
            self.assertEqual(client.ask(RequestCode.UPDATE_BROKER_CONFIG, None, change).code, 0)
            self.assertEqual(client.ask(SEND_V2, sending("T"), b"x").code, code)

    def test_no_new_topics(self) -> None:
        """Where topics are made by administrators, sending makes none."""
        self.broker(auto_create_topics=False)
        answer = self.client().ask(SEND_V2, sending("T"), b"x")
        self.assertEqual(answer.code, 17)
        self.assertIn("topic[T] not exist, apply first please!\nSee http", answer.remark)

    def test_transactions(self) -> None:
        """A broker may want no transactions."""
        self.broker(reject_transactions=True)
        given = {"TRAN_MSG": "true"}
        answer = self.client().ask(SEND_V2, sending("T", properties=given), b"x")
        self.assertEqual(answer.code, 16)
        self.assertIn("sending transaction message is forbidden", answer.remark)
