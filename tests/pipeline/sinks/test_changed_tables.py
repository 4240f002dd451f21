"""Tables that somebody else changed: taken back to an earlier state, vacuumed, compacted, given
properties and columns.  How far a table is goes with its rows, whatever is done to it.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.harness import golden
from rmqha.pipeline.errors import NotNext, TableRefused
from rmqha.pipeline.log.errors import LogEndsBefore, LogOfAnotherBroker, NotThisLog
from tests.pipeline.sinks.test_tables import LakeTestCase
from tests.support.damaged_stores import change
from tests.support.effort import tries
from tests.support.rows import expected, publish

try:
    from deltalake import DeltaTable, Field
    from deltalake.exceptions import DeltaError
    from deltalake.schema import PrimitiveType
    from pyiceberg.exceptions import UnauthorizedError
    from pyiceberg.expressions import AlwaysTrue, GreaterThanOrEqual
    from pyiceberg.types import LongType

    from rmqha.pipeline.jobs.export import require_logs
    from rmqha.pipeline.jobs.rewind import rewind
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.sinks import iceberg
    from rmqha.pipeline.sinks.delta import DeltaSink
    from rmqha.pipeline.sinks.iceberg import IcebergSink
    from rmqha.pipeline.sinks.position import TablePosition
    from rmqha.pipeline.sinks.table_layout import By
    from rmqha.pipeline.sinks.target import Appending, Format, Target
    from tests.support.lake import append, offsets, written
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"


class ChangedTestCase(LakeTestCase):
    """A log that is published step by step, and tables of it."""

    def setUp(self) -> None:
        super().setUp()
        self.records = expected("5.3.3", "store")
        self.end = self.all[-1] + self.records[-1]["size"]

    def add(self, target: Target, row: int, **options: Any) -> None:
        """Add what the log has up to a record."""
        publish(self.store, self.all[row])
        append(target, self.store, **options)

    def iceberg(self, target: Target) -> Any:
        """The table as its own library sees it."""
        with target.open() as opened:
            return opened._table  # type: ignore[attr-defined]

    def back(self, target: Target, steps: int = 1) -> None:
        """Take a table back by some of its commits."""
        if target.format is Format.DELTA:
            table = DeltaTable(target.root)
            # What was vacuumed cannot be restored.
            with contextlib.suppress(DeltaError):
                table.restore(max(0, table.version() - steps))
            return
        table = self.iceberg(target)
        snapshot = table.current_snapshot()
        for _ in range(steps):
            snapshot = table.metadata.snapshot_by_id(snapshot.parent_snapshot_id) or snapshot
        table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()


class OtherLogTests(ChangedTestCase):
    """A store that is not the one that a table has the first part of."""

    def look(self, target: Target, path: Path) -> None:
        table = Appending(target, ReadOptions.parse({"path": path, "visibility": "log"}))
        try:
            require_logs(table)
        finally:
            table.close()

    def test_log_that_ends_before(self) -> None:
        """A log that is shorter than what the table has of it is an error, though nothing would be
        added: a copy that is behind, and another log, which its first record tells.
        """
        for target in self.every():
            self.add(target, 500)
            self.look(target, self.store)
            copy = golden.store("5.3.3")
            first, *others = self.files(copy)
            for each in others:
                each.unlink()
            os.truncate(first, self.all[100])
            publish(copy, self.all[100])
            error = self.assertRaises(LogEndsBefore, self.look, target, copy)
            self.assertEqual((self.all[500], self.all[100]), (error.offset, error.end), target)
            change(first, 60, b"\xff")
            self.assertRaises(NotThisLog, self.look, target, copy)

    def test_log_of_another_broker(self) -> None:
        """A name that is another one is an error, until somebody says that it is the same log."""
        for target in self.every():
            self.add(target, 500)
            publish(self.store, self.all[500], broker_name="b")
            self.assertRaises(LogOfAnotherBroker, self.look, target, self.store)
            if target.url:
                continue
            self.assertEqual(0, rewind(target.root, self.all[500]).rows, target)
            self.look(target, self.store)
            publish(self.store, self.end, broker_name="b")
            append(target, self.store)
            self.assertEqual(self.all, offsets(target), target)
            publish(self.store, self.end)
            self.assertRaises(LogOfAnotherBroker, self.look, target, self.store)
            publish(self.store, self.all[500])

    def test_table_that_went_between_batches(self) -> None:
        """A table that is dropped while a stream runs is not begun again in the middle."""
        options = ReadOptions.parse({"path": self.store, "visibility": "log"})
        for target in (self.target("parquet"), self.target("iceberg")):
            table = Appending(target, options)
            publish(self.store, self.all[500])
            table.commit(written(table.work(), options))
            table.close()
            shutil.rmtree(target.root)
            publish(self.store, self.all[600])
            error = self.assertRaises(NotNext, table.commit, written(table.work(), options))
            self.assertEqual((0, self.all[500]), (error.end, error.start), target)
            table.close()

    def test_table_without_identity(self) -> None:
        """A table of an earlier version says no log, and goes on; from then on it does."""
        self.patch(TablePosition, "to_json", old_json)
        for target in self.every():
            self.add(target, 500)
            publish(self.store, self.all[500], broker_name="b")
            self.look(target, self.store)

    def files(self, store: Path) -> list[Path]:
        return sorted((store / "commitlog").iterdir())


def old_json(position: TablePosition) -> dict[str, Any]:
    """What the versions before identities said of a position."""
    place = position.position
    return {"first": position.first, "last": place.last, "offset": place.offset, "sum": place.sum}


def forget(target: Target) -> None:
    """Drop what commits say of positions, as if they were of an earlier version of rmqha."""
    for path in sorted((target.root / "_delta_log").glob("*.json")):
        path.write_text(path.read_text().replace('"rmqha.held"', '"nothing"'))


class TakenBackTests(ChangedTestCase):
    """C{RESTORE} of a Delta table, rollback of an Iceberg table."""

    formats = ("delta", "iceberg")

    def test_export_goes_on(self) -> None:
        """What went with the rows comes again, once."""
        for format in self.formats:
            target = self.target(format)
            self.add(target, 500)
            self.add(target, 600)
            self.back(target)
            self.assertEqual(self.all[:500], offsets(target), format)
            self.add(target, 650)
            self.assertEqual(self.all[:650], offsets(target), format)

    def test_twice(self) -> None:
        """However often it is taken back, and over which other commits."""
        for format in self.formats:
            target = self.target(format)
            for row in (100, 200, 300):
                self.add(target, row)
            self.back(target)
            self.back(target)  # to what the first one replaced, or further
            before = len(offsets(target))
            self.add(target, 400)
            self.assertEqual(self.all[:400], offsets(target), (format, before))

    def test_batch_without_rows(self) -> None:
        """A batch that chose no row is a step of its own: it goes back too."""
        topics = [each["topic"] for each in self.records]
        rare = next(t for t in topics[:100] if t not in topics[400:500])
        wanted = [o for o, topic in zip(self.all, topics, strict=True) if topic == rare]
        for format in self.formats:
            target = self.target(format)
            for row in (400, 500, 600):
                self.add(target, row, topic=rare)
            self.back(target)
            with target.open() as opened:
                (held,) = opened.sources().values()
            self.assertEqual(self.all[500], held.end, format)
            self.add(target, -1, topic=rare)
            self.assertEqual([o for o in wanted if o < self.all[-1]], offsets(target), format)

    def test_stream_is_told(self) -> None:
        """A stream whose own position is ahead of such a table is refused with what mends it, also
        where it may pass over what a log has lost: this log has lost nothing.
        """
        for format in self.formats:
            for fail in (True, False):
                target = self.target(format)
                self.add(target, 500)
                self.add(target, 600)
                self.back(target)
                publish(self.store, self.all[700])
                ahead = {"startingOffsets": {"store": self.all[600]}, "failOnDataLoss": fail}
                error = self.assertRaises(NotNext, append, target, self.store, **ahead)
                self.assertEqual(self.all[500], error.end, format)
                self.assertIn("--resume-from-table", str(error))

    def test_to_nothing(self) -> None:
        """To what it was before the first row, too."""
        target = self.target("delta")
        self.add(target, 500)
        self.back(target, 9)
        self.assertEqual([], offsets(target))
        self.add(target, 600)
        self.assertEqual(self.all[:600], offsets(target))

    def test_while_a_batch_is_written(self) -> None:
        """A batch that was begun before is not added to it."""
        for format in self.formats:
            target = self.target(format)
            self.add(target, 500)
            self.add(target, 600)
            publish(self.store, self.all[700])
            options = ReadOptions.parse({"path": self.store, "visibility": "log"})
            job = Appending(target, options)
            self.addCleanup(job.close)
            batch = written(job.work(), options)
            self.back(target)
            self.assertRaises((TableRefused, NotNext), job.commit, batch)
            self.add(target, 700)
            self.assertEqual(self.all[:700], offsets(target), format)

    def test_behind_a_rewind(self) -> None:
        """A table may be taken back behind a rewind, which is a commit like others."""
        for format in self.formats:
            target = self.target(format)
            self.add(target, 500)
            rewind(target.root, self.all[300])
            self.assertEqual(self.all[:300], offsets(target), format)
            self.back(target, 1 if format == "delta" else 2)
            self.assertEqual(self.all[:500], offsets(target), format)
            self.add(target, 600)
            self.assertEqual(self.all[:600], offsets(target), format)

    def test_history_is_gone(self) -> None:
        """A table taken back that does not say how far it is is refused, with the command."""
        for format, tell in (("delta", forget), ("iceberg", self.forget_snapshots)):
            target = self.target(format)
            self.add(target, 500)
            self.add(target, 600)
            self.back(target)
            tell(target)
            error = self.assertRaises(TableRefused, self.add, target, 650)
            self.assertIn("rmqha spark rewind --table", str(error))
            self.assertIn("--store store --to", str(error))
            self.assertEqual(0, rewind(target.root, self.all[500], store="store").rows)
            self.add(target, 650)
            self.assertEqual(self.all[:650], offsets(target), format)

    def test_to_a_moment(self) -> None:
        """A moment stands for files' times, which copies change: which files are there counts."""
        for said, older, left in ((0, 4, 600), (1, 3, 500)):
            target = self.target("delta", by=By.TOPIC)
            moments = []
            for rows in (500, 600, 650):
                self.add(target, rows)
                moments.append(time.time())
            for number, path in enumerate(sorted((target.root / "_delta_log").glob("*.json"))):
                seen = moments[said] + 60 * (number - older) + 30
                os.utime(path, (seen, seen))
            DeltaTable(target.root).restore(datetime.fromtimestamp(moments[said], UTC))
            self.assertEqual(self.all[:left], offsets(target))
            self.add(target, 700)
            self.assertEqual(self.all[:700], offsets(target), (said, older))

    def forget_snapshots(self, target: Target) -> None:
        place = Path(self.iceberg(target).metadata_location.removeprefix("file://"))
        place.write_text(place.read_text().replace('"rmqha.held"', '"nothing"'))


class RowsGoneTests(ChangedTestCase):
    """Rows that somebody took off are never taken for rows that are there."""

    def assert_told(self, target: Target) -> None:
        """The next export is refused, and each way that it names leads on."""
        error = self.assertRaises(TableRefused, self.add, target, 650)
        ways = re.findall(r"rmqha spark rewind --table \S+ --store store --to (\d+)", str(error))
        self.assertEqual(2, len(ways), str(error))
        again, behind = map(int, ways)
        copy = target.root.with_name("copy")
        if target.format is Format.DELTA:  # the others know their own folder
            left = offsets(target)
            shutil.copytree(target.root, copy)
            rewind(copy, behind)
            self.add(Target.at(copy, format=Format.DELTA), 650)
            self.assertEqual([*left, *self.all[600:650]], offsets(Target.at(copy, format="delta")))
        rewind(target.root, again)
        self.add(target, 650)
        self.assertEqual(self.all[:650], offsets(target), target.format)

    def test_all_deleted(self) -> None:
        """A table that was emptied to load it again does not say that nothing is new."""
        for format in Format:
            target = self.target(format)
            self.add(target, 600)
            self.emptied(target, None)
            self.assert_told(target)

    def test_end_deleted(self) -> None:
        """Nor does one that lost what was added last."""
        for format in Format:
            target = self.target(format)
            self.add(target, 500)
            self.add(target, 600)
            self.emptied(target, self.all[500])
            self.assert_told(target)

    def emptied(self, target: Target, start: int | None) -> None:
        """Delete rows with the format's means, of one physical offset, or all."""
        if target.format is Format.DELTA:
            DeltaTable(target.root).delete(
                start if start is None else f"physical_offset >= {start}"
            )
        elif target.format is Format.ICEBERG:
            self.iceberg(target).delete(
                AlwaysTrue() if start is None else GreaterThanOrEqual("physical_offset", start)
            )
        else:
            for path in target.root.glob("date=*/*.parquet"):
                if start is None or int(path.stem.split("-")[1]) >= start:
                    path.unlink()

    def test_cleaned_history(self) -> None:
        """A table taken back, whose history is gone, is not where its transactions say."""
        target = self.target("delta")
        self.add(target, 500)
        self.add(target, 600)
        self.back(target)
        table = DeltaTable(target.root)
        table.alter.set_table_properties({"owner": "somebody"}, raise_if_not_exists=False)
        table.create_checkpoint()
        for path in sorted((target.root / "_delta_log").glob("*.json"))[:-1]:
            path.unlink()
        self.assert_told(target)


class KeptTests(ChangedTestCase):
    def test_transaction_retention(self) -> None:
        """A Delta table that forgets transactions knows all the same how far it is; where its
        history has gone too, it is refused, not filled again.
        """
        target = self.target("delta")
        self.add(target, 500)
        DeltaTable(target.root).alter.set_table_properties(
            {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
        )
        deadline = time.time() + 10
        while DeltaTable(target.root).transaction_version(self.application(target)) is not None:
            self.assertLess(time.time(), deadline, "transactions do not expire")
        self.add(target, 600)
        self.assertEqual(self.all[:600], offsets(target))
        forget(target)
        error = self.assertRaises(TableRefused, self.add, target, 650)
        self.assertIn("--store store --to", str(error))
        rewind(target.root, self.all[600], store="store")
        DeltaTable(target.root).alter.set_table_properties(
            {"delta.setTransactionRetentionDuration": "interval 30 days"}
        )
        self.add(target, 650)
        self.assertEqual(self.all[:650], offsets(target))

    def application(self, target: Target) -> str:
        from rmqha.pipeline.sinks.delta import application

        with target.open() as opened:
            ((selection, store),) = opened.sources()
        return application(selection, store)

    def test_rewind_without_rows(self) -> None:
        """Rewinding a table that has no row there moves its position all the same."""
        for format in ("parquet", "delta", "iceberg"):
            target = self.target(format)
            self.add(target, 500, endingOffsets={"store": self.all[100]}, topic="GoldenA")
            self.add(target, 500, topic="GoldenA", queueIds="77")
            self.assertEqual(0, rewind(target.root, self.all[450]).rows, format)
            with target.open() as opened:
                ends = {held.end for held in opened.sources().values()}
            self.assertEqual(self.all[450], max(ends), format)

    def test_expired_snapshots(self) -> None:
        """An Iceberg table without older snapshots knows how far it is, after others' too."""
        target = self.target("iceberg")
        self.add(target, 500)
        table = self.iceberg(target)
        with table.transaction() as other, other.update_snapshot().fast_append():
            pass
        now = table.current_snapshot()
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id != now.snapshot_id:
                table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        self.add(target, 600)
        self.assertEqual(self.all[:600], offsets(target))

    def test_any_steps(self) -> None:
        """Batches, restarts, and operators in between: in the end each record is one row."""
        for seed in range(tries(6)):
            for format in ("delta", "iceberg"):
                self.walk(random.Random(seed), self.target(format), (format, seed))

    def walk(self, chance: random.Random, target: Target, which: object) -> None:
        self.add(target, 50)
        steps = dict(self.delta_steps if target.format is Format.DELTA else self.iceberg_steps)
        row = 50
        for _ in range(12):
            name = chance.choice(["add", "add", "kill", *steps])
            if name in ("add", "kill"):
                row += chance.randrange(1, 80)
                publish(self.store, self.all[row])
                append(target, self.store, commit=name == "add")
            else:
                steps[name](target)
        publish(self.store, self.end)
        append(target, self.store)
        self.assertEqual(self.all, offsets(target), which)

    @property
    def delta_steps(self) -> dict[str, Callable[[Target], Any]]:
        return {
            "restore": self.back,
            "restore two": lambda target: self.back(target, 2),
            "vacuum": lambda target: DeltaTable(target.root).vacuum(
                0, dry_run=False, enforce_retention_duration=False
            ),
            "optimize": lambda target: DeltaTable(target.root).optimize.compact(),
            "checkpoint": lambda target: DeltaTable(target.root).create_checkpoint(),
            "retention": lambda target: DeltaTable(target.root).alter.set_table_properties(
                {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
            ),
        }

    @property
    def iceberg_steps(self) -> dict[str, Callable[[Target], Any]]:
        def property_of(target: Target) -> None:
            with self.iceberg(target).transaction() as change:
                change.set_properties({"owner": "somebody"})

        def expire(target: Target) -> None:
            table = self.iceberg(target)
            gone = table.metadata.snapshot_by_id(table.current_snapshot().parent_snapshot_id)
            if gone is not None:
                table.maintenance.expire_snapshots().by_id(gone.snapshot_id).commit()

        return {
            "rollback": self.back,
            "rollback two": lambda target: self.back(target, 2),
            "property": property_of,
            "expire": expire,
        }

    def test_two_jobs_at_once(self) -> None:
        """Of two jobs that add different rows at the same time both succeed, and each knows how far
        it is itself, after a restore too; of two that add the same one fails.
        """
        for format, sink, place in (
            ("delta", DeltaSink, "_append"),
            ("iceberg", IcebergSink, "_change"),
        ):
            target = self.target(format)
            jobs = []
            for visibility in ("log", "consumer"):
                options = ReadOptions.parse({"path": self.store, "visibility": visibility})
                jobs.append(Appending(target, options))
                self.addCleanup(jobs[-1].close)
            waiting: list[Any] = []
            real = getattr(sink, place)

            def late(mine: Any, *args: Any, real: Any = real, waiting: Any = waiting) -> Any:
                while waiting:
                    waiting.pop()()
                return real(mine, *args)

            self.patch(sink, place, late)
            for row in (100, 200):
                publish(self.store, self.all[row])
                one, other = [(job, written(job.work(), job.options)) for job in jobs]
                waiting.append(lambda one=one: one[0].commit(one[1]))
                other[0].commit(other[1])
                for job in jobs:
                    job.close()
                    self.assertEqual(self.all[row], job.held["store"].end, (format, row))
            self.back(target)
            ends = []
            for job in jobs:
                job.close()
                ends.append(job.held["store"].end)
            self.assertEqual([self.all[100], self.all[200]], sorted(ends), format)
            publish(self.store, self.all[300])
            same = Appending(target, jobs[0].options)
            self.addCleanup(same.close)
            batches = [(job, written(job.work(), job.options)) for job in (jobs[0], same)]
            waiting.append(lambda one=batches[0]: one[0].commit(one[1]))
            self.assertRaises(TableRefused, same.commit, batches[1][1])

    def test_two_jobs_make_it(self) -> None:
        """Of two jobs that make one table the second adds to it; catalogs do as well."""
        target = self.target("iceberg")
        publish(self.store, self.all[100])
        made, loaded = iceberg._made, iceberg.load_catalog

        def late(*given: Any) -> Any:
            self.patch(iceberg, "_made", made)
            append(target, self.store, topic="GoldenA")
            return made(*given)

        def early(*given: Any, **more: Any) -> Any:
            self.patch(iceberg, "load_catalog", loaded)
            raise RuntimeError("CREATE TABLE: table iceberg_tables already exists")

        self.patch(iceberg, "_made", late)
        self.patch(iceberg, "load_catalog", early)
        append(target, self.store, topic="GoldenB")
        names = {"GoldenA", "GoldenB"}
        every = [
            record["physicalOffset"]
            for record in self.records
            if record["topic"] in names and record["physicalOffset"] < self.all[100]
        ]
        self.assertEqual(every, offsets(target))

    def test_catalog_that_refuses(self) -> None:
        """What a catalog or a format's library finds wrong is a line of ours, at any time."""
        target = self.target("iceberg")
        publish(self.store, self.all[100])

        def refuse(*given: Any, **more: Any) -> Any:
            raise UnauthorizedError("wrong token")

        for place in ("load_catalog", "_made"):
            with self.subTest(place):
                before = getattr(iceberg, place)
                self.patch(iceberg, place, refuse)
                error = self.assertRaises(TableRefused, append, target, self.store)
                self.assertIn("wrong token", str(error))
                self.patch(iceberg, place, before)
        before = IcebergSink._change
        self.patch(IcebergSink, "_change", refuse)
        error = self.assertRaises(TableRefused, append, target, self.store)
        self.assertIn("wrong token", str(error))
        self.patch(IcebergSink, "_change", before)
        append(target, self.store)
        self.assertEqual(self.all[:100], offsets(target))

    def test_another_column(self) -> None:
        """A table that has got a column is refused with its name: rows would not have it."""
        for format in ("delta", "iceberg"):
            target = self.target(format)
            self.add(target, 100)
            if format == "delta":
                field = Field("more", PrimitiveType("long"), nullable=True)
                DeltaTable(target.root).alter.add_columns(field)
            else:
                with self.iceberg(target).update_schema() as change:
                    change.add_column("more", LongType())
            self.assertIn("more", str(self.assertRaises(TableRefused, self.add, target, 200)))
            self.assertEqual(self.all[:100], offsets(target), format)
