"""What has to be done on the machines of a pair: a command does it, or the operator.

Ports can tell whether something was done, and no more; how nodes are started and stopped is the
service manager's affair, which may be on another machine.

A command outlives whoever began it, also a Ctrl-C: it has a session of its own.  So it leaves its
process id in a file, and whoever goes on from there, or back, waits for its end first.

What it has begun on another machine may go on when it has ended, and nobody sees that from here.
So it is told the number of the change: see L{UnderWay.number<rmqha.switchover.journal.UnderWay>}.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from rmqha.switchover.errors import ActFailed, Interrupted

NUMBER = "RMQHA_EPOCH"
"""The variable of the environment by which a command is told the number of the change."""

SHELL = 'echo $$ >"$0"; sh -c "$1"; exit'
"""Leaves its process id, and runs a command."""


class Act(Enum):
    """What is done by hand, or by the command that an option gives."""

    STOP = "--stop"
    PROMOTE = "--promote"
    FOLLOW = "--follow"
    RESTORE = "--restore"


class _Ended(ProcessProtocol):
    """Tells how a command ended; it writes where we write."""

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
    """Does it.

    @ivar commands: What to run in a shell for which act; the operator does the others.
    @ivar pid_file: Has the id of the last command's process.
    @ivar reactor: Starts processes.
    @ivar say: Tells the operator something.
    """

    commands: Mapping[Act, str]
    pid_file: Path
    reactor: Any
    say: Callable[[str], None]
    _running: str = field(default="", init=False)
    _interrupted: bool = field(default=False, init=False)

    def numbered(self, act: Act) -> bool:
        """Whether what does it is told the number of the change; a person is."""
        return NUMBER in self.commands.get(act, NUMBER)

    def do(self, act: Act, what: str, number: int) -> Deferred[bool]:
        """Have something done.

        @param what: It, as a person is told to do it.
        @param number: That of the change.
        @return: Whether a command did it; else somebody has been told to.  Fails with
            L{ActFailed}, and with L{Interrupted} once the command has ended.
        """
        command = self.commands.get(act)
        done: Deferred[None] = Deferred()
        if command is None:
            self.say(f"now you: {what}")
            done.callback(None)
        else:
            self.say(f"running {command}")
            self._running = command
            self.reactor.spawnProcess(
                _Ended(done, act.value),
                "setsid",
                ["setsid", "sh", "-c", SHELL, str(self.pid_file), command],
                env={**os.environ, NUMBER: str(number)},
                childFDs={0: 0, 1: 1, 2: 2},
            )
        return done.addBoth(self._ended).addCallback(lambda _: command is not None)

    def _ended(self, result: Failure | None) -> Failure | None:
        self._running = ""
        return Failure(Interrupted()) if self._interrupted and result is None else result

    def interrupt(self) -> bool:
        """Somebody wants to end this.

        @return: Whether nothing is to be waited for: no command runs, or it is to be left.
        """
        if not self._running:
            return True
        if self._interrupted:
            self.say(f"left running: {self._running}")
            return True
        self._interrupted = True
        self.say(f"waiting for the end of {self._running}; Ctrl-C again leaves it running")
        return False

    async def busy(self) -> str:
        """Whether a command still runs that somebody began, in words."""
        try:
            pid = int(self.pid_file.read_text(encoding="ascii"))
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return ""
        ours = os.fsencode(self.pid_file) in line
        return f"process {pid} still runs" if ours else ""

    def leave(self) -> None:
        self.pid_file.unlink(missing_ok=True)
