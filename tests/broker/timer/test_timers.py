"""Timer messages: delivered at their time, in order, once, and not lost."""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.defer import Deferred

from rmqha.broker.broker import Broker
from rmqha.broker.timer.timers import Timers
from rmqha.config.broker_settings import TimerSettings
from rmqha.errors import FlushFailed, NotWritable
from rmqha.ha.master.transfer import PutStatus
from rmqha.logfiles import json_table
from rmqha.wire.names import TIMER_TOPIC
from tests.broker.support import NOW, SEND, SEND_V2, long_names, sending
from tests.broker.timer.support import TimerTestCase


class DeliveryTests(TimerTestCase):
    """What comes when."""

    def test_on_time(self) -> None:
        """A message is stored in its queue at the millisecond it is due, never before."""
        self.begin()
        self.later(b"hello", 1500)
        due = self.now() + 1500
        self.passes(1.499)
        self.assertEqual(self.got(), [])
        self.passes(0.01)
        (record,) = self.records()
        self.assertIn(record.store_timestamp - due, (0, 1))
        (waited,) = self.waiting()
        told = dict(record.properties)
        self.assertEqual(told.pop("TIMER_ENQUEUE_MS"), str(waited.store_timestamp))
        self.assertEqual(told.pop("TIMER_DEQUEUE_MS"), str(record.store_timestamp))
        self.assertEqual(told, waited.properties)
        self.assertEqual(told["TIMER_OUT_MS"], str((due - 1) // 1000 * 1000))
        self.assertEqual((told["REAL_TOPIC"], told["REAL_QID"]), ("T", "0"))

    def test_each_way(self) -> None:
        """A time may be said in three ways, and by old names too: each message comes once, not
        early, in its queue.
        """
        self.begin()
        sent = {}
        for n in range(1000):
            ms = (1000, 1500, 10_000, 100_000)[n % 4]
            ways = {"TIMER_DELAY_MS": ms, "TIMER_DELIVER_MS": self.now() + ms}
            if ms % 1000 == 0:
                ways["TIMER_DELAY_SEC"] = ms // 1000
            name = [*ways][n // 4 % len(ways)]
            body, queue_id = b"%d" % n, n // 12 % 4
            told = {"UNIQ_KEY": f"U{n}", name: str(ways[name])}
            code, ext = SEND_V2, sending("T", queue_id=queue_id, properties=told)
            if n // 48 % 2:
                code, ext = SEND, long_names(ext)
            answer = self.client().ask(code, ext, body)
            assert answer is not None
            self.assertEqual(answer.code, 0, answer.remark)
            sent[body] = queue_id, self.now() + ms
        self.skips(101)
        found = {record.body: record for at in range(4) for record in self.records("T", at)}
        self.assertEqual(found.keys(), sent.keys())
        self.assertEqual(sum(len(self.records("T", at)) for at in range(4)), len(sent))
        for body, (queue_id, due) in sent.items():
            record = found[body]
            self.assertEqual(record.queue_id, queue_id)
            self.assertTrue(0 <= record.store_timestamp - due <= 100, record.store_timestamp - due)

    def test_order(self) -> None:
        """The order is that of their times, and of sending where these are equal."""
        self.begin()
        for body, ms in ((b"1", 2000), (b"2", 900), (b"3", 900), (b"4", 100_000), (b"5", 1)):
            self.later(body, ms)
        self.skips(101)
        self.assertEqual(self.got(), [b"5", b"2", b"3", b"1", b"4"])

    def test_times_between_others(self) -> None:
        """A message that comes late for a minute that has begun is delivered in its turn."""
        self.begin()
        self.later(b"a", 70_000)
        self.later(b"b", 80_000)
        self.skips(69)
        self.later(b"c", 5000)
        self.skips(20)
        self.assertEqual(self.got(), [b"a", b"c", b"b"])

    def test_many(self) -> None:
        """Thousands that are due together all come, in their order."""
        self.begin()
        sent = [b"%d" % n for n in range(2500)]
        for body in sent:
            self.later(body, 5000)
        self.skips(8)
        self.assertEqual(self.got(), sent)
        self.assertEqual(self.serving.timers.waiting.topics, {})

    def test_store_takes_none(self) -> None:
        """A message that cannot be stored is tried again until it is."""
        self.begin()
        for body in (b"1", b"2", b"3"):
            self.later(body, 1000)
        self.writer.outcome = NotWritable("disk-full", "")
        self.skips(300)
        self.assertEqual(self.got(), [])
        self.writer.outcome = PutStatus.PUT_OK
        self.skips(2)
        self.assertEqual(self.got(), [b"1", b"2", b"3"])

    def test_deleted_topic(self) -> None:
        """What was sent to a topic before it was deleted never comes."""
        broker = self.begin()
        self.later(b"x", 2000)
        self.successResultOf(Deferred.fromCoroutine(broker._topic_gone("T")))
        self.later(b"y", 2000)
        self.skips(4)
        self.assertEqual(self.got(), [b"y"])
        self.assertEqual(broker.timers.waiting.undeliverable, 1)

    def fill(self, broker: Broker) -> None:
        """Store more than the first file of the log has room for."""
        while len(broker.store.log.folder.files) < 2:
            self.send(bytes(1000), topic="Filler")
        self.passes(0.02)

    def test_file_deleted(self) -> None:
        """A message whose file is deleted while it waits is told of, and others come; also when
        it was deleted before a start.
        """
        broker = self.begin(sizes={"file_size": 1 << 14})
        self.later(b"gone", 3000)
        self.fill(broker)
        broker.store.log.drop_first().remove()
        self.later(b"kept", 3000)
        self.skips(4)
        self.assertEqual((self.got(), broker.timers.waiting.undeliverable), ([b"kept"], 1))
        self.later(b"gone too", 3000)
        self.fill(broker)
        broker.store.log.drop_first().remove()
        self.later(b"kept too", 3000)
        self.again(sizes={"file_size": 1 << 14})
        self.skips(4)
        self.assertEqual(self.got(), [b"kept too"])

    def test_stored_anew_before_its_file_is_deleted(self) -> None:
        """What waits for longer than the window lies behind that file by then."""
        broker = self.begin(sizes={"file_size": 1 << 14}, timers=TimerSettings(roll_window=10))
        self.later(b"far", 30_000)
        self.fill(broker)
        self.skips(11)
        broker.store.log.drop_first().remove()
        self.skips(20)
        self.assertEqual((self.got(), broker.timers.waiting.undeliverable), ([b"far"], 0))

    def test_clock_set_back(self) -> None:
        """A message that was sent after the clock was set back comes at its time."""
        self.begin()
        self.later(b"1", 5000)
        self.skips(6)
        self.jump = -3_600_000
        self.later(b"2", 2000)
        self.skips(3)
        self.assertEqual(self.got(), [b"1", b"2"])
        self.again()
        self.skips(3700)
        self.assertEqual(self.got(), [b"1", b"2"])


class WaitingTests(TimerTestCase):
    """Deliveries that wait for the disk or for replicas."""

    def test_not_done(self) -> None:
        """What waits is not done, and a stop waits for it."""
        self.begin()
        for n in range(3):
            self.later(b"%d" % n, 1000 + 200 * n)
        self.writer.outcome = waits = Deferred()
        self.passes(1.05)
        self.writer.outcome = PutStatus.PUT_OK
        self.passes(0.5)
        progress = self.serving.timers.progress()
        assert progress is not None
        self.assertEqual((progress.waiting, progress.low), ({0}, 0))
        stopped = self.serving.timers.stop()
        self.assertNoResult(stopped)
        waits.callback(PutStatus.PUT_OK)
        self.successResultOf(stopped)
        progress = self.serving.timers.progress()
        assert progress is not None
        self.assertEqual((progress.waiting, progress.low), (set(), 3))

    def test_disk_fails(self) -> None:
        """A stop does not wait for what never comes, and nothing of it counts as done."""
        self.begin()
        self.later(b"x", 1000)
        self.writer.outcome = waits = Deferred()
        self.passes(1.01)
        stopped = self.serving.timers.stop()
        self.assertNoResult(stopped)
        waits.errback(FlushFailed("commitlog", OSError(5, "broken")))
        self.successResultOf(stopped)
        progress = self.serving.timers.progress()
        assert progress is not None
        self.assertEqual(progress.waiting, {0})


class RestartTests(TimerTestCase):
    """What comes after a start: everything that had not, and nothing else."""

    def test_clean(self) -> None:
        """After a clean stop the rest comes."""
        self.begin()
        for n in range(20):
            self.later(b"%d" % n, 1000 * n + 500)
        self.skips(10)
        self.again()
        self.skips(15)
        self.assertEqual(self.got(), [b"%d" % n for n in range(20)])

    def test_progress_lost(self) -> None:
        """Without a word on how far deliveries were, the log tells."""
        self.begin()
        for n in range(200):
            self.later(b"%d" % n, 100 * n + 500)
        self.skips(10)
        self.stop()
        (self.root / "config" / "delayOffset.json").unlink()
        self.begin()
        self.skips(15)
        self.assertEqual(self.got(), [b"%d" % n for n in range(200)])

    def test_not_read(self) -> None:
        """A start that fails says so once, and begins anew: nothing of what it did not read counts
        as delivered, all that it did read is delivered once, and so is what comes meanwhile.
        """
        self.begin()
        self.later(b"x", 5000)
        self.later(b"y", 60_000, UNIQ_KEY="K")
        self.stop()
        path = self.root / "config" / "delayOffset.json"
        before = path.read_bytes()

        def fails(*_: object, **__: object) -> Iterator[None]:
            yield
            raise OSError("no descriptor")

        patch = self.patch(Timers, "_leave_out_delivered", fails)
        broker = self.begin()
        self.later(b"z", 8000)
        self.skips(10)
        status = broker.timers.status()
        self.assertEqual((status["reading"], status["error"]), (True, "OSError('no descriptor')"))
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.assertEqual(path.read_bytes(), before)
        patch.restore()
        self.skips(10)
        status = broker.timers.status()
        self.assertEqual((status["reading"], status["error"]), (False, None))
        self.assertEqual(status["pending"], {"T": 1})
        self.assertEqual(self.got(), [b"x", b"z"])
        self.skips(60)
        self.assertEqual(self.got(), [b"x", b"z", b"y"])

    def test_progress_of_before(self) -> None:
        """What was delivered after the progress was written does not come again; nor are two that
        are alike taken for one.
        """
        self.begin()
        path = self.root / "config" / "delayOffset.json"
        for n in range(40):
            self.later(b"%d" % (n // 2), 500 * n + 500, UNIQ_KEY=f"K{n // 2}")
        self.skips(5)
        kept = path.read_bytes()
        self.skips(7)
        before = len(self.got())
        self.stop()
        path.write_bytes(kept)
        self.begin()
        self.passes(0.1)
        self.assertEqual(len(self.got()), before)
        self.skips(15)
        self.assertEqual(self.got(), [b"%d" % (n // 2) for n in range(40)])

    def test_progress_newer_than_the_log(self) -> None:
        """A table of a later moment than the log is not believed."""
        self.begin()
        for n in range(10):
            self.later(b"%d" % n, 1000 * n + 500)
        self.skips(4)
        self.stop()
        path = self.root / "config" / "delayOffset.json"
        table = json_table.read(path)
        assert table is not None
        table["maxPhyOffset"] += 1_000_000
        table["timers"] |= {"low": 10, "next": 10, "time": NOW + 1_000_000}
        path.unlink()
        json_table.replace(path, table)
        self.begin()
        self.skips(10)
        self.assertEqual(self.got(), [b"%d" % n for n in range(10)])

    def test_other_window(self) -> None:
        """Progress counts by the windows of its time."""
        self.begin()
        self.later(b"x", 100_000_000)
        self.skips(1)
        self.again(timers=TimerSettings(roll_window=10))
        self.skips(12)
        self.assertEqual(len(self.waiting()), 2)


class RollTests(TimerTestCase):
    """Messages that wait for longer than the window."""

    def test_rolls(self) -> None:
        """Such a message is stored anew until its time, and comes once, on time."""
        window = TimerSettings(roll_window=10)
        self.begin(timers=window)
        self.later(b"x", 30_000)
        due = self.now() + 30_000
        for _ in range(5):
            self.skips(5)
            self.again(timers=window)
        self.skips(10)
        (record,) = self.records()
        self.assertLess(record.store_timestamp - due, 100)
        self.assertEqual(record.properties["TIMER_ROLL_TIMES"], "2")
        self.assertEqual(len(self.waiting()), 3)
        self.assertEqual(self.serving.timers.waiting.topics, {})
        self.assertEqual(self.waiting()[0].topic, TIMER_TOPIC)

    def test_killed(self) -> None:
        """So it does where its master is killed on the way."""
        window = TimerSettings(roll_window=10)
        for seconds in (5, 12, 22):
            self.setUp()
            self.begin(timers=window)
            self.later(b"x", 30_000)
            self.skips(seconds)
            self.kill()
            self.begin(timers=window)
            self.skips(29.9 - self.clock.seconds())
            self.assertEqual(self.got(), [])
            self.skips(10)
            (record,) = self.records()
            self.assertLess(record.store_timestamp - (NOW + 30_000), 100)
            self.assertEqual(record.properties["TIMER_ROLL_TIMES"], "2", seconds)
            self.stop()


class CancelTests(TimerTestCase):
    """Messages that are taken back."""

    def cancel(self, name: str, due: int, **more: str) -> int:
        told = {"TIMER_DELIVER_MS": str(due), "TIMER_DEL_UNIQKEY": name} | more
        return self.send(b"c", **told).code

    def test_cancelled(self) -> None:
        """What is cancelled never comes, nor does what cancels it; others of its slot come."""
        self.begin()
        due = NOW + 9500
        for key in ("1", "2", "3"):
            self.send(key.encode(), TIMER_DELIVER_MS=str(due), UNIQ_KEY=key)
        self.assertEqual(self.cancel("T+2", due), 0)
        self.assertEqual(self.cancel("1", due), 13, "the older style names no topic")
        self.assertEqual(self.cancel("T+3", due + 2000), 0)
        self.skips(5)
        self.again()
        self.skips(10)
        self.assertEqual(self.got(), [b"1", b"3"])
        self.assertEqual(self.serving.timers.waiting.topics, {})

    def test_of_another_topic(self) -> None:
        """Nobody cancels what is another topic's."""
        self.begin()
        self.send(b"x", TIMER_DELIVER_MS=str(NOW + 9500), UNIQ_KEY="1")
        answer = self.send(
            b"c", "U", TIMER_DELIVER_MS=str(NOW + 9500), TIMER_DEL_UNIQKEY="T+1", UNIQ_KEY="2"
        )
        self.assertEqual(answer.code, 13)
        self.assertIn("begins with U+", answer.remark or "")

    def test_rolled(self) -> None:
        """Both are stored anew, and meet at the end."""
        window = TimerSettings(roll_window=10)
        self.begin(timers=window)
        due = NOW + 30_000
        self.send(b"1", TIMER_DELIVER_MS=str(due), UNIQ_KEY="1")
        self.send(b"2", TIMER_DELIVER_MS=str(due), UNIQ_KEY="2")
        self.skips(3)
        self.cancel("T+1", due, UNIQ_KEY="1")
        for _ in range(4):
            self.skips(8)
            self.again(timers=window)
        self.skips(10)
        self.assertEqual(self.got(), [b"2"])

    def test_after_the_window(self) -> None:
        """A cancel that comes when its message was stored anew counts as well."""
        window = TimerSettings(roll_window=10)
        self.begin(timers=window)
        self.send(b"1", TIMER_DELIVER_MS=str(NOW + 30_000), UNIQ_KEY="1")
        self.skips(25)
        self.cancel("T+1", NOW + 30_000)
        self.skips(10)
        self.assertEqual(self.got(), [])
