"""
What tools are told about queues, groups, clients and the broker itself.
"""

from __future__ import annotations

import re
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.counting import DAY, HOUR, MINUTE, Counts, Meter
from rmqha.ha.bounds import MasterBounds
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.clients import (
    ConsumerData,
    Heartbeat,
    ProducerData,
    SubscriptionData,
)
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.offsets import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpan,
    GroupOffset,
    TopicStats,
)
from rmqha.wire.remoting.bodies.status import QueueUnits
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import read, write
from tests.broker.support import NOW, SEND_V2, BrokerTestCase, Client, sending
from tests.support.frames import frames


class StatisticsTestCase(BrokerTestCase):
    """
    A broker with a topic of two queues, the first of which has three messages, a second apart.
    """

    def begin(self, **settings: Any) -> Client:
        """
        Serve.
        """
        broker = self.broker(**settings)
        broker.counts.start(broker.store.dispatcher, broker.store.queues)
        self.addCleanup(broker.counts.stop)
        broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        client = self.client()
        for _ in range(3):
            client.ask(SEND_V2, sending("T"), b"0123456789")
            self.clock.advance(1)
        broker.offsets.commit("cg", "T", 0, 2, "test")
        return client

    def ask(self, code: int, **ext: str) -> Command:
        """
        One request and its answer.
        """
        answer = self.client().ask(code, ext)
        assert answer is not None
        return answer

    def online(self, *topics: str) -> Client:
        """
        A client in both groups.
        """
        client = self.client()
        wishes = tuple(SubscriptionData(topic=topic, sub_string="*") for topic in topics)
        body = Heartbeat(
            client_id="c1",
            producer_data_set=(ProducerData(group_name="pg"),),
            consumer_data_set=(ConsumerData(group_name="cg", subscription_data_set=wishes),),
        )
        client.send(Command(code=RequestCode.HEART_BEAT, version=407, body=write(body)))
        client.heard()
        return client


def queue(queue_id: int) -> MessageQueue:
    """
    A queue of the topic.
    """
    return MessageQueue("broker-a", queue_id, "T")


class QueueTests(StatisticsTestCase):
    """
    Codes 202, 208, 303, 317 and 321.
    """

    def test_topic(self) -> None:
        """
        202: each queue's range and when it was last written to.
        """
        self.begin()
        table = read(TopicStats, self.ask(202, topic="T").body).offset_table
        one, two = table[queue(0)], table[queue(1)]
        self.assertEqual((one.min_offset, one.max_offset), (0, 3))
        self.assertEqual(one.last_update_timestamp, NOW + 2000)
        self.assertEqual((two.max_offset, two.last_update_timestamp), (0, 0))
        unknown = self.ask(202, topic="nope")
        self.assertEqual((unknown.code, unknown.remark), (17, "topic[nope] not exist"))

    def test_group(self) -> None:
        """
        208: how far a group is, and when what it has was stored.
        """
        self.begin()
        for ext in ({}, {"topic": "T"}, {"topicList": "T;"}):
            stats = read(ConsumeStats, self.ask(208, consumerGroup="cg", **ext).body)
            self.assertEqual(
                stats.offset_table,
                {
                    queue(0): GroupOffset(
                        broker_offset=3, consumer_offset=2, last_timestamp=NOW + 1000
                    ),
                    queue(1): GroupOffset(),
                },
            )
        unknown = self.ask(208, consumerGroup="nope")
        self.assertEqual(fastjson.loads(unknown.body), {"consumeTps": 0.0, "offsetTable": {}})

    def test_no_longer_subscribed(self) -> None:
        """
        A topic an online group does not subscribe any more is left out.
        """
        self.begin()
        self.online("Other")
        self.assertEqual(
            read(ConsumeStats, self.ask(208, consumerGroup="cg").body).offset_table, {}
        )

    def test_all_groups(self) -> None:
        """
        317: the same of all groups, with what they lack in all.
        """
        self.begin()
        self.serving.groups.find("cg")
        found = read(ConsumeStatsList, self.ask(317, isOrder="false").body)
        self.assertEqual((found.broker_addr, found.total_diff), ("10.0.0.9:10911", 1))
        rows = {name: stats for row in found.consume_stats_list for name, stats in row.items()}
        self.assertIn(queue(0), rows["cg"][0].offset_table)
        self.assertEqual(rows["SELF_TEST_C_GROUP"], ())
        ordered = read(ConsumeStatsList, self.ask(317, isOrder="true").body)
        self.assertEqual(ordered.total_diff, 0)

    def test_time_span(self) -> None:
        """
        303: store times of a queue, and of where a group is in it.
        """
        self.begin()
        body = read(ConsumeTimeSpan, self.ask(303, topic="T", group="cg").body)
        span, empty = body.consume_time_span_set
        self.assertEqual((span.min_time_stamp, span.max_time_stamp), (NOW, NOW + 2000))
        self.assertEqual((span.consume_time_stamp, span.delay_time), (NOW + 1000, 0))
        self.assertEqual((empty.min_time_stamp, empty.delay_time), (0, 0))
        self.assertEqual(self.ask(303, topic="nope", group="cg").code, 17)

    def test_units(self) -> None:
        """
        321: units as they are, and whether a group gets them.
        """
        self.begin()
        ext = {"topic": "T", "queueId": "0", "index": "1", "count": "9"}
        plain = read(QueueUnits, self.ask(321, **ext).body)
        self.assertEqual((plain.min_queue_index, plain.max_queue_index), (0, 3))
        self.assertEqual(len(plain.queue_data), 2)
        record = self.record("T", 0, 1)
        unit = plain.queue_data[0]
        self.assertEqual((unit.physic_offset, unit.physic_size), (record.offset, record.size))
        self.assertFalse(unit.eval)
        offline = read(QueueUnits, self.ask(321, consumerGroup="cg", **ext).body)
        self.assertEqual(offline.filter_data, "cg@T is not online!")
        self.online("T")
        online = read(QueueUnits, self.ask(321, consumerGroup="cg", **ext).body)
        self.assertTrue(online.queue_data[0].eval)
        assert online.subscription_data is not None
        self.assertEqual(online.subscription_data.topic, "T")

    def test_no_units(self) -> None:
        """
        What is not there is told as a stock broker does.
        """
        self.begin()
        for ext, code, remark in (
            ({"topic": "T", "queueId": "7", "index": "0"}, 1, "7@T is not exist!"),
            ({"topic": "T", "queueId": "0", "index": "3"}, 0, "Index 3 of 0@T is not exist!"),
            ({"topic": "T", "queueId": "0", "index": "-1"}, 0, "Index -1 of 0@T is not exist!"),
        ):
            answer = self.ask(321, count="1", **ext)
            self.assertEqual((answer.code, answer.remark), (code, remark))


class ClientTests(StatisticsTestCase):
    """
    Codes 203, 204 and 328.
    """

    def test_consumers(self) -> None:
        """
        203: with the members of a stock broker's answer.
        """
        self.begin()
        self.online("T")
        found: Any = fastjson.loads(self.ask(203, consumerGroup="cg").body)
        stock: Any = next(
            fastjson.loads(frame.body)
            for frame in frames("mqadmin-4.9.7")
            if frame.is_answer and frame.request_code == 203 and frame.body
        )
        self.assertEqual(found.keys(), stock.keys())
        self.assertEqual(found["connectionSet"][0].keys(), stock["connectionSet"][0].keys())
        self.assertEqual(found["connectionSet"][0]["clientAddr"], "10.1.2.3:40000")
        mine = found["subscriptionTable"]["T"]
        theirs = next(iter(stock["subscriptionTable"].values()))
        self.assertEqual(mine.keys(), theirs.keys())
        offline = self.ask(203, consumerGroup="nope")
        self.assertEqual(
            (offline.code, offline.remark), (206, "the consumer group[nope] not online")
        )

    def test_producers(self) -> None:
        """
        204 and 328: who sends.
        """
        self.begin()
        self.online("T")
        self.clock.advance(7)
        client = {
            "clientAddr": "10.1.2.3:40000",
            "clientId": "c1",
            "language": "PYTHON",
            "version": 407,
        }
        found = fastjson.loads(self.ask(204, producerGroup="pg").body)
        self.assertEqual(found, {"connectionSet": [client]})
        table: Any = fastjson.loads(self.ask(328).body)
        self.assertEqual(
            table["data"]["pg"],
            [
                {
                    "clientId": "c1",
                    "language": "PYTHON",
                    "lastUpdateTimestamp": NOW + 3000,
                    "remoteIP": "/10.1.2.3:40000",
                    "version": 407,
                }
            ],
        )
        nobody = self.ask(204, producerGroup="nope")
        self.assertEqual((nobody.code, nobody.remark), (1, "the producer group[nope] not exist"))


class RuntimeTests(StatisticsTestCase):
    """
    Codes 28, 907 and 315.
    """

    NOT_MEASURED = frozenset(
        {
            "putMessageDistributeTime",
            "putMessageFailedTimes",
            "putMessageEntireTimeMax",
            "getMessageEntireTimeMax",
            "putLatency99",
            "putLatency999",
            "sendThreadPoolQueueCapacity",
            "pullThreadPoolQueueCapacity",
            "queryThreadPoolQueueCapacity",
            "EndTransactionThreadPoolQueueCapacity",
        }
    )

    def test_keys(self) -> None:
        """
        All of a stock broker's keys are there, but for those that would have to be invented.
        """
        self.begin()
        table: Any = fastjson.loads(self.ask(28).body)["table"]
        stock: Any = next(
            fastjson.loads(frame.body)["table"]
            for frame in frames("mqadmin-4.9.7")
            if frame.is_answer and frame.request_code == 28
        )
        moving = re.compile("scheduleMessageOffset_|commitLogDiskRatio_")
        expected = {key for key in stock if not moving.match(key)} - self.NOT_MEASURED
        self.assertEqual(expected - table.keys(), set())
        self.assertTrue(all(isinstance(value, str) for value in table.values()))

    def test_values(self) -> None:
        """
        What a slave of ours and the tools rely on is true.
        """
        self.begin()
        self.clock.advance(10)
        body = self.ask(28).body
        log = self.serving.store.log
        bounds = MasterBounds.of_runtime(body)
        self.assertEqual((bounds.min_offset, bounds.max_offset), (log.min_offset, log.end))
        table: Any = fastjson.loads(body)["table"]
        self.assertEqual(table["earliestMessageTimeStamp"], str(NOW))
        self.assertEqual(table["msgPutTotalTodayNow"], "3")
        self.assertEqual(table["brokerActive"], "true")
        self.assertEqual(len(table["getTransferedTps"].split()), 3)
        self.assertEqual(table["getTransferedTps"], table["getTransferredTps"])

    def test_empty(self) -> None:
        """
        Of an empty log the bounds are 0.
        """
        self.broker()
        bounds = MasterBounds.of_runtime(self.ask(28).body)
        self.assertEqual((bounds.min_offset, bounds.max_offset), (0, 0))

    def test_delayed(self) -> None:
        """
        Levels with messages are listed.
        """
        client = self.begin()
        properties = {"UNIQ_KEY": "U", "DELAY": "3"}
        client.ask(SEND_V2, sending("T", properties=properties), b"later")
        self.clock.advance(0.01)
        table: Any = fastjson.loads(self.ask(28).body)["table"]
        self.assertEqual(table["scheduleMessageOffset_3"], "0,1")

    def test_ha(self) -> None:
        """
        907: with the members of a stock broker's answer.
        """
        self.begin()
        found: Any = fastjson.loads(self.ask(907).body)
        stock: Any = next(
            fastjson.loads(frame.body)
            for frame in frames("mqadmin-5.3.3")
            if frame.is_answer and frame.request_code == 907
        )
        self.assertEqual(found.keys(), stock.keys())

    def test_counted(self) -> None:
        """
        315: what was counted in the last minute.
        """
        self.begin()
        self.clock.pump([10.0] * 6)
        ext = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}
        body: Any = fastjson.loads(self.ask(315, **ext).body)
        self.assertEqual(body["statsMinute"]["sum"], 3)
        self.clock.pump([10.0] * 12)
        body = fastjson.loads(self.ask(315, **ext).body)
        self.assertEqual(body["statsMinute"]["sum"], 0)
        unknown = self.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="nope")
        self.assertEqual(
            (unknown.code, unknown.remark), (1, "The stats <TOPIC_PUT_NUMS> <nope> not exist")
        )


class MeterTests(SynchronousTestCase):
    """
    Counting over time.
    """

    def test_spans(self) -> None:
        """
        Each span counts what its own samples saw.
        """
        meter = Meter()
        for second in range(0, int(2 * HOUR) + 1, 10):
            meter.tick(float(second))
            meter.add(10)
        self.assertEqual(meter.over(MINUTE).sum, 60)
        self.assertEqual(meter.over(MINUTE).tps, 1.0)
        self.assertEqual(meter.over(MINUTE).avgpt, 10.0)
        self.assertEqual(meter.over(HOUR).sum, 3600)
        self.assertEqual(meter.over(DAY).sum, 7200)
        self.assertEqual((meter.rate(10.0), meter.rate(600.0)), (1.0, 1.0))

    def test_nothing_yet(self) -> None:
        """
        Before there are two samples nothing is claimed.
        """
        meter = Meter()
        meter.add(3)
        self.assertEqual((meter.over(MINUTE).sum, meter.rate(10.0)), (0, 0.0))
        meter.tick(0.0)
        self.assertEqual((meter.over(MINUTE).sum, meter.rate(10.0)), (0, 0.0))

    def test_midnight(self) -> None:
        """
        At midnight today becomes yesterday.
        """
        day = [1]
        counts = Counts(Clock(), "C", lambda: day[0])
        counts.came("T", 0, 5)
        counts.tick()
        day[0] = 2
        counts.tick()
        counts.came("T", 0, 7)
        counts.tick()
        self.assertEqual((counts.puts.total, counts.puts.morning, counts.puts.yesterday), (7, 5, 0))
        day[0] = 3
        counts.tick()
        self.assertEqual((counts.puts.morning, counts.puts.yesterday), (7, 5))
