"""Runs of writes and of units: few one by one, many in arrays."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any
from unittest import skipUnless
from unittest.mock import patch

from attrs import define, field
from hypothesis import example, given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import DiskFull
from rmqha.logfiles.published import DeletedTopic
from rmqha.store.derived import dispatch, unit_files
from rmqha.store.derived.consume_queues import Moves
from rmqha.store.derived.dispatch import Dispatcher
from rmqha.wire.columnar import queue_units
from rmqha.wire.columnar.queue_units import (
    BLANK_UNIT,
    FEW,
    UNIT,
    first_from,
    last_below,
    sound_prefix,
)
from rmqha.wire.store_layout import UNIT_SIZE
from tests.support.derived import DerivedTestCase, dispatcher, drain
from tests.support.effort import tries
from tests.support.memorylog import MemoryLog
from tests.support.small_disk import small_disk

Rows = list[tuple[int, int, int]]


def rows() -> st.SearchStrategy[Rows]:
    """Units near each other, in any order, blank and empty ones among them."""
    unit = st.tuples(
        st.integers(0, 300), st.sampled_from([0, -1, 1, 20, 50, 0x7FFFFFFF]), st.just(0)
    )
    return st.lists(unit | st.just((0, 0x7FFFFFFF, 0)), max_size=FEW)


class UnitRunTests(SynchronousTestCase):
    """Both forms say the same."""

    @given(rows(), st.integers(0, 300), st.integers(0, 3))
    def test_forms(self, units: Rows, number: int, zeros: int) -> None:
        """Whatever the units are, also with nothing behind them."""
        raw = b"".join(UNIT.pack(*unit) for unit in units) + bytes(20 * zeros)
        few = sound_prefix(raw, number), last_below(raw, number), first_from(raw, number)
        self.patch(queue_units, "FEW", -1)
        many = sound_prefix(raw, number), last_below(raw, number), first_from(raw, number)
        self.assertEqual(few, many)

    def test_sound_prefix(self) -> None:
        """Units follow each other in the log; blank ones count for a place."""
        raw = UNIT.pack(100, 50, 0) + BLANK_UNIT + UNIT.pack(150, 10, 7)
        self.assertEqual(sound_prefix(raw, 0), (3, 160))
        self.assertEqual(sound_prefix(raw + bytes(60), 100), (3, 160))
        self.assertEqual(sound_prefix(raw + UNIT.pack(150, 10, 7), 0), (3, 160))
        self.assertEqual(sound_prefix(raw, 101), (0, 101))
        self.assertEqual(sound_prefix(b"", 5), (0, 5))


TOPICS = ("TopicA", "TopicB", "Тема")
QUEUES = 3
STATE = ("max_offset", "highest", "end_physical", "_first", "_mended", "_min", "_min_physical")

STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 40)),
    st.tuples(st.just("odd"), st.integers(1, 5)),
    st.tuples(st.just("cut"), st.integers(0, 100)),
    st.tuples(st.just("delete"), st.integers(0, len(TOPICS) - 1)),
    st.tuples(st.just("restart"), st.integers(0, 3)),
    st.tuples(st.just("full"), st.integers(0, 8)),
    st.tuples(st.just("flush"), st.just(0)),
)


def mapped(folder: Path) -> list[str]:
    """What this process has mapped of the files in a folder, as the system sees it."""
    names = [line.split(" ")[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return sorted(name[len(str(folder)) :] for name in names if name.startswith(f"{folder}/"))


@define(eq=False)
class Side:
    """A store that dispatches, compiled or in the plain way, and what its listeners heard."""

    test: DerivedTestCase
    log: MemoryLog
    compiled: bool
    limit: int
    units: int = 7
    made: Dispatcher = field(init=False)
    told: list[Moves] = field(init=False, factory=list)
    full: int = field(init=False, default=0)
    blocked: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.root = self.test.folder()
        self.begin(clean=True)

    root: Any = field(init=False)

    def begin(self, **how: Any) -> None:
        made = dispatcher(self.log, self.root, queue_file_size=self.units * UNIT_SIZE)
        made.queues.descriptors.limit = self.limit
        made.recover(**how)
        made.on_units.append(self.told.append)
        self.test.addCleanup(self.end, made)
        self.made = made

    @staticmethod
    def end(made: Dispatcher) -> None:
        made.queues.close()
        if made.index is not None:
            made.index.close()

    def restart(self, number: int) -> None:
        """Open it anew: after a crash or not, with a mark or without."""
        mark = self.made.mark() if number & 1 else None
        self.end(self.made)
        self.begin(clean=bool(number & 2), mark=mark)

    def run(self) -> None:
        """Dispatch all there is, with as many tries as the disk needs."""
        with patch.object(unit_files, "COMPILED", self.compiled):
            while True:
                try:
                    while self.made.run(1.0):
                        pass
                except DiskFull:
                    self.full += 1
                    self.made.queues.descriptors.close()
                else:
                    break
        if self.blocked:
            self.blocked = False
            self.made.queues.descriptors.close()

    def no_room(self, number: int) -> None:
        """One file that is open has no room, until it is opened anew."""
        self.blocked = True
        opened = self.made.queues.descriptors._open
        for path in sorted(opened, key=lambda path: path[len(str(self.root)) :])[number::100]:
            os.close(opened[path])
            opened[path] = os.open("/dev/full", os.O_RDWR)
            self.made.queues.descriptors._closed += 1
            for queue in self.made.queues:
                if queue.file == path:
                    # What is mapped has room.
                    queue.go_on_in(queue.file_start, path)

    def seen(self) -> dict[str, Any]:
        """All that others may know of it."""
        queues, name = self.made.queues, str(self.root)
        return {
            "queues": {
                (queue.topic, queue.queue_id): [getattr(queue, name) for name in STATE]
                for queue in queues
            },
            "moved": queues.moved,
            "told": self.told,
            "dirty": {path.replace(name, "") for path in queues.descriptors._dirty},
            "faults": [str(fault).replace(name, "") for fault in self.made.faults],
            "place": (self.made.position, self.made.dispatched, self.made.rebuilds, self.full),
        }


@skipUnless(unit_files.COMPILED, "it is not compiled here")
class WriteRunTests(DerivedTestCase):
    """Many queues in one go: all as if each had been written by itself."""

    @given(
        st.integers(0, 1 << 32),
        st.lists(STEPS, min_size=1, max_size=10),
        st.sampled_from((1, 2, 64)),
        st.sampled_from((2, 5, 100)),
    )
    @example(1, [("put", 40), ("put", 40), ("full", 1), ("put", 30), ("restart", 1)], 64, 100)
    @example(2, [("put", 40), ("odd", 5), ("put", 40), ("restart", 3), ("put", 9)], 64, 100)
    @example(3, [("put", 40), ("delete", 0), ("put", 40), ("cut", 50), ("put", 40)], 2, 5)
    @run_settings(max_examples=tries(60), deadline=None)
    def test_like_one_by_one(
        self, seed: int, steps: list[tuple[str, int]], together: int, limit: int
    ) -> None:
        """Files, index, queues, and what listeners hear are the same as in the plain way."""
        log = MemoryLog()
        sides = [Side(self, log, compiled, limit) for compiled in (False, True)]
        random = Random(seed)
        with patch.object(dispatch, "_TOGETHER", together):
            for step, number in steps:
                self.take(step, number, log, sides, random)
                for side in sides:
                    side.run()
                plain, compiled = (side.seen() for side in sides)
                for what, wanted in plain.items():
                    self.assertEqual(wanted, compiled[what], (step, what))
        for side in sides:
            side.end(side.made)
        self.assert_same_files(*(side.root for side in sides))

    def take(
        self, step: str, number: int, log: MemoryLog, sides: list[Side], random: Random
    ) -> None:
        """Take one step with both."""
        if step == "put":
            self.put(log, number, random)
        elif step == "odd":
            # Queue offsets that go back, come twice, or leave a hole.
            for _ in range(number):
                self.put(log, random.randrange(4), random)
                place = random.choice(TOPICS), random.randrange(QUEUES)
                shift = random.choice((-2, -1, 1, 3, 9))
                log.put(*place, max(0, log.next_offsets.get(place, 0) + shift))
        elif step == "cut":
            at = ([0, *log.starts])[len(log.starts) * number // 100]
            for side in sides:
                side.made.truncate_to(at)
            log.cut(at)
            for side in sides:
                for queue in side.made.queues:
                    log.next_offsets[queue.topic, queue.queue_id] = queue.max_offset
        elif step == "delete":
            name = TOPICS[number]
            for side in sides:
                queues = side.made.queues
                ends = {queue.queue_id: queue.max_offset for queue in queues.of(name)}
                queues.note_deleted({name: DeletedTopic(log.end, ends)})
                queues.forget_deleted(name)
        elif step == "flush":
            for side in sides:
                side.made.queues.flush()
                side.made.changes()
        for side in sides:
            if step == "restart":
                side.restart(number)
            elif step == "full":
                side.no_room(number)
        if step == "full":
            self.put(log, 20, random)

    @staticmethod
    def put(log: MemoryLog, count: int, random: Random) -> None:
        """Records as they come from producers, alone or several in a queue."""
        for _ in range(count):
            place = random.choice(TOPICS), random.randrange(QUEUES)
            for _ in range(random.choice((1, 1, 1, 3, 9))):
                key = {"UNIQ_KEY": f"{random.getrandbits(128):032X}", "TAGS": random.choice("ab")}
                log.put(*place, properties=key, sys_flag=random.choice((0, 0, 0, 4, 8, 12)))

    def test_all_at_once(self) -> None:
        """It does take queues together: those in their usual state are not looked at alone."""
        log = MemoryLog()
        side = Side(self, log, True, 100)
        for _ in range(2):
            for topic in TOPICS:
                for queue_id in range(QUEUES):
                    log.put(topic, queue_id)
            side.run()
            with patch.object(Dispatcher, "_units", None):
                for queue_id in range(QUEUES):
                    log.put("TopicA", queue_id)
                side.run()
        self.assertEqual((side.made.behind, side.made.fault_count), (0, 0))

    def test_twice_in_a_run(self) -> None:
        """Two records with one queue offset, which is the next: the second is looked at alone."""
        log = MemoryLog()
        sides = [Side(self, log, compiled, 100) for compiled in (False, True)]
        for offsets in ((0, 1), (2, 2, 3)):
            for offset in offsets:
                log.put("TopicA", 0, offset)
            for side in sides:
                side.made._most = 64
                side.run()
        plain, compiled = (side.seen() for side in sides)
        self.assertEqual((plain, len(plain["faults"])), (compiled, 1))

    def test_through_windows(self) -> None:
        """Files that are written often are mapped, a piece at a time, until their queues are cut,
        deleted or closed; what is in them is the same.
        """
        log, random = MemoryLog(), Random(35)
        sides = [Side(self, log, compiled, 100, 5000) for compiled in (False, True)]
        written, cuts = sides[True].made.queues, [95, 70, 100]
        for turn in range(150):
            if cuts and turn > 140 - 30 * len(cuts) and mapped(written.folder / TOPICS[0]):
                self.take("cut", cuts.pop(), log, sides, random)
                self.assertEqual([], mapped(written.folder / TOPICS[0]))
            for _ in range(random.choice((1, 2, 40, 256))):
                log.put(TOPICS[random.random() < 0.01], 0)
            for side in sides:
                side.made._most = 256
                side.run()
        plain, compiled = (side.seen() for side in sides)
        self.assertEqual(plain, compiled)
        self.assertEqual([], cuts)
        self.assertEqual([f"/{200_000:020}"], mapped(written.folder / TOPICS[0] / "0"))
        self.take("delete", 0, log, sides, random)
        self.assertEqual([], mapped(written.folder / TOPICS[0]))
        for side in sides:
            side.end(side.made)
        self.assertEqual([], mapped(written.folder))
        self.assert_same_files(*(side.root for side in sides))

    def test_killed_at_any_write(self) -> None:
        """Whichever write of a pass comes too late, with what windows took before it: the next
        start makes all queues whole, without a fault.
        """
        log, size, turns = MemoryLog(), {"queue_file_size": 1000 * UNIT_SIZE}, []
        places = [(topic, queue_id) for topic in TOPICS for queue_id in range(QUEUES)]
        for turn in range(6):
            # Every second one is written so often that it has a window.
            for place in places[:: 1 + (turn > 0)]:
                log.put(*place)
            turns.append(log.end)
        for place in Random(35).sample(places, len(places)):
            log.put(*place)
        wanted = self.rebuilt(log, **size)
        for number in range(len(places)):
            side = Side(self, log, True, 100, 1000)
            for turn in turns:
                kept = side.made.mark()
                side.made.limit = turn
                side.run()
            self.assertEqual(5, len(mapped(side.root / "consumequeue")))
            side.no_room(number)
            side.made.limit, side.made._most = None, 64
            with self.assertRaises(DiskFull):
                side.made.run(1.0)
            dead = self.folder() / "dead"
            shutil.copytree(side.root, dead)
            again = dispatcher(log, dead, **size)
            self.addCleanup(Side.end, again)
            again.recover(clean=False, mark=kept)
            drain(again)
            self.assertEqual((again.position, again.rebuilds, again.faults), (log.end, 0, []))
            self.assert_same_files(dead, wanted)

    def fills(self, kind: str) -> None:
        """Where the disk is full a window is stored to as far as it has blocks, and no further."""
        disk = small_disk(self, 4 << 20, kind)
        log, root = MemoryLog(), disk / "store"
        made = dispatcher(log, root, queue_file_size=5000 * UNIT_SIZE)
        made.recover(clean=True)
        self.addCleanup(Side.end, made)
        for _ in range(9):
            log.put("TopicA", 0)
            drain(made)
        self.assertEqual(1, len(mapped(root / "consumequeue")))
        with open(disk / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(bytes(256))
        for _ in range(400):
            log.put("TopicA", 0)
        with self.assertRaises(DiskFull):
            while made.run(1.0):
                pass
        end = made.queues.end("TopicA", 0)
        self.assertLess(9, end)
        self.assertLess(end, 400)
        (disk / "ballast").unlink()
        drain(made)
        self.assertEqual(409, made.queues.end("TopicA", 0))
        self.assert_like_rebuild(log, root, queue_file_size=5000 * UNIT_SIZE)

    def test_full_memory(self) -> None:
        """Of a file system in memory."""
        self.fills("tmpfs")

    def test_full_disk(self) -> None:
        """Of one whose blocks are smaller than a page."""
        self.fills("ext4")
