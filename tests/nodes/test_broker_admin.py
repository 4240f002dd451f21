"""L{BrokerAdmin} with what stock brokers answered to stock tools."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from rmqha.nodes.broker_admin import AnswerUnreadable, BrokerAdmin, BrokerRefused
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from tests.support.frames import CapturedFrame, frames

ADDRESS = "10.0.0.9:10911"
VERSIONS = "4.9.7", "5.3.3"
SOURCES = "mqadmin", "client-under-mqadmin", "client-pull", "client-push"


def decoded(frame: CapturedFrame) -> Command:
    """The command in a frame."""
    (command,) = FrameDecoder().receive(frame.raw)
    return command


class StockBroker:
    """Answers as a stock broker did: to each code its longest answer that is no refusal."""

    def __init__(self, version: str) -> None:
        self.asked: list[Command] = []
        self.answers: dict[int, Command] = {}
        self.fields: dict[int, set[str]] = {}
        for source in SOURCES:
            for frame in frames(f"{source}-{version}"):
                code = frame.request_code
                if not frame.is_answer:
                    self.fields.setdefault(code, set()).update(frame.ext)
                    continue
                answer = decoded(frame)
                before = self.answers.get(code)
                if answer.code == 0 and (before is None or len(answer.body) > len(before.body)):
                    self.answers[code] = answer

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        self.asked.append(command)
        return succeed(self.answers[command.code])


class BrokerAdminTests(SynchronousTestCase):
    def done(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.successResultOf(ensureDeferred(what))

    def test_stock_answers(self) -> None:
        """Answers of stock brokers are read."""
        for version in VERSIONS:
            stock: Any = StockBroker(version)
            broker = BrokerAdmin(ADDRESS, stock)
            facts = self.done(broker.facts())
            self.assertEqual(("rem-a", True), (facts.name, facts.is_master), version)
            self.assertIn("TBW102", self.done(broker.topics()))
            self.assertIn("TBW102", self.done(broker.own_topics()))
            self.assertIn("TOOLS_CONSUMER", self.done(broker.groups()))
            ends = self.done(broker.topic_stats("T")).offset_table.values()
            self.assertTrue(any(each.max_offset > 0 for each in ends), version)
            self.assertTrue(self.done(broker.consume_stats("G")).offset_table, version)
            self.assertTrue(self.done(broker.consumers("G")).connection_set, version)
            self.assertTrue(self.done(broker.groups_of("T")), version)
            (found, *_) = self.done(broker.with_key("T", "k", most=32))
            self.assertTrue(found.body_holds, version)
            pulled = self.done(broker.pull("T", 0, 0))
            self.assertEqual(pulled.next, pulled.records[-1].queue_offset + 1)
            self.assertGreaterEqual(self.done(broker.end("T", 0)), 0)
            self.assertGreaterEqual(self.done(broker.first("T", 0)), 0)

    def test_questions(self) -> None:
        """A question has all fields of 4.9's tools and clients; 5.x's brokers need no others."""
        stock: Any = StockBroker("4.9.7")
        broker = BrokerAdmin(ADDRESS, stock)
        for what in (
            broker.put_topic(TopicConfig(topic_name="T")),
            broker.put_group(GroupConfig(group_name="G")),
            broker.delete_group("G", offsets=True),
            broker.consume_stats("G", "T"),
            broker.topic_stats("T"),
            broker.pull("T", 0, 0),
            broker.with_key("T", "k", most=1),
        ):
            self.done(what)
        self.assertEqual([17, 200, 207, 208, 202, 11, 12], [each.code for each in stock.asked])
        for command in stock.asked:
            lacks = stock.fields[command.code] - set(command.ext) - {"ReqT", "bname"}
            self.assertEqual(set(), lacks, command.code)

    def test_refused(self) -> None:
        """A refusal is told with its address, numbers and remark, and what to do."""
        stock: Any = StockBroker("4.9.7")
        stock.answers[202] = Command(code=17, remark="No topic")
        told = self.failureResultOf(
            ensureDeferred(BrokerAdmin(ADDRESS, stock).topic_stats("T")), BrokerRefused
        ).getErrorMessage()
        self.assertEqual(
            f"{ADDRESS} answered request 202 (GET_TOPIC_STATS_INFO) with code 17: No topic; "
            "`rmqha topic list` names the topics",
            told,
        )

    def test_unreadable(self) -> None:
        """What is no answer to the question is told, and is no traceback."""
        stock: Any = StockBroker("4.9.7")
        broker = BrokerAdmin(ADDRESS, stock)
        for code, what in (
            (21, broker.topics()),
            (26, broker.facts()),
            (30, broker.end("T", 0)),
            (33, broker.at_byte(0)),
            (203, broker.consumers("G")),
        ):
            stock.answers[code] = Command(code=0, body=b"\xff" * 200)
            told = self.failureResultOf(ensureDeferred(what), AnswerUnreadable)
            self.assertIn(f"{ADDRESS} answered request {code} with", told.getErrorMessage())
