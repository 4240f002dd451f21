"""What tools are told about queues, groups, clients and the broker itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha import periodic
from rmqha.broker.meters.meters import DAY, HOUR, MINUTE, Meter, Meters
from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.periodic import SLICE
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.wire.columnar.queue_units import UNIT
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.clients import (
    ConsumerData,
    HeartbeatData,
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
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.pull import PullMessageRequest
from rmqha.wire.remoting.json_body import read, write
from tests.broker.support import NOW, SEND_V2, BrokerTestCase, Client, sending
from tests.support.frames import frames


class StatisticsTestCase(BrokerTestCase):
    """A broker with a topic of two queues, the first of which has three messages."""

    def begin(self, **settings: Any) -> Client:
        broker = self.broker(**settings)
        broker.counts.start()
        broker.counts.watch(broker.store.queues)
        self.addCleanup(broker.counts.stop)
        broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        client = self.client()
        for _ in range(3):
            client.ask(SEND_V2, sending("T"), b"0123456789")
            self.clock.advance(1)
        broker.offsets.commit("cg", "T", 0, 2, "test")
        return client

    def ask(self, code: int, **ext: str) -> Command:
        answer = self.client().ask(code, ext)
        assert answer is not None
        return answer

    def online(self, *topics: str) -> Client:
        client = self.client()
        wishes = tuple(SubscriptionData(topic=topic, sub_string="*") for topic in topics)
        body = HeartbeatData(
            client_id="c1",
            producer_data_set=(ProducerData(group_name="pg"),),
            consumer_data_set=(ConsumerData(group_name="cg", subscription_data_set=wishes),),
        )
        client.send(Command(code=RequestCode.HEART_BEAT, version=407, body=write(body)))
        client.heard()
        return client


def queue(queue_id: int) -> MessageQueue:
    """A queue of the topic."""
    return MessageQueue("broker-a", queue_id, "T")


class QueueTests(StatisticsTestCase):
    """Codes 202, 208, 303, 317 and 321."""

    def test_topic(self) -> None:
        """202: each queue's range and when it was last written to."""
        self.begin()
        table = read(TopicStats, self.ask(202, topic="T").body).offset_table
        one, two = table[queue(0)], table[queue(1)]
        self.assertEqual((one.min_offset, one.max_offset), (0, 3))
        self.assertEqual(one.last_update_timestamp, NOW + 2000)
        self.assertEqual((two.max_offset, two.last_update_timestamp), (0, 0))
        unknown = self.ask(202, topic="nope")
        self.assertEqual((unknown.code, unknown.remark), (17, "topic[nope] not exist"))

    def test_group(self) -> None:
        """208: how far a group is, and when what it has was stored."""
        self.begin()
        for ext in ({}, {"topic": "T"}, {"topicList": "T;"}):
            stats = read(ConsumeStats, self.ask(208, consumerGroup="cg", **ext).body)
            self.assertEqual(
                stats.offset_table,
                {
                    queue(0): GroupOffset(
                        broker_offset=3, consumer_offset=2, last_timestamp=NOW + 1000, pull_offset=2
                    ),
                    queue(1): GroupOffset(pull_offset=0),
                },
            )
        unknown = self.ask(208, consumerGroup="nope")
        self.assertEqual(fastjson.loads(unknown.body), {"consumeTps": 0.0, "offsetTable": {}})

    def test_no_longer_subscribed(self) -> None:
        """A topic an online group does not subscribe any more is left out."""
        self.begin()
        self.online("Other")
        self.assertEqual(
            read(ConsumeStats, self.ask(208, consumerGroup="cg").body).offset_table, {}
        )

    def test_all_groups(self) -> None:
        """317: the same of all groups, with what they lack in all."""
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
        """303: store times of a queue, and of where a group is in it."""
        self.begin()
        body = read(ConsumeTimeSpan, self.ask(303, topic="T", group="cg").body)
        span, empty = body.consume_time_span_set
        self.assertEqual((span.min_time_stamp, span.max_time_stamp), (NOW, NOW + 2000))
        self.assertEqual((span.consume_time_stamp, span.delay_time), (NOW + 1000, 0))
        self.assertEqual((empty.min_time_stamp, empty.delay_time), (0, 0))
        self.assertEqual(self.ask(303, topic="nope", group="cg").code, 17)

    def test_units(self) -> None:
        """321: units as they are, and whether a group gets them."""
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
        self.assertEqual((plain.filter_data, offline.filter_data), (None, "cg@T is not online!"))
        self.online("T")
        online = read(QueueUnits, self.ask(321, consumerGroup="cg", **ext).body)
        self.assertTrue(online.queue_data[0].eval)
        self.assertEqual(online.filter_data, "null")
        assert online.subscription_data is not None
        self.assertEqual(online.subscription_data.topic, "T")

    def test_no_units(self) -> None:
        """What is not there is told as a stock broker does."""
        self.begin()
        for ext, code, remark in (
            ({"topic": "T", "queueId": "7", "index": "0"}, 1, "7@T is not exist!"),
            ({"topic": "T", "queueId": "0", "index": "3"}, 0, "Index 3 of 0@T is not exist!"),
            ({"topic": "T", "queueId": "0", "index": "-1"}, 0, "Index -1 of 0@T is not exist!"),
        ):
            answer = self.ask(321, count="1", **ext)
            self.assertEqual((answer.code, answer.remark), (code, remark))


class ClientTests(StatisticsTestCase):
    """Codes 203, 204 and 328."""

    def test_consumers(self) -> None:
        """203: with the members of a stock broker's answer."""
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
        """204 and 328: who sends."""
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
    """Codes 28, 907 and 315."""

    def test_keys(self) -> None:
        """All of a stock broker's keys are there, of 4.9 and of 5.x."""
        self.begin()
        table: Any = fastjson.loads(self.ask(28).body)["table"]
        moving = re.compile("scheduleMessageOffset_|commitLogDiskRatio_")
        # Where 5.x's own timer's messages go, which nobody but it has.
        own = {"timerTopicBacklogDistribution", "isColdDataFlowCtrEnable", "coldDataFlowCtr"}
        for version in ("4.9.7", "5.3.3"):
            stock: Any = next(
                fastjson.loads(frame.body)["table"]
                for frame in frames(f"mqadmin-{version}")
                if frame.is_answer and frame.request_code == 28
            )
            expected = {key for key in stock if not moving.match(key)}
            self.assertEqual(expected - table.keys() - own, set(), version)
        self.assertTrue(all(isinstance(value, str) for value in table.values()))

    def test_timers(self) -> None:
        """Of timer messages it tells how many a second came to wait, and were delivered."""
        client = self.begin()
        counts = self.serving.counts
        counts.start()
        self.addCleanup(counts.stop)
        self.assertEqual([0.0, 0.0], self.timer_rates())
        ext = sending("T", properties={"TIMER_DELAY_MS": "60000"})
        client.ask(SEND_V2, ext, b"later")
        self.clock.pump([1.0] * 20)
        waiting, delivered = self.timer_rates()
        self.assertGreater(waiting, 0.0)
        self.assertEqual(0.0, delivered)
        counts.delivered.add(3)
        self.clock.pump([1.0] * 20)
        self.assertGreater(self.timer_rates()[1], 0.0)

    def timer_rates(self) -> list[float]:
        """Enqueued and dequeued a second."""
        table: Any = fastjson.loads(self.ask(28).body)["table"]
        return [float(table[f"timer{name}queueTps"]) for name in ("En", "De")]

    def test_identity(self) -> None:
        """A broker tells its name, id, run and master epoch, which a slave's question reads."""
        self.begin()
        epochs = self.serving.epochs
        epochs.become(epochs.journal.raised(500).raised(900))
        found = MasterBounds.of_runtime(self.ask(28).body).identity
        self.assertEqual((found.name, found.id, found.run_id), ("broker-a", 0, epochs.run_id))
        self.assertEqual((found.epoch, found.starts), (2, epochs.journal.starts))

    def test_times(self) -> None:
        """How long writes took is told: the distribution, the slowest, and how many failed."""
        client = self.begin()
        self.writer.outcome = Deferred()
        client.send(Command(code=SEND_V2, opaque=99, ext=sending("T"), body=b"slow"))
        self.clock.advance(0.3)
        self.writer.outcome.callback(PutStatus.PUT_OK)
        self.writer.outcome = PutStatus.PUT_OK
        client.heard()
        client.ask(SEND_V2, sending("T"), bytes(200_000))
        table: Any = fastjson.loads(self.ask(28).body)["table"]
        self.assertIn("[<=0ms]:3 [0~10ms]:0 ", table["putMessageDistributeTime"])
        self.assertIn(" [200~500ms]:1 ", table["putMessageDistributeTime"])
        self.assertEqual(table["putMessageEntireTimeMax"], "300")
        self.assertEqual(table["putLatency999"], "300.00")
        self.assertEqual(table["putMessageFailedTimes"], "1")

    def test_rates(self) -> None:
        """Rates are of the last 10, 60 and 600 seconds."""
        self.begin()
        self.clock.pump([1.0] * 57)
        table: Any = fastjson.loads(self.ask(28).body)["table"]
        rates = [float(rate) for rate in table["putTps"].split()]
        self.assertEqual((rates[0], rates[1] > 0, rates[1]), (0.0, True, rates[2]))

    def test_slave(self) -> None:
        """A slave is not active, and counts what is replicated to it."""
        self.broker(slave=True)
        self.serving.counts.watch(self.serving.store.queues)
        came(self.serving.store.queues, 4)
        table: Any = fastjson.loads(self.ask(28).body)["table"]
        self.assertEqual((table["brokerActive"], table["msgPutTotalTodayNow"]), ("false", "4"))

    def test_values(self) -> None:
        """What a slave of ours and the tools rely on is true."""
        self.begin()
        self.clock.advance(10)
        body = self.ask(28).body
        log = self.serving.store.log
        bounds = MasterBounds.of_runtime(body)
        self.assertEqual((bounds.min_offset, bounds.max_offset), (log.min_offset, log.end))
        table: Any = fastjson.loads(body)["table"]
        self.assertEqual(table["earliestMessageTimeStamp"], str(NOW))
        self.assertEqual((table["msgPutTotalTodayNow"], table["brokerActive"]), ("3", "true"))
        self.assertEqual(len(table["getTransferedTps"].split()), 3)
        self.assertEqual(table["getTransferedTps"], table["getTransferredTps"])

    def test_empty(self) -> None:
        """Of an empty log the bounds are 0."""
        self.broker()
        bounds = MasterBounds.of_runtime(self.ask(28).body)
        self.assertEqual((bounds.min_offset, bounds.max_offset), (0, 0))

    def test_delayed(self) -> None:
        """Levels with messages are listed."""
        client = self.begin()
        properties = {"UNIQ_KEY": "U", "DELAY": "3"}
        client.ask(SEND_V2, sending("T", properties=properties), b"later")
        self.clock.advance(0.01)
        table: Any = fastjson.loads(self.ask(28).body)["table"]
        self.assertEqual(table["scheduleMessageOffset_3"], "0,1")

    def test_ha(self) -> None:
        """907: with the members of a stock broker's answer."""
        self.begin()
        found: Any = fastjson.loads(self.ask(907).body)
        stock: Any = next(
            fastjson.loads(frame.body)
            for frame in frames("mqadmin-5.3.3")
            if frame.is_answer and frame.request_code == 907
        )
        self.assertEqual(found.keys(), stock.keys())

    def test_counted(self) -> None:
        """315: what was counted in the last minute."""
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

    def sum(self, name: str, key: str) -> int:
        """315: what was counted in the last minute."""
        answer = self.ask(315, statsName=name, statsKey=key)
        self.assertEqual(answer.code, 0, answer.remark)
        body: Any = fastjson.loads(answer.body)
        return int(body["statsMinute"]["sum"])

    def test_sizes(self) -> None:
        """315: bytes in are those of the records, by topic and by queue."""
        self.begin()
        self.clock.pump([10.0] * 2)
        self.assertEqual(self.sum("TOPIC_PUT_SIZE", "T"), self.serving.store.log.end)
        self.assertEqual(self.sum("QUEUE_PUT_SIZE", "T@0"), self.serving.store.log.end)

    def test_pulled(self) -> None:
        """315 and 208: messages and bytes out, and where the next pull begins."""
        client = self.begin()
        ext = to_ext(
            PullMessageRequest(
                consumer_group="cg", topic="T", queue_id=0, queue_offset=0, max_msg_nums=3,
                sys_flag=4, commit_offset=0, suspend_timeout_millis=0, subscription="*",
                sub_version=0, expression_type="TAG",
            )
        )  # fmt: skip
        answer = client.ask(RequestCode.PULL_MESSAGE, ext)
        assert answer is not None
        self.clock.pump([10.0] * 2)
        self.assertEqual(self.sum("GROUP_GET_NUMS", "T@cg"), 3)
        self.assertEqual(self.sum("GROUP_GET_SIZE", "T@cg"), len(answer.body))
        self.assertEqual(self.sum("QUEUE_GET_SIZE", "T@0@cg"), len(answer.body))
        row = read(ConsumeStats, self.ask(208, consumerGroup="cg").body).offset_table[queue(0)]
        self.assertEqual((row.consumer_offset, row.pull_offset), (2, 3))

    def test_sent_back(self) -> None:
        """315: what consumers gave back, by the topic it first was in."""
        client = self.begin()
        place = self.record("T").offset
        back = {"offset": str(place), "group": "cg", "delayLevel": "1"}
        answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert answer is not None
        self.assertEqual(answer.code, 0, answer.remark)
        self.clock.pump([10.0] * 2)
        self.assertEqual(self.sum("SNDBCK_PUT_NUMS", "T@cg"), 1)

    def test_forgotten(self) -> None:
        """315: nothing of a deleted group or topic; the broker's own counts stay."""
        self.begin()
        counts = self.serving.counts
        counts.went("cg", "T", 0, 0, 2, 100)
        counts.went("0", "T", 0, 0, 2, 100)
        counts.sent_back("cg", "T")
        for group in ("cg", "0"):
            self.assertEqual(self.ask(207, groupName=group).code, 0)
        for name, key in (
            ("GROUP_GET_NUMS", "T@cg"),
            ("SNDBCK_PUT_NUMS", "T@cg"),
            ("QUEUE_GET_NUMS", "T@0@0"),
        ):
            self.assertEqual(self.ask(315, statsName=name, statsKey=key).code, 1, name)
        for name, key in (("TOPIC_PUT_NUMS", "T"), ("QUEUE_PUT_NUMS", "T@0")):
            self.assertEqual(self.ask(315, statsName=name, statsKey=key).code, 0, name)
        self.assertEqual((counts.pulled, self.ask(215, topic="T").code), ({}, 0))
        self.clock.pump([10.0])
        for name, key in (("TOPIC_PUT_NUMS", "T"), ("QUEUE_PUT_SIZE", "T@0")):
            self.assertEqual(self.ask(315, statsName=name, statsKey=key).code, 1, name)
        self.assertEqual(self.ask(315, statsName="BROKER_PUT_NUMS", statsKey="C").code, 0)


def came(queues: ConsumeQueues, count: int, queue_id: int = 0) -> None:
    """Let units of 100 bytes of log come to a queue."""
    queue = queues.create("T", queue_id)
    assert queue is not None
    queues.tally.add(queue, UNIT.pack(0, 100, 0) * count)


class MeterTests(SynchronousTestCase):
    def test_spans(self) -> None:
        """Each span counts what its own samples saw."""
        meter = Meter()
        for second in range(0, int(2 * HOUR) + 1, 10):
            meter.tick(float(second))
            meter.add(10)
        self.assertEqual((meter.over(MINUTE).sum, meter.over(MINUTE).tps), (60, 1.0))
        self.assertEqual((meter.over(MINUTE).avgpt, meter.over(HOUR).sum), (10.0, 3600))
        self.assertEqual(meter.over(DAY).sum, 7200)

    def test_nothing_yet(self) -> None:
        """Before there are two samples nothing is claimed."""
        meter = Meter()
        meter.add(3)
        self.assertEqual(meter.over(MINUTE).sum, 0)
        meter.tick(0.0)
        self.assertEqual(meter.over(MINUTE).sum, 0)

    def test_anew(self) -> None:
        """A queue that was removed and begins anew counts from there."""
        queues = ConsumeQueues(Path("nowhere"), 200)
        counts = Meters(Clock(), "C")
        counts.watch(queues)
        came(queues, 7)
        queues.destroy()
        came(queues, 3)
        self.assertEqual(counts.puts.total, 10)
        found = counts.meter("TOPIC_PUT_NUMS", "T")
        assert found is not None
        self.assertEqual(found.total, 3, "what was never looked at went with its queue")

    def test_before(self) -> None:
        """What came before is not counted."""
        queues = ConsumeQueues(Path("nowhere"), 200)
        came(queues, 7)
        counts = Meters(Clock(), "C")
        counts.watch(queues)
        self.assertEqual((counts.puts.total, counts.each("QUEUE_PUT_NUMS")), (0, ()))

    def test_first_minute(self) -> None:
        """A minute of a queue that is new begins when samples were taken last."""
        clock, queues = Clock(), ConsumeQueues(Path("nowhere"), 200)
        counts = Meters(clock, "C")
        counts.watch(queues)
        counts.start()
        clock.advance(7)
        came(queues, 5)
        clock.pump([3, 10])
        for name, each in (("TOPIC_PUT_NUMS", 1.0), ("TOPIC_PUT_SIZE", 100.0)):
            found = counts.meter(name, "T")
            assert found is not None
            over = found.over(MINUTE)
            self.assertEqual((over.sum, over.tps, over.avgpt), (5 * each, 5 * each / 20, each))
        counts.stop()

    def test_in_slices(self) -> None:
        """A sample of very many meters takes several reactor turns, and a stop waits for it."""
        clock = Clock()
        turns: list[Deferred[None]] = []
        queues = ConsumeQueues(Path("nowhere"), 200)
        counts = Meters(clock, "C")
        counts.watch(queues)
        for number in range(20):
            came(queues, 5, number)
        self.assertEqual(len(counts.each("QUEUE_PUT_NUMS")), 20)
        ticked: list[Meter] = []

        def tick(meter: Meter, now: float) -> None:
            ticked.append(meter)
            clock.rightNow += SLICE / 4

        def later(clock: Clock, delay: float) -> Deferred[None]:
            turns.append(Deferred())
            return turns[-1]

        self.patch(Meter, "tick", tick)
        self.patch(periodic, "deferLater", later)
        counts.start()
        stopped = counts.stop()
        before = 0
        for number in range(11):
            self.assertEqual(len(ticked) - before, 4)
            before = len(ticked)
            self.assertNoResult(stopped)
            turns[number].callback(None)
        self.successResultOf(stopped)
        self.assertEqual(len(set(map(id, ticked))), len(ticked))

    def test_midnight(self) -> None:
        """At midnight today becomes yesterday."""
        day = [1]
        queues = ConsumeQueues(Path("nowhere"), 200)
        counts = Meters(Clock(), "C", lambda: day[0])
        counts.watch(queues)
        came(queues, 5)
        counts.tick()
        day[0] = 2
        counts.tick()
        came(queues, 2)
        counts.tick()
        self.assertEqual((counts.puts.total, counts.puts.morning, counts.puts.yesterday), (7, 5, 0))
        day[0] = 3
        counts.tick()
        self.assertEqual((counts.puts.morning, counts.puts.yesterday), (7, 5))
