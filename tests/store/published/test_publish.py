"""Tests for L{rmqha.store.published.publish} and C{split_index}, and their formats."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import PointInvalid
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.truncate import intend
from rmqha.store.published import publish, split_index
from rmqha.store.store import Store
from rmqha.wire.log import published, split_spans
from rmqha.wire.log.published import Cut, CutReason, Point, Span, parse_point, parse_spans
from tests.support.logs import FILE_SIZE, STORED, Held, LogTestCase, message
from tests.support.machines import run_machine

SIZES = {"file_size": FILE_SIZE, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}
INTERVAL = 0.1
NOW = 1_800_000_000_000


class PublishTestCase(LogTestCase):
    """Tests with a store whose clock is ours, opened some milliseconds after L{NOW}."""

    opened_at = 0

    def made(self, root: Path | None = None, **more: Any) -> Store:
        self.clock = Clock()
        return self.opened(
            root if root is not None else self.folder() / "store",
            settings=SIZES,
            clock=self.clock,
            broker_name="broker-a",
            cluster="cluster-1",
            now_ms=lambda: NOW + self.opened_at + int(self.clock.seconds() * 1000),
            **more,
        )

    def filled_store(self, *sizes: int, **more: Any) -> Store:
        store = self.made(**more)
        for size in sizes:
            store.put(message(size))
        return store

    def pass_time(self, intervals: int = 1) -> None:
        for _ in range(intervals):
            self.clock.advance(INTERVAL)

    def flush(self, store: Store) -> None:
        """Make all of a log durable."""
        self.successResultOf(store.flusher.flush())

    def point(self, store: Store) -> Point:
        return parse_point((store.settings.root / "rmqha" / "published.json").read_bytes())

    def spans(self, store: Store) -> list[Span]:
        return split_index.load(store.settings.root)


class PointTests(PublishTestCase):
    """How far the log may be read."""

    def test_only_what_the_disk_has(self) -> None:
        """The point follows the disk, not memory, within an interval."""
        store = self.filled_store(500, 500)
        self.pass_time()
        self.assertEqual((self.point(store).confirm, self.point(store).durable), (0, 0))
        self.flush(store)
        self.pass_time()
        self.assertEqual((self.point(store).confirm, self.point(store).durable), (1000, 1000))
        self.assertEqual(self.point(store).cluster, "cluster-1")
        self.assertEqual(self.point(store).broker_name, "broker-a")
        self.assertFalse(self.point(store).closed)

    def test_nothing_happens_while_nothing_changes(self) -> None:
        """Once all is published no timer runs and nothing is written."""
        store = self.filled_store(500)
        self.flush(store)
        self.pass_time(3)
        before = self.point(store)
        self.assertIsNone(store.publisher._timer)
        self.pass_time(20)
        self.assertEqual(self.point(store), before)

    def test_ends_of_records(self) -> None:
        """Disks and replicas may stop inside a record; the point never does."""
        store = self.filled_store(500)
        self.pass_time()
        store.put(message(500))
        store.log.now_flushed(700)
        self.pass_time()
        self.assertEqual(self.point(store).confirm, 500)
        self.flush(store)
        self.pass_time()
        self.assertEqual(self.point(store).confirm, 1000)

    def test_replicas(self) -> None:
        """Where writes wait for replicas the point waits; one that leaves takes nothing back."""
        acked = [-1]
        store = self.filled_store(500, 500, acknowledged=lambda: acked[0])
        self.pass_time()
        self.flush(store)
        self.pass_time()
        self.assertEqual((self.point(store).confirm, self.point(store).durable), (0, 1000))
        acked[0] = 1000
        self.pass_time()
        self.assertEqual(self.point(store).confirm, 1000)
        acked[0] = -1
        store.put(message(500))
        self.flush(store)
        self.pass_time(3)
        self.assertEqual((self.point(store).confirm, self.point(store).durable), (1000, 1500))
        store = self.reopened(store, settings=SIZES, acknowledged=lambda: -1)
        self.assertEqual((self.point(store).confirm, self.point(store).durable), (1000, 1500))
        self.assertEqual(self.point(store).broker_name, "broker-a")

    def test_clean_stop(self) -> None:
        """A clean stop publishes the end and says so; the next start takes that back."""
        store = self.filled_store(500, 500)
        self.close_store(store)
        point = self.point(store)
        self.assertEqual((point.closed, point.confirm, point.cuts), (True, 1000, ()))
        again = self.made(store.settings.root)
        self.pass_time()
        self.assertEqual(self.point(again), evolve(point, closed=False, tail=None, time=NOW + 100))

    def test_never_on_the_reactor(self) -> None:
        """Files are written in a thread, one at a time; a stop waits for it."""
        thread = Held()
        store = self.filled_store(500)
        self.flush(store)
        store.publisher.environment = evolve(store.environment, in_thread=thread)
        self.pass_time(5)
        self.assertEqual(len(thread.calls), 1)
        stopped = self.service_of(store).stopService()
        self.assertNoResult(stopped)
        thread.work()
        self.successResultOf(stopped)

    def test_no_room(self) -> None:
        """A file that cannot be written is tried again later, and the status tells why."""
        store = self.filled_store(500)
        self.flush(store)

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with self.subTest("full"):
            patch = self.patch(os, "replace", refuse)
            self.pass_time()
            self.assertIn("No space", store.publisher.status()["trouble"])
            patch.restore()
        self.clock.advance(publish.RETRY)
        self.assertEqual(self.point(store).confirm, 500)
        self.assertEqual(store.publisher.status()["trouble"], "")

    def test_status(self) -> None:
        """The status tells how far the point is behind, in bytes and seconds."""
        store = self.filled_store(500)
        self.pass_time(3)
        status = store.publisher.status()
        self.assertEqual((status["confirm"], status["behindBytes"]), (0, 500))
        self.assertAlmostEqual(status["behindSeconds"], 2 * INTERVAL)
        self.flush(store)
        self.pass_time()
        status = store.publisher.status()
        self.assertEqual((status["behindBytes"], status["behindSeconds"]), (0, 0.0))

    def test_a_log_far_ahead(self) -> None:
        """However long replicas stay away, only so many places are remembered."""
        self.patch(publish, "MOST_REMEMBERED", 8)
        acked = [-1]
        store = self.made(acknowledged=lambda: acked[0])
        for _ in range(40):
            store.put(message(200))
            self.flush(store)
            self.pass_time()
        self.assertLessEqual(len(store.publisher._confirmed_at), 8)
        acked[0] = store.log.end
        self.pass_time()
        self.assertEqual(self.point(store).confirm, store.log.end)


class CutTests(PublishTestCase):
    def closed(self, count: int) -> Path:
        """A store that was stopped cleanly with records of 500 bytes."""
        store = self.filled_store(*[500] * count)
        self.flush(store)
        self.pass_time(20)
        self.close_store(store)
        return store.settings.root

    def cutting(self, at: int, end: int) -> Any:
        """What a slave does before it opens a store whose tail is not its master's."""

        def before(settings: StoreSettings) -> None:
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            intend(settings.root, folder, at, end)
            folder.close()

        return before

    def test_truncation(self) -> None:
        """A cut is told with its time before the log is cut."""
        root = self.closed(6)
        seen = []

        def step(name: str) -> None:
            if name == "intended":
                return
            point = publish.load(root)
            assert point is not None
            seen.append((name, point.confirm, point.durable, [cut.at for cut in point.cuts]))

        store = self.made(root, master=False, before=self.cutting(1500, 3000), step=step)
        self.assertEqual(seen[0], ("cut", 1500, 1500, [1500]))
        self.pass_time()
        point = self.point(store)
        self.assertEqual((point.confirm, point.cuts), (1500, (Cut(1500, NOW, CutReason.CUT),)))
        store.put(message(500))
        self.flush(store)
        self.pass_time()
        self.assertEqual(self.point(store).cuts, point.cuts)
        self.assertEqual(self.point(store).confirm, 2000)

    def test_what_nobody_saw(self) -> None:
        """A cut above the point is nobody's business."""
        root = self.closed(4)
        publish.lower(root, 2000, lambda: NOW)
        point = publish.load(root)
        assert point is not None
        self.assertEqual((point.cuts, point.closed), ((), True))

    def test_twice(self) -> None:
        """A cut that is repeated after a crash is told once."""
        root = self.closed(4)
        for _ in range(2):
            publish.lower(root, 1000, lambda: NOW)
        point = publish.load(root)
        assert point is not None
        self.assertEqual([cut.at for cut in point.cuts], [1000])

    def test_anew(self) -> None:
        """A new copy is another generation, and says that it is no mere cut."""
        root = self.closed(4)
        before = publish.load(root)
        publish.begin_anew(root, NOW)
        after = publish.load(root)
        assert before is not None and after is not None
        self.assertEqual(after.cuts, (Cut(0, NOW, CutReason.COPY),))
        self.assertEqual(after.confirm, 0)
        self.assertNotEqual(after.generation, before.generation)
        self.assertEqual(split_index.load(root), [])

    def test_shortened_by_others(self) -> None:
        """A log that is shorter than was published was cut by somebody."""
        root = self.closed(6)
        (file,) = (root / "commitlog").iterdir()
        with open(file, "r+b") as log:
            log.seek(1000)
            log.write(bytes(2000))
        store = self.made(root, master=False, repair=True)
        self.pass_time()
        self.assertEqual([cut.at for cut in self.point(store).cuts], [1000])
        self.assertEqual(self.point(store).confirm, 1000)

    def test_another_log(self) -> None:
        """A log with other bytes below what a clean stop published is another one."""
        root = self.closed(6)
        other = self.closed(6)
        shutil.rmtree(root / "commitlog")
        with open(next((other / "commitlog").iterdir()), "r+b") as log:
            log.seek(2500 + 40)  # the last record's born time
            log.write(b"\1")
        shutil.copytree(other / "commitlog", root / "commitlog")
        before = publish.load(root)
        store = self.made(root)
        self.pass_time()
        point = self.point(store)
        assert before is not None
        self.assertEqual(point.cuts, (Cut(0, NOW, CutReason.COPY),))
        self.assertEqual(point.confirm, 3000)
        self.assertNotEqual(point.generation, before.generation)

    def test_another_first_record(self) -> None:
        """So is one with another first record, after a kill too: nothing of its point is said."""
        store = self.filled_store(*[500] * 6)
        self.flush(store)
        self.pass_time(20)
        killed = self.crash(store)
        before = self.point(store)
        self.assertEqual((0, True), (before.first, bool(before.sum)))
        with open(next((killed / "commitlog").iterdir()), "r+b") as log:
            log.seek(40)  # the first record's born time
            log.write(b"\1")
        again = self.made(killed)
        self.pass_time()
        point = self.point(again)
        self.assertEqual(point.cuts, (Cut(0, NOW, CutReason.COPY),))
        self.assertNotEqual(point.generation, before.generation)
        self.assertNotIn(point.sum, ("", before.sum))

    def test_deleted_files(self) -> None:
        """The first record that is published is the one that is there."""
        store = self.filled_store(*[500] * 11)
        self.flush(store)
        self.pass_time()
        before = self.point(store)
        store.log.drop_first().remove()
        store.put(message(500))
        self.flush(store)
        self.pass_time()
        point = self.point(store)
        self.assertEqual(FILE_SIZE, point.first)
        self.assertNotIn(point.sum, ("", before.sum))

    def test_unreadable(self) -> None:
        """A point that cannot be read is none; the node writes a new one."""
        root = self.closed(2)
        publish.path_of(root).write_bytes(b"")
        self.assertIsNone(publish.load(root))
        store = self.made(root)
        self.pass_time()
        self.assertEqual(self.point(store).confirm, 1000)


class PublishedMachine(RuleBasedStateMachine):
    """A log that grows, is cut and loses its tail in any order, and somebody who reads its files up
    to
    what is published, also while it is cut.
    """

    case: PublishTestCase

    @initialize()
    def begin(self) -> None:
        self.case.opened_at = 0
        self.root = self.case.folder() / "store"
        self.numbers = iter(range(1, 10_000))
        self.ends = [0]
        self.known: tuple[Point, bytes] | None = None
        self.store = self.case.made(self.root)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.case.close_store(self.store)
            self.read()

    # --- what happens ---------------------------------------------------------

    @rule(sizes=st.lists(st.sampled_from([200, 500]), min_size=1, max_size=4))
    def send(self, sizes: list[int]) -> None:
        """Messages, none of them as one before."""
        for size in sizes:
            receipt = self.store.put(message(size, born_timestamp=next(self.numbers)))
            self.ends.append(receipt.end)

    @rule(intervals=st.integers(1, 3), flushed=st.booleans())
    def wait(self, intervals: int, flushed: bool) -> None:
        if flushed:
            self.case.flush(self.store)
        self.case.pass_time(intervals)

    @rule(share=st.floats(0, 1), clean=st.booleans())
    def cut(self, share: float, clean: bool) -> None:
        """What is not its master's is cut off, and who reads looks at each step of that."""
        self.end(clean)
        kept = int(share * (len(self.ends) - 1)) + 1
        at, end = self.ends[kept - 1], self.ends[-1]
        del self.ends[kept:]

        def before(settings: StoreSettings) -> None:
            if at == end:
                return
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            intend(settings.root, folder, at, end)
            folder.close()

        self.store = self.case.made(self.root, before=before, step=lambda name: self.read())

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """The node ends, or its machine does: then what was not synced is gone."""
        self.end(clean)
        self.store = self.case.made(self.root)
        assert self.store.log.end == self.ends[-1]

    @rule()
    def read(self) -> None:
        """What was read before is there, but for what was said to be cut."""
        point = publish.load(self.root)
        if point is None:
            return
        data = b"".join(path.read_bytes() for path in sorted((self.root / "commitlog").iterdir()))
        data = data[: point.confirm]
        assert len(data) == point.confirm
        if self.known is not None and self.known[0].generation == point.generation:
            before, held = self.known
            cuts = [cut.at for cut in point.cuts if cut not in before.cuts]
            same = min([len(held), *cuts])
            assert data[:same] == held[:same], (before, point)
        self.known = point, data

    def end(self, clean: bool) -> None:
        """Stop it, or leave what a cut of power leaves."""
        self.case.opened_at += 1_000_000
        if clean:
            self.case.close_store(self.store)
            return
        flushed = self.store.log.flushed
        self.ends = [end for end in self.ends if end <= flushed]
        root = self.case.crash(self.store)
        self.case.close_store(self.store)
        for path in (root / "commitlog").iterdir():
            if (lost := max(0, flushed - int(path.name))) < FILE_SIZE:
                with open(path, "r+b") as file:
                    file.seek(lost)
                    file.write(bytes(FILE_SIZE - lost))
        shutil.rmtree(self.root)
        root.rename(self.root)


class AnyOrderTests(PublishTestCase):
    def test_what_was_read_is_there(self) -> None:
        """Who reads up to what is published finds the same bytes again, or was told of a cut."""
        run_machine(type("Machine", (PublishedMachine,), {"case": self}), count=40, steps=30)


class SplitTests(PublishTestCase):
    def setUp(self) -> None:
        self.patch(split_spans, "SPAN", 1200)

    def spanned(self, count: int) -> Store:
        """A store of so many messages, with their spans."""
        store = self.filled_store(*[500] * count)
        self.flush(store)
        self.pass_time(9)
        return store

    def test_spans(self) -> None:
        """Spans end at records, at file ends too, and know what they hold."""
        store = self.spanned(11)
        spans = self.spans(store)
        self.assertEqual(
            [(span.start, span.end, span.ordinal, span.count) for span in spans],
            [
                (0, 1500, 0, 3),
                (1500, 3000, 3, 3),
                (3000, FILE_SIZE, 6, 2),
                (FILE_SIZE, FILE_SIZE + 1500, 8, 3),
            ],
        )
        for span in spans:
            self.assertLessEqual(NOW, span.earliest)
            self.assertLessEqual(span.earliest, span.latest)
        self.assertEqual(store.publisher.status()["splitsTo"], FILE_SIZE + 1500)

    def test_only_what_the_disk_has(self) -> None:
        """No span reaches above the durable point."""
        store = self.filled_store(*[500] * 11)
        self.pass_time(9)
        self.assertEqual(self.spans(store), [])

    def test_goes_on(self) -> None:
        """A start goes on behind the last span, and a cut forgets those above it."""
        store = self.spanned(7)
        before = self.spans(store)
        self.close_store(store)
        again = self.made(store.settings.root)
        for _ in range(7):
            again.put(message(500))
        self.flush(again)
        self.pass_time(9)
        spans = self.spans(again)
        self.assertEqual(spans[: len(before)], before)
        self.assertEqual(sum(span.count for span in spans[:3]), spans[3].ordinal)
        split_index.truncate_to(store.settings.root, 2000)
        self.assertEqual(self.spans(store), before[:1])

    def test_of_another_log(self) -> None:
        """An index whose end is no place in the log is made again."""
        store = self.spanned(7)
        good = self.spans(store)
        self.close_store(store)
        split_index.save(store.settings.root, [evolve(good[0], end=1499)])
        again = self.made(store.settings.root)
        self.pass_time(9)
        self.assertEqual(self.spans(again), good)

    def test_no_room(self) -> None:
        """A span that could not be written whole is written again, at its place."""
        store = self.filled_store(*[500] * 11)
        self.flush(store)
        real = os.pwrite
        patch = self.patch(os, "pwrite", lambda fd, raw, place: real(fd, raw[:20], place))
        self.pass_time(3)
        self.assertIn("No space", store.publisher.status()["trouble"])
        self.assertEqual(self.spans(store), [])
        patch.restore()
        self.clock.advance(publish.RETRY)
        self.pass_time(9)
        self.assertEqual([span.end for span in self.spans(store)], [1500, 3000, 4096, 5596])

    def test_deleted_files(self) -> None:
        """A start forgets the spans of files that are gone, once they are the greater part."""
        store = self.filled_store(*[500] * 30)
        self.flush(store)
        self.pass_time(20)
        before = self.spans(store)
        for _ in range(2):
            store.log.drop_first().remove()
        self.close_store(store)
        again = self.made(store.settings.root)
        self.pass_time(9)
        kept = [span for span in before if span.end > again.log.min_offset]
        self.assertEqual(self.spans(again)[: len(kept)], kept)
        self.assertEqual(self.spans(again)[0].start, again.log.min_offset)

    def test_rests(self) -> None:
        """A long walk lets others run in between."""
        rests = []
        self.patch(split_index, "STEP", 700)
        self.patch(split_index, "sleep", rests.append)
        store = self.filled_store(*[500, 500, 1500, 500])
        self.flush(store)
        self.pass_time(9)
        self.assertEqual(rests, [split_index.REST] * 2)
        self.assertEqual([span.end for span in self.spans(store)], [2500])

    def test_long_records(self) -> None:
        """A record longer than what is walked at once is one more try away."""
        self.patch(publish, "PIECE", 64)
        store = self.filled_store(*[500] * 3)
        store.publisher._piece = 64
        self.flush(store)
        self.pass_time(30)
        self.assertEqual([span.end for span in self.spans(store)], [1500])

    def test_a_great_log(self) -> None:
        """In a log that is long already the index begins at its last file."""
        store = self.filled_store(*[500] * 11)
        self.close_store(store)
        split_index.path_of(store.settings.root).unlink(missing_ok=True)
        self.patch(split_index, "MOST_BACKLOG", 1000)
        again = self.made(store.settings.root)
        self.pass_time(9)
        spans = self.spans(again)
        self.assertEqual((spans[0].start, spans[0].ordinal), (FILE_SIZE, 0))


class FormatTests(SynchronousTestCase):
    def test_point(self) -> None:
        """A point is read as it was written."""
        point = Point(
            confirm=5,
            durable=7,
            min_offset=1,
            broker_name="бр",
            generation="i",
            cluster="c",
            first=1,
            sum="abc",
            closed=True,
            tail=9,
            cuts=(Cut(3, STORED), Cut(0, STORED, CutReason.COPY)),
            time=STORED,
        )
        self.assertEqual(parse_point(published.render_point(point)), point)
        older = json.loads(published.render_point(point))
        for name in ("cluster", "first", "sum"):
            del older[name]
        known = evolve(point, cluster="", first=-1, sum="")
        self.assertEqual(parse_point(json.dumps(older).encode()), known)

    def test_no_point(self) -> None:
        """What is none is refused, whatever it is."""
        good = published.render_point(
            Point(confirm=5, durable=7, min_offset=1, broker_name="", generation="")
        )
        for bad in (
            b"",
            b"[]",
            b"{}",
            b"\0" * 100,
            good[:-5],
            good.replace(b'"confirm": 5', b'"confirm": -5'),
            good.replace(b'"confirm": 5', b'"confirm": "5"'),
            good.replace(b'"version": 1', b'"version": 2'),
            good.replace(b'"cuts": []', b'"cuts": [{"at": 1, "time": 2, "why": "x"}]'),
        ):
            self.assertRaises(PointInvalid, parse_point, bad)
        names = ("broker_name", "generation", "cluster", "confirm", "min_offset", "time", "closed")
        for key in names:
            row = json.loads(good) | {key: [7]}
            self.assertIn(
                f"{key} is [7]",
                str(self.assertRaises(PointInvalid, parse_point, json.dumps(row).encode())),
            )

    @given(st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(0, 1 << 20)), max_size=6))
    def test_spans(self, lengths: list[tuple[int, int]]) -> None:
        """Spans are read back, and up to the first that is damaged, cut or out of place."""
        spans: list[Span] = []
        for length, count in lengths:
            last = spans[-1] if spans else Span(0, 0, 0, 0, 0, 0)
            ordinal = last.ordinal + last.count
            spans.append(Span(last.end, last.end + length, ordinal, count, 1, 2))
        raw = published.render_spans(spans)
        self.assertEqual(parse_spans(raw), spans)
        if spans:
            self.assertEqual(parse_spans(raw[:-1]), spans[:-1])
            damaged = bytearray(raw)
            damaged[-10] ^= 1
            self.assertEqual(parse_spans(damaged), spans[:-1])
            self.assertEqual(parse_spans(raw + published.render_span(spans[0])), spans)
