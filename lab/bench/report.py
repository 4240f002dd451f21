"""What a measurement says: lines of a page, with prose below them, and a line of each commit."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from attrs import frozen

RESULTS = Path(__file__).parent

RUNS = "\n## Runs\n\n"
"""What the lines of the commits stand below, at the page's end."""


@frozen(kw_only=True)
class Line:
    """One figure beside its alternative, medians and ranges; without a goal it is not C{met}."""

    what: str
    ours: str
    beside: str = ""
    ratio: str = ""
    goal: str = ""
    met: bool | None = None


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which so many lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def spread(values: Sequence[float], unit: str) -> str:
    """Median and range of several rounds."""
    form = ".0f" if max(values) >= 100 else ".2f" if max(values) < 10 else ".1f"
    shown = [f"{each:{form}}" for each in (statistics.median(values), min(values), max(values))]
    return f"{shown[0]} {unit}" + (f" [{shown[1]}..{shown[2]}]" if len(values) > 1 else "")


def table(lines: Sequence[Line]) -> list[str]:
    """The lines as a Markdown table."""
    verdicts = {True: "yes", False: "**no**", None: ""}
    rows = ["| what | ours | beside it | ratio | goal | met |", "|---|---|---|---|---|---|"]
    for line in lines:
        cells = (line.what, line.ours, line.beside, line.ratio, line.goal, verdicts[line.met])
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def missed(lines: Sequence[Line]) -> str:
    """Names of those whose goals are not met."""
    return ", ".join(line.what for line in lines if line.met is False) or "none"


def with_run(page: str, run: str, lines: Sequence[Line]) -> str:
    """A page with one more run at its end, a line with the ratios of all that have a goal; one of
    the same name goes.
    """
    above, _, runs = page.partition(RUNS)
    before = [line for line in runs.splitlines() if line and not line.startswith(f"- {run}:")]
    told = "; ".join(f"{line.what} {line.ratio or line.ours}" for line in lines if line.goal)
    return above.rstrip() + "\n" + RUNS + "\n".join([*before, f"- {run}: {told}"]) + "\n"


def page(command: str, facts: Sequence[str], lines: Sequence[Line], old: str, commit: str) -> str:
    """A whole page of results, with the prose and the runs of the page as it was."""
    old, _, runs = old.partition(RUNS)
    _, found, prose = old.partition("\n## ")
    text = [
        f"# Results of `make {command}`",
        "",
        f"Written by `make {command}` down to the next heading. Ours and the alternative run in",
        "turn; a cell is the median of the rounds with the lowest and the highest. Only ratios can",
        "be compared between machines.",
        "",
        *(f"- {fact}" for fact in facts),
        "",
        *table(lines),
        "",
        f"Goals missed in this run: {missed(lines)}.",
        found + prose,
    ]
    return with_run("\n".join(text) + RUNS + runs, commit, lines)


@cache
def commit() -> str:
    """What is measured: the commit that was checked out, before its page was written."""
    command = ["git", "describe", "--always", "--dirty"]
    said = subprocess.run(command, cwd=RESULTS, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "no commit"
