"""One delay level: its messages in their order, each at the millisecond it is due.

A level's messages have the same delay, so they are due in the order of its queue, and only the
first one has to be waited for.  What is due is stored again in the queue it was sent to; many may
wait for replicas or the disk at the same time, but the level's offset moves over them in order.

Source: docs/protocol/remoting.md, Delayed messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.sending.messages import Messages
from rmqha.errors import FlushFailed, MessageIllegal, NotWritable
from rmqha.ha.master.put_service import Putter
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.lookup import Lookup
from rmqha.store.store import Store
from rmqha.wire.log.record import Record
from rmqha.wire.names import SCHEDULE_TOPIC

WINDOW = 1000
"""Most messages of a level that wait for replicas or the disk."""

LOOK = 1.0
"""Most seconds until a level is looked at again: the wall clock may be set meanwhile."""

RETRY = 1.0
"""Seconds until a store that takes no writes is tried again."""

GRAIN = 0.01
"""How exactly arrivals are noted while the wall clock is behind the log, in parts of the delay."""


@define(eq=False, kw_only=True)
class Delivery:
    """What all levels share.

    @ivar clock: Monotonic; when a message is due is told by the store's wall clock.
    @ivar delivered: Told of a level and its new offset.
    @ivar late: Told how late a message was stored, in milliseconds.
    @ivar skipped: Messages that could not be delivered.
    """

    store: Store
    writer: Putter
    lookup: Lookup
    messages: Messages
    clock: IReactorTime
    delivered: Callable[[DelayLevel], None]
    late: Callable[[int], None]
    skipped: int = field(default=0, init=False)
    quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.quiet = RateLimitedLog(self._log, self.clock)


@define(eq=False)
class _Flight:
    """A message that is stored and waits.

    @ivar end: The queue offset behind it.
    """

    end: int
    landed: bool = False


@define(eq=False)
class DelayLevel:
    """Delivers the messages of one level.

    @ivar number: From 1.
    @ivar delay: In seconds.
    @ivar done: The first message that is not delivered; all before it are.
    """

    number: int
    delay: float
    shared: Delivery
    done: int
    _next: int = field(init=False)
    _flying: deque[_Flight] = field(factory=deque, init=False)
    # Ends of the queue, and when all below was here, by the monotonic clock.
    _seen: deque[tuple[int, float]] = field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self._next = self.done

    @property
    def _queue(self) -> ConsumeQueue | None:
        """Where its messages wait; C{None} if there never was one."""
        return self.shared.store.queues.get(SCHEDULE_TOPIC, self.number - 1)

    @property
    def flying(self) -> int:
        """How many messages are stored, and wait for replicas or the disk."""
        return len(self._flying)

    def step(self) -> float | None:
        """Deliver the next message if it is due.

        @return: Seconds after which this is worth calling again; C{None} if only after a message
            came, or one was delivered.
        """
        queue = self._queue
        if queue is None or len(self._flying) >= WINDOW:
            return None
        self._pass_deleted(queue)
        unit = queue.unit(self._next)
        if unit is None:
            return None
        left = self._left(queue, unit[2])
        if left > 0:
            return min(left, LOOK)
        try:
            self._deliver()
        except NotWritable as error:
            self.shared.quiet.warn(
                "not writable",
                "",
                "Delayed messages wait until the store takes writes again: {error}",
                error=error,
            )
            return RETRY
        self.shared.late(round(-left * 1000))
        return 0.0

    def came(self) -> None:
        """Messages came whose store time is still to come: the wall clock is behind the log."""
        queue, now = self._queue, self.shared.clock.seconds()
        if queue is None:
            return
        if len(self._seen) > 1 and now - self._seen[-2][1] < GRAIN * self.delay:
            self._seen.pop()
        self._seen.append((queue.max_offset, now))

    def _left(self, queue: ConsumeQueue, due: int) -> float:
        """Seconds until the next message is due.

        A store time from the future would hold the whole level up; then what counts is the
        delay, from when the message was seen here.
        """
        while self._seen and self._seen[0][0] <= self._next:
            self._seen.popleft()
        left = (due - self.shared.store.now_ms()) / 1000
        if left <= self.delay:
            return left
        now = self.shared.clock.seconds()
        if not self._seen:
            self._seen.append((queue.max_offset, now))
        return self._seen[0][1] + self.delay - now

    def _pass_deleted(self, queue: ConsumeQueue) -> None:
        lost = queue.min_offset - self._next
        if lost > 0:
            self._skip(f"it and {lost - 1} more were deleted with old log files")
            self._next = queue.min_offset
            if not self._flying:
                self._moved(self._next)

    # --- delivery ---------------------------------------------------------------------

    def _deliver(self) -> None:
        """@raise NotWritable: If the store takes no writes now."""
        shared = self.shared
        record = shared.lookup.by_queue_offset(SCHEDULE_TOPIC, self.number - 1, self._next)
        message = None if record is None else shared.messages.due(record)
        stored: Deferred[Any] = succeed(None)
        if record is None or message is None:
            self._skip(_named(record, "it is damaged, or has no target topic and queue"))
        elif shared.store.queues.outlived(message.topic, record.offset):
            self._skip(_named(record, f"topic {message.topic} was deleted after it was sent"))
        else:
            try:
                stored = shared.writer.put(message)
            except MessageIllegal as error:
                self._skip(_named(record, str(error)))
        self._next += 1
        flying, flight = self._flying, _Flight(self._next)
        flying.append(flight)
        # Whatever the wait ends with, the message is in the log.
        stored.addCallbacks(lambda _: self._landed(flying, flight), self._not_flushed)

    def _landed(self, flying: deque[_Flight], flight: _Flight) -> None:
        flight.landed = True
        end = self.done
        while flying and flying[0].landed:
            end = flying.popleft().end
        if flying is self._flying and end > self.done:
            self._moved(end)

    def _not_flushed(self, failure: Failure) -> None:
        """The disk failed: nothing more is stored until a restart, which begins at L{done}."""
        failure.trap(FlushFailed, NotWritable)
        self._flying = deque()
        self._next = self.done
        self.shared.delivered(self)

    def _moved(self, end: int) -> None:
        self.done = end
        self.shared.delivered(self)

    def _skip(self, reason: str) -> None:
        self.shared.skipped += 1
        self.shared.quiet.warn(
            "not delivered",
            str(self.number),
            "Delayed message {offset} of level {number} is skipped: {reason}",
            offset=self._next,
            number=self.number,
            reason=reason,
        )


def _named(record: Record | None, reason: str) -> str:
    if record is None:
        return "the log holds no such record"
    return f"{record.offset_msg_id}: {reason}"
