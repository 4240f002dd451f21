"""What is wrong with a node or a part of it, as one text to compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rmqha.health import HealthProbe, HealthReason, failing


class Judged(Protocol):
    """A node, a job, or another part that gives reasons."""

    def health(self) -> Iterator[HealthReason]:
        """What is wrong with it."""


def unhealthy(part: Judged, probe: HealthProbe = HealthProbe.HEALTH) -> str:
    """All that makes a probe fail; empty if nothing does."""
    return "; ".join(map(str, failing(part.health(), probe)))
