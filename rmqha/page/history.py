"""The last quarter of an hour of a node, for the plots of its page.

Source: docs/guide/page.rst.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime

from rmqha.nodes.facts import lag_of
from rmqha.nodes.summary import Status
from rmqha.page.told import Series
from rmqha.periodic import Watch

STEP = 5.0
"""Seconds between two looks at the status."""

SPAN = 900.0
"""Seconds that are kept."""

MOST = int(SPAN / STEP) + 1
"""Looks that are kept."""


@frozen
class Measure:
    """A number that is plotted.

    @ivar read: Takes it from a status; C{None} where there is none.
    @ivar rate: Whether it only grows, and how much of it came in a second is plotted.
    """

    name: str
    unit: str
    read: Callable[[Status], float | None]
    rate: bool = False


def _writes(status: Status) -> float | None:
    return sum(status["writes"].values()) if "writes" in status else None


def _received(status: Status) -> float | None:
    found: float | None = (status.get("upstream") or {}).get("received")
    return found


MEASURES = (
    Measure("lag", "s", lambda status: lag_of(status)[0]),
    Measure("lag", "bytes", lambda status: lag_of(status)[1]),
    Measure("writes", "/s", _writes, rate=True),
    Measure("received", "bytes/s", _received, rate=True),
)
"""All of them; a node has those that its status tells."""


@define(eq=False)
class History(Watch):
    """Remembers what the status said.

    @ivar status: What it says now.
    @ivar now_ms: Milliseconds since 1970.
    """

    status: Callable[[], Status]
    clock: IReactorTime
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    # The time of a look, once as people know it and once by the clock, and what it saw.
    _looks: deque[tuple[int, float, tuple[float | None, ...]]] = field(
        factory=lambda: deque(maxlen=MOST), init=False
    )

    job = "remembering lag and rates"
    every = STEP
    at_once = True

    def look(self) -> None:
        """Remember what the status says now."""
        status = self.status()
        values = tuple(measure.read(status) for measure in MEASURES)
        self._looks.append((self.now_ms(), self.clock.seconds(), values))

    def times(self) -> tuple[int, ...]:
        """When it was looked, in milliseconds since 1970, oldest first."""
        return tuple(when for when, _, _ in self._looks)

    def series(self) -> tuple[Series, ...]:
        """What there was at those times, of each measure that there was at any."""
        found = []
        for index, measure in enumerate(MEASURES):
            values = [row[index] for _, _, row in self._looks]
            if any(value is not None for value in values):
                shown = self._rates(values) if measure.rate else values
                found.append(Series(name=measure.name, unit=measure.unit, values=tuple(shown)))
        return tuple(found)

    def _rates(self, totals: list[float | None]) -> list[float | None]:
        """How much came in a second; C{None} at first, and where counting began anew."""
        found: list[float | None] = [None]
        clock = [seconds for _, seconds, _ in self._looks]
        for (before, total), (began, ended) in zip(pairwise(totals), pairwise(clock), strict=True):
            known = before is not None and total is not None and total >= before and ended > began
            found.append((total - before) / (ended - began) if known else None)  # type: ignore[operator]
        return found
