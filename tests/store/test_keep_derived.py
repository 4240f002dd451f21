"""Marks and checkpoint soon after a start: a node that ends again and again gets further."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from rmqha.store import opening
from rmqha.store.derived import dispatch_mark
from rmqha.store.derived.dispatch_mark import mark_path
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.store import FIRST_FLUSH, Store
from tests.support.derived import DerivedTestCase
from tests.support.logs import STORED, LogTestCase, message

SIZES = {"file_size": 4096, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}
COUNT = 200


class KeepTests(LogTestCase, DerivedTestCase):
    """A store that was killed in its first minute."""

    def setUp(self) -> None:
        """Make one, with no mark and no checkpoint, as a kill would leave it."""
        self.clock = Clock()
        self.now = STORED
        store = self.store(self.folder() / "store")
        for number in range(COUNT):
            self.now += 1000
            store.put(message(500, queue_id=number % 4))
        self.end, self.last = store.log.end, self.now
        self.root = self.crash(store)
        shutil.rmtree(self.root / "consumequeue", ignore_errors=True)
        (self.root / "checkpoint").unlink(missing_ok=True)
        mark_path(self.root).unlink(missing_ok=True)

    def store(self, root: Path) -> Store:
        return self.opened(root, clock=self.clock, settings=SIZES, now_ms=lambda: self.now)

    def test_soon_after_a_start(self) -> None:
        """A second after its start all checked and dispatched is kept, and not done again."""
        store = self.store(self.root)
        self.assertEqual((store.dispatcher.dispatched, store.recovery.start), (COUNT, 0))
        self.clock.advance(FIRST_FLUSH)
        mark = dispatch_mark.load(mark_path(self.root), store.log)
        assert mark is not None
        self.assertEqual((mark.offset, len(mark.queues)), (self.end, 4))
        found = Checkpoint.load(self.root / "checkpoint")
        self.assertEqual((found.log, found.queues), (self.last, self.last))
        again = self.store(self.crash(store))
        # The index goes back over its last message.
        self.assertLess(again.dispatcher.dispatched, 5)
        self.assertEqual(again.dispatcher.faults, [])
        self.assertGreater(again.recovery.start, self.end // 2)
        self.assert_like_rebuild(again.log, again.settings.root, **SIZES)

    def test_then_as_configured(self) -> None:
        """After the first time it is done as often as the configuration says."""
        store = self.store(self.root)
        runs: list[float] = []
        self.patch(store, "_write_derived", lambda *_: runs.append(self.clock.seconds()))
        began = self.clock.seconds()
        for _ in range(130):
            self.clock.advance(1.0)
        self.assertEqual([at - began for at in runs], [1.0, 61.0, 121.0])

    def test_while_a_start_dispatches(self) -> None:
        """A long dispatch at a start keeps what it has, so that a kill costs little."""
        self.patch(opening, "KEEP_EVERY", 0.0)
        self.patch(opening, "SLICE", 0.0)
        copies: list[Path] = []
        keep_derived = opening.keep_derived

        def keep(root: Path, *args: Any, **more: Any) -> None:
            keep_derived(root, *args, **more)
            copy = self.folder() / "store"
            shutil.copytree(root, copy)
            copies.append(copy)

        self.patch(opening, "keep_derived", keep)
        self.store(self.root)
        self.assertGreater(len(copies), 3)
        self.patch(opening, "KEEP_EVERY", 1e9)
        left = []
        for copy in copies[:-1]:
            store = self.store(copy)
            left.append(store.dispatcher.dispatched)
            self.assertEqual(store.dispatcher.faults, [])
            self.assert_like_rebuild(store.log, copy, **SIZES)
        self.assertEqual(left, sorted(left, reverse=True))
        self.assertLess(left[len(left) // 3], COUNT)
        self.assertLess(left[-1], COUNT // 2)
