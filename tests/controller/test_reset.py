"""Tests for L{rmqha.controller.reset}."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller import reset
from rmqha.controller.identity import Identity, IdentityFiles
from rmqha.errors import DiskFull, Refused, StoreLocked
from rmqha.ha.master_epoch import EpochJournal, EpochStart
from rmqha.store.files.lock import StoreLock
from rmqha.store.tables import epoch_file
from rmqha.store.tables.growth_file import Growth
from rmqha.store.tables.held_file import Held
from rmqha.wire.ha_v2 import EpochLabel

JOURNAL = EpochJournal(number=7, starts=(EpochStart(3, 0, 1), EpochStart(7, 5000, 2)))


class ResetTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        (self.root / "commitlog").mkdir(parents=True)
        files = IdentityFiles.of(self.root, "C", "a")
        files.given(files.apply(2, "code"))
        for end in (4000, 5000):  # twice, so that each has a generation before it
            epoch_file.write(self.root / "epochFileCheckpoint", [EpochLabel(3, end - 4000)])
            Held(id=2, epoch=7, offset=end).write(self.root)
            JOURNAL.write(self.root)
        Growth().grown(7, 1, frozenset({1, 2})).write(self.root)

    def left(self) -> reset.LeftSet:
        return reset.leave_set(self.root, self.root / "commitlog")

    def assertForgotten(self) -> None:
        """A start finds nothing of the set."""
        self.assertIsNone(IdentityFiles.of(self.root, "C", "a").read())
        self.assertIsNone(epoch_file.read(self.root / "epochFileCheckpoint").labels)
        self.assertIsNone(Held.read(self.root))
        self.assertEqual(Growth.read(self.root), Growth())
        journal = EpochJournal.read(self.root)
        self.assertEqual((journal.number, journal.starts, journal.higher), (0, (), None))

    def test_forgotten(self) -> None:
        """All goes into one folder, backups too, and it is told who the store was."""
        left = self.left()
        self.assertForgotten()
        self.assertEqual(left.folder, self.root / "rmqha" / "before-reset-1")
        self.assertEqual(
            sorted(path.name for path in left.folder.iterdir()),
            [
                "brokerIdentity",
                "epochFileCheckpoint",
                "epochFileCheckpoint.bak",
                "epochs.json",
                "epochs.json.bak",
                "growth.json",
                "held.json",
                "held.json.bak",
            ],
        )
        self.assertEqual(left.identity, Identity(cluster="C", name="a", id=2))
        self.assertEqual(left.newest, EpochStart(7, 5000, 2))
        self.assertTrue(left.led_last)

    def test_mark(self) -> None:
        """The empty journal says where the one before is, until the log has an epoch again."""
        self.left()
        table = json.loads((self.root / "rmqha" / "epochs.json").read_text())
        self.assertEqual(table["reset"], 1)
        journal = EpochJournal.read(self.root)
        self.assertEqual((journal.reset, journal.led(1, 6000, 1).reset), (1, 0))

    def test_again(self) -> None:
        """A store that has nothing is refused; one that was a member again gets a second folder."""
        self.left()
        self.assertRaises(Refused, self.left)
        self.assertEqual(len(list((self.root / "rmqha").glob("before-reset-*"))), 1)
        files = IdentityFiles.of(self.root, "C", "a")
        files.apply(1, "code")
        again = self.left()
        self.assertEqual(again.folder.name, "before-reset-2")
        self.assertEqual((again.identity, again.newest), (None, None))
        self.assertIsNone(files.applied())

    def test_running(self) -> None:
        """A store that is in use stays as it is."""
        lock = StoreLock(self.root / "lock")
        lock.take()
        self.addCleanup(lock.release)
        self.assertRaises(StoreLocked, self.left)
        self.assertEqual(EpochJournal.read(self.root), JOURNAL)
        self.assertEqual(list((self.root / "rmqha").glob("before-reset-*")), [])

    def test_promoted(self) -> None:
        """The master epoch of a store that is no member's is not taken away."""
        self.left()
        JOURNAL.write(self.root)
        self.assertRaises(Refused, self.left)
        self.assertEqual(EpochJournal.read(self.root), JOURNAL)

    def test_unreadable(self) -> None:
        """Files that cannot be read are put aside as well."""
        (self.root / "brokerIdentity").write_text("a#b")
        for path in (self.root / "rmqha").glob("epochs.json*"):
            path.write_text("{")
        left = self.left()
        self.assertForgotten()
        self.assertEqual((left.identity, left.newest), (None, None))

    def test_interrupted(self) -> None:
        """Wherever it ends, what is there keeps the identity or has no epochs; it can be redone."""
        for steps in range(8):
            self.setUp()
            real, done = reset._move, iter(range(steps))

            def move(root: Path, name: str, folder: Path, real=real, done=done) -> list[str]:
                if next(done, None) is None:
                    raise DiskFull(str(folder), 0)
                return real(root, name, folder)

            with mock.patch.object(reset, "_move", move):
                self.assertRaises(DiskFull, self.left)
            self.assertTrue((self.root / "brokerIdentity").exists(), steps)
            self.left()
            self.assertForgotten()
