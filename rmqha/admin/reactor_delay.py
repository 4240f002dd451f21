"""How late the reactor is: what waits for a turn waits as long, clients and replicas first of all.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmqha.durations import Durations
from rmqha.periodic import cancelled

LOOK = 0.25
"""Seconds between two looks; a turn that takes longer is always seen."""


@define(eq=False)
class ReactorDelay:
    """Asks to be called at a time, and measures how much later that is.

    @ivar late: By how much.
    """

    clock: IReactorTime
    late: Durations = field(factory=Durations, init=False)
    _next: IDelayedCall | None = field(default=None, init=False)
    _due: float = field(default=0.0, init=False)

    def start(self) -> None:
        """Measure from now on."""
        self._due = self.clock.seconds() + LOOK
        self._next = self.clock.callLater(LOOK, self._called)

    def stop(self) -> None:
        self._next = cancelled(self._next)

    def _called(self) -> None:
        self.late.add(max(0.0, self.clock.seconds() - self._due))
        self.start()
