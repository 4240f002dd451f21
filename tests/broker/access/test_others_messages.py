"""Doors to messages that an account may neither read nor send: replies, returns, halves."""

from __future__ import annotations

from typing import Any

from rmqha.broker.access.acl_file import LOOK_EVERY
from rmqha.wire.remoting.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.clients import EndTransactionRequest
from rmqha.wire.remoting.headers.send import SendBackRequest
from rmqha.wire.remoting.json_body import write
from tests.broker.access.cases import AccessTestCase, Signing
from tests.broker.support import SEND_V2, long_names, sending
from tests.support.access_table import credentials
from tests.support.log_lines import log_lines


def producing(client_id: str, group: str = "pg") -> bytes:
    """The heartbeat of a producer."""
    return write(
        HeartbeatData(client_id=client_id, producer_data_set=(ProducerData(group_name=group),))
    )


class RepliesTests(AccessTestCase):
    """324, 325 and 326."""

    def fields(self, topic: str, client_id: str) -> dict[str, str]:
        return sending(topic, properties={"REPLY_TO_CLIENT": client_id, "CORRELATION_ID": "1"})

    def reply(self, by: Signing, topic: str, client_id: str, *, old: bool = False) -> Command:
        ext = self.fields(topic, client_id)
        if old:
            return by.ask(Code.SEND_REPLY_MESSAGE, b"re", **long_names(ext))
        return by.ask(Code.SEND_REPLY_MESSAGE_V2, b"re", **ext)

    def test_denied(self) -> None:
        """A reply needs what a message needs: else nothing is stored, and no topic is made."""
        self.begin()
        before = self.serving.store.log.end, self.serving.topics.names()
        for topic in ("Payments", "Unknown"):
            for old in (False, True):
                self.assert_denied(self.reply(self.by("nothing"), topic, "none@x", old=old))
        self.assertEqual((self.serving.store.log.end, self.serving.topics.names()), before)

    def test_pushed(self) -> None:
        """A reply goes to a client whose account may consume its topic, not to an impostor."""
        self.begin()
        asking, thief = self.by("everything"), self.by("nothing")
        for by in (asking, thief):
            self.assertEqual(by.ask(Code.HEART_BEAT, producing("c@1")).code, 0)
        command = Command(code=Code.SEND_REPLY_MESSAGE_V2, ext=self.fields("Payments", "c@1"))
        credentials("producer").sign(command)
        self.by("producer").client.send(command)
        self.assertEqual([], thief.client.heard())
        (pushed,) = asking.client.heard()
        self.assertEqual(pushed.code, Code.PUSH_REPLY_MESSAGE_TO_CLIENT)

    def test_not_permitted(self) -> None:
        """A client whose account may not consume the topic gets no reply of it."""
        self.begin()
        thief = self.by("nothing")
        thief.ask(Code.HEART_BEAT, producing("c@1"))
        told = self.reply(self.by("producer"), "Payments", "c@1")
        self.assertIn("channel of <c@1> not found", str(told.remark))
        self.assertEqual([], thief.client.heard())


class SentBackTests(AccessTestCase):
    """36."""

    def stored(self, topic: str, **more: Any) -> int:
        """Store a message, and return its place in the log."""
        told = self.by("operator").ask(SEND_V2, b"secret", **sending(topic, **more))
        return int(told.ext["msgId"][-16:], 16)

    def give_back(self, account: str, offset: int, **more: Any) -> Command:
        """Give a message back for group C{billing}."""
        header = SendBackRequest(offset=offset, group="billing", delay_level=1, **more)
        return self.by(account).ask(Code.CONSUMER_SEND_MSG_BACK, **to_ext(header))

    def test_denied(self) -> None:
        """Of a forbidden topic no message comes to a group; nothing is stored or made."""
        self.begin()
        offset = self.stored("Secrets")
        before = self.serving.store.log.end, self.serving.topics.names()
        self.assert_denied(self.give_back("consumer", offset))
        self.assertEqual((self.serving.store.log.end, self.serving.topics.names()), before)

    def test_permitted(self) -> None:
        """One of a topic that it may consume comes again."""
        self.begin()
        self.assertEqual(self.give_back("consumer", self.stored("Orders")).code, 0)

    def test_retried(self) -> None:
        """One that came again is of the topic it came from."""
        self.begin()
        offset = self.stored("%RETRY%billing", properties={"RETRY_TOPIC": "Secrets"})
        self.assert_denied(self.give_back("consumer", offset))
        self.assertEqual(self.give_back("operator", offset).code, 0)

    def test_nothing_there(self) -> None:
        """A place where no message is changes nothing, and no topic is made for its group."""
        self.begin()
        names = self.serving.topics.names()
        told = self.give_back("consumer", 12_345)
        self.assertIn("look message by offset failed", str(told.remark))
        self.assertEqual(names, self.serving.topics.names())


class TransactionsTests(AccessTestCase):
    """37 and 39."""

    def setUp(self) -> None:
        """A half message of group C{pg}, and a producer whose account may not send there."""
        super().setUp()
        self.begin()
        self.serving.transactions.start()
        self.producer, self.stranger = self.by("producer"), self.by("consumer")
        properties = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U1"}
        ext = sending("Payments", sys_flag=4, properties=properties)
        self.half = self.producer.ask(SEND_V2, b"pay", **ext)
        self.assertEqual(self.half.code, 0)
        self.stranger.ask(Code.HEART_BEAT, producing("s@1"))
        self.clock.advance(0.01)

    def lines(self) -> list[str]:
        """The lines of the log from now on."""
        return log_lines(self)

    def end(self, by: Signing) -> Command:
        header = EndTransactionRequest(
            producer_group="pg",
            tran_state_table_offset=int(self.half.ext["queueOffset"]),
            commit_log_offset=int(self.half.ext["msgId"][-16:], 16),
            commit_or_rollback=8,
            msg_id="U1",
        )
        return by.ask(Code.END_TRANSACTION, **to_ext(header))

    def test_ended(self) -> None:
        """Who may not send to a half message's topic does not end its transaction; who may does."""
        end = self.serving.store.log.end
        self.assert_denied(self.end(self.stranger))
        self.assertEqual((self.serving.store.log.end, self.end(self.producer).code), (end, 0))
        self.assertEqual(self.record("Payments").body, b"pay")

    def test_asked(self) -> None:
        """Only a producer that may send to the topic is asked; without one the log says so."""
        lines = self.lines()
        self.clock.advance(60)
        self.assertEqual([], self.stranger.client.heard())
        self.assertEqual(1, sum("may send to Payments" in line for line in lines))
        self.producer.ask(Code.HEART_BEAT, producing("p@1"))
        self.clock.advance(60)
        (asked,) = self.producer.client.heard()
        self.assertEqual(asked.code, Code.CHECK_TRANSACTION_STATE)
        self.assertEqual([], self.stranger.client.heard())

    def test_revoked(self) -> None:
        """The accounts that count are those in force when it is asked."""
        self.producer.ask(Code.HEART_BEAT, producing("p@1"))
        text = self.path.read_text(encoding="utf-8")
        self.path.write_text(text.replace("Payments=PUB|SUB", "Payments=SUB"), encoding="utf-8")
        self.clock.advance(LOOK_EVERY)
        self.clock.advance(60)
        self.assertEqual([], self.producer.client.heard())


class HeartbeatTests(AccessTestCase):
    """34."""

    def test_group(self) -> None:
        """A consumer joins no group that its account may not consume in."""
        self.begin()
        wish = SubscriptionData(topic="Orders")
        data = ConsumerData(group_name="closed", subscription_data_set=(wish,))
        body = write(HeartbeatData(client_id="c@1", consumer_data_set=(data,)))
        self.assert_denied(self.by("consumer").ask(Code.HEART_BEAT, body))
        self.assertIsNone(self.serving.consumers.group("closed"))
