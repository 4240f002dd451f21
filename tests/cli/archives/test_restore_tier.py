"""C{rmqha restore} of logs whose files are in a tier."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.harness import golden
from rmqha.wire.store_layout import OWN_FOLDER, POINT
from tests.cli.command import CommandTestCase
from tests.support.rows import expected
from tests.support.tiers import END, FULL, SIZE, TierCase


class RestoreTierTests(TierCase, CommandTestCase):
    """A store is built from a tier, alone or with what a store still has."""

    def setUp(self) -> None:
        super().setUp()
        self.upload()
        self.whole = {path.name: path.read_bytes() for path in self.file(0).parent.iterdir()}
        self.dest = self.folder() / "restored"

    def same(self, dest: Path, end: int) -> None:
        """The log is the broker's up to there, and nothing behind."""
        for path in sorted((dest / "commitlog").iterdir()):
            kept = max(0, end - int(path.name))
            data = path.read_bytes()
            self.assertEqual(self.whole[path.name][:kept], data[:kept])
            self.assertFalse(any(data[kept:]))
        self.succeed("verify", dest)

    def test_store_and_tier(self) -> None:
        """What retention deleted comes from the tier, the tail from the store."""
        self.retention(7)
        done = self.answer("restore", self.store, self.dest, "--tier", self.url)
        self.assertEqual((0, END), (done["minOffset"], done["end"]))
        self.assertEqual(len(expected(golden.VERSIONS[0], "store")), done["records"])
        self.same(self.dest, END)

    def test_tier_alone(self) -> None:
        """A host that burnt down is built anew from all that was uploaded."""
        shutil.rmtree(self.store)
        done = self.answer("restore", self.url, self.dest)
        self.assertEqual(0, done["minOffset"])
        self.assertGreater(done["end"], (FULL - 1) * SIZE)
        self.same(self.dest, done["end"])

    def test_until(self) -> None:
        """A moment that only the tier has is as good as any."""
        self.retention(FULL)
        record = expected(golden.VERSIONS[0], "store")[60]
        offset = record["physicalOffset"]
        done = self.answer(
            "restore", self.store, self.dest, "--tier", self.url, "--until", str(offset)
        )
        self.assertEqual((offset, 60), (done["end"], done["records"]))
        self.same(self.dest, offset)

    def test_without_a_point(self) -> None:
        """So it is for a stock broker's store."""
        (self.store / OWN_FOLDER / POINT).unlink()
        self.retention(3)
        done = self.answer("restore", self.store, self.dest, "--tier", self.url)
        self.assertEqual((0, END), (done["minOffset"], done["end"]))

    def test_damage(self) -> None:
        """A changed byte, and an object that was cut, end it with the object and the numbers."""
        self.retention(5)
        data = self.object(2).read_bytes()
        self.object(2).write_bytes(data[:100] + b"!" + data[101:])
        said = self.fails(1, "restore", self.store, self.dest, "--tier", self.url)
        self.assertIn(f"has other bytes from {2 * SIZE} to {2 * SIZE + self.BLOCK}", said)
        os.truncate(self.object(2), 5)
        shutil.rmtree(self.dest)
        said = self.fails(1, "restore", self.store, self.dest, "--tier", self.url)
        self.assertIn(f"has 5 bytes, {SIZE} bytes were uploaded", said)

    def test_arguments(self) -> None:
        """A source that is neither a store nor a tier, and two tiers, are not understood."""
        self.assertIn("does not exist", self.fails(2, "restore", "/nowhere", self.dest))
        self.fails(2, "restore", self.url, self.dest, "--tier", self.url)
        empty = f"file://{self.folder()}"
        self.assertIn("there is no tier at", self.fails(1, "restore", empty, self.dest))
