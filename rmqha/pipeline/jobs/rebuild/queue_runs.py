"""
Which units a queue is made of: the runs of queue offsets that the log has for it, put into
the log's order.

A task knows only its own range.  So every run is written where its queue offset says, and
here it is found out afterwards which queues that was wrong for: those whose offsets go back
(a topic was deleted and made again: the later record wins), or leap (no queue can hold the
unit).  The rules are those of the node's own dispatch.

Source: docs/protocol/store.rst, Consume queues and Dispatch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from attrs import evolve, frozen

from rmqha.wire.columnar.queue_units import OFFSET_MAX, fileable

Queue = tuple[str, int]
"""Topic and queue id."""


@frozen(kw_only=True)
class Run:
    """
    Records of one queue whose queue offsets follow each other, in one range of the log.

    @ivar topic: The topic.
    @ivar queue_id: The queue id.
    @ivar first: Queue offset of the first one.
    @ivar count: How many there are.
    @ivar start: Physical offset of the first one.
    @ivar last: Physical offset of the last one.
    """

    topic: str
    queue_id: int
    first: int
    count: int
    start: int
    last: int

    @property
    def queue(self) -> Queue:
        return self.topic, self.queue_id

    @property
    def end(self) -> int:
        """
        Queue offset just past the last one.
        """
        return self.first + self.count


@frozen(kw_only=True)
class Problem:
    """
    Something that the log lacks or contradicts.

    @ivar topic: The topic.
    @ivar queue_id: The queue id.
    @ivar first: The first queue offset of what it is about.
    @ivar end: Just past the last one.
    @ivar reason: What it is.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    reason: str


GAP = "the log has no record for them, filled with blanks"
AGAIN = "the log has them twice, the later record counts"
NO_QUEUE = "no queue can hold them, left out"


@frozen(kw_only=True)
class Made:
    """
    What one queue is made of.

    @ivar kept: The runs whose units it has, by queue offset; a run may be shorter than the
        log has it, because a later one took over.
    @ivar as_written: Whether that is what tasks wrote that knew nothing of each other.
    """

    kept: tuple[Run, ...]
    as_written: bool


def queues_of(runs: Iterable[Run], per_file: int) -> tuple[dict[Queue, Made], list[Problem]]:
    """
    Put runs together.

    @param per_file: Units of a queue file: the most that a hole may have.
    @return: What each queue is made of, and what is wrong with the log.
    """
    by_queue: dict[Queue, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.start):
        by_queue[run.queue].append(run)
    problems: list[Problem] = []
    made: dict[Queue, Made] = {}
    for queue in sorted(by_queue):
        if fileable(*queue):  # of others nothing was written, and a path may be anywhere
            made[queue] = _made(by_queue[queue], per_file, problems)
        else:
            problems += [_problem(run, run.first, run.end, NO_QUEUE) for run in by_queue[queue]]
    return made, problems


def _made(runs: list[Run], per_file: int, problems: list[Problem]) -> Made:
    kept: list[Run] = []
    as_written = True
    for run in runs:
        if not _placeable(run, kept, per_file):
            problems.append(_problem(run, run.first, run.end, NO_QUEUE))
            as_written = as_written and not 0 <= run.first < OFFSET_MAX
            continue
        end = kept[-1].end if kept else run.first
        if run.first > end:
            problems.append(_problem(run, end, run.first, GAP))
        elif run.first < end:
            problems.append(_problem(run, run.first, end, AGAIN))
            as_written = False
            while kept and kept[-1].end > run.first:
                last = kept.pop()
                if last.first < run.first:
                    kept.append(evolve(last, count=run.first - last.first))
        kept.append(run)
    return Made(kept=tuple(kept), as_written=as_written)


def _placeable(run: Run, kept: list[Run], per_file: int) -> bool:
    """
    Whether the queue takes a run at its word: a hostile record would fill the disk.
    """
    if not 0 <= run.first < OFFSET_MAX:
        return False
    return not kept or run.first <= kept[-1].end + per_file


def _problem(run: Run, first: int, end: int, reason: str) -> Problem:
    return Problem(topic=run.topic, queue_id=run.queue_id, first=first, end=end, reason=reason)
