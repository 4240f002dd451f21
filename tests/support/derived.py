"""Derived files of small stores: settings, a dispatcher, and a picture of what is on disk."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from lab.harness.compare_stores import index_files, queue_files
from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles.reader import LogReader
from rmqha.store.derived.dispatch import Dispatcher
from rmqha.store.derived.rebuild import compare, open_derived, rebuild
from rmqha.wire.log.delay_levels import DelayLevels
from tests.support.open_files import open_files


def settings(root: Path, **more: Any) -> StoreSettings:
    """The sizes of the golden stores."""
    sizes: dict[str, Any] = {
        "file_size": golden.LOG_FILE_SIZE,
        "queue_file_size": golden.QUEUE_FILE_SIZE,
        "index_slots": golden.INDEX_SLOTS,
        "index_entries": golden.INDEX_ENTRIES,
        "max_message_size": 1 << 20,
    }
    return StoreSettings(root=root, **(sizes | more))


def dispatcher(log: LogReader, root: Path, clock: Clock | None = None, **more: Any) -> Dispatcher:
    """A dispatcher on a store's folder, nothing loaded yet."""
    given = settings(root, **more)
    queues, index = open_derived(root, given)
    levels = DelayLevels.parse(given.delay_levels)
    return Dispatcher(log=log, queues=queues, index=index, levels=levels, clock=clock or Clock())


def drain(maker: Dispatcher) -> None:
    """Dispatch all there is, in the smallest steps."""
    while maker.run(0.0):
        pass


class DerivedTestCase(SynchronousTestCase):
    """Tests with folders that go away, and in which nothing is open in the end."""

    def __init__(self, methodName: str = "runTest") -> None:
        super().__init__(methodName)
        self._folders: set[Path] = set()

    def folder(self) -> Path:
        made = Path(tempfile.mkdtemp(prefix="derived-"))
        self.addCleanup(shutil.rmtree, made, ignore_errors=True)
        if not self._folders:
            # It comes last: what closes is added later.
            self.addCleanup(self._assert_closed)
        self._folders.add(made)
        return made

    def _assert_closed(self) -> None:
        left = [name for name in open_files() if self._folders.intersection(Path(name).parents)]
        self.assertEqual([], left, "not closed")

    def rebuilt(self, log: LogReader, **more: Any) -> Path:
        """A new folder with everything derived from a log."""
        root = self.folder()
        rebuild(log, root, settings(root, **more))
        return root

    def assert_like_rebuild(self, log: LogReader, root: Path, **more: Any) -> None:
        """The files of a store are, byte for byte, what a rebuild makes."""
        fresh = self.rebuilt(log, **more)
        self.assert_same_files(root, fresh)

    def assert_same_files(self, root: Path, other: Path) -> None:
        """Two stores have the same derived files; where not, say which and where."""
        ours, theirs = queue_files(root), queue_files(other)
        self.assertEqual(list(ours), list(theirs))
        pairs = [(name, ours[name], theirs[name]) for name in ours]
        found, wanted = index_files(root), index_files(other)
        self.assertEqual(len(found), len(wanted))
        pairs += [(f"index {n}", *both) for n, both in enumerate(zip(found, wanted, strict=True))]
        for name, has, wants in pairs:
            # assertEqual would print a difference of a megabyte, and take a minute for it
            if has != wants:
                at = next(i for i, (a, b) in enumerate(zip(has, wants, strict=True)) if a != b)
                self.fail(f"{name} differs at byte {at}")

    def differences(self, log: LogReader, root: Path, **more: Any) -> list[str]:
        """What L{compare} finds in a store's folder."""
        given = settings(root, **more)
        queues, index = open_derived(root, given, read_only=True)
        with ExitStack() as closing:
            closing.callback(queues.close)
            queues.load()
            queues.inspect(log.min_offset)
            if index is not None:
                closing.callback(index.close)
                index.load()
            return [str(fault) for fault in compare(log, queues, index, given)]
