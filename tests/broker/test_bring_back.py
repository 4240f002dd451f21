"""A master's tables agree with its log before clients come, not all in one turn."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from rmqha import periodic
from rmqha.broker.cluster.offsets_from_slaves import Return
from rmqha.periodic import SLICE
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from tests.broker.support import BrokerTestCase, Client, sending

QUEUES = 12
"""Queues of each topic that has messages."""

TOPICS = ("A", "B", "C")

EACH_TURN = 4
"""Queues that fill a turn."""


class BringBackTests(BrokerTestCase):
    """A master whose table of topics and whose log are both behind what there was."""

    def setUp(self) -> None:
        """Queues of one message and a group at offset 5 in each; one topic's row is gone."""
        super().setUp()
        self.master = self.broker()
        client = self.client()
        for topic in TOPICS:
            self.master.topics.put(
                TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            )
            for queue_id in range(QUEUES):
                self.send(client, topic, queue_id)
                self.master.offsets.advance("g", topic, queue_id, 5)
        self.clock.advance(0.1)
        self.master.topics.delete("B")

    def send(self, client: Client, topic: str, queue_id: int) -> None:
        fields = sending(topic, queue_id=queue_id)
        self.assertEqual(client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code, 0)

    def offsets(self) -> list[int | None]:
        """Where the group is, in all queues."""
        ids = range(QUEUES)
        return [self.master.offsets.get("g", topic, number) for topic in TOPICS for number in ids]

    def slow(self) -> list[str]:
        """Let each look at the end of a queue take its part of a turn, and the next turn wait until
        it is
        wanted; and return the topic of each.
        """
        looked: list[str] = []
        self.next: list[Deferred[None]] = []

        def later(clock: Clock, delay: float) -> Deferred[None]:
            self.next.append(Deferred())
            return self.next[-1]

        self.patch(periodic, "deferLater", later)
        slot = getattr_static(ConsumeQueue, "max_offset")

        def look(queue: ConsumeQueue) -> Any:
            looked.append(queue.topic)
            self.clock.rightNow += SLICE / EACH_TURN
            return slot.__get__(queue)

        self.patch(ConsumeQueue, "max_offset", property(look, slot.__set__))
        return looked

    def prepare(self, looked: list[str]) -> Deferred[None]:
        """Prepare it, a turn after the other."""
        preparing = self.master.prepare()
        while not preparing.called:
            before = len(looked)
            self.next.pop().callback(None)
            # A topic that is made again is not made in parts.
            self.assertLessEqual(len(looked) - before, max(QUEUES, EACH_TURN))
        return preparing

    def test_bounded(self) -> None:
        """Each turn looks at a few queues, and in the end all are as they should be."""
        looked = self.slow()
        self.successResultOf(self.prepare(looked))
        self.assertEqual(len(looked), 3 * len(TOPICS) * QUEUES, "where it ends, and why")
        self.assertEqual(self.offsets(), [1] * len(TOPICS) * QUEUES)
        topic = self.master.topics.get("B")
        assert topic is not None, "it has messages"
        self.assertEqual((topic.read_queue_nums, topic.write_queue_nums), (QUEUES, QUEUES))

    def test_idle(self) -> None:
        """With few queues all is done in one turn."""
        self.successResultOf(self.master.prepare())
        self.assertEqual(self.offsets(), [1] * len(TOPICS) * QUEUES)

    def test_behind(self) -> None:
        """Offsets stay where the queues are still being built."""
        self.send(self.client(), "A", 0)
        self.assertTrue(self.master.store.dispatcher.behind)
        self.successResultOf(self.master.prepare())
        self.assertEqual(self.offsets(), [5] * len(TOPICS) * QUEUES)

    def test_nothing_left(self) -> None:
        """A queue that lost all its messages goes on where its group is, which may have read."""
        store = self.master.store
        self.successResultOf(store._flush_derived())
        end = store.log.end
        self.master.topics.put(TopicConfig(topic_name="D"))
        for _ in range(3):
            self.send(self.client(), "D", 0)
        self.clock.advance(0.1)
        self.root = self.crash(store)
        for path in (self.root / "commitlog").iterdir():
            if int(path.name) <= end:
                with path.open("r+b") as log:
                    log.seek(end - int(path.name))
                    log.write(bytes(4096))
        self.master = self.broker()
        self.assertEqual(self.master.store.log.end, end)
        self.master.offsets.advance("g", "D", 0, 2)
        self.successResultOf(self.master.prepare())
        self.assertEqual(self.master.offsets.get("g", "D", 0), 2)
        self.assertEqual(self.master.store.next_offset("D", 0), 2)

    def test_idle_topic(self) -> None:
        """An empty queue goes on at its furthest group: each gets what comes, none is moved."""
        self.master.topics.put(TopicConfig(topic_name="E"))
        for group, offset in (("slow", 15), ("fast", 20), ("new", 0)):
            self.master.offsets.advance(group, "E", 0, offset)
        self.master.offsets.advance("g", "Gone", 0, 7)
        self.successResultOf(self.master.prepare())
        self.send(self.client(), "E", 0)
        self.clock.advance(0.1)
        self.assertEqual(self.master.lookup.bounds("E", 0), (20, 21))
        kept = [self.master.offsets.get(group, "E", 0) for group in ("slow", "fast", "new")]
        self.assertEqual(kept, [15, 20, 0])
        self.assertIsNone(self.master.lookup.bounds("Gone", 0))

    def test_stopped(self) -> None:
        """A stop ends it: nothing changes, no slave is asked, and the next start does it anew."""
        asked: list[None] = []
        self.patch(Return, "gather", lambda _: asked.append(None) or succeed(None))
        looked = self.slow()
        preparing = self.master.prepare()
        self.assertNoResult(preparing)
        self.successResultOf(self.master.stop())
        many, offsets = len(looked), self.offsets()
        self.next.pop().callback(None)
        self.successResultOf(preparing)
        self.assertEqual((len(looked), asked), (many, []))
        self.assertEqual(self.offsets(), offsets)
        self.assertIn(5, offsets)
