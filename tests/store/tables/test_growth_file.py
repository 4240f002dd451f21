"""Tests for L{rmqha.store.tables.growth_file}."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import FileUnreadable, TableUnreadable
from rmqha.store.tables.growth_file import Growth

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
