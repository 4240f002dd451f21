"""Pops that wait for a message, and those who wait to be told of one.

A wait ends shortly before its deadline, when dispatch brings what it finds, or with its
connection.  What comes is given to who must go first: one message wakes one of them.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from rmqha.broker.consuming.long_polling import LONGEST
from rmqha.broker.pop.handles import RETRY_V1, RETRY_V2, retry_topic
from rmqha.errors import RequestRefused
from rmqha.store.derived.consume_queues import Moves
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import ResponseCode

MOST, MOST_OF_QUEUE = 100_000, 1024
"""Most waits in all, and of one group for one queue or all of a topic; stock brokers' too."""

EARLY = 0.05
"""Seconds by which a wait ends before its deadline, so that the answer is there in time."""

ALL_QUEUES = -1

Place: TypeAlias = tuple[str, str, int]
"""Group, topic as it was asked for, and queue id or L{ALL_QUEUES}."""

Again: TypeAlias = Callable[[bool], "Answer | Deferred[Answer]"]
"""Answers if there is something, or if it is told that this is the last time; else C{None}."""


@define(eq=False)
class Wait:
    """@ivar wish: What is waited for: of those who wish the same none gets what one does not get.
    @ivar answer: Gives the answer.
    """

    place: Place
    wish: Hashable
    waiting: Deferred[Answer]
    answer: Again
    timer: IDelayedCall


@define(eq=False)
class Polling:
    """All that wait.

    @ivar count: How many there are.
    @ivar on_wait: Called when one begins to wait.
    """

    clock: IReactorTime
    count: int = field(default=0, init=False)
    on_wait: Callable[[], None] = field(default=lambda: None, init=False)
    _answers: bool = field(default=False, init=False)
    # In the order of their deadlines, as most wait equally long.
    _waits: dict[Place, list[Wait]] = field(factory=dict, init=False)
    # By topic, retry topics among them: who is woken.
    _places: dict[str, set[Place]] = field(factory=dict, init=False)
    _came: dict[tuple[str, int], None] = field(factory=dict, init=False)

    def waiting(self, place: Place) -> int:
        """How many wait there."""
        return len(self._waits.get(place, ()))

    def has_room(self, place: Place) -> bool:
        """Whether one more may wait."""
        return self.count < MOST and self.waiting(place) < MOST_OF_QUEUE

    def urgent(self) -> bool:
        """Whether somebody waits for what is stored now: nobody does for a check point."""
        return self.count > 0 and not self._answers

    def hold(self, place: Place, wish: Hashable, seconds: float, answer: Again) -> Deferred[Answer]:
        """Wait.

        @param wish: What for.
        @param seconds: How long.
        @param answer: Is called when something came, and at the end.
        @return: The answer; to cancel it ends the wait.
        """
        waiting: Deferred[Answer] = Deferred(lambda _: self._drop(wait))
        left = max(0.0, min(seconds, LONGEST) - EARLY)
        timer = self.clock.callLater(left, lambda: self._answer(wait, last=True))
        wait = Wait(place, wish, waiting, answer, timer)
        waits = self._waits.get(place)
        if waits is None:
            waits = self._waits[place] = []
            for topic in _topics(place):
                self._places.setdefault(topic, set()).add(place)
        at = len(waits)
        while at and waits[at - 1].timer.getTime() > timer.getTime():
            at -= 1
        waits.insert(at, wait)
        self.count += 1
        self.on_wait()
        return waiting

    def on_units(self, moves: Moves) -> None:
        """Dispatch has put messages into queues."""
        if self._places:
            self._came.update((queue, None) for queue in moves if queue[0] in self._places)

    def on_pause(self) -> None:
        """Dispatch has paused: those are answered who get something."""
        came, self._came = self._came, {}
        for topic, queue_id in came:
            for place in tuple(self._places.get(topic, ())):
                if place[2] in (ALL_QUEUES, queue_id) or topic != place[1]:
                    self.wake(place)

    def wake_all(self) -> None:
        """Answer all who get something."""
        for place in tuple(self._waits):
            self.wake(place)

    def wake(self, place: Place) -> None:
        """Answer those who wait there and get something."""
        vain = set()
        for wait in tuple(self._waits.get(place, ())):
            if wait.wish not in vain and not self._answer(wait, last=False):
                vain.add(wait.wish)

    def forget(self, topic: str) -> None:
        """A topic is gone: whoever waits for it is told now."""
        for place in [place for place in self._waits if place[1] == topic]:
            for wait in tuple(self._waits.get(place, ())):
                self._answer(wait, last=True)

    def stop(self) -> None:
        """Refuse all that wait."""
        for waits in tuple(self._waits.values()):
            for wait in tuple(waits):
                self._drop(wait)
                wait.waiting.errback(
                    RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the store is closing")
                )

    def _answer(self, wait: Wait, *, last: bool) -> bool:
        """@return: Whether there was an answer."""
        self._answers = True
        try:
            answer = wait.answer(last)
        except Exception:
            self._drop(wait)
            wait.waiting.errback(Failure())
            return True
        finally:
            self._answers = False
        if answer is None:
            return False
        self._drop(wait)
        if isinstance(answer, Deferred):
            answer.chainDeferred(wait.waiting)
        else:
            wait.waiting.callback(answer)
        return True

    def _drop(self, wait: Wait) -> None:
        if wait.timer.active():
            wait.timer.cancel()
        waits = self._waits.get(wait.place, [])
        if wait not in waits:
            return
        waits.remove(wait)
        self.count -= 1
        if not waits:
            del self._waits[wait.place]
            for topic in _topics(wait.place):
                places = self._places[topic]
                places.discard(wait.place)
                if not places:
                    del self._places[topic]


def _topics(place: Place) -> tuple[str, str, str]:
    """Whose messages are handed out there."""
    group, topic, _ = place
    return (
        topic,
        retry_topic(group, topic, RETRY_V1),
        retry_topic(group, topic, RETRY_V2),
    )
