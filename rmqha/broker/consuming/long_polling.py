"""Pulls that wait for a message: long polling.

A hold ends at its very deadline, when dispatch brings a message that is wanted, when its
client pulls the same again, or with its connection.

Source: docs/protocol/remoting.md, Pulling.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from rmqha.broker.consuming.chosen_units import matches
from rmqha.broker.consuming.queue_reader import SCAN
from rmqha.errors import RequestRefused
from rmqha.store.derived.consume_queues import ConsumeQueues, Moves
from rmqha.store.derived.dispatch import Dispatcher
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import ResponseCode

MOST = 100_000
"""Most holds at once; what comes above is answered at once.  A hold is about 2 KiB."""

LONGEST = 600.0
"""Most seconds of a hold, whatever is asked for."""

SKIP = 5.0
"""Most seconds until a client is told to go on behind messages it does not want, as with stock
brokers."""

Place: TypeAlias = tuple[str, int]
"""A topic and a queue id."""
PassedOver: TypeAlias = Callable[[int], int]
"""Says of a queue offset up to where nothing is wanted from there on."""


@define(eq=False)
class _Hold:
    """@ivar answer: Gives the answer as it is then.
    @ivar passed_over: Says of a queue offset how far nothing is wanted from there on; C{None} if
        C{codes} say all.
    @ivar seen: The queue offset from which on nothing was compared with what is wanted yet.
    """

    place: Place
    who: Hashable
    waiting: Deferred[Answer]
    answer: Callable[[], Answer]
    codes: frozenset[int] | None
    passed_over: PassedOver | None
    seen: int
    timer: IDelayedCall
    skipping: bool = False


class LongPolling:
    """All pulls that wait.

    @ivar count: How many there are.
    """

    def __init__(self, clock: IReactorTime, queues: ConsumeQueues, dispatcher: Dispatcher) -> None:
        """@param dispatcher: Tells what comes."""
        self._clock = clock
        self._queues = queues
        self._held: dict[Place, dict[Hashable, _Hold]] = {}
        # Queues that units came to in the running slice of dispatch.
        self._came: dict[Place, None] = {}
        self.count = 0
        self._latest = clock.seconds() - SKIP
        self._dispatcher = dispatcher
        dispatcher.awaited = self._awaited
        dispatcher.on_units.append(self._units)
        dispatcher.on_pause.append(self._wake)

    def hold(
        self,
        place: Place,
        who: Hashable,
        seconds: float,
        offset: int,
        codes: frozenset[int] | None,
        answer: Callable[[], Answer],
        passed_over: PassedOver | None = None,
    ) -> Deferred[Answer] | None:
        """Let a pull wait.

        @param place: Topic and queue id.
        @param who: Whose pull it is: an older one of the same is answered now.
        @param seconds: How long.
        @param offset: The first message waited for, in messages.
        @param codes: The tags codes wanted; C{None} is all.
        @param answer: Gives the answer when the wait is over.
        @param passed_over: Says of a queue offset up to where nothing is wanted; for who does not
            go by tags.
        @return: The answer; to cancel it ends the hold.  C{None} if there is no place.
        """
        older = self._held.get(place, {}).get(who)
        if older is not None:
            self._finish(older)
        if self.count >= MOST:
            return None
        timer = self._clock.callLater(min(seconds, LONGEST), lambda: self._finish(hold))
        waiting: Deferred[Answer] = Deferred(lambda _: self._drop(hold))
        hold = _Hold(place, who, waiting, answer, codes, passed_over, offset, timer)
        self._held.setdefault(place, {})[who] = hold
        self.count += 1
        self._latest = self._clock.seconds()
        return waiting

    def stop(self) -> None:
        """Refuse all that wait: the store is about to close, or its next broker to be made."""
        if self._units in self._dispatcher.on_units:
            self._dispatcher.on_units.remove(self._units)
            self._dispatcher.on_pause.remove(self._wake)
        for holds in tuple(self._held.values()):
            for hold in tuple(holds.values()):
                self._drop(hold)
                hold.waiting.errback(
                    RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the store is closing")
                )

    def _awaited(self) -> bool:
        # One that was just answered comes again.
        return self.count > 0 or self._clock.seconds() - self._latest < SKIP

    def _units(self, moves: Moves) -> None:
        if self._held:
            self._came.update((place, None) for place in moves if place in self._held)

    def _wake(self) -> None:
        """Dispatch has paused: answer all at once who wanted what came."""
        if not self._came:
            return
        came, self._came = self._came, {}
        for place in came:
            for hold in tuple(self._held.get(place, {}).values()):
                if self._wanted(hold):
                    self._finish(hold)

    def _wanted(self, hold: _Hold) -> bool:
        queue = self._queues.get(*hold.place)
        if queue is None or queue.max_offset <= hold.seen:
            return queue is None
        if hold.passed_over is not None:
            if hold.passed_over(hold.seen) < queue.max_offset:
                return True
        elif hold.codes is None:
            return True
        else:
            raw = queue.units(hold.seen, SCAN)
            if not raw or matches(raw, hold.codes) or queue.max_offset - hold.seen >= SCAN:
                return True
        hold.seen = queue.max_offset
        if not hold.skipping:
            hold.skipping = True
            left = hold.timer.getTime() - self._clock.seconds()
            hold.timer.reset(min(left, SKIP))
        return False

    def _finish(self, hold: _Hold) -> None:
        self._drop(hold)
        try:
            answer = hold.answer()
        except Exception:
            hold.waiting.errback(Failure())
        else:
            hold.waiting.callback(answer)

    def _drop(self, hold: _Hold) -> None:
        if hold.timer.active():
            hold.timer.cancel()
        others = self._held[hold.place]
        del others[hold.who]
        if not others:
            del self._held[hold.place]
        self.count -= 1
