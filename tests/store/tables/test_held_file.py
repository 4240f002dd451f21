"""Tests for L{rmqha.store.tables.held_file}."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import TableUnreadable
from rmqha.store.tables.held_file import Held


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
