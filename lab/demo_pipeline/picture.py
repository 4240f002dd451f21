"""A picture of it: what was stored when, and when it was in the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.pipeline.jobs.stats.stats_plots import SERIES, blank, save

if TYPE_CHECKING:
    from lab.demo_pipeline.report import Facts

OURS, BAD = "#7aa6c2", "#c8102e"
"""Colours: plain, and at fault."""

WIDTH = 0.5
"""Seconds of a bar."""


def draw(facts: Facts, rows: pa.Table, path: Path) -> None:
    """Write the picture of rows with C{topic}, C{store_timestamp} and C{physical_offset}."""
    millis = pc.divide(pc.cast(rows["store_timestamp"], pa.int64()), 1000).to_numpy()
    times, topics = millis / 1000, np.array(rows["topic"].to_pylist())
    offsets = rows["physical_offset"].to_numpy()
    begun = times.min()
    edges = np.arange(0, times.max() - begun + WIDTH, WIDTH)
    figure = blank(9, 6)
    rates, reach = figure.subplots(2, 1, sharex=True)
    names = sorted(set(topics.tolist()))
    counts = [np.histogram(times[topics == name] - begun, edges)[0] / WIDTH for name in names]
    rates.stackplot(edges[:-1], counts, labels=names, colors=SERIES, step="post")
    rates.set_ylabel("messages a second, by store time")
    order = np.argsort(offsets)
    reach.plot(times[order] - begun, offsets[order] / 1e6, color=OURS, label="in the log")
    done = [(when - begun, end / 1e6) for when, end in facts.commits]
    reach.step(*zip(*done, strict=True), where="post", color=SERIES[1], label="in the table")
    reach.set_ylabel("MB of the log")
    reach.set_xlabel("seconds")
    for axes in (rates, reach):
        axes.axvspan(
            facts.killed - begun, facts.back - begun, color=BAD, alpha=0.15, label="no master"
        )
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False)
    save(figure, path)
