"""Figures without a screen, and how they become files.

What draws needs matplotlib, from the extra C{plots}.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqha.errors import ExtraMissing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, BAD, WEAK = "#7aa6c2", "#c8102e", "#d8dde0"
"""Colours: plain, at fault, in the background."""

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
