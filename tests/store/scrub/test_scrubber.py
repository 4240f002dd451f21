"""Tests for L{rmqha.store.scrub}: damage at rest, found while a node runs."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel

from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.record_checksums import KeptChecksums, RecordChecksums
from rmqha.store.scrub import scrubber as scrubbing
from rmqha.store.scrub.cold_log import ColdLog
from rmqha.store.scrub.scrubber import IDLE, Scrubber
from rmqha.store.scrub.slices import SLICE, check_slice
from rmqha.wire.log.encode import encode
from rmqha.wire.log.record_crc import crc_property
from tests.support.damage import copy_chunk, flip, log_file, overwrite
from tests.support.derived import settings
from tests.support.log_lines import log_lines
from tests.support.logs import (
    FILE_SIZE,
    PROPERTIES,
    STORED,
    Held,
    LogTestCase,
    encoded,
    message,
    now,
)

DAY = 86400


class ScrubTestCase(LogTestCase):
    """A log of three files and a bit, each of 4 KiB, and what scrubs it."""

    def setUp(self) -> None:
        self.root = self.folder() / "store"
        (self.root / "commitlog").mkdir(parents=True)
        self.log_ = self.filled(*[700] * 18, folder=self.root / "commitlog")
        self.log_.flushed = self.log_.end
        self.clock = Clock()
        self.in_thread: Any = now
        self.errors = log_lines(self, least=LogLevel.error)

    def scrubber(self, **more: Any) -> Scrubber:
        """One that has started; its slices come every eighth of a second."""
        made = Scrubber(
            log=more.pop("log", self.log_),
            settings=settings(self.root, **({"file_size": FILE_SIZE} | more)),
            environment=StoreEnvironment(
                clock=self.clock,
                in_thread=self.work,
                fsync=FsyncInThread(self.work),
                now_ms=lambda: STORED + int(self.clock.seconds() * 1000),
            ),
            checksums=self.kept(),
        )
        made.start()
        self.addCleanup(made.stop)
        return made

    def work(self, function: Any, *args: Any, **how: Any) -> Any:
        """A thread, as it is at that moment."""
        return self.in_thread(function, *args, **how)

    def run_for(self, seconds: float) -> None:
        """Let time pass, in the steps of slices."""
        for _ in range(int(seconds / 0.125)):
            self.clock.advance(0.125)

    def whole(self, **more: Any) -> Scrubber:
        """One that has been through the log."""
        made = self.scrubber(**more)
        self.run_for(4)
        self.assertIsNone(made.status()["position"])
        return made

    def kept(self) -> RecordChecksums:
        """Checksums as of a log that was dispatched to its end, none of which is there yet."""
        made = RecordChecksums.open(self.root, self.log_)
        made.end = self.log_.end
        return made

    def file(self, number: int) -> Path:
        return log_file(self.root, number)

    def health(self, scrubber: Scrubber) -> str:
        """Why the node is not well."""
        return ", ".join(map(str, scrubber.health()))

    def places(self, scrubber: Scrubber) -> list[tuple[int, int, str]]:
        """What is bad: from, to and why."""
        found = scrubber.status()["faults"]
        for fault in found:
            self.assertEqual(
                fault["file"], str(self.file(0).with_name(f"{fault['offset'] // 4096 * 4096:020d}"))
            )
        return [(fault["offset"], fault["end"], fault["reason"]) for fault in found]


class FoundTests(ScrubTestCase):
    def test_sound(self) -> None:
        """A sound log has no fault; the status says how long the pass took and how old it is."""
        scrubber = self.scrubber()
        self.assertIsNone(scrubber.status()["lastPassAge"])
        self.run_for(4)
        status = scrubber.status()
        self.assertEqual((status["faultCount"], status["faults"]), (0, []))
        self.assertEqual(self.health(scrubber), "")
        self.assertGreaterEqual(status["readBytes"], self.log_.end)
        self.clock.advance(100)
        self.assertTrue(100 <= scrubber.status()["lastPassAge"] <= 104)

    def test_body(self) -> None:
        """A bit of a body: the record is named, and the search ends at the next one."""
        flip(self.file(1), 700 + 300)
        scrubber = self.whole()
        at = FILE_SIZE + 700
        self.assertEqual(self.places(scrubber), [(at, at + 700, "body crc")])
        path = self.file(1)
        self.assertEqual(self.health(scrubber), f"cold-damage: {path} at byte {at}: body crc")
        self.assertEqual(
            scrubber.doubt(at, at + 1), f"damage at rest: {path} at byte {at}: body crc"
        )
        for start, end in ((at - 700, at), (at + 700, at + 1400)):
            self.assertEqual(scrubber.doubt(start, end), "")

    def test_random(self) -> None:
        """Damage of any kind and size is found, in whatever file; what follows is checked again."""
        seed = random.randrange(1 << 32)
        sys.stdout.write(f"seed {seed}\n")
        chance = random.Random(seed)
        for _ in range(40):
            number = chance.randrange(4)
            limit = self.log_.end - 3 * FILE_SIZE if number == 3 else 5 * 700
            size = chance.randint(4, 2000)
            place = chance.randrange(limit)
            kind = chance.choice((bytes(size), chance.randbytes(size)))
            data = self.file(number).read_bytes()
            overwrite(self.file(number), place, kind[: limit - place])
            changed = self.file(number).read_bytes()
            scrubber = self.whole()
            told = self.places(scrubber)
            # Queue, flags, times and hosts no check covers: a CRC of the body is all there is.
            harmed = [i for i in range(FILE_SIZE) if data[i] != changed[i]]
            if any(i % 700 < 12 or 88 <= i % 700 < 670 for i in harmed):
                self.assertEqual(len(told), 1, (number, place, size))
                offset, end, _ = told[0]
                first = next(i for i in harmed if i % 700 < 12 or 88 <= i % 700 < 670)
                self.assertLessEqual(offset, number * FILE_SIZE + first)
                self.assertLess(number * FILE_SIZE + harmed[-1] - 700, end)
            self.successResultOf(scrubber.stop())
            self.file(number).write_bytes(data)
            shutil.rmtree(self.root / "rmqha")

    def test_moved(self) -> None:
        """Records that stand where others were written."""
        copy_chunk(self.file(2), 0, 1400, 1400)
        (found,) = self.places(self.whole())
        self.assertEqual(
            found, (2 * FILE_SIZE + 1400, 2 * FILE_SIZE + 2800, "stored offset is another")
        )

    def test_end_of_log(self) -> None:
        """The last record, behind which there is no valid one."""
        last = self.log_.end - 700
        flip(self.file(3), last - 3 * FILE_SIZE + 3, 0)
        (found,) = self.places(self.whole())
        self.assertEqual(found[:2], (last, self.log_.end))

    def test_announces_too_much(self) -> None:
        """The last record says that it is longer than the log."""
        last = self.log_.end - 700
        flip(self.file(3), last - 3 * FILE_SIZE + 2, 2)
        (found,) = self.places(self.whole())
        self.assertEqual(found, (last, self.log_.end, "incomplete"))

    def test_blank_gone(self) -> None:
        """The blank that ends a file, and a whole file of zeros."""
        overwrite(self.file(0), 3500, bytes(8))
        overwrite(self.file(2), 0, bytes(FILE_SIZE))
        self.assertEqual(
            self.places(self.whole()),
            [
                (3500, FILE_SIZE, "nothing written"),
                (2 * FILE_SIZE, 3 * FILE_SIZE, "nothing written"),
            ],
        )

    def test_missing(self) -> None:
        """A file that somebody has removed, though the log has it."""
        self.file(1).unlink()
        (fault,) = self.whole().status()["faults"]
        self.assertEqual(
            (fault["offset"], fault["end"], fault["reason"]),
            (FILE_SIZE, 2 * FILE_SIZE, "the file is missing"),
        )

    def test_unreadable(self) -> None:
        """A file that the disk cannot read, at a place."""
        real = os.preadv

        def reading(fd: int, rooms: list[memoryview], start: int) -> int:
            if os.readlink(f"/proc/self/fd/{fd}").endswith(self.file(1).name):
                raise OSError(errno.EIO, "Input/output error")
            return real(fd, rooms, start)

        self.patch(os, "preadv", reading)
        (found,) = self.places(self.whole())
        self.assertEqual(found, (FILE_SIZE, 2 * FILE_SIZE, "unreadable: Input/output error"))

    def test_no_descriptor(self) -> None:
        """A process that can open no file has found no damage: it is tried again."""
        real = os.open
        refused: list[str] = []

        def opening(path: Any, *more: Any, **how: Any) -> int:
            if "commitlog" in str(path) and len(refused) < 5:
                refused.append(str(path))
                raise OSError(errno.EMFILE, "Too many open files")
            return real(path, *more, **how)

        self.patch(os, "open", opening)
        scrubber = self.whole()
        self.assertEqual((len(refused), self.places(scrubber)), (5, []))
        self.assertEqual(scrubber.looking.failures, 0)
        self.assertIsNotNone(scrubber.status()["lastPassAge"])

    def test_whole_crc(self) -> None:
        """Where a record has a CRC of all of it, a bit of its properties is found too."""
        log = self.log(self.folder() / "other")
        for number in range(3):
            log.put([encoded(700, properties=PROPERTIES + bytes(20))], [number], STORED)
        data = bytearray(log.folder.files[0].view[:2100])
        for start in (0, 700, 1400):
            whole = data[start : start + 700]
            whole[-20:] = crc_property(whole[:-20])
            data[start : start + 700] = whole
        log.folder.files[0].view[:2100] = data
        cold = ColdLog(folder=log.folder.path, file_size=FILE_SIZE, end=2100)
        self.assertEqual(check_slice(cold, 0, KeptChecksums(None, FILE_SIZE)).faults, ())
        flip(log.folder.files[0].path, 700 + 60)
        (fault,) = check_slice(cold, 0, KeptChecksums(None, FILE_SIZE)).faults
        self.assertEqual((fault.offset, fault.end), (700, 1400))
        self.assertIn("whole record", fault.reason)

    def test_many(self) -> None:
        """A disk that lost everything: as many places as are kept are told, others counted."""
        self.patch(scrubbing, "SHOWN", 2)
        for number in range(4):
            flip(self.file(number), 300)
        scrubber = self.whole()
        status = scrubber.status()
        self.assertEqual((len(status["faults"]), status["faultCount"]), (2, 4))
        self.assertTrue(self.health(scrubber).endswith("body crc, and 3 more places"))
        self.assertEqual(len(self.errors), 2)


class TellingTests(ScrubTestCase):
    def test_once(self) -> None:
        """A fault has one line in the log, whatever happens in between; a new one has its own."""
        flip(self.file(1), 300)
        self.whole()
        self.assertEqual(len(self.errors), 1)
        self.assertIn(f"{self.file(1)} at byte {FILE_SIZE}: body crc", self.errors[0])
        flip(self.file(2), 300)
        self.clock.advance(DAY)
        self.run_for(4)
        self.assertEqual(len(self.errors), 2)
        self.clock.advance(DAY)
        self.run_for(4)
        self.assertEqual(len(self.errors), 2)

    def test_mended(self) -> None:
        """What is valid again at the next pass is no fault any more."""
        flip(self.file(1), 300)
        scrubber = self.whole()
        flip(self.file(1), 300)
        self.clock.advance(DAY)
        self.run_for(4)
        self.assertEqual((self.places(scrubber), self.health(scrubber)), ([], ""))

    def test_properties(self) -> None:
        """A checksum is kept of what a pass finds sound; a later bit is found by the next one."""
        scrubber = self.whole()
        flip(self.file(1), 700 - 3)
        self.clock.advance(DAY)
        self.run_for(4)
        reason = "the checksum of the whole record, kept beside the log"
        self.assertEqual(self.places(scrubber), [(FILE_SIZE, FILE_SIZE + 700, reason)])

    def test_grows(self) -> None:
        """Two places that become one are one."""
        flip(self.file(1), 300)
        flip(self.file(1), 700 + 300)
        scrubber = self.whole()
        at = FILE_SIZE
        self.assertEqual(self.places(scrubber), [(at, at + 1400, "body crc")])
        overwrite(self.file(1), 1400, bytes(700))
        self.clock.advance(DAY)
        self.run_for(4)
        self.assertEqual(self.places(scrubber), [(at, at + 2100, "body crc")])
        flip(self.file(0), 2100 + 300)
        self.clock.advance(DAY)
        self.run_for(4)
        self.assertEqual(
            self.places(scrubber), [(2100, 2800, "body crc"), (at, at + 2100, "body crc")]
        )


class PaceTests(ScrubTestCase):
    def test_rate(self) -> None:
        """A log of many slices takes its time, also where a record is larger than a slice."""
        size = 4 << 20
        log = self.filled(folder=self.folder() / "large", file_size=size)
        for number in range(12):
            size_of = SLICE * 3 // 2 if number == 5 else SLICE // 2
            record = encode(message(size_of), max_message_size=4 << 20)
            log.put([record], [number], STORED)
        log.flushed = log.end
        scrubber = self.scrubber(log=log, file_size=size, scrub_rate=1 << 20)
        self.clock.advance(IDLE)
        self.clock.advance(IDLE)
        seconds = 0
        while scrubber.status()["position"] is not None:
            self.clock.advance(1.0)
            seconds += 1
            self.assertLessEqual(scrubber.read, (seconds + 4) * (1 << 20))
            self.assertLess(seconds, 60)
        self.assertGreaterEqual(scrubber.read, log.end)
        self.assertGreaterEqual(seconds, log.end >> 20)

    def test_off(self) -> None:
        """A rate of 0 switches it off."""
        scrubber = self.scrubber(scrub_rate=0)
        self.run_for(10)
        self.assertEqual((scrubber.read, scrubber.looking.running), (0, False))

    def test_interval(self) -> None:
        """The next pass begins when the interval is over."""
        scrubber = self.whole(scrub_interval=100.0)
        read = scrubber.read
        self.run_for(90)
        self.assertEqual(scrubber.read, read)
        self.run_for(20)
        self.assertGreaterEqual(scrubber.read, 2 * read)

    def test_only_durable(self) -> None:
        """What is unconfirmed, or not on the disk, is not looked at; parts are waited for."""
        log = self.log_
        log.flushed = FILE_SIZE + 900
        flip(self.file(2), 300)
        scrubber = self.scrubber()
        self.run_for(4)
        self.assertEqual(scrubber.status()["position"], FILE_SIZE + 700)
        self.assertEqual(self.places(scrubber), [])
        log.flushed = log.end
        self.run_for(4)
        # The pass ends where the log ended when it began.
        self.assertIsNone(scrubber.status()["position"])
        self.clock.advance(DAY)
        self.run_for(4)
        self.assertEqual(len(self.places(scrubber)), 1)

    def test_empty(self) -> None:
        """An empty log has nothing to read."""
        log = self.log(self.folder() / "none")
        scrubber = self.scrubber(log=log)
        self.run_for(5)
        self.assertEqual((scrubber.read, scrubber.status()["lastPassAge"]), (0, None))

    def test_one_at_a_time(self) -> None:
        """While a thread works no other slice begins, and a stop waits for it."""
        self.in_thread = held = Held()
        scrubber = self.scrubber()
        self.run_for(4)
        self.assertEqual(len(held.calls), 1)
        stopped = scrubber.stop()
        self.assertNoResult(stopped)
        held.work()
        self.assertEqual(held.calls, [])
        self.successResultOf(stopped)


class ChangingTests(ScrubTestCase):
    def drop_first(self, log: CommitLog) -> None:
        log.drop_first().remove()

    def test_deleted(self) -> None:
        """Files that retention deletes, before, at and behind the place, are no faults."""
        self.in_thread = held = Held()
        scrubber = self.scrubber()
        for number in range(3):
            self.run_for(2)
            self.drop_first(self.log_)
            while held.calls:
                held.work()
            self.assertEqual(self.places(scrubber), [], number)
        self.in_thread = now
        self.run_for(4)
        self.assertEqual((self.places(scrubber), self.errors), ([], []))
        self.assertIsNone(scrubber.status()["position"])

    def test_fault_deleted(self) -> None:
        """A fault goes with its file."""
        flip(self.file(0), 300)
        scrubber = self.whole()
        self.assertNotEqual(self.health(scrubber), "")
        self.drop_first(self.log_)
        self.run_for(2)
        self.assertEqual(self.health(scrubber), "")

    def test_cut(self) -> None:
        """A log that is shorter than the place, and copied anew, is begun anew."""
        scrubber = self.scrubber()
        self.run_for(1.5)
        mark = scrubber._mark
        scrubber._mark = evolve(mark, position=self.log_.end, running=mark.running)
        self.log_.end = self.log_.confirmed = self.log_.flushed = 700
        self.run_for(4)
        self.assertEqual(self.places(scrubber), [])
        self.assertIsNone(scrubber.status()["position"])

    def test_grows(self) -> None:
        """A pass ends, however fast the log grows."""
        scrubber = self.scrubber()
        for number in range(20):
            self.log_.put([encoded(700)], [number], STORED)
            self.log_.flushed = self.log_.end
            self.run_for(0.5)
        self.assertIsNotNone(scrubber.status()["lastPassAge"])


class MarkTests(ScrubTestCase):
    """A node that is stopped and started again."""

    def test_resumed(self) -> None:
        """A pass goes on where it was, and begins nothing anew that is done."""
        size = 4 << 20
        log = self.filled(folder=self.folder() / "large", file_size=size)
        for number in range(16):
            log.put([encoded(SLICE // 2)], [number], STORED)
        log.flushed = log.end
        scrubber = self.scrubber(log=log, file_size=size)
        self.run_for(1.5)
        position = scrubber.status()["position"]
        self.assertGreater(position, 2 * SLICE)
        self.successResultOf(scrubber.stop())
        again = self.scrubber(log=log, file_size=size)
        self.clock.advance(IDLE)
        self.assertEqual(again.status()["position"], position)
        self.run_for(4)
        self.assertIsNone(again.status()["position"])
        self.assertLess(again.read, log.end - position + SLICE)
        self.successResultOf(again.stop())
        third = self.scrubber(log=log, file_size=size)
        self.run_for(4)
        self.assertEqual(third.read, 0)
        self.assertIsNotNone(third.status()["lastPassAge"])

    def test_another_log(self) -> None:
        """With other bytes before it, it goes on at the file's start; bad marks begin anew."""
        scrubber = self.scrubber()
        self.run_for(1.5)
        self.successResultOf(scrubber.stop())
        path = self.root / "rmqha" / "scrub.json"
        table = json.loads(path.read_text())
        for change in (
            {"position": 2 * FILE_SIZE + 345},
            {"position": 1 << 40},
            {"position": "x"},
            {"running": {"began": 1}},
            {"faults": 7},
        ):
            path.write_text(json.dumps(table | {"last": None} | change))
            again = self.scrubber()
            self.run_for(4)
            self.assertEqual(self.places(again), [], change)
            self.assertIsNotNone(again.status()["lastPassAge"], change)
            self.successResultOf(again.stop())

    def test_faults(self) -> None:
        """What was bad is looked at again first: it is told once more if it still is."""
        flip(self.file(1), 300)
        flip(self.file(2), 300)
        self.successResultOf(self.whole().stop())
        self.assertEqual(len(self.errors), 2)
        flip(self.file(2), 300)
        again = self.scrubber()
        self.clock.advance(IDLE)
        self.assertEqual(self.places(again), [(FILE_SIZE, FILE_SIZE + 700, "body crc")])
        self.assertEqual(len(self.errors), 3)

    def test_lost(self) -> None:
        """A stop in the middle of a search goes on from a file's start."""
        size = 4 << 20
        log = self.filled(folder=self.folder() / "large", file_size=size)
        for number in range(8):
            log.put([encoded(SLICE // 2 - 10)], [number], STORED)
        log.flushed = log.end
        overwrite(log.folder.files[0].path, SLICE // 2 - 10, bytes(3 * SLICE - 5000))
        scrubber = self.scrubber(log=log, file_size=size)
        self.run_for(1.25)
        self.assertIsNotNone(scrubber._lost)
        self.successResultOf(scrubber.stop())
        again = self.scrubber(log=log, file_size=size)
        self.run_for(6)
        (fault,) = again.status()["faults"]
        self.assertEqual((fault["offset"], fault["end"]), (SLICE // 2 - 10, 7 * (SLICE // 2 - 10)))

    def test_full_disk(self) -> None:
        """A disk without room for the mark is no fault of the log's."""

        def full(function: Any, *args: Any, **how: Any) -> Any:
            def work() -> Any:
                patched = self.patch(os, "replace", self.no_room)
                try:
                    return function(*args, **how)
                finally:
                    patched.restore()

            return maybeDeferred(work)

        self.in_thread = full
        self.successResultOf(self.whole().stop())
        self.assertEqual(self.errors, [])

    def no_room(self, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")
