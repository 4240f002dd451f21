"""Asks again and again what is decided of a set.

A controller tells its members of an election, but that may be lost; asking is what counts.  While
the master is heard a question in five seconds is enough; when it is not, another one may be elected
at any moment, and so for some seconds one follows the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmqha.controller.coordinator import Coordinator, SetState
from rmqha.errors import RmqhaError
from rmqha.periodic import NodePart, Periodic, cancelled

LOOK = 5.0
"""Seconds between questions while the master is heard; stock members' value."""

TICK = 0.2
"""Seconds between two while it is not: a set has another master within a second of a kill."""

HURRIED = 10.0
"""Seconds for which that goes on; then it is L{RELAXED}."""

RELAXED = 1.0

NEAR, SOON = 0.05, 2.0
"""Seconds between two while a master that was just elected is none yet, and for how long: no write
is acknowledged before it is followed.
"""


@define(eq=False, kw_only=True)
class SetWatch(NodePart):
    """What is decided of one set, as far as is known.

    @ivar coordinator: Decides.
    @ivar heard: Whether the master is heard, or is this node.
    @ivar decided: Is given each answer, and never a second one before it has done with the first;
        says in words what keeps the node from acting on it.
    @ivar trouble: Why nothing is done, in words; empty while all is well.
    @ivar state: What was answered last; C{None} before the first answer.
    @ivar answered: When a controller last answered, in the clock's seconds; at first, when we
        began.
    @ivar lost: Since when the master is not heard; C{None} while it is.
    @ivar looking: Asks.
    """

    coordinator: Coordinator
    clock: IReactorTime
    heard: Callable[[], bool]
    decided: Callable[[SetState], Awaitable[str]]
    trouble: str = field(default="not asked yet", init=False)
    state: SetState | None = field(default=None, init=False)
    answered: float = field(init=False)
    lost: float | None = field(default=None, init=False)
    looking: Periodic = field(init=False)
    _asked: float = field(default=-LOOK, init=False)
    # Of which epoch the last answer was, and since when.
    _epoch: tuple[int, float] = field(default=(-1, 0.0), init=False)
    _near: IDelayedCall | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.answered = self.clock.seconds()
        self.looking = Periodic("asking the controller who is master", self.clock, self._look)

    def start(self) -> None:
        """Ask at once, and go on."""
        self.looking.start(TICK, now=True)

    def hurry(self) -> None:
        """Something may have been decided: ask now, or again when what is asked is answered."""
        self._asked = -LOOK
        self.looking.hurry()

    def stop(self) -> Deferred[None]:
        """Ask no more.

        @return: Fires when no answer is acted on any longer.
        """
        self._far()
        return self.looking.stop()

    def silent(self) -> float:
        """Seconds since a controller answered."""
        return self.clock.seconds() - self.answered

    def alone(self) -> float:
        """Seconds since the master was heard; 0 while it is."""
        return 0.0 if self.lost is None else self.clock.seconds() - self.lost

    def _look(self) -> Deferred[None] | None:
        now = self.clock.seconds()
        if self.heard():
            self.lost = None
        elif self.lost is None:
            self.lost = now
        if self.lost is None:
            pause = LOOK
        else:
            pause = TICK if now - self.lost < HURRIED else RELAXED
        if now - self._asked < pause - TICK / 2:
            return None
        self._asked = now
        return Deferred.fromCoroutine(self._ask())

    def _far(self) -> None:
        self._near = cancelled(self._near)

    def _come_near(self, state: SetState) -> None:
        """Look again soon, if this master was elected a moment ago."""
        now = self.clock.seconds()
        if self._epoch[0] != state.master_epoch:
            self._epoch = state.master_epoch, now
        self._far()
        if state.master is not None and now - self._epoch[1] < SOON:
            self._near = self.clock.callLater(NEAR, self.hurry)

    async def _ask(self) -> None:
        try:
            self.state = state = await self.coordinator.current()
            self.answered = self.clock.seconds()
            self._come_near(state)
            trouble = await self.decided(state)
        except (RmqhaError, OSError) as error:
            trouble = str(error)
        if not trouble or not self.looking.running:
            self._far()
        if trouble and trouble != self.trouble:
            self._log.warn("Not following what is decided of the set: {why}", why=trouble)
        self.trouble = trouble
