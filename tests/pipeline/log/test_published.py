"""A store that rmqha writes, read by the pipeline while it is written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from rmqha.errors import NotAStore
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.pipeline.log.errors import PublishedPointStale
from rmqha.store.store import Store
from rmqha.wire.log.published import parse_point, render_point
from rmqha.wire.store_layout import OWN_FOLDER, POINT
from tests.store.published.test_publish import SIZES, PublishTestCase
from tests.support.logs import FILE_SIZE, message

try:
    from rmqha.pipeline.scan import scan
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


def offsets(store: Store | Path, **options: object) -> list[int]:
    """Physical offsets of all rows."""
    root = store if isinstance(store, Path) else store.settings.root
    table = scan(root, visibility="log", columns="physical_offset", **options).read_all()
    found: list[int] = table["physical_offset"].to_pylist()
    return found


class PublishedTests(PublishTestCase):
    """Writer and reader agree."""

    def test_growing(self) -> None:
        """Rows come when the disk has them, and a clean stop loses none."""
        store = self.filled_store(500, 500)
        self.pass_time()
        self.assertEqual([], offsets(store))
        self.flush(store)
        self.pass_time()
        self.assertEqual([0, 500], offsets(store))
        store.put(message(500))
        self.assertEqual([0, 500], offsets(store))
        self.close_store(store)
        self.assertEqual([0, 500, 1000], offsets(store))

    def test_split_index(self) -> None:
        """The index of several files divides the log without changing the rows."""
        store = self.filled_store(*[500] * 40)
        self.flush(store)
        self.pass_time(30)
        self.assertTrue(self.spans(store))
        found = offsets(store, maxPartitionBytes=1)
        self.assertEqual(40, len(found))
        self.assertEqual(found, offsets(store))

    def test_other_bytes_after_a_stop(self) -> None:
        """A store whose end was changed since it was closed is refused until that is wanted."""
        store = self.filled_store(500, 500)
        self.flush(store)
        self.close_store(store)
        root = store.settings.root
        self.assertEqual([0, 500], offsets(root))
        file = root / OWN_FOLDER / POINT
        point = parse_point(file.read_bytes())
        self.assertIsNotNone(point.tail)
        log = sorted((root / "commitlog").iterdir())[0]
        with log.open("r+b") as opened:
            opened.seek(999)
            byte = opened.read(1)[0]
            opened.seek(999)
            opened.write(bytes([byte ^ 1]))
        self.assertRaises(PublishedPointStale, offsets, root)
        file.write_bytes(render_point(point.cut_at(1000, 0)))
        self.assertEqual([0, 500], offsets(root, verifyCrc=False))

    def test_another_log(self) -> None:
        """A running or killed node's point is not believed of a log with another first record."""
        store = self.filled_store(500, 500)
        self.flush(store)
        self.pass_time()
        root = self.crash(store)
        self.assertEqual([0, 500], offsets(root))
        with open(next((root / "commitlog").iterdir()), "r+b") as log:
            log.seek(40)  # the first record's born time
            log.write(b"\1")
        self.assertRaises(PublishedPointStale, offsets, root)


class LogElsewhereTests(PublishTestCase):
    """A store whose commit log lies on another disk (C{storePathCommitLog})."""

    def setUp(self) -> None:
        super().setUp()
        self.root = self.folder() / "store"
        self.log_folder = self.folder() / "commitlog"
        self.store = self.made(self.root)
        for _ in range(4):
            self.store.put(message(500))
        self.flush(self.store)
        self.pass_time()
        self.store.put(message(500))  # which is not confirmed yet

    def made(self, root: Path | None = None, **more: Any) -> Store:
        self.clock = Clock()
        return self.opened(
            self.root,
            settings={**SIZES, "commitlog": self.log_folder},
            clock=self.clock,
            broker_name="broker-a",
            **more,
        )

    def test_every_name(self) -> None:
        """Whichever folder is named, store or log, readers stop at the published point."""
        for path in (self.root, self.log_folder, self.log_folder.parent):
            self.assertEqual([0, 500, 1000, 1500], offsets(path), path)
        self.assertEqual(2500, OfflineLog(self.root, FILE_SIZE).end)
        self.assertEqual([0, 500, 1000, 1500, 2000], offsets(self.log_folder, pointFile="ignore"))

    def test_point_out_of_reach(self) -> None:
        """Where the log alone is seen it is refused: nobody knows how far it is final."""
        self.root.rename(self.root.with_name("away"))
        for path in (self.log_folder, self.log_folder.parent):
            error = self.assertRaises(NotAStore, offsets, path)
            self.assertIn(f"the store in {self.root}", str(error))
            self.assertEqual(5, len(offsets(path, pointFile="ignore")))
        self.root.with_name("away").rename(self.root)

    def test_another_log_now(self) -> None:
        """So is a log that was put aside, whose store has another one now."""
        aside = self.log_folder.with_name("aside")
        (aside / "commitlog").parent.mkdir()
        beside = self.log_folder.with_name("commitlog.rmqha.json")
        (aside / beside.name).write_text(beside.read_text())
        shutil.copytree(self.log_folder, aside / "commitlog")
        self.assertRaises(NotAStore, offsets, aside)

    def test_back_home(self) -> None:
        """A log that is moved to where logs are by default needs no more telling."""
        self.close_store(self.store)
        shutil.move(self.log_folder, self.root / "commitlog")
        store = self.opened(self.root, settings=SIZES, clock=Clock(), broker_name="broker-a")
        self.assertEqual(5, len(offsets(store)))
        self.assertFalse((self.root / OWN_FOLDER / "commitlog.json").exists())

    def test_cannot_be_told(self) -> None:
        """A node that may not write beside its log starts all the same, and says so."""
        self.close_store(self.store)
        beside = self.log_folder.with_name("commitlog.rmqha.json")
        beside.unlink()
        beside.mkdir()
        with capturedLogs() as logs:
            self.store = self.made()
        self.assertIn("whose it is", "".join(each.get("log_format") or "" for each in logs))
        self.assertEqual(5, len(offsets(self.root)))
