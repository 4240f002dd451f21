"""Tests for L{rmqha.pipeline.sinks.folder} in an object store: whenever a job is killed, or another
one runs in between, each record is one row for whoever lists the folder.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from tests.support.effort import tries
from tests.support.rows import expected, publish

try:
    import pyarrow.dataset as ds
    from deltalake.exceptions import DeltaError
    from hypothesis import given, settings
    from hypothesis import strategies as st
    from pyarrow.fs import PyFileSystem

    from rmqha.errors import ExtraMissing
    from rmqha.pipeline.errors import TableRefused
    from rmqha.pipeline.jobs.rewind import rewind
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.sinks import commits
    from rmqha.pipeline.sinks.commits import COMMITS, Commits, begin_log
    from rmqha.pipeline.sinks.parquet import STAGED
    from rmqha.pipeline.sinks.table_layout import By
    from rmqha.pipeline.sinks.target import Appending, Target, found_at
    from rmqha.tier.errors import TierUnreachable
    from tests.support.lake import append, written
    from tests.support.objects import SCHEME, TABLE, Objects

    OUT = SCHEME + TABLE
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"

ALL = {"visibility": "log", "columns": "queue_id", "maxPartitionBytes": "256k"}


class ObjectsCase(SynchronousTestCase):
    """A golden store, and a folder in an object store."""

    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.all = [each["physicalOffset"] for each in expected("5.3.3", "store")]
        self.objects = Objects()
        self.objects.use(self)
        self.target = Target.at(OUT)
        self.addCleanup(shutil.rmtree, self.target.root, ignore_errors=True)

    def add(self, row: int) -> None:
        """Add what the log has up to a record."""
        publish(self.store, self.all[row])
        append(self.target, self.store, **ALL)

    def seen(self) -> list[int]:
        """Physical offsets of the rows that a reader finds who only lists the folder."""
        files = PyFileSystem(self.objects)
        names = [
            name
            for name in self.objects.kept
            if name.endswith(".parquet") and not name.startswith(f"{TABLE}/_")
        ]
        if not names:
            return []
        table = ds.dataset(names, filesystem=files).to_table(["physical_offset"])
        return sorted(table.column(0).to_pylist())

    @property
    def last(self) -> dict[str, Any]:
        return Commits.of(self.target.shape).last()[1]

    @property
    def end(self) -> int:
        """How far it says that the table is."""
        held = self.last.get("held", {}).values()
        return max((each["store"]["offset"] for each in held), default=0)

    @property
    def most(self) -> int:
        """How far the rows may go that are seen."""
        names = [PurePosixPath(name).stem for name in self.last.get("removed", ())]
        return max([self.end, *(int(name.split("-")[2]) for name in names)])

    def waiting(self) -> list[str]:
        """Objects that wait for a commit, or should not be there any more."""
        return [name for name in self.objects.kept if f"/{STAGED}/" in name]

    def check_seen(self) -> None:
        """No row is there twice, none uncommitted; those being taken off may be there still."""
        seen = self.seen()
        self.assertEqual(len(set(seen)), len(seen))
        self.assertEqual([], [place for place in seen if place >= self.most])


class KilledTests(ObjectsCase):
    """A job is killed before any change that it makes."""

    def test_append(self) -> None:
        """What it left is finished or cleared by the next one."""
        self.add(20)
        publish(self.store, self.all[700])
        before, at = dict(self.objects.kept), 0
        while True:
            at += 1
            self.objects.kept = dict(before)
            with self.objects.killed(at):
                append(self.target, self.store, **ALL)
            self.check_seen()
            if self.objects.changes < at:
                break
            append(self.target, self.store, **ALL)
            self.assertEqual(self.all[:700], self.seen(), at)
            self.add(750)
            self.assertEqual(self.all[:750], self.seen(), at)
            self.assertEqual([], self.waiting(), at)
            publish(self.store, self.all[700])
        self.assertGreater(at, 8)

    def test_rewind(self) -> None:
        """So it is with one that takes rows off."""
        self.add(20)
        self.add(700)
        before, at = dict(self.objects.kept), 0
        while True:
            at += 1
            self.objects.kept = dict(before)
            with self.objects.killed(at):
                rewind(OUT, self.all[450])
            seen = self.seen()
            self.assertEqual(len(set(seen)), len(seen), at)
            if self.objects.changes < at:
                break
            if self.end == self.all[450]:
                with found_at(OUT):
                    pass
                self.assertEqual(self.all[:450], self.seen(), at)
            self.add(750)
            self.assertEqual(self.all[:750], self.seen(), at)
            self.assertEqual([], self.waiting(), at)
            publish(self.store, self.all[700])
        self.assertEqual(self.all[:450], self.seen())
        self.assertGreater(at, 4)

    def test_any_steps(self) -> None:
        """And with many that are killed one after the other."""

        @settings(max_examples=tries(20), deadline=None, database=None)
        @given(
            st.lists(st.tuples(st.booleans(), st.integers(1, 120), st.integers(1, 30)), max_size=6)
        )
        def walk(steps: list[tuple[bool, int, int]]) -> None:
            self.objects.kept.clear()
            row = 100
            self.add(row)
            for add, count, at in steps:
                with self.objects.killed(at):
                    if add:
                        row = min(row + count, len(self.all) - 1)
                        self.add(row)
                    else:
                        rewind(OUT, self.all[row - count % row])
                self.check_seen()
            self.add(row)
            self.assertEqual(self.all[:row], self.seen())

        walk()


class TwoJobsTests(ObjectsCase):
    """Two jobs add to one folder."""

    def test_one_is_first(self) -> None:
        """Of two with a batch's files one commits; the other is told, and leaves nothing."""
        self.add(20)
        publish(self.store, self.all[700])
        options = ReadOptions.parse({"path": self.store, **ALL})
        jobs = [Appending(self.target, options) for _ in range(2)]
        batches = [written(job.work(), options) for job in jobs]
        jobs[1].commit(batches[1])
        error = self.assertRaises(TableRefused, jobs[0].commit, batches[0])
        self.assertIn("commit 2", str(error))
        self.assertEqual(self.all[:700], self.seen())
        self.assertEqual([], self.waiting())

    def test_one_pauses_anywhere(self) -> None:
        """One stands still before any change of its own, while the other does all its work."""
        add = partial(append, self.target, self.store, **ALL)
        take_off = partial(rewind, OUT, self.all[10])
        for one, other in product((add, take_off), repeat=2):
            at = 0
            while self.pauses(one, other, at):
                at += 1
            self.assertGreater(at, 4)

    def pauses(self, one: Callable[[], object], other: Callable[[], object], at: int) -> bool:
        """Let one stand still before a change, while the other goes, if it makes so many."""

        def run(number: int) -> None:
            if number == at + 1:
                self.objects.before = lambda number: None
                other()
                self.check_seen()

        self.objects.kept.clear()
        self.add(20)
        publish(self.store, self.all[700])
        self.objects.changes, self.objects.before = 0, run
        try:
            one()
        except TableRefused as error:
            self.assertIn("another job has committed", str(error))
        made, self.objects.before = self.objects.changes, lambda number: None
        self.check_seen()
        self.add(900)
        self.assertEqual(self.all[:900], self.seen(), (one, other, at))
        self.assertEqual([], self.waiting(), (one, other, at))
        return made > at

    def test_number_of_long_ago(self) -> None:
        """A job that slept until its number was free again is told all the same."""
        self.patch(commits, "_KEPT", 2)
        self.add(100)
        publish(self.store, self.all[150])
        options = ReadOptions.parse({"path": self.store, **ALL})
        slow = Appending(self.target, options)
        batch = written(slow.work(), options)
        for row in (200, 300, 400, 500):
            self.add(row)
        self.assertRaises(TableRefused, slow.commit, batch)
        self.assertEqual(self.all[:500], self.seen())
        names = {name.split("/")[4] for name in self.objects.kept if COMMITS in name}
        self.assertEqual({f"{number:020d}" for number in (4, 5)}, names)


class FolderTests(ObjectsCase):
    """What is told, and what is refused."""

    def test_answer_is_lost(self) -> None:
        """A commit whose answer never came counts if it is there, and is an error if it is not."""
        real = self.objects.begin_log

        def lost(url: str, text: str) -> None:
            real(url, text)
            raise OSError("connection reset")

        self.patch(commits, "begin_log", lost)
        self.add(20)
        self.assertEqual(self.all[:20], self.seen())

        def away(url: str, text: str) -> None:
            raise DeltaError("no answer")

        self.patch(commits, "begin_log", away)
        self.assertIn("no answer", str(self.assertRaises(TierUnreachable, self.add, 300)))
        self.assertEqual(self.all[:20], self.seen())

    def test_lost_file(self) -> None:
        """A file that was committed, and went before it was in its place, is named."""
        self.add(20)
        publish(self.store, self.all[700])
        for at in range(1, 100):
            with self.objects.killed(at):
                append(self.target, self.store, **ALL)
            if self.end == self.all[700]:
                break
        gone = self.last["added"][0]["waiting"]
        del self.objects.kept[f"{TABLE}/{gone}"]
        error = self.assertRaises(TableRefused, self.add, 700)
        self.assertIn("was committed (commit 2), but it is missing", str(error))

    def test_other_tables(self) -> None:
        """What is a Delta table there, or no table, is refused, and folders by topic are."""
        self.assertRaises(TableRefused, found_at, OUT)
        for by in (By.TOPIC, By.TABLE):
            error = self.assertRaises(TableRefused, Target.at(OUT, by=by).open)
            self.assertIn("by topic", str(error))
        self.objects.kept[f"{TABLE}/_delta_log/00000000000000000000.json"] = b"{}"
        error = self.assertRaises(TableRefused, self.add, 100)
        self.assertIn("Delta", str(error))

    def test_columns(self) -> None:
        """It keeps its columns, as a folder on a file system does."""
        self.add(100)
        error = self.assertRaises(
            TableRefused, append, self.target, self.store, visibility="log", columns="body"
        )
        self.assertIn("its columns are queue_id, physical_offset, store", str(error))

    def test_without_deltalake(self) -> None:
        """What writes commits there has to be installed."""
        with patch.dict(sys.modules, {"deltalake": None}):
            error = self.assertRaises(ExtraMissing, self.add, 100)
        self.assertIn("rmqha[delta]", str(error))
        self.assertEqual({}, self.objects.kept)


class BeginLogTests(SynchronousTestCase):
    """The write on which all of it rests, as deltalake does it."""

    def test_once(self) -> None:
        """It is done where there is nothing, never again; its text is where it is looked for."""
        place = Path(tempfile.mkdtemp(prefix="first-"))
        self.addCleanup(shutil.rmtree, place)
        url = str(place / f"{7:020d}")
        begin_log(url, text := json.dumps({"path": "date=ü"}))
        self.assertRaises(DeltaError, begin_log, url, "other")
        shape: Any = Target.at(place).shape
        read = commits._FirstCommits(shape)
        self.patch(commits, "COMMITS", ".")
        self.assertEqual([7], read.numbers())
        self.assertEqual(text, read.read(7))
