"""Queues without messages: of deleted topics, idle ones, and where a log file goes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any
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
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.deleted_topics import Deletion
from rmqha.store.derived.trim import BATCH, Trimmer
from rmqha.store.offline.rebuild_in_place import exclusively, remake
from rmqha.store.store import Store
from rmqha.wire.columnar.queue_units import UNIT
from tests.support.derived import DerivedTestCase
from tests.support.logs import FILE_SIZE, Held, LogTestCase, message, now


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


IDLE = ("Idle", 0)


class IdleTests(LogTestCase):
    """A topic had three messages, all of which went with the log's first files."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.root = self.folder() / "store"
        self.here = self.open()
        for topic in ("Idle",) * 3 + ("Busy",) * 8:
            self.here.put(message(FILE_SIZE // 3, topic=topic))
            self.clock.advance(0.1)
        self.close_store(self.here)
        for path in sorted((self.root / "commitlog").iterdir())[:2]:
            path.unlink()

    def open(self) -> Store:
        return self.opened(self.root, clock=self.clock, settings={"file_size": FILE_SIZE})

    def again(self, *, marked: bool = True) -> Store:
        """Open it after a kill, with what was noted of queues or without."""
        (self.root / "abort").touch()
        if not marked:
            for path in (self.root / "rmqha").glob("dispatched.json*"):
                path.unlink()
        self.here = self.open()
        return self.here

    def lose(self, name: str = "consumequeue") -> None:
        """A folder of queues is gone."""
        shutil.rmtree(self.root / name)

    def rebuild(self) -> None:
        with exclusively(self.root, self.root / "commitlog"):
            remake(OfflineLog.of(RawLog.open(self.root)), self.here.settings)

    def assert_goes_on(self) -> None:
        """The next message is behind those that are gone, now and after two starts."""
        for _ in range(2):
            self.assertEqual(self.again().next_offset(*IDLE), 3)
            queue = self.here.queues.get(*IDLE)
            assert queue is not None
            self.assertEqual((queue.min_offset, queue.max_offset), (3, 3))
            self.close_store(self.here)
            self.assertEqual([], derived_faults(self.here.settings, exact=False))
        self.assertEqual(self.again().put(message(300, topic="Idle")).queue_offset, 3)
        self.clock.advance(0.1)
        queue = self.here.queues.get(*IDLE)
        assert queue is not None
        self.assertEqual((queue.min_offset, queue.max_offset), (3, 4))

    def test_restart(self) -> None:
        """A start finds that in the queue's file, with what was noted of queues and without."""
        self.again(marked=False)
        self.close_store(self.here)
        self.assert_goes_on()

    def test_queue_lost(self) -> None:
        """Where the queue's folder is lost it is known from what was noted of it."""
        self.lose("consumequeue/Idle")
        self.assert_goes_on()

    def test_all_lost(self) -> None:
        """The same where all queues are lost; those that have messages are made from them."""
        self.lose()
        self.assert_goes_on()
        self.assertEqual(self.here.queues.end("Busy", 0), 8)

    def test_rebuilt(self) -> None:
        """A rebuild keeps it, by the old files or by what was noted."""
        self.rebuild()
        self.assert_goes_on()

    def test_lost_and_rebuilt(self) -> None:
        """Also where the old files are lost."""
        self.lose()
        self.rebuild()
        self.assert_goes_on()

    def test_elsewhere(self) -> None:
        """A message with another queue offset, of another master, costs no pass over the log."""
        for first in (0, 2, 9):
            copy = self.folder() / "store"
            shutil.copytree(self.root, copy)
            clock = Clock()
            store = self.opened(copy, clock=clock, settings={"file_size": FILE_SIZE})
            store._next[IDLE] = first
            store.put(message(300, topic="Idle"))
            clock.advance(0.1)
            queue = store.queues.get(*IDLE)
            assert queue is not None
            self.assertEqual((queue.min_offset, queue.max_offset), (first, first + 1))
            self.assertEqual((store.dispatcher.rebuilds, store.dispatcher.fault_count), (0, 0))
            self.close_store(store)
            self.assertEqual([], derived_faults(store.settings, exact=False))


COUNT = 3 * BATCH + 7


def units(first: int, count: int) -> bytes:
    """Units of records of 100 bytes, one behind the other."""
    return b"".join(UNIT.pack((first + i) * 100, 100, 0) for i in range(count))


class TrimTests(DerivedTestCase):
    """Many queues of one unit, and some of three files."""

    def setUp(self) -> None:
        """Make them, without files where none is wanted."""
        self.root = self.folder()
        self.queues = ConsumeQueues(self.root, 200)
        self.addCleanup(self.queues.close)
        self.long = (0, BATCH, COUNT - 1)
        for number in range(COUNT):
            queue = self.queues.create("Topic", number)
            assert queue is not None
            if number in self.long:
                queue.append(0, units(0, 25))
            else:
                # As if recovered: a unit of a record that is still there.
                queue.max_offset, queue._min_physical, queue.end_physical = 1, 5000, 5100

    def trimmer(self, in_thread: Callable[..., Any]) -> Trimmer:
        return Trimmer(self.queues, None, in_thread)

    def files(self) -> list[int]:
        """How many files the long queues have."""
        return [len(os.listdir(self.root / "consumequeue/Topic" / str(n))) for n in self.long]

    def test_not_in_one_turn(self) -> None:
        """The turn that deletes a log file looks at no queue.  A thread looks at some hundred at a
        time, and the reactor has a turn after each; only it reads and deletes.
        """
        thread = Held()
        looked: list[int] = []
        real = type(self.queues.create("Topic", 0)).deleted

        def deleted(queue: Any, log_min: int) -> Any:
            looked.append(queue.queue_id)
            return real(queue, log_min)

        with patch("rmqha.store.derived.consume_queue.ConsumeQueue.deleted", deleted):
            self.trimmer(thread).follow(1250)
            self.assertEqual(looked, [])
            # At once, for whoever asks.
            self.assertEqual(self.queues.get("Topic", 0).min_offset, 13)  # type: ignore[union-attr]
            turns = 0
            while thread.calls:
                before = len(looked)
                with patch("os.open", wraps=os.open) as opened:
                    thread.work()
                turns += 1
                self.assertLessEqual(len(looked) - before, BATCH)
                self.assertLessEqual(opened.call_count, 2)
        self.assertEqual(looked, list(range(COUNT)))
        # Four looks, three that delete, and the checksums.
        self.assertEqual((turns, self.files()), (8, [2, 2, 2]))

    def test_goes_on(self) -> None:
        """A file that is deleted meanwhile makes for one more walk, however many there were."""
        thread = Held()
        trimmer = self.trimmer(thread)
        for log_min in (100, 200, 1250, 99999):
            trimmer.follow(log_min)
        self.assertEqual(len(thread.calls), 1)
        while thread.calls:
            thread.work()
        self.assertEqual(self.files(), [1, 1, 1])

    def test_stop(self) -> None:
        """A stop waits for the thread, and looks at no further queue."""
        thread = Held()
        trimmer = self.trimmer(thread)
        self.successResultOf(trimmer.stop())
        trimmer = self.trimmer(thread)
        trimmer.follow(99999)
        stopped = trimmer.stop()
        self.assertNoResult(stopped)
        while thread.calls:
            self.assertNoResult(stopped)
            thread.work()
        self.successResultOf(stopped)
        self.assertEqual(self.files(), [1, 3, 3])
        trimmer.follow(100000)
        self.assertEqual(thread.calls, [])

    def test_an_error(self) -> None:
        """What cannot be deleted is in the log, and the next walk goes on."""
        trimmer = self.trimmer(now)
        with patch("pathlib.Path.unlink", side_effect=PermissionError("no")):
            trimmer.follow(1250)
        self.assertEqual(len(self.flushLoggedErrors(PermissionError)), 1)
        trimmer.follow(99999)
        self.assertEqual(self.files(), [2, 1, 1])
