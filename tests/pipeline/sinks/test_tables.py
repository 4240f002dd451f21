"""Tests for L{rmqha.pipeline.sinks}: files, and the tables that list them, without Spark."""

from __future__ import annotations

import json
import os
import re
import shutil
import string
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.cli.spark.check import check
from rmqha.errors import ColumnUnknown
from rmqha.pipeline.errors import NotNext, OptionInvalid, TableRefused
from rmqha.pipeline.log.errors import NotThisLog
from tests.support.rows import expected, publish

try:
    import deltalake
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyiceberg

    from rmqha.pipeline.jobs.rewind import rewind
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.scan import scan
    from rmqha.pipeline.sinks import folder
    from rmqha.pipeline.sinks.delta import DeltaSink
    from rmqha.pipeline.sinks.encoding import Compression, Encoding
    from rmqha.pipeline.sinks.iceberg import IcebergSink
    from rmqha.pipeline.sinks.parquet import OURS
    from rmqha.pipeline.sinks.table import local
    from rmqha.pipeline.sinks.table_layout import By, encoded, parts
    from rmqha.pipeline.sinks.target import Appending, Format, Target, found_at
    from tests.support.lake import append, files, found, offsets, rows
    from tests.support.objects import SCHEME, TABLE, Objects

    _ = (deltalake, pyiceberg)
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"


def answer_lost(change: Callable[..., Any]) -> Callable[..., None]:
    """A change that is made, and not answered."""

    def lost(*given: Any) -> None:
        change(*given)
        raise OSError("connection reset")

    return lost


def away(*given: Any) -> None:
    """Nobody answers, and nothing is changed."""
    raise OSError("no answer")


class LayoutTests(SynchronousTestCase):
    """Rows lie in folders by day and topic."""

    def test_names(self) -> None:
        """A topic's name is one folder's, visible, and not too long for a file system."""
        self.assertEqual("%25RETRY%25group", encoded("%RETRY%group"))
        self.assertEqual("a%7Cb%2F..%2Fc", encoded("a|b/../c"))
        self.assertEqual(["%2E.", "%5Fhidden"], [encoded(".."), encoded("_hidden")])
        long = [encoded("%" * 127 + end) for end in "ab"]
        self.assertLess(max(map(len, long)), 255)
        self.assertNotEqual(*long)

    def test_parts(self) -> None:
        """Rows are sorted by topic, in the log's order within one, and divided by days."""
        day = 86_400_000_000
        table = pa.table(
            {
                "topic": ["b", "a", "b", "a", None],
                "time": pa.array([1, 2, day, 3, None], pa.timestamp("us", tz="UTC")),
                "n": [0, 1, 2, 3, 4],
            }
        )
        seen = {
            (part.topic, part.date): part.rows.column("n").to_pylist()
            for part in parts(table, "topic", "time", By.TOPIC)
        }
        wanted = {
            ("a", "1970-01-01"): [1, 3],
            ("b", "1970-01-01"): [0],
            ("b", "1970-01-02"): [2],
            (None, None): [4],
        }
        self.assertEqual(wanted, seen)
        by_day = {part.date: part for part in parts(table, "topic", "time", By.DATE)}
        self.assertEqual([1, 3, 0], by_day["1970-01-01"].rows.column("n").to_pylist())
        unknown = by_day[None].folder(By.DATE)
        self.assertEqual("date=__HIVE_DEFAULT_PARTITION__", str(unknown))


class LakeTestCase(SynchronousTestCase):
    """Tests with a golden store and a table."""

    def setUp(self) -> None:
        self.store = golden.store("5.3.3")
        self.all = [each["physicalOffset"] for each in expected("5.3.3", "store")]

    def target(self, format: str = "parquet", **more: Any) -> Target:
        """A table that is not there yet."""
        place = Path(tempfile.mkdtemp(prefix="lake-"))
        self.addCleanup(shutil.rmtree, place, ignore_errors=True)
        return Target.at(place / "table", format=Format(format), **more)

    def every(self) -> Iterator[Target]:
        """One of each format, and a folder of Parquet files in an object store."""
        yield from map(self.target, Format)
        objects = Objects()
        objects.use(self)
        target = Target.at(SCHEME + TABLE)
        self.addCleanup(shutil.rmtree, target.root, ignore_errors=True)
        yield target


class AppendTests(LakeTestCase):
    """Every record becomes one row, however often it is tried."""

    def test_again_and_on(self) -> None:
        """A table takes what it does not have yet: the rest of a range too."""
        for target in self.every():
            publish(self.store, self.all[500])
            append(target, self.store)
            self.assertEqual(self.all[:500], offsets(target), target)
            self.assertEqual([], [each for w in append(target, self.store) for each in w.files])
            publish(self.store, self.all[800])
            append(target, self.store)
            self.assertEqual(self.all[:800], offsets(target), target)
            with found_at(target.shape.place) as table:
                (held,) = table.sources().values()
            self.assertEqual((0, self.all[800]), (held.first, held.end), target)
            self.assertEqual(self.all[799], held.position.last, target)

    def test_places_in_queues(self) -> None:
        """A place in a queue to begin with is about what was there when the table was begun."""
        records = expected("5.3.3", "store")
        topics, queues = {records[100]["topic"], records[700]["topic"]}, range(16)
        places = json.dumps({topic: dict.fromkeys(queues, 1 << 40) for topic in topics})
        others = [each["physicalOffset"] for each in records[:500] if each["topic"] not in topics]
        for target in self.every():
            publish(self.store, self.all[500])
            append(target, self.store, startingOffsets=places)
            self.assertEqual(others, offsets(target), target)
            publish(self.store, self.all[800])
            append(target, self.store, startingOffsets=places)
            self.assertEqual(others + self.all[500:800], offsets(target), target)

    def test_rows(self) -> None:
        """The rows are those of a scan, with the store and the day beside them."""
        wanted = scan(self.store, visibility="log").read_all().sort_by("physical_offset")
        for target in self.every():
            append(target, self.store)
            seen = rows(target)
            for name in wanted.schema.names:
                self.assertEqual(
                    wanted.column(name).to_pylist(), seen.column(name).to_pylist(), (target, name)
                )
            self.assertEqual({"store"}, set(seen.column("store").to_pylist()), target)
            if target.format is not Format.ICEBERG:
                days = {f"{time:%Y-%m-%d}" for time in wanted.column("store_timestamp").to_pylist()}
                self.assertEqual(days, set(map(str, seen.column("date").to_pylist())), target)

    def test_killed_before_commit(self) -> None:
        """What tasks wrote for a batch that was not committed is no part of the table."""
        for target in self.every():
            publish(self.store, self.all[300])
            append(target, self.store)
            publish(self.store, self.all[700])
            append(target, self.store, commit=False)
            self.assertEqual(self.all[:300], offsets(target), target)
            publish(self.store, self.all[900])
            append(target, self.store)
            self.assertEqual(self.all[:900], offsets(target), target)

    def test_killed_while_committing(self) -> None:
        """A folder whose commit is there, but not its files, is mended when it is opened."""
        for target in self.every():
            if target.format is not Format.PARQUET:
                continue
            publish(self.store, self.all[300])
            append(target, self.store)
            publish(self.store, self.all[700])
            patched = self.patch(folder.FolderTable, "_apply", lambda table: None)
            append(target, self.store)
            self.assertEqual(self.all[:300], offsets(target))
            patched.restore()
            self.assertEqual([], [each for w in append(target, self.store) for each in w.files])
            self.assertEqual(self.all[:700], offsets(target))

    def test_commits_of_other_versions(self) -> None:
        """An earlier version's commit is finished, with its names; a later one's is refused."""
        target = self.target()
        patched = self.patch(folder.FolderTable, "_apply", lambda table: None)
        append(target, self.store)
        patched.restore()
        (file,) = (target.root / OURS / "commits").iterdir()
        commit = json.loads(file.read_text())
        for each in commit["added"]:
            old = target.root / OURS / "staged" / f"{each['path']}.part"
            old.parent.mkdir(parents=True, exist_ok=True)
            (target.root / each.pop("waiting")).rename(old)
        file.write_text(json.dumps({**commit, "version": 1}))
        with found_at(target.root):
            self.assertEqual(self.all, offsets(target))
        file.write_text(json.dumps({**commit, "version": 3}))
        error = self.assertRaises(TableRefused, found_at, target.root)
        self.assertIn("version 3", str(error))
        self.assertEqual([], list((target.root / OURS / "staged").iterdir()))

    def test_task_twice(self) -> None:
        """A task that runs twice makes the same file twice."""
        target = self.target("delta")
        first = append(target, self.store, commit=False)
        second = append(target, self.store, commit=False)
        self.assertEqual(first, second)
        self.assertEqual(sum(len(each.files) for each in first), len(files(target.root)))

    def test_selections(self) -> None:
        """A table knows by selection how far it is."""
        target = self.target("delta")
        topics = {each["physicalOffset"]: each["topic"] for each in expected("5.3.3", "store")}
        for topic in ("GoldenA", "GoldenB", "GoldenA"):
            append(target, self.store, topic=topic)
        wanted = [place for place in self.all if topics[place] in ("GoldenA", "GoldenB")]
        self.assertEqual(wanted, offsets(target))

    def test_columns(self) -> None:
        """A table has the columns asked for, and always where a row is from."""
        target = self.target()
        append(target, self.store, columns="body,keys", endingOffsets={"store": self.all[9]})
        self.assertEqual(
            ["body", "keys", "physical_offset", "store", "date"], rows(target).schema.names
        )
        error = self.assertRaises(TableRefused, append, target, self.store, columns="body")
        self.assertIn("its columns are body, keys", str(error))
        self.assertRaises(ColumnUnknown, append, self.target(), self.store, columns="bdy")
        self.assertRaises(OptionInvalid, append, self.target(), self.store, columnStyle="kafka")
        styled = self.target("delta")
        append(styled, self.store, columnStyle="rocketmq")
        places = found(styled.root, "delta").column("physicalOffset").to_pylist()
        self.assertEqual(self.all, sorted(places))

    def test_by_topic(self) -> None:
        """Folders by topic are a column of the table; a folder a topic is a table a topic."""
        topics = {each["topic"] for each in expected("5.3.3", "store")}
        for format in Format:
            target = self.target(format, by=By.TOPIC)
            append(target, self.store)
            self.assertEqual(self.all, offsets(target), format)
            self.assertEqual(topics, set(rows(target).column("topic").to_pylist()), format)
            folders = {path.name for path in target.root.iterdir() if "=" in path.name}
            self.assertEqual({f"topic={encoded(topic)}" for topic in topics}, folders)
        target = self.target(by=By.TABLE)
        append(target, self.store)
        mine = found(target.root / "GoldenA", "parquet")
        self.assertEqual({"GoldenA"}, set(mine.column("topic").to_pylist()))
        self.assertRaises(TableRefused, append, self.target("delta", by=By.TABLE), self.store)

    def test_encoding(self) -> None:
        """Files are compressed as asked, sorted by topic, with statistics but for bodies."""
        for codec in Compression:
            target = self.target(encoding=Encoding(codec))
            append(target, self.store, endingOffsets={"store": self.all[600]})
            for name in files(target.root):
                metadata = pq.read_metadata(target.root / name)
                group = metadata.row_group(0)
                columns = {
                    group.column(n).path_in_schema: group.column(n)
                    for n in range(group.num_columns)
                }
                shown = {"none": "UNCOMPRESSED"}.get(codec.value, codec.value.upper())
                self.assertEqual(shown, columns["body"].compression)
                self.assertIsNone(columns["body"].statistics)
                self.assertIsNotNone(columns["physical_offset"].statistics)
                topics = pq.ParquetFile(target.root / name).read(["topic"]).column(0).to_pylist()
                self.assertEqual(sorted(topics), topics)

    def test_statistics(self) -> None:
        """Delta's log knows the least and greatest values of each file."""
        target = self.target("delta")
        append(target, self.store)
        actions = pa.table(deltalake.DeltaTable(target.root).get_add_actions(flatten=True))
        self.assertEqual(len(self.all), sum(actions.column("num_records").to_pylist()))
        least = min(actions.column("min.physical_offset").to_pylist())
        most = max(actions.column("max.physical_offset").to_pylist())
        self.assertEqual((self.all[0], self.all[-1]), (least, most))

    def test_answer_is_lost(self) -> None:
        """A commit whose answer never came counts if the table has it, and is an error if not."""
        for format, sink, change in (
            (Format.DELTA, DeltaSink, "_append"),
            (Format.ICEBERG, IcebergSink, "_change"),
        ):
            real = getattr(sink, change)

            lost = answer_lost(real)
            target = self.target(format)
            publish(self.store, self.all[500])
            with self.subTest(format):
                append(target, self.store, endingOffsets={"store": self.all[20]})
                self.patch(sink, change, lost)
                append(target, self.store, endingOffsets={"store": self.all[40]})
                self.patch(sink, change, away)
                error = self.assertRaises(OSError, append, target, self.store)
                self.assertEqual("no answer", str(error))
                seen = sink.sources

                def cut_off(*given: Any, sink: Any = sink, lost: Any = lost) -> None:
                    self.patch(sink, "sources", away)
                    lost(*given)

                self.patch(sink, change, cut_off)
                refused = self.assertRaises(
                    TableRefused, append, target, self.store, endingOffsets={"store": self.all[60]}
                )
                self.patch(sink, "sources", seen)
                for words in ("not known: connection reset", "no answer"):
                    self.assertIn(words, str(refused))
                advised = re.search(r"rmqha spark check (.+) says", str(refused))
                assert advised is not None
                # It is a command as it stands, but for the store's folder.
                words_of_it = advised[1].replace("STORE", str(self.store), 1).split()
                context = check.make_context("check", words_of_it)
                self.assertEqual(str(target.root), str(context.params["table"]))
                self.patch(sink, change, real)
                self.assertEqual(self.all[:60], offsets(target))
                append(target, self.store)
                self.assertEqual(self.all[:500], offsets(target))


class RefusedTests(LakeTestCase):
    """Rows that do not continue a table are not added to it."""

    def test_gap(self) -> None:
        """Neither behind a gap that the log does not have, nor before what is held."""
        for target in self.every():
            append(
                target,
                self.store,
                startingOffsets={"store": self.all[100]},
                endingOffsets={"store": self.all[200]},
            )
            self.assertRaises(
                NotNext, append, target, self.store, startingOffsets={"store": self.all[201]}
            )
            error = self.assertRaises(NotNext, append, target, self.store)
            self.assertEqual(
                (self.all[100], self.all[200], 0), (error.first, error.end, error.start)
            )
            self.assertEqual(self.all[100:200], offsets(target))
            behind = {"startingOffsets": {"store": self.all[900]}, "failOnDataLoss": False}
            self.assertRaises(NotNext, append, target, self.store, **behind)

    def test_gap_of_the_log(self) -> None:
        """Behind a gap that the log has itself rows are added, if that is wanted."""
        for target in self.every():
            store = golden.store("5.3.3")
            names = sorted(int(file.name) for file in (store / "commitlog").iterdir())
            append(target, store, endingOffsets={"store": names[1]})
            for name in names[:3]:
                (store / "commitlog" / f"{name:020d}").unlink()
            self.assertRaises(NotNext, append, target, store)
            append(target, store, failOnDataLoss=False)
            kept = [o for o in self.all if not names[1] <= o < names[3]]
            self.assertEqual(kept, offsets(target), target)

    def test_other_log(self) -> None:
        """A table is not continued by another log."""
        other = golden.store("4.9.7")
        for target in self.every():
            append(target, self.store, endingOffsets={"store": self.all[200]})
            self.assertRaises(NotThisLog, append, target, other)

    def test_places(self) -> None:
        """Tables lie on file systems, and are what they are said to be."""
        self.assertRaises(TableRefused, local, "hdfs://host/table")
        self.assertEqual(Path("/data/lake"), local("file:///data/lake"))
        target = self.target("delta")
        append(target, self.store)
        self.assertRaises(TableRefused, append, Target.at(target.root), self.store)
        append_to = self.target()
        append(append_to, self.store)
        wrong = Target.at(append_to.root, format=Format.DELTA)
        self.assertRaises(TableRefused, append, wrong, self.store)
        self.assertRaises(TableRefused, found_at, self.store)

    def test_odd_names(self) -> None:
        """A folder is called what it is called: it is written to, or refused before anything is."""
        publish(self.store, self.all[20])
        others = {Format.PARQUET: "", Format.DELTA: "[]^|\\", Format.ICEBERG: "#?"}
        for format, odd in others.items():
            base = Path(tempfile.mkdtemp(prefix="lake-"))
            self.addCleanup(shutil.rmtree, base)
            names = [f"x{each}y" for each in (*odd, "%20", "\t", "\n")]
            if format is Format.PARQUET:
                names = []
            for name in (*names, "x\udcffy"):
                with self.assertRaises(TableRefused, msg=name):
                    append(Target.at(base / name / "t", format=format), self.store)
                self.assertEqual([], os.listdir(base), name)
            good = "".join(sorted({*string.printable, "ä", "中"} - {"/", *string.whitespace, *odd}))
            good = f"~ {good}"
            target = Target.at(base / good / "t", format=format)
            append(target, self.store)
            publish(self.store, self.all[30])
            append(target, self.store)
            self.assertEqual(([good], self.all[:30]), (os.listdir(base), offsets(target)))
            publish(self.store, self.all[20])

    def test_in_use(self) -> None:
        """Two jobs do not write to one folder, nor the same rows to one table."""
        options = ReadOptions.parse({"path": self.store})
        for format in Format:
            target = self.target(format)
            one = Appending(target, options)
            self.addCleanup(one.close)
            publish(self.store, self.all[100])
            work = one.work()
            if format is Format.PARQUET:
                self.assertRaises(TableRefused, append, target, self.store)
                continue
            append(target, self.store, visibility="consumer")
            from tests.support.lake import written

            self.assertRaises(TableRefused, one.commit, written(work, options))


class RewindTests(LakeTestCase):
    """Rows that a log has lost are taken off a table, and it goes on."""

    def test_rewind_unanswered(self) -> None:
        """P9: rows that were taken off count as that where the answer never came."""
        for format, sink, change in (
            (Format.DELTA, DeltaSink, "_delete"),
            (Format.ICEBERG, IcebergSink, "_change"),
        ):
            real = getattr(sink, change)

            lost = answer_lost(real)
            target = self.target(format)
            publish(self.store, self.all[500])
            append(target, self.store, endingOffsets={"store": self.all[40]})
            with self.subTest(format):
                self.patch(sink, change, away)
                self.assertRaises(OSError, rewind, target.shape.place, self.all[20])
                self.patch(sink, change, lost)
                self.assertEqual(20, rewind(target.shape.place, self.all[20]).rows)
                self.patch(sink, change, real)
                self.assertEqual(self.all[:20], offsets(target))

    def test_rewind(self) -> None:
        """Exactly the rows from the offset on go, and come again."""
        publish(self.store, self.all[600])
        for target in (*self.every(), self.target(by=By.TOPIC)):
            append(target, self.store)
            taken = rewind(target.shape.place, self.all[450])
            self.assertEqual(150, taken.rows)
            self.assertEqual({"store": self.all[450]}, taken.to)
            self.assertEqual(self.all[:450], offsets(target), target)
            append(target, self.store)
            self.assertEqual(self.all[:600], offsets(target), target)
            self.assertEqual(0, rewind(target.shape.place, self.all[-1] + 10_000).rows)

    def test_one_of_two_stores(self) -> None:
        """Rows of other stores stay."""
        both = {"a": str(self.store), "b": str(golden.store("4.9.7"))}
        for target in self.every():
            options = ReadOptions.parse({"stores": json.dumps(both), "visibility": "log"})
            table = Appending(target, options)
            from tests.support.lake import written

            table.commit(written(table.work(), options))
            table.close()
            before = rows(target).filter(pa.compute.field("store") == "b").num_rows
            error = self.assertRaises(TableRefused, rewind, target.shape.place, 0)
            self.assertIn("a, b", str(error))
            self.assertRaises(TableRefused, rewind, target.shape.place, 0, store="c")
            rewind(target.shape.place, self.all[450], store="a")
            names = rows(target).column("store").to_pylist()
            self.assertEqual((450, before), (names.count("a"), names.count("b")), target)

    def test_no_rows(self) -> None:
        """That a table has nothing yet is said, and not that a store is to be named."""
        for format in Format:
            target = self.target(format)
            Appending(target, ReadOptions.parse({"path": str(self.store)})).table.close()
            error = self.assertRaises(TableRefused, rewind, target.root, 0)
            self.assertIn("it has no rows yet", str(error), format)

    def test_not_ours(self) -> None:
        """A folder that is no table of ours is left alone."""
        place = Path(tempfile.mkdtemp(prefix="lake-"))
        self.addCleanup(shutil.rmtree, place)
        self.assertRaises(TableRefused, rewind, place, 0)
        self.assertEqual([], os.listdir(place))
        self.assertFalse((self.store / OURS).exists())
