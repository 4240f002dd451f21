"""Tests for L{rmqha.store.log.flush}: what is on the disk, and who waits for it."""

from __future__ import annotations

import errno
import os
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from rmqha.config.store_settings import FlushDisk, StoreSettings
from rmqha.errors import FlushFailed, NotWritable
from rmqha.store.files.fsync import Files, FsyncInThread
from rmqha.store.files.one_thread import ThreadNotStarted
from rmqha.store.log.flush import RETRY, Flusher
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, STORED, Held, LogTestCase, content, encoded


@define
class Syncs:
    """Notes which files were synced, by their inode, and fails when told to."""

    files: list[int] = field(factory=list)
    broken: bool = False

    def __call__(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "I/O error")
        self.files.append(os.fstat(fd).st_ino)


class FlusherTestCase(LogTestCase):
    """Tests with a log, a thread and a disk under control."""

    flush_disk = FlushDisk.SYNC_FLUSH

    def setUp(self) -> None:
        self.clock, self.thread, self.syncs = Clock(), Held(), Syncs()
        self.failures: list[FlushFailed] = []
        self.log_ = self.log()
        self.flusher = Flusher(
            log=self.log_,
            settings=StoreSettings(root=self.folder(), flush_disk=self.flush_disk),
            clock=self.clock,
            fsync=FsyncInThread(self.thread, self.syncs),
            on_failure=self.failures.append,
        )

    def put(self, size: int = 1000) -> int:
        """Append a record, and return where it ends."""
        self.log_.put([encoded(size)], [0], STORED)
        return self.log_.end


class GroupCommitTests(FlusherTestCase):
    def test_answered_in_groups(self) -> None:
        """Writes that arrive during a pass share the next one, in order."""
        answered: list[int] = []

        def write() -> None:
            end = self.put(300)
            self.flusher.wait(end).addCallback(lambda done: answered.append(end) or done)

        write()
        for _ in range(3):
            write()
        self.assertEqual((len(self.thread.calls), answered), (1, []))
        self.thread.work()
        self.assertEqual((len(self.thread.calls), answered), (1, [300]))
        self.thread.work()
        self.assertEqual((self.thread.calls, answered), ([], [300, 600, 900, 1200]))
        self.assertEqual((self.log_.flushed, len(self.syncs.files)), (1200, 2))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_answered_first(self) -> None:
        """A write that waits is answered before others hear that it is on the disk: what they do
        then, such as sending it to replicas, does not make its answer late.
        """
        told: list[str] = []
        self.log_.flush_listeners.append(lambda: told.append("others"))
        self.flusher.wait(self.put()).addCallback(lambda done: told.append("the writer"))
        self.thread.work()
        self.assertEqual(told, ["the writer", "others"])

    def test_no_thread(self) -> None:
        """Without a thread writes wait, and no descriptor is kept; with one all is answered."""

        def none(*args: object) -> Deferred[None]:
            return fail(ThreadNotStarted("fsync", "can't start new thread"))

        self.flusher.fsync = FsyncInThread(none, self.syncs)
        end = self.put()
        before = len(os.listdir("/proc/self/fd"))
        done = self.flusher.wait(end)
        self.clock.pump([RETRY] * 3)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before)
        self.assertNoResult(done)
        self.assertEqual(self.failures, [])
        self.flusher.fsync = FsyncInThread(self.thread, self.syncs)
        self.clock.advance(RETRY)
        self.thread.work()
        self.assertTrue(self.successResultOf(done))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_already_there(self) -> None:
        """What is on the disk is waited for by nobody."""
        done = self.flusher.wait(self.put())
        self.thread.work()
        self.assertTrue(self.successResultOf(done))
        self.assertTrue(self.successResultOf(self.flusher.wait(500)))
        self.assertEqual(self.thread.calls, [])

    def test_timeout(self) -> None:
        """A write is answered when its own time is over, not the time of others."""
        first = self.flusher.wait(self.put())
        self.clock.advance(3.0)
        second = self.flusher.wait(self.put())
        self.clock.advance(2.0)
        self.assertFalse(self.successResultOf(first))
        self.assertNoResult(second)
        self.thread.work()
        self.thread.work()
        self.assertTrue(self.successResultOf(second))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancel(self) -> None:
        """A write that is cancelled is forgotten; the others are not."""
        first, second = (self.flusher.wait(self.put()) for _ in range(2))
        first.cancel()
        self.failureResultOf(first)
        self.thread.work()
        self.thread.work()
        self.assertTrue(self.successResultOf(second))
        third = self.flusher.wait(self.put())
        third.cancel()
        self.failureResultOf(third)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.thread.work()

    def test_write_from_an_answer(self) -> None:
        """Whoever is answered may write again at once."""
        done = self.flusher.wait(self.put()).addCallback(lambda _: self.flusher.wait(self.put()))
        self.thread.work()
        self.assertNoResult(done)
        self.thread.work()
        self.assertTrue(self.successResultOf(done))

    def test_all_files_of_a_roll(self) -> None:
        """A pass over a boundary syncs the old file and the new one."""
        done = self.flusher.wait(self.put(3000))
        self.thread.work()
        self.put(3000)
        wait = self.flusher.wait(self.put(3000))
        self.thread.work()
        self.assertTrue(self.successResultOf(done) and self.successResultOf(wait))
        inodes = [os.stat(file.path).st_ino for file in self.log_.folder.files]
        self.assertEqual(self.syncs.files, [inodes[0], *inodes])
        self.assertEqual(self.log_.flushed, 2 * FILE_SIZE + 3000)

    def test_file_deleted_meanwhile(self) -> None:
        """A pass has descriptors of its own: a file may go, and its number be given away."""
        self.put(3000)
        done = self.flusher.wait(self.put(3000))
        before = len(os.listdir("/proc/self/fd"))
        self.log_.folder.files[0].remove()
        with open(os.devnull) as other:
            self.thread.work()
            self.assertFalse(other.closed)
        self.assertTrue(self.successResultOf(done))
        self.assertEqual(self.failures, [])
        self.assertLess(len(os.listdir("/proc/self/fd")), before)

    def test_rewound_meanwhile(self) -> None:
        """A pass that began before the end moved back says nothing about what is there now."""
        append_frame(self.log_, 0, b"x" * 1000)
        self.flusher.nudge()
        self.log_.rewind()
        self.assertEqual(self.log_.end, 0)
        append_frame(self.log_, 0, bytes(encoded(500)) + b"y" * 200)
        done = self.flusher.flush()
        self.thread.work()
        self.assertEqual(self.log_.flushed, 0)
        self.assertNoResult(done)
        self.thread.work()
        self.successResultOf(done)
        self.assertEqual(self.log_.flushed, 700)

    def test_nothing_left_meanwhile(self) -> None:
        """Nobody waits for bytes dropped in a flush, whichever way none is made durable."""

        def fsync(files: Files) -> Deferred[None]:
            return real(files) if files else succeed(None)

        real = self.flusher.fsync
        for self.flusher.fsync in (fsync, real):
            append_frame(self.log_, 0, b"x" * 1000)
            done = self.flusher.flush()
            self.log_.rewind()
            self.thread.work()
            self.successResultOf(done)
            self.assertEqual(self.thread.calls, [])


class FailureTests(FlusherTestCase):
    """An fsync that fails is final."""

    def test_final(self) -> None:
        """Those who wait fail, so do all who come, and nothing is ever tried again."""
        wait, flush = self.flusher.wait(self.put()), self.flusher.flush()
        later = self.flusher.wait(self.put())
        self.syncs.broken = True
        self.thread.work()
        for waiting in (wait, flush, later):
            self.failureResultOf(waiting, FlushFailed)
        self.syncs.broken = False
        self.put()
        self.flusher.nudge()
        for waiting in (self.flusher.wait(self.log_.end), self.flusher.flush()):
            self.failureResultOf(waiting, FlushFailed)
        self.assertEqual((self.log_.flushed, self.thread.calls), (0, []))
        self.assertEqual(len(self.failures), 1)
        self.assertIn("I/O error", str(self.failures[0]))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.successResultOf(self.flusher.stop())

    def test_any_error(self) -> None:
        """A flush that ends on something else than an fsync's answer is as final."""

        def broken(fd: int) -> Any:
            raise ValueError("what?")

        self.flusher.fsync = FsyncInThread(self.thread, broken)
        wait = self.flusher.wait(self.put())
        self.thread.work()
        self.failureResultOf(wait, FlushFailed)
        self.assertEqual(len(self.failures), 1)

    def test_no_descriptor(self) -> None:
        """While there is no descriptor nothing was fsynced and nothing has failed: the pass is
        tried again, with what is there then, and no descriptor is left behind.
        """
        real, left = os.dup, 0

        def dup(fd: int) -> int:
            if left == 0:
                raise OSError(errno.EMFILE, "too many open files")
            return real(fd)

        self.patch(os, "dup", dup)
        first = self.flusher.wait(self.put())
        self.clock.advance(RETRY)
        second = self.flusher.wait(self.put())
        self.assertEqual((self.thread.calls, self.failures), ([], []))
        left = 1
        self.clock.advance(RETRY)
        self.thread.work()
        self.assertTrue(self.successResultOf(first) and self.successResultOf(second))
        self.assertIsNone(self.flusher.failure)

    def test_no_descriptor_for_the_second_file(self) -> None:
        """What was opened for a pass that cannot begin is closed."""
        while len(self.log_.folder.files) < 2:
            self.put(1000)
        before, real, calls = len(os.listdir("/proc/self/fd")), os.dup, []

        def dup(fd: int) -> int:
            calls.append(fd)
            if len(calls) == 2:
                raise OSError(errno.ENFILE, "too many open files in system")
            return real(fd)

        self.patch(os, "dup", dup)
        waiting = self.flusher.wait(self.log_.end)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        self.clock.advance(RETRY)
        self.thread.work()
        self.assertTrue(self.successResultOf(waiting))

    def test_descriptor_that_cannot_be_had(self) -> None:
        """Any other error there is final."""
        self.put()

        def dup(fd: int) -> int:
            raise OSError(errno.EBADF, "bad file descriptor")

        self.patch(os, "dup", dup)
        self.failureResultOf(self.flusher.wait(self.log_.end), FlushFailed)
        self.assertEqual((len(self.failures), self.thread.calls), (1, []))


class StopTests(FlusherTestCase):
    def test_flushes_what_there_is(self) -> None:
        """A stop waits for a running pass and flushes what came after it."""
        first = self.flusher.wait(self.put())
        second = self.flusher.wait(self.put())
        done = self.flusher.stop()
        self.thread.work()
        self.assertNoResult(done)
        self.thread.work()
        self.successResultOf(done)
        self.assertTrue(self.successResultOf(first) and self.successResultOf(second))
        self.assertEqual((self.log_.flushed, self.clock.getDelayedCalls()), (2000, []))

    def test_nothing_is_left_waiting(self) -> None:
        """A write that waits for more than there is gets an answer too."""
        self.put()
        wait = self.flusher.wait(5000)
        done = self.flusher.stop()
        self.thread.work()
        self.successResultOf(done)
        self.failureResultOf(wait, NotWritable)

    def test_failing(self) -> None:
        """A last flush that fails ends the stop, and who waits for the stop is told."""
        wait = self.flusher.wait(self.put())
        done = self.flusher.stop()
        self.syncs.broken = True
        self.thread.work()
        self.failureResultOf(wait, FlushFailed)
        self.failureResultOf(done, FlushFailed)


class TimerTests(FlusherTestCase):
    flush_disk = FlushDisk.ASYNC_FLUSH

    def setUp(self) -> None:
        super().setUp()
        self.flusher.start()

    def test_enough_pages(self) -> None:
        """Four pages are flushed with the next tick, less only every ten seconds."""
        self.put(1000)
        for _ in range(19):
            self.clock.advance(0.5)
        self.assertEqual(self.thread.calls, [])
        self.clock.advance(0.5)
        self.thread.work()
        self.assertEqual(self.log_.flushed, 1000)
        for _ in range(5):
            self.put(3000)
        self.clock.advance(0.5)
        self.thread.work()
        self.assertEqual(self.log_.flushed, self.log_.end)

    def test_no_second_pass_beside_the_first(self) -> None:
        """A slow disk gets one pass at a time."""
        for _ in range(6):
            self.put(3000)
            self.clock.advance(0.5)
        self.assertEqual(len(self.thread.calls), 1)
        self.thread.work()
        self.assertEqual(self.thread.calls, [])
        self.clock.advance(10.0)
        self.thread.work()
        self.assertEqual(self.log_.flushed, self.log_.end)
        self.assertEqual(len(content(self.log_)), self.log_.end)

    def test_after_a_failure(self) -> None:
        """The clock asks no more once an fsync failed."""
        self.put()
        self.syncs.broken = True
        self.flusher.nudge()
        self.thread.work()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_listener_fails(self) -> None:
        """A listener that fails does not stop the flushing."""

        def broken() -> None:
            raise RuntimeError("no")

        self.log_.flush_listeners.append(broken)
        for _ in range(2):
            self.put()
            self.flusher.nudge()
            self.thread.work()
        self.assertEqual(self.log_.flushed, 2000)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 2)

    def test_goes_on_after_an_error(self) -> None:
        """A look at the log that fails is not the last: the next one flushes."""
        patched = self.patch(Flusher, "_begin", lambda flusher: 1 / 0)
        for _ in range(6):
            self.put(3000)
        self.clock.advance(0.5)
        self.assertEqual(self.thread.calls, [])
        patched.restore()
        self.clock.advance(0.5)
        self.thread.work()
        self.assertEqual(self.log_.flushed, self.log_.end)
        self.flushLoggedErrors(ZeroDivisionError)
