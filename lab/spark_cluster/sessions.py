"""Processes and what they have started: all of a session, ended by their ids.

A worker of Spark starts executors, and those start Python.  Whoever starts a worker as the
leader of a session finds them all, also when the worker is gone.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from lab.harness.nodes import Process

STOP = 30.0
"""Seconds it has to stop."""

ENDED_WELL = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
"""Exit codes after a C{SIGTERM}; Java gives the second."""


def end(process: Process) -> list[str]:
    """Wait for a process that was told to end, end what it left, and say what did not go well."""
    wrong = process.ended(STOP, ENDED_WELL)
    end_session(process.pid)
    return wrong


def end_session(leader: int) -> None:
    """Kill what is left of a session, each process by its id."""
    for pid in in_session(leader):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def in_session(leader: int) -> list[int]:
    """The processes of a session, whose leader may have ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses; the fourth word behind it is the session.
            words = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == leader and words[0] != "Z":
            found.append(int(path.parent.name))
    return found


def command(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
