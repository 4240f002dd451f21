"""What garbage collection need not look at: all that a node has made until it serves.

Now and then Python's collector looks at every container there is.  A master that has just started
has 86,000, and its topics and queues: 25 ms and more in which nobody is
answered; of 80,000 queues it was 113.  Modules, tables and the node's parts stay as long as it
does.  So nothing is collected before it serves; then they are set aside (C{gc.freeze}), and a
full collection looks at what came since.

The thresholds stay Python's own.  What serves messages makes hardly any cycles: there is one young
collection in 10,000 messages, of a tenth of a millisecond.
"""

from __future__ import annotations

import gc

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmqha.periodic import cancelled

HELD_OFF = 60.0
"""Most seconds without collections: a node may wait for others much longer before it serves."""

QUIET = 10.0
"""Seconds after a change until what is left of the time before is looked for."""


@define(eq=False)
class SetAside:
    """Holds collections off, and sets aside what there is each time that a node begins to serve.

    Nothing is collected the first time: with very many queues that would be the very pause that is
    to be spared.  Cycles among what is set aside are never found again; so when a store was
    closed and another one is served, as after a repair, everything is looked at once, a while
    later.  That takes a tenth of a second and more: no sender is to wait for it, so who takes
    writes leaves it to the time when it takes none.
    """

    _clock: IReactorTime
    _before: bool = field(default=False, init=False)
    _looking: IDelayedCall | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        gc.disable()
        self._clock.callLater(HELD_OFF, gc.enable)

    def __call__(self, *, writes: bool = False) -> None:
        """Set aside what there is.

        @param writes: Whether writes are taken from now on.
        """
        self._looking = cancelled(self._looking)
        if self._before and not writes:
            self._looking = self._clock.callLater(QUIET, self._look)
        self._before = True
        gc.freeze()
        gc.enable()

    def _look(self) -> None:
        self._looking = None
        gc.unfreeze()
        gc.collect()
        gc.freeze()
