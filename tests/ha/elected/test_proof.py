"""Which members' reports are believed."""

from __future__ import annotations

import random

from twisted.internet.defer import Deferred, fail, succeed

from rmqha.config.controller_settings import ControllerSettings
from rmqha.controller.other_members import MemberLabels
from rmqha.errors import RemotingUnreachable
from rmqha.ha.master.transfer import PutStatus
from rmqha.wire.ha_v2 import FOLLOWERS, EpochLabel, encode_report, encode_token
from tests.ha.elected.cases import EPOCH, OWN, SLAVE, SetCase, Told

CHAIN = (EpochLabel(1, 0), EpochLabel(3, 8000), EpochLabel(EPOCH, 25_000))


class ProofTests(SetCase):
    """Our log is filed under 1 from 0, 3 from 8000 and 7 from 25 000, its end."""

    def setUp(self) -> None:
        self.build(labels=CHAIN)

    def counted(self) -> set[int]:
        return set(self.in_sync.claims)

    def doubt(self) -> str:
        """Why the one that is connected does not count."""
        (row,) = self.master.status()["members"]
        doubt: str = row["doubt"]
        self.assertEqual(row["counts"], not doubt)
        return doubt

    def is_ours(self, end: int, *, token_told: bool = True) -> None:
        self.theirs[self.known[SLAVE]] = MemberLabels((), end, compares=True, token_told=token_told)

    def test_empty(self) -> None:
        """Who takes our log from its first byte on needs no labels: it has nothing else."""
        self.fed(report=0)
        self.assertEqual(self.counted(), {SLAVE})
        self.build(end=45_000, min_offset=20_000, labels=(EpochLabel(1, 20_000),))
        self.fed(report=20_000)
        self.assertEqual(self.counted(), {SLAVE})
        self.build(end=45_000, min_offset=20_000, labels=(EpochLabel(1, 20_000),))
        self.fed(report=0)
        self.assertEqual(self.counted(), {SLAVE})

    def test_common_label(self) -> None:
        """A report counts up to the smaller end of the newest label that both have."""
        for labels, end, report, counts in (
            ((EpochLabel(1, 0),), 8000, 8000, True),
            ((EpochLabel(1, 0),), 9000, 8001, False),
            ((EpochLabel(1, 0), EpochLabel(3, 8000)), 20_000, 20_000, True),
            ((EpochLabel(1, 0), EpochLabel(3, 8000)), 20_000, 19_000, True),
            ((EpochLabel(1, 0), EpochLabel(2, 8000)), 9000, 8000, True),
            ((EpochLabel(1, 0), EpochLabel(2, 8000)), 9000, 9000, False),
            ((EpochLabel(1, 7),), 9000, 100, False),
            ((), 9000, 1, False),
        ):
            self.build(labels=CHAIN)
            self.has(SLAVE, end, *labels)
            self.fed(report=report)
            self.assertEqual(self.counted(), {SLAVE} if counts else set(), (labels, report))

    def test_one_that_compares(self) -> None:
        """Our member reports what it has compared: labels prove nothing, and are not missed."""
        self.theirs[self.known[SLAVE]] = MemberLabels((), 9000, compares=True)
        self.fed(report=9000)
        self.assertEqual(self.counted(), {SLAVE})

    def test_connection_of_a_member(self) -> None:
        """A member of ours, asked at the client port that the controllers list, repeats a token on
        its connection: who connects with its id from its host counts for nothing.
        """
        for report in (9000, 0):
            for honest in (True, False):
                self.build(labels=CHAIN)
                self.is_ours(9000)
                protocol, transport = self.fed(report=report)
                self.ack(protocol)
                (token,) = set(self.tokens)
                written = self.put()
                self.ack(protocol)
                self.pass_time(2.0)
                self.assertEqual(self.in_sync.state.in_sync, {OWN})
                protocol.dataReceived(encode_token(token if honest else token ^ 1))
                self.ack(protocol)
                self.pass_time(10.0)
                self.assertEqual(transport.disconnecting, not honest, report)
                self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE} if honest else {OWN})
                status = self.successResultOf(written)
                self.assertEqual(status is PutStatus.PUT_OK, honest and not report, status)
                self.assertEqual("not-its-connection" in self.factory.closed, not honest)

    def test_token_before_the_answer(self) -> None:
        """The two come on two connections, in any order."""
        self.theirs_later = Deferred()
        protocol, _ = self.fed(report=9000)
        protocol.dataReceived(encode_token(self.tokens[0]))
        self.assertEqual(self.counted(), set())
        self.theirs_later.callback(MemberLabels((), 9000, compares=True, token_told=True))
        self.assertEqual(self.counted(), {SLAVE})

    def test_token_that_does_not_come(self) -> None:
        """It is asked for again, and waited for for ten seconds, whenever the connection began."""
        self.pass_time(30.0, 1.0)
        self.is_ours(9000)
        _, transport = self.fed(report=9000)
        self.pass_time(9.0)
        self.assertFalse(transport.disconnecting)
        self.assertGreater(len(self.tokens), 3)
        self.pass_time(2.0)
        self.assertClosed(transport, "not-its-connection")

    def test_member_without_a_connection(self) -> None:
        """One that says that it has no connection to us ends whatever has its id, at once."""
        self.is_ours(9000, token_told=False)
        _, transport = self.fed(report=9000)
        self.assertClosed(transport, "not-its-connection")

    def test_token_of_a_stranger(self) -> None:
        """A token is no report, and none that was not asked for does anything."""
        protocol, transport = self.greeted()
        protocol.dataReceived(encode_token(1))
        self.ack(protocol, 0)
        protocol.dataReceived(encode_token(0) + encode_token((1 << 62) - 1))
        self.ack(protocol)
        self.assertFalse(transport.disconnecting)
        protocol.dataReceived(encode_report(-1))
        self.assertClosed(transport, "negative")
        protocol, transport = self.connect()
        protocol.dataReceived(encode_token(1))
        self.assertTrue(transport.disconnecting)

    def test_stock_member_from_the_first_byte(self) -> None:
        """A stock member that began with nothing enters the set when it has all below our newest
        label, and is asked again when it has bytes under it.
        """
        self.has(SLAVE, 25_000, *CHAIN[:2])
        protocol, transport = self.fed(report=0)
        self.ack(protocol)
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})
        written = self.put(300)
        self.ack(protocol)
        self.assertClosed(transport, "label-not-taken")
        self.pass_time(12.0)
        self.assertIs(self.successResultOf(written), PutStatus.FLUSH_SLAVE_TIMEOUT)

    def test_doubted_is_fed(self) -> None:
        """One whose log is not proven is sent all, acknowledges nothing and is not in the set."""
        self.has(SLAVE, 9000)
        protocol, transport = self.fed(report=9000)
        self.ack(protocol)
        self.assertEqual(Told(transport.value()).body, self.log.content(9000, 25_000))
        self.assertIn("9000 bytes has no epoch labels", self.doubt())
        self.assertEqual(self.successResultOf(self.put()), PutStatus.SLAVE_NOT_AVAILABLE)
        self.ack(protocol)
        self.pass_time(20, 1.0)
        self.assertEqual(self.coordinator.asked, [])

    def test_doubted_learns_no_label(self) -> None:
        """Labels would prove its log wrongly later: it is told none, by frame or heartbeat."""
        self.has(SLAVE, 9000)
        protocol, transport = self.fed(report=9000)
        self.ack(protocol)
        self.put(300)
        self.pass_time(11.0)
        told = Told(transport.value())
        self.assertTrue(told.transfers and told.heartbeats)
        self.assertEqual({(each.label, each.start) for each in told.headers}, {(-1, 0)})

    def test_begun_anew(self) -> None:
        """One that was doubted counts when it has begun anew with nothing, with labels."""
        self.has(SLAVE, 9000)
        protocol, _ = self.fed(report=9000)
        self.lose(protocol)
        protocol, transport = self.fed(report=0)
        self.assertEqual(self.counted(), {SLAVE})
        self.assertEqual({each.label for each in Told(transport.value()).transfers}, {1, 3})
        self.ack(protocol)
        self.lose(protocol)
        self.has(SLAVE, 25_000, *CHAIN[:2])
        self.fed(report=25_000)
        self.assertEqual(self.counted(), {SLAVE})

    def test_cut_to_what_is_proven(self) -> None:
        """One that was doubted and has cut its log to where the labels agree counts."""
        self.has(SLAVE, 9000, EpochLabel(1, 0))
        protocol, _ = self.fed(report=9000)
        self.assertIn("ours up to 8000 only", self.doubt())
        self.lose(protocol)
        self.has(SLAVE, 8000, EpochLabel(1, 0))
        self.fed(report=8000)
        self.assertEqual(self.counted(), {SLAVE})

    def test_follower_of_a_set_with_etcd(self) -> None:
        """A stock broker with an id above all members' is judged by its labels, where it said that
        it is; it counts for nothing though it does not say that it is a learner.
        """
        for host, fed in (("10.0.0.3", True), ("10.0.0.9", False)):
            self.build(labels=CHAIN)
            self.known[FOLLOWERS] = f"{host}:10921"
            self.has(FOLLOWERS, 9000, *CHAIN[:2])
            protocol, transport = self.fed(FOLLOWERS, report=9000, host=host)
            # It says itself where it is: that lets nobody in.
            self.assertEqual(not fed, transport.disconnecting)
            if fed:
                self.assertEqual(
                    random.Random(25_000).randbytes(25_000)[9000:],
                    bytes(Told(transport.value()).body),
                )
                self.ack(protocol)
                (row,) = self.master.status()["members"]
                self.assertEqual((True, False, ""), (row["learner"], row["counts"], row["doubt"]))
                self.put()
                self.ack(protocol)
                self.pass_time(2.0)
            self.assertEqual([], self.coordinator.asked)
            self.assertEqual(set(), self.counted())

    def test_learner(self) -> None:
        """A stock learner is judged like others, does not count, and is told no label unasked."""
        for labels, told in ((CHAIN[:1], {1, 3}), ((), {-1})):
            self.build(labels=CHAIN)
            self.has(SLAVE, 8000, *labels)
            _, transport = self.fed(report=7000, learner=True)
            self.assertEqual({each.label for each in Told(transport.value()).transfers}, told)
            self.assertEqual(self.counted(), set())
        self.build(labels=CHAIN)
        _, transport = self.fed(report=7000, learner=True)
        self.assertEqual(Told(transport.value()).headers, [])
        self.pass_time(12.0)
        self.assertEqual({each.label for each in Told(transport.value()).transfers}, {-1})

    def test_accepted(self) -> None:
        """With C{haAcceptUnproven} it counts."""
        self.build(labels=CHAIN, accept_unproven=True)
        self.has(SLAVE, 9000)
        self.fed(report=9000)
        self.assertEqual(self.counted(), {SLAVE})

    def test_asked_before_it_is_fed(self) -> None:
        """Nothing is sent before its labels are known: the first frame would teach it ours.  It is
        asked again, where it is by then, and what it said meanwhile is taken.
        """
        protocol, transport = self.fed(report=8000)
        transport.clear()
        self.assertIn("connection refused", self.doubt())
        self.ack(protocol, 8000)
        self.put(100)
        self.pass_time(6.0)
        self.assertEqual(transport.value(), b"")
        self.known[SLAVE] = "10.0.0.2:20911"
        self.has(SLAVE, 8000, EpochLabel(1, 0))
        self.pass_time(2.0)
        self.assertEqual(self.doubt(), "")
        self.assertEqual(Told(transport.value()).body, self.log.content(8000, 25_100))
        self.assertEqual(self.counted(), {SLAVE})
        self.has(SLAVE, 25_100, *CHAIN)
        self.ack(protocol)
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})

    def test_label_is_taken(self) -> None:
        """A stock member counts for what lies under our newest label once it tells that it took
        that one over: it would cut these bytes when it connects again.
        """
        self.has(SLAVE, 25_000, *CHAIN[:2])
        protocol, _ = self.fed(report=25_000)
        self.assertEqual(self.in_sync.state.in_sync, {OWN, SLAVE})
        asked: Deferred[MemberLabels] = Deferred()
        self.theirs_later = asked
        written = self.put(300)
        self.ack(protocol)
        self.assertNoResult(written)
        self.assertEqual(self.master.confirm, 25_000)
        asked.callback(MemberLabels(CHAIN, 25_300))
        self.assertIs(self.successResultOf(written), PutStatus.PUT_OK)
        self.theirs_later = None
        written = self.put(300)
        self.ack(protocol)
        self.assertIs(self.successResultOf(written), PutStatus.PUT_OK)

    def test_label_is_not_taken(self) -> None:
        """One that has not is closed: it connects again, cuts, and takes the label over."""
        self.has(SLAVE, 25_300, *CHAIN[:2])
        protocol, transport = self.fed(report=25_000)
        self.put(300)
        self.ack(protocol)
        self.assertClosed(transport, "label-not-taken")
        self.assertEqual((self.master.confirm, self.in_sync.state.in_sync), (25_300, {OWN}))

    def test_label_cannot_be_asked_for(self) -> None:
        """One that cannot be asked about the label does not count, and is closed later."""
        self.has(SLAVE, 25_000, *CHAIN[:2])
        protocol, transport = self.fed(report=25_000)
        self.master.proofs.labels_of = lambda address, _: fail(RemotingUnreachable(address, "gone"))
        written = self.put(300)
        self.ack(protocol)
        self.pass_time(12.0)
        self.assertIs(self.successResultOf(written), PutStatus.FLUSH_SLAVE_TIMEOUT)
        self.assertClosed(transport, "no-labels")

    def test_first_of_a_label(self) -> None:
        """Who begins where our newest label does is told of the one before it first: a stock slave
        takes none over that it was told of last, though its file has it not.
        """
        self.has(SLAVE, 25_000, *CHAIN[:2])
        self.log.put(bytes(300))
        _, transport = self.fed(report=25_000)
        told = [(each.size, each.label) for each in Told(transport.value()).headers]
        self.assertEqual(told[:2], [(0, 3), (300, EPOCH)])
        self.build(labels=CHAIN)
        self.log.put(bytes(300))
        self.theirs[self.known[SLAVE]] = MemberLabels((), 25_000, compares=True)
        _, transport = self.fed(report=25_000)
        self.assertEqual(Told(transport.value()).headers[0].size, 300)

    def test_patience(self) -> None:
        """It has ten seconds from its connection on, whenever that was; a learner is fed then."""
        for learner in (False, True):
            self.build(labels=CHAIN)
            self.pass_time(30.0, 1.0)
            _, transport = self.fed(report=8000, learner=learner)
            self.pass_time(9.0)
            self.assertEqual(
                (False, []), (transport.disconnecting, Told(transport.value()).headers)
            )
            self.pass_time(2.0)
            if learner:
                self.assertEqual({each.label for each in Told(transport.value()).transfers}, {-1})
            else:
                self.assertClosed(transport, "no-labels")

    def test_asked_once(self) -> None:
        """While it is being asked it is not asked again; what it says late counts."""
        asked: list[Deferred[MemberLabels]] = []

        def ask(address: str, token: int) -> Deferred[MemberLabels]:
            asked.append(Deferred())
            return asked[-1]

        self.master.proofs.labels_of = ask
        self.fed(report=8000)
        self.pass_time(5.0)
        (once,) = asked
        self.assertEqual(self.counted(), set())
        once.callback(MemberLabels(CHAIN[:1], 8000))
        self.assertEqual(self.counted(), {SLAVE})

    def test_asked_again(self) -> None:
        """One that could not be asked is asked again, for what it reported first."""
        well = self.master.proofs.labels_of
        self.master.proofs.labels_of = lambda address, _: fail(RemotingUnreachable(address, "gone"))
        self.has(SLAVE, 8000, *CHAIN[:1])
        protocol, _ = self.fed(report=8000)
        self.ack(protocol, 8001)
        self.pass_time(3.0)
        self.assertEqual(self.counted(), set())
        self.master.proofs.labels_of = well
        self.pass_time(3.0)
        self.assertEqual(self.counted(), {SLAVE})

    def test_cannot_be_asked(self) -> None:
        """One that cannot be asked is closed after a while; with C{haAcceptUnproven} it counts."""
        _, transport = self.fed(report=8000)
        self.pass_time(12.0)
        self.assertClosed(transport, "no-labels")
        self.build(labels=CHAIN, accept_unproven=True)
        self.fed(report=8000)
        self.assertEqual(self.counted(), {SLAVE})

    def test_taught_by_the_first_frame(self) -> None:
        """A member without labels that has ours as soon as it is sent anything is doubted."""

        def told(address: str, token: int) -> Deferred[MemberLabels]:
            labels = CHAIN[:1] if Told(self.sent.value()).headers else ()
            return succeed(MemberLabels(labels, 8000))

        self.master.proofs.labels_of = told
        protocol, self.sent = self.greeted()
        self.ack(protocol, 8000)
        self.assertTrue(self.doubt())
        self.assertEqual(self.counted(), set())

    def test_wrong_report(self) -> None:
        """A report that is rejected makes nothing better."""
        self.build(end=45_000, min_offset=20_000, labels=(EpochLabel(1, 20_000),))
        for report in (21_000, 19_000, -1, 99_000, 21_000):
            self.has(SLAVE, 21_000)
            protocol, _ = self.fed(report=report)
            self.assertEqual(self.counted(), set())
            self.lose(protocol)

    def test_last_file_only(self) -> None:
        """One that was sent the last file only has not got our log: it is told no label of it."""
        self.build(labels=CHAIN, rules=ControllerSettings(allow_last_file=True))
        protocol, transport = self.fed(report=0, from_last_file=True)
        self.ack(protocol)
        self.assertIn("the last file", self.doubt())
        self.assertEqual({each.label for each in Told(transport.value()).headers}, {-1})
        self.lose(protocol)
        self.has(SLAVE, 25_000)
        self.fed(report=25_000)
        self.assertEqual(self.counted(), set())

    def test_answer_comes_too_late(self) -> None:
        """What is told of a member that has left since counts for nothing."""
        self.has(SLAVE, 8000, EpochLabel(1, 0))
        asked: Deferred[MemberLabels] = Deferred()
        self.theirs_later = asked
        protocol, _ = self.fed(report=8000)
        self.lose(protocol)
        asked.callback(MemberLabels((EpochLabel(1, 0),), 8000))
        self.assertEqual(self.counted(), set())

    def test_two_elections_at_one_offset(self) -> None:
        """A stock master that was elected and wrote, and one of ours elected at the same offset:
        its own tail does not count, what it holds below does.
        """
        ours = (EpochLabel(1, 0), EpochLabel(3, 801))
        self.build(end=900, labels=ours)
        self.has(SLAVE, 1088, EpochLabel(1, 0), EpochLabel(2, 801))
        self.fed(report=801)
        self.assertEqual(self.counted(), {SLAVE})
        self.build(end=2000, labels=ours)
        self.has(SLAVE, 1088, EpochLabel(1, 0), EpochLabel(2, 801))
        self.fed(report=1088)
        self.assertEqual(self.counted(), set())
