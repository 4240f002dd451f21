"""Queues whose offsets leap: a record of theirs is not where it should be.

Nothing else shows it when a blank in the middle of a log file hides the rest of it, as a damaged
disk may leave one: every reader of RocketMQ's takes a blank for the file's end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import define, field

from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.pread_log import PreadLog
from rmqha.logfiles.scan import next_valid
from rmqha.pipeline.log.errors import QueueGap, RangeBroken
from rmqha.pipeline.log.ranges import Range
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.vectors import Array

Keep = Callable[[FixedFields], Array]
"""Says for each record whether it is a row."""


@define
class QueueOffsetsFollow:
    """Looks at the records of one range before any is left out, and then lets another choose.

    A queue may begin again at a lower offset: its topic was deleted and made anew.

    @ivar store: The store's name.
    @ivar keep: The other; C{None} takes all.
    """

    store: str
    keep: Keep | None
    _next: dict[tuple[str, int], int] = field(factory=dict)

    def __call__(self, heads: FixedFields) -> Array:
        """@raise QueueGap: If queue offsets are left out."""
        rows = np.flatnonzero(heads.has_unit)
        names, numbers = heads.topics
        topic = numbers[rows]
        queue, offset = heads.column("queue_id")[rows], heads.column("queue_offset")[rows]
        order = np.lexsort((rows, queue, topic))
        topic, queue, offset = topic[order], queue[order], offset[order]
        follows = (topic[1:] == topic[:-1]) & (queue[1:] == queue[:-1])
        for row in (np.flatnonzero(follows & (offset[1:] > offset[:-1] + 1)) + 1).tolist():
            self._gap(names[topic[row]], int(queue[row]), int(offset[row - 1]) + 1, offset[row])
        ends = np.flatnonzero(~follows) + 1
        for start, end in zip([0, *ends], [*ends, len(order)], strict=True):
            if start < end:
                key = names[topic[start]], int(queue[start])
                expected = self._next.get(key)
                if expected is not None and offset[start] > expected:
                    self._gap(*key, expected, offset[start])
                self._next[key] = int(offset[end - 1]) + 1
        return np.ones(len(heads), np.bool_) if self.keep is None else self.keep(heads)

    def _gap(self, topic: str, queue: int, expected: int, found: int) -> None:
        raise QueueGap(self.store, topic, queue, expected, int(found))


def require_nothing_hidden(wanted: Range, files: LogFiles, last: int) -> None:
    """Look behind the blank that ends a range, if its file's end does.

    @param files: Those of the log, or the range's alone.
    @param last: Where the last record before it begins, -1 if there is none.
    @raise RangeBroken: If there is a whole record in this file.
    """
    if wanted.end < wanted.file_end or last < 0:
        return
    with PreadLog(files) as log:
        end = last + int.from_bytes(log.read(last, 4), "big", signed=True)
        found = next_valid(log, end + 1)
    if found is not None and found < wanted.file_end:
        reason = f"a blank that hides a whole record at byte {found}"
        raise RangeBroken(wanted.path, end, wanted.end, reason)
