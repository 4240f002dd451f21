"""How the replicas are doing, for C{/status} and for people.

Lag in seconds is the age of the oldest byte a replica has not acknowledged.  The log
itself does not tell when a byte was written here, so a L{Timeline} remembers where its
end was and when.

Source: docs/states.rst, Replicas of a master.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from typing import Any

from attrs import define, field, frozen


class ReplicaState(StrEnum):
    """The states of a replica as its master sees it.

    C{waiting}: connected, has not reported yet.  C{feeding}: it is sent what it lacks.
    C{in-sync}: it acknowledged everything that is older than a second.  C{ahead},
    C{unproven}, C{below-min}: its first report could not be right, it was closed.
    C{lost}: the log it needs was deleted, it was closed.
    """

    WAITING = "waiting"
    FEEDING = "feeding"
    IN_SYNC = "in-sync"
    AHEAD = "ahead"
    UNPROVEN = "unproven"
    BELOW_MIN = "below-min"
    LOST = "lost"


IN_SYNC_WITHIN = 1.0
"""
Lag in seconds below which a replica is called in-sync; under load it is never 0.
"""


@frozen(kw_only=True)
class ReplicaView:
    """One row of the status.

    @ivar address: Host and port of its connection, or its host when it has none.
    @ivar sent: Just past what its connection was sent, in bytes; C{None} before its
        first report.
    @ivar acked: Its newest report, in bytes.
    @ivar lag_bytes: What it lacks.
    @ivar lag_seconds: Age of the oldest byte it lacks, 0.0 when it lacks none; at least
        so much when that byte was there before this run began.
    @ivar speed: Bytes that it was sent in the last second.
    @ivar connections: Those that count as one replica with it now, by C{haReplicaIdentity}.
    @ivar detail: What is wrong, with the numbers; C{""} for nothing.
    """

    address: str
    state: ReplicaState
    sent: int | None = None
    acked: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    speed: int = 0
    connections: int = 0
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """The row by its names in C{/status}."""
        return {
            "address": self.address,
            "state": self.state,
            "sent": self.sent,
            "acked": self.acked,
            "lagBytes": self.lag_bytes,
            "lagSeconds": self.lag_seconds,
            "connections": self.connections,
            "detail": self.detail,
        }


STEP = 0.25
"""
Least seconds between two points of a timeline, and so its error.
"""

MOST_POINTS = 4096
"""
Beyond it the older half keeps every other point.
"""


@define(eq=False)
class Timeline:
    """Where the end of a log was, and when.

    @ivar _ends: Offsets, ascending; the log's end was first seen at or above each...
    @ivar _times: ... at this time, in the clock's seconds.
    """

    _ends: list[int] = field(factory=list)
    _times: list[float] = field(factory=list)

    def note(self, end: int, now: float) -> None:
        """The log ends at C{end} now.  Call it at every append, and once a second besides:
        an append within L{STEP} of the one before is told by the next call.
        """
        times = self._times
        if times and (now - times[-1] < STEP or end <= self._ends[-1]):
            return
        self._ends.append(end)
        times.append(now)
        if len(times) > MOST_POINTS:
            half = MOST_POINTS // 2
            # Two become one, its end the later and its time the earlier: a lag is rather
            # told too long.
            self._ends[:half] = self._ends[1:half:2]
            times[:half] = times[0:half:2]

    def age(self, offset: int, now: float) -> float:
        """How long ago the byte at C{offset} was appended, in seconds; at least so much if
        it was there L{before} the timeline.

        @param offset: Below the log's end.
        """
        at = bisect_right(self._ends, offset)
        return max(0.0, now - self._times[at]) if at < len(self._times) else 0.0

    def before(self, offset: int) -> bool:
        """Say whether the byte at C{offset} was there when the timeline began."""
        return not self._ends or offset < self._ends[0]
