"""Tests for L{rmqha.store.files.lock}: one writer, also against a Java broker."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from rmqha.errors import StoreLocked
from rmqha.store.files import lock
from rmqha.store.files.lock import LOCK_TEXT, StoreLock, is_locked
from tests.support.logs import LogTestCase

ROOT = Path(__file__).resolve().parents[3]

#: Locks byte 0 as Java's C{FileChannel.lock(0, 1, false)} does, says so, and waits.
JAVA = """
import fcntl, sys
file = open(sys.argv[1], "rb+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError as error:
    print("refused", flush=True)
else:
    print("locked", flush=True)
sys.stdin.read()
"""

#: Another node of ours.
OURS = """
import sys
from pathlib import Path
from rmqha.errors import StoreLocked
from rmqha.store.files.lock import StoreLock
lock = StoreLock(Path(sys.argv[1]))
try:
    lock.take()
except StoreLocked as error:
    print("refused", flush=True)
else:
    print("locked", flush=True)
sys.stdin.read()
"""


class LockTests(LogTestCase):
    def setUp(self) -> None:
        self.path = self.folder() / "store" / "lock"
        self.lock = StoreLock(self.path)
        self.addCleanup(self.lock.release)

    def other(self, program: str) -> tuple[str, subprocess.Popen[str]]:
        """Let another process try, and hold it while it runs."""
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        self.addCleanup(self.end, process)
        return process.stdout.readline().strip(), process

    def end(self, process: subprocess.Popen[str]) -> None:
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
        process.wait()

    def test_free(self) -> None:
        """The file holds what a broker writes, and is locked until it is released."""
        self.assertFalse(is_locked(self.path))
        self.lock.take()
        self.assertEqual(self.path.read_bytes(), LOCK_TEXT)
        self.assertTrue(is_locked(self.path))
        self.lock.release()
        self.lock.release()
        self.assertFalse(is_locked(self.path))

    def test_twice_in_one_process(self) -> None:
        """Two stores of one process conflict too."""
        self.lock.take()
        self.assertRaises(StoreLocked, StoreLock(self.path).take)

    def test_closing_another_descriptor(self) -> None:
        """Unlike a POSIX lock it is not lost when somebody reads the file."""
        self.lock.take()
        self.path.read_bytes()
        self.assertEqual(self.other(JAVA)[0], "refused")

    def test_another_process(self) -> None:
        """A node of ours and a Java broker are both kept out."""
        self.lock.take()
        for program in (OURS, JAVA):
            self.assertEqual(self.other(program)[0], "refused")

    def test_held_by_another_process(self) -> None:
        """A node of ours and a Java broker both keep us out, until they end."""
        self.path.parent.mkdir()
        self.path.touch()
        for program in (OURS, JAVA):
            word, process = self.other(program)
            self.assertEqual(word, "locked")
            self.assertTrue(is_locked(self.path))
            self.assertRaises(StoreLocked, self.lock.take)
            self.end(process)
            self.lock.take()
            self.lock.release()

    def test_kept_over_fork(self) -> None:
        """It is still held when the process that took it has become a daemon."""
        self.lock.take()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        self.assertTrue(is_locked(self.path))

    def test_full_disk(self) -> None:
        """The lock holds even where the word in the file does not fit."""

        def pwrite(*args: object) -> int:
            raise OSError(errno.ENOSPC, "full")

        self.patch(lock.os, "pwrite", pwrite)
        self.lock.take()
        self.assertTrue(is_locked(self.path))

    def test_no_locks_here(self) -> None:
        """A file system without locks is an error of its own."""

        def fcntl_(*args: object) -> int:
            raise OSError(errno.ENOLCK, "no locks")

        self.patch(fcntl, "fcntl", fcntl_)
        self.assertRaises(OSError, self.lock.take)
