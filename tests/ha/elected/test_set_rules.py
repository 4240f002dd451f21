"""Whatever befalls an elected master: all that may be elected hold acknowledged writes."""

from __future__ import annotations

from typing import Any

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.coordinator import SetState
from rmqha.controller.other_members import MemberLabels
from rmqha.errors import ControllerRefused, ControllerUnanswered, NoController
from rmqha.ha.master.transfer import PutStatus
from rmqha.store.tables.growth_file import Growth
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.remoting.codes import ControllerResponseCode
from tests.ha.elected.cases import EPOCH, OWN, SLAVE, THIRD, PuppetCoordinator, SetCase, Told, at
from tests.support.machines import run_machine

OTHERS = (SLAVE, THIRD)


@define(eq=False)
class SlowCoordinator(PuppetCoordinator):
    """A controller whose answers are lost, and which makes changes long after they were asked for.

    @ivar growth: What is on the master's disk of those that nobody waits for any more.
    @ivar unanswered: Those of them that may be made whatever is answered to the same later.
    """

    late: list[tuple[SetState, frozenset[int]]] = field(factory=list)
    growth: Growth = field(factory=Growth)
    unanswered: set[frozenset[int]] = field(factory=set)

    def alter(self, old: SetState, new: frozenset[int]) -> Deferred[SetState]:
        """Take a change that is written down."""
        if not new <= old.in_sync:
            self.growth = self.growth.grown(old.master_epoch, old.set_epoch, new)
        return super().alter(old, new).addErrback(self.not_made, new)

    def not_made(self, failure: Failure, new: frozenset[int]) -> Failure:
        """What is certain not to be made is taken off the disk."""
        if failure.check(ControllerUnanswered):
            self.unanswered.add(new)
        elif new not in self.unanswered:
            self.growth = self.growth.without(new)
        return failure

    def possible(self) -> list[frozenset[int]]:
        """The set, and those that it may become without another word of the master."""
        asked = [(old, new) for old, new, _ in self.waiting]
        alive = [new for old, new in [*asked, *self.late] if old.set_epoch == self.state.set_epoch]
        return [self.state.in_sync, *alive]


@define(eq=False)
class Member:
    """One that follows for real: up to where it has our log, and what it has said of that."""

    holds: int = 0
    reported: int = 0
    protocol: Any = None
    transport: Any = None


class SetMachine(RuleBasedStateMachine):
    """Two members that come, go, lag and lose logs, a controller maybe away, and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.case = SetCase()
        self.case.build(end=1000, labels=(EpochLabel(EPOCH, 0),))
        self.case.master.end()
        # As build() does, with another controller.
        self.controller = SlowCoordinator(at(OWN, EPOCH, OWN), patient=True)
        self.case.coordinator = self.controller
        self.master = self.case.again()
        self.members = {number: Member() for number in OTHERS}
        self.confirm = 0

    # --- members ----------------------------------------------------------------------

    @rule(number=st.sampled_from(OTHERS))
    def connect(self, number: int) -> None:
        """A member connects, and reports where its log ends."""
        member = self.members[number]
        self.disconnect(number)
        member.reported = end = member.holds
        self.case.theirs[self.case.known[number]] = MemberLabels(
            (EpochLabel(EPOCH, 0),) if end else (), end
        )
        member.protocol, member.transport = self.case.fed(number, end)

    @rule(number=st.sampled_from(OTHERS))
    def disconnect(self, number: int) -> None:
        member = self.members[number]
        if member.protocol is not None:
            self.case.lose(member.protocol)
            member.protocol = None

    @rule(number=st.sampled_from(OTHERS), share=st.integers(1, 4), says=st.booleans())
    def read(self, number: int, share: int, says: bool) -> None:
        """A member takes some of what it was sent, and maybe says so."""
        member = self.members[number]
        if member.protocol is None or member.transport.disconnecting:
            return
        told = Told(member.transport.value())
        sent = max((each.offset + each.size for each in told.headers), default=0)
        member.holds = max(member.holds, member.holds + (sent - member.holds) * share // 4)
        if says:
            member.reported = member.holds
            self.case.ack(member.protocol, member.holds)

    @rule(number=st.sampled_from(OTHERS), offset=st.integers(0, 4000))
    def lie(self, number: int, offset: int) -> None:
        """Somebody at a member's address reports what it was not sent."""
        member = self.members[number]
        if member.protocol is not None and not member.transport.disconnecting:
            claim = member.protocol.claim
            if claim is not None and (offset > claim.sent or offset < claim.acked):
                self.case.ack(member.protocol, offset)
                assert member.transport.disconnecting, "it was not honest"

    # --- writes ------------------------------------------------------------------------

    @rule(size=st.integers(1, 200))
    def write(self, size: int) -> None:
        begin = self.case.log.end
        done = self.case.put(size)
        done.addCallback(self.answered, begin, begin + size)

    def answered(self, status: PutStatus, begin: int, end: int) -> None:
        """What is promised with an acknowledgement."""
        if status is not PutStatus.PUT_OK:
            return
        for ids in self.controller.possible():
            for number in ids - {OWN}:
                said = self.members[number].reported
                assert said >= end, f"{number} of {set(ids)} reported {said} of {end}"
        held = [number for number in OTHERS if self.members[number].reported >= end]
        assert held, "a write is held by the master alone"

    # --- the master ---------------------------------------------------------------------

    @precondition(lambda self: self.controller.down is None)
    @rule(share=st.integers(0, 4))
    def restart(self, share: int) -> None:
        """The master is killed, and back in its epoch with some quarters of what was confirmed."""
        controller = self.controller
        self.master.end()
        for number in OTHERS:
            self.disconnect(number)
        controller.late += [(old, new) for old, new, _ in controller.waiting]
        controller.waiting.clear()
        state = controller.state
        on_its_way = controller.growth.on_its_way(state.master_epoch, state.set_epoch)
        controller.unanswered.update(on_its_way)
        self.master = self.case.again(on_its_way, self.confirm * share // 4)
        self.confirm = self.master.confirm

    # --- the controller -------------------------------------------------------------------

    @precondition(lambda self: self.controller.waiting)
    @rule()
    def made(self) -> None:
        """A change is made and answered, or refused as its set epoch is over."""
        old, new, answered = self.controller.waiting.pop(0)
        if self.controller.made(old, new):
            answered.callback(self.controller.state)
        else:
            code = ControllerResponseCode.FENCED_SYNC_STATE_SET_EPOCH
            answered.errback(ControllerRefused("c:1", code, "no"))

    @precondition(lambda self: self.controller.waiting)
    @rule(made=st.booleans())
    def unanswered(self, made: bool) -> None:
        """A change gets no answer; it is made at once, or on its way still."""
        old, new, answered = self.controller.waiting.pop(0)
        if made:
            self.controller.made(old, new)
        else:
            self.controller.late.append((old, new))
        answered.errback(ControllerUnanswered("c:1", 1001, "no answer in 3 s"))

    @precondition(lambda self: self.controller.waiting)
    @rule()
    def unreached(self) -> None:
        """A change does not reach the controller."""
        self.controller.waiting.pop(0)[2].errback(NoController(("c:1",), "connection refused"))

    @precondition(lambda self: self.controller.late)
    @rule()
    def late_change(self) -> None:
        """What was on its way arrives, however late."""
        self.controller.made(*self.controller.late.pop(0))

    @rule(away=st.booleans())
    def away(self, away: bool) -> None:
        """The controller cannot be asked, or can again."""
        self.controller.down = NoController(("c:1",), "connection refused") if away else None

    @rule()
    def told(self) -> None:
        """The master is told what is decided."""
        self.master.in_sync.told(self.controller.state)

    @rule(seconds=st.sampled_from((0.05, 0.5, 1.0, 3.0, 12.0)))
    def wait(self, seconds: float) -> None:
        self.case.pass_time(seconds, min(seconds, 0.5))

    # --- what always holds ------------------------------------------------------------------

    @invariant()
    def counted(self) -> None:
        """Whoever may be elected by the controller is counted by the master."""
        for ids in self.controller.possible():
            assert ids <= self.master.in_sync.members, (ids, self.master.in_sync.members)

    @invariant()
    def confirmed(self) -> None:
        """Confirm does not go down, and every member that may be elected holds it."""
        confirm = self.master.confirm
        assert confirm >= self.confirm
        self.confirm = confirm
        for ids in self.controller.possible():
            for number in ids - {OWN}:
                assert self.members[number].reported >= confirm

    def teardown(self) -> None:
        """No write that still waits is acknowledged by the end."""
        for number in OTHERS:
            self.disconnect(number)
        self.master.end()


class SetRulesTests(SynchronousTestCase):
    def test_acknowledged_is_held(self) -> None:
        """No order of events acknowledges or confirms what an electable member lacks."""
        run_machine(SetMachine, count=150, steps=60)
