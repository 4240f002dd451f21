"""How long things take, as administrators and monitors are shown it.

Source: docs/protocol/remoting.md, Runtime information; docs/guide/metrics.rst.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from attrs import define, field

SHOWN = (
    (0.001, "<=0ms"),
    (0.010, "0~10ms"),
    (0.050, "10~50ms"),
    (0.100, "50~100ms"),
    (0.200, "100~200ms"),
    (0.500, "200~500ms"),
    (1.0, "500ms~1s"),
    (2.0, "1~2s"),
    (3.0, "2~3s"),
    (4.0, "3~4s"),
    (5.0, "4~5s"),
    (10.0, "5~10s"),
    (float("inf"), "10s~"),
)
"""The classes of a distribution: below how many seconds, and their names."""

BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""What durations are shown by that have no classes of their own, in seconds."""

RPC_BOUNDS = (0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0)
"""What RocketMQ 5.x shows the time of requests by."""

CREATE_BOUNDS = (0.01, 0.1, 1.0, 3.0, 5.0)
"""What it shows the time of creating topics and groups by."""

FINISH_BOUNDS = (5.0, 60.0, 600.0, 3600.0, 43_200.0, 86_400.0)
"""What it shows the time of transactions by."""

_FINE = tuple(0.000_010 * 2 ** (step / 4) for step in range(90))
_BOUNDS = *BOUNDS, *RPC_BOUNDS, *CREATE_BOUNDS, *FINISH_BOUNDS
_EDGES = tuple(sorted({*_FINE, *_BOUNDS, *(edge for edge, _ in SHOWN)}))

SPAN = 60.0
"""Seconds after which what is shown begins anew; the span before stays in it."""


@define(eq=False)
class Durations:
    """How long something took, in seconds: lately, and since the start.

    @ivar longest: Since the start.
    @ivar total: All of it together, since the start.
    """

    longest: float = 0.0
    total: float = field(init=False, default=0.0)
    _now: list[int] = field(init=False, factory=lambda: [0] * len(_EDGES))
    _before: list[int] = field(init=False, factory=lambda: [0] * len(_EDGES))
    _older: list[int] = field(init=False, factory=lambda: [0] * len(_EDGES))
    _began: float | None = field(init=False, default=None)

    def add(self, seconds: float, count: int = 1) -> None:
        """It took so long once, or for several together."""
        self._now[bisect_left(_EDGES, seconds)] += count
        self.total += seconds * count
        if seconds > self.longest:
            self.longest = seconds

    @classmethod
    def merged(cls, each: Iterable[Durations]) -> Durations:
        """Several as if they had been one."""
        whole = cls()
        for one in each:
            whole.longest = max(whole.longest, one.longest)
            whole.total += one.total
            whole._now = _sums(whole._now, one._now)
            whole._before = _sums(whole._before, one._before)
            whole._older = _sums(whole._older, one._older)
        return whole

    @property
    def count(self) -> int:
        """How many there were since the start."""
        return sum(self._now) + sum(self._before) + sum(self._older)

    def tick(self, now: float) -> None:
        """Begin a new span, if it is time.

        @param now: In the clock's seconds.
        """
        if self._began is None or now - self._began >= SPAN:
            self._began = now
            self._older = _sums(self._older, self._before)
            self._before, self._now = self._now, [0] * len(_EDGES)

    def _counts(self) -> list[int]:
        return _sums(self._now, self._before)

    def up_to(self, bounds: Sequence[float]) -> list[int]:
        """How many took no longer than each of some bounds, since the start.

        @param bounds: In seconds, ascending, as some are here: L{BOUNDS}, L{RPC_BOUNDS}, ...
        @return: As many, and in the end how many there were at all.
        """
        sums = list(accumulate(_sums(self._older, self._counts())))
        return [sums[_EDGES.index(bound)] for bound in bounds] + [sums[-1]]

    def below(self, share: float) -> float:
        """What a share of all was not longer than, to a fifth of it; 0 if there was nothing.

        @param share: 0.99 for all but the slowest hundredth.
        """
        counts = self._counts()
        wanted = share * sum(counts)
        seen = 0
        for edge, count in zip(_EDGES, counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return min(edge, self.longest)
        return 0.0

    def distribution(self) -> str:
        """How many were in each class, as stock brokers write it."""
        counts = self._counts()
        text, at = "", 0
        for edge, name in SHOWN:
            end = _EDGES.index(edge) + 1
            text += f"[{name}]:{sum(counts[at:end])} "
            at = end
        return text


def _sums(some: list[int], more: list[int]) -> list[int]:
    return [one + other for one, other in zip(some, more, strict=True)]
