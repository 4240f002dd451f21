"""Messages that come again, and those that came too often."""

from __future__ import annotations

from typing import Any

from rmqha.ha.master.transfer import PutStatus
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.send import SendBackRequest
from tests.broker.support import SEND_V2, BrokerTestCase, sending

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


class SendBackTests(BrokerTestCase):
    """Request 36: a message by its place in the log."""

    def sent(self, **more: Any) -> int:
        """Send a message, and return where it is in the log."""
        answer = self.client().ask(SEND_V2, sending("T", **more), b"hello")
        return int(answer.ext["msgId"][16:], 16)

    def back(self, offset: int, **more: Any) -> Command:
        given = {"group": "g", "delay_level": 0} | more
        answer = self.client().ask(BACK, to_ext(SendBackRequest(offset=offset, **given)))
        assert answer is not None
        return answer

    def test_first(self) -> None:
        """A copy with one more try is delayed for the group's retry topic, with its origin."""
        broker = self.broker()
        offset = self.sent(flag=3)
        self.assertEqual(self.back(offset).code, 0)
        original, copy = self.record("T"), self.record(SCHEDULE, 2)
        self.assertEqual((copy.body, copy.flag, copy.reconsume_times), (b"hello", 3, 1))
        self.assertEqual(copy.born_host, original.born_host)
        self.assertEqual(copy.born_timestamp, original.born_timestamp)
        self.assertEqual(
            copy.properties,
            original.properties
            | {
                "RETRY_TOPIC": "T",
                "ORIGIN_MESSAGE_ID": original.offset_msg_id,
                "DELAY": "3",
                "REAL_TOPIC": "%RETRY%g",
                "REAL_QID": "0",
            },
        )
        self.assertEqual(broker.topics.get("%RETRY%g").write_queue_nums, 1)
        self.assertEqual(self.writer.waited, [True, True])

    def test_second(self) -> None:
        """The next try comes later, and the first place is not forgotten."""
        self.broker()
        offset = self.sent(
            reconsume_times=4,
            properties={"RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "ID", "DELAY": "0"},
        )
        self.back(offset)
        copy = self.record(SCHEDULE, 6)
        self.assertEqual((copy.reconsume_times, copy.properties["DELAY"]), (5, "7"))
        self.assertEqual(copy.properties["RETRY_TOPIC"], "first")
        self.assertEqual(copy.properties["ORIGIN_MESSAGE_ID"], "ID")

    def test_chosen_delay(self) -> None:
        """A consumer may choose the delay."""
        self.broker()
        self.back(self.sent(), delay_level=1)
        self.assertEqual(self.record(SCHEDULE, 0).properties["DELAY"], "1")

    def test_too_often(self) -> None:
        """After the group's last try it goes to the dead letters, at once."""
        self.broker().groups.put(GroupConfig(group_name="g", retry_max_times=2))
        self.back(self.sent(reconsume_times=2, properties={"DELAY": "0"}))
        self.assertEqual(self.record("%DLQ%g").reconsume_times, 3)
        self.assertNotIn("DELAY", self.record("%DLQ%g").properties)

    def test_most_often(self) -> None:
        """A message that says it came as often as a record can say goes to the dead letters."""
        self.broker()
        self.back(self.sent(reconsume_times=(1 << 31) - 1))
        self.assertEqual(self.record("%DLQ%g").reconsume_times, (1 << 31) - 1)

    def test_client_limit(self) -> None:
        """A new client brings its own limit; an old one's means nothing."""
        self.broker()
        offset = self.sent(reconsume_times=1)
        self.back(offset, max_reconsume_times=1)
        self.assertEqual(self.record("%DLQ%g").body, b"hello")
        ext = to_ext(
            SendBackRequest(offset=offset, group="g", delay_level=0, max_reconsume_times=1)
        )
        self.client().ask(BACK, ext, version=120)
        self.assertEqual(self.record(SCHEDULE, 3).body, b"hello")

    def test_given_up(self) -> None:
        """A negative delay gives the message up."""
        self.broker()
        self.back(self.sent(), delay_level=-1)
        self.assertEqual(self.record("%DLQ%g").body, b"hello")

    def test_committed(self) -> None:
        """A message of a transaction that was committed is a plain one from then on."""
        self.broker()
        self.back(self.sent(sys_flag=0x8))
        self.assertEqual(self.record(SCHEDULE, 2).sys_flag, 0)

    def test_no_retry_queues(self) -> None:
        """A group without retry queues loses nothing."""
        self.broker().groups.put(GroupConfig(group_name="g", retry_queue_nums=0))
        self.assertEqual(self.back(self.sent()).code, 0)
        self.assertEqual(self.record(SCHEDULE, 2).properties["REAL_TOPIC"], "%RETRY%g")

    def test_no_such_message(self) -> None:
        """Where no record begins there is nothing to send back."""
        self.broker()
        offset = self.sent()
        for wrong in (offset + 1, offset + 5, 1 << 40, -1):
            answer = self.back(wrong)
            self.assertEqual(
                (answer.code, answer.remark), (1, f"look message by offset failed, {wrong}")
            )

    def test_not_a_consumers(self) -> None:
        """What no consumer can read does not become readable by being sent back."""
        self.broker()
        offset = self.sent(properties={"TRAN_MSG": "true"})
        self.assertEqual(self.back(offset).code, 1)

    def test_no_group(self) -> None:
        """Without the group, and where none may be made, there is no retry."""
        self.broker(auto_create_groups=False)
        answer = self.back(self.sent())
        self.assertEqual(answer.code, 26)
        self.assertIn("subscription group not exist, g", answer.remark)

    def test_bad_group(self) -> None:
        """A group whose retry topic could not be is none."""
        self.broker()
        offset = self.sent()
        for name in ("x" * 121, "a@b", " "):
            self.assertEqual(self.back(offset, group=name).code, 26)

    def test_permissions(self) -> None:
        """A retry topic that may not be written to takes no retries."""
        self.broker().topics.put(TopicConfig(topic_name="%RETRY%g", perm=4))
        answer = self.back(self.sent())
        self.assertEqual(answer.code, 16)
        self.assertIn("the topic[%RETRY%g] sending message is forbidden", answer.remark)

    def test_broker_permission(self) -> None:
        """Neither does a broker that may not."""
        self.broker()
        offset = self.sent()
        change = RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4\n"
        self.assertEqual(self.client().ask(*change).code, 0)
        self.assertEqual(self.back(offset).code, 16)

    def test_status(self) -> None:
        """What a replica or the disk is late with is told by its name, and the consumer keeps the
        message; without a replica there is nothing to wait for.
        """
        self.broker()
        offset = self.sent()
        for status in (PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT):
            self.writer.outcome = status
            answer = self.back(offset)
            self.assertEqual((answer.code, answer.remark), (1, status.value))
        self.writer.outcome = PutStatus.SLAVE_NOT_AVAILABLE
        self.assertEqual(self.back(offset).code, 0)

    def test_slave(self) -> None:
        """A slave takes nothing back."""
        self.broker(slave=True)
        self.assertEqual(self.back(0).code, 14)


class OwnCopyTests(BrokerTestCase):
    """Copies that a consumer sends to the retry topic itself."""

    def test_retry(self) -> None:
        """They come again after their delay."""
        broker = self.broker()
        ext = sending("%RETRY%g", reconsume_times=1, properties={"DELAY": "4"})
        self.assertEqual(self.client().ask(SEND_V2, ext, b"x").code, 0)
        self.assertEqual(self.record(SCHEDULE, 3).properties["REAL_TOPIC"], "%RETRY%g")
        self.assertIsNotNone(broker.groups.get("g"))

    def test_without_template(self) -> None:
        """A retry topic is made where other topics are not."""
        broker = self.broker(auto_create_topics=False)
        ext = sending("%RETRY%g", unit_mode=True)
        self.assertEqual(self.client().ask(SEND_V2, ext, b"x").code, 0)
        made = broker.topics.get("%RETRY%g")
        self.assertEqual((made.write_queue_nums, made.topic_sys_flag), (1, 2))

    def test_too_often(self) -> None:
        """The last try ends in the dead letters without a delay (stock brokers keep the delay)."""
        self.broker()
        client = self.client()
        given = {"DELAY": "18", "WAIT": "true"}
        for limit, times in ((None, 16), (2, 2), (0, 0)):
            ext = sending(
                "%RETRY%g", reconsume_times=times, max_reconsume_times=limit, properties=given
            )
            client.ask(SEND_V2, ext, b"x")
        for n in range(3):
            self.assertEqual(self.record("%DLQ%g", 0, n).raw_properties, b"CLUSTER\x01C\x02")

    def test_no_group(self) -> None:
        """There is no retry for a group that is not there."""
        self.broker(auto_create_groups=False)
        answer = self.client().ask(SEND_V2, sending("%RETRY%g"), b"x")
        self.assertEqual((answer.code, answer.ext["TRACE_ON"]), (26, "true"))
