"""
What a measurement says: rows of one table.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from attrs import field, frozen


@frozen(kw_only=True)
class Row:
    """
    One measurement beside its alternative.

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
    """
    Median and range of several rounds.
    """
    form = ".0f" if max(values) >= 100 else ".2f" if max(values) < 10 else ".1f"
    middle, low, high = statistics.median(values), min(values), max(values)
    if len(values) == 1:
        return f"{middle:{form}} {unit}"
    return f"{middle:{form}} {unit} [{low:{form}}..{high:{form}}]"


def table(rows: Sequence[Row]) -> list[str]:
    """
    The rows as a Markdown table.
    """
    verdicts = {True: "yes", False: "**no**", None: ""}
    lines = ["| what | ours | beside it | ratio | goal | met |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = (row.what, row.ours, row.beside, row.ratio, row.goal, verdicts[row.met])
        lines.append("| " + " | ".join(cells) + " |")
    return lines
