"""The reactor of a node: Twisted's own for epoll, without a log context around each event.

Twisted calls what is ready in a context that tells its legacy log which connection is at work.
Nothing of ours asks for it, and it costs each event some five calls: a twentieth of the processor
time of a pair that is written to, more of a slave that gets one message at a time.

Source: docs/architecture.rst, The write lane.
"""

from __future__ import annotations

import sys

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor
from twisted.python import log


class LeanReactor(EPollReactor):
    """Wait by epoll, and call what is ready as it is."""

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events, and serve them.

        @param timeout: Seconds to wait at most; C{None} is for ever.
        """
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

    doIteration = doPoll


def install() -> None:
    """Have this process's reactor be one, unless another was chosen before (C{twistd
    --reactor}).
    """
    if "twisted.internet.reactor" not in sys.modules:
        installReactor(LeanReactor())  # type: ignore[no-untyped-call]
