"""Where a log may be cut, and whether."""

from __future__ import annotations

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.errors import Refused
from rmqha.ha.slave.repair import Divergence, plan_cut, remedy
from rmqha.ha.states import SyncState
from rmqha.store.log.commit_log import CommitLog
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, LogTestCase

SIZES = (700, 1500, 900, 600) * 3
STARTS = (0, 700, 2200, 3100)
MUCH = 1 << 30


class PlanTests(LogTestCase):
    """L{plan_cut}: three files of four records and a blank."""

    def setUp(self) -> None:
        self.mine = self.filled(*SIZES)
        self.assertEqual(self.mine.end, 2 * FILE_SIZE + 3700)

    def plan(self, at: int, common_from: int, most: int = MUCH) -> int:
        return plan_cut(self.mine, Divergence(at, common_from), most)

    def test_start_of_the_record(self) -> None:
        """The cut is where the record that differs starts, wherever in it that is."""
        for file in range(3):
            base = file * FILE_SIZE
            for start, size in zip(STARTS, SIZES, strict=False):
                if not base + start:
                    continue
                for place in (0, 1, 50, size - 1):
                    self.assertEqual(self.plan(base + start + place, 0), base + start)

    def test_master_ends(self) -> None:
        """A master that ends at a record's end costs exactly what is behind it."""
        self.assertEqual(self.plan(700, 0), 700)
        self.assertEqual(self.plan(FILE_SIZE + 2200, FILE_SIZE), FILE_SIZE + 2200)

    def test_blank(self) -> None:
        """A difference in a blank cuts before the blank."""
        for place in (3700, 3708, FILE_SIZE - 1):
            self.assertEqual(self.plan(place, 0), 3700)

    def test_at_a_file_end(self) -> None:
        """A difference at a file's first byte keeps the file before, blank and all."""
        self.assertEqual(self.plan(FILE_SIZE, 0), FILE_SIZE)
        self.assertEqual(self.plan(2 * FILE_SIZE, 1), 2 * FILE_SIZE)

    def test_nothing_common(self) -> None:
        """Without a whole record compared equal nothing is cut."""
        for at, common in (
            (1, 1),
            (500, 0),  # not the end of a record
            (699, 0),
            (699, 1),
            (2200, 701),
            (FILE_SIZE + 5, FILE_SIZE),
            (FILE_SIZE, 3700),  # a blank only
            (FILE_SIZE + 500, 3701),
            (FILE_SIZE + 699, 3200),  # the end of a record, a blank, most of a record
        ):
            with self.subTest(at=at, common=common):
                error = self.assertRaises(Refused, self.plan, at, common)
                self.assertIn("compared", str(error))

    def test_first_record(self) -> None:
        """No master can be asked for a first byte: the first record is compared from the second."""
        self.assertEqual((self.plan(700, 1), self.plan(2199, 1)), (700, 700))

    def test_to_nothing(self) -> None:
        """An unseen log may lose all where its first record differs, and only there."""

        def plan(at: int, common_from: int, most: int = MUCH) -> int:
            return plan_cut(self.mine, Divergence(at, common_from), most, to_nothing=True)

        self.assertEqual([plan(at, 1) for at in (1, 8, 699)], [0, 0, 0])
        self.assertRaises(Refused, plan, 8, 1, self.mine.end - 1)
        for at, common in ((2200, 701), (FILE_SIZE + 5, FILE_SIZE)):
            self.assertRaises(Refused, plan, at, common)
        self.mine.drop_first().remove()
        self.assertRaises(Refused, plan, FILE_SIZE + 5, FILE_SIZE + 1)

    def test_one_record_is_enough(self) -> None:
        """One whole record in the window proves it."""
        self.assertEqual((self.plan(700, 0), self.plan(2300, 700)), (700, 2200))
        self.assertEqual(self.plan(FILE_SIZE + 5, 3100), FILE_SIZE)

    def test_too_much(self) -> None:
        """haMaxTruncateBytes holds, to the byte, counted from the cut."""
        lost = self.mine.end - (FILE_SIZE + 700)
        self.assertEqual(self.plan(FILE_SIZE + 1000, 0, lost), FILE_SIZE + 700)
        error = self.assertRaises(Refused, self.plan, FILE_SIZE + 1000, 0, lost - 1)
        self.assertIn(f"{lost} bytes would be cut", str(error))

    def test_empty_master(self) -> None:
        """An empty master is never a reason to cut."""
        divergence = Divergence(0, 0, master_empty=True)
        self.assertRaises(Refused, plan_cut, self.mine, divergence, MUCH)

    def test_below_our_min(self) -> None:
        """What lies before our first byte was not compared."""
        log: CommitLog = self.mine
        log.drop_first().remove()
        self.assertRaises(Refused, self.plan, FILE_SIZE + 500, 0)
        self.assertRaises(Refused, self.plan, 500, 0)
        self.assertEqual(self.plan(FILE_SIZE + 800, 0), FILE_SIZE + 700)

    def test_unconfirmed_tail(self) -> None:
        """A difference behind the last whole record cuts there."""
        log = self.log()
        append_frame(log, 0, bytes(self.mine.read(0, 2000)))
        log.verify()
        self.assertEqual(plan_cut(log, Divergence(1900, 0), MUCH), 700)


class RemedyTests(LogTestCase):
    """L{remedy}: what each policy does about each state."""

    def remedies(self, policy: DivergencePolicy, **more: object) -> dict[str, str]:
        given = {"divergence": Divergence(500, 0), "bootstrapping": False} | more
        found = {
            state.value: remedy(policy, state, **given)  # type: ignore[arg-type]
            for state in SyncState
        }
        return {state: what.value for state, what in found.items() if what is not None}

    def test_stop(self) -> None:
        """Stop does nothing about anything."""
        self.assertEqual(self.remedies(DivergencePolicy.STOP), {})

    def test_truncate(self) -> None:
        """Truncate cuts what is known to be too much or wrong."""
        expected = {"ahead": "truncate", "diverged": "truncate"}
        self.assertEqual(self.remedies(DivergencePolicy.TRUNCATE), expected)

    def test_rebootstrap(self) -> None:
        """Rebootstrap also helps where nothing overlaps."""
        expected = dict.fromkeys(("ahead", "diverged", "below-min"), "rebootstrap")
        self.assertEqual(self.remedies(DivergencePolicy.REBOOTSTRAP), expected)

    def test_unfinished_copy(self) -> None:
        """An unfinished copy starts over whatever the policy."""
        for policy in DivergencePolicy:
            found = self.remedies(policy, bootstrapping=True)
            self.assertEqual(found["below-min"], "rebootstrap")

    def test_empty_master(self) -> None:
        """No policy follows an empty master."""
        empty = Divergence(0, 0, master_empty=True)
        for policy in DivergencePolicy:
            found = self.remedies(policy, divergence=empty)
            self.assertNotIn("ahead", found)
            self.assertNotIn("diverged", found)

    def test_unknown_place(self) -> None:
        """Without a place nothing is done."""
        for policy in DivergencePolicy:
            self.assertNotIn("diverged", self.remedies(policy, divergence=None))
