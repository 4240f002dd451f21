"""A node that starts on a store whose repair was interrupted."""

from __future__ import annotations

import shutil

from lab.harness import golden
from lab.harness.compare_stores import queue_files
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.offline.verify import LogCheck
from tests.store.repair.case import Dead, RepairCase
from tests.support import damage
from tests.support.logs import LogTestCase


class StartTests(LogTestCase, RepairCase):
    def setUp(self) -> None:
        RepairCase.setUp(self)
        self.queues = queue_files(golden.store(golden.VERSIONS[0]))
        (self.store / damage.name(4)).unlink()
        damage.overwrite(self.store / damage.name(10), 300, bytes(1000))

    def interrupted(self, wanted: str) -> None:
        """A repair that died at a step."""

        def step(name: str) -> None:
            if name == wanted:
                raise Dead(name)

        with self.assertRaises(Dead):
            self.repaired(step=step)

    def test_finished(self) -> None:
        """The start writes what is left, holds all queues against the log, and serves."""
        for step in ("intended", "written", "synced"):
            with self.subTest(step):
                self.setUp()
                self.interrupted(step)
                shutil.rmtree(self.store / "consumequeue" / "GoldenBulk")
                store = self.opened(self.store, master=False)
                self.close_store(store)
                self.assertFalse((self.store / "rmqha" / "repair.json").exists())
                self.assertFalse((self.store / "rmqha" / "repair").exists())
                self.assertEqual(
                    list(LogCheck(RawLog.open(self.store)).findings()), [], "the log is whole"
                )
                self.assertEqual(queue_files(self.store), self.queues)

    def test_not_begun(self) -> None:
        """One that was not certain yet changes nothing: the start says what it always said."""
        self.interrupted("quarantined")
        service = self.service(self.store)
        service.startService()
        self.assertIn("starts at byte", str(self.failureResultOf(service.ready).value))
