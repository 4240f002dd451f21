"""Offsets of queues and groups, in messages.

Source: docs/protocol/remoting.md, Offsets.
"""

from __future__ import annotations

from typing import Any

from attrs import asdict, evolve, field, frozen

from rmqha.wire.remoting.bodies.common import DataVersion, MessageQueue

LOG_END = "maxPhyOffset"
"""Our own member of the table of delay levels."""


@frozen(kw_only=True)
class ConsumerOffsets:
    """Answers code 43, and is C{consumerOffset.json}.

    @ivar offset_table: Offsets by queue id by C{topic@group}.
    @ivar data_version: 5.x.
    """

    offset_table: dict[str, dict[int, int]] = field(factory=dict)
    data_version: DataVersion | None = None
    extra: dict[str, Any] = field(factory=dict)


ORDERED_POPS = "orderedPops"
"""Our own member of L{ConsumerOffsets} among brokers of ours: by C{topic@group} and queue id what
is known of a queue that is popped in order; null where nothing is any more."""

QUEUE_ENDS = "queueEnds"
"""Our own member of L{ConsumerOffsets} among brokers of ours: by topic and queue id the queue
offset at which a queue goes on that has no message left."""


@frozen(kw_only=True)
class TimerProgress:
    """How far timer messages are delivered, among brokers of ours.

    @ivar low: The first queue offset of the timer topic that may wait; all before it are done with.
    @ivar next: The first one of which nothing is said here.
    @ivar time: Those before that are done with that were due by then, in milliseconds since 1970,
    @ivar waiting: and are not among these.
    @ivar window: After how many milliseconds messages were stored anew: that was the end of their
        time then.
    @ivar slot: C{timerPrecisionMs}, which may have been another too.
    """

    low: int
    next: int
    time: int
    window: int
    slot: int
    waiting: frozenset[int] = frozenset()

    def covers(self, due: int, offset: int) -> bool:
        """Whether a message is done with."""
        return offset < self.next and due <= self.time and offset not in self.waiting


TIMERS = "timers"
"""Our own member of L{DelayOffsets}: how far timer messages are."""


@frozen(kw_only=True)
class DelayOffsets:
    """Answers code 45, and is C{delayOffset.json}: offsets by delay level."""

    offset_table: dict[int, int] = field(factory=dict)
    data_version: DataVersion | None = None
    extra: dict[str, Any] = field(factory=dict)

    @property
    def log_end(self) -> int | None:
        """The physical offset below which all copies are; C{None} if nobody says."""
        found = self.extra.get(LOG_END)
        return found if type(found) is int else None

    @property
    def timers(self) -> TimerProgress | None:
        """How far timer messages are; C{None} if nobody says."""
        found = self.extra.get(TIMERS)
        if not isinstance(found, dict):
            return None
        try:
            numbers = {name: int(found[name]) for name in ("low", "next", "time", "window", "slot")}
            return TimerProgress(**numbers, waiting=frozenset(map(int, found["waiting"])))
        except (TypeError, KeyError, ValueError):
            return None

    def holds(self, end: int) -> bool:
        """Whether a log that ends there surely has what the offsets say."""
        return self.log_end is not None and self.log_end <= end

    def at(
        self, log_end: int | None, offsets: dict[int, int], timers: TimerProgress | None = None
    ) -> DelayOffsets:
        """The same with other offsets, and with where the log has to end for them."""
        own = (LOG_END, TIMERS)
        extra = {name: value for name, value in self.extra.items() if name not in own}
        if log_end is not None:
            extra[LOG_END] = log_end
        if timers is not None:
            extra[TIMERS] = asdict(timers) | {"waiting": sorted(timers.waiting)}
        return evolve(self, offset_table=offsets, extra=extra)


@frozen(kw_only=True)
class ResetOffsets:
    """Answers code 222, and is the body of 220."""

    offset_table: dict[MessageQueue, int] = field(factory=dict)

    def for_c(self) -> ResetOffsetsForC:
        """The same as clients in C++ read it."""
        return ResetOffsetsForC(
            offset_table=tuple(
                QueueOffset(queue.broker_name, offset, queue.queue_id, queue.topic)
                for queue, offset in self.offset_table.items()
            )
        )


@frozen
class QueueOffset:
    """One queue and its new offset in L{ResetOffsetsForC}."""

    broker_name: str
    offset: int
    queue_id: int
    topic: str


@frozen(kw_only=True)
class ResetOffsetsForC:
    """The body of 220 towards clients in C++."""

    offset_table: tuple[QueueOffset, ...] = ()


@frozen(kw_only=True)
class TopicOffset:
    """A queue's range.

    @ivar last_update_timestamp: Store time of its last message; 0 if it is empty.
    """

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@frozen(kw_only=True)
class TopicStats:
    """Answers code 202.

    @ivar topic_put_tps: Messages a second; 5.x.
    """

    offset_table: dict[MessageQueue, TopicOffset] = field(factory=dict)
    topic_put_tps: float | None = None


@frozen(kw_only=True)
class GroupOffset:
    """How far a group is in a queue.

    @ivar last_timestamp: Store time of the last message it finished; 0 for none.
    @ivar pull_offset: 5.x.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int | None = None


@frozen(kw_only=True)
class ConsumeStats:
    """Answers code 208.

    @ivar consume_tps: Messages a second.
    """

    offset_table: dict[MessageQueue, GroupOffset] = field(factory=dict)
    consume_tps: float = 0.0


@frozen(kw_only=True)
class ConsumeStatsList:
    """Answers code 317: in each entry one group's statistics, one a topic."""

    broker_addr: str | None = None
    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    total_diff: int = 0
    total_inflight_diff: int | None = None


@frozen(kw_only=True)
class ConsumerStatus:
    """Answers codes 221 and 223.

    @ivar message_queue_table: One client's offsets.
    @ivar consumer_table: Offsets by client id.
    """

    message_queue_table: dict[MessageQueue, int] = field(factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(factory=dict)


@frozen(kw_only=True)
class QueueTimeSpan:
    """The store times of one queue, in milliseconds since the epoch.

    @ivar consume_time_stamp: That of the message a group is at.
    @ivar delay_time: Its age, in milliseconds.
    """

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


@frozen(kw_only=True)
class ConsumeTimeSpan:
    """Answers code 303: how far a group has read each queue, by time."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()
