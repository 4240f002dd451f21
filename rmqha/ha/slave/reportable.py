"""How much of its log a slave may say that it holds.

A master takes a report for an acknowledgement.  So what a slave reports decides what its answer
is worth: everything that was accepted, or only what is on the disk.  An archive's receiver that
is to acknowledge nothing cannot stay silent either, as both masters disconnect a slave without
reports, and ours keeps its files for it; so it reports late (L{ReportLate}).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from rmqha.store.log.commit_log import CommitLog

Reportable = Callable[[CommitLog], int]
"""Up to which physical offset a log may be reported as held, as far as its owner is concerned."""

GRAIN = 1.0
"""Least seconds between two places that L{ReportLate} remembers."""


def accepted_end(log: CommitLog) -> int:
    """All that was accepted (C{ASYNC_FLUSH})."""
    return log.end


def flushed_end(log: CommitLog) -> int:
    """What is on the disk (C{SYNC_FLUSH})."""
    return log.flushed


@define(eq=False)
class ReportLate:
    """What was on the disk a while ago.

    A write that is longer ago than a master's C{slaveTimeout} or C{syncFlushTimeout} was answered:
    a report that covers it acknowledges nothing any more.  A write is stored before it is sent, so
    what was here C{delay} seconds ago was written longer ago than that.

    @ivar clock: Its C{seconds} must not jump.
    @ivar delay: Seconds; more than any write waits at the master.
    @ivar settled: Up to where it is known to be as old, a physical offset.
    """

    clock: IReactorTime
    delay: float
    settled: int = 0
    _seen: deque[tuple[float, int]] = field(factory=deque, init=False)

    def __call__(self, log: CommitLog) -> int:
        now, held = self.clock.seconds(), min(log.confirmed, log.flushed)
        last, known = self._seen[-1] if self._seen else (now - GRAIN, self.settled)
        if held > known and now - last >= GRAIN:
            self._seen.append((now, held))
        while self._seen and now - self._seen[0][0] >= self.delay:
            self.settled = max(self.settled, self._seen.popleft()[1])
        return self.settled
