"""Why a node is not well, in one form, whoever noticed it.

There is no list that parts would have to join and leave: whoever can notice something gives it
in C{health()}, and a node's reasons are those of its parts, as they are at that moment.  So what
is mended is gone from C{/healthz} with the next question.  A C{health()} is asked every second:
it tells what is known already, and reads no file.

Source: docs/status.rst, Health.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Flag, auto

from attrs import field, frozen


class HealthProbe(Flag):
    """The questions that a monitor asks; a reason may make several be answered with no."""

    HEALTH = auto()
    """C{/healthz}: is there nothing that an operator would be called for?"""
    READY = auto()
    """C{/readyz}: would clients be served here as the role promises?"""
    LIVE = auto()
    """C{/livez}: is there nothing that a restart mends by itself?  One that is C{failed} is
    alive: what its disk has lost is for an operator to say."""


@frozen
class HealthReason:
    """One thing that is wrong.

    @ivar name: What it is, as alarms and log lines name it; it has no numbers in it, and stays
        the same as long as the thing is wrong.
    @ivar text: How it is wrong, with the numbers.
    @ivar fails: The probes that it makes fail.
    @ivar told: Whether whoever noticed it logs when it begins and when it ends.
    """

    name: str
    text: str
    fails: HealthProbe = field(default=HealthProbe.HEALTH, kw_only=True)
    told: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.name}: {self.text}".removesuffix(": ")


def failing(reasons: Iterable[HealthReason], probe: HealthProbe) -> list[HealthReason]:
    """Those that make one probe fail."""
    return [reason for reason in reasons if probe in reason.fails]
