"""Golden stores that are harmed, and whole ones beside them."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.internet.defer import ensureDeferred
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.environment import Step
from rmqha.store.repair.damaged_ranges import DamagedRange
from rmqha.store.repair.from_replica import RepairReport, StoreReplica
from rmqha.store.repair.stopped_store import StoppedStore
from tests.support.derived import settings

VERSION = golden.VERSIONS[0]
END = 2652010
SIZE = golden.LOG_FILE_SIZE


class Dead(Exception):
    """The process ended here."""


class RepairCase(SynchronousTestCase):
    """A store and a replica of it, equal at first."""

    def setUp(self) -> None:
        self.patch(os, "fsync", lambda fd: None)
        self.store, self.replica = golden.store(VERSION), golden.store(VERSION)
        self.before = self.log_of(self.store)

    def log_of(self, store: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}

    def assert_whole(self) -> None:
        """The log is what it was, and nothing of the repair is left but what was kept."""
        found = self.log_of(self.store)
        self.assertEqual(sorted(found), sorted(self.before))
        for name, data in self.before.items():
            self.assertTrue(found[name] == data, f"{name} is another")
        own = self.store / "rmqha"
        left = {path.name for path in own.iterdir()} if own.is_dir() else set()
        self.assertLessEqual(left, {"quarantine"})

    def stopped(self, step: Step = lambda name: None) -> StoppedStore:
        """The store as C{rmqha repair} sees it."""
        return StoppedStore(settings=settings(self.store), step=step)

    def repaired(
        self,
        ranges: list[DamagedRange] | None = None,
        step: Step = lambda name: None,
        replica: Path | None = None,
    ) -> RepairReport:
        """Repair all that is damaged, as the command does."""
        stopped = self.stopped(step)
        try:
            stopped.finish_begun()
            wanted = stopped.damaged_ranges() if ranges is None else ranges
            peer = StoreReplica(RawLog.open(self.replica if replica is None else replica))
            fetching = ensureDeferred(stopped.fetch(wanted, peer))
            report = stopped.write(self.successResultOf(fetching))
            stopped.full_size()
        finally:
            stopped.forget()
        return report

    def quarantined(self) -> dict[str, bytes]:
        folder = self.store / "rmqha" / "quarantine"
        return {path.name: path.read_bytes() for path in folder.iterdir()}
