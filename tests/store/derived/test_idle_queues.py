"""Queues of which the log has no message left: they go on where they were."""

from __future__ import annotations

import shutil

from twisted.internet.task import Clock

from lab.harness.compare_stores import derived_faults
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.offline.rebuild_in_place import exclusively, remake
from rmqha.store.store import Store
from tests.support.logs import FILE_SIZE, LogTestCase, message

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
