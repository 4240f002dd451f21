"""What a slave remembers of the master that it followed, and what that decides."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve
from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import DiskFull, TableUnreadable
from rmqha.ha.master_epoch import EpochJournal, EpochStart, MasterEpochs
from rmqha.ha.slave.followed import (
    FollowedMaster,
    FollowedMasters,
    HeldForAnotherMaster,
    end_following,
    path_of,
)
from rmqha.ha.slave.master_bounds import BrokerIdentity, MasterBounds
from tests.support.logs import now

OURS, OTHER = "10.0.0.6:10912", "10.0.0.5:10912"
CLIENT = "10.0.0.6:10911"


def bounds(epoch: int = 0, boot: int = 77, starts: tuple[EpochStart, ...] = ()) -> MasterBounds:
    """What a master's client port says."""
    return MasterBounds(0, 900, boot, BrokerIdentity(name="a", id=0, epoch=epoch, starts=starts))


class FollowedCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.masters = self.opened()

    def opened(self, trusted: str = "") -> FollowedMasters:
        """What a slave that starts knows."""
        epochs = MasterEpochs(self.root, now)
        epochs.load(1 << 40)
        masters = FollowedMasters(epochs=epochs, trusted=trusted)
        masters.load()
        return masters

    def objection(
        self, at: int, end: int, address: str = OTHER, known: MasterBounds | None = None
    ) -> HeldForAnotherMaster | None:
        return self.masters.objection("truncate", at=at, end=end, address=address, bounds=known)


class HeldTests(FollowedCase):
    """A slave that was proven to hold 500 bytes for a master of epoch 1."""

    def setUp(self) -> None:
        super().setUp()
        self.masters.proven(OURS, CLIENT, bounds(1), 500)

    def test_another(self) -> None:
        """What was held for it is not cut for another; the error has both, after restarts too."""
        for _ in range(2):
            error = self.objection(452, 600, known=bounds(1, boot=5))
            assert error is not None
            self.assertEqual((error.start, error.end), (452, 600))
            self.assertEqual((error.holder, error.holder_epoch), (OURS, 1))
            self.assertEqual((error.master, error.master_epoch), (OTHER, 1))
            self.assertIn(f"haTrustMaster={OTHER}", str(error))
            self.masters = self.opened()

    def test_unknown(self) -> None:
        """Another that does not tell its epoch, as a stock one, is no higher one."""
        error = self.objection(452, 600)
        assert error is not None
        self.assertIn(f"{OTHER} (master epoch unknown)", str(error))

    def test_higher(self) -> None:
        """One with a higher epoch is believed: an operator has promoted it."""
        self.assertIsNone(self.objection(452, 600, known=bounds(2)))

    def test_nothing_held(self) -> None:
        """A cut behind what is held, and any before a master was proven, is not refused."""
        self.assertIsNone(self.objection(600, 600))
        self.masters.row = None
        self.assertIsNone(self.objection(0, 600))

    def test_itself(self) -> None:
        """The same master may want it, by its address or, where that changed, by its process: it
        lost the end of its log, which haDivergencePolicy decides.
        """
        self.assertIsNone(self.objection(452, 600, address=OURS))
        self.assertIsNone(self.objection(452, 600, known=bounds(1, boot=77)))

    def test_trusted(self) -> None:
        """The one that the operator names may."""
        self.masters = self.opened(trusted=OTHER)
        self.assertIsNone(self.objection(452, 600))
        self.assertIsNotNone(self.objection(452, 600, address="10.0.0.7:10912"))

    def test_all_that_came(self) -> None:
        """All that the log grew by since is held too, until the store becomes a master's."""
        self.assertIsNotNone(self.objection(800, 900))
        end_following(self.root, 850)
        self.masters = self.opened()
        self.assertIsNotNone(self.objection(800, 900))
        self.assertIsNone(self.objection(850, 900))
        end_following(self.root, 900)
        self.assertIsNone(self.objection(850, 900))

    def test_successor(self) -> None:
        """Another that was proven to have all of it takes its place."""
        self.masters.proven(OTHER, "", bounds(1, boot=5), 700)
        self.assertIsNone(self.objection(452, 900))
        error = self.objection(452, 900, address=OURS)
        assert error is not None
        self.assertEqual(error.holder, OTHER)


class EpochTests(FollowedCase):
    def test_adopted(self) -> None:
        """A proven master's number and journal are this log's."""
        starts = (EpochStart(1, 100), EpochStart(3, 400))
        self.masters.proven(OURS, CLIENT, bounds(3, starts=starts), 500)
        self.assertEqual(EpochJournal.read(self.root), EpochJournal(number=3, starts=starts))

    def test_unknown(self) -> None:
        """One that does not tell changes nothing."""
        self.masters.proven(OURS, CLIENT, bounds(3), 500)
        self.masters.proven(OTHER, "", None, 500)
        self.assertEqual(self.masters.epochs.number, 3)

    def test_too_low(self) -> None:
        """A lower one is not followed, unless the operator names it: then its number is taken."""
        self.masters.proven(OURS, CLIENT, bounds(3), 500)
        text = self.masters.too_low(OTHER, 2)
        for part in (OTHER, "master epoch 2", OURS, "follows 3", f"haTrustMaster={OTHER}"):
            self.assertIn(part, text)
        for epoch in (None, 3, 4):
            self.assertEqual(self.masters.too_low(OTHER, epoch), "")
        self.masters = self.opened(trusted=OTHER)
        self.assertEqual(self.masters.too_low(OTHER, 2), "")
        self.masters.proven(OTHER, "", bounds(2), 500)
        self.assertEqual(EpochJournal.read(self.root).number, 2)

    def test_claim(self) -> None:
        """Others are told of a master with an epoch and a client port, while the highest."""
        self.assertIsNone(self.masters.claim("a"))
        self.masters.proven(OURS, CLIENT, bounds(0), 500)
        self.assertIsNone(self.masters.claim("a"))
        self.masters.proven(OURS, "", bounds(2), 500)
        self.assertIsNone(self.masters.claim("a"))
        self.masters.proven(OURS, CLIENT, bounds(2), 500)
        claim = self.opened().claim("a")
        assert claim is not None
        self.assertEqual(
            (claim.broker_name, claim.master_epoch, claim.master_addr), ("a", 2, CLIENT)
        )
        epochs = self.masters.epochs
        epochs.become(epochs.journal.raised(500))
        self.assertIsNone(self.masters.claim("a"))


class FileTests(FollowedCase):
    def test_written_when_it_changes(self) -> None:
        """A reconnect writes nothing; another process of the master does."""
        self.masters.proven(OURS, CLIENT, bounds(1), 500)
        before = path_of(self.root).stat().st_ino
        self.masters.proven(OURS, CLIENT, bounds(1), 900)
        self.assertEqual(path_of(self.root).stat().st_ino, before)
        self.masters.proven(OURS, CLIENT, bounds(1, boot=78), 900)
        self.assertNotEqual(path_of(self.root).stat().st_ino, before)
        self.assertEqual(FollowedMaster.read(self.root), evolve(self.masters.row, held=900))

    def test_nonsense(self) -> None:
        """A file that makes no sense is an error that is said, and no reason not to start."""
        path_of(self.root).parent.mkdir(parents=True, exist_ok=True)
        for content in (b"{", b"{}", b'{"address": 5}', b'{"address":"a","client":""}'):
            path_of(self.root).write_bytes(content)
            self.assertRaises(TableUnreadable, FollowedMaster.read, self.root)
            self.assertIsNone(self.opened().row)

    def test_full_disk(self) -> None:
        """What cannot be written counts as long as this runs."""

        def write(function: object, *args: object) -> Deferred[None]:
            return fail(DiskFull("followed.json", 5))

        self.masters.epochs.in_thread = write
        self.masters.proven(OURS, CLIENT, None, 500)
        self.assertIsNotNone(self.objection(452, 600))
        self.assertIsNone(FollowedMaster.read(self.root))
