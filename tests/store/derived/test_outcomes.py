"""Tests for L{rmqha.store.derived.outcomes}."""

from __future__ import annotations

from typing import Any

import orjson
from attrs import evolve

from lab.harness import golden
from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.outcomes import (
    ORIGIN_ACK,
    WINDOW,
    DelayedCopies,
    next_pop_offsets,
    open_halves,
)
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.store import Store
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.pop_record import CheckPoint
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Message
from rmqha.wire.names import (
    HALF_DONE_TOPIC,
    HALF_TOPIC,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from tests.support.logs import HOST, STORED, LogTestCase

SIZES = {
    "file_size": 1 << 16,
    "queue_file_size": 2000,
    "index_slots": 20,
    "index_entries": 30,
    "delay_levels": "1s 2s",
}


REVIVE = f"{REVIVE_PREFIX}C"


def opened_lookup(store: Store) -> Lookup:
    """What finds the records of a store."""
    store.dispatcher.run(10.0)
    levels = DelayLevels.parse(store.settings.delay_levels)
    return Lookup(RecordReader(store.log, levels), store.queues, None)


class OutcomesTestCase(LogTestCase):
    """Tests with a store whose clock is the test's."""

    def setUp(self) -> None:
        self.store = self.opened(self.folder() / "store", settings=SIZES)
        self.time = STORED
        self.store.now_ms = lambda: self.time

    @property
    def lookup(self) -> Lookup:
        """Of the store as it is now."""
        return opened_lookup(self.store)


class DelayTests(OutcomesTestCase):
    def delayed(self, body: bytes, level: int = 1, **more: Any) -> Message:
        """Store one that waits, and return its copy, to be stored when it is due."""
        told = {"DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "0"}
        given: dict[str, Any] = {"born_timestamp": STORED, "properties": encode(told)} | more
        message = Message(
            topic=SCHEDULE_TOPIC,
            queue_id=level - 1,
            body=body,
            born_host=HOST,
            store_host=HOST,
            **given,
        )
        self.store.put(message)
        return evolve(message, topic="T", queue_id=0)

    def first(self, level: int = 1) -> int:
        lookup = self.lookup
        return DelayedCopies(lookup).first_waiting(
            level, lookup.queues.end(SCHEDULE_TOPIC, level - 1)
        )

    def test_delivered(self) -> None:
        """What has its copy is delivered, what has none waits, and each level is by itself."""
        copies = [self.delayed(b"%d" % n) for n in range(5)]
        other = self.delayed(b"other", level=2)
        self.assertEqual((self.first(), self.first(2)), (0, 0))
        self.time += 1000
        for number, copy in enumerate(copies[:3], 1):
            self.store.put(copy)
            self.assertEqual(self.first(), number)
        self.time += 1000
        self.store.put(other)
        self.assertEqual((self.first(), self.first(2)), (3, 1))

    def test_long_due(self) -> None:
        """What was due long ago waits, if its master was down and had no time for it."""
        for n in range(WINDOW + 5):
            self.delayed(b"%d" % n)
        self.time += 3_600_000
        for n in range(100):
            self.store.put(
                Message(
                    topic="T",
                    queue_id=0,
                    body=b"%d" % n,
                    born_timestamp=STORED,
                    born_host=HOST,
                    store_host=HOST,
                )
            )
        self.assertEqual(self.first(), 0)

    def test_many(self) -> None:
        """However many wait, it is found how many do not."""
        copies = [self.delayed(b"%d" % n) for n in range(4 * WINDOW)]
        self.time += 1000
        for copy in copies[:7]:
            self.store.put(copy)
        self.assertEqual(self.first(), 7)

    def test_one_moment(self) -> None:
        """Each copy is read once, however many were delivered together: a start after a kill in a
        burst of ten thousand does not take an hour.
        """
        waits = [self.delayed(b"%d" % n) for n in range(200)]
        self.time += 1000
        for copy in waits:
            self.store.put(copy)
        copies, read = DelayedCopies(self.lookup), 0
        whole = copies._marks

        def counted(*place: Any) -> Any:
            nonlocal read
            read += 1
            return whole(*place)

        self.patch(DelayedCopies, "_marks", lambda copies, *place: counted(*place))
        for at in reversed(range(200)):
            record = self.lookup.by_queue_offset(SCHEDULE_TOPIC, 0, at)
            assert record is not None
            self.assertTrue(copies.has(record, STORED + 1000))
        self.assertEqual(read, 200)

    def test_alike(self) -> None:
        """Of messages that nobody can tell apart as many count as delivered as there are copies."""
        copies = [self.delayed(b"same") for _ in range(5)]
        self.time += 1000
        for copy in copies[:2]:
            self.store.put(copy)
        self.assertEqual(self.first(), 2)

    def test_retries(self) -> None:
        """The copy of a message's first retry is not that of its second."""
        first = self.delayed(b"x", reconsume_times=1)
        self.delayed(b"x", reconsume_times=2)
        self.time += 1000
        self.store.put(first)
        self.assertEqual(self.first(), 1)

    def test_not_a_copy(self) -> None:
        """The same message, sent without a delay, is no copy of it."""
        copy = self.delayed(b"x")
        self.time += 1000
        self.store.put(evolve(copy, properties=b""))
        self.assertEqual(self.first(), 0)

    def test_skipped(self) -> None:
        """One undelivered does not make those wait that were delivered behind it."""
        copy = self.delayed(b"1")
        self.delayed(b"2", properties=encode({"DELAY": "1"}))
        other = self.delayed(b"3")
        self.time += 1000
        self.store.put(copy)
        self.store.put(other)
        self.assertEqual(self.first(), 3)

    def test_nothing(self) -> None:
        """A level without messages has none that waits."""
        self.assertEqual(DelayedCopies(self.lookup).first_waiting(1, 0), 0)

    def test_stock(self) -> None:
        """The copies that stock brokers stored are found."""
        for version in golden.VERSIONS:
            store = self.opened(
                golden.store(version),
                settings={
                    "file_size": golden.LOG_FILE_SIZE,
                    "queue_file_size": golden.QUEUE_FILE_SIZE,
                },
            )
            lookup = opened_lookup(store)
            copied = 0
            for queue in store.queues.of(SCHEDULE_TOPIC):
                copied += DelayedCopies(lookup).first_waiting(queue.queue_id + 1, queue.max_offset)
            self.assertGreater(copied, 3, version)


class HalfTests(OutcomesTestCase):
    def put(self, topic: str, body: bytes, *, told: int = 0, key: str = "") -> None:
        """Store a half message or an op."""
        self.store.put(
            Message(
                topic=topic,
                queue_id=0,
                body=body,
                properties=encode({"UNIQ_KEY": key}) if key else b"",
                born_timestamp=self.time,
                born_host=HOST,
                store_host=HOST,
                prepared_transaction_offset=told,
            )
        )

    def found(self, end: int = 100) -> tuple[int, int, int]:
        """The first open one, the first op behind it, and how many are open."""
        lookup = self.lookup
        found = open_halves(lookup, min(end, lookup.queues.end(HALF_TOPIC, 0)))
        return found.first, found.op, found.count

    def test_named(self) -> None:
        """What an op names is ended, also where one names several; what none names is open."""
        self.assertEqual(self.found(), (0, 0, 0))
        for n in range(6):
            self.put(HALF_TOPIC, b"%d" % n)
        self.assertEqual(self.found(), (0, 0, 6))
        for body in (b"0,1", b"3", b"5"):
            self.put(HALF_DONE_TOPIC, body)
        self.assertEqual(self.found(), (2, 0, 2))
        self.assertEqual(self.found(4), (2, 0, 1))
        self.assertEqual(self.found(2), (2, 0, 0))
        self.put(HALF_DONE_TOPIC, b"2")
        self.put(HALF_DONE_TOPIC, b"4")
        self.assertEqual(self.found(), (6, 5, 0))

    def test_first_op(self) -> None:
        """Ops that were stored before the first open one need not be read again."""
        for n in range(3):
            self.put(HALF_TOPIC, b"%d" % n)
            self.put(HALF_DONE_TOPIC, b"%d" % n)
        self.put(HALF_TOPIC, b"3")
        self.assertEqual(self.found(), (3, 3, 1))

    def test_told(self) -> None:
        """An op of ours says before which one all are ended: no older op is looked for."""
        for n in range(4):
            self.put(HALF_TOPIC, b"%d" % n)
        self.put(HALF_DONE_TOPIC, b"3", told=3)
        self.put(HALF_DONE_TOPIC, b"7")
        self.assertEqual(self.found(), (2, 0, 1))

    def test_stored_anew(self) -> None:
        """A half message that a stock broker stored anew to ask about it is the later one."""
        for key in ("a", "b", "a", "b"):
            self.put(HALF_TOPIC, key.encode(), key=key)
        self.put(HALF_DONE_TOPIC, b"2")
        self.assertEqual(self.found(), (3, 0, 1))


class PopTests(OutcomesTestCase):
    """Check points as a stock broker stores them: that of a message whose time was changed looks
    like one of a message that was handed out alone.
    """

    def put(self, body: bytes, tag: str, topic: str = TIMER_TOPIC, **more: str) -> None:
        told = {"TAGS": tag, "REAL_TOPIC": REVIVE, "REAL_QID": "3"} | more
        self.store.put(
            Message(
                topic=topic,
                queue_id=0 if topic == TIMER_TOPIC else 3,
                body=body,
                properties=encode(told),
                born_timestamp=self.time,
                born_host=HOST,
                store_host=HOST,
            )
        )

    def handed(
        self, *offsets: int, ours: bool = False, late: int = 0, **more: object
    ) -> CheckPoint:
        """Messages are handed out for ten seconds, a second after the last ones.

        @param late: After how many milliseconds that is stored: after nine seconds where it goes
            when it is due.
        """
        self.time += 1000
        point = CheckPoint(
            topic="T",
            queue_id=0,
            group="G",
            start=offsets[0],
            pop_time=self.time,
            invisible=10_000,
            broker="B",
            offsets=offsets,
            behind=offsets[0],
        )
        told = orjson.loads(point.body()) | more
        if not ours:
            del told["behind"]
        self.time += late
        self.put(orjson.dumps(told), "ck", REVIVE if late > 9000 else TIMER_TOPIC)
        return point

    def done(self, point: CheckPoint, *offsets: int) -> None:
        """A stock broker stores that messages are done with."""
        for offset in offsets:
            body, tag, _ = point.acks((offset,))
            self.put(body, tag)

    def changed(self, point: CheckPoint, offset: int) -> CheckPoint:
        """It stores that a message's time was changed."""
        anew = self.handed(offset)
        self.done(point, offset)
        return anew

    def goes_on(self) -> None:
        """The log goes on for as long as the ack of a changed one's first check point may take."""
        self.time += ORIGIN_ACK + 1
        self.put(b"{}", "ack")

    def assertNext(self, offset: int) -> None:
        self.assertEqual(next_pop_offsets(self.lookup), {("T@G", 0): offset})

    def test_handed_out(self) -> None:
        """The group goes on behind the last that it was handed, many or one."""
        self.assertEqual(next_pop_offsets(self.lookup), {})
        self.handed(0, 1, 2)
        self.assertNext(3)
        self.handed(3)
        self.assertNext(4)
        self.done(self.handed(4), 4)
        self.assertNext(5)
        self.goes_on()
        self.assertNext(5)

    def test_changed(self) -> None:
        """It does not go back to one whose time was changed, once or again, wherever the log ends,
        and others' acks may stand between.
        """
        first = self.handed(0, 1, 2, 3)
        second = self.handed(4, 5, 6, 7)
        self.done(second, 4, 6, 7)
        changed = self.changed(first, 1)
        self.assertNext(8)
        anew = self.changed(changed, 1)
        self.assertNext(8)
        self.handed(1)
        self.assertNext(8)
        self.done(second, 5)
        self.done(anew, 1)
        self.goes_on()
        self.assertNext(8)

    def test_changed_among_single_ones(self) -> None:
        """The same where each is handed out alone."""
        points = [self.handed(offset) for offset in range(4)]
        self.handed(2)
        self.assertNext(4)
        self.done(points[2], 2)
        self.assertNext(4)
        self.changed(points[0], 0)
        self.goes_on()
        self.assertNext(4)

    def test_changed_too_late(self) -> None:
        """An ack of what was over lies in the revive topic at once; one that waited is no answer to
        a change.
        """
        point = self.handed(0, 1, 2, 3)
        body, tag, _ = point.acks((1,))
        self.time += 10_000
        self.handed(1)
        self.put(body, tag, REVIVE, TIMER_DEQUEUE_MS="1")
        self.goes_on()
        self.assertNext(2)
        self.handed(1)
        self.put(body, tag, REVIVE)
        self.goes_on()
        self.assertNext(2)
        self.handed(4, 5, 6, 7)
        self.handed(1)
        self.put(body, tag, REVIVE)
        self.goes_on()
        self.assertNext(8)

    def test_stored_late(self) -> None:
        """One that was due when it was stored is in the revive topic, maybe behind what was handed
        out later; a copy of one that was not says nothing more.
        """
        first = self.handed(0, 1, 2, 3)
        self.handed(4, 5, 6, 7, late=9500)
        self.assertNext(8)
        self.put(first.body(), "ck", REVIVE, TIMER_DEQUEUE_MS="1")
        self.assertNext(8)
        self.handed(12, 13)
        self.handed(8, 9, 10, 11, late=9500, pt=self.time - 1)
        self.assertNext(14)
        self.handed(14, 15, late=9500)
        self.handed(16, late=9500)
        self.assertNext(17)
        self.goes_on()
        self.assertNext(17)

    def test_changed_late(self) -> None:
        """So is that of a message whose time was changed to what is over."""
        point = self.handed(0, 1, 2, 3)
        self.handed(1, late=9500)
        self.done(point, 1)
        self.assertNext(4)
        self.goes_on()
        self.assertNext(4)

    def test_reset(self) -> None:
        """A group that was set back goes on there: no ack of an old check point follows, though
        that is open.
        """
        self.handed(0, 1, 2, 3)
        self.handed(1)
        self.goes_on()
        self.assertNext(2)

    def test_reset_of_ours(self) -> None:
        """A check point of ours says itself that it is none of a change."""
        point = self.handed(0, 1, 2, 3, ours=True)
        self.handed(1, ours=True)
        self.assertNext(2)
        self.done(point, 1)
        self.assertNext(2)

    def test_reset_to_what_is_over(self) -> None:
        """Of a message whose time was over none is changed."""
        self.handed(0, 1, 2, 3)
        self.time += 10_000
        self.handed(1)
        self.assertNext(2)

    def test_acknowledged_later(self) -> None:
        """An ack that comes much later is no change's."""
        point = self.handed(0, 1, 2, 3)
        self.handed(1)
        self.goes_on()
        self.done(point, 1)
        self.assertNext(2)

    def test_tried_again(self) -> None:
        """The check point that a stock broker stores for a message that it could not let come again
        says where nobody goes on.
        """
        self.handed(0, 1, 2, 3)
        self.handed(1, rp="1")
        self.goes_on()
        self.assertNext(4)
