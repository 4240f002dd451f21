"""A stock slave with all habits, our elected master: what counts is ours, and kept."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.epoch_labels import appended, consistent_point, cut
from rmqha.controller.other_members import MemberLabels
from rmqha.wire.ha_frame import BodyPart
from rmqha.wire.ha_v2 import (
    EpochLabel,
    HandshakeAnswer,
    MasterMessages,
    TransferHeader,
    encode_report,
)
from tests.ha.elected.cases import EPOCH, OWN, SLAVE, SetCase, at
from tests.support.machines import run_machine

OURS = (EpochLabel(1, 0), EpochLabel(3, 300), EpochLabel(5, 700))
"""The chain of the masters before us; each wrote bytes that are its epoch."""

END = 1000

COUNTS = st.sampled_from((0, 1, 100, 5000, 5000, 5000))
"""Bytes that are taken at one time: mostly all."""


@define(eq=False, repr=False)
class StockMember:
    """A stock slave, its bytes and its epoch file.

    @ivar seen: The label that it remembers to have seen last, in the file or not.
    @ivar held: Up to where it has acknowledged records that we counted, and not lost them since.
    """

    log: bytearray = field(factory=bytearray)
    labels: list[EpochLabel] = field(factory=list)
    seen: int = -1
    held: int = 0
    protocol: Any = None
    transport: Any = None
    messages: Any = None
    taken: int = 0

    def restart(self) -> None:
        """Its process begins: what it remembers is what its file has."""
        self.seen = self.labels[-1].label if self.labels else -1

    def hear(self, count: int) -> None:
        """Take the next C{count} bytes that it was sent."""
        data = self.transport.value()[self.taken : self.taken + count]
        self.taken += len(data)
        for event in self.messages.receive(data):
            if isinstance(event, HandshakeAnswer):
                self._answered(event)
            elif isinstance(event, TransferHeader):
                self._learn(EpochLabel(event.label, event.start))
            elif isinstance(event, BodyPart):
                assert event.offset == len(self.log), "it would close here"
                self.log += event.data

    def tear(self, ends: list[int]) -> None:
        """Cut off what has not come as a whole record, as before each connection."""
        place = bisect_right(ends, len(self.log))
        if 0 < place < len(ends):
            del self.log[ends[place - 1] :]

    def _answered(self, answer: HandshakeAnswer) -> None:
        if self.labels:
            point = consistent_point(self.labels, len(self.log), answer.labels, answer.end)
            assert point is not None, "they have the oldest in common"
            assert point >= self.held, f"it cuts at {point}, and acknowledged {self.held}"
            del self.log[point:]
            self.labels = list(cut(tuple(self.labels), point))

    def _learn(self, label: EpochLabel) -> None:
        if label.label != self.seen:
            self.seen = label.label
            last = self.labels[-1] if self.labels else EpochLabel(-1, -1)
            if label.label > last.label and label.start > last.start:
                self.labels.append(label)


class StockMachine(RuleBasedStateMachine):
    """One stock slave, whose log may have a tail not ours, and its epoch file may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[Deferred[MemberLabels]] = []

    @initialize(
        common=st.integers(0, END) | st.sampled_from((300, 700, END)),
        tail=st.integers(0, 300),
        other=st.sampled_from((2, 4, 6)),
        filed=st.booleans(),
    )
    def begin(self, common: int, tail: int, other: int, filed: bool) -> None:
        """It was master itself, or slave of one of another epoch, behind what is common."""
        self.case = SetCase()
        self.case.build(end=0, labels=(EpochLabel(EPOCH, 0),))
        self.case.master.end()
        for label, end in zip(OURS, (300, 700, END), strict=True):
            self.case.log.put(bytes([label.label]) * (end - label.start))
        self.labels = (*OURS, EpochLabel(EPOCH, END))
        self.epoch = EPOCH
        # Where its records end.
        self.ends = [0, 300, 700, END]
        self.lead()
        member = self.member = StockMember()
        member.log += self.case.log.content(0, common)
        member.labels = list(cut(OURS, common))
        if tail and (not member.labels or other > member.labels[-1].label):
            member.log += bytes([other]) * tail
            member.labels = list(appended(tuple(member.labels), EpochLabel(other, common)))
        if member.labels and member.labels[0].start == common == 0:
            # Nothing of it is common: a slave of the same set has the first label, or nothing.
            member.log.clear()
            member.labels.clear()
        if not filed:
            member.labels.clear()
        member.restart()

    def lead(self) -> None:
        """Our epoch begins, maybe in another process, that knows of nobody."""
        self.case.labels = self.labels
        self.case.coordinator.state = at(OWN, self.epoch, OWN, set_epoch=self.epoch)
        self.master = self.case.again()
        self.master.proofs.labels_of = self.labels_of

    def labels_of(self, address: str, token: int) -> Deferred[MemberLabels]:
        """The slave is asked at its client port."""
        asked: Deferred[MemberLabels] = Deferred()
        self.questions.append(asked)
        return asked

    def tell(self) -> None:
        """It answers what it is asked, as it is now."""
        questions, self.questions = self.questions, []
        for asked in questions:
            asked.callback(MemberLabels(tuple(self.member.labels), len(self.member.log)))

    # --- the slave ------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether it has a connection."""
        member = self.member
        return member.protocol is not None and not member.transport.disconnecting

    @rule(early=st.sampled_from((0, 0, 5000)), count=COUNTS)
    def connect(self, early: int, count: int) -> None:
        """It connects, says who it is, takes something C{early}, cuts, reports, and takes more."""
        self.disconnect()
        member = self.member
        size, log = len(member.log), self.case.log
        if size <= log.end and bytes(member.log) == log.content(0, size):
            member.tear(self.ends)
        member.messages, member.taken = MasterMessages(), 0
        member.protocol, member.transport = self.case.greeted(SLAVE)
        member.hear(1 << 20)
        self.ack()
        member.hear(early)
        self.tell()
        self.follow(count)

    def disconnect(self) -> None:
        if self.member.protocol is not None:
            self.case.lose(self.member.protocol)
            self.member.protocol = None

    @rule(count=COUNTS)
    def follow(self, count: int) -> None:
        """It takes what it was sent, and says so."""
        if self.connected:
            self.member.hear(count)
            self.ack()
            self.tell()

    def ack(self) -> None:
        member = self.member
        member.protocol.dataReceived(encode_report(len(member.log)))
        if SLAVE in self.master.in_sync.claims:
            acked = self.master.in_sync.claims[SLAVE].acked
            member.held = max(member.held, self.ends[bisect_right(self.ends, acked) - 1])

    @rule(what=st.sampled_from(("process", "process", "labels", "log")))
    def lose(self, what: str) -> None:
        """Its process ends; maybe it lost its epoch file too, or its store was emptied."""
        self.disconnect()
        if what == "log":
            self.member = StockMember()
        elif what == "labels":
            self.member.labels.clear()
        self.member.restart()

    # --- the master -----------------------------------------------------------------------

    @rule(size=st.integers(1, 300))
    def write(self, size: int) -> None:
        self.case.log.put(bytes([self.epoch]) * size)
        self.ends.append(self.case.log.end)

    @rule()
    def elected_again(self) -> None:
        """We are elected again, and lead in a new epoch."""
        self.epoch += 1
        self.labels = appended(self.labels, EpochLabel(self.epoch, self.case.log.end))
        self.master.end()
        self.disconnect()
        self.lead()

    @rule(seconds=st.sampled_from((0.2, 2.0, 6.0)))
    def wait(self, seconds: float) -> None:
        self.case.pass_time(seconds, 0.2)

    # --- what always holds ------------------------------------------------------------------

    @invariant()
    def counted_is_ours(self) -> None:
        claim = self.master.in_sync.claims.get(SLAVE) if hasattr(self, "master") else None
        if claim is not None:
            ours = self.case.log.content(0, claim.acked)
            assert bytes(self.member.log[: claim.acked]) == ours

    def teardown(self) -> None:
        if hasattr(self, "master"):
            self.master.end()


class StockMemberTests(SynchronousTestCase):
    def test_counted_is_ours(self) -> None:
        """Whatever its log and its epoch file were and become, a stock slave that counts holds our
        bytes up to its report, and never cuts what it has acknowledged.
        """
        run_machine(StockMachine, count=150, steps=40)
