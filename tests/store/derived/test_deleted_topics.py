"""
Topics whose queues were deleted while their records stay.
"""

from __future__ import annotations

from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from lab.harness.compare_stores import derived_faults
from rmqha.errors import DiskFull
from rmqha.logfiles import json_table
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.published import DELETED, read_deleted_topics
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.derived.deleted_topics import Deletion
from rmqha.store.offline.rebuild_in_place import exclusively, remake
from rmqha.store.store import Store
from tests.support.logs import LogTestCase, message, now


class DeletedTests(LogTestCase):
    """
    A store with two topics, of which one is deleted.
    """

    def setUp(self) -> None:
        """
        Five messages each.
        """
        self.clock = Clock()
        self.root = self.folder() / "store"
        self.here = self.open()
        for topic in ("Old", "New"):
            self.put(topic, 5)

    def open(self) -> Store:
        """
        The store, opened anew if it was open.
        """
        return self.opened(self.root, clock=self.clock, settings={"file_size": 1 << 16})

    def put(self, topic: str, count: int) -> None:
        """
        Some messages.
        """
        for _ in range(count):
            self.here.put(message(200, topic=topic))
        self.clock.advance(0.01)

    def delete(self, topic: str = "Old", end: int | None = None) -> Deferred[None]:
        """
        Delete a topic's queues.
        """
        store = self.here
        deletion = Deletion(store.queues, store.settings.root, store.log, self.clock, now)
        end = store.log.confirmed if end is None else end
        deleting = Deferred.fromCoroutine(deletion.forget([topic], end))
        self.clock.advance(0)
        return deleting

    def ends(self) -> dict[str, int]:
        """
        Where the topics' queues end.
        """
        return {queue.topic: queue.max_offset for queue in self.here.queues if queue.max_offset}

    def test_stays(self) -> None:
        """
        Neither a clean start nor one after a crash makes them again, and a check misses nothing.
        """
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
        """
        A rebuild makes the queues of the topics that are left.
        """
        self.successResultOf(self.delete())
        self.close_store(self.here)
        raw = RawLog.open(self.root)
        with exclusively(self.root, self.root / "commitlog"):
            remake(OfflineLog.of(raw), self.here.settings)
        self.assertEqual([], derived_faults(self.here.settings, exact=False))
        self.here = self.open()
        self.assertEqual({"New": 5}, self.ends())

    def test_made_again(self) -> None:
        """
        A topic that is made again has its new messages, also after a pass over the whole log.
        """
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

    def test_lives_again(self) -> None:
        """
        One that has messages behind the end it was deleted at keeps them all.
        """
        end = self.here.log.confirmed
        self.put("Old", 1)
        self.successResultOf(self.delete(end=end))
        self.assertEqual({"Old": 6, "New": 5}, self.ends())
        self.assertEqual(
            {}, read_deleted_topics(self.here.settings.root, self.here.log, self.here.log.confirmed)
        )

    def test_full(self) -> None:
        """
        What cannot be noted is not done.
        """
        with patch.object(json_table, "replace", side_effect=DiskFull("deleted.json", 9)):
            self.failureResultOf(self.delete(), DiskFull)
        self.assertEqual({"Old": 5, "New": 5}, self.ends())

    def test_another_log(self) -> None:
        """
        What speaks of another log, or of nothing, is dropped.
        """
        self.successResultOf(self.delete())
        root, log = self.here.settings.root, self.here.log
        path = root / DELETED
        good = json_table.read(path)
        assert good is not None
        self.assertEqual({"Old": log.confirmed}, read_deleted_topics(root, log, log.confirmed))
        for bad in (
            {"crc": good["crc"] + 1},
            {"offset": log.confirmed + 1},
            {"offset": "x"},
            {"topics": [1]},
            {"topics": None},
        ):
            path.with_name("deleted.json.bak").unlink(missing_ok=True)
            json_table.replace(path, {**good, **bad})
            self.assertEqual({}, read_deleted_topics(root, log, log.confirmed), bad)
        for name in ("deleted.json", "deleted.json.bak"):
            path.with_name(name).write_bytes(b"{")
        self.assertEqual({}, read_deleted_topics(root, log, log.confirmed))
