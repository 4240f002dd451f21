"""Tests for L{rmqha.controller.identity} and L{rmqha.controller.reset}."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller import reset
from rmqha.controller.identity import Identity, IdentityFiles, IdentityInvalid
from rmqha.errors import DiskFull, Refused, StoreLocked
from rmqha.ha.master_epoch import EpochJournal, EpochStart
from rmqha.store.files.lock import StoreLock
from rmqha.store.tables import epoch_file
from rmqha.store.tables.growth_file import Growth
from rmqha.store.tables.held_file import Held
from rmqha.wire.ha_v2 import EpochLabel
from tests.support.controller_captures import FOLDER

NAMES = st.text(st.characters(exclude_characters="#", exclude_categories=["Cs"]), min_size=1)
CODE = "127.0.0.1:35100;1795308906338"


class TextTests(SynchronousTestCase):
    def test_stock(self) -> None:
        """What a stock member wrote."""
        stock = (FOLDER / "brokerIdentity.b1").read_text()
        identity = Identity(cluster="C", name="a", id=1)
        self.assertEqual((stock, Identity.parse(stock)), ("C#a#1", identity))
        self.assertEqual(identity.render(), stock)
        applied = evolve(identity, check_code=CODE)
        self.assertEqual(applied.render(), f"C#a#1#{CODE}")
        self.assertEqual(Identity.parse(f"C#a#1#{CODE}", applied=True), applied)

    @given(NAMES, NAMES, st.integers(1, (1 << 63) - 1))
    def test_round(self, cluster: str, name: str, number: int) -> None:
        """What is written is read again."""
        identity = Identity(cluster=cluster, name=name, id=number)
        self.assertEqual(Identity.parse(identity.render()), identity)

    def test_wrong(self) -> None:
        """Texts that are refused, with what is said."""
        for text, words in (
            ("", "has 1 parts"),
            ("\0" * 9, "has 1 parts"),
            ("C#a#1#x", "has 4 parts"),
            ("C#a#", "'' is no id"),
            ("C#a#-1", "'-1' is no id"),
            ("C#a#0", "id 0 is less than 1"),
            ("C##1", "has an empty part"),
            ("C#a#1\n", "is no id"),
        ):
            with self.assertRaises(ValueError) as raised:
                Identity.parse(text)
            self.assertIn(words, str(raised.exception))


class FilesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.root.mkdir()
        self.files = IdentityFiles.of(self.root, "C", "a")

    def test_way(self) -> None:
        """A new member applies for an id, and has it."""
        self.assertEqual((self.files.read(), self.files.applied()), (None, None))
        applied = self.files.apply(2, CODE)
        self.assertEqual((self.files.read(), self.files.applied()), (None, applied))
        identity = self.files.given(applied)
        self.assertEqual(identity, Identity(cluster="C", name="a", id=2))
        self.assertEqual((self.files.read(), self.files.applied()), (identity, None))
        self.assertEqual([path.name for path in self.root.iterdir()], ["brokerIdentity"])

    def test_refused(self) -> None:
        """One whose id was given to somebody else applies for another."""
        self.files.apply(1, CODE)
        self.files.withdraw()
        self.files.withdraw()
        self.assertIsNone(self.files.applied())

    def test_of_another_set(self) -> None:
        """A store of another set is refused, and both are named."""
        self.files.given(self.files.apply(1, CODE))
        for cluster, name in (("D", "a"), ("C", "b")):
            with self.assertRaises(IdentityInvalid) as raised:
                IdentityFiles.of(self.root, cluster, name).read()
            self.assertIn("it is of set a in cluster C", str(raised.exception))
            self.assertIn(f"{name} in {cluster}", str(raised.exception))

    def test_damaged(self) -> None:
        """A damaged file is no new member."""
        self.files.path.write_bytes(b"\xff\xfe")
        with self.assertRaises(IdentityInvalid):
            self.files.read()

    def test_names(self) -> None:
        """A name with the mark in it would be read as another."""
        with self.assertRaises(IdentityInvalid) as raised:
            IdentityFiles.of(self.root, "C#", "a").apply(1, CODE)
        self.assertIn("'C#'", str(raised.exception))
        self.assertEqual(list(self.root.iterdir()), [])


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
