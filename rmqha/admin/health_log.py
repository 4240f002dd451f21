"""The log's view of a node's health: one line when something goes wrong, one when it is well again.

What lasts is told by C{/healthz} as often as somebody asks, so the log only has the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.health import HealthProbe, HealthReason, failing
from rmqha.periodic import Watch

LOOK = 1.0
"""Seconds between two looks; what lasts less may never be told."""


@define(eq=False)
class HealthLog(Watch):
    """Looks at a node's reasons, and logs each when it begins and when it has ended.

    @ivar reasons: What is wrong now.
    @ivar clock: Says how long it was wrong.
    """

    reasons: Callable[[], Iterable[HealthReason]]
    clock: IReactorTime
    _since: dict[str, float] = field(factory=dict, init=False)

    job = "looking at the node's health"
    every = LOOK
    at_once = True
    _log = Logger()

    def look(self) -> None:
        """Log what has changed since the last look."""
        now = self.clock.seconds()
        wrong = failing(self.reasons(), HealthProbe.HEALTH)
        for reason in wrong:
            if reason.told or reason.name in self._since:
                continue
            self._since[reason.name] = now
            self._log.warn("Unhealthy: {reason}", reason=str(reason))
        for name in self._since.keys() - {reason.name for reason in wrong}:
            self._log.info(
                "Healthy again: {name} is over after {seconds:.0f} s",
                name=name,
                seconds=now - self._since.pop(name),
            )
