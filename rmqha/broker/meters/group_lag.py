"""
How far groups are behind: in messages, and in time.

The log is in the order of time, so of the messages that wait in the queues of a topic the one at
the lowest offset of the log is the oldest: one record is read for all queues.  A group that does
not move is not looked up again.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from rmqha.broker.meters.meters import Meters
from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.broker.tables.topics import Topics
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.lookup import Lookup
from rmqha.wire.names import DLQ_PREFIX


@frozen
class GroupLag:
    """
    How far a group is in a topic.

    @ivar messages: What it has not consumed.
    @ivar inflight: What of that it has pulled.
    @ivar since: When the oldest of it was stored, in milliseconds since 1970; C{None} without
        any, or where that cannot be read.
    """

    messages: int
    inflight: int
    since: int | None


@define(eq=False)
class GroupLags:
    """
    Looks up how far groups are.
    """

    lookup: Lookup
    topics: Topics
    offsets: ConsumerOffsetTable
    counts: Meters
    # By topic and group: where it was in each queue that has more, and when the first of that
    # was stored.
    _seen: dict[tuple[str, str], tuple[tuple[int, ...], int | None]] = field(
        factory=dict, init=False
    )

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """
        Each topic and group to look up; it forgets what was known of others.
        """
        found = self.offsets.pairs()
        if len(self._seen) > len(found):
            self._seen = {pair: self._seen[pair] for pair in found if pair in self._seen}
        return found

    def each(self, without: Callable[[str], bool]) -> Iterator[tuple[str, str, GroupLag] | None]:
        """
        How far each group is in each topic that it consumes, as topic, group and lag; C{None}
        where a topic is gone.  Dead letters are not consumed.

        @param without: Groups that are left out.
        """
        for topic, group in self.pairs():
            if topic.startswith(DLQ_PREFIX) or without(group):
                continue
            lag = self.lag(topic, group)
            yield None if lag is None else (topic, group, lag)

    def lag(self, topic: str, group: str) -> GroupLag | None:
        """
        How far a group is in a topic.

        @return: C{None} if there is no such topic any more.
        """
        config = self.topics.get(topic)
        if config is None:
            return None
        committed, pulls = self.offsets.queues(group, topic), self.counts.pulled
        lag = inflight = 0
        waiting: list[ConsumeQueue] = []
        places: list[int] = []
        for queue in self.lookup.queues.of(topic):
            number, end = queue.queue_id, queue.max_offset
            # What was deleted by age cannot be consumed any more.
            first = max(committed.get(number, 0), queue.min_offset)
            if first >= end or number >= config.read_queue_nums:
                continue
            lag += end - first
            inflight += max(0, min(pulls.get((group, topic, number), 0), end) - first)
            waiting.append(queue)
            places += (number, first)
        known = self._seen.get((topic, group))
        if known is None or known[0] != tuple(places):
            oldest = self._oldest(waiting, places[1::2])
            known = self._seen[topic, group] = tuple(places), oldest
        return GroupLag(lag, inflight, known[1])

    def _oldest(self, queues: list[ConsumeQueue], places: list[int]) -> int | None:
        units = (queue.unit(place) for queue, place in zip(queues, places, strict=True))
        lowest = min((unit[0] for unit in units if unit is not None), default=None)
        return None if lowest is None else self.lookup.stored_at(lowest)
