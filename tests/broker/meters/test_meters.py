"""How far groups are behind, what it costs to say so, and how long writes take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.meters import group_lag
from rmqha.broker.meters.group_lag import GroupLag
from rmqha.broker.meters.latency import PutTimes, TimedPuts
from rmqha.errors import FlushFailed, NotWritable
from rmqha.ha.master.put_service import PutResult
from rmqha.ha.master.transfer import PutStatus
from rmqha.metrics.broker_families import LATENCY, of_broker
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.store import Receipt
from rmqha.wire.remoting.bodies.tables import TopicConfig
from tests.broker.support import NOW, SEND_V2, BrokerTestCase, sending

QUEUES = 4
TOPICS = "T0", "T1", "T2"


class GroupLagTests(BrokerTestCase):
    """L{GroupLags<rmqha.broker.meters.group_lag.GroupLags>} of three topics of four queues with
    five messages each, one message a second, that one group reads; one look may read as many queues
    as one topic has, and the record of the log that is the oldest there.
    """

    def setUp(self) -> None:
        """Topics with messages, and a group at their beginning."""
        super().setUp()
        self.patch(group_lag, "READS", QUEUES + 1)
        serving = self.broker()
        serving.lags.start()
        self.addCleanup(serving.lags.stop)
        self.offsets = serving.offsets
        client = self.client()
        for topic in TOPICS:
            serving.topics.put(
                TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            )
        for _ in range(5):
            for topic in TOPICS:
                for queue_id in range(QUEUES):
                    client.ask(SEND_V2, sending(topic, queue_id=queue_id), b"x")
                    self.clock.advance(1)
        self.reads = 0
        self.patch(ConsumeQueue, "unit", self.counted(ConsumeQueue.unit))
        self.go(0)

    def counted(
        self, unit: Callable[[ConsumeQueue, int], tuple[int, int, int] | None]
    ) -> Callable[[ConsumeQueue, int], tuple[int, int, int] | None]:
        def counting(queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
            self.reads += 1
            return unit(queue, offset)

        return counting

    def go(self, offset: int) -> None:
        """The group comes to an offset in all queues."""
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                self.offsets.commit("cg", topic, queue_id, offset, "test:1")

    def look(self) -> dict[str, GroupLag]:
        """How far the group is, by topic."""
        found = [each for each in self.serving.lags.each(lambda _: False) if each is not None]
        return {topic: lag for topic, _, lag in found}

    def since(self) -> list[float | None]:
        """When the oldest of each topic was stored, in seconds after the first of all."""
        found = self.look()
        return [
            None if (since := found[topic].since) is None else (since - NOW) / 1000
            for topic in TOPICS
        ]

    def test_bounded(self) -> None:
        """A look reads so many queues, the rest soon after; then it knows all and reads nothing."""
        self.assertEqual((self.since(), self.reads), ([0, None, None], QUEUES))
        self.clock.pump([1.0] * 2)
        self.assertEqual((self.reads, self.since()), (3 * QUEUES, [0, 4, 8]))
        self.assertEqual(self.reads, 3 * QUEUES)

    def test_moved(self) -> None:
        """Groups that a look leaves out are told as before; their messages are counted."""
        self.look()
        self.clock.pump([1.0] * 2)
        self.go(1)
        self.assertEqual(self.since(), [12, 4, 8])
        self.assertEqual({lag.messages for lag in self.look().values()}, {4 * QUEUES})
        self.clock.pump([1.0] * 2)
        self.assertEqual(self.since(), [12, 16, 20])

    def test_one_queue(self) -> None:
        """Only queues in which the group has moved are read."""
        self.look()
        self.clock.pump([1.0] * 2)
        self.reads = 0
        self.patch(group_lag, "READS", 2 * len(TOPICS))
        for topic in TOPICS:
            self.offsets.commit("cg", topic, 0, 1, "test:1")
        self.assertEqual((self.since(), self.reads), ([1, 5, 9], 3))

    def test_log_counts(self) -> None:
        """The record of the log is a read too: a look that has none left for it reads nothing."""
        self.patch(group_lag, "READS", QUEUES)
        self.assertEqual(self.since(), [None] * len(TOPICS))
        self.assertEqual(self.reads, 0)
        self.clock.pump([1.0] * 2)
        self.assertEqual(self.since(), [0, 4, 8])

    def test_many_queues(self) -> None:
        """Neither a look nor the work after it reads more than some queues of a topic in one go."""
        self.patch(group_lag, "QUEUES_A_STEP", 2)
        self.patch(group_lag, "READS", 0)

        def longest(steps: Iterator[object]) -> int:
            found, before = 0, self.reads
            for _ in steps:
                found, before = max(found, self.reads - before), self.reads
            return max(found, self.reads - before)

        self.look()
        most = longest(self.serving.lags._owing())
        self.assertEqual((most, self.reads), (2, len(TOPICS) * QUEUES))
        self.patch(group_lag, "READS", 100)
        self.go(1)
        most = longest(self.serving.lags.each(lambda _: False))
        self.assertEqual((most, self.reads), (2, 2 * len(TOPICS) * QUEUES))

    def test_no_claim(self) -> None:
        """An age that is not known yet is no sample; that of nothing is 0."""
        for queue_id in range(QUEUES):
            self.offsets.commit("cg", "T2", queue_id, 5, "test:1")
        now = int(self.clock.seconds() * 1000)
        found = {
            sample[1][0]: sample[2]
            for sample in of_broker(self.serving)
            if sample is not None and sample[0] is LATENCY
        }
        self.assertEqual(found, {"T0": now, "T2": 0})

    def test_gone(self) -> None:
        """A topic that is deleted before its groups were looked up is passed over."""
        self.look()
        self.serving.topics.delete("T1")
        self.clock.pump([1.0] * 2)
        self.assertEqual((self.reads, set(self.look())), (2 * QUEUES, {"T0", "T2"}))


RESULT = PutResult(PutStatus.FLUSH_SLAVE_TIMEOUT, Receipt(0, 100, 0, "id"))


class TimedPutsTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A writer that does what the test says."""
        self.clock = Clock()
        self.outcome: Any = succeed(RESULT)
        self.asked: list[Any] = []
        self.puts = TimedPuts(self, self.clock.seconds, PutTimes())

    def put(self, message: Any, *, batch: bool = False, wait: bool = True) -> Deferred[PutResult]:
        self.asked.append((message, batch, wait))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def test_waited(self) -> None:
        """A write takes until it is answered, whatever the answer is."""
        self.outcome = Deferred()
        stored = self.puts.put("message", batch=True, wait=False)
        self.assertEqual(self.asked, [("message", True, False)])
        self.clock.advance(0.25)
        self.assertNoResult(stored)
        self.outcome.callback(RESULT)
        self.assertIs(self.successResultOf(stored), RESULT)
        self.assertEqual((self.puts.times.all().longest, self.puts.failed), (0.25, 0))
        self.assertEqual(self.puts.times.results(), {PutStatus.FLUSH_SLAVE_TIMEOUT: 1})

    def test_failed(self) -> None:
        """What was not stored, and what nobody knows of, is counted."""
        self.outcome = NotWritable("full", "no room")
        self.assertRaises(NotWritable, self.puts.put, "message")
        self.outcome = Deferred()
        stored = self.puts.put("message")
        self.outcome.errback(FlushFailed("disk", "gone"))
        self.failureResultOf(stored, FlushFailed)
        self.assertEqual(self.puts.failed, 2)
