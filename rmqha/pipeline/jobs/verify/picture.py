"""
A picture of where copies of a log differ: a strip of the log for each copy, and the records
around the first places.

Source: docs/guide/jobs.rst, Verify.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqha.pipeline.jobs.plots import ACCENT, BAD, OURS, WEAK, blank
from rmqha.pipeline.jobs.verify.findings import ByteDifference, ComparisonReport, RecordDifference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLOSE_UPS = 3
"""Differences that are shown with their records."""

_VISIBLE = 0.004
"""Least width of a difference, as a part of the strip."""

_MARGIN = 0.15
"""What is shown around a difference, as a part of it."""

_KINDS = {"differs": "#e0a030", "damaged": BAD, "missing": "#ffffff", "no record": "#9a9a9a"}


def picture(report: ComparisonReport) -> Figure:
    """
    Draw the picture of a comparison's report.
    """
    shown = report.differences[:CLOSE_UPS]
    strips = 0.55 * len(report.copies) + 0.9
    figure = blank(10, strips + 1.1 * len(shown))
    grid = figure.add_gridspec(1 + len(shown), 1, height_ratios=[strips, *[1.1] * len(shown)])
    _strips(figure.add_subplot(grid[0]), report)
    for row, difference in enumerate(shown, 1):
        _close_up(figure.add_subplot(grid[row]), report, difference)
    return figure


def _strips(axes: Axes, report: ComparisonReport) -> None:
    start = min(copy.first for copy in report.copies)
    end = max(copy.end for copy in report.copies)
    scale, unit = _unit(end - start)
    least = max(1.0, (end - start) * _VISIBLE)
    names = [copy.name for copy in report.copies]
    for row, copy in enumerate(report.copies):
        _bar(axes, row, copy.first, copy.end, scale, WEAK)
        low, high = max(report.low, copy.first), min(report.high, copy.end)
        _bar(axes, row, low, high, scale, OURS)
        if copy.end < end:
            _bar(axes, row, copy.end, end, scale, "none", edgecolor=ACCENT, linestyle=":")
    for skipped in report.skipped:
        row = names.index(skipped.store)
        _bar(axes, row, skipped.start, skipped.end, scale, WEAK, hatch="////", edgecolor="white")
    for found in report.differences:
        row = names.index(found.store)
        _bar(axes, row, found.start, max(found.end, found.start + least), scale, BAD)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(f"physical offset, {unit}")
    axes.set_xlim(start / scale, max(end, start + 1) / scale)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _bar(
    axes: Axes, row: int, start: float, end: float, scale: int, colour: str, **more: Any
) -> None:
    if start < end:
        axes.barh(row, (end - start) / scale, 0.6, start / scale, facecolor=colour, **more)


def _close_up(axes: Axes, report: ComparisonReport, difference: ByteDifference) -> None:
    """
    The records of one difference, each as long as it is.
    """
    records = [each for each in report.records if _meets(each, difference)]
    start = min([difference.start, *(each.offset for each in records)])
    end = max([difference.end, *(each.offset + each.size for each in records)])
    margin = max(8, (end - start) * _MARGIN)
    for each in records:
        axes.barh(
            0, each.size, 0.7, each.offset, facecolor=_KINDS[each.kind], edgecolor="black", lw=0.6
        )
    least = (end - start + 2 * margin) * _VISIBLE
    axes.barh(
        0.55, max(difference.end - difference.start, least), 0.2, difference.start, facecolor=BAD
    )
    axes.set_xlim(start - margin, end + margin)
    axes.set_ylim(-0.5, 0.8)
    axes.set_yticks([0, 0.55], ["records", "bytes"])
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    axes.locator_params(axis="x", nbins=6)
    kinds = sorted({each.kind for each in records})
    count = f"{len(records)} record{'s' if len(records) > 1 else ''}"
    what = f"{count}: {', '.join(kinds)}" if records else "records not looked for"
    title = f"{difference.store} from byte {difference.start} to {difference.end}: {what}"
    axes.set_title(title, fontsize=9, loc="left")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _meets(record: RecordDifference, difference: ByteDifference) -> bool:
    return (
        record.store == difference.store
        and record.offset < difference.end
        and difference.start < record.offset + record.size
    )


def _unit(size: int) -> tuple[int, str]:
    """
    The unit in which some bytes are a number one can read.
    """
    for shift, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return 1 << shift, name
    return 1, "bytes"
