"""Tests for L{rmqha.priority}: processes that step back for others."""

from __future__ import annotations

import os
import sys

from twisted.trial.unittest import SynchronousTestCase

from rmqha.priority import VARIABLE
from tests.support.commands import ended

LOOK = """
import os, sys
from rmqha.priority import Priority, step_back
step_back(Priority(sys.argv[1]))
print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.getpriority(os.PRIO_PROCESS, 0))
"""


def found(priority: str, **environment: str) -> str:
    """What a process of its own says of itself after it stepped back."""
    given = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-c", LOOK, priority]
    answer = ended(*command, env={**given, **environment}, check=True)
    return answer.stdout.strip()


class PriorityTests(SynchronousTestCase):
    """A task runs when nothing else wants to, unless it is told otherwise."""

    def test_idle(self) -> None:
        """An idle one gives way to everything."""
        self.assertEqual("True 19", found("idle"))

    def test_normal(self) -> None:
        """One may ask for a fair share, by option or for a whole process."""
        usual = f"False {os.getpriority(os.PRIO_PROCESS, 0)}"
        self.assertEqual(usual, found("normal"))
        self.assertEqual(usual, found("idle", **{VARIABLE: "normal"}))
