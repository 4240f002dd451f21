"""C{rmqha rebuild}."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from lab.harness import golden
from lab.harness.compare_stores import index_files, queue_files
from rmqha.store.files.lock import StoreLock, is_locked
from rmqha.store.offline import rebuild_in_place
from tests.cli.command import CommandTestCase
from tests.support import damage

VERSION = golden.VERSIONS[0]


def digest(data: bytes) -> str:
    """A short stand-in for a file: what differs is shown, not thousands of zeros."""
    return hashlib.sha256(data).hexdigest()


class RebuildTests(CommandTestCase):
    def setUp(self) -> None:
        self.store = golden.store(VERSION)
        self.succeed("rebuild", self.store)
        self.queues, self.index = self.derived()

    def derived(self) -> tuple[dict[str, str], list[str]]:
        queues = {name: digest(data) for name, data in queue_files(self.store).items()}
        return queues, [digest(data) for data in index_files(self.store)]

    def assert_whole(self) -> None:
        """The derived files are those of the first rebuild, and nothing lies about."""
        self.assertEqual(self.derived(), (self.queues, self.index))
        self.assertFalse((self.store / "rmqha" / "rebuild").exists())
        self.assertFalse(is_locked(self.store / "lock"))

    def test_golden(self) -> None:
        """Every archive can be rebuilt, and is clean afterwards."""
        for version, name in golden.ARCHIVES:
            store = golden.store(version, name)
            self.assertIn("(200 slots, 800 entries a file)", self.succeed("rebuild", store))
            self.succeed("verify", store, "--deep")

    def test_progress(self) -> None:
        """On a terminal both walks over the log show how far they are, to their end."""
        told: dict[str, list[tuple[int, int]]] = {}

        @contextmanager
        def bar(description: str) -> Iterator[Callable[[int, int], None]]:
            steps = told.setdefault(description, [])
            yield lambda done, total: steps.append((done, total))

        with patch("rmqha.cli.rebuild.bar", bar):
            self.succeed("rebuild", self.store)
        self.assertEqual(list(told), ["checking the log", "rebuilding"])
        for steps in told.values():
            self.assertEqual(steps, sorted(steps))
            self.assertGreater(steps[-1][0], 2_600_000)

    def test_queues_as_stock(self) -> None:
        """Queues come out as the stock broker wrote them."""
        stock = queue_files(golden.store(VERSION))
        self.assertEqual(self.queues, {name: digest(data) for name, data in stock.items()})

    def test_missing(self) -> None:
        """What was lost is there again; sizes of what is left are kept.  A limit on messages is for
        those to come: there may be larger ones, as a slave of a master with a higher one has.
        """
        shutil.rmtree(self.store / "index")
        shutil.rmtree(self.store / "consumequeue" / "GoldenBulk")
        conf = self.store.parent / "broker.conf"
        conf.write_text(
            f"storePathRootDir={self.store}\nmappedFileSizeCommitLog=262144\n"
            "mappedFileSizeConsumeQueue=6000\nmaxHashSlotNum=200\nmaxIndexNum=800\n"
            "maxMessageSize=1000\n"
        )
        self.succeed("rebuild", self.store, "--conf", conf)
        self.assert_whole()

    def test_damaged_derived(self) -> None:
        """Wrong files are replaced, and what does not belong there goes."""
        path = sorted((self.store / "consumequeue" / "GoldenBulk" / "0").iterdir())[0]
        damage.flip(path, 3)
        (self.store / "index" / "x").touch()
        self.succeed("rebuild", self.store)
        self.assert_whole()

    def test_without_index(self) -> None:
        """With the index off its files stay what they are."""
        conf = self.store.parent / "broker.conf"
        conf.write_text(
            f"storePathRootDir={self.store}\nmappedFileSizeCommitLog=262144\n"
            "mappedFileSizeConsumeQueue=6000\nmessageIndexEnable=false\n"
        )
        self.assertIn("no index", self.succeed("rebuild", self.store, "--conf", conf))
        self.assert_whole()

    def test_locked(self) -> None:
        """A running node's files are not touched."""
        lock = StoreLock(self.store / "lock")
        lock.take()
        self.addCleanup(lock.release)
        self.assertIn("held by a running node", self.fails(1, "rebuild", self.store))

    def test_damaged_log(self) -> None:
        """A damaged log is not built from: what lies behind the damage would be lost."""
        damage.flip(damage.log_file(self.store, 0), 8)
        self.assertIn("this is damage", self.fails(1, "rebuild", self.store))
        damage.flip(damage.log_file(self.store, 0), 8)
        damage.log_file(self.store, 4).unlink()
        self.assertIn("missing, 1 files", self.fails(1, "rebuild", self.store))
        self.assert_whole()

    def test_log_alone(self) -> None:
        """A log without a root has no place for queues."""
        alone = Path(self.mktemp())
        shutil.copytree(self.store / "commitlog", alone)
        self.assertIn("root", self.fails(1, "rebuild", alone))

    def test_interrupted_build(self) -> None:
        """A rebuild that dies while it builds leaves the old files; the next one succeeds."""

        def dying(*args: object, **more: object) -> None:
            folder = self.store / "rmqha" / "rebuild" / "consumequeue" / "half"
            folder.mkdir(parents=True)
            raise KeyboardInterrupt

        with patch.object(rebuild_in_place, "rebuild", dying):
            result = self.run_command("rebuild", self.store)
        self.assertEqual(result.exit_code, 130)
        self.assertEqual(self.derived(), (self.queues, self.index))
        self.succeed("rebuild", self.store)
        self.assert_whole()

    def test_interrupted_swap(self) -> None:
        """Whichever rename fails, old or new files are in place afterwards."""
        real = os.rename
        for fatal in range(4):
            count = 0

            def failing(source: Path, target: Path, fatal: int = fatal) -> None:
                nonlocal count
                count += 1
                if count == fatal + 1:
                    raise OSError(5, "bad disk", str(source))
                real(source, target)

            with patch.object(os, "rename", failing):
                self.assertIn("bad disk", self.fails(1, "rebuild", self.store))
            self.assertEqual(self.derived(), (self.queues, self.index), fatal)
            self.succeed("rebuild", self.store)
            self.assert_whole()

    def test_killed_between_renames(self) -> None:
        """A run that found no time to put the old folder back is finished by the next."""
        place = self.store / "rmqha" / "rebuild"
        place.mkdir(parents=True)
        (self.store / "index").rename(place / "old-index")
        damage.log_file(self.store, 4).rename(self.store / "4")
        self.fails(1, "rebuild", self.store)
        (self.store / "4").rename(self.store / damage.name(4))
        self.succeed("rebuild", self.store)
        self.assert_whole()
