"""Which messages wait, what is answered to them, and a stock 5.3.3 broker's stores."""

from __future__ import annotations

import gzip
import json
from base64 import urlsafe_b64decode
from pathlib import Path
from struct import unpack, unpack_from
from typing import Any, ClassVar

from twisted.internet.defer import Deferred

from lab.harness import golden
from rmqha.config.broker_settings import BrokerSettings, TimerSettings
from rmqha.wire.log.encode import MAX_PROPERTIES
from rmqha.wire.log.record import Record
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from tests.broker.support import NOW, SEND_BATCH, SEND_V2, batch, properties, sending
from tests.broker.timer.support import TimerTestCase

FRAMES = Path(__file__).resolve().parents[2] / "data" / "timer" / "frames.jsonl.gz"

DIFFERENT = {
    "delete with the bare unique key (4.x/5.0 style)": 13,
    "transaction half with TIMER_DELAY_SEC 3": 13,
    "commit of it": 1,
}
"""Where a stock broker answers 0: what it takes cancels nothing, and is lost."""


class AcceptanceTests(TimerTestCase):
    """Single messages and batches."""

    def test_past(self) -> None:
        """What is due already is stored as it is, at once."""
        self.begin()
        for more in (
            {"TIMER_DELAY_SEC": "0"},
            {"TIMER_DELAY_MS": "-5"},
            {"TIMER_DELIVER_MS": str(NOW)},
            {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "7"},
        ):
            answer = self.send(b"x", **more)
            self.assertEqual(answer.code, 0)
            self.assertNotIn("recallHandle", answer.ext)
        self.passes(0.02)
        self.assertEqual(len(self.got()), 4)
        self.assertEqual(self.waiting(), [])

    def test_refused(self) -> None:
        """What is no time, or too far away, is refused, and so is all where it is switched off."""
        self.begin()
        for more in (
            {"TIMER_DELAY_SEC": "abc"},
            {"TIMER_DELAY_SEC": "259201"},
            {"TIMER_DELAY_MS": "9" * 30},
            {"TIMER_DELAY_SEC": "-5", "TIMER_DEL_UNIQKEY": "T+1"},
        ):
            answer = self.send(b"x", **more)
            self.assertEqual(answer.code, 13, more)
            self.assertIn("max delay 259200000ms;", answer.remark or "")
        self.again(timers=TimerSettings(enabled=False))
        answer = self.send(b"x", TIMER_DELAY_SEC="5")
        self.assertEqual(
            (answer.code, answer.remark),
            (1, "accurate timer message is not enabled, timerWheelEnable is false"),
        )
        self.assertEqual((self.got(), self.waiting()), ([], []))

    def test_largest(self) -> None:
        """What is accepted comes, however little room is left for what is said of its times; with
        a body and properties that are as large as may be, and where it is stored anew.
        """
        for more in (2000, 12_000):
            self.begin(timers=TimerSettings(roll_window=3))
            taken, topic = set(), f"T{more}"
            for size in range(MAX_PROPERTIES - 400, MAX_PROPERTIES + 1, 5):
                body = b"%d" % size + bytes(60_000)
                told = {"TIMER_DELAY_MS": str(more), "pad": "p" * (size - 60)}
                if not self.send(body, topic, **told).code:
                    taken.add(body)
            self.assertGreater(len(taken), 20)
            self.skips(more / 1000 + 1)
            self.assertEqual(sorted(taken), sorted(self.got(topic)))
            self.assertEqual(self.serving.timers.waiting.undeliverable, 0)
            self.stop()

    def test_level_wins(self) -> None:
        """A delay level takes the other times away."""
        self.begin()
        self.send(b"x", TIMER_DELAY_SEC="30", DELAY="1")
        self.skips(1.1)
        (waited,) = self.records(SCHEDULE_TOPIC)
        self.assertNotIn("TIMER_DELAY_SEC", waited.properties)
        self.assertEqual(self.got(), [b"x"])

    def test_half(self) -> None:
        """A message of a transaction may not wait: stock brokers lose it."""
        self.begin()
        answer = self.send(b"x", TIMER_DELAY_SEC="3", TRAN_MSG="true", PGROUP="pg")
        self.assertEqual(answer.code, 13)
        self.assertIn("cannot be part of a transaction", answer.remark or "")

    def test_batch(self) -> None:
        """Each message of a batch waits by itself, and may say nothing of that by itself."""
        self.begin()
        ext = sending("T", batch=True, properties={"TIMER_DELAY_SEC": "4"})
        body = batch((b"1", properties(UNIQ_KEY="1")), (b"2", properties(UNIQ_KEY="2")))
        answer = self.client().ask(SEND_BATCH, ext, body)
        assert answer is not None
        self.assertEqual((answer.code, answer.ext.get("recallHandle")), (0, None))
        self.skips(5)
        self.assertEqual(self.got(), [b"1", b"2"])
        forged = batch((b"1", properties(REAL_TOPIC="other")))
        answer = self.client().ask(SEND_BATCH, ext, forged)
        assert answer is not None
        self.assertEqual(answer.code, 13)
        self.assertIn("its own REAL_TOPIC", answer.remark or "")

    def test_timer_topic(self) -> None:
        """No client sends there by itself."""
        self.begin()
        self.assertEqual(self.send(b"x", "rmq_sys_wheel_timer").code, 16)


class RecallTests(TimerTestCase):
    """Request 370."""

    on: ClassVar[TimerSettings] = TimerSettings(recalls=True)

    def recall(self, handle: str, topic: str = "T") -> tuple[int, str]:
        ext = {"producerGroup": "pg", "topic": topic, "recallHandle": handle}
        answer = self.client().ask(RequestCode.RECALL_MESSAGE, ext)
        assert answer is not None
        return answer.code, answer.remark or ""

    def test_recalled(self) -> None:
        """What is recalled does not come, also after a restart and in the last millisecond."""
        self.begin(timers=self.on)
        handles = [self.later(b"%d" % n, 5000).ext["recallHandle"] for n in range(10)]
        for handle in handles[::2]:
            self.assertEqual(self.recall(handle), (0, ""))
        self.skips(4)
        self.again(timers=self.on)
        self.skips(3)
        self.assertEqual(self.got(), [b"%d" % n for n in range(1, 10, 2)])
        self.assertEqual(self.recall(handles[1]), (604, "recall failed, timestamp invalid"))
        (recall, *_) = (
            one
            for one in self.waiting()
            if one.body == b"0" and "TIMER_DEL_UNIQKEY" in one.properties
        )
        self.assertEqual(recall.properties["TAGS"], "_RECALL_TAG_")

    def test_killed(self) -> None:
        """A recall survives kill -9, also one of a message that was stored anew before."""
        settings = TimerSettings(recalls=True, roll_window=10)
        self.begin(timers=settings)
        handles = [self.later(b"%d" % n, 30_000).ext["recallHandle"] for n in range(4)]
        self.assertEqual(self.recall(handles[0]), (0, ""))
        self.skips(12)
        self.assertGreater(len(self.waiting()), 5, "some are stored anew")
        self.assertEqual(self.recall(handles[2]), (0, ""))
        self.passes(0.02)
        self.kill()
        self.begin(timers=settings)
        self.skips(30)
        self.assertEqual(self.got(), [b"1", b"3"])

    def test_refusals(self) -> None:
        """Each has its code."""
        self.begin(timers=self.on)
        self.serving.topics.put(TopicConfig(topic_name="U"))
        handle = self.later(b"x", 5000).ext["recallHandle"]
        self.assertEqual(
            urlsafe_b64decode(handle).decode(),
            f"v1 T broker-a {(NOW + 5000) // 1000 * 1000 + 1} U1",
        )
        self.assertEqual(self.recall(handle, "X"), (17, "recall failed, the topic[X] not exist"))
        self.assertEqual(self.recall("zzz"), (604, "recall handle is invalid"))
        self.assertEqual(self.recall(handle, "U"), (604, "recall failed, topic not match"))
        self.again(timers=self.on, name="other")
        self.serving.topics.put(TopicConfig(topic_name="T"))
        self.assertEqual(self.recall(handle), (604, "recall failed, broker service not available"))
        self.again()
        self.assertEqual(self.recall(handle), (16, "recall failed, operation is forbidden"))

    def test_slave(self) -> None:
        """A slave leaves it to its master."""
        self.begin(slave=True, timers=self.on)
        self.assertEqual(self.recall("x"), (11, "recall failed, broker service not available"))


class FollowedTests(TimerTestCase):
    """What a stock slave asks: requests 60 and 61."""

    def numbers(self) -> tuple[int, ...]:
        answer = self.client().ask(RequestCode.GET_TIMER_CHECK_POINT)
        assert answer is not None
        return unpack(">7q", answer.body)

    def counts(self) -> dict[str, Any]:
        answer = self.client().ask(RequestCode.GET_TIMER_METRICS)
        assert answer is not None
        return json.loads(bytes(answer.body))  # type: ignore[no-any-return]

    def test_told(self) -> None:
        """Up to when all is delivered, what is read of the timer queue, and how many wait of each
        topic; in the form of a stock broker's.
        """
        with gzip.open(FRAMES, "rt") as lines:
            frames = {frame["name"]: frame for frame in map(json.loads, lines)}
        stock = json.loads(bytes(golden_answer(frames["GET_TIMER_METRICS"]).body))
        self.assertEqual(len(golden_answer(frames["GET_TIMER_CHECK_POINT"]).body), 56)
        self.begin()
        for n in range(5):
            self.send(b"%d" % n, "TU"[n % 2], TIMER_DELAY_MS=str(5500 + 10_000 * (n > 2)))
        self.skips(1)
        read, flushed, next_, masters, version, changed, counter = self.numbers()
        self.assertEqual((flushed, next_, masters, version), (0, 5, 5, 0))
        self.assertTrue(NOW <= read <= self.now() and read % 1000 == 0, read)
        self.assertTrue(NOW <= changed <= self.now() and counter > 0)
        before = self.counts()
        self.assertEqual(before.keys(), stock.keys())
        self.assertEqual(before["dataVersion"].keys(), stock["dataVersion"].keys())
        self.assertEqual(before["timingCount"]["T"].keys(), stock["timingCount"]["TT"].keys())
        waiting = {topic: row["count"] for topic, row in before["timingCount"].items()}
        self.assertEqual(waiting, {"T": 3, "U": 2})
        self.skips(6)
        after = self.counts()
        waiting = {topic: row["count"] for topic, row in after["timingCount"].items()}
        self.assertEqual(waiting, {"T": 1, "U": 1})
        self.assertGreater(after["dataVersion"]["counter"], before["dataVersion"]["counter"])
        later = self.numbers()
        self.assertEqual(later[2:4], (5, 5))
        self.assertTrue(NOW + 6000 <= later[0] <= self.now(), "a slave that is promoted goes on")
        self.assertGreater(later[6], counter)


def golden_answer(frame: dict[str, str]) -> Command:
    """What the stock broker answered."""
    return GoldenTests.decoded(frame["response"])


class GoldenTests(TimerTestCase):
    """What a stock 5.3.3 broker was asked."""

    broker_settings = BrokerSettings(name="BN", cluster="C", ip1="10.0.0.9", ip2="10.0.0.9")

    def test_frames(self) -> None:
        """Codes, remarks and fields are those of the stock broker, where it does no harm."""
        with gzip.open(FRAMES, "rt") as lines:
            frames = [json.loads(line) for line in lines]
        self.born = self.bornof(frames[0])
        self.begin(timers=TimerSettings(roll_window=10, recalls=True))
        for name in ("TT", "TU"):
            self.serving.topics.put(TopicConfig(topic_name=name, write_queue_nums=1))
        for number, frame in enumerate(frames):
            request, theirs = self.decoded(frame["request"]), self.decoded(frame["response"])
            if request.code in (60, 61):
                continue
            # What the client reckons with is the stock broker's time of then.
            self.born = next(filter(None, map(self.bornof, frames[number:])), self.born)
            client = self.client()
            client.connection.dataReceived(bytes.fromhex(frame["request"]))
            (ours,) = client.heard()
            with self.subTest(frame["name"]):
                different = DIFFERENT.get(frame["name"])
                self.assertEqual(ours.code, theirs.code if different is None else different)
                if different is None:
                    if theirs.code:
                        self.assertEqual(ours.remark, theirs.remark)
                        continue
                    said = theirs.ext.keys() - {"transactionId"}
                    self.assertEqual(ours.ext.keys() & said, said)
                    self.assertEqual(ours.ext.get("queueId"), theirs.ext.get("queueId"))
                    self.assertEqual(*(self.handle(one) for one in (ours, theirs)))

    born = NOW

    def now(self) -> int:
        return self.born + round(self.clock.seconds() * 1000)

    @staticmethod
    def handle(answer: Command) -> list[str]:
        """What a handle says, without the time: it depends on when the message came."""
        text = urlsafe_b64decode(answer.ext.get("recallHandle") or "").decode()
        return [word for word in text.split(" ") if not word.startswith("17955")]

    @staticmethod
    def decoded(text: str) -> Command:
        (command,) = FrameDecoder().receive(bytes.fromhex(text))
        return command

    def bornof(self, frame: dict[str, str]) -> int:
        """When its message was born, less the time that has passed here; 0 if it is none."""
        ext = self.decoded(frame["request"]).ext
        born = int(ext.get("bornTimestamp") or ext.get("g") or 0)
        return born and born - round(self.clock.seconds() * 1000)


FOLDER = Path(__file__).resolve().parents[2] / "data" / "timer"

SIZES = {
    "file_size": 65536,
    "max_message_size": 30_000,
    "queue_file_size": 6000,
    "index_slots": 200,
    "index_entries": 4000,
}

KILLED = 1_795_580_957_093


class StockStoreTests(TimerTestCase):
    """What waits in one comes at its time, and nothing else."""

    broker_settings = BrokerSettings(name="BN", cluster="C", ip1="10.0.0.9", ip2="10.0.0.9")

    def test_records(self) -> None:
        """What waits, and what was delivered, is recorded as the stock broker does for the same
        requests; we say when it is due besides, and a recall has no empty field.
        """
        self.open("killed", KILLED)
        theirs, delivered = self.waiting()[:10], self.records("TT")[:2]
        self.stop()
        self.setUp()
        self.begin(sizes=SIZES, timers=TimerSettings(recalls=True))
        topic = TopicConfig(topic_name="TT", read_queue_nums=1, write_queue_nums=1)
        self.serving.topics.put(topic)
        by_broker = {"TIMER_OUT_MS", "MSG_REGION", "CLUSTER", "TRACE_ON", "REAL_TOPIC", "REAL_QID"}
        handles: dict[str, str] = {}
        for record in sorted([*theirs, delivered[0]], key=lambda one: one.offset):
            self.skips((record.store_timestamp - self.now()) / 1000)
            self.jump += record.store_timestamp - self.now()
            told = dict(record.properties)
            if "TIMER_DEL_UNIQKEY" in told:
                ext = {"producerGroup": "PG", "topic": "TT"}
                ext["recallHandle"] = handles[told["UNIQ_KEY"]]
                answer = self.client().ask(RequestCode.RECALL_MESSAGE, ext)
            else:
                given = {name: value for name, value in told.items() if name not in by_broker}
                ext = sending("TT", properties=given, born_timestamp=record.born_timestamp)
                answer = self.client().ask(SEND_V2, ext, record.body)
            assert answer is not None
            self.assertEqual(answer.code, 0, answer.remark)
            handles[told["UNIQ_KEY"]] = answer.ext.get("recallHandle", "")
        self.passes(0.02)
        for stock, ours in zip(
            [*theirs, *delivered], [*self.waiting()[:10], *self.records("TT")[:2]], strict=True
        ):
            self.assertEqual(self.said(ours), self.said(stock))

    @staticmethod
    def said(record: Record) -> dict[str, object]:
        """What a record says, without the times that each broker chose, and without what stock
        brokers add to any message.
        """
        told = dict(record.properties)
        for name in ("MSG_REGION", "TRACE_ON", "WAIT"):
            told.pop(name, None)
        if "TIMER_DEL_UNIQKEY" in told:
            told.pop("TRACE_CONTEXT", None)
            told.pop("BORN_TIMESTAMP")
        if "TIMER_DELAY_SEC" in told:
            told.pop("TIMER_DELIVER_MS", None)
        for name in ("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"):
            if name in told:
                told[name] = "<ms>"
        return {
            "body": record.body,
            "topic": record.topic,
            "place": (record.queue_id, record.queue_offset),
            "flags": (record.flag, record.sys_flag),
            "times": record.reconsume_times,
            "properties": told,
        }

    def open(self, name: str, at: int, window: int = 172_800) -> None:
        """Go on with one at a time."""
        golden.unpack(FOLDER / f"{name}.tar.gz", self.root.parent)
        self.jump = at - NOW
        self.timers = TimerSettings(roll_window=window)
        self.had = None
        self.begin(sizes=SIZES, timers=self.timers)

    def later_on(self, ms: int) -> list[bytes]:
        """Let all that is due by then come, from a restart on; what came since the first time."""
        self.stop()
        self.jump += ms
        self.begin(sizes=SIZES, timers=self.timers)
        self.skips(1)
        return self.got("TT")

    def test_killed(self) -> None:
        """Killed while some waited, one was recalled, and others were being stored anew."""
        self.open("killed", KILLED)
        self.assertEqual(self.got("TT"), [b"b-past", b"a-delivered"])
        self.skips(3)
        self.assertEqual(self.got("TT")[2:], [])
        self.skips(8)
        came = [b"c-due-soon-rolled-once", b"g-pending", b"h-same-slot"]
        self.assertEqual(self.got("TT")[2:], came)
        self.assertEqual(self.later_on(3_600_000)[2:], [*came, b"d-hour-rolled"])
        self.assertEqual(self.serving.timers.waiting.topics, {"TT": 1})
        self.assertEqual(self.later_on(260_000_000)[2:], [*came, b"d-hour-rolled", b"e-max"])
        self.assertEqual(self.serving.timers.waiting.topics, {})

    def test_killed_with_its_window(self) -> None:
        """The same where messages are stored anew as often as they were there."""
        self.open("killed", KILLED, window=10)
        for _ in range(6):
            self.skips(10)
        self.assertEqual(len(self.got("TT")), 5)

    def test_long_ago(self) -> None:
        """All is over when the broker starts: each comes once."""
        self.open("killed", KILLED + 300_000_000)
        self.skips(1)
        self.assertEqual(
            self.got("TT")[2:],
            [b"c-due-soon-rolled-once", b"g-pending", b"h-same-slot", b"d-hour-rolled", b"e-max"],
        )

    def test_stopped(self) -> None:
        """Stored anew several times, and closed cleanly."""
        self.open("stopped", KILLED + 130_000)
        before = self.got("TT")
        self.assertEqual(len(before), 5)
        self.skips(3)
        self.assertEqual(self.got("TT"), before)
        self.assertEqual(self.serving.timers.waiting.topics, {"TT": 3}, "one is recalled")
        came = self.later_on(300_000_000)
        self.assertEqual(came[5:], [b"d-hour-rolled", b"e-max"])

    def test_way_back(self) -> None:
        """What a stock broker needs to know is there: the first that may wait, and the next."""
        self.open("killed", KILLED)
        self.skips(12)
        checkpoint = self.serving._timercheck
        self.stop()
        self.successResultOf(Deferred.fromCoroutine(checkpoint.stop()))
        data = (self.root / "config" / "timercheck").read_bytes()
        self.assertEqual(len(data), 4096)
        last_read, flushed, low, end, *_ = unpack_from(">7q", data)
        self.assertEqual((flushed, low, end), (520, 2, 10), "d waits, and is the first")
        self.assertLess(KILLED + 6000, last_read)
        self.assertEqual(last_read % 1000, 0)
