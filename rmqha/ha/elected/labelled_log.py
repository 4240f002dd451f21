"""Which epoch label a master's bytes lie under, and so which one is told with them.

A slave takes a label over when it is told of it first.  A stock slave that is told of one before
there is a byte under it, and reconnects then, loses it for good, and later cuts bytes that it has
acknowledged.  So a label is told with its first byte, never before; and who begins there is told
first of the one before it, as a stock slave takes none over that it remembers to have been told
last, in its file or not.

Source: docs/protocol/controller.rst, What a master tells.
"""

from __future__ import annotations

from bisect import bisect_right

from attrs import field, frozen

from rmqha.controller.epoch_labels import Labels
from rmqha.wire.ha_v2 import EpochLabel

NO_LABEL = EpochLabel(-1, 0)
"""
What is told of bytes that lie under none: those from before the log was one of a set; of a log
without bytes; and to members that no label must prove.
"""


@frozen
class LabelledLog:
    """The labels of one log, as they are while it has one master.

    @ivar labels: Oldest first; of two that start at one offset the newer one counts.
    """

    labels: Labels
    _starts: tuple[int, ...] = field(init=False)

    @_starts.default
    def _all_starts(self) -> tuple[int, ...]:
        return tuple(label.start for label in self.labels)

    def begins(self, offset: int) -> bool:
        """Whether a label starts at C{offset}, behind the log's first byte."""
        return offset > 0 and offset in self._starts

    @property
    def newest_start(self) -> int:
        """Where the newest label starts; 0 without one."""
        return self._starts[-1] if self._starts else 0

    def of_byte(self, offset: int) -> EpochLabel:
        """The label of a byte."""
        at = bisect_right(self._starts, offset)
        return self.labels[at - 1] if at else NO_LABEL

    def before(self, offset: int) -> EpochLabel:
        """The label to be told while C{offset} comes next: of the byte before it."""
        return self.of_byte(offset - 1)

    def piece_end(self, position: int, stop: int) -> int:
        """Where the bytes from C{position} on end that lie under one label.

        @param stop: More is not wanted.
        """
        at = bisect_right(self._starts, position)
        return min(stop, self._starts[at]) if at < len(self._starts) else stop
