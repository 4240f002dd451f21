"""How far groups are behind: in messages, and in time.

The log is in the order of time, so of the messages that wait in the queues of a topic the one at
the lowest offset of the log is the oldest: one record is read for all queues.  A queue in which a
group does not move is not looked up again.

Who asks for all groups does not wait until thousands of files were opened: after L{READS} reads
he is told of the rest when what they waited for at his last question was stored, and they are
looked up soon after, some queues a turn.  That is how each group is looked up that moved in more
queues of a topic than that.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from attrs import define, field, frozen
from twisted.internet.defer import Deferred

from rmqha.broker.state import BrokerState
from rmqha.periodic import NodePart, Periodic, in_slices
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.wire.names import DLQ_PREFIX
from rmqha.wire.store_layout import BLANK_SIZE

READS = 500
"""
Most reads while somebody waits, of queues and of the log: some 6 ms, if each file has to be opened.
"""

QUEUES_A_STEP = 64
"""Queues that are looked at before something else may be done."""

SOON = 1.0
"""Seconds between two looks for groups that were left out."""


@frozen
class GroupLag:
    """How far a group is in a topic.

    @ivar messages: What it has not consumed.
    @ivar inflight: What of that it has pulled.
    @ivar since: When the oldest of it was stored, in milliseconds since 1970, as it was when that
        was looked up last; C{None} without any, where that cannot be read, and before.
    """

    messages: int
    inflight: int
    since: int | None


@frozen
class _Oldest:
    """What a group waited for when it was looked up.

    @ivar places: By queue id, the queue offset of the first message.
    @ivar heads: By queue id, where that is in the log; C{None} where it cannot be read.
    @ivar since: When the first of these was stored.
    """

    places: dict[int, int] = field(factory=dict)
    heads: dict[int, int | None] = field(factory=dict)
    since: int | None = None


_NOTHING = _Oldest()


@define(eq=False)
class GroupLags(NodePart):
    """Looks up how far groups are."""

    state: BrokerState
    # By topic and group.
    _seen: dict[tuple[str, str], _Oldest] = field(factory=dict, init=False)
    # Those that somebody was told of without being looked up.
    _owed: dict[tuple[str, str], None] = field(factory=dict, init=False)
    _catching_up: Periodic = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._catching_up = Periodic("ages of consumer lag", self.state.clock, self._catch_up)

    def start(self) -> None:
        """Begin to look up those that were left out."""
        self._catching_up.start(SOON)

    def stop(self) -> Deferred[None]:
        """Look nothing up any more.

        @return: Fires when nothing is being looked up.
        """
        self._owed.clear()
        return self._catching_up.stop()

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Each topic and group to look up; it forgets what was known of others."""
        found = self.state.offsets.pairs()
        if len(self._seen) > len(found):
            self._seen = {pair: self._seen[pair] for pair in found if pair in self._seen}
        return found

    def each(self, without: Callable[[str], bool]) -> Iterator[tuple[str, str, GroupLag] | None]:
        """How far each group is in each topic that it consumes, as topic, group and lag; C{None}
        where a topic is gone, and in the midst of many queues.  Dead letters are not consumed.

        @param without: Groups that are left out.
        """
        left = READS
        for pair in self.pairs():
            topic, group = pair
            if topic.startswith(DLQ_PREFIX) or without(group):
                continue
            waiting = yield from self._waiting(topic, group)
            if waiting is None:
                yield None
                continue
            behind, pulled, places = waiting
            known = self._seen.get(pair, _NOTHING)
            if known.places != places:
                # One more for the record of the log that is the oldest.
                reads = 1 + sum(known.places.get(number) != at for number, at in places.items())
                if reads <= left:
                    left -= reads
                    known = yield from self._look_up(pair, places)
                else:
                    self._owed[pair] = None
            yield topic, group, GroupLag(behind, pulled, known.since)

    def _waiting(
        self, topic: str, group: str
    ) -> Generator[None, None, tuple[int, int, dict[int, int]] | None]:
        """How many messages wait for a group, how many of them it has pulled, and by queue id the
        queue offsets where they begin; C{None} if there is no such topic any more.
        """
        config = self.state.topics.get(topic)
        if config is None:
            return None
        committed, pulls = self.state.offsets.queues(group, topic), self.state.counts.pulled
        behind = pulled = 0
        places: dict[int, int] = {}
        for nth, queue in enumerate(tuple(self.state.lookup.queues.of(topic)), 1):
            if nth % QUEUES_A_STEP == 0:
                yield
            number, end = queue.queue_id, queue.max_offset
            first, least = committed.get(number, 0), queue.min_offset
            if first < least:  # what was deleted by age cannot be consumed any more
                first = least
            if first >= end or number >= config.read_queue_nums:
                continue
            behind += end - first
            places[number] = first
            until = pulls.get((group, topic, number), 0)
            if until > first:
                pulled += min(until, end) - first
        return behind, pulled, places

    def _look_up(
        self, pair: tuple[str, str], places: dict[int, int]
    ) -> Generator[None, None, _Oldest]:
        """Find out when the oldest of some messages was stored, and remember it."""
        known = self._seen.get(pair, _NOTHING)
        heads: dict[int, int | None] = {}
        for nth, (number, place) in enumerate(places.items(), 1):
            if known.places.get(number) == place:
                heads[number] = known.heads[number]
            else:
                heads[number] = _head(self.state.lookup.queues.get(pair[0], number), place)
            if nth % QUEUES_A_STEP == 0:
                yield
        lowest = min((head for head in heads.values() if head is not None), default=None)
        since = None if lowest is None else self.state.lookup.stored_at(lowest)
        found = self._seen[pair] = _Oldest(places, heads, since)
        return found

    def _catch_up(self) -> Deferred[None]:
        return Deferred.fromCoroutine(in_slices(self.state.clock, self._owing()))

    def _owing(self) -> Iterator[None]:
        while self._owed:
            pair = next(iter(self._owed))
            del self._owed[pair]
            waiting = yield from self._waiting(*pair)
            if waiting is not None:
                yield from self._look_up(pair, waiting[2])
            yield


def _head(queue: ConsumeQueue | None, place: int) -> int | None:
    """Where in the log the message of a queue offset is; C{None} if there is none."""
    unit = None if queue is None else queue.unit(place)
    return None if unit is None or unit[1] == BLANK_SIZE else unit[0]
