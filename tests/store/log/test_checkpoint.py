"""Tests for L{rmqha.store.log.checkpoint}."""

from __future__ import annotations

from lab.harness import golden
from rmqha.store.log.checkpoint import Checkpoint
from tests.support.logs import LogTestCase


class CheckpointTests(LogTestCase):
    def test_missing_or_short(self) -> None:
        """No file, or one that was cut, knows nothing."""
        path = self.folder() / "checkpoint"
        self.assertEqual(Checkpoint.load(path), Checkpoint())
        path.write_bytes(b"\x00" * 23)
        self.assertEqual(Checkpoint.load(path), Checkpoint())

    def test_kept(self) -> None:
        """What is saved is read again, in a file of one page, over any other."""
        path = self.folder() / "checkpoint"
        for before in (b"", b"\xff" * 5000):
            path.write_bytes(before)
            Checkpoint(1, 2 << 40, 3).save(path)
            self.assertEqual(Checkpoint.load(path), Checkpoint(1, 2 << 40, 3))
            data = path.read_bytes()
            self.assertEqual((len(data), data[24:].strip(b"\0")), (4096, b""))

    def test_confirm(self) -> None:
        """The confirm offset is where RocketMQ 5 has it; the number before is unknown."""
        path = self.folder() / "checkpoint"
        Checkpoint(1, 2, 3, confirm=0x5655A).save(path)
        self.assertEqual(Checkpoint.load(path).confirm, 0x5655A)
        data = path.read_bytes()
        self.assertEqual(data[24:40], bytes(8) + (0x5655A).to_bytes(8))
        self.assertEqual(data[40:].strip(b"\0"), b"")

    def test_negative(self) -> None:
        """A time before 1970 is none."""
        path = self.folder() / "checkpoint"
        path.write_bytes(b"\xff" * 4096)
        self.assertEqual(Checkpoint.load(path), Checkpoint())

    def test_safe_time(self) -> None:
        """It is three seconds behind the oldest, and never negative."""
        point = Checkpoint(log=10_000, queues=9_000, index=5_000)
        self.assertEqual(point.safe_time(index=False), 6_000)
        self.assertEqual(point.safe_time(index=True), 2_000)
        self.assertEqual(Checkpoint(log=10_000).safe_time(index=False), 0)

    def test_stock(self) -> None:
        """Checkpoints of stock brokers are read; those stopped cleanly know all three times."""
        for version in golden.VERSIONS:
            point = Checkpoint.load(golden.store(version) / "checkpoint")
            last = list(golden.jsonl(version, "expected.jsonl"))[-1]["storeTimestamp"]
            self.assertGreater(point.log, last - 600_000)
            self.assertLessEqual(point.queues, last)
