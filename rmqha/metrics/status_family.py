"""Metrics that C{/status} has already: each says which field it is, and how it is read there.

A field that a node does not have, or that is C{null}, gives no sample.

Source: docs/guide/metrics.rst; docs/status.rst, Status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from attrs import frozen

from rmqha.metrics.family import Family, MetricType

Status = Mapping[str, Any]
Found = Iterable[tuple[tuple[str, ...], Any]]
Read = Callable[[Status], Found]

MILLIS = 0.001
"""Seconds in the unit of some fields."""


@frozen
class StatusFamily(Family):
    """A metric that is a field of the status, or several.

    @ivar read: Gives label values and value of each sample.
    @ivar field: The field, for the guide.
    """

    read: Read = lambda status: ()
    field: str = ""


def gauge(
    name: str, unit: str, text: str, field: str, read: Read | None = None, *labels: str
) -> StatusFamily:
    """A number that goes up and down.

    @param read: By default the field is the number.
    """
    return StatusFamily(
        f"rmqha_{name}", MetricType.GAUGE, unit, text, labels, read or at(field), field
    )


def counter(
    name: str, unit: str, text: str, field: str, read: Read | None = None, *labels: str
) -> StatusFamily:
    """A number that only grows while the process runs.

    @param read: By default the field is the number.
    """
    name = f"rmqha_{name}_total"
    return StatusFamily(name, MetricType.COUNTER, unit, text, labels, read or at(field), field)


# --- how a field is read --------------------------------------------------------------------


def get(status: Any, path: str) -> Any:
    """What stands in a field, by its path with dots; C{None} if it is not there."""
    for name in path.split("."):
        status = status.get(name) if isinstance(status, Mapping) else None
    return status


def at(path: str, unit: float = 1) -> Read:
    """One number."""

    def read(status: Status) -> Found:
        value = get(status, path)
        yield (), None if value is None else value * unit

    return read


def yes(path: str) -> Read:
    """1 if there is something in the field, 0 if it is empty; nothing without the field."""
    above, _, name = path.rpartition(".")

    def read(status: Status) -> Found:
        holder = get(status, above) if above else status
        if isinstance(holder, Mapping) and name in holder:
            yield (), bool(holder[name])

    return read


def one_of(path: str, states: Iterable[Enum]) -> Read:
    """1 for the state there is, 0 for all others."""
    names = [str(state.value) for state in states]

    def read(status: Status) -> Found:
        now = get(status, path)
        return () if now is None else (((name,), now == name) for name in names)

    return read


def each(path: str, value: str, *labels: str, unit: float = 1) -> Read:
    """A number of each row."""

    def read(status: Status) -> Found:
        for row in get(status, path) or ():
            number = row.get(value)
            yield labels_of(row, labels), None if number is None else number * unit

    return read


def labels_of(row: Status, names: Iterable[str]) -> tuple[str, ...]:
    """Some fields of a row, as labels."""
    return tuple(str(row.get(name)) for name in names)


def counted(path: str) -> Read:
    """A number of each name in a table."""
    return lambda status: (((name,), n) for name, n in (get(status, path) or {}).items())


def length(path: str) -> Read:
    """How many rows there are."""

    def read(status: Status) -> Found:
        rows = get(status, path)
        yield (), None if rows is None else len(rows)

    return read
