"""A store whose readers see the log up to the confirm offset alone."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rmqha.broker.delay.delay_offsets import LevelOffsets
from rmqha.store.store import Store
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.offset_table import read_offsets
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.offsets import LOG_END, DelayOffsets
from tests.store.derived.test_outcomes import opened_lookup
from tests.store.test_store import StoreTestCase
from tests.support.logs import message, now


class ConfirmTests(StoreTestCase):
    """Two messages that readers saw, and one that they must not see."""

    def setUp(self) -> None:
        """The node was killed before it has written down what they saw."""
        self.clock = Clock()
        store = self.small(follows_confirm=True, clock=self.clock)
        for _ in range(3):
            store.put(message(300, topic="TopicA"))
        store.confirm(600)
        self.clock.advance(0.1)
        self.assertEqual(store.queues.end("TopicA", 0), 2)
        self.store = self.small(self.crash(store), follows_confirm=True, clock=self.clock)

    def took_over(self) -> Store:
        ended = Deferred.fromCoroutine(self.store.took_over())
        self.clock.advance(0)
        self.successResultOf(ended)
        return self.store

    def test_killed(self) -> None:
        """They see what they saw, no more and no less, and who asks is told so."""
        self.assertEqual((self.store.queues.end("TopicA", 0), self.store.readable), (2, 600))
        self.assertEqual(self.store.dispatcher.position, 600)

    def test_confirmed_beyond_the_end(self) -> None:
        """What was confirmed of bytes that never came is not confirmed of others at their place."""
        store = self.took_over()
        store.confirm(1 << 62)
        store.clamp_confirm()
        self.clock.advance(0.1)
        store.put(message(300, topic="TopicA"))
        self.clock.advance(0.1)
        self.assertEqual((store.readable, store.queues.end("TopicA", 0)), (900, 3))

    def test_written_behind(self) -> None:
        """What comes has its place in the queue behind the one that is not to be seen."""
        store = self.took_over()
        receipt = store.put(message(300, topic="TopicA"))
        other = store.put(message(300, topic="TopicB"))
        self.assertEqual((receipt.queue_offset, other.queue_offset), (3, 0))
        self.clock.advance(0.1)
        self.assertEqual(store.queues.end("TopicA", 0), 2)
        store.confirm(store.log.end)
        self.clock.advance(0.1)
        self.assertEqual((store.queues.end("TopicA", 0), store.dispatcher.fault_count), (4, 0))
        self.assert_derived(store)

    def test_delayed_messages(self) -> None:
        """What was delivered of a level is not again because its queue is not whole."""
        store = self.small(follows_confirm=True, clock=self.clock)
        for _ in range(3):
            store.put(message(300, topic=SCHEDULE_TOPIC))
        store.confirm(300)
        self.clock.advance(0.1)
        root = self.crash(store)
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "delayOffset.json").write_text(
            '{"offsetTable":{1:2,2:5},"maxPhyOffset":600}'
        )
        self.store = self.small(root, follows_confirm=True, clock=self.clock)
        self.assertEqual(self.levels(), {1: 2, 2: 5})
        self.took_over()
        self.assertEqual(self.levels(), {1: 2, 2: 0})
        self.store.confirm(900)
        self.clock.advance(0.1)
        self.assertEqual(self.levels(), {1: 2, 2: 0})

    def test_cut(self) -> None:
        """The log's end is damaged and cut: no offset before it is taken back."""
        store = self.small(follows_confirm=True, clock=self.clock)
        for _ in range(4):
            store.put(message(300, topic="TopicA"))
        store.confirm(300)
        self.clock.advance(0.1)
        root = self.crash(store)
        with (root / "commitlog" / f"{0:020}").open("r+b") as log:
            log.seek(750)
            log.write(bytes(1))
        (root / "config").mkdir(exist_ok=True)
        offsets = root / "config" / "consumerOffset.json"
        offsets.write_text('{"offsetTable":{"TopicA@g":{0:2}}}')
        cut = self.small(root, follows_confirm=True, clock=self.clock, master=False, repair=True)
        self.assertIsNotNone(cut.kept)
        self.assertEqual((cut.log.end, cut.readable), (600, 300))
        found = read_offsets(CheckedTables(root)).offsets
        assert found is not None, "it was written"
        self.assertEqual(found.offset_table, {"TopicA@g": {0: 2}})

    def test_delivered(self) -> None:
        """A delayed message that was delivered where a cut may take the copy counts as delivered,
        in the file and for a slave, when the set has the copy: else nobody would deliver it again.
        """
        for delivers in (True, False):
            root = self.folder() / "store"
            store = self.store = self.small(root, follows_confirm=True, clock=self.clock)
            store.put(message(300, topic=SCHEDULE_TOPIC))
            store.put(message(300, topic="TopicA"))
            store.confirm(300)
            self.clock.advance(1.0)
            self.successResultOf(store.flusher.flush())
            levels = LevelOffsets(CheckedTables(root), store, opened_lookup(store), self.clock, now)
            levels.load()
            if delivers:
                levels.delivered(1, 1)
            else:
                levels.adopt(DelayOffsets(offset_table={1: 1}, extra={LOG_END: 600}))
            self.clock.pump([1.0] * 3)
            self.assertEqual(self.levels(), {1: 0, 2: 0})
            store.confirm(600)
            self.clock.advance(0.1)
            if not delivers:
                levels.adopt(DelayOffsets(offset_table={1: 1}, extra={LOG_END: 700}))
            self.clock.pump([1.0] * 3)
            self.assertEqual(self.levels(), {1: 1, 2: 0})
            self.successResultOf(levels.stop())

    def levels(self) -> dict[int, int]:
        """What a broker that is opened now goes on from."""
        store, tables = self.store, CheckedTables(self.store.settings.root)
        levels = LevelOffsets(tables, store, opened_lookup(store), self.clock, now)
        levels.load()
        self.successResultOf(levels.stop())
        return {level: levels.get(level) for level in (1, 2)}
