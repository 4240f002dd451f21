"""The SyncStateSet of an elected master: who is in, and below which offset all of them hold the
log.

The controller has the set, and elects the next master from it; it takes the master's word for who
belongs in.  So what is wrong here is wrong for good.

B{Who is in.}  A member whose connection ends leaves at once, one that lags for C{late_after} a
little later.  One that has caught up enters.  Under load none ever has: so the end of the log at
one moment is its goal, and the confirm offset waits for it from then on, so that it holds all that
was confirmed when it enters.

B{What the controller may hold.}  One change is asked for at a time.  Until it is answered, the set
before and the set after may be in force.  If it is not answered, both may be until the controller
tells a newer set epoch, which a change that is still on its way cannot pass any more: no time ends
that, as a network may deliver late what it was given.  So a newer set epoch is provoked, by asking
for another change, or for the same one again.  That holds too for what a process before this one
has asked for in the same master epoch.  Whatever is decided here counts the members of
I{every} set that may be in force.

B{Confirm} is the smallest acknowledgement of those, never less than it was.

Offsets are physical, in bytes.

Source: docs/protocol/controller.rst, The SyncStateSet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.controller.coordinator import Coordinator, SetState
from rmqha.errors import ControllerRefused, DiskFull, NoController
from rmqha.ha.master.ledger import Claim
from rmqha.ha.master.replicas import Timeline
from rmqha.wire.remoting.codes import ControllerResponseCode

Ids = frozenset[int]
"""The controller ids of members."""

NEAR = 1.0
"""Seconds that a member may lag that is to enter, and that confirm waits for it."""

PAUSE = 1.0
"""Seconds after a change that was not made, before one is asked for again."""

NOT_AGAIN = 5.0
"""Seconds after which a member that did not reach its goal gets another one."""

_SUPERSEDED = (ControllerResponseCode.FENCED_MASTER_EPOCH, ControllerResponseCode.INVALID_MASTER)


@frozen
class _Entering:
    """A member that is to enter.

    @ivar goal: What it has to hold for that.
    @ivar until: How long it has time.
    """

    id: int
    goal: int
    until: float


@define(eq=False, kw_only=True)
class InSyncSet:
    """One set, during one master epoch of ours.

    @ivar own: Our controller id.
    @ivar state: What the controller is known to have decided.
    @ivar coordinator: Decides.
    @ivar limit: Where our log ends, as far as it may be sent.
    @ivar timeline: When our log had grown to where.
    @ivar newest_start: Where the newest label of our log starts.
    @ivar late_after: Seconds that a member may lag (C{haMaxTimeSlaveNotCatchup}).
    @ivar confirm: Below it every member holds the log.
    @ivar confirm_moved: Called after it has.
    @ivar changed: Called after the members that count have changed.
    @ivar superseded: Called when a controller's answer says that this is not our epoch any more.
    @ivar claims: What members hold for certain that are connected, by id.
    """

    own: int
    state: SetState
    coordinator: Coordinator
    clock: IReactorTime
    newest_start: int
    limit: Callable[[], int] = lambda: 0
    timeline: Timeline = field(factory=Timeline)
    late_after: float = 15.0
    confirm: int = 0
    confirm_moved: Callable[[], None] = lambda: None
    changed: Callable[[], None] = lambda: None
    superseded: Callable[[], None] = lambda: None
    claims: dict[int, Claim] = field(factory=dict, init=False)
    _members: Ids = field(init=False)
    _smallest: int = field(init=False)
    _pending: Ids | None = field(default=None, init=False)
    # What was asked for and not answered, at first by a process before this one: it may be made as
    # long as no newer set epoch is told.
    _unknown: set[Ids] = field(factory=set, alias="asked_before")
    # What the controller did not let us have since it told the last one.
    _refused: set[Ids] = field(factory=set, init=False)
    _entering: _Entering | None = field(default=None, init=False)
    # When a member may be given a goal again.
    _again: dict[int, float] = field(factory=dict, init=False)
    # Who lagged too long when that was looked at last, and what it has to hold not to any more.
    _late: dict[int, int] = field(factory=dict, init=False)
    _seen: set[int] = field(factory=set, init=False)
    _began: float = field(init=False)
    _not_before: float = field(default=float("-inf"), init=False)
    # Of which change that was not made the log tells already.
    _said: tuple[str, Ids] | None = field(default=None, init=False)
    _asking: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._began = self.clock.seconds()
        sets = tuple(self.possible())
        self._members = frozenset().union(*sets)
        self._smallest = min(map(len, sets))

    # --- what is known ------------------------------------------------------------

    @property
    def members(self) -> Ids:
        """Every id of every set that may be in force; ours is one of them."""
        return self._members

    def possible(self) -> Iterator[Ids]:
        """Every set that may be in force."""
        yield self.state.in_sync
        yield from self._unknown
        if self._pending is not None:
            yield self._pending

    @property
    def alone(self) -> bool:
        """Whether nobody but us is in any of them."""
        return len(self._members) == 1

    @property
    def smallest(self) -> int:
        """How many members the smallest of them has."""
        return self._smallest

    @property
    def connected(self) -> bool:
        """Whether every other member is connected, and what it says counts: none of them can have
        become master then.
        """
        return all(number in self.claims for number in self._members if number != self.own)

    def reach(self) -> int:
        """Up to where every member that counts has acknowledged the log, ourselves apart; if there
        is none, any that is connected.  -1 if one that counts is not connected.
        """
        others = [number for number in self._members if number != self.own]
        if not others:
            return max((claim.acked for claim in self.claims.values()), default=-1)
        claims = [self.claims.get(number) for number in others]
        return min(-1 if claim is None else claim.acked for claim in claims)

    def hold(self, begin: int, end: int) -> bool:
        """Whether every member holds a part of the log, and at least one beside ourselves does."""
        claims = self.claims
        for number in self._members:
            if number != self.own:
                claim = claims.get(number)
                if claim is None or not claim.covers(begin, end):
                    return False
        return not self.alone or any(claim.covers(begin, end) for claim in claims.values())

    # --- what happens -------------------------------------------------------------

    def joined(self, number: int, claim: Claim) -> None:
        """What a registered member says counts from now on."""
        self.claims[number] = claim
        self._seen.add(number)
        self.acked()

    def lost(self, number: int) -> None:
        """It does not any more."""
        if self.claims.pop(number, None) is not None:
            self._drop_entering(number)
            self._next()

    def acked(self) -> None:
        """A member has reported, or our log has grown."""
        self._raise_confirm()
        if not self.claims.keys() <= self.state.in_sync:
            # Somebody is connected that is not in.
            self._next()

    def look(self) -> None:
        """Time has passed: who lags too long, has not reached its goal, and has never come?"""
        now = self.clock.seconds()
        limit = self.limit()
        self._late = {
            number: limit
            for number, claim in self.claims.items()
            if claim.acked < limit and self.timeline.age(claim.acked, now) > self.late_after
        }
        entering = self._entering
        if entering is not None and now >= entering.until:
            self._drop_entering(entering.id)
            self._raise_confirm()
        if self._unknown:
            self._ask()
        self._next()

    def told(self, state: SetState) -> None:
        """The controller tells what is decided.  What is older than what is known here is passed
        over.
        """
        ours = self.state
        if self._closed:
            return
        if state.master_epoch > ours.master_epoch:
            self.superseded()
        elif (
            state.master is not None
            and state.master.id == self.own
            and state.master_epoch == ours.master_epoch
            and state.set_epoch > ours.set_epoch
        ):
            self._log.info(
                "The SyncStateSet is {now} in set epoch {epoch}; it was {before}",
                now=sorted(state.in_sync),
                epoch=state.set_epoch,
                before=sorted(ours.in_sync),
            )
            self.state = state
            # Whatever is still on its way names a set epoch that is over.
            self._unknown.clear()
            self._refused.clear()
            self._weigh()

    def close(self) -> None:
        """This is not our epoch any more: ask for nothing, and confirm nothing."""
        self._closed = True

    # --- changes --------------------------------------------------------------------

    def _next(self) -> None:
        """Ask for the change that is due, if none is on its way."""
        busy = self._pending is not None or self._asking or self._closed
        if busy or self.clock.seconds() < self._not_before:
            return
        in_sync = self.state.in_sync
        gone = frozenset(filter(self._is_gone, in_sync))
        if gone:
            self._change(in_sync - gone)
            return
        number = self._enters()
        if number is not None:
            self._change(in_sync | {number})
        elif self._unknown and (new := self._provoking()) is not None:
            self._change(new)

    def _provoking(self) -> Ids | None:
        """A change that makes impossible all that was not answered.  That itself, asked for again,
        is one: whoever it takes in has all that was acknowledged since, as it was counted.  Where
        it is refused, as for a member that is dead, one that is in leaves, and enters at once
        again.
        """
        again = [new for new in self._unknown if not any(map(self._has_lost, new))]
        new = next((new for new in again if new not in self._refused), None)
        others = self.state.in_sync - {self.own}
        if new is None and others:
            return self.state.in_sync - {max(others)}
        return new or next(iter(again), None)

    def _has_lost(self, number: int) -> bool:
        """Whether a member is connected that has less than it was counted on to have."""
        claim = self.claims.get(number)
        return claim is not None and claim.acked < self.confirm

    def _is_gone(self, number: int) -> bool:
        if number == self.own:
            return False
        claim = self.claims.get(number)
        if claim is not None:
            return claim.acked < self._late.get(number, 0)
        # One that was there when we began, and has not come yet, has time.
        return number in self._seen or self.clock.seconds() - self._began > self.late_after

    def _enters(self) -> int | None:
        """Who has reached its goal; one that has none yet and is near gets one."""
        entering, limit = self._entering, self.limit()
        if entering is not None:
            reached = self.claims[entering.id].acked >= entering.goal
            return entering.id if reached else None
        now = self.clock.seconds()
        for number, claim in self.claims.items():
            if number in self.state.in_sync or claim.acked < self.newest_start:
                continue
            if claim.acked >= max(limit, self.confirm):
                return number
            if now >= self._again.get(number, now) and self.timeline.age(claim.acked, now) < NEAR:
                self._entering = _Entering(number, max(limit, self.confirm), now + NEAR)
                return None
        return None

    def _drop_entering(self, number: int) -> None:
        if self._entering is not None and self._entering.id == number:
            self._entering = None
            self._again[number] = self.clock.seconds() + NOT_AGAIN

    def _change(self, new: Ids) -> None:
        self._pending, self._entering = new, None
        self._weigh()
        self.coordinator.alter(self.state, new).addCallbacks(
            self._altered, self._not_altered, errbackArgs=(new,)
        ).addErrback(self._surprise)

    def _altered(self, state: SetState) -> None:
        self._pending = self._said = None
        self.told(state)
        self._weigh()
        self._next()

    def _not_altered(self, failure: Failure, new: Ids) -> None:
        """It was not made, or nobody knows."""
        self._pending = None
        self._not_before = self.clock.seconds() + PAUSE
        error = failure.value
        if isinstance(error, ControllerRefused):
            outcome = "was refused"
            self._refused.add(new)
            if error.code in _SUPERSEDED:
                self.superseded()
        elif isinstance(error, NoController):
            outcome = "did not reach the controller"
        elif isinstance(error, (DiskFull, OSError)):
            outcome = "could not be written down, and was not asked for"
        else:
            outcome = "was not answered, and may be made all the same"
            self._unknown.add(new)
        if not isinstance(error, NoController):
            self._ask()
        if not self._closed and (outcome, new) != self._said:
            self._said = outcome, new
            self._log.warn(
                "The change of the SyncStateSet from {before} to {new} {outcome}: {error}",
                before=sorted(self.state.in_sync),
                new=sorted(new),
                outcome=outcome,
                error=failure.getErrorMessage(),
            )
        self._weigh()

    def _ask(self) -> None:
        if self._asking or self._closed:
            return
        self._asking = True
        self.coordinator.current().addCallbacks(self._current, self._not_current).addErrback(
            self._surprise
        )

    def _current(self, state: SetState) -> None:
        self._asking = False
        self.told(state)
        self._weigh()
        self._next()

    def _not_current(self, failure: Failure) -> None:
        """The next look asks again."""
        self._asking = False

    def _surprise(self, failure: Failure) -> None:
        self._log.failure("Changing the SyncStateSet failed", failure)

    # --- what follows ----------------------------------------------------------------

    def _weigh(self) -> None:
        """The sets that may be in force may have changed."""
        sets = tuple(self.possible())
        members: Ids = frozenset().union(*sets)
        smallest = min(map(len, sets))
        if (members, smallest) != (self._members, self._smallest):
            self._members, self._smallest = members, smallest
            self.changed()
        self._raise_confirm()

    def _raise_confirm(self) -> None:
        held = self.limit()
        counted = self._members
        if self._entering is not None:
            counted |= {self._entering.id}
        for number in counted:
            if number != self.own:
                claim = self.claims.get(number)
                if claim is None:
                    return
                held = min(held, claim.acked)
        if held > self.confirm and not self._closed:
            self.confirm = held
            self.confirm_moved()

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        return {
            "masterEpoch": self.state.master_epoch,
            "syncStateSet": sorted(self.state.in_sync),
            "setEpoch": self.state.set_epoch,
            "mayAlsoBe": [sorted(each) for each in self.possible() if each != self.state.in_sync],
            "confirmOffset": self.confirm,
        }
