"""Gathering what a monitor asks for, without keeping the reactor.

Samples are taken in slices of its turns, so that none is read while its part is being changed;
their text is made in a thread.

Samples as Prometheus' text format, version 0.0.4.

prometheus_client writes it too, and tells of the process here; for its eight microseconds a
sample a broker of a thousand topics would hold the interpreter for a tenth of a second each time
it is looked at.  Blocking: this is for a thread.

Source: docs/guide/metrics.rst; prometheus.io, Exposition formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, Protocol

from attrs import define, field
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from twisted.internet.defer import Deferred

from rmqha.metrics.family import Buckets, Family, Sample
from rmqha.periodic import in_slices

_PROCESS = CollectorRegistry(auto_describe=False)
ProcessCollector(registry=_PROCESS)
GCCollector(registry=_PROCESS)


def text_of(samples: Iterable[Sample], node: Mapping[str, str]) -> bytes:
    """Everything a monitor is told.

    @param node: Labels that every sample of ours has.
    """
    rows: dict[str, _Rows] = {}
    told: dict[tuple[str, ...], _Told] = {}
    for family, labels, value in samples:
        found = rows.get(family.name)
        if found is None:
            names = told.setdefault(family.labels, {})
            found = rows[family.name] = _Rows(family, node, names)
        found.add(labels, value)
    own = "".join(line for each in rows.values() for line in each.lines)
    return own.encode() + generate_latest(_PROCESS)


_Told = dict[tuple[str, ...], str]
"""
Labels as they are written, by their values: metrics that are told apart by the same labels have
them in common.
"""


class _Rows:
    """The lines of one metric."""

    def __init__(self, family: Family, node: Mapping[str, str], told: _Told) -> None:
        self.lines = [
            f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.type.value}\n"
        ]
        self._name = family.name
        always = [f'{name}="{_escaped(value)}"'.replace("%", "%%") for name, value in node.items()]
        self._labels = ",".join([*always, *(f'{name}="%s"' for name in family.labels)])
        self._told = told

    def add(self, labels: tuple[str, ...], value: float | Buckets) -> None:
        told = self._told.get(labels)
        if told is None:
            told = self._told[labels] = self._labels % tuple(map(_escaped, labels))
        if not isinstance(value, Buckets):
            self.lines.append(f"{self._name}{{{told}}} {number(value)}\n")
            return
        before = f"{told}," if told else ""
        for bound, count in zip((*value.bounds, inf), value.counts, strict=True):
            self.lines.append(f'{self._name}_bucket{{{before}le="{number(bound)}"}} {count}\n')
        self.lines.append(f"{self._name}_sum{{{told}}} {number(value.total)}\n")
        self.lines.append(f"{self._name}_count{{{told}}} {value.counts[-1]}\n")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """A number as Prometheus reads it."""
    if type(value) is int:
        return str(value)
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


class Node(Protocol):
    """A node as what it has to tell monitors.

    @ivar reactor: Gives turns.
    """

    reactor: Any

    def looked(self) -> Deferred[None]:
        """Look at what may take a moment; never fails."""

    def samples(self) -> Iterator[Sample | None]:
        """All there is; C{None} where a turn may end."""

    def metric_labels(self) -> dict[str, str]:
        """What tells this node's samples from others'."""


@define(eq=False)
class Scrape:
    """Makes the text for those that ask; who asks while it is made gets the same.

    @ivar in_thread: Runs what blocks.
    """

    node: Node
    in_thread: Any
    _waiting: list[Deferred[bytes]] = field(factory=list, init=False)

    def text(self) -> Deferred[bytes]:
        """Ask for it.

        @return: Fails as reading a part did, such as one that is just being closed.
        """
        asked: Deferred[bytes] = Deferred()
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            Deferred.fromCoroutine(self._made()).addBoth(self._tell)
        return asked

    async def _made(self) -> bytes:
        await self.node.looked()
        rows: list[Sample] = []
        await in_slices(self.node.reactor, self._gathered(rows))
        text: bytes = await self.in_thread(text_of, rows, self.node.metric_labels())
        return text

    def _gathered(self, rows: list[Sample]) -> Iterator[None]:
        for sample in self.node.samples():
            if sample is not None:
                rows.append(sample)
            yield

    def _tell(self, result: Any) -> None:
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            asked.callback(result)
