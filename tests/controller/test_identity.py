"""Tests for L{rmqha.controller.identity}."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.identity import Identity, IdentityFiles, IdentityInvalid
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
