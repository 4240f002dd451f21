"""Plots of what a log holds, without a screen.  They need matplotlib, from the extra C{plots}.

Source: docs/guide/jobs.rst, Stats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rmqha.errors import ExtraMissing
from rmqha.pipeline.jobs.stats.stats import Stats
from rmqha.pipeline.jobs.stats.tally import middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHERS = "others"
"""What topics beyond the colours are called together."""

WEAK = "#d8dde0"
"""The colour of what stands in the background."""

SERIES = ("#2b6a8f", "#d98324", "#5b8c5a", "#8e5572", "#c8a13a", "#4c4c6d", "#a23b3b", "#3b8ea5")
"""Colours of things side by side."""


def require(what: str) -> None:
    """Fail early when nothing can be drawn.

    @param what: What wants a picture.
    @raise ExtraMissing: If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ExtraMissing(what, "plots", "matplotlib") from error


def blank(width: float, height: float) -> Figure:
    """An empty figure.

    @param width: In inches, as the height.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG.

    @return: Where it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=120, metadata={"Software": None})
    return path


def plots(found: Stats, folder: Path) -> list[Path]:
    """Draw rates, sizes and delays.

    @return: The files, PNG.
    """
    figures = {
        "messages": _over_time(found, "messages a second", 1),
        "bytes": _over_time(found, "MiB a second", 1 << 20),
        "sizes": _shares(found, found.sizes, "bytes of a body"),
        "delays": _shares(found, found.delays, "milliseconds from birth to store"),
    }
    return [save(figure, folder / f"{name}.png") for name, figure in figures.items()]


def _names(found: Stats) -> dict[str, str]:
    """The name in the legend of each topic."""
    shown = {each.topic for each in found.topics[: len(SERIES)]}
    return {each.topic: each.topic if each.topic in shown else OTHERS for each in found.topics}


def _colours(names: Iterable[str]) -> dict[str, str]:
    plain = [name for name in dict.fromkeys(names) if name != OTHERS]
    return {**dict(zip(plain, SERIES, strict=False)), OTHERS: WEAK}


def _over_time(found: Stats, label: str, unit: int) -> Figure:
    """Rates by topic, one on top of the other; steps without messages are zeros."""
    names = _names(found)
    rates: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for step in found.steps:
        amount = step.messages if unit == 1 else step.bytes
        rates[names[step.topic]][step.time] += amount / unit / (found.step / 1000)
    figure = blank(10, 4)
    axes = figure.subplots()
    if found.steps:
        times = range(found.steps[0].time, found.steps[-1].time + found.step, found.step)
        dates = [datetime.fromtimestamp(time / 1000, UTC) for time in times]
        below = [0.0] * len(dates)
        width = found.step / 86_400_000
        for name, colour in _colours(names.values()).items():
            if name in rates:
                heights = [rates[name][time] for time in times]
                axes.bar(dates, heights, width, below, align="edge", color=colour, label=name)  # type: ignore[arg-type]
                below = [low + height for low, height in zip(below, heights, strict=True)]
        _legend(axes)
    axes.set_ylabel(label)
    axes.set_xlabel("store time, UTC")
    figure.autofmt_xdate(rotation=30)
    _plain(axes)
    return figure


def _shares(found: Stats, counts: dict[str, dict[int, int]], label: str) -> Figure:
    """Which part of a topic's messages is not above a number."""
    figure = blank(10, 4)
    axes = figure.subplots()
    shown = [each.topic for each in found.topics[: len(SERIES)]]
    for topic, colour in zip(shown, SERIES, strict=False):
        total = sum(counts[topic].values())
        seen, places, parts = 0, [], []
        for bucket in sorted(counts[topic]):
            seen += counts[topic][bucket]
            places.append(middle(bucket))
            parts.append(100 * seen / total)
        axes.step(places, parts, where="post", color=colour, label=topic)
        axes.plot(places[:1], parts[:1], ".", color=colour)
    if shown:
        _legend(axes)
    axes.set_xscale("symlog", linthresh=10)
    axes.set_ylim(0, 102)
    axes.set_xlabel(label)
    axes.set_ylabel("% of the topic's messages")
    _plain(axes)
    return figure


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend(axes: Axes) -> None:
    """Above the plot, where nothing is drawn."""
    axes.legend(
        fontsize=8, frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), borderpad=0
    )
