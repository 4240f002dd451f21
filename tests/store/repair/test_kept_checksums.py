"""A repair that knows what a record was: its checksum was kept beside the log."""

from __future__ import annotations

from rmqha.logfiles.raw_log import RawLog
from rmqha.store.log.record_checksums import remake
from rmqha.store.offline.verify import LogCheck
from tests.store.repair.case import SIZE, RepairCase
from tests.support import damage

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
