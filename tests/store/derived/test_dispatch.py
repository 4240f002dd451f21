"""Tests for L{rmqha.store.derived.dispatch} and L{rmqha.store.derived.rebuild}."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any
from unittest import skipUnless
from unittest.mock import patch

from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from rmqha.errors import DiskFull, RecordCorrupt, Refused
from rmqha.logfiles.reader import LogReader
from rmqha.store.derived import dispatch, index, index_file, unit_files
from rmqha.store.derived.consume_queues import ConsumeQueues, Moves
from rmqha.store.derived.dispatch import Dispatcher, DispatchMark
from rmqha.store.derived.index_file import IndexFile
from rmqha.store.derived.rebuild import rebuild
from rmqha.store.derived.trim import Trimmer
from rmqha.store.files.descriptors import Descriptors
from rmqha.wire.columnar.queue_units import SIZES, UNIT
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.store_layout import BLANK_SIZE
from tests.support.derived import (
    DerivedTestCase,
    dispatcher,
    drain,
    index_files,
    queue_files,
    settings,
)
from tests.support.effort import tries
from tests.support.logs import now
from tests.support.memorylog import MemoryLog

TIME = 1_700_000_000_000


def fill(log: MemoryLog, count: int, random: Random, *, largest: int = 300) -> None:
    """Records of all kinds: several queues, transactions, keys of several scripts, delays."""
    for number in range(count):
        topic = random.choice(("TopicA", "TopicB", "%RETRY%g", "Тема"))
        properties = {}
        if random.random() < 0.8:
            properties["UNIQ_KEY"] = f"{random.randrange(1 << 60):032X}"
        if random.random() < 0.5:
            properties["KEYS"] = random.choice((f"k{number}", f"a{number} b", "ключ 🔑", " "))
        if random.random() < 0.5:
            properties["TAGS"] = random.choice(("TagA", "метка", ""))
        if random.random() < 0.1:
            topic, properties["DELAY"] = "SCHEDULE_TOPIC_XXXX", random.choice("1359")
        log.put(
            topic,
            random.randrange(3),
            body=random.randbytes(random.randrange(largest)),
            properties=properties,
            sys_flag=random.choice((0, 0, 0, 0, 1, 4, 8, 12)),
            store_timestamp=TIME + 137 * number,
        )


#: Ways to dispatch: whether the lane is used, and seconds of a run.
WAYS = [(False, 0.0), (False, 1.0)]
if COMPILED:
    WAYS += [(True, 0.0), (True, 1.0)]
LANES = (False, True) if COMPILED else (False,)


@contextmanager
def lane(used: bool) -> Iterator[None]:
    """Dispatch with the compiled lane, or without."""
    with (
        patch.object(dispatch, "COMPILED", used),
        patch.object(unit_files, "COMPILED", used and unit_files.COMPILED),
        patch.object(index, "COMPILED", used),
    ):
        yield


class Killed(Exception):
    """The process ends here."""


class DispatchTestCase(DerivedTestCase):
    def setUp(self) -> None:
        self.root = self.folder()
        self.random = Random(self.id())
        self.log = MemoryLog()

    def maker(
        self, root: Path | None = None, clock: Clock | None = None, **more: Any
    ) -> Dispatcher:
        made = dispatcher(self.log, root or self.root, clock, **more)
        self.addCleanup(made.queues.close)
        self.addCleanup(made.index.close if made.index else lambda: None)
        return made

    def dispatched(self, *, clean: bool = True, mark: DispatchMark | None = None) -> Dispatcher:
        made = self.maker()
        made.recover(clean=clean, mark=mark)
        drain(made)
        return made


class RunTests(DispatchTestCase):
    def test_the_log_double(self) -> None:
        """The log in memory is what the interface says."""
        self.assertIsInstance(self.log, LogReader)

    @given(
        st.integers(0, 1 << 32), st.lists(st.integers(1, 60), max_size=8), st.sampled_from(LANES)
    )
    @run_settings(max_examples=tries(30), deadline=None)
    def test_steps_and_blocks(self, seed: int, steps: list[int], compiled: bool) -> None:
        """In runs or in blocks, however the log grows: the files are the same."""
        random = Random(seed)
        log = self.log = MemoryLog()
        root = self.folder()
        made = self.maker(root)
        made.recover(clean=True)
        with lane(compiled):
            for step in [*steps, 40]:
                fill(log, step, random)
                if random.random() < 0.7:
                    drain(made)
            drain(made)
        self.assertEqual(made.position, log.end)
        with lane(COMPILED and not compiled):
            self.assert_like_rebuild(log, root)
        self.assertEqual(self.differences(log, root), [])
        self.assertEqual((made.rebuilds, made.fault_count), (0, 0))

    @given(st.integers(0, 1 << 32), st.lists(st.integers(1, 120), min_size=1, max_size=6))
    @run_settings(max_examples=tries(15), deadline=None)
    def test_every_way_writes_the_same(self, seed: int, steps: list[int]) -> None:
        """In runs and in blocks, with any loops: byte for byte the same files."""
        roots = [self.folder() for _ in WAYS]
        for root, (compiled, budget) in zip(roots, WAYS, strict=True):
            random = Random(seed)
            log = self.log = MemoryLog()
            made = self.maker(root)
            made.recover(clean=True)
            with lane(compiled):
                for step in steps:
                    fill(log, step, random, largest=1500)
                    while made.run(budget):
                        pass
            self.assertEqual((made.position, made.dispatched), (log.end, sum(steps)))
            self.assert_counted(made.queues)
            made.queues.close()
            assert made.index is not None
            made.index.close()
        for root in roots[1:]:
            self.assert_same_files(roots[0], root)

    def assert_counted(self, queues: ConsumeQueues) -> None:
        """What came is what the queues have."""
        every: list[int] = []
        for queue in queues:
            sizes = [size for _, size, _ in UNIT.iter_unpack(queue.units(0, queue.max_offset))]
            sizes = [size for size in sizes if size != BLANK_SIZE]
            self.assertEqual(queue.take_came(), (len(sizes), sum(sizes)))
            every += sizes
        tally = queues.tally
        self.assertEqual((tally.messages, tally.size), (len(every), sum(every)))
        up_to = [sum(size <= most for size in every) for most in SIZES]
        self.assertEqual([*accumulate(tally.steps)], [*up_to, len(every)])

    @given(
        st.integers(0, 1 << 32),
        st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), min_size=1, max_size=8),
        st.sampled_from(WAYS),
    )
    @run_settings(max_examples=tries(40), deadline=None)
    def test_limit(
        self, seed: int, steps: list[tuple[int, float]], way: tuple[bool, float]
    ) -> None:
        """Nothing behind the limit is dispatched, wherever in a record that is; all before it
        is.
        """
        random, (compiled, budget) = Random(seed), way
        log, root = MemoryLog(), self.folder()
        self.log = log
        made = self.maker(root)
        made.recover(clean=True)
        made.limit = 0
        ends = [0]
        with lane(compiled):
            for step, share in steps:
                for _ in range(step):
                    fill(log, 1, random)
                    ends.append(log.end)
                made.limit = max(made.limit, int(share * log.end))
                while made.run(budget):
                    pass
                self.assertEqual(made.position, max(end for end in ends if end <= made.limit))
            made.limit = None
            while made.run(budget):
                pass
        self.assertEqual((made.position, made.fault_count), (log.end, 0))
        self.assert_like_rebuild(log, root)

    def test_one_write_a_queue(self) -> None:
        """A run writes adjacent units of a queue together, the index through its map, and its
        header once.
        """
        written: list[str] = []
        headers: list[str] = []
        write, header = Descriptors.write, IndexFile.write_header

        def counted(self: Descriptors, path: str, data: bytes, offset: int) -> None:
            written.append(path)
            write(self, path, data, offset)

        def header_written(self: IndexFile) -> None:
            headers.append(self.path)
            header(self)

        for number in range(30):
            self.log.put("TopicA", number % 3, properties={"UNIQ_KEY": f"{number:032X}"})
        for compiled in LANES:
            made = self.maker(self.folder())
            made.recover(clean=True)
            with (
                patch.object(Descriptors, "write", counted),
                patch.object(IndexFile, "write_header", header_written),
                lane(compiled),
            ):
                made._most = 64
                made.run(1.0)
            self.assertEqual(made.dispatched, 30)
            self.assertEqual(len(written), 3, written)
            self.assertEqual(len(headers), 2, "of the empty file, and of the run")
            written.clear()
            headers.clear()

    def test_killed_between_two_writes(self) -> None:
        """Whatever of a run was written when the process was killed, the next start makes it whole
        without a fault.
        """
        fill(self.log, 40, self.random)
        self.dispatched()
        fill(self.log, 60, self.random)
        for compiled in LANES:
            steps = 0
            while self.killed_after(steps, compiled):
                steps += 1
            self.assertGreater(steps, 10)

    def killed_after(self, steps: int, compiled: bool) -> bool:
        """Dispatch a run in a copy of the store, die after so many writes and start again.

        @return: Whether it died.
        """
        root = self.folder() / "store"
        shutil.copytree(self.root, root)
        made = self.maker(root)
        mark = self.maker(self.root)
        mark.recover(clean=True)
        kept = mark.mark()
        made.recover(clean=True, mark=kept)
        left = [steps]

        def dying(work: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **more: Any) -> Any:
                if not left[0]:
                    raise Killed
                left[0] -= 1
                return work(*args, **more)

            return call

        died = False
        with (
            lane(compiled),
            patch.object(Descriptors, "write", dying(Descriptors.write)),
            patch.object(Descriptors, "create", dying(Descriptors.create)),
            patch.object(ConsumeQueues, "write_usual", dying(ConsumeQueues.write_usual)),
            patch.object(dispatch, "_TOGETHER", 2),
            patch.object(IndexFile, "put", dying(IndexFile.put)),
            patch.object(IndexFile, "put_block", dying(IndexFile.put_block)),
            patch.object(IndexFile, "write_header", dying(IndexFile.write_header)),
        ):
            made._most = 64
            try:
                made.run(1.0)
            except Killed:
                died = True
        again = self.maker(root)
        again.recover(clean=False, mark=kept)
        drain(again)
        self.assertEqual((again.rebuilds, again.position), (0, self.log.end))
        self.assert_like_rebuild(self.log, root)
        return died

    def test_both_ways_by_distance(self) -> None:
        """Far behind it takes blocks, then single records."""
        fill(self.log, 3000, self.random)
        made = self.dispatched()
        self.assertEqual(made.dispatched, 3000)
        fill(self.log, 5, self.random)
        drain(made)
        self.assertEqual(made.last_timestamp, TIME + 137 * 4)
        self.assert_like_rebuild(self.log, self.root)

    def test_records_larger_than_a_block(self) -> None:
        """A record that is longer than the window is dispatched all the same."""
        self.log = MemoryLog(file_size=1 << 22)
        for _ in range(5):
            self.log.put("TopicA", body=bytes(700_000))
        self.dispatched()
        self.assert_like_rebuild(self.log, self.root)

    def test_waits_for_the_confirmed_end(self) -> None:
        """Nothing above the confirmed end is dispatched."""
        fill(self.log, 20, self.random)
        self.log.confirmed = self.log.starts[10]
        made = self.dispatched()
        self.assertEqual((made.position, made.dispatched), (self.log.starts[10], 10))
        self.log.confirmed = self.log.end
        self.assertEqual(made.behind, self.log.end - self.log.starts[10])
        drain(made)
        self.assertEqual(made.behind, 0)

    def test_budget(self) -> None:
        """A run ends when its time is over, and says that there is more."""

        class Ticking(Clock):
            def seconds(self) -> float:
                self.advance(0.001)
                return super().seconds()

        fill(self.log, 50, self.random)
        made = self.maker(clock=Ticking())
        made.recover(clean=True)
        self.assertTrue(made.run(0.005))
        self.assertLess(made.dispatched, 50)
        while made.run(0.005):
            pass
        self.assert_like_rebuild(self.log, self.root)

    def test_blocks_follow_the_budget(self) -> None:
        """The window shrinks when a block takes longer than the budget, and grows again."""
        clock, second, read = Clock(), 1e-8, dispatch.fields
        fill(self.log, 6000, self.random)
        made = self.maker(clock=clock)
        made.recover(clean=True)

        def slow(buf: memoryview, block: Block, *more: Any) -> Any:
            clock.advance(second * (block.end - block.base))
            return read(buf, block, *more)

        with patch.object(dispatch, "fields", slow), lane(False):
            while made.window < 50_000:
                made.run(0.001)
            self.assertLess(made.window, 150_000)
            second = 1e-7
            made.run(0.001)
        self.assertLess(made.window, 20_000)

    @skipUnless(COMPILED, "the lane is not compiled here")
    def test_runs_follow_the_budget(self) -> None:
        """In the lane as many records are read at a time as can be read in the budget."""
        clock = Clock()
        for _ in range(800):
            self.log.put("TopicA")
        made = self.maker(clock=clock)
        made.recover(clean=True)
        cost, reader = 1e-6, dispatch.DispatchReader

        def slow(*args: Any, **more: Any) -> Any:
            run = reader(*args, **more)
            clock.advance(cost * run.records)
            return run

        with patch.object(dispatch, "DispatchReader", slow):
            for _ in range(6):
                made.run(1e-4)
            self.assertGreater(made._most, 32)
            self.assertLess(made._most, 100)
            cost = 1e-5
            for _ in range(4):
                made.run(1e-4)
        self.assertLess(made._most, 10)

    def in_slices(self, clock: Clock) -> Dispatcher:
        """A dispatcher that writes to two of three queues in 100 us, and has one run to write."""
        for number in range(30):
            self.log.put("TopicA", number % 3, properties={"UNIQ_KEY": f"{number:032X}"})
        made = self.maker(clock=clock)
        made.recover(clean=True)
        made._most = 64
        some = Dispatcher._some

        def slow(*args: Any) -> int:
            clock.advance(6e-5)
            return some(*args)

        self.patch(Dispatcher, "_some", slow)
        self.patch(dispatch, "_TOGETHER", 1)
        return made

    @skipUnless(COMPILED, "the lane is not compiled here")
    def test_a_run_in_slices(self) -> None:
        """What takes longer than the budget is written in several slices: each queue once, and what
        is done is told when all is.
        """
        queues: list[int] = []
        made = self.in_slices(Clock())
        made.on_units.append(lambda moves: queues.extend(queue_id for _, queue_id in moves))
        self.assertTrue(made.run(1e-4))
        self.assertEqual((queues, made.position, made.dispatched), ([0, 1], 0, 0))
        for number in range(6):
            self.log.put("TopicA", number % 3)
        self.assertTrue(made.run(1e-4))
        self.assertEqual((queues[:3], made.dispatched), ([0, 1, 2], 30))
        while made.run(1e-4):
            pass
        self.assertEqual(queues, [0, 1, 2] * 2)
        self.assert_like_rebuild(self.log, self.root)

    @skipUnless(COMPILED, "the lane is not compiled here")
    def test_cut_within_a_run(self) -> None:
        """What a cut takes from the log is not written by the slice behind it."""
        made = self.in_slices(Clock())
        made.run(1e-4)
        half = made.log.confirmed // 30 * 15
        made.truncate_to(half)
        self.log.cut(half)
        drain(made)
        self.assertEqual((made.position, made.fault_count), (half, 0))
        self.assert_like_rebuild(self.log, self.root)

    @skipUnless(COMPILED, "the lane is not compiled here")
    def test_no_room_within_a_run(self) -> None:
        """A queue that had no room gets its units with the next run."""
        made, write = self.in_slices(Clock()), Descriptors.write

        def full(self: Descriptors, path: str, data: bytes, offset: int) -> None:
            if "/1/" in path:
                raise DiskFull(path, len(data))
            write(self, path, data, offset)

        with patch.object(Descriptors, "write", full), self.assertRaises(DiskFull):
            made.run(1e-4)
        self.assertEqual(made.position, 0)
        drain(made)
        self.assertEqual((made.behind, made.fault_count), (0, 0))
        self.assert_like_rebuild(self.log, self.root)

    def test_listeners(self) -> None:
        """Whoever waits for a queue hears its new end."""
        heard: list[Moves] = []
        made = self.maker()
        made.recover(clean=True)
        made.on_units.append(heard.append)
        for queue_id in (0, 0, 1):
            self.log.put("TopicA", queue_id)
            drain(made)
        self.log.put("TopicA", sys_flag=4)
        drain(made)
        first, second = ("TopicA", 0), ("TopicA", 1)
        self.assertEqual(heard, [{first: (0, 1)}, {first: (1, 2)}, {second: (0, 1)}])

    def test_pauses(self) -> None:
        """Whoever wants all that came together hears when a run ends."""
        heard: list[int] = []
        made = self.maker()
        made.recover(clean=True)
        made.on_pause.append(lambda: heard.append(made.position))
        for _ in range(3):
            self.log.put("TopicA", 0)
        made.run(1.0)
        self.assertEqual(heard, [self.log.end])

    def test_transactions(self) -> None:
        """Prepared and rolled back messages have no unit, rolled back ones no key."""
        for flag in (0, 4, 8, 12):
            self.log.put("TopicA", properties={"KEYS": "k"}, sys_flag=flag)
        made = self.dispatched()
        queue = made.queues.get("TopicA", 0)
        assert queue is not None and made.index is not None
        kept = [self.log.starts[0], self.log.starts[2]]
        self.assertEqual([queue.unit(0)[0], queue.unit(1)[0]], kept)
        self.assertEqual(queue.max_offset, 2)
        found = made.index.query("TopicA", "k", 9, 0, TIME)
        self.assertEqual(found, self.log.starts[2::-1])

    def test_without_an_index(self) -> None:
        """The index can be off."""
        fill(self.log, 2000, self.random)
        made = self.maker(index_enable=False)
        made.recover(clean=True)
        drain(made)
        self.assertEqual(index_files(self.root), [])
        self.assertEqual(self.differences(self.log, self.root, index_enable=False), [])
        made.truncate_to(self.log.starts[5])

    def test_bad_record(self) -> None:
        """What is no record below the confirmed end is told with its place, never skipped."""
        for compiled in LANES:
            log = self.log = MemoryLog()
            self.root = self.folder()
            fill(log, 50, self.random)
            log.data[log.starts[30] + 4] ^= 1
            made = self.maker()
            made.recover(clean=True)
            with lane(compiled):
                for _ in range(2):
                    error = self.assertRaises(RecordCorrupt, drain, made)
                    self.assertEqual(error.offset, log.starts[30])
            self.assertEqual((made.position, made.dispatched), (log.starts[30], 30))

    def test_full_disk(self) -> None:
        """Dispatch goes on by itself when there is room again, and nothing is there twice."""
        fill(self.log, 2500, self.random)
        made = self.maker()
        made.recover(clean=True)
        write = Descriptors.write

        def full(self: Descriptors, path: str, data: bytes, offset: int) -> None:
            if room.random() < 0.2:
                raise DiskFull(path, len(data))
            write(self, path, data, offset)

        def no_blocks(fd: int, start: int, size: int) -> None:
            if room.random() < 0.2:
                raise OSError(errno.ENOSPC, "No space left on device")
            allocate(fd, start, size)

        allocate = os.posix_fallocate
        self.patch(index_file, "ROOM", 100)
        room = Random(1)
        failures = 0
        with (
            patch.object(Descriptors, "write", full),
            patch.object(os, "posix_fallocate", no_blocks),
        ):
            while made.position < self.log.end and failures < 10_000:
                try:
                    drain(made)
                except DiskFull:
                    failures += 1
        self.assertGreater(failures, 5)
        self.assertEqual(made.rebuilds, 0)
        self.assert_like_rebuild(self.log, self.root)


class FaultTests(DispatchTestCase):
    """Derived files that are wrong are noticed and made right."""

    def setUp(self) -> None:
        super().setUp()
        fill(self.log, 400, self.random)
        self.mark = self.dispatched().mark()

    def folder_of(self, topic: str, queue_id: int) -> Path:
        return self.root / "consumequeue" / topic / str(queue_id)

    def test_nothing_wrong(self) -> None:
        """With a mark, only what came after it is dispatched."""
        self.assertEqual(self.dispatched(mark=self.mark).dispatched, 0)
        fill(self.log, 3, self.random)
        made = self.dispatched(mark=self.mark)
        self.assertEqual((made.dispatched, made.rebuilds, made.fault_count), (3, 0, 0))
        self.assert_like_rebuild(self.log, self.root)

    def test_clean_stop_without_a_mark(self) -> None:
        """Queues of a store that stopped cleanly say how far dispatch came."""
        made = self.dispatched()
        self.assertLess(made.dispatched, 10)
        self.assert_like_rebuild(self.log, self.root)

    def test_crash_without_a_mark(self) -> None:
        """After a crash everything is compared, and nothing is wrong."""
        made = self.dispatched(clean=False)
        self.assertEqual((made.dispatched, made.fault_count), (400, 0))
        self.assert_like_rebuild(self.log, self.root)

    def test_a_mark_of_another_log(self) -> None:
        """A mark above the log's end means nothing."""
        mark = DispatchMark(offset=self.log.end + 1)
        self.assertEqual(self.dispatched(clean=False, mark=mark).dispatched, 400)

    def test_missing_queue(self) -> None:
        """A queue whose folder is gone is made again."""
        shutil.rmtree(self.folder_of("TopicA", 1))
        made = self.dispatched(mark=self.mark)
        self.assertEqual(made.fault_count, 1)
        self.assert_like_rebuild(self.log, self.root)

    def test_missing_queue_without_a_mark(self) -> None:
        """Without a mark it is noticed when its next message comes."""
        shutil.rmtree(self.folder_of("TopicA", 1))
        self.log.put("TopicA", 1)
        made = self.dispatched()
        self.assertEqual(made.rebuilds, 1)
        self.assert_like_rebuild(self.log, self.root)

    def test_everything_missing(self) -> None:
        """Without any derived file all is made anew."""
        shutil.rmtree(self.root / "consumequeue")
        shutil.rmtree(self.root / "index")
        self.dispatched(mark=self.mark)
        self.assert_like_rebuild(self.log, self.root)

    def test_index_missing(self) -> None:
        """Without the index alone, the index is made anew."""
        shutil.rmtree(self.root / "index")
        self.dispatched(mark=self.mark)
        self.assert_like_rebuild(self.log, self.root)

    def test_torn_queue(self) -> None:
        """A queue with its last units gone is filled up."""
        path = sorted(self.folder_of("TopicB", 0).iterdir())[-1]
        raw = bytearray(path.read_bytes())
        raw[110:] = bytes(len(raw) - 110)
        path.write_bytes(raw)
        self.dispatched(mark=self.mark)
        self.assert_like_rebuild(self.log, self.root)

    def test_wrong_unit(self) -> None:
        """A unit that is not the log's is replaced as soon as dispatch meets it."""
        path = sorted(self.folder_of("TopicB", 0).iterdir())[0]
        raw = bytearray(path.read_bytes())
        raw[47] ^= 1
        path.write_bytes(raw)
        self.assertIn("0 at 2: unit is", self.differences(self.log, self.root)[0])
        made = self.dispatched(clean=False)
        self.assertGreater(made.fault_count, 0)
        self.assert_like_rebuild(self.log, self.root)

    def test_wrong_unit_met_in_the_middle(self) -> None:
        """Dispatch that goes on at a mark and meets another unit starts over, once."""
        half = DispatchMark(offset=self.log.starts[200])
        queue = self.dispatched().queues.get("TopicB", 0)
        assert queue is not None
        path = sorted(self.folder_of("TopicB", 0).iterdir())[0]
        raw = bytearray(path.read_bytes())
        raw[20 * (queue.max_offset - 2) + 13] ^= 1
        path.write_bytes(raw)
        made = self.dispatched(mark=half)
        self.assertEqual(made.rebuilds, 1)
        self.assert_like_rebuild(self.log, self.root)

    def test_hostile_queue_offsets(self) -> None:
        """A record with an impossible queue, topic or queue offset is left out and counted."""
        for offset in (-5, 1 << 40, (1 << 63) - 1):
            self.log.put("TopicA", 1, offset)
        self.log.put("TopicA", -1)
        self.log.put("../../x", 1)
        self.log.put("TopicA", 2)
        made = self.dispatched(mark=self.mark)
        self.assertEqual(made.fault_count, 5)
        self.assertEqual(made.position, self.log.end)
        self.assertFalse((self.root / "x").exists())

    def test_late_start(self) -> None:
        """A log that begins in the middle gives queues that begin with blanks."""
        self.log = MemoryLog(min_offset=1 << 16)
        self.log.next_offsets = {("TopicA", 0): 107, ("TopicA", 1): 704, ("TopicA", 2): 0}
        for number in range(30):
            self.log.put("TopicA", number % 3)
        self.root = self.folder()
        made = self.dispatched()
        self.assertEqual(made.fault_count, 0)
        queue = made.queues.get("TopicA", 1)
        assert queue is not None
        self.assertEqual((queue.min_offset, queue.first_offset, queue.max_offset), (704, 600, 714))
        self.assertEqual(queue.unit(703), (0, BLANK_SIZE, 0))
        again = self.dispatched(clean=False)
        self.assertEqual((again.fault_count, again.rebuilds), (0, 0))
        self.assert_like_rebuild(self.log, self.root)
        self.assertEqual(self.differences(self.log, self.root), [])

    def test_topic_made_again(self) -> None:
        """A topic that was deleted and made again has the queue of its new life."""
        self.log.next_offsets["TopicA", 1] = 0
        for _ in range(3):
            self.log.put("TopicA", 1)
        made = self.dispatched(mark=self.mark)
        queue = made.queues.get("TopicA", 1)
        assert queue is not None
        self.assertEqual((queue.max_offset, queue.next_offset), (3, 3))
        self.assert_like_rebuild(self.log, self.root)
        self.assertEqual(self.differences(self.log, self.root), [])

    def test_log_files_deleted(self) -> None:
        """When the log lost its oldest files, so do the queues, and dispatch goes on."""
        fill(self.log, 2000, self.random)
        self.dispatched(mark=self.mark)
        start = next(start for start in self.log.starts if start >= 1 << 17)
        del self.log.data[: (1 << 17) - self.log.min_offset]
        self.log.min_offset = 1 << 17
        made = self.maker()
        made.recover(clean=False)
        Trimmer(made.queues, made.index, now).follow(self.log.min_offset)
        drain(made)
        self.assertEqual(made.fault_count, 0)
        self.assertEqual(self.differences(self.log, self.root), [])
        assert made.index is not None
        units = [queue.unit(queue.min_offset)[0] for queue in made.queues]
        self.assertEqual(min(units) >= start, True)


class PowerCutTests(DispatchTestCase):
    def test_any_block_may_be_lost(self) -> None:
        """Whichever blocks written since the last flush the disk has lost: with the mark of
        that flush, the files become those of a rebuild.
        """
        for _ in range(tries(25)):
            self.root, older = self.folder(), self.folder()
            self.log = MemoryLog()
            fill(self.log, self.random.randrange(1, 700), self.random)
            mark = self.dispatched().mark()
            shutil.copytree(self.root, older, dirs_exist_ok=True)
            fill(self.log, self.random.randrange(1, 900), self.random)
            self.dispatched(mark=mark)
            for path in [path for path in self.root.rglob("*") if path.is_file()]:
                self.lose(path, older / path.relative_to(self.root))
            made = self.dispatched(clean=False, mark=mark)
            self.assertLess(made.rebuilds, 2)
            self.assert_like_rebuild(self.log, self.root)

    def lose(self, path: Path, older: Path) -> None:
        """Put some blocks of a file back to what they were."""
        now = bytearray(path.read_bytes())
        then = older.read_bytes() if older.exists() else bytes(len(now))
        for start in range(0, len(now), 512):
            if self.random.random() < 0.3:
                now[start : start + 512] = then[start : start + 512]
        path.write_bytes(now)


class TruncateTests(DispatchTestCase):
    def test_every_record(self) -> None:
        """Derived files cut at any record are those of the shorter log."""
        fill(self.log, 40, self.random)
        whole = bytes(self.log.data)
        for start in self.log.starts[::-1]:
            self.root = self.folder()
            self.log.data[:] = whole
            self.log.confirmed = self.log.end
            made = self.dispatched()
            made.truncate_to(start)
            self.log.data[:] = whole[:start]
            self.log.confirmed = self.log.end
            self.assert_like_rebuild(self.log, self.root)
            self.assertEqual(made.position, start)
            self.log.data[:] = whole
            self.log.confirmed = self.log.end
            drain(made)
            self.assertEqual(made.rebuilds, 0)
            self.assert_like_rebuild(self.log, self.root)


class CompareTests(DispatchTestCase):
    def setUp(self) -> None:
        super().setUp()
        fill(self.log, 400, self.random)
        self.live = self.dispatched()

    def test_more_than_the_log(self) -> None:
        """Units and entries of records the log does not have are found."""
        self.log.cut(self.log.starts[350])
        found = self.differences(self.log, self.root)
        self.assertTrue(any("belong to no record" in fault for fault in found))
        self.assertTrue(any("entries behind the log's end" in fault for fault in found))

    def test_less_than_the_log(self) -> None:
        """Units and entries that are missing are found."""
        self.log.put("TopicA", 1, properties={"KEYS": "a b"})
        self.log.put("TopicNew", 1)
        found = self.differences(self.log, self.root)
        self.assertEqual(len(found), 3)
        self.assertTrue(any("2 keys of this record are not indexed" in fault for fault in found))

    def test_broken_chain(self) -> None:
        """A slot that leads elsewhere, and an entry nothing leads to, are found."""
        path = min((self.root / "index").iterdir())
        raw = bytearray(path.read_bytes())
        raw[40:44] = b"\0\0\0\0" if any(raw[40:44]) else b"\0\0\0\1"
        path.write_bytes(raw)
        found = self.differences(self.log, self.root)
        self.assertEqual(len(found), 1)
        self.assertIn("1 slots point to wrong entries", found[0])

    def test_entry_of_another_key(self) -> None:
        """A wrong hash is found twice: as a key that is missing and as one too many."""
        path = min((self.root / "index").iterdir())
        raw = bytearray(path.read_bytes())
        raw[40 + 4 * 200 + 20 * 7] ^= 1
        path.write_bytes(raw)
        found = self.differences(self.log, self.root)
        self.assertTrue(any("not indexed" in fault for fault in found))
        self.assertTrue(any("belongs to no record" in fault for fault in found))


class RebuildTests(DispatchTestCase):
    def test_refuses_a_full_folder(self) -> None:
        """Nothing is rebuilt over files that are there."""
        fill(self.log, 3, self.random)
        root = self.rebuilt(self.log)
        error = self.assertRaises(Refused, rebuild, self.log, root, settings(root))
        self.assertIn("is not empty", str(error))

    def test_progress_and_result(self) -> None:
        """The way is told in bytes, and the result in numbers."""
        fill(self.log, 9000, self.random, largest=1000)
        root = self.folder()
        told: list[tuple[int, int]] = []
        result = rebuild(self.log, root, settings(root), lambda *done: told.append(done))
        self.assertEqual(told[-1], (self.log.end, self.log.end))
        self.assertEqual([done for done, _ in told], sorted(done for done, _ in told))
        self.assertEqual((result.records, result.fault_count), (9000, 0))
        self.assertEqual(len(queue_files(root)) >= result.queues, True)
