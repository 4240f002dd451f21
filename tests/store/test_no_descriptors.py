"""A store whose process, for a while, has no file descriptor left for it.

Whatever it was about to do then is done later: nothing has failed for good.
"""

from __future__ import annotations

import contextlib
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rmqha.config.store_settings import FlushDisk
from rmqha.errors import DiskFull, NotWritable
from rmqha.store.files.mapped import OutOfDescriptors
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.service import RETRY
from rmqha.store.store import Store
from tests.store.test_store import SIZES, StoreTestCase
from tests.support.logs import message
from tests.support.no_descriptors import NoDescriptors


class NoDescriptorTests(StoreTestCase):
    """Each place that opens a file while a node serves."""

    def work(self, store: Store, clock: Clock) -> list[Deferred[bool]]:
        """What a busy store does: new log files and queues, dispatch, flushes, a checkpoint; fires
        for each
        write that was taken, once it is on the disk.
        """
        waiting = []
        for number in range(12):
            with contextlib.suppress(NotWritable):
                receipt = store.put(message(900, queue_id=number % 3))
                waiting.append(store.flusher.wait(receipt.end))
            clock.advance(0.02)
        store._flush_derived().addErrback(lambda failure: failure.trap(DiskFull))
        store.retention.demand()
        clock.pump([0.25] * 4)
        return waiting

    def test_everywhere(self) -> None:
        """Wherever it happens, the store takes writes once there are descriptors, what was taken is
        on the disk, and queues and index are what the log says.
        """
        sizes: dict[str, Any] = {**SIZES, "flush_disk": FlushDisk.SYNC_FLUSH}
        for left in range(30):
            clock, none = Clock(), NoDescriptors().install(self)
            store = self.small(clock=clock, settings=sizes)
            self.work(store, clock)
            none.left = left
            waiting = self.work(store, clock)
            none.left = 1 << 30
            clock.pump([0.25] * 20)
            self.assertEqual((store.state, store.flusher.failure), ("", None), left)
            waiting += self.work(store, clock)
            clock.pump([0.25] * 8)
            self.assertEqual({True}, {self.successResultOf(each) for each in waiting})
            self.assertEqual([], self.flushLoggedErrors(), left)
            self.assert_derived(store)
            self.assertEqual(store.log.flushed, store.log.end)
            self.close_store(store)

    def test_writes_are_refused_meanwhile(self) -> None:
        """A write that needs a new log file is refused, and says why."""
        clock, none = Clock(), NoDescriptors().install(self)
        store = self.small(clock=clock)
        for _ in range(7):
            store.put(message(550))
        none.left = 0
        error = self.assertRaises(NotWritable, store.put, message(550))
        self.assertEqual(error.state, "disk-full")
        self.assertIn("no file descriptor left", error.reason)

    def test_checkpoint(self) -> None:
        """A checkpoint that cannot be opened is no failed write of it."""
        none = NoDescriptors().install(self)
        none.left = 0
        self.assertRaises(OutOfDescriptors, Checkpoint().save, self.folder() / "checkpoint")

    def test_opened_again_while_serving(self) -> None:
        """A store that a repair opens anew waits until it can be, and the repair is made once."""
        root = self.folder() / "store"
        filled = self.small(root)
        for _ in range(20):
            filled.put(message(500))
        self.close_store(filled)
        for left in range(8):
            repairs: list[object] = []
            clock, none = Clock(), NoDescriptors().install(self)
            none.left = left
            service = self.service(
                root, settings=SIZES, clock=clock, patient=True, before=repairs.append
            )
            service.startService()
            self.assertNoResult(service.ready)
            self.assertEqual(service.state, "recovering")
            self.assertIn("descriptor", service.reason)
            clock.advance(RETRY)
            self.assertNoResult(service.ready)
            none.left = 1 << 30
            clock.advance(RETRY)
            store = self.opened_by(service)
            self.assertEqual((store.state, len(repairs)), ("", 1))
            self.assert_derived(store)
            self.close_store(store)

    def test_stopped_while_it_waits(self) -> None:
        """A node that is stopped meanwhile gives the store back."""
        root = self.folder() / "store"
        clock, none = Clock(), NoDescriptors().install(self)
        none.left = 1
        service = self.service(root, settings=SIZES, clock=clock, patient=True)
        service.startService()
        self.successResultOf(service.stopService())
        self.failureResultOf(service.ready, NotWritable)
        none.left = 1 << 30
        clock.advance(10 * RETRY)
        self.assertEqual(self.small(root).state, "")
