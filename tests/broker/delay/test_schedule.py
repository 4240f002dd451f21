"""Delayed messages: delivered on time, in order, and not twice."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from lab.harness import golden
from rmqha.broker.broker import Broker
from rmqha.broker.delay.schedule import WINDOW
from rmqha.broker.messages import Messages
from rmqha.errors import FlushFailed
from rmqha.ha.master.transfer import PutStatus
from rmqha.logfiles import json_table
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.files.mapped import LogFolder
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.properties import PAIR_END, encode
from rmqha.wire.log.record import Message, Record, check, decode
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.offsets import LOG_END, DelayOffsets
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.send import SendBackRequest
from rmqha.wire.remoting.json_body import read
from tests.broker.support import NOW, SEND_V2, BrokerTestCase, sending
from tests.support.ha_frames import append_frame
from tests.support.logs import HOST, Held

LEVELS = "1s 2s 1m"


class ScheduleTestCase(BrokerTestCase):
    """A master with delays of a second, two, and a minute."""

    def begin(self, *, sizes: dict[str, Any] | None = None, **settings: Any) -> Broker:
        broker = self.broker(sizes={"delay_levels": LEVELS} | (sizes or {}), **settings)
        self.jump = 0
        broker.store.now_ms = lambda: NOW + round(self.clock.seconds() * 1000) + self.jump
        if broker.writer is not None:
            broker.schedule.start()
        return broker

    def again(self, **settings: Any) -> Broker:
        self.successResultOf(self.serving.schedule.stop())
        self.close_store(self.serving.store)
        return self.begin(**settings)

    def later(self, body: bytes, level: int = 1, topic: str = "T", **more: Any) -> None:
        """Send one that is to come later."""
        ext = sending(topic, properties={"DELAY": str(level), "TAGS": "A"}, **more)
        answer = self.client().ask(SEND_V2, ext, body)
        if answer is not None:
            self.assertEqual(answer.code, 0, answer.remark)

    def passes(self, seconds: float) -> None:
        """Let time pass, each millisecond by itself."""
        self.clock.pump([0.001] * round(seconds * 1000))

    def skips(self, seconds: float) -> None:
        """Let time pass in larger steps."""
        self.clock.pump([0.05] * round(seconds * 20))
        self.passes(0.01)

    def got(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        lookup = self.serving.lookup
        first, end = lookup.bounds(topic, queue_id) or (0, 0)
        records = [lookup.by_queue_offset(topic, queue_id, n) for n in range(first, end)]
        return [record.body for record in records if record is not None]

    def offsets(self) -> dict[int, int]:
        answer = self.client().ask(RequestCode.GET_ALL_DELAY_OFFSET)
        assert answer is not None
        return read(DelayOffsets, answer.body).offset_table

    def written(self) -> dict[int, int]:
        found = json_table.read(self.table("delayOffset.json"))
        return {} if found is None else found["offsetTable"]


class DeliveryTests(ScheduleTestCase):
    def test_on_time(self) -> None:
        """A message is stored in its queue at the millisecond it is due."""
        self.begin()
        self.passes(0.5)
        self.later(b"hello")
        self.passes(0.999)
        self.assertEqual(self.got(), [])
        self.passes(0.01)
        # The clock's milliseconds are not exact.
        self.assertIn(self.record("T").store_timestamp - NOW, (1500, 1501))

    def test_nobody_polls(self) -> None:
        """Nothing wakes for levels without messages, and little for one that waits."""
        self.begin()
        self.passes(0.1)
        self.assertEqual(self.timers(), [])
        self.later(b"x", 3)
        self.passes(0.1)
        (timer,) = self.timers()
        self.assertGreater(timer.getTime() - self.clock.seconds(), 0.8)

    def timers(self) -> list[DelayedCall]:
        calls = self.clock.getDelayedCalls()
        return [call for call in calls if "Schedule." in getattr(call.func, "__qualname__", "")]

    def test_order(self) -> None:
        """A shorter delay overtakes a longer one; one level keeps its order."""
        self.begin()
        for body, level in ((b"1", 2), (b"2", 1), (b"3", 1), (b"4", 2)):
            self.later(body, level)
            self.passes(0.01)
        self.passes(2.1)
        self.assertEqual(self.got(), [b"2", b"3", b"1", b"4"])

    def test_not_at_once(self) -> None:
        """A delay of 0 or below is none; one above the highest is the highest."""
        self.begin()
        for level in (0, -3):
            self.later(b"now", level)
        self.later(b"then", 99)
        self.passes(0.01)
        self.assertEqual(self.got(), [b"now", b"now"])
        self.skips(60)
        self.assertEqual(self.got(), [b"now", b"now", b"then"])

    def test_copy(self) -> None:
        """What is delivered is what was sent: to its own queue, with its own tags."""
        self.begin()
        self.later(b"hello", queue_id=3, flag=7, sys_flag=1, reconsume_times=2)
        waiting = self.record(SCHEDULE_TOPIC)
        self.passes(1.01)
        copy = self.record("T", 3)
        for name in (
            "body",
            "flag",
            "sys_flag",
            "born_timestamp",
            "born_host",
            "store_host",
            "reconsume_times",
            "raw_properties",
        ):
            self.assertEqual(getattr(copy, name), getattr(waiting, name), name)
        plain = self.client().ask(SEND_V2, sending("T", queue_id=3, properties={"TAGS": "A"}), b"")
        assert plain is not None
        self.passes(0.01)
        queue = self.serving.store.queues.get("T", 3)
        assert queue is not None
        delivered, sent = queue.unit(0), queue.unit(1)
        assert delivered is not None
        assert sent is not None
        self.assertEqual(delivered[2], sent[2], "tags codes")

    def test_many(self) -> None:
        """Thousands that are due together all come, in their order."""
        self.begin()
        sent = [b"%d" % n for n in range(2500)]
        for body in sent:
            self.later(body)
        self.passes(1.1)
        self.assertEqual(self.got(), sent)

    def test_retry(self) -> None:
        """A message that was sent back comes again in its group's retry topic."""
        self.begin()
        answer = self.client().ask(SEND_V2, sending("T"), b"hello")
        assert answer is not None
        offset = int(answer.ext["msgId"][16:], 16)
        request = SendBackRequest(offset=offset, group="g", delay_level=1)
        self.client().ask(RequestCode.CONSUMER_SEND_MSG_BACK, to_ext(request))
        self.passes(1.01)
        self.assertEqual(self.got("%RETRY%g"), [b"hello"])
        self.assertEqual(self.record("%RETRY%g").reconsume_times, 1)

    def test_slave(self) -> None:
        """A slave delivers nothing."""
        self.begin()
        self.later(b"x")
        self.passes(0.01)
        self.successResultOf(self.serving.schedule.stop())
        self.close_store(self.serving.store)
        self.begin(slave=True)
        self.skips(5)
        self.assertEqual(self.got(), [])
        self.successResultOf(self.serving.schedule.stop())


class OffsetTests(ScheduleTestCase):
    """How far each level is, over restarts."""

    def test_clean_restart(self) -> None:
        """After a clean stop nothing comes twice, and what was not due yet comes."""
        self.begin()
        self.later(b"1")
        self.passes(0.5)
        self.later(b"2")
        self.passes(0.51)
        self.again()
        self.assertEqual(self.offsets(), {1: 1})
        self.skips(2)
        self.assertEqual(self.got(), [b"1", b"2"])

    def test_overdue(self) -> None:
        """What became due while nobody was there comes at once."""
        self.begin()
        self.later(b"1")
        self.passes(0.1)
        self.again()
        self.clock.advance(100)
        self.passes(0.01)
        self.assertEqual(self.got(), [b"1"])

    def test_written(self) -> None:
        """Offsets are on the disk soon, in a stock broker's form, with where the log has to end."""
        self.begin()
        self.later(b"1")
        self.later(b"2", 2)
        self.skips(5)
        self.assertEqual(self.written(), {1: 1, 2: 1})
        text = self.table("delayOffset.json").read_text()
        self.assertIn("{1:1,2:1", text)
        self.assertEqual(read(DelayOffsets, text.encode()).log_end, self.serving.store.log.end)

    def test_log_first(self) -> None:
        """An offset is not on the disk before the copies it speaks of."""
        broker = self.begin()
        self.later(b"1")
        self.skips(3)
        broker.store.flusher.fsync = FsyncInThread(Held())
        self.later(b"2")
        self.skips(5)
        self.assertEqual((self.offsets(), self.written()), ({1: 2}, {1: 1}))

    def test_crash(self) -> None:
        """After a crash nothing is lost; what was delivered in the last two seconds comes again."""
        broker = self.begin()
        for n in range(10):
            self.later(b"%d" % n)
            self.skips(1)
        root = self.crash(broker.store)
        self.successResultOf(broker.schedule.stop())
        self.root = root
        self.begin()
        self.skips(2)
        got = self.got()
        self.assertEqual(sorted(set(got)), [b"%d" % n for n in range(10)])
        self.assertLessEqual(len(got), 13)

    def test_too_far(self) -> None:
        """An offset that a longer log has the copies for goes back to the first message that has
        none here, one below its begin forward.
        """
        self.begin()
        self.later(b"1")
        self.passes(0.01)
        self.successResultOf(self.serving.schedule.stop())
        self.table("delayOffset.json").parent.mkdir(exist_ok=True)
        json_table.replace(
            self.table("delayOffset.json"),
            {"offsetTable": {1: 40, 2: 5, 3: -1}, "kept": "x", LOG_END: 1 << 40},
        )
        self.close_store(self.serving.store)
        self.begin()
        self.assertEqual(self.offsets(), {1: 0, 2: 0, 3: 0})
        self.later(b"2")
        self.skips(3)
        self.assertEqual((self.got(), self.written()), ([b"1", b"2"], {1: 2, 2: 0, 3: 0}))
        self.assertIn("kept", self.table("delayOffset.json").read_text())

    def test_newer_than_the_log(self) -> None:
        """What a table calls delivered is delivered if its copy is not in the log: the table is of
        a node that had more, or of a later moment.
        """
        broker = self.begin()
        self.later(b"1")
        self.skips(0.5)
        self.later(b"2")
        self.skips(0.7)
        self.assertEqual(self.got(), [b"1"])
        early = self.crash(broker.store)
        self.skips(3)
        self.assertEqual(self.written(), {1: 2})
        self.successResultOf(broker.schedule.stop())
        table = self.table("delayOffset.json").read_bytes()
        self.close_store(broker.store)
        self.root = early
        self.table("delayOffset.json").write_bytes(table)
        broker = self.begin()
        self.assertEqual(self.offsets(), {1: 1})
        self.skips(3)
        self.assertEqual(self.got(), [b"1", b"2"])

    def test_adopted(self) -> None:
        """A slave takes a master's offsets over, never back, and tells them on."""
        broker = self.begin(slave=True)
        broker.levels.adopt(DelayOffsets(offset_table={1: 7, 2: 3}))
        broker.levels.adopt(DelayOffsets(offset_table={1: 5, 3: 1}))
        self.assertEqual(self.offsets(), {1: 7, 2: 3, 3: 1})
        self.skips(3)
        self.assertEqual(self.written(), {1: 7, 2: 3, 3: 1})
        # Who does not say how far the log has to be is held against it at the next start.
        self.assertNotIn(LOG_END, self.table("delayOffset.json").read_text())

    def test_adopted_later(self) -> None:
        """A master's offsets count once its copies are here, or a promotion would skip messages."""
        self.begin()
        self.later(b"1")
        self.passes(1.01)
        answer = self.client().ask(RequestCode.GET_ALL_DELAY_OFFSET)
        assert answer is not None
        told = read(DelayOffsets, answer.body)
        log = bytes(self.serving.store.log.read(0, self.serving.store.log.end))
        self.assertEqual(told.extra[LOG_END], len(log))
        self.successResultOf(self.serving.schedule.stop())
        self.root = self.folder() / "slave"
        broker = self.begin(slave=True)
        broker.levels.adopt(told)
        for piece in (log[:-1], log[-1:]):
            self.skips(1)
            self.assertEqual(self.offsets(), {}, "a copy is not here")
            append_frame(broker.store.log, broker.store.log.end, piece)
        broker.levels.adopt(told)
        self.skips(1)
        self.assertEqual(self.offsets(), {1: 1})

    def test_stock_master(self) -> None:
        """A store of a stock master goes on where that one was."""
        for version in golden.VERSIONS:
            self.root = golden.store(version)
            self.jump = 0
            broker = self.broker(
                sizes={"file_size": golden.LOG_FILE_SIZE, "queue_file_size": golden.QUEUE_FILE_SIZE}
            )
            broker.store.now_ms = lambda: (1 << 42) + round(self.clock.seconds() * 1000)
            waiting = self.pending()
            self.assertGreater(sum(waiting.values()), 3)
            before = broker.store.dispatcher.dispatched
            broker.schedule.start()
            self.skips(2)
            self.assertEqual(set(self.pending().values()), {0})
            self.assertEqual(
                broker.store.dispatcher.dispatched - before, sum(waiting.values()), version
            )

    def pending(self) -> dict[str, int]:
        """How many messages wait, by level."""
        levels = self.serving.schedule.status()["levels"]
        return {number: level["pending"] for number, level in levels.items()}


class FailureTests(ScheduleTestCase):
    """Writes that wait, and such that fail."""

    def test_waits_like_any_write(self) -> None:
        """The offset moves when replicas have the message, not when it is stored."""
        self.begin()
        self.later(b"1")
        waiting: Deferred[PutStatus] = Deferred()
        self.writer.outcome = waiting
        self.passes(1.01)
        self.assertEqual(self.got(), [b"1"])
        self.assertTrue(self.writer.waited[-1])
        self.assertEqual(self.offsets().get(1, 0), 0)
        waiting.callback(PutStatus.PUT_OK)
        self.assertEqual(self.offsets(), {1: 1})

    def test_in_order(self) -> None:
        """It moves over what is delivered in order."""
        self.begin()
        waits: list[Deferred[PutStatus]] = [Deferred() for _ in range(3)]
        for n in range(3):
            self.later(b"%d" % n)
            self.passes(0.01)
        for n in range(3):
            self.writer.outcome = waits[n]
            self.passes(0.01 if n else 0.98)
            self.assertEqual(len(self.got()), n + 1, "they do not wait for each other")
        for number, offset in ((1, 0), (0, 2), (2, 3)):
            waits[number].callback(PutStatus.PUT_OK)
            self.assertEqual(self.offsets().get(1, 0), offset)

    def test_stored_is_delivered(self) -> None:
        """A message that is in the log is delivered, whatever its replicas say."""
        self.begin()
        for n, status in enumerate(PutStatus):
            self.later(b"%d" % n)
            self.writer.outcome = status
            self.passes(1.01)
            self.writer.outcome = PutStatus.PUT_OK
        self.skips(10)
        self.assertEqual(self.got(), [b"%d" % n for n in range(len(PutStatus))])

    def test_not_stored(self) -> None:
        """One that could not be stored is tried again until it can, and comes once."""
        broker = self.begin()
        self.later(b"1")
        self.passes(0.01)
        broker.store._refuse("disk-full", "no room")
        self.skips(5)
        self.assertEqual((self.got(), self.offsets().get(1, 0)), ([], 0))
        broker.store._allow("disk-full")
        self.skips(1)
        self.assertEqual(self.got(), [b"1"])

    def test_disk_failed(self) -> None:
        """After a failed fsync the offset stays: the next start delivers again."""
        self.begin()
        self.later(b"1")
        self.passes(0.01)
        waiting: Deferred[PutStatus] = Deferred()
        self.writer.outcome = waiting
        self.passes(1)
        self.serving.store._refuse("failed", "EIO")
        waiting.errback(Failure(FlushFailed("log", "EIO")))
        self.skips(3)
        self.assertEqual((self.offsets().get(1, 0), self.got()), (0, [b"1"]))

    def test_bounded(self) -> None:
        """No more than a window of a level's messages waits; the rest follows."""
        self.begin()
        for n in range(WINDOW + 5):
            self.later(b"%d" % n)
        waiting: Deferred[PutStatus] = Deferred()
        self.writer.outcome = waiting
        self.passes(1.1)
        self.assertEqual(len(self.got()), WINDOW)
        self.writer.outcome = PutStatus.PUT_OK
        waiting.callback(PutStatus.PUT_OK)
        self.passes(0.01)
        self.assertEqual((len(self.got()), self.offsets()), (WINDOW + 5, {1: WINDOW + 5}))

    def test_stop_in_flight(self) -> None:
        """A stop waits for what is under way, and counts it."""
        broker = self.begin()
        self.later(b"1")
        self.later(b"2", 2)
        waiting: Deferred[PutStatus] = Deferred()
        self.passes(0.01)
        self.writer.outcome = waiting
        self.passes(1)
        stopped = broker.schedule.stop()
        self.assertNoResult(stopped)
        waiting.callback(PutStatus.SERVICE_NOT_AVAILABLE)
        self.successResultOf(stopped)
        self.assertEqual(self.written(), {1: 1})
        self.skips(3)
        self.assertEqual(self.got(), [b"1"], "nothing after the stop")

    def test_undeliverable(self) -> None:
        """What does not say where it belongs, or where nobody may send, holds nothing up."""
        broker = self.begin()
        for given in (
            {},
            {"REAL_TOPIC": "T"},
            {"REAL_TOPIC": "T", "REAL_QID": "-1"},
            {"REAL_TOPIC": "T", "REAL_QID": "x"},
            {"REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "0"},
            {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
        ):
            broker.store.put(self.delayed(given))
        self.later(b"good")
        self.passes(1.02)
        self.assertEqual((self.got(), self.offsets()), ([b"good"], {1: 7}))
        self.assertEqual(broker.schedule.status()["undeliverable"], 6)

    def test_unreadable(self) -> None:
        """What comes to a queue that is not read is there, counted, named; it may grow again."""
        broker = self.begin()
        self.later(b"read")
        broker.store.put(self.delayed({"REAL_TOPIC": "T", "REAL_QID": "3"}))
        whole = broker.topics.get("T")
        assert whole is not None
        broker.topics.put(evolve(whole, read_queue_nums=1, write_queue_nums=1))
        self.passes(1.02)
        self.assertEqual(broker.schedule.status()["unreadable"], 1)
        self.assertEqual(broker.schedule.status()["undeliverable"], 0)
        self.assertEqual((len(self.got()), len(self.got(queue_id=3))), (1, 1))
        broker.topics.put(whole)
        broker.store.put(self.delayed({"REAL_TOPIC": "T", "REAL_QID": "3"}))
        self.passes(1.02)
        self.assertEqual(broker.schedule.status()["unreadable"], 1)

    def test_too_large(self) -> None:
        """Neither does one the store takes no more."""
        self.begin()
        self.later(b"large" * 1000)
        self.later(b"small")
        self.passes(0.1)
        self.again(sizes={"max_message_size": 1000})
        self.skips(1)
        self.assertEqual(self.got(), [b"small"])
        self.assertEqual(self.serving.schedule.status()["undeliverable"], 1)

    def test_deleted(self) -> None:
        """What went with its part of the log is passed over."""
        broker = self.begin(sizes={"file_size": 8192, "max_message_size": 4000})
        self.later(b"old", 3)
        for _ in range(20):
            self.client().ask(SEND_V2, sending("Other"), bytes(1000))
        self.later(b"new", 3)
        self.passes(0.1)
        broker.store.log.drop_first()
        broker.store.trimmer.follow(broker.store.log.min_offset)
        self.skips(61)
        self.assertEqual((self.got(), self.offsets()), ([b"new"], {3: 2}))

    def delayed(self, given: dict[str, str]) -> Message:
        """A message that waits, with any properties."""
        return Message(
            topic=SCHEDULE_TOPIC,
            queue_id=0,
            body=b"x",
            properties=encode({"DELAY": "1"} | given),
            born_timestamp=NOW,
            born_host=HOST,
            store_host=HOST,
        )


class ClockTests(ScheduleTestCase):
    """A wall clock that is set while messages wait."""

    def test_set_back(self) -> None:
        """After a step back of an hour what waits comes after its delay, not after an hour."""
        self.begin()
        self.later(b"1")
        self.passes(0.5)
        self.jump = -3_600_000
        self.passes(0.4)
        self.assertEqual(self.got(), [], "not early")
        self.skips(2)
        self.assertEqual(self.got(), [b"1"])

    def test_sent_meanwhile(self) -> None:
        """What is sent while the clock is behind comes after its delay too, each by itself."""
        self.begin()
        self.later(b"0")
        self.passes(1.1)
        self.jump = -3_600_000
        for n in range(1, 5):
            self.later(b"%d" % n)
            self.passes(0.95)
            self.assertEqual(len(self.got()), n, "not early")
            self.passes(0.1)
            self.assertEqual(len(self.got()), n + 1, "not late")

    def test_sent_before_a_restart(self) -> None:
        """After a restart too nothing waits longer than its delay."""
        self.begin()
        for n in range(3):
            self.later(b"%d" % n)
            self.passes(0.1)
        self.again()
        self.jump = -3_600_000
        self.passes(0.9)
        self.assertEqual(self.got(), [])
        self.passes(0.2)
        self.assertEqual(len(self.got()), 3)

    def test_set_forward(self) -> None:
        """After a step forward what is due by the new time comes within a second."""
        self.begin()
        self.later(b"1", 3)
        self.passes(0.1)
        self.jump = 3_600_000
        self.passes(1.01)
        self.assertEqual(self.got(), [b"1"])


class StatusTests(ScheduleTestCase):
    def test_levels(self) -> None:
        """Of each level that has messages: offset, how many wait, and when the next one is due."""
        broker = self.begin()
        self.later(b"1")
        self.later(b"2", 3)
        self.passes(1.01)
        self.later(b"3", 3)
        self.passes(0.01)
        found = broker.status()["delayed"]
        self.assertEqual(
            found["levels"],
            {
                "1": {"offset": 1, "pending": 0, "nextDue": None},
                "3": {"offset": 0, "pending": 2, "nextDue": NOW + 60_000},
            },
        )
        self.assertEqual(found["lateMillis"]["count"], 1)
        self.assertLessEqual(found["lateMillis"]["max"], 1)

    def test_lateness(self) -> None:
        """Messages that were overdue when the broker was started do not count as late."""
        self.begin()
        self.later(b"1")
        self.passes(0.1)
        self.successResultOf(self.serving.schedule.stop())
        self.close_store(self.serving.store)
        self.clock.advance(100)
        broker = self.begin()
        self.passes(0.1)
        self.assertEqual(self.got(), [b"1"])
        self.assertEqual(broker.schedule.status()["lateMillis"]["count"], 0)


class StockCopyTests(ScheduleTestCase):
    def test_copies(self) -> None:
        """Ours of the same message is theirs, but for its place and time."""
        messages = Messages(HOST, "C", DelayLevels.parse(LEVELS))
        compared = 0
        for version in golden.VERSIONS:
            for name in ("store", "ipv6"):
                records = _records(golden.store(version, name))
                delayed = [messages.due(one) for one in records if one.topic == SCHEDULE_TOPIC]
                ours = [_told(message) for message in delayed if message is not None]
                for copy in records:
                    told = copy.properties
                    if "DELAY" in told and told.get("REAL_TOPIC") == copy.topic:
                        self.assertIn(_told(copy), ours)
                        compared += 1
        self.assertEqual(compared, 18)


def _told(one: Message | Record) -> list[Any]:
    raw = one.properties if isinstance(one, Message) else one.raw_properties
    names = (
        "topic",
        "queue_id",
        "body",
        "flag",
        "sys_flag",
        "born_timestamp",
        "born_host",
        "store_host",
        "reconsume_times",
        "prepared_transaction_offset",
    )
    return [getattr(one, name) for name in names] + [raw.rstrip(PAIR_END)]


def _records(root: Any) -> list[Record]:
    folder = LogFolder.load(root / "commitlog", golden.LOG_FILE_SIZE)
    found = []
    for file in folder.files:
        raw = file.path.read_bytes()
        place = 0
        while place < len(raw):
            offset = file.start + place
            size = check(raw, place, len(raw), offset, file.end, max_size=1 << 22)
            if not isinstance(size, int):
                break
            if size > 0:
                found.append(decode(raw, place, offset))
            place += abs(size)
    folder.close()
    return found
