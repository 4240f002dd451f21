"""Tests for L{rmqha.store.log.arrival} and L{rmqha.store.log.expiry}: what came back is kept."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from twisted.logger import capturedLogs

from lab.harness import golden
from rmqha.config.store_settings import StoreSettings
from rmqha.ha.promotion import promote
from rmqha.store.log import expiry
from rmqha.store.store import Store
from tests.store.log.test_retention import BEGIN, DAY, HOUR, SIZES, RetentionTestCase

YEAR = 365 * DAY
ALL = [0, 1, 2, 3, 4, 5]


class BackupTestCase(RetentionTestCase):
    """Tests with a store of a year ago, at an hour of C{deleteWhen}, that no node has open."""

    def setUp(self) -> None:
        super().setUp()
        store = self.made()
        self.close_store(store)
        self.backup: Path = store.settings.root
        self.now, self.hour = BEGIN + YEAR, 4

    def copied(self) -> Path:
        """What C{cp -a} makes of the backup."""
        copy = self.folder() / "copy"
        shutil.copytree(self.backup, copy)
        return copy

    def left(self, root: Path) -> list[int]:
        """The log files that are left half a minute after a start."""
        return self.after(self.at(root), 0)

    def after(self, store: Store, hours: float) -> list[int]:
        """Those that are left so many hours later."""
        self.now += hours * HOUR
        self.pass_time(30)
        return self.starts(store)


class ArrivalTests(BackupTestCase):
    def test_copy(self) -> None:
        """A copy of a store is kept for C{fileReservedTime} from its first start on."""
        store = self.at(self.copied())
        self.assertEqual((self.after(store, 0), self.after(store, 71)), (ALL, ALL))
        self.assertEqual(self.after(store, 2), [5])

    def test_above_the_ratio(self) -> None:
        """A disk that is fuller than C{diskMaxUsedSpaceRatio} takes no file of it sooner."""
        self.hour, self.use = 12, 0.8
        self.assertEqual(self.left(self.copied()), ALL)

    def test_above_the_other_ratio(self) -> None:
        """One that is fuller than C{diskSpaceCleanForciblyRatio} does, as it takes any."""
        self.hour, self.use = 12, 0.88
        self.assertEqual(self.left(self.copied()), [5])

    def test_same_place(self) -> None:
        """A store that only was stopped for a year has expired, also under another name."""
        moved = self.backup.rename(self.backup.with_name("moved"))
        self.assertEqual(self.left(moved), [5])

    def test_restart(self) -> None:
        """The time runs on over restarts: it is that of the first one."""
        store = self.at(self.copied())
        self.now += 73 * HOUR
        self.assertEqual(self.after(self.reopened_later(store), 0), [5])

    def reopened_later(self, store: Store) -> Store:
        """The same store after a restart."""
        self.close_store(store)
        return self.at(store.settings.root)

    def test_restored_in_place(self) -> None:
        """A backup that takes the place of a store that was deleted is kept too."""
        copy = self.copied()
        shutil.rmtree(self.backup)
        shutil.copytree(copy, self.backup)
        self.assertEqual(self.left(self.backup), ALL)

    def test_log_alone(self) -> None:
        """So is a log that a stock broker left, or that was copied into another store."""
        copy = self.copied()
        shutil.rmtree(self.backup / "commitlog")
        shutil.copytree(copy / "commitlog", self.backup / "commitlog")
        self.assertEqual(self.left(self.backup), ALL)
        shutil.rmtree(copy / "rmqha")
        self.assertEqual(self.left(copy), ALL)

    def test_tour(self) -> None:
        """A stock store of long ago, as the README unpacks one, is all there at any hour."""
        for self.hour in (4, 13):
            self.now = time.time()
            store = self.opened(
                golden.store(golden.VERSIONS[-1]),
                clock=self.clock,
                now_ms=lambda: int(self.now * 1000),
                local_hour=lambda now: self.hour,
            )
            files = sorted(store.settings.commitlog.iterdir())
            self.pass_time(30)
            self.assertEqual(sorted(store.settings.commitlog.iterdir()), files)
            self.assertGreater(len(files), 1)

    def test_promoted(self) -> None:
        """What was promoted is kept from that moment on, wherever it lies."""
        self.now = time.time()
        promote(StoreSettings(root=self.backup, **SIZES))
        self.assertEqual(self.left(self.backup), ALL)

    def test_clock_was_ahead(self) -> None:
        """A moment in the future counts as the present one."""
        self.now += 100 * YEAR
        store = self.at(self.copied())
        self.now = BEGIN + YEAR
        store = self.reopened_later(store)
        self.assertEqual(self.after(store, 73), [5])


class ExpiryTests(BackupTestCase):
    def told(self, **settings: Any) -> str:
        """Of a copy that is not open."""
        self.copy = self.copied()
        return expiry.of_store(StoreSettings(root=self.copy, **SIZES, **settings), self.now)

    def shown(self, moment: float) -> str:
        """A moment as people are told of it."""
        return time.strftime("%H:%M on %Y-%m-%d", time.localtime(moment))

    def test_kept(self) -> None:
        """How many files are old, how long they are kept, and when they go."""
        text = self.told()
        kept = self.now + 72 * HOUR
        self.assertIn("5 of 6 log files are older than fileReservedTime=72; they came here", text)
        self.assertIn(f"kept until {self.shown(kept)}: they go at 04:00 on ", text)
        before, after = self.shown(kept)[9:], self.shown(kept + DAY)[9:]
        day = text.rpartition(" on ")[2]
        self.assertIn(day, (f"{before} (deleteWhen)", f"{after} (deleteWhen)"))

    def test_at_a_start(self) -> None:
        """A start logs the same."""
        text = self.told()
        with capturedLogs() as events:
            self.at(self.copy)
        self.assertIn(text, [event.get("text") for event in events])

    def test_expired(self) -> None:
        """What is not kept goes at the next such hour, or at once."""
        settings = StoreSettings(root=self.backup, **SIZES)
        self.assertRegex(
            expiry.of_store(settings, self.now),
            r"^5 of 6 log files are older than fileReservedTime=72: they go at \d\d:\d\d on ",
        )
        files = self.at(self.copied()).log.folder.files
        for use, said in ((0.8, "at once"), (0.88, "whatever their age"), (0.5, "(deleteWhen)")):
            text = expiry.next_deletions(settings, files, arrived=BEGIN, now=self.now, use=use)
            self.assertIn(said, text)

    def test_some(self) -> None:
        """Only the oldest files may be old; if none is, nothing is said."""
        self.now = BEGIN + 72 * HOUR + 2.5 * HOUR
        self.assertIn("3 of 6 log files", self.told())
        self.now = BEGIN + 70 * HOUR
        self.assertEqual(self.told(), "")
