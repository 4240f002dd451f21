"""Repairs that know what a record was, and those that a start finishes."""

from __future__ import annotations

import shutil

from lab.harness import golden
from lab.harness.compare_stores import queue_files
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.log.record_checksums import remake
from rmqha.store.offline.verify import LogCheck
from tests.store.repair.case import SIZE, Dead, RepairCase
from tests.support import damage
from tests.support.logs import LogTestCase

#: A record of the last file, a byte of its body, and two of its properties.
START, LENGTH = 9856, 362
BODY, PROPERTY, OTHER = START + 90, START + LENGTH - 4, START + LENGTH - 6


class KeptTests(RepairCase):
    """A store with checksums, one record of which is harmed on either side."""

    def setUp(self) -> None:
        super().setUp()
        remake(self.store, RawLog.open(self.store))

    def harm(self, ours: tuple[int, ...], theirs: tuple[int, ...] = ()) -> None:
        """Flip a bit of some bytes."""
        for store, places in ((self.store, ours), (self.replica, theirs)):
            for place in places:
                damage.flip(store / damage.name(10), place)

    def assert_right(self) -> None:
        """The log is what it was, and a check of it finds nothing."""
        self.assertTrue(self.log_of(self.store) == self.before)
        self.assertEqual([*LogCheck(RawLog.open(self.store)).findings()], [])

    def test_properties(self) -> None:
        """Damage that no CRC covers is found and had, where the replica's is right."""
        self.harm((PROPERTY,))
        report = self.repaired()
        self.assertEqual((report.records, report.not_had, report.differs), (1, (), ()))
        self.assert_right()

    def test_body_and_properties(self) -> None:
        """A record that is damaged inside and outside its body is had as a whole."""
        self.harm((BODY, PROPERTY))
        self.assertEqual(self.repaired().differs, ())
        self.assert_right()

    def test_replica_is_wrong(self) -> None:
        """Properties of ours that are right stay, and it is said that they are."""
        self.harm((BODY,), (PROPERTY,))
        (other,) = self.repaired().differs
        self.assertEqual(other.start, 10 * SIZE + PROPERTY)
        self.assertIn("the checksum kept here says that ours is right", other.reason)
        self.assert_right()

    def test_both_are_wrong(self) -> None:
        """Where neither side has what was written nothing is written."""
        self.harm((PROPERTY,), (OTHER,))
        harmed = self.log_of(self.store)
        report = self.repaired()
        self.assertEqual((report.ranges, report.records), ((), 0))
        self.assertIn("no checksum tells who is right", report.differs[0].reason)
        self.assertTrue(self.log_of(self.store) == harmed)
        self.assertEqual(len([*LogCheck(RawLog.open(self.store)).findings()]), 1)

    def test_checksum_is_wrong(self) -> None:
        """Where both sides agree it is the checksum that does not: it is forgotten."""
        self.harm((PROPERTY,), (PROPERTY,))
        self.assertEqual(self.repaired().differs, ())
        self.assertEqual([*LogCheck(RawLog.open(self.store)).findings()], [])


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
