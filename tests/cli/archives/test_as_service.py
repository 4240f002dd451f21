"""What commands that run for long tell their service manager."""

from __future__ import annotations

import errno

import click
from twisted.trial.unittest import SynchronousTestCase

from rmqha.archive.errors import FileSizeUnknown, ReceiveStopped
from rmqha.cli.archives.as_service import as_service
from rmqha.cli.main import main
from rmqha.errors import FlushFailed, StoreLocked
from rmqha.tier.errors import TierOfAnotherLog


class AsServiceTests(SynchronousTestCase):
    def code(self, error: Exception) -> int:
        @click.command()
        def fails() -> None:
            with as_service():
                raise error

        self.patch(main, "commands", {"fails": fails})
        with self.assertRaises(SystemExit) as ended:
            main.main(["fails"])
        return int(ended.exception.code or 0)

    def test_lasts(self) -> None:
        """It is 78, for no restart, of what stays: parted logs, a folder that is not writable."""
        stopped = ReceiveStopped(state="diverged", reason="byte 7 differs", start=0, end=9)
        other = TierOfAnotherLog("s3://a/b", "/store", 0, "broker-a", "broker-b")
        for error in (stopped, other, PermissionError(errno.EACCES, "Permission denied", "/a")):
            self.assertEqual(78, self.code(error), error)

    def test_passes(self) -> None:
        """It is 1 for what may be over by then: a master that does not answer yet, another process
        that has the archive, a disk without room, or one that failed.
        """
        away = FileSizeUnknown("127.0.0.1:10911", "Connection refused")
        full = OSError(errno.ENOSPC, "No space left on device", "/a")
        failed = ReceiveStopped(state="failed", reason="/a/1: I/O error", start=0, end=9)
        flush = FlushFailed("/a/1", "I/O error")
        for error in (away, StoreLocked("/a/lock"), full, flush, failed):
            self.assertEqual(1, self.code(error), error)
