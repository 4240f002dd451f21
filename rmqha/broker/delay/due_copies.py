"""Copies of messages that are due, many at a time: read, stored and waited for together.

What is unusual is left to the usual way, message by message.  Both ways give the same records.

Source: docs/architecture.rst, The write lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt
from attrs import define, field

from rmqha.broker.tables.topics import FORBIDDEN
from rmqha.errors import MessageIllegal
from rmqha.ha.master.put_service import Putter
from rmqha.ha.master.transfer import PutStatus
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.store import Store
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.remoting.bodies.offsets import TimerProgress
from rmqha.wire.store_layout import UNIT_SIZE

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.due_run import DueRun

MOST = 256
"""Most messages of a run."""

SPREAD = 64
"""For so many units that are read one is wanted, at least; those of messages that lie further
apart are read one by one."""


@define(eq=False)
class DueCopies:
    """Stores copies of the messages of one topic in which they wait.

    @ivar writer: Takes them.
    @ivar run: Reads the messages, and writes the copies.
    """

    store: Store
    writer: Putter
    run: DueRun

    @classmethod
    def of(
        cls, store: Store, writer: Putter | None, topic: str, *, precision: int = 0, window: int = 0
    ) -> Self | None:
        """Make what a topic needs.

        @param precision: Milliseconds of a slot of timer messages; 0 if others wait there.
        @param window: Milliseconds after which a timer message is stored anew.
        @return: C{None} on a slave, and where nothing is compiled.
        """
        if writer is None or not COMPILED:
            return None
        run = DueRun(
            topic=topic,
            precision=precision,
            window=window,
            most_body=store.settings.max_message_size,
            file=partial(_file, store),
            living=partial(_living, store),
        )
        return cls(store, writer, run)

    def times(
        self,
        units: bytes,
        first: int,
        known: TimerProgress | None,
        marks: Set[int] | None,
        topics: Counter[str],
        *,
        back: bool,
    ) -> npt.NDArray[np.int64]:
        """Read when timer messages are to be looked at, up to one that is unusual.

        @param units: Of consecutive queue offsets.
        @param first: The first of these.
        @param known: What is done with.
        @param marks: The marks of messages that are unusual; C{None} if those that were stored anew
            are as others.
        @param topics: Counts those that are not done with.
        @param back: Whether to begin with the last one.
        @return: In milliseconds since 1970, and negative of those that are done with.
        """
        times = np.empty(len(units) // UNIT_SIZE, np.int64)
        count = self.run.scan(
            units,
            first,
            times,
            back=back,
            known=None if known is None else (known.next, known.time, known.waiting),
            marks=marks,
            topics=topics,
        )
        return times[:count]

    def put(
        self,
        units: bytes,
        offsets: list[int],
        now: int,
        *,
        queue_id: int = 0,
        cancelled: Mapping[int, object],
        landed: Callable[[bool], None],
    ) -> Landing:
        """Store copies of the first messages, up to one that is unusual.

        @param units: Of each message.
        @param offsets: Their queue offsets.
        @param now: Milliseconds since 1970.
        @param queue_id: Where they wait.
        @param cancelled: Has the slots of timers of which messages are cancelled.
        @param landed: Is told when they wait no more for the disk or replicas, if they do; and
            whether the disk took them.
        @return: What was stored.
        @raise NotWritable: If the store takes no writes now; none is stored.
        """
        run, found = self.run, Landing(self._lost, landed)
        try:
            if run.read(units, offsets, queue_id=queue_id, now=now, cancelled=cancelled):
                self.writer.put_run(run, b"", found.done)
                found.queues = run.queues
        except MessageIllegal:
            # The usual way says of which one.
            pass
        finally:
            run.clear()
        return found

    def _lost(self, status: PutStatus) -> bool:
        return status is PutStatus.SERVICE_NOT_AVAILABLE and self.store.flusher.failure is not None


@define(eq=False)
class Landing:
    """Copies that are stored together.

    @ivar lost: Whether a status means that the disk did not take them.
    @ivar queues: The topic and queue of each.
    @ivar waits: Whether it is not known yet what became of them.
    """

    lost: Callable[[PutStatus], bool]
    landed: Callable[[bool], None]
    queues: list[tuple[str, int]] = field(factory=list, init=False)
    waits: bool = field(default=True, init=False)

    def done(self, status: PutStatus) -> None:
        """The wait for the disk and for replicas has ended."""
        self.waits = False
        if self.queues:
            # Whatever else it ended with, they are in the log.
            self.landed(not self.lost(status))


def units_of(queue: ConsumeQueue, offsets: Sequence[int]) -> bytes:
    """The units of queue offsets in any order; none if one of them is not there."""
    low, high = min(offsets), max(offsets) + 1
    if high - low > SPREAD * len(offsets):
        found = [queue.units(offset, 1) for offset in offsets]
        return b"".join(found) if all(found) else b""
    raw = queue.units(low, high - low)
    if len(raw) < UNIT_SIZE * (high - low):
        return b""
    if offsets == list(range(low, high)):
        return raw
    places = [UNIT_SIZE * (offset - low) for offset in offsets]
    return b"".join([raw[place : place + UNIT_SIZE] for place in places])


def _file(store: Store, offset: int) -> tuple[memoryview, int]:
    """The bytes of the log file that has a physical offset, and where they begin."""
    log = store.log
    if not log.min_offset <= offset < log.confirmed:
        return memoryview(b""), 0
    start = log.file_end(offset) - log.file_size
    return log.read(start, log.confirmed - start), start


def _living(store: Store, topic: str) -> int | None:
    """From where on a topic's records count; C{None} if no message may be delivered to it."""
    return None if topic in FORBIDDEN else store.queues.living_from(topic)
