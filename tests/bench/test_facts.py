"""Tests for L{lab.bench.facts}."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.bench import facts


class DiskTests(SynchronousTestCase):
    """Where a file that is flushed goes to a disk."""

    def test_file_system(self) -> None:
        """What is in memory only is told from what is on a disk."""
        self.assertIn(facts.file_system(Path("/dev/shm")), facts.MEMORY_ONLY)
        self.assertNotIn(facts.file_system(Path("/proc")), facts.MEMORY_ONLY)

    def test_no_room(self) -> None:
        """A disk without enough room is none."""
        self.assertIsNone(facts.disk_folder(1 << 80))
