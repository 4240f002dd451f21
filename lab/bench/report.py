"""What a measurement says: rows of one table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen


@frozen(kw_only=True)
class Row:
    """One measurement beside its alternative.

    @ivar what: What was measured.
    @ivar ours: Median and range.
    @ivar beside: The alternative's, measured in turn with ours.
    @ivar ratio: Ours to the alternative's.
    @ivar goal: What it should be.
    @ivar met: Whether it is; C{None} where there is no goal.
    @ivar notes: Lines below the table.
    """

    what: str
    ours: str
    beside: str = ""
    ratio: str = ""
    goal: str = ""
    met: bool | None = None
    notes: Sequence[str] = field(default=())


def spread(values: Sequence[float], unit: str) -> str:
    """Median and range of several rounds."""
    form = ".0f" if max(values) >= 100 else ".2f" if max(values) < 10 else ".1f"
    middle, low, high = statistics.median(values), min(values), max(values)
    if len(values) == 1:
        return f"{middle:{form}} {unit}"
    return f"{middle:{form}} {unit} [{low:{form}}..{high:{form}}]"


def limited(
    what: str, unit: str, values: Sequence[float], limit: float, *, least: bool = False, **more: Any
) -> Row:
    """A row whose median has a limit.

    @param least: Whether the limit is the least that it should be.
    @param more: Other fields of the row, or C{ours} if it says more than the values.
    """
    middle = statistics.median(values)
    return Row(
        what=what,
        **{"ours": spread(values, unit)} | more,
        goal=f"{'>=' if least else '<='} {limit:g} {unit}",
        met=middle >= limit if least else middle <= limit,
    )


def compared(
    what: str,
    unit: str,
    ours: Sequence[float],
    java: Sequence[float],
    goal: float | None,
    *,
    most: bool = False,
    beside: str = "stock pair",
    notes: Sequence[str] = (),
) -> Row:
    """A row of the medians of ours and of the stock alternative.

    @param goal: What the ratio should be at least.
    @param most: Whether it should be that at most.
    @param beside: The alternative's name.
    """
    ratio = statistics.median(ours) / statistics.median(java)
    met = None if goal is None else ratio <= goal if most else ratio >= goal
    return Row(
        what=what,
        ours=spread(ours, unit),
        beside=f"{beside} {spread(java, unit)}",
        ratio=f"{ratio:.2f}",
        goal="" if goal is None else f"{'<=' if most else '>='} {goal:g}x",
        met=met,
        notes=notes,
    )


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as a Markdown table."""
    verdicts = {True: "yes", False: "**no**", None: ""}
    lines = ["| what | ours | beside it | ratio | goal | met |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = (row.what, row.ours, row.beside, row.ratio, row.goal, verdicts[row.met])
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def page(command: str, facts: Sequence[str], rows: Sequence[Row], more: str) -> str:
    """A whole page of results.

    @param command: What C{make} was told.
    @param facts: Lines about the machine and the run.
    @param more: Markdown that follows.
    """
    notes = [note for row in rows for note in row.notes]
    missed = [row.what for row in rows if row.met is False]
    lines = [
        f"# Results of `make {command}`",
        "",
        f"Written by `make {command}`; do not edit. Ours and the alternative run in turn; a cell",
        "is the median of the rounds with the lowest and the highest. Only ratios can be compared",
        "between machines.",
        "",
        *(f"- {fact}" for fact in facts),
        "",
        *table(rows),
        "",
        *(f"- {note}" for note in notes),
        "",
        "Goals missed in this run: " + (", ".join(missed) or "none") + ".",
        "",
        more.rstrip(),
    ]
    return "\n".join(lines) + "\n"
