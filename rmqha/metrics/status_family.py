"""Metrics that C{/status} has already: each says which field it is, and how it is read there.

A field that a node does not have, or that is C{null}, gives no sample.

Source: docs/guide/metrics.rst; docs/status.rst, Status.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from attrs import frozen

from rmqha.metrics.family import Family, MetricType

Status = Mapping[str, Any]
Found = Iterable[tuple[tuple[str, ...], Any]]
Read = Callable[[Status, str], Found]
"""Gives label values and value of each sample in a field."""

MILLIS = 0.001
"""Seconds in the unit of some fields."""


@frozen
class StatusFamily(Family):
    """A metric that is a field of the status, or several.

    @ivar field: The field, for the guide.
    """

    read: Read = lambda status, field: ()
    field: str = ""


def at(status: Status, field: str) -> Found:
    """One number."""
    yield (), get(status, field)


_ROW = re.compile(
    r"(?P<kind>gauge|counter|flag) (?P<name>\w+)({(?P<labels>.+)})?(?P<unit> [a-z ]+)?"
    r" = (?P<field>.+?)( : (each\((?P<each>.+)\)(\.(?P<value>\w+))?|(?P<reader>[a-z ]+)))?"
)


def families(readers: Mapping[str, Read], table: str) -> Iterator[StatusFamily]:
    """Read a table of metrics, each of two lines: what it is and where it stands, and its text.

    The first line is C{gauge NAME UNIT = FIELD : READER}, or C{counter}, or C{flag} for a yes or
    no; labels stand in braces behind the name.  Without a unit it is the last word of the name,
    without a reader the field is one number.  C{each(NAMES).VALUE} reads a number of each row:
    L{each}.

    @param readers: All others, by the words of the table.
    """
    lines = [line.strip() for line in table.splitlines() if not line.startswith("#")]
    for line, text in zip(lines[::2], lines[1::2], strict=True):
        row = _ROW.fullmatch(line)
        assert row is not None, line
        kind = MetricType.COUNTER if row["kind"] == "counter" else MetricType.GAUGE
        name = f"rmqha_{row['name']}{'_total' if kind is MetricType.COUNTER else ''}"
        unit = (row["unit"] or row["name"].rpartition("_")[2]).strip()
        labels = tuple(row["labels"].split(",")) if row["labels"] else ()
        read = readers[row["reader"]] if row["reader"] else at
        if row["each"]:
            read = each(*row["each"].split(", "), value=row["value"] or "")
        unit = "1" if row["kind"] == "flag" else unit
        yield StatusFamily(name, kind, unit, text, labels, read, row["field"])


# --- how a field is read --------------------------------------------------------------------


def get(status: Any, path: str) -> Any:
    """What stands in a field, by its path with dots; C{None} if it is not there."""
    for name in path.split("."):
        status = status.get(name) if isinstance(status, Mapping) else None
    return status


def millis(status: Status, field: str) -> Found:
    """Seconds, of a number of milliseconds."""
    value = get(status, field)
    yield (), None if value is None else value * MILLIS


def yes(status: Status, field: str) -> Found:
    """1 if there is something in the field, 0 if it is empty; nothing without the field."""
    above, _, name = field.rpartition(".")
    holder = get(status, above) if above else status
    if isinstance(holder, Mapping) and name in holder:
        yield (), bool(holder[name])


def one_of(states: Iterable[Enum]) -> Read:
    """1 for the state there is, 0 for all others."""
    names = [str(state.value) for state in states]

    def read(status: Status, field: str) -> Found:
        now = get(status, field)
        return () if now is None else (((name,), now == name) for name in names)

    return read


def each(*labels: str, value: str = "") -> Read:
    """A number of each row.

    @param value: Its name there, if that is not the last of the field's.
    """

    def read(status: Status, field: str) -> Found:
        rows, _, name = (field, "", value) if value else field.rpartition(".")
        for row in get(status, rows) or ():
            yield labels_of(row, labels), row.get(name)

    return read


def labels_of(row: Status, names: Iterable[str]) -> tuple[str, ...]:
    """Some fields of a row, as labels."""
    return tuple(str(row.get(name)) for name in names)


def each_name(value: Callable[[Any], Any]) -> Read:
    """A number made of what stands behind each name in a table."""
    return lambda status, field: (
        ((name,), value(row)) for name, row in (get(status, field) or {}).items()
    )


def counted(status: Status, field: str) -> Found:
    """A number of each name in a table."""
    return (((name,), n) for name, n in (get(status, field) or {}).items())


def length(status: Status, field: str) -> Found:
    """How many rows there are."""
    rows = get(status, field)
    yield (), None if rows is None else len(rows)
