"""Tests for L{rmqha.store.published.readers}."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.store.published.readers import LONGEST, MOST, SILENCE, look
from rmqha.wire.store_layout import OWN_FOLDER, READERS

SIZE = golden.LOG_FILE_SIZE


class LookTests(SynchronousTestCase):
    """Who reads, and how far behind that is."""

    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        lines = golden.jsonl("5.3.3", "expected.jsonl")
        self.records = [line for line in lines if "topic" in line]
        last = self.records[-1]
        self.end = last["physicalOffset"] + last["size"]
        self.now = last["storeTimestamp"] + 5000
        self.folder = self.store / OWN_FOLDER / READERS

    def tell(self, name: str, offset: int, ago: float = 0.0) -> None:
        """Write a position, as a stream does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"offset": offset, "time": self.now - round(ago * 1000)})
        (self.folder / f"{name}.json").write_text(text)

    def look(self) -> list[dict[str, Any]]:
        return look(self.store, self.store / "commitlog", SIZE, self.end, self.now)

    def test_nobody(self) -> None:
        """Without the folder nobody reads; nor if it is a file."""
        self.assertEqual([], self.look())
        self.folder.parent.mkdir(exist_ok=True)
        self.folder.write_text("")
        self.assertEqual([], self.look())

    def test_states(self) -> None:
        """A reader is at the end, behind, silent for too long, or where the log is not."""
        record = self.records[400]
        behind = (self.now - record["storeTimestamp"]) / 1000
        self.tell("a", self.end, 1000.0)
        self.tell("b", record["physicalOffset"], 2.0)
        self.tell("c", record["physicalOffset"], SILENCE + 1)
        self.tell("d", self.end + 1)
        lag = self.end - record["physicalOffset"]
        found = [
            tuple(row[key] for key in ("name", "state", "behindBytes", "behindSeconds"))
            for row in self.look()
        ]
        wanted = [
            ("a", "current", 0, 0.0),
            ("b", "behind", lag, behind),
            ("c", "stale", lag, behind),
            ("d", "ahead", 0, 0.0),
        ]
        self.assertEqual(wanted, found)
        self.assertEqual([1000.0, 2.0, SILENCE + 1, 0.0], [r["silentSeconds"] for r in self.look()])

    def test_between_files(self) -> None:
        """Where a file has only its blank left, or ends, the next file's record is waited for."""
        row = next(i for i, each in enumerate(self.records) if each["physicalOffset"] == SIZE)
        last = self.records[row - 1]
        wanted = (self.now - self.records[row]["storeTimestamp"]) / 1000
        for offset in (last["physicalOffset"] + last["size"], SIZE):
            self.tell("a", offset)
            self.assertEqual(wanted, self.look()[0]["behindSeconds"])

    def test_deleted(self) -> None:
        """If what a reader waits for is deleted, it is behind since it told its position."""
        self.tell("a", 0, 7.0)
        for file in sorted((self.store / "commitlog").iterdir())[:2]:
            file.unlink()
        self.assertEqual(7.0, self.look()[0]["behindSeconds"])
        # In the middle of a record nothing can be read either.
        self.tell("a", self.records[-1]["physicalOffset"] + 1, 8.0)
        self.assertEqual(8.0, self.look()[0]["behindSeconds"])

    def test_bad_files(self) -> None:
        """A file that is no position is named; what is no reader's file is passed over."""
        self.folder.mkdir(parents=True)
        for number, raw in enumerate(
            (
                b"",
                b"\xff",
                b"[]",
                b"7",
                b"[" * 100_000,
                b'{"offset": "1", "time": 1}',
                b'{"offset": -1, "time": 1}',
                b'{"offset": 1, "time": true}',
                b'{"offset": 1}',
                b'{"offset": 1, "time": 1, "more": "' + b"x" * LONGEST + b'"}',
            )
        ):
            (self.folder / f"{number}.json").write_bytes(raw)
        (self.folder / "folder.json").mkdir()
        (self.folder / ".half.json.17").write_text("")
        found = self.look()
        self.assertEqual(11, len(found))
        for row in found:
            self.assertIn("unreadable", row["state"])
        states = {row["name"]: row["state"] for row in found}
        self.assertIn("offset is '1'", states["5"])
        self.assertIn("time is True", states["7"])

    def test_many(self) -> None:
        """There is a limit to what is looked at."""
        for number in range(MOST + 5):
            self.tell(f"r{number}", self.end)
        self.assertEqual(MOST, len(self.look()))

    def test_clock_behind(self) -> None:
        """No time is below 0, whoever's clock is wrong."""
        self.now = 1
        self.tell("a", 0, -100.0)
        (row,) = self.look()
        self.assertEqual((0.0, 0.0), (row["behindSeconds"], row["silentSeconds"]))
