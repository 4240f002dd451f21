"""Which timer messages wait, in the order in which they are due: 8 bytes each, but for those that
came for the minute that has begun.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
from attrs import define, field

MINUTE = 60_000
"""Milliseconds."""

_BITS = 47
"""Of a queue offset; above it is the millisecond of the minute."""

_OFFSET = (1 << _BITS) - 1

FEW = 16
"""Messages up to which arrays are not worth it."""


@define(eq=False)
class PendingTimers:
    """Queue offsets by when they are due.

    Those of a minute lie in the order of their offsets until it begins; minutes that are further
    away have none that came before.

    @ivar count: How many wait.
    """

    count: int = field(default=0, init=False)
    # In the order of their first offsets.
    _minutes: dict[int, array[int]] = field(factory=dict, init=False)
    _order: list[int] = field(factory=list, init=False)
    # The minute that has begun, sorted, and how many of it are gone.
    _minute: int = field(default=-1, init=False)
    _sorted: array[int] = field(factory=lambda: array("q"), init=False)
    _gone: int = field(default=0, init=False)
    # Those that came for it, or for an earlier one, since; and those that came back.
    _late: list[tuple[int, int]] = field(factory=list, init=False)
    # The least offset of either, or a lesser one.
    _least_sorted: int = field(default=0, init=False)
    _least_late: int = field(default=0, init=False)
    _until_look: int = field(default=0, init=False)

    def add(self, due: int, offset: int) -> None:
        """Let one wait that is behind all that were added.

        @param due: In milliseconds since 1970.
        """
        minute, rest = divmod(due, MINUTE)
        if minute <= self._minute:
            self.back(due, offset)
            return
        self.count += 1
        found = self._minutes.get(minute)
        if found is None:
            found = self._minutes[minute] = array("q")
            heappush(self._order, minute)
        found.append(rest << _BITS | offset)

    def add_run(self, due: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        """Let several wait, as L{add} does one after the other.

        @param due: When each is, in milliseconds since 1970.
        @param offsets: Their queue offsets.
        """
        late = due < (self._minute + 1) * MINUTE
        if len(due) <= FEW or late.any():
            for one in zip(due.tolist(), offsets.tolist(), strict=True):
                self.add(*one)
            return
        minutes = due // MINUTE
        order = np.argsort(minutes, kind="stable")
        found = ((due - minutes * MINUTE) << _BITS | offsets)[order]
        starts = np.flatnonzero(np.diff(minutes[order], prepend=-1))
        ends = np.append(starts[1:], len(due))
        # Where there was none of a minute, its place is that of its first message.
        for run in np.argsort(order[starts]).tolist():
            start, end = int(starts[run]), int(ends[run])
            minute = int(minutes[order[start]])
            kept = self._minutes.get(minute)
            if kept is None:
                kept = self._minutes[minute] = array("q")
                heappush(self._order, minute)
            kept.frombytes(found[start:end].tobytes())
        self.count += len(due)

    def back(self, due: int, offset: int) -> None:
        """Let one wait that was taken."""
        self.count += 1
        self._least_late = min(offset, self._least_late) if self._late else offset
        heappush(self._late, (due, offset))

    def reverse(self) -> None:
        """All that were added came in the other direction: each before those behind it."""
        for found in self._minutes.values():
            found.reverse()
        by_offset = sorted(self._minutes.items(), key=lambda item: item[1][0] & _OFFSET)
        self._minutes = dict(by_offset)

    def next_due(self) -> int | None:
        """When the first one is due, or a time before; C{None} if none waits."""
        first = self._first()
        found = [] if first is None else [first[0]]
        if self._order:
            found.append(self._order[0] * MINUTE)
        return min(found, default=None)

    def pop(self, now: int) -> tuple[int, int] | None:
        """Take the first one that is due: when it was, and its queue offset."""
        if self._gone >= len(self._sorted) and self._order and self._order[0] * MINUTE <= now:
            self._begin(heappop(self._order))
        first = self._first()
        if first is None or first[0] > now:
            return None
        if self._late and self._late[0] == first:
            heappop(self._late)
            self._until_look -= 1
        else:
            self._gone += 1
        self.count -= 1
        return first

    def pop_run(self, now: int, most: int) -> list[tuple[int, int]]:
        """Take the first ones that are due, as L{pop} does one after the other.

        @param most: No more than so many.
        """
        found: list[tuple[int, int]] = []
        while len(found) < most and (one := self.pop(now)) is not None:
            found.append(one)
            if not self._late:
                # All of the minute that are due, at once.
                start, begin = self._gone, self._minute * MINUTE
                latest = min(now - begin, MINUTE) << _BITS | _OFFSET
                stop = min(len(self._sorted), start + most - len(found))
                self._gone = bisect_right(self._sorted, latest, start, stop)
                found += [
                    (begin + (each >> _BITS), each & _OFFSET)
                    for each in self._sorted[start : self._gone]
                ]
                self.count -= self._gone - start
        return found

    def least(self) -> int | None:
        """The least queue offset that waits, or a lesser one; C{None} if none waits."""
        if self._until_look <= 0 and self._late:
            self._least_late = min(offset for _, offset in self._late)
            self._until_look = len(self._late)
        found = [self._least_late] if self._late else []
        if self._gone < len(self._sorted):
            found.append(self._least_sorted)
        if self._minutes:
            found.append(next(iter(self._minutes.values()))[0] & _OFFSET)
        return min(found, default=None)

    def _first(self) -> tuple[int, int] | None:
        first = None
        if self._gone < len(self._sorted):
            rest, offset = divmod(self._sorted[self._gone], _OFFSET + 1)
            first = self._minute * MINUTE + rest, offset
        if self._late and (first is None or self._late[0] < first):
            first = self._late[0]
        return first

    def _begin(self, minute: int) -> None:
        found = self._minutes.pop(minute)
        self._minute, self._gone = minute, 0
        self._least_sorted = min(one & _OFFSET for one in found)
        self._sorted = array("q", sorted(found))
