"""What a metric is: its name, its unit, and what tells its samples apart.

Every metric there is stands in one list of its module, from which the guide's page is made, so
none can be exposed that is not described there.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from attrs import frozen

from rmqha.durations import Durations


class MetricType(StrEnum):
    """The types of metrics that Prometheus knows, of those there are here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@frozen
class Family:
    """A metric.

    @ivar name: As monitors see it; a counter's ends in C{_total}.
    @ivar unit: C{seconds}, C{bytes}, C{messages}, ...; C{1} for a yes or no.
    @ivar text: What it tells, for the guide and for C{# HELP}.
    @ivar labels: The names of what tells its samples apart, besides the node's own.
    """

    name: str
    type: MetricType
    unit: str
    text: str
    labels: tuple[str, ...] = ()


@frozen
class Buckets:
    """The value of a histogram.

    @ivar bounds: Upper bounds, ascending, in the metric's unit.
    @ivar counts: How many are not above each, and in the end how many there are.
    @ivar total: All of them together, in the metric's unit.
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float

    @classmethod
    def of(cls, took: Durations, bounds: Sequence[float], unit: float = 1.0) -> Buckets:
        """Those of durations.

        @param bounds: In seconds, as L{Durations.up_to} takes them.
        @param unit: How many of the metric's unit a second has.
        """
        return cls([bound * unit for bound in bounds], took.up_to(bounds), took.total * unit)


Sample = tuple[Family, tuple[str, ...], float | Buckets]
"""A metric, the values of its labels, and its value."""
