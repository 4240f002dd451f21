"""Tests for L{lab.bench.processes}."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

from twisted.trial.unittest import SynchronousTestCase

from lab.bench.processes import Span, all_descriptors, processor_seconds
from lab.harness.nodes import ticks

STAT = (
    "4711 ({name}) S 1 4711 4711 0 -1 4194560 2161 0 0 0 1234 567 9 8 20 0 31 0 1000 "
    "1073741824 25600 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0"
)
"""As the kernel writes it: user 1234 and system 567 ticks, 9 and 8 of children that have ended."""

BUSY = """
import sys, threading, time
def work():
    while time.thread_time() < 0.2:
        pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("done", flush=True)
sys.stdin.read()
"""
"""A thread that has ended used a fifth of a second."""


class TicksTests(SynchronousTestCase):
    def test_user_and_system(self) -> None:
        """The process's own time in user mode and in the kernel counts, its children's does not."""
        self.assertEqual(ticks(STAT.format(name="java")), 1801)

    def test_name(self) -> None:
        """A name with blanks and parentheses moves no field."""
        for name in ("my (odd) name", ") S 1 2", "a b c", ""):
            self.assertEqual(ticks(STAT.format(name=name)), 1801, name)


class SpanTests(SynchronousTestCase):
    def test_own(self) -> None:
        """What a process used since the span began is its own, to a few ticks."""
        span = Span({"we": os.getpid()})
        begun = time.process_time()
        while time.process_time() - begun < 0.2:
            pass
        used = span.used()
        self.assertEqual(list(used), ["we"])
        self.assertGreaterEqual(used["we"], 0.15)
        self.assertLessEqual(used["we"], time.process_time() - begun + 0.05)

    def test_threads_of_another(self) -> None:
        """All threads of another process count, those that have ended too."""
        child = subprocess.Popen(
            [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with child:
            span = Span({"child": child.pid})
            assert child.stdout is not None and child.stdin is not None
            self.assertEqual(child.stdout.readline(), "done\n")
            self.assertGreaterEqual(span.used()["child"], 0.15)
            child.stdin.close()

    def test_ended(self) -> None:
        """A process that is not there is an error, not one that costs nothing."""
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        self.assertRaises(OSError, Span, {"child": child.pid})


class KernelTests(SynchronousTestCase):
    def test_seconds(self) -> None:
        """Processor time is in seconds."""
        span = abs(processor_seconds(os.getpid()) - time.process_time())
        self.assertLess(span, 0.1 + time.process_time() / 5)

    def test_descriptors(self) -> None:
        """As many descriptors as allowed are for a while only."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1000, before[0]), before[1]))
        lowered = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            with all_descriptors() as most:
                inside = resource.getrlimit(resource.RLIMIT_NOFILE)
            after = resource.getrlimit(resource.RLIMIT_NOFILE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        self.assertEqual(inside, (before[1], before[1]))
        self.assertEqual((most, after), (before[1], lowered))
