"""Tests for L{rmqha.reserve}: what can be written on a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha import event_file, reserve
from rmqha.errors import DiskFull
from rmqha.logfiles import json_table
from rmqha.store.log.truncate import quarantine_bytes
from tests.support.small_disk import small_disk


class ReserveTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = small_disk(self, 4 << 20) / "store"
        self.own = self.root / "rmqha"

    def fill(self) -> None:
        """Take what is left of the disk."""
        with open(self.root / "ballast", "ab", buffering=0) as ballast:
            while True:
                try:
                    ballast.write(bytes(4096))
                except OSError as error:
                    self.assertEqual(error.errno, errno.ENOSPC)
                    return

    def write_all(self) -> None:
        """Everything that a node needs to write where nothing is free."""
        for name in ("epoch.json", "dispatched.json", "epoch.json"):
            json_table.replace(self.own / name, {"text": "x" * 5000})
        event_file.append(self.own / "events.jsonl", [event_file.Event(1, "state", "full")])
        quarantine_bytes(self.root, 0, 100_000, [memoryview(bytes(100_000))])

    def test_full(self) -> None:
        """Epoch, marks, events and cut bytes are on a disk with nothing else on it."""
        reserve.keep(self.root)
        self.fill()
        self.write_all()
        self.assertEqual(json_table.read(self.own / "epoch.json"), {"text": "x" * 5000})
        self.assertEqual([one.text for one in event_file.read(self.own / "events.jsonl")], ["full"])
        (kept,) = (self.own / "quarantine").iterdir()
        self.assertEqual(kept.stat().st_size, 100_000)

    def test_without(self) -> None:
        """Where no room was kept it is an error as before, and nothing is left behind."""
        self.own.mkdir(parents=True)
        self.fill()
        self.assertRaises(DiskFull, json_table.replace, self.own / "epoch.json", {"a": "x" * 5000})
        self.assertEqual(list(self.own.iterdir()), [])

    def test_taken_again(self) -> None:
        """What a table needed for a moment is taken again: the log does not get it."""
        json_table.replace(self.own_made() / "epoch.json", {"text": "x" * 5000})
        json_table.replace(self.own / "epoch.json", {"text": "x" * 5000})
        reserve.keep(self.root)
        self.fill()
        for _ in range(300):
            json_table.replace(self.own / "epoch.json", {"text": "y" * 5000})
        held = os.stat(self.own / "reserve")
        self.assertGreater(held.st_blocks * 512, reserve.SIZE - (16 << 10))

    def test_rest_is_taken_again(self) -> None:
        """Of what was given for something that stays the rest is taken before the log's."""
        reserve.keep(self.root)
        self.fill()
        event_file.append(self.own / "events.jsonl", [event_file.Event(1, "state", "full")])
        disk = os.statvfs(self.root)
        self.assertLess(disk.f_bavail * disk.f_frsize, 8192)

    def own_made(self) -> Path:
        """The folder of our own."""
        self.own.mkdir(parents=True)
        return self.own

    def test_copy_without_blocks(self) -> None:
        """A copy that left out what is zero is given its blocks."""
        with open(self.own_made() / "reserve", "wb") as file:
            file.truncate(reserve.SIZE)
        reserve.keep(self.root)
        self.assertGreaterEqual((self.own / "reserve").stat().st_blocks * 512, reserve.SIZE)

    def test_elsewhere(self) -> None:
        """What is not in the folder of our own gets none of it."""
        (self.root / "config").mkdir(parents=True)
        reserve.keep(self.root)
        self.fill()
        topics = self.root / "config" / "topics.json"
        self.assertRaises(DiskFull, json_table.replace, topics, {"a": "x" * 5000})
