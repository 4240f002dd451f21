"""Tests for L{lab.bench.facts}."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from twisted.trial.unittest import SynchronousTestCase

from lab.bench import facts


class DiskTests(SynchronousTestCase):
    """Where a file that is flushed goes to a disk."""

    def test_file_system(self) -> None:
        """The longest mount that a path is below counts, not one whose name only begins so."""
        with TemporaryDirectory() as folder:
            base = Path(folder).resolve()
            inner = base / "a b"
            inner.mkdir()
            escaped = str(inner).replace(" ", "\\040")
            mounts = (
                "/dev/vda / ext4 rw 0 0\n"
                f"tmpfs {escaped} tmpfs rw 0 0\n"
                f"ramfs {base}/a ramfs rw 0 0\n"
            )
            self.assertEqual(facts.file_system(base, mounts), "ext4")
            self.assertEqual(facts.file_system(inner, mounts), "tmpfs")
            self.assertEqual(facts.file_system(inner / "deeper", mounts), "tmpfs")

    def test_later_mount(self) -> None:
        """Of two file systems at one place, the one that was mounted last is there."""
        mounts = "tmpfs / tmpfs rw 0 0\noverlay / overlay rw 0 0\n"
        self.assertEqual(facts.file_system(Path("/"), mounts), "overlay")

    def test_no_room(self) -> None:
        """A disk without enough room is none."""
        self.assertIsNone(facts.disk_folder(1 << 80))
