"""Samples as Prometheus' text format, version 0.0.4.

prometheus_client writes it too, and tells of the process here; for its eight microseconds a
sample a broker of a thousand topics would hold the interpreter for a tenth of a second each time
it is looked at.  Blocking: this is for a thread.

Source: prometheus.io, Exposition formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

from rmqha.metrics.family import Buckets, Family, Sample

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
