"""
What has to be done on the machines of a pair: a command does it, or the operator.

Ports can tell whether something was done, and no more; how nodes are started and stopped is the
service manager's affair, which may be on another machine.

A command outlives whoever began it.  So it leaves its process id in a file, and whoever goes on
from there, or back, waits for its end first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from rmqha.switchover.errors import ActFailed

SHELL = 'echo $$ >"$0"; sh -c "$1"; exit'
"""Leaves its process id, and runs a command."""


class Act(Enum):
    """
    What is done by hand, or by the command that an option gives.
    """

    STOP = "--stop"
    PROMOTE = "--promote"
    FOLLOW = "--follow"
    RESTORE = "--restore"


class _Ended(ProcessProtocol):
    """
    Tells how a command ended; it writes where we write.
    """

    def __init__(self, ended: Deferred[None], option: str) -> None:
        self.ended = ended
        self.option = option

    def processEnded(self, reason: Failure) -> None:
        if reason.check(ProcessDone):
            self.ended.callback(None)
        else:
            self.ended.errback(ActFailed(self.option, reason.getErrorMessage().rstrip(".")))


@define(eq=False)
class Hands:
    """
    Does it.

    @ivar commands: What to run in a shell for which act; the operator does the others.
    @ivar pid_file: Has the id of the last command's process.
    @ivar reactor: Starts processes.
    @ivar say: Tells the operator something.
    """

    commands: Mapping[Act, str]
    pid_file: Path
    reactor: Any
    say: Callable[[str], None]

    def do(self, act: Act, what: str) -> Deferred[bool]:
        """
        Have something done.

        @param what: It, as a person is told to do it.
        @return: Whether a command did it; else somebody has been told to.  Fails with L{ActFailed}.
        """
        command = self.commands.get(act)
        done: Deferred[None] = Deferred()
        if command is None:
            self.say(f"now you: {what}")
            done.callback(None)
        else:
            self.say(f"running {command}")
            shell = ["sh", "-c", SHELL, str(self.pid_file), command]
            self.reactor.spawnProcess(
                _Ended(done, act.value), "sh", shell, env=None, childFDs={0: 0, 1: 1, 2: 2}
            )
        return done.addCallback(lambda _: command is not None)

    async def busy(self) -> str:
        """
        Whether a command still runs that somebody began, in words.
        """
        try:
            pid = int(self.pid_file.read_text(encoding="ascii"))
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return ""
        ours = os.fsencode(self.pid_file) in line
        return f"process {pid} still runs" if ours else ""

    def leave(self) -> None:
        """
        Remove the file.
        """
        self.pid_file.unlink(missing_ok=True)
