"""Tests for L{rmqha.store.log.retention}: which files go, when, and who can keep them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from lab.harness.compare_stores import derived_faults
from rmqha.logfiles.listing import file_name
from rmqha.periodic import jobs_of
from rmqha.store.environment import disk_use, local_hour
from rmqha.store.files.mapped import MappedFile, OutOfDescriptors
from rmqha.store.log import retention
from rmqha.store.log.retention import fullest, last_stored
from rmqha.store.store import Store
from tests.support.derived import DerivedTestCase
from tests.support.derived import settings as derived_settings
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, STORED, Held, LogTestCase, encoded, message
from tests.support.machines import run_machine

HOUR = 3600.0
DAY = 24 * HOUR
BEGIN = STORED / 1000

SIZES = {"file_size": FILE_SIZE, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}


def failing(error: Exception) -> Callable[..., Any]:
    """What raises, whatever it is asked."""

    def fail(*args: object) -> None:
        raise error

    return fail


class RetentionTestCase(LogTestCase, DerivedTestCase):
    """Tests with a store whose files, of seven records each, are an hour apart."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.now = BEGIN
        self.hour = 12
        self.use = 0.5
        self.held: int | None = None

    def made(self, files: int = 6, settings: dict[str, Any] | None = None, **more: Any) -> Store:
        """A store that ends in the middle of its last file."""
        store = self.at(self.folder() / "store", settings, **more)
        for number in range(files):
            for _ in range(7 if number < files - 1 else 3):
                store.put(message(580))
            self.now += HOUR
        self.finish(store)
        self.assertEqual(len(store.log.folder.files), files)
        return store

    def at(self, root: Path, settings: dict[str, Any] | None = None, **more: Any) -> Store:
        return self.opened(
            root,
            clock=self.clock,
            settings=SIZES | (settings or {}),
            disk_use=lambda folder: self.use,
            local_hour=lambda now: self.hour,
            now_ms=lambda: int(self.now * 1000),
            held_from=lambda: self.held,
            **more,
        )

    def finish(self, store: Store) -> None:
        store.dispatcher.run(1.0)
        self.successResultOf(store.flusher.flush())

    def pass_time(self, seconds: float = 12.0) -> None:
        """Let the clock go, in small steps."""
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)

    def starts(self, store: Store) -> list[int]:
        """The numbers of the files left, by the log and by the folder."""
        numbers = [file.start // FILE_SIZE for file in store.log.folder.files]
        names = sorted(path.name for path in store.settings.commitlog.iterdir())
        self.assertEqual(names, [file_name(number * FILE_SIZE) for number in numbers])
        self.assertEqual(store.log.min_offset, numbers[0] * FILE_SIZE)
        return numbers


class AgeTests(RetentionTestCase):
    def test_at_the_hour(self) -> None:
        """Files as old as C{fileReservedTime} go during C{deleteWhen}, and not at other hours."""
        store = self.made()
        self.now = BEGIN + 72 * HOUR + 2 * HOUR
        self.pass_time()
        self.assertEqual(self.starts(store), [0, 1, 2, 3, 4, 5])
        self.hour = 4
        self.pass_time()
        self.assertEqual(self.starts(store), [3, 4, 5])
        self.now += HOUR
        self.pass_time()
        self.assertEqual(self.starts(store), [4, 5])

    def test_on_demand(self) -> None:
        """Who asks for it has old files deleted at another hour too, that once."""
        store = self.made()
        self.now = BEGIN + 72 * HOUR + 2.5 * HOUR
        store.retention.demand()
        self.pass_time(2)
        self.assertEqual(self.starts(store), [3, 4, 5])
        store.retention.demand()
        self.now += HOUR
        self.pass_time()
        self.assertEqual(self.starts(store), [3, 4, 5])

    def test_on_demand_of_a_slow_disk(self) -> None:
        """That once also where a thread takes its time, and where it can read nothing."""
        for readable in (True, False):
            self.now = BEGIN
            store, thread = self.made(), Held()
            store.retention.environment = evolve(store.environment, in_thread=thread)
            self.now = BEGIN + 72 * HOUR + 0.5 * HOUR
            unreadable = self.patch(retention, "last_stored", failing(OSError("no")))
            if readable:
                unreadable.restore()
            store.retention.demand()
            while thread.calls:
                thread.work()
                self.pass_time(1.0)
            unreadable.restore()
            self.assertEqual(len(self.flushLoggedErrors(OSError)), 0 if readable else 1)
            left = self.starts(store)
            self.assertEqual(left[0], 1 if readable else 0)
            self.now += HOUR
            self.pass_time()
            self.assertEqual((self.starts(store), thread.calls), (left, []))
            self.close_store(store)

    def test_never_the_last(self) -> None:
        """The last file stays whatever its age."""
        store = self.made()
        self.now, self.hour = BEGIN + 365 * DAY, 4
        self.pass_time(60)
        self.assertEqual(self.starts(store), [5])
        status = store.retention.status()
        self.assertEqual((status["deletedFiles"], status["deletedBytes"]), (5, 5 * FILE_SIZE))
        # Nor when it is full, and the next one is not begun.
        log = store.log
        log.flushed = log.confirmed = 6 * FILE_SIZE
        store.retention.dispatched = lambda: 6 * FILE_SIZE
        self.pass_time(60)
        log.flushed = log.confirmed = log.end
        self.assertEqual(self.starts(store), [5])

    def test_queues_and_index_follow(self) -> None:
        """What is left of queues and index is what a log that begins there gives."""
        store = self.made()
        self.now, self.hour = BEGIN + 72 * HOUR + 2.5 * HOUR, 4
        self.pass_time()
        queue = store.queues.get("TopicA", 0)
        assert queue is not None
        self.assertEqual((queue.min_offset, queue.max_offset), (21, 38))
        self.assertEqual(len(queue.paths()), 2)
        self.assertEqual(self.differences(store.log, store.settings.root, **SIZES), [])
        store = self.reopened(store, settings=SIZES)
        self.assertEqual((store.log.min_offset, store.dispatcher.faults), (3 * FILE_SIZE, []))
        self.assertEqual(store.put(message(580)).queue_offset, 38)

    def test_batches_and_pauses(self) -> None:
        """A run deletes so many files, with a pause after each."""
        store = self.made(8, {"delete_batch": 3, "delete_files_interval": 1.0})
        self.now, self.hour = BEGIN + 365 * DAY, 4
        self.pass_time(10.5)
        self.assertEqual(self.starts(store)[0], 1)
        self.pass_time(1.0)
        self.assertEqual(self.starts(store)[0], 2)
        self.pass_time(5.0)
        self.assertEqual(self.starts(store)[0], 3)
        self.pass_time(10.0)
        self.assertEqual(self.starts(store)[0], 6)

    def test_longer_pauses(self) -> None:
        """A run that comes while another one pauses deletes nothing beside it."""
        store = self.made(settings={"delete_files_interval": 15.0})
        self.now, self.hour = BEGIN + 365 * DAY, 4
        for seconds, first in ((10.5, 1), (14.0, 1), (1.0, 2)):
            self.pass_time(seconds)
            self.assertEqual(self.starts(store)[0], first)

    def test_not_what_is_not_flushed(self) -> None:
        """Files go only when they are flushed, checked and dispatched."""
        store = self.made()
        self.now, self.hour = BEGIN + 365 * DAY, 4
        log = store.log
        log.flushed = 2 * FILE_SIZE
        store.retention.run()
        self.pass_time(2.0)
        self.assertEqual(self.starts(store), [2, 3, 4, 5])
        log.flushed, log.confirmed = log.end, 3 * FILE_SIZE + 1
        store.retention.run()
        self.pass_time(2.0)
        self.assertEqual(self.starts(store), [3, 4, 5])
        log.confirmed = log.end
        store.retention.dispatched = lambda: 4 * FILE_SIZE
        store.retention.run()
        self.pass_time(2.0)
        self.assertEqual(self.starts(store), [4, 5])

    def test_clock_was_ahead(self) -> None:
        """A file whose last record is of a moment when the clock was ten years ahead goes when the
        others do, and so do those behind it.
        """
        store = self.at(self.folder() / "store")
        for number in range(4):
            for row in range(7):
                ahead = 10 * 365 * DAY * (number == 1 and row == 6)
                self.now += ahead
                store.put(message(580))
                self.now -= ahead
            self.now += HOUR
        self.finish(store)
        self.now, self.hour = BEGIN + 80 * HOUR, 4
        self.pass_time()
        self.assertEqual(self.starts(store), [3])


class LastStoredTests(RetentionTestCase):
    def test_by_its_last_record(self) -> None:
        """Copies are as old as their records, whatever the file system says."""
        store = self.made(3)
        first, second, _ = store.log.folder.files
        for file in (first, second):
            os.utime(file.path, (1, 1))
        self.assertEqual(
            (last_stored(first, self.now), last_stored(second, self.now)), (BEGIN, BEGIN + HOUR)
        )
        last = store.put(message(580))
        third = store.log.folder.files[2]
        self.assertEqual(last.begin, third.start + 3 * 580)
        self.assertEqual(last_stored(third, self.now), self.now)

    def test_clock_was_wrong(self) -> None:
        """What came later than now tells nothing: the first record does, else the file's own time,
        and it is never younger than this moment.
        """
        self.now += 1000 * HOUR
        file, now = self.made(2).log.folder.files[0], BEGIN + 10
        os.utime(file.path, (BEGIN + 1, BEGIN + 1))
        self.assertEqual(last_stored(file, now), BEGIN + 1)
        os.utime(file.path, (now + 5, now + 5))
        self.assertEqual(last_stored(file, now), now)
        # Be it a moment.
        now = BEGIN + 1000 * HOUR - 1
        os.utime(file.path, (now - 9, now - 9))
        self.assertEqual(last_stored(file, now), now - 9)

    def test_far_from_the_end(self) -> None:
        """One record and many megabytes of blank: its time, though it is not searched for."""
        self.patch(retention, "last_record_of", lambda file: None)
        self.assertEqual(last_stored(self.filled(3000, 3000).folder.files[0], BEGIN), BEGIN)

    def test_no_record(self) -> None:
        """Without a record it is the file's own time."""
        file = MappedFile.create(self.folder(), 0, FILE_SIZE)
        os.utime(file.path, (5, 5))
        self.assertEqual(last_stored(file, 9.0), 5.0)
        append_frame(self.log(), 0, encoded(300))


class DiskTests(RetentionTestCase):
    def test_forcibly(self) -> None:
        """Above C{diskSpaceCleanForciblyRatio} age does not matter, but only while it is."""
        store = self.made(settings={"delete_files_interval": 5.0})
        self.use = 0.85
        self.pass_time()
        self.assertEqual(self.starts(store)[0], 0)
        self.use = 0.86
        self.pass_time(10.0)
        self.assertEqual(store.state, "")
        self.use = 0.8
        self.pass_time()
        self.assertEqual(self.starts(store), [1, 2, 3, 4, 5])
        self.use = 0.86
        self.pass_time(40.0)
        self.assertEqual(self.starts(store), [5])

    def test_forcibly_forbidden(self) -> None:
        """C{cleanFileForciblyEnable=false} leaves young files whatever happens."""
        store = self.made(settings={"clean_forcibly": False})
        self.use = 0.99
        self.pass_time(30.0)
        self.assertEqual((self.starts(store)[0], store.state), (0, "read-only"))

    def test_writes_refused(self) -> None:
        """Above C{diskSpaceWarningLevelRatio} the store is read-only, and comes back."""
        store = self.made(settings={"clean_forcibly": False})
        self.use = 0.9
        self.pass_time()
        store.put(message(580))
        self.use = 0.91
        self.pass_time()
        self.assertEqual(store.state, "read-only")
        self.assertIn("91%", store.reason)
        self.use = 0.9
        self.pass_time()
        store.put(message(580))

    def test_health(self) -> None:
        """A disk that fills up is told before writes are refused; then the state tells it."""
        for forced, word in ((True, "whatever their age"), (False, "when they are old enough")):
            store = self.made(settings={"clean_forcibly": forced})
            for self.use, told in ((0.85, False), (0.86, True), (0.9, True), (0.91, False)):
                store.retention.look()
                reasons = list(store.retention.health())
                self.assertEqual([each.name for each in reasons], ["disk-filling"] * told)
                if told:
                    self.assertIn(f"{self.use:.0%} full", reasons[0].text)
                    self.assertIn(word, reasons[0].text)
            self.use = 0.5
            store.retention.look()
            self.close_store(store)

    def test_real_disk(self) -> None:
        """A real disk's use is a share; of no disk, unknown, or no store yet, nothing."""
        self.assertTrue(0 < disk_use(self.folder()) <= 1)
        self.assertEqual(fullest(derived_settings(Path("/nowhere/at/all"))), 0.0)
        self.assertEqual(disk_use(Path("/nowhere/at/all")), -1.0)
        self.assertIn(local_hour(BEGIN), range(24))

    def test_counted_as_stock(self) -> None:
        """Whole percent, rounded up, without what is root's."""

        class Found:
            f_blocks, f_bfree, f_bavail = 1000, 300, 200

        self.patch(os, "statvfs", lambda folder: Found)
        self.assertEqual(disk_use(self.folder()), 0.78)
        # As file systems say that cannot tell.
        Found.f_blocks = Found.f_bfree = Found.f_bavail = 0
        self.assertEqual(disk_use(self.folder()), -1.0)


class ReplicaTests(RetentionTestCase):
    def test_hold_files_back(self) -> None:
        """A file a replica needs stays, which is told once, and what is older goes."""
        store = self.made()
        self.now, self.hour = BEGIN + 365 * DAY, 4
        self.held = 2 * FILE_SIZE + 5
        with capturedLogs() as told:
            self.pass_time(30.0)
        self.assertEqual(self.starts(store), [2, 3, 4, 5])
        self.assertEqual(store.retention.status()["heldBackFrom"], self.held)
        self.assertEqual(len([event for event in told if event.get("held") == self.held]), 1)
        self.hour = 5
        self.pass_time()
        self.assertIsNone(store.retention.status()["heldBackFrom"])
        self.hour = 4
        self.held = 3 * FILE_SIZE
        self.pass_time()
        self.assertEqual(self.starts(store), [3, 4, 5])
        self.held = None
        self.pass_time()
        self.assertEqual(self.starts(store), [5])
        self.assertIsNone(store.retention.status()["heldBackFrom"])
        self.assertEqual(store.retention.lost_bytes, 0)

    def test_only_so_far(self) -> None:
        """Past C{diskSpaceCleanForciblyRatio} the replica loses, counted and told."""
        store = self.made()
        self.held, self.use = 100, 0.86
        self.pass_time(10.5)
        self.use = 0.5
        left = self.starts(store)[0]
        self.assertGreater(left, 0)
        self.assertEqual(store.retention.lost_bytes, left * FILE_SIZE - 100)
        self.pass_time()
        self.assertEqual(self.starts(store)[0], left)

    def test_only_so_far_by_age(self) -> None:
        """That holds as well where young files are never deleted."""
        store = self.made(settings={"clean_forcibly": False})
        self.now = BEGIN + 72 * HOUR + 1.5 * HOUR
        self.held, self.use = 0, 0.85
        self.pass_time(30.0)
        self.assertEqual((self.starts(store)[0], store.retention.lost_bytes), (0, 0))
        self.use = 0.86
        self.pass_time(30.0)
        self.assertEqual(self.starts(store), [2, 3, 4, 5])
        self.assertEqual(store.retention.lost_bytes, 2 * FILE_SIZE)


class StopTests(RetentionTestCase):
    """Files being deleted while a node stops, or in somebody's hands."""

    def test_waits_for_a_file(self) -> None:
        """A stop ends when the file under way is gone, and deletes no more."""
        thread = Held()
        store = self.made()
        store.retention.environment = evolve(store.environment, in_thread=thread)
        self.now, self.hour = BEGIN + 365 * DAY, 4
        self.pass_time()
        self.assertEqual(len(thread.calls), 1)
        thread.work()  # looks how old the file is
        self.assertEqual(len(thread.calls), 1)
        self.pass_time(30.0)
        self.assertEqual(len(thread.calls), 1)
        stopped = store.retention.stop()
        self.assertNoResult(stopped)
        store.retention.full = failing(AssertionError("it is stopped"))
        thread.work()
        self.successResultOf(stopped)
        self.assertEqual(self.starts(store), [1, 2, 3, 4, 5])
        self.pass_time()
        self.assertEqual(thread.calls, [])

    def test_looks_in_a_thread(self) -> None:
        """A file's age is found in a thread, once; stops wait; the unreadable is tried again."""
        thread = Held()
        store = self.made()
        looked: list[MappedFile] = []
        real = last_stored

        def look(file: MappedFile, now: float) -> float:
            looked.append(file)
            if len(looked) == 1:
                raise OSError("no")
            return real(file, now)

        self.patch(retention, "last_stored", look)
        store.retention.environment = evolve(store.environment, in_thread=thread)
        self.now, self.hour = BEGIN + 71.5 * HOUR, 4
        self.pass_time()
        self.assertEqual((looked, len(thread.calls)), ([], 1))
        thread.work()
        self.assertEqual((len(self.flushLoggedErrors(OSError)), thread.calls), (1, []))
        for _ in range(3):
            self.pass_time()
            for _ in list(thread.calls):
                thread.work()
        # It is not old enough, and is not looked at a third time.
        self.assertEqual((looked, self.starts(store)[0]), ([store.log.folder.files[0]] * 2, 0))
        self.now += HOUR
        self.pass_time()
        thread.work()
        self.assertEqual((self.starts(store)[0], len(looked)), (1, 2))
        self.pass_time()
        stopped = store.retention.stop()
        self.assertNoResult(stopped)
        store.retention.full = failing(AssertionError("it is stopped"))
        thread.work()
        self.successResultOf(stopped)
        self.assertEqual((len(looked), self.starts(store)[0]), (3, 1))

    def test_cannot_be_deleted(self) -> None:
        """A file that cannot be deleted is told, like its checksums; no other goes first."""
        store = self.made()
        self.pass_time(2.0)  # the first flush of queues and index

        def unlink(path: object, **more: object) -> None:
            raise PermissionError("no")

        patched = self.patch(os, "unlink", unlink)
        self.now, self.hour = BEGIN + 365 * DAY, 4
        self.pass_time(10.5)
        self.assertEqual(len(self.flushLoggedErrors(PermissionError)), 2)
        self.pass_time(10.0)
        self.assertEqual(len(self.flushLoggedErrors(PermissionError)), 1)
        patched.restore()
        self.assertEqual(store.log.min_offset, FILE_SIZE)
        self.assertEqual(len(list(store.settings.commitlog.iterdir())), 6)
        self.pass_time(10.0)
        self.assertEqual(self.starts(store), [5])

    def test_looking_fails(self) -> None:
        """Queues that cannot follow keep no file, and one look that fails is not the last."""
        store = self.made()
        self.now, self.hour = BEGIN + 365 * DAY, 4

        def broken(offset: int) -> None:
            raise OSError("no")

        follow, store.retention.follow = store.retention.follow, broken
        self.pass_time(10.5)
        self.assertGreater(len(self.flushLoggedErrors(OSError)), 0)
        store.retention.follow = follow

        unknown = failing(ValueError("no"))
        held = store.environment
        store.retention.environment = evolve(held, held_from=unknown)
        store.put(message(4000))
        self.finish(store)
        self.pass_time(10.0)
        self.assertGreater(len(self.flushLoggedErrors(ValueError)), 0)
        store.retention.environment = held
        self.pass_time(20.0)
        self.assertEqual(self.starts(store), [6])

    def test_not_able_to_look(self) -> None:
        """A run that fails, at its first file or at a later one, is not the last; without a
        descriptor nothing has failed, and a node whose runs keep failing is not well.
        """
        for error, logged in ((ValueError("no"), 1), (OutOfDescriptors("x", 1), 0)):
            self.now, self.hour = BEGIN, 12
            store = self.made()
            self.pass_time(2.0)
            (job,) = jobs_of(store.retention)
            held = store.environment
            follow = store.retention.follow

            def once(offset: int, store: Store = store, error: Exception = error) -> None:
                environment = evolve(store.environment, held_from=failing(error))
                store.retention.environment = environment

            store.retention.follow = once
            self.now, self.hour = BEGIN + 365 * DAY, 4
            self.pass_time()
            self.assertEqual(self.starts(store)[0], 1)
            self.pass_time(40.0)
            self.assertEqual(self.starts(store)[0], 1)
            told = [reason.name for reason in job.health()]
            self.assertEqual(told, ["failing-job"] * logged)
            self.assertEqual(bool(self.flushLoggedErrors(ValueError)), bool(logged))
            store.retention.follow, store.retention.environment = follow, held
            self.pass_time(20.0)
            self.assertEqual((self.starts(store), list(job.health())), ([5], []))
            self.close_store(store)

    def test_deleted_and_held(self) -> None:
        """Bytes of a deleted file that somebody still reads are shown until he is done."""
        store = self.made()
        view = store.log.read(0, 100)
        self.now, self.hour = BEGIN + 365 * DAY, 4
        self.pass_time()
        self.assertEqual(store.retention.status()["deletedButHeldBytes"], FILE_SIZE)
        self.assertEqual(len(bytes(view)), 100)
        del view
        self.assertEqual(store.retention.status()["deletedButHeldBytes"], 0)


class RetentionMachine(RuleBasedStateMachine):
    """Writes, time, disk and replicas in any order, with stops and kills between them."""

    case: RetentionTestCase
    RESERVED = 5 * HOUR

    @initialize()
    def begin(self) -> None:
        """A store with one message."""
        case = self.case
        case.now, case.hour, case.use, case.held = BEGIN, 12, 0.5, None
        self.root = case.folder() / "store"
        # When the last record of each file was stored, by the file's number.
        self.stored: dict[int, float] = {}
        self.first, self.arrived = 0, BEGIN
        self.open()
        self.send(1)

    def open(self) -> None:
        self.store = self.case.at(self.root, {"file_reserved": self.RESERVED})

    def teardown(self) -> None:
        """Queues and index speak of what is there."""
        if hasattr(self, "store"):
            self.case.finish(self.store)
            self.case.close_store(self.store)
            assert not derived_faults(self.store.settings, exact=False)

    # --- what happens ---------------------------------------------------------

    @rule(count=st.integers(1, 20))
    def send(self, count: int) -> None:
        for _ in range(0 if self.store.state else count):
            receipt = self.store.put(message(580))
            self.stored[receipt.begin // FILE_SIZE] = self.case.now
        self.case.finish(self.store)

    @rule(hours=st.sampled_from([0.25, 1.0, 2.0, 6.0]))
    def wait(self, hours: float) -> None:
        """Time in which nothing is looked at."""
        self.case.now += hours * HOUR

    @rule(hour=st.sampled_from([4, 12]))
    def clock(self, hour: int) -> None:
        """The hour at which old files go, or another."""
        self.case.hour = hour

    @rule(use=st.sampled_from([-1.0, 0.5, 0.75, 0.76, 0.85, 0.86, 0.91]))
    def disk(self, use: float) -> None:
        """It fills up, or somebody makes room, or nobody knows how full it is."""
        self.case.use = use

    @rule(share=st.none() | st.floats(0, 1))
    def replica(self, share: float | None) -> None:
        """One holds the log so far, or goes."""
        log = self.store.log
        held = None if share is None else log.min_offset + share * (log.end - log.min_offset)
        self.case.held = None if held is None else int(held)

    @rule(on_demand=st.booleans())
    def look(self, on_demand: bool) -> None:
        """It is time for a look, or somebody asks for one: what may go goes."""
        if on_demand:
            self.store.retention.demand()
        self.check(on_demand)
        self.case.pass_time(24.0)
        self.check(on_demand)
        files = self.store.log.folder.files
        assert len(files) == 1 or not self.may_go(self.first, on_demand=False), files

    @rule(copied=st.booleans())
    def restart(self, copied: bool) -> None:
        """The node ends and starts, or is killed and starts on a copy, all as old as that."""
        if copied:
            self.root, self.arrived = self.case.crash(self.store), self.case.now
        self.case.close_store(self.store)
        self.open()
        self.check(on_demand=False)

    # --- what has to hold -----------------------------------------------------

    def may_go(self, number: int, *, on_demand: bool) -> bool:
        """Whether a file that is not the last may be deleted now."""
        case, use = self.case, self.case.use
        forced = use > 0.85
        old = case.now - max(self.stored[number], self.arrived) >= self.RESERVED
        due = on_demand or case.hour == 4 or not 0 <= use <= 0.75
        free = case.held is None or case.held >= (number + 1) * FILE_SIZE or use > 0.85
        return (forced or (old and due)) and free

    def check(self, on_demand: bool) -> None:
        """Of the oldest files those are gone that may go, and none in the middle."""
        starts = self.case.starts(self.store)
        assert starts == list(range(starts[0], starts[0] + len(starts))), starts
        for number in range(self.first, starts[0]):
            assert self.may_go(number, on_demand=on_demand), number
            assert number < max(self.stored), "the newest is the log's end"
        self.first = starts[0]


class AnyOrderTests(RetentionTestCase):
    def test_deleted_is_old_and_free(self) -> None:
        """What is deleted is old, or the disk full, and not needed, or very full; and it goes."""
        run_machine(type("Machine", (RetentionMachine,), {"case": self}), count=25, steps=30)
