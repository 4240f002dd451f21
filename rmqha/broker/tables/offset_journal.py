"""Keeps consumers' offsets durable between two writes of their table.

A commit only marks its offset.  Some times a second what is marked is written in a thread, all of
it at once, and is durable then; each such batch has a number, by which a slave asks for what
changed since.

Source: docs/protocol/store.rst, The journal of consumer offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.periodic import Job, NodePart, cancelled
from rmqha.store.files.allocate import InThread
from rmqha.store.tables import offset_segments
from rmqha.store.tables.offset_segments import (
    ALL_QUEUES,
    BACK,
    DROPPED,
    ORDERED,
    OffsetChange,
    SegmentWriter,
)
from rmqha.store.tables.order_table import record_of
from rmqha.wire.remoting.bodies.pop_order import OrderedBatch

RETRY = 5.0
"""Seconds until a batch that could not be written is tried again."""

REMEMBERED = 20_000
"""Most changes that are kept for slaves that ask what changed."""

Marks = dict[tuple[str, int], int]
"""What changed: the bits of a record's kind, by C{topic@group} and queue id."""

Offsets = Mapping[str, Mapping[int, int]]
"""Consumer offsets by C{topic@group} and queue id."""


class Companion(Protocol):
    """A table beside that of offsets, whose changes are in the same batches: it is as durable, and
    slaves are told of it together with them.
    """

    def batch(self, key: str, queue_id: int) -> OrderedBatch | None:
        """What is known of a queue.  Threads ask."""

    def all(self) -> dict[str, dict[int, OrderedBatch]]:
        """What is known of all queues now, which does not change any more."""

    def generation(self, segment: int) -> Callable[[], int | None]:
        """A generation of both tables is taken.

        @param segment: The journal's file in which what follows it will be.
        @return: Writes it; gives the oldest file of the journal that it needs, C{None} if it needs
            none.  Blocking.
        """


@define(eq=False)
class OffsetJournal(NodePart):
    """The journal of one table.

    @ivar folder: Where its files are.
    @ivar offsets: The table itself: threads read it while it changes.
    @ivar companion: The table beside; none by default.
    @ivar interval: Least seconds between the starts of two writes; 0 for no journal.
    @ivar life: Tells the versions of this object from those of another.
    @ivar segment: The number of the file that is written to.
    @ivar version: How many batches are durable; slaves are told.
    @ivar flushed: Each is called when a batch is durable.
    @ivar job: How writing goes.
    """

    folder: Path
    offsets: Offsets
    clock: IReactorTime
    in_thread: InThread
    interval: float
    life: str = field(factory=lambda: uuid4().hex, init=False)
    segment: int = field(default=1, init=False)
    version: int = field(default=0, init=False)
    flushed: list[Callable[[], None]] = field(factory=list, init=False)
    companion: Companion | None = field(default=None, init=False)
    _beside: Callable[[], int | None] | None = field(default=None, init=False)
    job: Job = field(init=False)
    _marks: Marks = field(factory=dict, init=False)
    _batches: deque[tuple[int, Marks]] = field(factory=deque, init=False)
    _remembered: int = field(default=0, init=False)
    _writer: SegmentWriter = field(init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _writing: Deferred[None] | None = field(default=None, init=False)
    _began: float = field(default=float("-inf"), init=False)
    _took: float = field(default=0.0, init=False)
    _stopped: bool = field(default=False, init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.job = Job("adding to the offset journal", self.clock, vital=True)
        self.job.running = self.active
        self._writer = SegmentWriter(self.folder)
        self._quiet = RateLimitedLog(self._log, self.clock)

    @property
    def active(self) -> bool:
        """Whether there is a journal."""
        return self.interval > 0

    # --- what changes ---------------------------------------------------------------

    def mark(self, key: str, queue_id: int, kind: int = 0) -> None:
        """An offset changed, or a group's offsets in a topic are gone.

        @param key: C{topic@group}.
        @param queue_id: L{ALL_QUEUES<rmqha.store.tables.offset_segments.ALL_QUEUES>} for the
            second.
        @param kind: The bits of its record's kind.
        """
        if self.interval <= 0:
            return
        marks, place = self._marks, (key, queue_id)
        marks[place] = marks.get(place, 0) | kind
        if self._timer is None:
            self._later()

    def stir(self) -> None:
        """Something else changed of which slaves are to know soon: let them ask for all tables, as
        they do when a group's offsets are gone.
        """
        self.version += 1
        self._remember({("", ALL_QUEUES): 0})
        for listener in tuple(self.flushed):
            listener()

    def rotate(self) -> int:
        """A generation of the table is taken that has all that was marked so far.

        @return: The number of the file in which what follows it will be.
        """
        self.segment += 1
        self._beside = None if self.companion is None else self.companion.generation(self.segment)
        return self.segment

    def forget(self, least: int) -> None:
        """Delete the files that the tables on the disk do not need any more, once the one beside is
        written too.  Blocking.

        @param least: The oldest that it needs.
        """
        needed = None if self._beside is None else self._beside()
        offset_segments.forget(self.folder, least if needed is None else min(least, needed))

    def changes_since(self, version: int) -> dict[tuple[str, int], int] | None:
        """What changed after a batch; C{None} if that is not remembered.

        @param version: The number of the batch.
        """
        if not 0 <= version <= self.version or version < self.version - len(self._batches):
            return None
        found: Marks = {}
        for number, marks in reversed(self._batches):
            if number <= version:
                break
            for place, kind in marks.items():
                found[place] = found.get(place, 0) | kind
        return found

    # --- writing --------------------------------------------------------------------

    def _later(self, delay: float = 0.0) -> None:
        if self._writing is not None or self._stopped:
            return
        wait = max(delay, self._began + self.interval - self.clock.seconds(), 0.0)
        self._timer = self.clock.callLater(wait, self._due)

    def _due(self) -> None:
        self._timer = None
        if self._marks:
            self._write()

    def _write(self) -> Deferred[None]:
        marks, self._marks = self._marks, {}
        self._began = self.clock.seconds()
        self.job.begun()
        writing = self._writing = self.in_thread(self._append, self.segment, marks)
        return writing.addCallbacks(
            self._written, self._not_written, callbackArgs=(marks,), errbackArgs=(marks,)
        )

    def _append(self, segment: int, marks: Marks) -> None:
        """Write a batch; in a thread.  An offset that has moved on meanwhile is written as it is
        now.
        """
        self._writer.append(segment, self._records(marks))

    def _records(self, marks: Marks) -> Iterator[OffsetChange]:
        """The records of a batch: first the groups that are gone, then offsets as they are."""
        offsets = self.offsets
        for (key, queue_id), kind in marks.items():
            if queue_id == ALL_QUEUES:
                yield OffsetChange(kind | DROPPED, key, queue_id, 0)
                for number, offset in list(offsets.get(key, {}).items()):
                    yield OffsetChange(BACK, key, number, offset)
        for (key, queue_id), kind in marks.items():
            now = offsets.get(key, {}).get(queue_id)
            if now is not None:
                yield OffsetChange(kind & ~ORDERED, key, queue_id, now)
            if kind & ORDERED and self.companion is not None:
                yield record_of(key, queue_id, self.companion.batch(key, queue_id))

    def _written(self, _: None, marks: Marks) -> None:
        self._writing = None
        self._took = self.clock.seconds() - self._began
        self.job.succeeded()
        self.version += 1
        self._remember(marks)
        for listener in tuple(self.flushed):
            listener()
        if self._marks:
            self._later()

    def _remember(self, marks: Marks) -> None:
        self._batches.append((self.version, marks))
        self._remembered += len(marks)
        while self._remembered > REMEMBERED:
            self._remembered -= len(self._batches.popleft()[1])

    def _not_written(self, failure: Failure, marks: Marks) -> None:
        """What is in the file now is not known, so a new one is begun."""
        self._writing = None
        for place, kind in marks.items():
            self._marks[place] = self._marks.get(place, 0) | kind
        self.segment += 1
        self.job.failed(failure)
        self._quiet.warn(
            type(failure.value).__name__,
            self.folder.name,
            "Cannot write the journal of consumer offsets, retrying in {s} s: {error}",
            s=RETRY,
            error=failure.getErrorMessage(),
            **({} if failure.check(OSError) else {"log_failure": failure}),
        )
        self._later(RETRY)

    # --- the end --------------------------------------------------------------------

    def stop(self) -> Deferred[None]:
        """Write what is marked, and no more after that: whether the table can be written for the
        last time is not known yet.

        @return: Fires when nothing is being written.
        """
        self._stopped = True
        self._timer = cancelled(self._timer)
        ended = succeed(None) if self._writing is None else self._writing
        ended.addCallback(lambda _: self._write() if self._marks else None)
        return ended.addCallback(lambda _: self._writer.close())

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        return {
            "intervalMillis": round(self.interval * 1000),
            "pending": len(self._marks),
            "batches": self.version,
            "lastMillis": round(self._took * 1000, 1),
            "segment": self.segment,
            "bytes": self._writer.size,
        }
