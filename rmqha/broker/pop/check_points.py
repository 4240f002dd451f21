"""The open check points: which messages groups were handed and are not done with.

The log is the truth: what is here is what a start reads of the timer topic, and what was stored
since.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList, FirstError
from twisted.python.failure import Failure

from rmqha.broker.state import BrokerState
from rmqha.ha.master.put_service import PutResult, Putter
from rmqha.wire.log.pop_record import CHECK_POINT_TAG, LEAD, NOWHERE, CheckPoint, PointKey
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Message
from rmqha.wire.names import (
    REAL_QUEUE,
    REAL_TOPIC,
    REVIVE_PREFIX,
    TAGS,
    TIMER_DELIVER,
    TIMER_OUT,
    TIMER_TOPIC,
    UNIQUE_KEY,
)


@define
class OpenCheckPoint:
    """One of them.

    @ivar left: The queue offsets of those messages that are not done with.
    @ivar place: Where it waits: its queue offset in the timer topic, or L{NOWHERE}.
    """

    point: CheckPoint
    left: set[int]
    place: int


@define(eq=False)
class CheckPoints:
    """All that are open.

    @ivar unacked: How many messages are not done with, by topic (maybe a retry topic) and group.
    @ivar places: Where they wait: when another one is due there is nothing to be done.
    """

    unacked: Counter[tuple[str, str]] = field(factory=Counter, init=False)
    places: set[int] = field(factory=set, init=False)
    _open: dict[PointKey, OpenCheckPoint] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._open)

    def get(self, key: PointKey) -> OpenCheckPoint | None:
        """One of them; C{None} if it is not open."""
        return self._open.get(key)

    def add(self, point: CheckPoint, place: int, acked: Iterable[int] = ()) -> None:
        """Let one be open, if it has messages that are not done with.

        @param acked: The queue offsets of those that are.
        """
        left = set(point.offsets).difference(acked)
        if left and point.key not in self._open:
            self._open[point.key] = OpenCheckPoint(point, left, place)
            self.places.add(place)
            self.unacked[point.topic, point.group] += len(left)

    def done(self, found: OpenCheckPoint, offsets: Iterable[int]) -> None:
        """Some of its messages are done with; if all are it is open no more."""
        point, before = found.point, len(found.left)
        found.left.difference_update(offsets)
        self._fewer(point, before - len(found.left))
        if not found.left:
            self._open.pop(point.key, None)
            self.places.discard(found.place)

    def remove(self, key: PointKey) -> None:
        """Let one be open no more, if it is."""
        found = self._open.pop(key, None)
        if found is not None:
            self.places.discard(found.place)
            self._fewer(found.point, len(found.left))

    def drop(self, gone: Callable[[CheckPoint], bool]) -> None:
        """Let those be open no more that belong to a topic or a group that is gone."""
        for key in [key for key, found in self._open.items() if gone(found.point)]:
            self.remove(key)

    def oldest(self) -> int | None:
        """When the first one is due, in milliseconds since 1970; C{None} if none is open."""
        return min((found.point.due for found in self._open.values()), default=None)

    def _fewer(self, point: CheckPoint, count: int) -> None:
        place = point.topic, point.group
        self.unacked[place] -= count
        if self.unacked[place] <= 0:
            del self.unacked[place]


@define(eq=False)
class CheckPointLog:
    """Stores check points and acks where they wait until they are due.

    @ivar place: The queue offset of the last one.
    """

    state: BrokerState
    writer: Putter
    place: int = field(default=NOWHERE, init=False)

    def open(self, point: CheckPoint) -> Deferred[PutResult]:
        """Store a check point.

        @raise NotWritable: If the store takes no writes.
        @raise MessageIllegal: If it does not fit a record.
        """
        due = point.due - LEAD
        return self._put(point, due, point.body(), CHECK_POINT_TAG, point.unique_key)

    def ack(self, point: CheckPoint, offsets: tuple[int, ...]) -> Deferred[PutResult]:
        """Store that some of its messages are done with.

        @raise NotWritable: If the store takes no writes.
        @raise MessageIllegal: If it does not fit a record.
        """
        return self._put(point, point.due, *point.acks(offsets))

    def _put(
        self, point: CheckPoint, due: int, body: bytes, tag: str, key: str
    ) -> Deferred[PutResult]:
        told = {
            TAGS: tag,
            UNIQUE_KEY: key,
            TIMER_DELIVER: str(due),
            TIMER_OUT: str(
                (due - 1)
                // self.state.settings.timers.precision
                * self.state.settings.timers.precision
            ),
            REAL_TOPIC: REVIVE_PREFIX + self.state.cluster,
            REAL_QUEUE: str(point.revive_queue),
        }
        self.place = self.state.store.next_offset(TIMER_TOPIC, 0)
        return self.writer.put(
            Message(
                topic=TIMER_TOPIC,
                queue_id=0,
                body=body,
                properties=encode(told),
                born_timestamp=self.state.now_ms(),
                born_host=self.state.messages.host,
                store_host=self.state.messages.host,
            )
        )


def all_stored(waits: list[Deferred[Any]]) -> Deferred[None]:
    """Fires when all is stored that was put, or fails as the first that is not."""
    done = DeferredList(waits, fireOnOneErrback=True, consumeErrors=True)
    return done.addCallbacks(lambda _: None, _first_of)


def _first_of(failure: Failure) -> Failure:
    error = failure.value
    return error.subFailure if isinstance(error, FirstError) else failure
