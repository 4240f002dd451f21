"""Topics whose queues were deleted while their records stay."""

from __future__ import annotations

from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from lab.harness.compare_stores import derived_faults
from rmqha.errors import DiskFull
from rmqha.logfiles import json_table
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.published import DELETED, DeletedTopic, read_deleted_topics
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.deleted_topics import Deletion
from rmqha.store.offline.rebuild_in_place import exclusively, remake
from rmqha.store.store import Store
from tests.support.logs import LogTestCase, message, now


class DeletedTests(LogTestCase):
    """A store with two topics, of which one is deleted."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.root = self.folder() / "store"
        self.here = self.open()
        for topic in ("Old", "New"):
            self.put(topic, 5)

    def open(self) -> Store:
        """The store, opened anew if it was open."""
        return self.opened(self.root, clock=self.clock, settings={"file_size": 1 << 16})

    def put(self, topic: str, count: int) -> None:
        for _ in range(count):
            self.here.put(message(200, topic=topic))
        self.clock.advance(0.01)

    def delete(self, topic: str = "Old", end: int | None = None) -> Deferred[None]:
        store = self.here
        deletion = Deletion(store.queues, store.settings.root, store.log, self.clock, now)
        end = store.log.confirmed if end is None else end
        deleting = Deferred.fromCoroutine(deletion.forget({topic: DeletedTopic(end)}))
        self.clock.advance(0)
        return deleting

    def ends(self) -> dict[str, int]:
        return {queue.topic: queue.max_offset for queue in self.here.queues if queue.max_offset}

    def test_stays(self) -> None:
        """Neither a clean start nor one after a crash makes them; a check misses nothing."""
        self.successResultOf(self.delete())
        self.assertEqual({"New": 5}, self.ends())
        copy = self.crash(self.here)
        self.close_store(self.here)
        self.assertEqual([], derived_faults(self.here.settings, exact=False))
        self.here = self.open()
        self.assertEqual({"New": 5}, self.ends())
        self.here = self.opened(copy, clock=self.clock, settings={"file_size": 1 << 16})
        self.assertEqual({"New": 5}, self.ends())
        self.assertEqual(0, self.here.dispatcher.fault_count)

    def test_rebuilt(self) -> None:
        """A rebuild makes the queues of the topics that are left."""
        self.successResultOf(self.delete())
        self.close_store(self.here)
        raw = RawLog.open(self.root)
        with exclusively(self.root, self.root / "commitlog"):
            remake(OfflineLog.of(raw), self.here.settings)
        self.assertEqual([], derived_faults(self.here.settings, exact=False))
        self.here = self.open()
        self.assertEqual({"New": 5}, self.ends())

    def test_made_again(self) -> None:
        """A topic that is made again has its new messages, also after a pass over the whole log."""
        self.successResultOf(self.delete())
        self.put("Old", 2)
        queue = self.here.queues.get("Old", 0)
        assert queue is not None
        self.assertEqual((5, 7), (queue.min_offset, queue.max_offset))
        copy = self.crash(self.here)
        self.close_store(self.here)
        self.assertEqual([], derived_faults(self.here.settings, exact=False))
        (copy / "rmqha" / "dispatched.json").unlink(missing_ok=True)
        self.here = self.opened(copy, clock=self.clock, settings={"file_size": 1 << 16})
        queue = self.here.queues.get("Old", 0)
        assert queue is not None
        self.assertEqual((5, 7), (queue.min_offset, queue.max_offset))

    def bounds(self) -> tuple[int, int]:
        """The first message of the deleted topic, and just past the last."""
        queue = self.here.queues.get("Old", 0)
        assert queue is not None
        return queue.min_offset, queue.max_offset

    def test_lives_again(self) -> None:
        """One made again before that is heard keeps its new messages alone, after crashes too."""
        end = self.here.log.confirmed
        self.put("Old", 3)
        self.assertEqual((0, 8), self.bounds())
        self.successResultOf(self.delete(end=end))
        self.assertEqual((5, 8), self.bounds())
        # Where its queue begins, for a log that loses these, is where it was deleted.
        self.assertEqual({("Old", 0): 5}, self.here.queues.begins)
        copy = self.crash(self.here)
        self.close_store(self.here)
        self.assertEqual([], derived_faults(self.here.settings, exact=False))
        self.here = self.opened(copy, clock=self.clock, settings={"file_size": 1 << 16})
        self.assertEqual((5, 8), self.bounds())
        self.assertEqual(0, self.here.dispatcher.fault_count)

    def test_goes_on(self) -> None:
        """What comes next to a topic that was made again before that is heard of stands behind what
        is there, in a store that has gone through its whole log since it was opened.
        """
        end = self.here.log.confirmed
        self.put("Old", 3)
        self.successResultOf(self.delete(end=end))
        self.put("Old", 2)
        self.assertEqual((5, 10), self.bounds())
        self.assertEqual(0, self.here.dispatcher.fault_count)
        self.close_store(self.here)
        self.assertEqual([], derived_faults(self.here.settings, exact=False))

    def test_noted_alone(self) -> None:
        """A process that died with that noted, and no more, leaves the rest to the next."""
        end = self.here.log.confirmed
        self.put("Old", 1)
        with patch.object(ConsumeQueue, "forget_before", side_effect=ZeroDivisionError):
            self.failureResultOf(self.delete(end=end), ZeroDivisionError)
        self.close_store(self.here)
        self.here = self.open()
        self.assertEqual((5, 6), self.bounds())

    def test_goes_on_behind(self) -> None:
        """The next message of one made again is behind the deleted, after any starts."""
        self.successResultOf(self.delete())
        for _ in range(2):
            self.close_store(self.here)
            self.here = self.open()
        self.assertEqual({"New": 5}, self.ends())
        self.put("Old", 1)
        self.assertEqual((5, 6), self.bounds())

    def test_shorter_log(self) -> None:
        """Of two topics the one deleted at the log's end stays so when the log loses that end."""
        first = self.here.log.confirmed
        self.successResultOf(self.delete())
        self.put("New", 1)
        self.successResultOf(self.delete("New"))
        root, log = self.here.settings.root, self.here.log
        self.assertEqual(["Old"], list(read_deleted_topics(root, log, first)))

    def test_former_release(self) -> None:
        """What a release before has noted is believed."""
        self.successResultOf(self.delete())
        root, log = self.here.settings.root, self.here.log
        row = (json_table.read(root / DELETED) or {})["topics"]["Old"]
        former = {"offset": row["offset"], "crc": row["crc"], "topics": {"Old": row["offset"]}}
        json_table.replace(root / DELETED, former)
        self.assertEqual(
            {"Old": DeletedTopic(log.confirmed)}, read_deleted_topics(root, log, log.confirmed)
        )

    def test_full(self) -> None:
        """What cannot be noted is not done."""
        with patch.object(json_table, "replace", side_effect=DiskFull("deleted.json", 9)):
            self.failureResultOf(self.delete(), DiskFull)
        self.assertEqual({"Old": 5, "New": 5}, self.ends())

    def test_another_log(self) -> None:
        """What speaks of another log, or of nothing, is dropped."""
        self.successResultOf(self.delete())
        root, log = self.here.settings.root, self.here.log
        path = root / DELETED
        good = json_table.read(path)
        assert good is not None
        row = good["topics"]["Old"]
        self.assertEqual(
            {"Old": DeletedTopic(log.confirmed, {0: 5})},
            read_deleted_topics(root, log, log.confirmed),
        )
        for bad in (
            {"Old": {**row, "crc": row["crc"] + 1}},
            {"Old": {**row, "offset": log.confirmed + 1}},
            {"Old": {**row, "offset": "x"}},
            {"Old": {**row, "queues": [1]}},
            {"Old": 7},
            [1],
            None,
        ):
            path.with_name("deleted.json.bak").unlink(missing_ok=True)
            json_table.replace(path, {"topics": bad})
            self.assertEqual({}, read_deleted_topics(root, log, log.confirmed), bad)
        for name in ("deleted.json", "deleted.json.bak"):
            path.with_name(name).write_bytes(b"{")
        self.assertEqual({}, read_deleted_topics(root, log, log.confirmed))
