"""Tests for L{rmqha.store.files.fsync_thread}."""

from __future__ import annotations

import errno
import gc
import os
import tempfile
import time
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from unittest import skipUnless

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import FlushFailed
from rmqha.net.lean_reactor import LeanReactor
from rmqha.store.files import fsync_thread
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.files.fsync_thread import COMPILED, FsyncThread
from rmqha.store.files.one_thread import ThreadNotStarted
from tests.support.logs import now


def descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))


@skipUnless(COMPILED, "there was no compiler")
class FsyncThreadTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Files, and a reactor that nobody else has."""
        folder = tempfile.TemporaryDirectory(prefix="fsync-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.reactor = LeanReactor()
        self.addCleanup(self.reactor._poller.close)
        self.addCleanup(self.reactor.removeAll)
        self.thread = FsyncThread(self.reactor, "test")
        self.addCleanup(self.thread.stop)
        gc.collect()  # what earlier tests have left would be closed at any time
        self.before = descriptors()

    def file(self, name: str) -> tuple[str, int]:
        path = self.folder / name
        path.write_bytes(b"bytes")
        return str(path), os.open(path, os.O_RDWR)

    def broken(self, name: str) -> tuple[str, int]:
        hear, tell = os.pipe()
        os.close(tell)
        return name, hear

    def until(self, done: Deferred[None]) -> None:
        """Have the reactor work until something is known."""
        for _ in range(1000):
            if done.called:
                return
            self.reactor.iterate(0.01)
        self.fail("nothing within ten seconds")

    def test_durable(self) -> None:
        """It tells when all are durable, and closes them; again and again."""
        for number in range(3):
            done = self.thread([self.file(f"{number}a"), self.file(f"{number}b")])
            self.until(done)
            self.successResultOf(done)
        self.thread.stop()
        self.assertEqual(descriptors(), self.before)

    def test_nothing(self) -> None:
        """Where nothing is to be made durable, that is so at once."""
        self.successResultOf(self.thread([]))

    def test_fails(self) -> None:
        """What cannot be synced is named with the reason; what was asked for behind it goes on."""
        wrong = self.thread([self.file("one"), self.broken("wrong"), self.broken("later")])
        right = self.thread([self.file("two")])
        self.until(right)
        error = self.failureResultOf(wrong, FlushFailed).value
        self.assertEqual(error.path, "wrong")
        self.successResultOf(right)
        self.thread.stop()
        self.assertEqual(descriptors(), self.before)

    def test_same_error_as_in_python(self) -> None:
        """An L{FsyncInThread} says the same of what fails."""
        said = []
        for fsync in (self.thread, FsyncInThread(now)):
            done = fsync([self.broken("wrong")])
            self.until(done)
            said.append(str(self.failureResultOf(done, FlushFailed).value))
        self.assertEqual(said[0], said[1])

    def test_stop(self) -> None:
        """A stop does what was asked and tells it, even twice; later asks have a new thread."""
        asked = [self.thread([self.file(f"{number}")]) for number in range(2000)]
        self.thread.stop()
        self.thread.stop()
        for done in asked:
            self.successResultOf(done)
        self.assertNotIn(self.thread, self.reactor.getReaders())
        self.assertEqual(descriptors(), self.before)
        self.until(self.thread([self.file("again")]))

    def test_asked_while_stopping(self) -> None:
        """What is asked for when something else is done is done too, before a stop ends."""
        more: list[Deferred[None]] = []
        done = self.thread([self.file("one")])
        done.addCallback(lambda _: more.append(self.thread([self.file("two")])))
        self.thread.stop()
        self.successResultOf(done)
        self.successResultOf(more[0])
        self.assertEqual(descriptors(), self.before)

    def test_stopped_when_told(self) -> None:
        """A stop while telling: the rest is told before, heard already or not."""
        asked = [self.thread([self.file(f"{number}")]) for number in range(3)]
        told: list[int] = []
        for number, done in enumerate(asked):
            done.addCallback(lambda _, number=number: told.append(number))
        asked[0].addCallback(lambda _: self.thread.stop())
        time.sleep(0.2)  # so that all are heard at once
        self.until(asked[0])
        self.assertEqual(told, [0, 1, 2])
        for done in asked:
            self.successResultOf(done)
        self.assertEqual(descriptors(), self.before)

    def test_more_than_pipes_hold(self) -> None:
        """Neither side ever waits for room in a pipe, as the other might do so too."""
        pipe = os.pipe

        def narrow() -> tuple[int, int]:
            ends = pipe()
            fcntl(ends[0], F_SETPIPE_SZ, 4096)
            return ends

        self.patch(fsync_thread.os, "pipe", narrow)
        for end in (lambda: None, self.thread.stop):
            asked = [self.thread([self.file("one")])]
            for number in range(4):
                path = self.folder / f"{number}"
                path.touch()
                asked.append(
                    self.thread([(str(path), os.open(path, os.O_RDWR)) for _ in range(900)])
                )
            end()
            self.until(asked[-1])
            for done in asked:
                self.successResultOf(done)

    def test_not_closed(self) -> None:
        """Where a descriptor cannot be closed something else has closed it, and nobody knows what
        was made durable; what was asked for behind it goes on.
        """
        for fsync in (self.thread, FsyncInThread(now, lambda file: None)):
            path, file = self.file("one")
            wrong = fsync([(path, file), (path, file), self.file("two")])
            self.until(wrong)
            self.assertEqual(self.failureResultOf(wrong, FlushFailed).value.path, path)
            right = fsync([self.file("three")])
            self.until(right)
            self.successResultOf(right)
        self.thread.stop()
        self.assertEqual(descriptors(), self.before)

    def test_not_heard(self) -> None:
        """Where the reactor cannot hear it there is no thread; a later call has one."""

        def add(reader: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patched = self.patch(self.reactor, "addReader", add)
        self.failureResultOf(self.thread([self.file("one")]), ThreadNotStarted)
        self.assertEqual(descriptors(), self.before)
        patched.restore()
        done = self.thread([self.file("one")])
        self.until(done)
        self.successResultOf(done)

    def test_thread_ends(self) -> None:
        """If the thread ends nothing asked of it is durable, and everybody hears."""

        def end(asked: int, told: int) -> None:
            os.read(asked, 4)

        for wait in (lambda: None, self.thread.stop):
            patched = self.patch(fsync_thread, "serve", end)
            asked = [self.thread([self.file(name)]) for name in ("one", "two")]
            wait()
            self.until(asked[-1])
            for done in asked:
                error = self.failureResultOf(done, FlushFailed).value
                self.assertIn("the thread test has ended", str(error))
            patched.restore()
            self.assertEqual(descriptors(), self.before)
            done = self.thread([self.file("again")])
            self.until(done)
            self.successResultOf(done)
            self.thread.stop()

    def test_no_thread(self) -> None:
        """Without a thread or a pipe the call fails, all closed; a later call has one."""

        def start(thread: object) -> None:
            raise RuntimeError("can't start new thread")

        def pipe() -> tuple[int, int]:
            raise OSError(errno.EMFILE, "Too many open files")

        for where, what, instead in (
            (fsync_thread.Thread, "start", start),
            (fsync_thread.os, "pipe", pipe),
        ):
            patched = self.patch(where, what, instead)
            done = self.thread([self.file("one")])
            error = self.failureResultOf(done, ThreadNotStarted).value
            self.assertRegex(str(error), "thread test: .*(can't start|Too many open files)")
            self.assertEqual(descriptors(), self.before)
            patched.restore()
        done = self.thread([self.file("one")])
        self.until(done)
        self.successResultOf(done)
