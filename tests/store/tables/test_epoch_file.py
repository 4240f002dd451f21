"""The small files of a store: its epoch, what it grew to, and what it held."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import FileUnreadable, TableUnreadable
from rmqha.store.tables import epoch_file
from rmqha.store.tables.epoch_file import EpochFileInvalid
from rmqha.store.tables.growth_file import Growth
from rmqha.store.tables.held_file import Held
from rmqha.wire.ha_v2 import EpochLabel
from tests.support.controller_captures import FOLDER


def _summed(steps: list[tuple[int, int]]) -> tuple[EpochLabel, ...]:
    label = start = 0
    found = []
    for more, further in steps:
        label, start = label + more, start + further
        found.append(EpochLabel(label, start))
    return tuple(found)


LABELS = st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(0, 1 << 40)), max_size=9).map(
    _summed
)


class TextTests(SynchronousTestCase):
    def test_stock(self) -> None:
        """Texts that stock members wrote, checksum for checksum."""
        for starts, crc in (((0,), 1725254278), ((0, 66215), 1814251421)):
            labels = tuple(EpochLabel(number, start) for number, start in enumerate(starts, 1))
            lines = "".join(f"{each.label}-{each.start}\n" for each in labels)
            text = f"{len(labels)}\n{crc}\n{lines}".encode()
            self.assertEqual(epoch_file.render(labels), text)
            self.assertEqual(epoch_file.parse(text), labels)
        stock = (FOLDER / "epochFileCheckpoint.b1-diverged").read_bytes()
        labels = epoch_file.parse(stock)
        self.assertEqual((len(labels), labels[-1]), (8, EpochLabel(13, 347436)))
        self.assertEqual(epoch_file.render(labels), stock)

    @given(LABELS)
    def test_round(self, labels: tuple[EpochLabel, ...]) -> None:
        """What is written is read again."""
        self.assertEqual(epoch_file.parse(epoch_file.render(labels)), labels)

    @given(LABELS, st.integers(0, 200), st.integers(0, 7))
    def test_damage(self, labels: tuple[EpochLabel, ...], place: int, bit: int) -> None:
        """A bit that turned over is found, or changes nothing that is said."""
        text = bytearray(epoch_file.render(labels))
        text[place % len(text)] ^= 1 << bit
        try:
            found = epoch_file.parse(bytes(text))
        except ValueError:
            return
        self.assertEqual(found, labels)

    def test_unchecked(self) -> None:
        """A CRC of 0 is not compared."""
        self.assertEqual(epoch_file.parse(b"1\n0\n7-5\n"), (EpochLabel(7, 5),))

    def test_wrong(self) -> None:
        """Texts that are refused, with what is said."""
        for text, words in (
            (b"", "the number of labels is b''"),
            (b"\0" * 40, "the number of labels is"),
            (b"1\n5\n7-5\n", "and the file says 5"),
            (b"2\n0\n7-5\n", "there are 1 labels, and the file says 2"),
            (b"1\n0\n-1-5\n", "a label is b''"),
            (b"1\n0\n7\n", "the start of a label is b''"),
            (b"2\n0\n7-5\n7-9\n", "label 7 from byte 9 stands behind label 7 from byte 5"),
            (b"2\n0\n7-5\n8-4\n", "label 8 from byte 4 stands behind label 7 from byte 5"),
        ):
            with self.assertRaises(ValueError) as raised:
                epoch_file.parse(text)
            self.assertIn(words, str(raised.exception))


class FileTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.backup = self.path.with_name(self.path.name + ".bak")

    def test_generations(self) -> None:
        """The one before is taken where the present one cannot be, and that is said."""
        self.assertEqual(epoch_file.read(self.path), epoch_file.LabelsRead(None))
        first, second = (EpochLabel(1, 0),), (EpochLabel(1, 0), EpochLabel(2, 9))
        epoch_file.write(self.path, first)
        epoch_file.write(self.path, second)
        self.assertEqual(epoch_file.read(self.path), epoch_file.LabelsRead(second))
        self.path.write_bytes(bytes(30))
        found = epoch_file.read(self.path)
        self.assertEqual(found.labels, first)
        self.assertIn("the number of labels", found.fault)
        # What is damaged does not push out what is whole.
        epoch_file.write(self.path, ())
        self.assertEqual(epoch_file.parse(self.backup.read_bytes()), first)
        self.assertEqual(epoch_file.read(self.path), epoch_file.LabelsRead(()))

    def test_neither(self) -> None:
        """Where nothing can be read nobody goes on without labels."""
        self.path.write_bytes(b"")
        with self.assertRaises(EpochFileInvalid) as raised:
            epoch_file.read(self.path)
        self.assertIn(f"{self.backup.name} is missing", str(raised.exception))

    def test_descending(self) -> None:
        """Labels that do not ascend are not written."""
        labels = (EpochLabel(2, 0), EpochLabel(1, 9))
        with self.assertRaises(EpochFileInvalid):
            epoch_file.write(self.path, labels)
        self.assertFalse(self.path.exists())


BOTH, ALL = frozenset({1, 2}), frozenset({1, 2, 3})


class GrowthTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = Path(self.mktemp())

    def test_kept(self) -> None:
        """It is read as it was written."""
        self.assertEqual(Growth.read(self.root), Growth())
        kept = Growth().grown(7, 3, BOTH).grown(7, 3, ALL)
        kept.write(self.root)
        self.assertEqual(Growth.read(self.root), kept)

    def test_on_its_way(self) -> None:
        """Only what names the epochs that are decided can still be made."""
        kept = Growth().grown(7, 3, BOTH).grown(7, 3, ALL).grown(7, 3, BOTH)
        self.assertEqual(kept.on_its_way(7, 3), (BOTH, ALL))
        self.assertEqual(kept.on_its_way(7, 2), (BOTH, ALL), "told by one who knows less")
        self.assertEqual(kept.grown(7, 2, BOTH), kept)
        self.assertEqual(kept.on_its_way(7, 4), ())
        self.assertEqual(kept.on_its_way(8, 3), ())
        self.assertEqual(kept.grown(7, 4, ALL).sets, (ALL,))

    def test_nonsense(self) -> None:
        """What makes no sense is an error, and not a master that has asked for nothing."""
        Growth().grown(7, 3, BOTH).write(self.root)
        path = self.root / "rmqha" / "growth.json"
        good = {"masterEpoch": 7, "setEpoch": 3, "sets": [[1, 2]]}
        for key, value in (("masterEpoch", -1), ("setEpoch", "3"), ("sets", 5), ("sets", [[True]])):
            path.write_text(json.dumps(good | {key: value}))
            error = self.assertRaises(TableUnreadable, Growth.read, self.root)
            self.assertRegex(str(error), rf"growth\.json.*{key}\S* is ")

    def test_damaged(self) -> None:
        """What a crash has emptied or zeroed is an error: the generation before it names an older
        set epoch, and whoever takes it asks nobody to wait for the member that was asked for last.
        """
        Growth().grown(3, 7, BOTH).write(self.root)
        Growth().grown(3, 8, ALL).write(self.root)
        path = self.root / "rmqha" / "growth.json"
        for damaged in (b"", bytes(path.stat().st_size), path.read_bytes()[:-9]):
            path.write_bytes(damaged)
            self.assertRaises(TableUnreadable, Growth.read, self.root)

    def test_unreadable(self) -> None:
        """So is what the disk does not give."""
        (self.root / "rmqha" / "growth.json").mkdir(parents=True)
        self.assertRaises(FileUnreadable, Growth.read, self.root)

    def test_deleted(self) -> None:
        """Deleting the one file begins anew, whatever a version before has left."""
        for set_epoch in (3, 4):
            Growth().grown(7, set_epoch, BOTH).write(self.root)
        path = self.root / "rmqha" / "growth.json"
        self.assertEqual([*path.parent.iterdir()], [path])
        path.with_name("growth.json.bak").write_bytes(b"x")
        path.unlink()
        self.assertEqual(Growth.read(self.root), Growth())


class HeldTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = Path(self.mktemp())

    def test_kept(self) -> None:
        """It is read as it was written."""
        self.assertIsNone(Held.read(self.root))
        for offset in (0, 1 << 40):
            held = Held(id=2, epoch=7, offset=offset)
            held.write(self.root)
            self.assertEqual(Held.read(self.root), held)

    def test_nonsense(self) -> None:
        """What makes no sense is an error, and not a log that was never counted on."""
        Held(id=1, epoch=1, offset=5).write(self.root)
        path = self.root / "rmqha" / "held.json"
        for table in ({}, {"id": 1, "epoch": 1}, {"id": 1, "epoch": 1, "offset": -1}):
            path.write_text(json.dumps(table))
            path.with_name(path.name + ".bak").unlink(missing_ok=True)
            self.assertRaises(TableUnreadable, Held.read, self.root)
