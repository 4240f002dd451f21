"""What a member of a set does, and what follows for it from what is decided: pure values.

Source: docs/states.rst, Members of a set.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from attrs import frozen

from rmqha.controller.coordinator import SetState


class MemberState(StrEnum):
    """C{controller.state} of C{/status}."""

    NO_CONTROLLER = "no-controller"
    """Nobody has told who leads the controllers: nothing is served."""
    JOINING = "joining"
    """An id is asked for: nothing is served."""
    WAITING = "waiting"
    """There is no master."""
    FOLLOWING = "following"
    PROMOTING = "promoting"
    """Elected: the epoch is written down, and queues brought to the log's end."""
    LEADING = "leading"
    FENCED = "fenced"
    """Leading, and not sure of it: no write is taken."""
    DEMOTING = "demoting"
    """Another one was elected: waiting writes are answered, connections end."""
    REFUSED = "refused"
    """What is decided cannot be acted on without losing data: an operator has to look."""
    STOPPED = "stopped"


class Duty(Enum):
    """What a decision asks of a member."""

    GO_ON = auto()
    """To lead on."""
    LEAD = auto()
    """To lead, from now on, or in a new epoch."""
    FOLLOW = auto()
    ELECT = auto()
    """To ask for an election: there is no master."""
    WAIT = auto()
    """To wait for one that has the data: it is the set's first."""
    REFUSE = auto()
    """Not to believe it: the log has seen a later epoch."""
    STEP_ASIDE = auto()
    """Not to lead: the master has this member's id and another address."""


@frozen(kw_only=True)
class MemberStanding:
    """What a member knows of itself.

    @ivar id: Its controller id.
    @ivar address: C{host:port} of its client port.
    @ivar epoch: The newest epoch of its log; 0 for none.
    @ivar leads: In which epoch it leads now; C{None} if it does not.
    @ivar may_be_first: Whether it may ask for a set's first election: whoever wins that has its
        log copied by all others, whatever they hold.
    """

    id: int
    address: str
    epoch: int
    leads: int | None
    may_be_first: bool


def duty(state: SetState, member: MemberStanding) -> Duty:
    """What a decision asks of a member."""
    if state.master_epoch < member.epoch:
        return Duty.REFUSE
    if state.master is None:
        first = state.master_epoch == 0
        return Duty.WAIT if first and not member.may_be_first else Duty.ELECT
    if state.master.id != member.id:
        return Duty.FOLLOW
    if state.master.address != member.address:
        return Duty.STEP_ASIDE
    return Duty.GO_ON if member.leads == state.master_epoch else Duty.LEAD
