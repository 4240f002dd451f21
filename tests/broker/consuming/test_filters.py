"""Pulls with a filter over properties."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from rmqha.config.broker_settings import PullSettings
from rmqha.wire.remoting.bodies.clients import CheckClientConfig, SubscriptionData
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write
from rmqha.wire.sql92.filter import WORK
from tests.broker.consumer_side import (
    GROUP,
    TOPIC,
    Consuming,
    ConsumingTestCase,
    bodies,
    heartbeat,
    pull,
    wants,
)

FILTERS = PullSettings(property_filter=True)
SUSPEND = 4 | 2
UNSUPPORTED = "The broker does not support consumer to filter message by SQL92"


def passing(expression: str, version: int = 1) -> SubscriptionData:
    """A subscription with a filter."""
    return evolve(wants(expression, version=version), expression_type="SQL92")


def sql(expression: str, offset: int = 0, **more: Any) -> Command:
    """A pull with a filter."""
    return pull(offset, subscription=expression, expression_type="SQL92", **more)


class FilterTestCase(ConsumingTestCase):
    """A broker whose consumers may filter, and one of them."""

    def setUp(self) -> None:
        self.serve()

    def serve(self, **more: Any) -> None:
        self.broker: Consuming = self.consuming(**({"settings": FILTERS} | more))
        self.peer = self.broker.peer()

    def put(self, *prices: int) -> None:
        for price in prices:
            self.broker.put(b"%d" % price, price=str(price))
        self.broker.dispatch()

    def found(self, command: Command) -> tuple[list[bytes], str]:
        """What a pull gets, and where it goes on."""
        answer = self.ask(self.peer, command)
        return bodies(answer), answer.ext["nextBeginOffset"]

    def said(self, command: Command) -> tuple[int, str]:
        answer = self.ask(self.peer, command)
        return answer.code, str(answer.remark)


class PullTests(FilterTestCase):
    def test_matching(self) -> None:
        """Only messages that match come, in order, and the rest is passed over."""
        self.put(5, 50, 7, 70, 8)
        self.assertEqual(self.found(sql("price > 10")), ([b"50", b"70"], "5"))
        self.assertEqual(self.found(sql("price > 10", 2)), ([b"70"], "5"))
        self.assertEqual(self.found(sql("price > 10", max_msg_nums=1)), ([b"50"], "3"))

    def test_nothing_matches(self) -> None:
        """The consumer is told where to go on."""
        self.put(5, 7)
        answer = self.ask(self.peer, sql("price > 10"))
        self.assert_answer(answer, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        self.assertEqual(answer.ext["nextBeginOffset"], "2")

    def test_in_several_pieces(self) -> None:
        """Messages of other queues between them are no matter, nor is the room of an answer."""
        for number in range(12):
            self.broker.put(bytes(100), queue_id=number % 2, price=str(number))
        self.broker.dispatch()
        answer = self.ask(self.peer, sql("price BETWEEN 3 AND 8", max_msg_bytes=500))
        self.assertEqual((len(bodies(answer)), answer.ext["nextBeginOffset"]), (2, "4"))

    def test_by_heartbeat(self) -> None:
        """The filter of a consumer's heartbeat is its pulls' filter; an older one is not."""
        self.put(5, 50)
        self.ask(self.peer, heartbeat("c1", passing("price > 10", version=2)))
        registered = pull(sys_flag=0, sub_version=2, subscription=None)
        self.assertEqual(self.found(registered), ([b"50"], "2"))
        newer = pull(sys_flag=0, sub_version=3, subscription=None)
        code, _ = self.said(newer)
        self.assertEqual(code, ResponseCode.SUBSCRIPTION_NOT_LATEST)

    def test_slave(self) -> None:
        """A slave filters too."""
        self.serve(slave=True)
        self.put(5, 50)
        self.assertEqual(self.found(sql("price > 10")), ([b"50"], "2"))

    def test_work(self) -> None:
        """However few messages match, one pull looks at so many that others can be answered."""
        many = WORK // 20
        for number in range(many):
            self.broker.put(b"x", price=f"5.{number}", pad="x" * (number % 7))
        self.broker.dispatch()
        offset, rounds = 0, 0
        while offset < many:
            none, then = self.found(sql("price > 10 OR price < 1", offset))
            self.assertEqual(none, [])
            self.assertGreater(int(then), offset)
            offset, rounds = int(then), rounds + 1
        self.assertGreater(rounds, 1)
        simple = int(self.found(sql("price > 10"))[1])
        self.assertLess(int(self.found(sql(" OR ".join(["price > 10"] * 200)))[1]), simple // 4)

    def test_damage(self) -> None:
        """A message that is not what its unit says is told of, not passed over as no match."""
        self.put(5, 6)
        log = self.broker.store.log.folder.at(0).path
        with open(log, "r+b") as file:
            file.seek(4)
            file.write(b"\0\0\0\0")
        code, remark = self.said(sql("price > 10"))
        self.assertEqual(code, ResponseCode.SYSTEM_ERROR)
        self.assertIn("is not served", remark)
        self.flushLoggedErrors()

    def test_doubt(self) -> None:
        """Nor is one passed over whose properties may have been others."""
        self.put(50, 5, 70)
        at = self.broker.store.log.end // 2
        self.broker.served.damage = lambda start, stop: "at rest" * (start <= at < stop)
        self.assertEqual(self.found(sql("price > 10")), ([b"50"], "1"))
        self.assertEqual(self.said(sql("price > 10", 1))[0], ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.found(sql("price > 10", 2)), ([b"70"], "3"))


class RefusalTests(FilterTestCase):
    """What is answered to filters that are none."""

    def check(self, expression: str) -> tuple[int, str]:
        body = CheckClientConfig(client_id="c", group=GROUP, subscription_data=passing(expression))
        return self.said(Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=write(body)))

    def test_off(self) -> None:
        """Without enablePropertyFilter there are no filters, as with stock brokers."""
        self.serve(settings=PullSettings())
        self.ask(self.peer, heartbeat("c1", passing("price > 10")))
        registered = pull(sys_flag=0, subscription=None)
        for refused in (self.said(sql("a > 1")), self.said(registered), self.check("a > 1")):
            self.assertEqual(refused, (ResponseCode.SYSTEM_ERROR, UNSUPPORTED))

    def test_switched_on(self) -> None:
        """When they are allowed, consumers that said theirs before need not say it again."""
        self.serve(settings=PullSettings())
        self.put(5, 50)
        self.ask(self.peer, heartbeat("c1", passing("price > 10")))
        self.broker.apply(FILTERS)
        self.assertEqual(self.found(pull(sys_flag=0, subscription=None)), ([b"50"], "2"))

    def test_fault(self) -> None:
        """One that cannot be read is refused with the place, and nothing is sent instead."""
        self.put(50)
        where = (
            "parse the consumer's subscription failed: invalid SQL92 filter at character 9: "
            "found the end, expected a value"
        )
        for refused in (self.said(sql("price > ")), self.check("price > ")):
            self.assertEqual(refused, (ResponseCode.SUBSCRIPTION_PARSE_FAILED, where))
        told = self.ask(self.peer, heartbeat("c1", passing("price > "), wants(topic="Other")))
        self.assertEqual(told.code, 0)
        registered = self.said(pull(sys_flag=0, subscription=None))
        self.assertEqual(registered, (ResponseCode.FILTER_DATA_NOT_EXIST, where))
        self.assertEqual(self.check("price > 5")[0], 0)

    def test_empty(self) -> None:
        """No filter at all is not one for everything."""
        for expression in ("", None, "*"):
            code, _ = self.said(pull(subscription=expression, expression_type="SQL92"))
            self.assertEqual(code, ResponseCode.SUBSCRIPTION_PARSE_FAILED, expression)


class HoldTests(FilterTestCase):
    def hold(self, offset: int = 0) -> None:
        """A pull that finds nothing and waits."""
        self.peer.send(sql("price > 10", offset, sys_flag=SUSPEND))
        self.broker.flush()
        self.assertEqual(self.peer.sent(), [])

    def answer(self) -> Command:
        self.broker.flush()
        (answer,) = self.peer.sent()
        return answer

    def test_wanted(self) -> None:
        """A message that matches ends the wait at once, one that does not leaves it be."""
        self.put(50)
        self.hold(1)
        self.put(5)
        self.assertEqual(self.peer.sent(), [])
        self.put(60)
        answer = self.answer()
        self.assertEqual((bodies(answer), answer.ext["nextBeginOffset"]), ([b"60"], "3"))

    def test_unwanted(self) -> None:
        """A consumer is told soon to go on behind what does not match."""
        self.put(50)
        self.hold(1)
        self.put(5, 6, 7)
        self.broker.clock.advance(4.9)
        self.assertEqual(self.peer.sent(), [])
        self.broker.clock.advance(0.1)
        answer = self.answer()
        self.assert_answer(answer, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        self.assertEqual(answer.ext["nextBeginOffset"], "4")

    def test_new_queue(self) -> None:
        """So it is with a queue that does not exist yet."""
        self.hold()
        self.put(5)
        self.assertEqual(self.peer.sent(), [])
        self.put(50)
        self.assertEqual(bodies(self.answer()), [b"50"])

    def test_many(self) -> None:
        """More than can be looked at in one go ends the wait, and the consumer goes on itself."""
        self.put(50)
        self.hold(1)
        for _ in range(WORK // 20):
            self.broker.put(b"x", price="5", topic=TOPIC)
        self.broker.dispatch()
        answer = self.answer()
        self.assertEqual(answer.code, ResponseCode.PULL_RETRY_IMMEDIATELY)
        self.assertGreater(int(answer.ext["nextBeginOffset"]), 1)
