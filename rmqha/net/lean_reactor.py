"""The reactor of a node: Twisted's own for epoll, without a log context around each event.

Twisted calls what is ready in a context that tells its legacy log which connection is at work.
Nothing of ours asks for it, and it costs each event some five calls: a twentieth of the processor
time of a pair that is written to, more of a slave that gets one message at a time.

Source: docs/architecture.rst, The write lane.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IReactorTime
from twisted.internet.main import installReactor
from twisted.python import log


class LeanReactor(EPollReactor):
    """Wait by epoll, and call what is ready as it is.

    @ivar ends: What is called before it waits again, and before timers that are due.
    """

    def __init__(self) -> None:
        self.ends: list[Callable[[], object]] = []
        super().__init__()  # type: ignore[no-untyped-call]

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events, and serve them.

        @param timeout: Seconds to wait at most; C{None} is for ever.
        """
        if self.ends:
            self._end_turn()  # of timers
        selectables = self._selectables
        wait = -1 if timeout is None else timeout
        for descriptor, events in self._poller.poll(wait, len(selectables)):
            # One that was served before it may have closed it.
            selectable = selectables.get(descriptor)
            if selectable is not None:
                try:
                    self._doReadOrWrite(selectable, descriptor, events)  # type: ignore[no-untyped-call]
                except Exception:
                    # One that fails when it is told of its end; the others are served.
                    log.err()
        if self.ends:
            self._end_turn()

    doIteration = doPoll

    def _end_turn(self) -> None:
        ends, self.ends = self.ends, []
        for call in ends:
            try:
                call()
            except Exception:
                log.err()


def at_turn_end(clock: IReactorTime, call: Callable[[], object]) -> None:
    """Have something called when all that is ready now was served, at once then if a reactor can:
    timers that are due, such as dispatch, make it late.
    """
    if isinstance(clock, LeanReactor):
        clock.ends.append(call)
    else:
        clock.callLater(0, call)


def install() -> None:
    """Have this process's reactor be one, unless another was chosen before (C{twistd
    --reactor}).
    """
    if "twisted.internet.reactor" not in sys.modules:
        installReactor(LeanReactor())
