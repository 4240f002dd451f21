"""
Tests for L{rmqha.store.tables.growth_file}.
"""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import TableUnreadable
from rmqha.store.tables.growth_file import Growth

BOTH, ALL = frozenset({1, 2}), frozenset({1, 2, 3})


class GrowthTests(SynchronousTestCase):
    """
    A file and what it says.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp())

    def test_kept(self) -> None:
        """
        It is read as it was written.
        """
        self.assertEqual(Growth.read(self.root), Growth())
        kept = Growth().grown(7, 3, BOTH).grown(7, 3, ALL)
        kept.write(self.root)
        self.assertEqual(Growth.read(self.root), kept)

    def test_on_its_way(self) -> None:
        """
        Only what names the epochs that are decided can still be made.
        """
        kept = Growth().grown(7, 3, BOTH).grown(7, 3, ALL).grown(7, 3, BOTH)
        self.assertEqual(kept.on_its_way(7, 3), (BOTH, ALL))
        self.assertEqual(kept.on_its_way(7, 4), ())
        self.assertEqual(kept.on_its_way(8, 3), ())
        self.assertEqual(kept.grown(7, 4, ALL).sets, (ALL,))

    def test_nonsense(self) -> None:
        """
        What makes no sense is an error, and not a master that has asked for nothing.
        """
        Growth().grown(7, 3, BOTH).write(self.root)
        path = self.root / "rmqha" / "growth.json"
        good = {"masterEpoch": 7, "setEpoch": 3, "sets": [[1, 2]]}
        for wrong in ({"masterEpoch": -1}, {"setEpoch": "3"}, {"sets": 5}, {"sets": [[True]]}):
            path.write_text(json.dumps(good | wrong))
            path.with_name(path.name + ".bak").unlink(missing_ok=True)
            self.assertRaises(TableUnreadable, Growth.read, self.root)
