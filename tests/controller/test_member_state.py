"""Tests for L{rmqha.controller.member_state}."""

from __future__ import annotations

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.controller.member_state import Duty, MemberStanding, duty


def decided(master: int | None, epoch: int) -> SetState:
    """What a controller says."""
    elected = None if master is None else ElectedMember(master, f"10.0.0.{master}:10911")
    return SetState(master=elected, master_epoch=epoch, in_sync=frozenset({1, 2}), set_epoch=1)


def member(
    *, epoch: int = 0, leads: int | None = None, may_be_first: bool = True
) -> MemberStanding:
    """The one with id 1."""
    return MemberStanding(
        id=1, address="10.0.0.1:10911", epoch=epoch, leads=leads, may_be_first=may_be_first
    )


class DutyTests(SynchronousTestCase):
    def test_each(self) -> None:
        """Leading and following, elections, and what is not believed."""
        elsewhere = evolve(decided(1, 1), master=ElectedMember(1, "10.0.0.9:10911"))
        rows = [
            (decided(None, 0), member(), Duty.ELECT),
            (decided(None, 0), member(may_be_first=False), Duty.WAIT),
            (decided(None, 3), member(epoch=2, may_be_first=False), Duty.ELECT),
            (decided(1, 1), member(), Duty.LEAD),
            (decided(1, 1), member(epoch=1), Duty.LEAD),
            (decided(1, 1), member(epoch=1, leads=1), Duty.GO_ON),
            (decided(1, 2), member(epoch=1, leads=1), Duty.LEAD),
            (decided(2, 2), member(epoch=1, leads=1), Duty.FOLLOW),
            (decided(2, 2), member(epoch=2), Duty.FOLLOW),
            (decided(2, 1), member(epoch=2), Duty.REFUSE),
            (decided(1, 1), member(epoch=2, leads=2), Duty.REFUSE),
            (decided(None, 0), member(epoch=2), Duty.REFUSE),
            (elsewhere, member(epoch=1), Duty.STEP_ASIDE),
            (elsewhere, member(epoch=1, leads=1), Duty.STEP_ASIDE),
        ]
        for state, who, expected in rows:
            self.assertIs(duty(state, who), expected, (state, who))
