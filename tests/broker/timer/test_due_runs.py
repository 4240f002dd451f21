"""Messages that are due are delivered many at a time as they are one by one; and what waits is read
so too.
"""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any
from unittest import skipUnless

import numpy as np
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.delay.due_copies import MOST, units_of
from rmqha.broker.timer.pending import PendingTimers
from rmqha.config.broker_settings import TimerSettings
from rmqha.ha.master.transfer import PutStatus
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.record import Message
from rmqha.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.broker.support import NOW, SEND_BATCH, batch, sending
from tests.broker.timer.support import TimerTestCase

WINDOW = 20
"""Seconds after which a message is stored anew."""

DUE = NOW + 9_000


class _Ways(TimerTestCase):
    """The same done in both ways."""

    singly = False
    named = 0

    def begin(self, **settings: Any) -> Any:
        """Open the store, in which nothing is delivered many at a time if that is not wanted."""
        many = {"timers": TimerSettings(roll_window=WINDOW), "levels": "5s 10s"}
        sizes = {"file_size": 1 << 17, "delay_levels": many.pop("levels")}
        broker = self.broker(sizes=sizes, **many, **settings)
        if self.singly:
            broker.timers.waiting.copies, broker.timers._most = None, 1
            assert broker.schedule._delivery is not None
            broker.schedule._delivery.copies = None
        broker.schedule.start()
        broker.timers.start()
        self.passes(0.02)
        return broker

    def both(self, way: Any) -> tuple[bytes, bytes]:
        """The log that each way gives."""
        logs = []
        for self.singly in (True, False):
            self.setUp()
            self.number = 0
            way()
            logs.append(self.log())
            self.stop()
        return logs[0], logs[1]

    def log(self) -> bytes:
        log, found, at = self.serving.store.log, b"", 0
        while at < log.end:
            found += log.read(at, log.file_size)
            at = log.file_end(at)
        return found

    def timer(self, body: bytes, due: int = DUE, topic: str = "T", **more: Any) -> None:
        queue_id = more.pop("queue_id", 0)
        self.number += 1
        told = {"UNIQ_KEY": f"U{self.number}", "TIMER_DELIVER_MS": str(due)} | more
        answer = self.client().ask(310, sending(topic, properties=told, queue_id=queue_id), body)
        assert answer is not None
        self.assertEqual(answer.code, 0, answer.remark)

    def stored(self, body: bytes, topic: str = TIMER_TOPIC, **more: Any) -> None:
        """Store one as another broker may have: what it says is the test's."""
        told = {"UNIQ_KEY": "S", "TIMER_OUT_MS": str(DUE - 1000), "REAL_TOPIC": "T"}
        told |= {"REAL_QID": "1"} | more.pop("told", {})
        text = "".join(
            f"{name}\x01{value}\x02" for name, value in told.items() if value is not None
        )
        fields = {
            "topic": topic,
            "queue_id": 0,
            "body": body,
            "properties": text.encode(),
            "born_timestamp": NOW - 7,
            "born_host": ("10.0.0.1", 77),
            "store_host": ("10.0.0.2", 78),
        } | more
        self.serving.store.put(Message(**fields))


@skipUnless(COMPILED, "the lane is not compiled here")
class DueRunTests(_Ways):
    def assertSame(self, way: Any) -> bytes:
        """Both ways give the same log, and come to its end."""
        one, other = self.both(way)
        self.assertEqual(one, other)
        return other

    def test_usual(self) -> None:
        """Thousands of several topics and queues, over several log files."""

        def way() -> None:
            self.begin()
            for n in range(1200):
                due = DUE + (n * 7) % 20
                self.timer(b"%d" % n * (n % 50), due, f"T{n % 3}", queue_id=n % 4, KEYS="k")
            self.skips(12)
            self.assertEqual(self.serving.timers.waiting.topics, {})

        self.assertSame(way)

    def test_runs_are_used(self) -> None:
        """What is usual comes many at a time."""
        self.begin()
        runs: list[int] = []
        copies = self.serving.timers.waiting.copies
        assert copies is not None
        real = copies.writer

        class Writer:
            def put_run(self, run: Any, born_host: bytes, done: Any) -> None:
                real.put_run(run, born_host, done)
                runs.append(run.count)

        copies.writer = Writer()  # type: ignore[assignment]
        for n in range(MOST + 10):
            self.timer(b"%d" % n)
        self.skips(12)
        self.assertEqual(runs, [MOST, 10])
        self.assertEqual(self.got(), [b"%d" % n for n in range(MOST + 10)])
        self.assertEqual(self.serving.timers.lateness.status()["count"], MOST + 10)

    def test_unusual(self) -> None:
        """Everything unusual, and what is usual between it."""

        def way() -> None:
            broker = self.begin()
            self.timer(b"gone", topic="D")
            for n in range(200):
                self.timer(b"u%d" % n, queue_id=n % 2)
                self.odd(n)
            self.successResultOf(Deferred.fromCoroutine(broker._topic_gone("D")))
            self.timer(b"new", topic="D")
            self.skips(60)
            self.assertEqual(broker.timers.waiting.topics, {})
            self.assertEqual(broker.timers.waiting.undeliverable, 7)

        self.assertSame(way)

    def odd(self, n: int) -> None:
        """The message of a number that has something unusual about it, if any."""
        kind, body = n // 4 if n % 4 == 0 else -1, b"o%d" % n
        key = f"C{n}"
        if kind == 0:
            self.timer(body, UNIQ_KEY=key)
            self.timer(b"c", UNIQ_KEY="X", TIMER_DEL_UNIQKEY=f"T+{key}")
        elif kind == 1:
            self.timer(body, DUE + 30_000)
        elif kind == 2:
            self.stored(body, told={"REAL_TOPIC": "L" * 200})
        elif kind == 3:
            self.stored(body, told={"REAL_TOPIC": "Ünicode"})
        elif kind == 4:
            self.stored(body, told={"REAL_TOPIC": "SCHEDULE_TOPIC_XXXX"})
        elif kind == 5:
            self.stored(body, told={"REAL_QID": "x"})
        elif kind == 6:
            self.stored(body, told={"REAL_QID": None})
        elif kind == 7:
            self.stored(body, told={"REAL_TOPIC": None})
        elif kind == 8:
            self.stored(body, told={"TIMER_OUT_MS": "soon"})
        elif kind == 9:
            self.stored(body, told={"TIMER_DELIVER_MS": "+1"})
        elif kind == 10:
            self.stored(body, told={"TIMER_DELIVER_MS": str(DUE + 99_000)})
        elif kind == 11:
            self.stored(body, sys_flag=8)
        elif kind == 12:
            self.stored(body, born_host=("::1", 5), store_host=("fe80::1", 6))
        elif kind == 13:
            self.stored(body, born_host=("::1", 5))
        elif kind == 14:
            self.stored(b"", flag=3, reconsume_times=2, prepared_transaction_offset=9)
        elif kind == 15:
            self.stored(body * 5000)
        elif kind == 16:
            self.stored(body, told={"LONG": "x" * 32_500})
        elif kind == 17:
            self.stored(body, told={"LONG": "x" * 32_400})
        elif kind == 18:
            self.stored(body, told={"REAL_TOPIC": "U\x02REAL_TOPIC\x01V\x02REAL_TOPIC\x01"})
        elif kind == 19:
            self.stored(body, told={"A": "REAL_QID\x01\x013", "REAL_QIDS": "4", "\x01": "1"})
        elif kind == 20:
            self.damage(body)
        elif kind == 21:
            told = {"TIMER_DELIVER_MS": str(DUE)}
            fields = sending("T", properties=told, batch="true")
            answer = self.client().ask(SEND_BATCH, fields, batch((b"b1", "A\x01B"), (b"b2", "")))
            assert answer is not None and not answer.code
        elif kind == 22:
            self.stored(body, told={"TIMER_ROLL_TIMES": "2", "DELAY": "1"})
        elif kind == 23:
            self.timer(body, DUE - 8_999)
        elif kind in (24, 25, 26, 27):
            # What says that it is a check point of POP, or acks.
            told = {"REAL_TOPIC": f"rmq_sys_REVIVE_LOG_{kind}", "TIMER_DELIVER_MS": str(DUE)}
            told |= {"TAGS": "ack" if kind == 26 else "ck"}
            told |= {"TIMER_DEL_UNIQKEY": "T+U1"} if kind == 25 else {}
            for _ in range(3 if kind == 27 else 1):
                self.stored(body, told=told)

    def damage(self, body: bytes) -> None:
        """Store one whose body is not what was sent."""
        self.stored(body)
        self.passes(0.02)
        store = self.serving.store
        file = store.log.folder.at(store.log.last_record)
        at = store.log.last_record - file.start + 88
        file.view[at : at + 1] = b"?"

    def test_waits(self) -> None:
        """What waits for replicas is not done; it is when they have it."""
        broker = self.begin()
        for n in range(10):
            self.timer(b"%d" % n)
        self.skips(8.5)
        self.writer.outcome = waiting = Deferred()
        self.passes(0.6)
        self.assertEqual(len(self.got()), 10)
        progress = broker.timers.progress()
        assert progress is not None
        self.assertEqual((progress.low, progress.waiting), (0, set(range(10))))
        waiting.callback(PutStatus.FLUSH_SLAVE_TIMEOUT)
        progress = broker.timers.progress()
        assert progress is not None
        self.assertEqual((progress.low, progress.waiting), (10, set()))

    def test_delayed(self) -> None:
        """Messages of a level as well."""

        def way() -> None:
            broker = self.begin()
            for n in range(700):
                self.send(b"%d" % n, f"T{n % 3}", DELAY="1")
                if n % 50 == 0:
                    self.stored(b"x", SCHEDULE_TOPIC, told={"DELAY": "1", "REAL_TOPIC": "L" * 200})
                    self.stored(b"y", SCHEDULE_TOPIC, told={"DELAY": "1", "REAL_TOPIC": None})
            self.skips(7)
            self.assertEqual(broker.schedule.status()["undeliverable"], 14)
            self.assertEqual(broker.schedule.status()["lateMillis"]["count"], 728)

        self.assertSame(way)

    def test_units_of(self) -> None:
        """Units of queue offsets that lie in any order, close to one another or not."""
        broker = self.begin()
        for n in range(300):
            self.stored(b"%d" % n)
        self.passes(0.1)
        queue = broker.store.queues.get(TIMER_TOPIC, 0)
        assert queue is not None
        for offsets in ([0, 1, 2], [2, 1], [299, 0], [5], [4, 90, 3]):
            expected = b"".join(queue.units(offset, 1) for offset in offsets)
            self.assertEqual(units_of(queue, offsets), expected)
        self.assertEqual(units_of(queue, [299, 300]), b"")


class PendingTests(SynchronousTestCase):
    """What waits, without a broker."""

    def test_runs(self) -> None:
        """Many are added and taken as they are one by one."""
        for seed in range(40):
            self.compare(Random(seed))

    def compare(self, random: Random) -> None:
        """Do the same with a sorted list."""
        found, waits = PendingTimers(), list[tuple[int, int]]()
        now, offset, back = NOW, 0, random.random() < 0.5
        for _ in range(60):
            count, spread = random.randrange(1, 200), random.choice((50, 30_000, 500_000))
            due = [now + random.randrange(-20, spread) for _ in range(count)]
            offsets = list(range(offset, offset + count))
            offset += count
            if random.random() < 0.2:
                for one in zip(due, offsets, strict=True):
                    found.add(*one)
            else:
                if random.random() < 0.5:
                    # As those of which a scan says that they are done with.
                    due = [random.choice((-1, time)) for time in due]
                found.add_run(np.array(due), np.array(offsets))
            waits = sorted(
                [*waits, *(one for one in zip(due, offsets, strict=True) if one[0] >= 0)]
            )
            self.look(found, waits)
            # Clocks are set back, too.
            now += random.choice((1, 100, 40_000, -200_000))
            most = random.choice((1, 7, 300))
            taken = [one for one in waits if one[0] <= now][:most]
            self.assertEqual(found.pop_run(now, most), taken)
            done = random.randrange(len(taken) + 1) if back else len(taken)
            found.back(*taken[done:])
            waits = sorted([*taken[done:], *waits[len(taken) :]])
            self.look(found, waits)
        self.assertEqual(found.pop_run(now + 10**7, len(waits) + 1), waits)
        self.assertEqual((found.count, found.least()), (0, None))

    def look(self, found: PendingTimers, waits: list[tuple[int, int]]) -> None:
        """Nothing is due before it is said, and nothing waits below what is said."""
        self.assertEqual(found.count, len(waits))
        if not waits:
            self.assertEqual((found.next_due(), found.least()), (None, None))
            return
        due, least = found.next_due(), found.least()
        assert due is not None and least is not None
        self.assertLessEqual(waits[0][0] - due, 60_000)
        self.assertLessEqual(due, waits[0][0])
        self.assertLessEqual(least, min(offset for _, offset in waits))

    def test_settled(self) -> None:
        """What is settled before its minute begins is not taken, and all else is, once."""
        for seed in range(40):
            self.settle(Random(seed))

    def settle(self, random: Random) -> None:
        found, waits, end, now = PendingTimers(), dict[int, int](), 0, NOW
        for _ in range(40):
            first, end = end, end + random.randrange(60)
            for offset in range(first, end):
                due = now + random.randrange(200_000)
                settles = due - now > 60_000 and random.random() < 0.5
                # Its acks may be stored before it is read.
                early = random.random() < 0.5
                if settles and early:
                    found.settle(due, offset)
                found.add(due, offset)
                if settles and not early:
                    found.settle(due, offset)
                if not settles:
                    waits[offset] = due
            now += random.choice((1, 100, 40_000, 130_000))
            taken = sorted((due, offset) for offset, due in waits.items() if due <= now)
            self.assertEqual(found.pop_run(now, 10_000), taken)
            waits = {offset: due for offset, due in waits.items() if due > now}
            self.assertGreaterEqual(found.count, len(waits))
            if waits:
                self.assertLessEqual(found.next_due() or 1 << 48, min(waits.values()))
        found.pop_run(now + 10**7, 10_000)
        self.assertEqual((found.count, found.least(), found.next_due()), (0, None, None))

    def test_small(self) -> None:
        """Of a million that wait over days each takes at most 32 bytes."""
        found, count = PendingTimers(), 1_000_000
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for first in range(0, count, 10_000):
            offsets = np.arange(first, first + 10_000)
            found.add_run(NOW + offsets * 7919 % 200_000_000, offsets)
        self.assertEqual(found.count, count)
        self.assertLess(tracemalloc.get_traced_memory()[0], 32 * count)

    def test_backwards(self) -> None:
        """The same where a start reads from the end."""
        random = Random(1)
        singly, many = PendingTimers(), PendingTimers()
        due = [NOW + random.randrange(3_000_000) for _ in range(2000)]
        for offset in reversed(range(2000)):
            singly.add(due[offset], offset)
        for end in range(2000, 0, -500):
            offsets = np.arange(end - 1, end - 501, -1)
            many.add_run(np.array(due)[offsets], offsets)
        wanted = sorted(zip(due, range(2000), strict=True))
        for each in (singly, many):
            each.reverse()
            self.assertEqual(each.least(), 0)
            self.assertEqual(each.pop_run(NOW + 10**8, 3000), wanted)


@skipUnless(COMPILED, "the lane is not compiled here")
class ReadingTests(_Ways):
    """What waits is read many at a time, at a start and later."""

    def waits(self) -> Any:
        """What waits now, and what is said of it."""
        timers = self.serving.timers
        found = dict(timers.waiting.topics), timers.waiting.pending.count, timers.waiting.cancelled
        progress = timers.progress()
        assert progress is not None
        # The way changes how little may be said of the first one.
        return evolve(progress, low=0), *found, timers.waiting.pending.next_due()

    def test_start(self) -> None:
        """After a start the same waits, with and without a word on what is delivered."""

        def way() -> None:
            self.begin()
            for n in range(3000):
                self.timer(b"%d" % n, DUE + (n * 7919) % 50_000, f"T{n % 3}")
                if n % 97 == 0:
                    self.timer(b"c", DUE + 5, "T0", TIMER_DEL_UNIQKEY=f"T0+U{n}")
            self.skips(25)
            found = [self.waits()]
            for lost in (False, True):
                self.stop()
                if lost:
                    (self.root / "config" / "delayOffset.json").unlink()
                self.begin()
                self.passes(0.5)
                self.assertIsNone(self.serving.timers._starting)
                found.append(self.waits())
            self.said.append(found)
            self.skips(50)
            self.assertEqual(self.serving.timers.waiting.topics, {})

        self.said: list[Any] = []
        one, other = self.both(way)
        self.assertEqual(one, other)
        self.assertEqual(self.said[0], self.said[1])
