"""Where groups go on in queues that are popped.

A position moves when messages are handed out, and is committed when their check point is on the
disk and all have it that may be elected: who went on without it would never hand them out again.
Between the two it is here.  Whoever commits an offset meanwhile decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from attrs import define, field

from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.store.store import Store

Place: TypeAlias = tuple[str, str, int]
"""Group, topic and queue id."""


@define(eq=False)
class Move:
    """Messages that were handed out, and whose check point not all have that are to.

    @ivar to: Just past the last of them.
    @ivar end: Where their check point ends in the log, when it is stored.
    @ivar stands: Whether no offset was committed since.
    """

    place: Place
    to: int
    end: int = 0
    stands: bool = True


@define(eq=False)
class PopPositions:
    """All groups' positions.

    @ivar asked: By group and topic who has popped since the start, whether it was handed any.
    @ivar on_set_back: Called before somebody commits a lower offset, with that.
    """

    offsets: ConsumerOffsetTable
    store: Store
    asked: set[tuple[str, str]] = field(factory=set, init=False)
    on_set_back: Callable[[Place, int], None] = field(default=lambda *_: None, init=False)
    _moves: dict[Place, list[Move]] = field(factory=dict, init=False)
    # Those whose check point is stored.
    _stored: deque[Move] = field(factory=deque, init=False)
    # Where they were behind the last check point, while only unwanted messages were passed since.
    _behind: dict[Place, int] = field(factory=dict, init=False)
    # When the messages of a queue were last handed out: check points have times of their own.
    _popped: dict[Place, int] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.offsets.committed.append(self._committed)
        self.store.dispatcher.on_pause.append(self._settle)
        self.store.log.flush_listeners.append(self._settle)

    def get(self, place: Place) -> int | None:
        """Where a group goes on; C{None} if it never was there."""
        moves = self._moves.get(place)
        return moves[-1].to if moves else self.offsets.get(*place)

    def behind(self, place: Place) -> int:
        """Where a group was behind the last messages that it was handed."""
        found = self._behind.get(place)
        return (self.get(place) or 0) if found is None else found

    def skip(self, place: Place, to: int) -> None:
        """Go on behind messages that the group does not want."""
        self._behind[place] = self.behind(place)
        moves = self._moves.get(place)
        if moves:
            moves[-1].to = max(to, moves[-1].to)
        else:
            self.offsets.advance(*place, to)

    def move(self, place: Place, to: int) -> Move:
        """Go on behind some messages; L{land} is to be called with what is given."""
        move, self._behind[place] = Move(place, to), to
        self._moves.setdefault(place, []).append(move)
        return move

    def land(self, move: Move) -> None:
        """Commit a position as soon as that may be done: its check point is stored."""
        self._stored.append(move)
        self.store.flusher.wanted = True
        self._settle()

    def _settle(self) -> None:
        far = min(self.store.readable, self.store.log.flushed)
        while self._stored and self._stored[0].end <= far:
            self._land(self._stored.popleft())

    def _land(self, move: Move) -> None:
        if not move.stands:
            return
        moves = self._moves[move.place]
        moves.remove(move)
        if not moves:
            del self._moves[move.place]
        self.offsets.advance(*move.place, move.to)

    def pop_time(self, places: list[Place], now: int) -> int:
        """A time at which messages of these queues are handed out, and no others ever were."""
        found = max([now, *(self._popped[place] + 1 for place in places if place in self._popped)])
        for place in places:
            self._popped[place] = found
        return found

    def stop(self) -> None:
        """Commit nothing more."""
        self.offsets.committed.remove(self._committed)
        self.store.dispatcher.on_pause.remove(self._settle)
        self.store.log.flush_listeners.remove(self._settle)
        for place in tuple(self._moves):
            self._stay(place)

    def forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """A group or a topic is gone."""

        def gone(place: Place | tuple[str, str]) -> bool:
            return place[0] == group or place[1] == topic

        self.asked = {pair for pair in self.asked if not gone(pair)}
        for place in [*self._moves, *self._popped, *self._behind]:
            if gone(place):
                self._stay(place)
                self._popped.pop(place, None)

    def handed_out(self, place: Place) -> bool:
        """Whether messages of a queue were handed out since the start."""
        return place in self._popped

    def _committed(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        place = group, topic, queue_id
        if offset < (self.get(place) or 0):
            self.on_set_back(place, offset)
        self._stay(place)

    def _stay(self, place: Place) -> None:
        self._behind.pop(place, None)
        for move in self._moves.pop(place, ()):
            move.stands = False
