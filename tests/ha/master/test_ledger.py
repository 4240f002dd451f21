"""The ledger: what a report is worth."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.ha_settings import FirstSync
from rmqha.ha.master import ledger
from rmqha.ha.master.ledger import PATIENCE, Claim, Ledger, ReportRejected
from rmqha.logfiles.reader import LogReader
from tests.support.machines import run_machine
from tests.support.sending_log import MemoryLog


class LedgerCase(SynchronousTestCase):
    """A ledger over a log of 1000 bytes in files of 400, epoch begun at its end."""

    def setUp(self) -> None:
        self.log = MemoryLog(end=1000, file_size=400)
        self.ledger = Ledger(log=self.log, start=1000)

    def fed(self, offset: int = 1000, host: str = "10.0.0.1", identity: str = "") -> Claim:
        """A claim whose first report was taken and that was sent all there is."""
        claim = self.ledger.open(identity or host, host)
        claim.first(offset)
        claim.sent = self.log.end
        return claim

    def refused(self, claim: Claim, offset: int, reason: str, bound: int) -> None:
        """Assert that a report is rejected for a reason, and the claim dead."""
        act = claim.report if claim.live else claim.first
        error = self.assertRaises(ReportRejected, act, offset)
        self.assertEqual((error.reason, error.report, error.bound), (reason, offset, bound))
        self.assertFalse(claim.live)
        self.assertNotIn(claim, list(self.ledger))


class FirstReportTests(LedgerCase):
    def test_double(self) -> None:
        """The log double keeps the interface's word."""
        self.assertIsInstance(self.log, LogReader)

    def test_in_range(self) -> None:
        """Any offset between the log's ends is where sending starts."""
        for offset in (1, 399, 400, 401, 1000):
            claim = self.ledger.open("a", "a")
            self.assertEqual(claim.first(offset), offset)
            self.assertEqual((claim.start, claim.sent, claim.acked), (offset, offset, offset))
            claim.close()

    def test_empty_from_the_first_byte(self) -> None:
        """An empty slave gets everything that is kept."""
        self.log.min_offset = 400
        self.assertEqual(self.ledger.open("a", "a").first(0), 400)

    def test_empty_from_the_last_file(self) -> None:
        """With C{haFirstSync=last-file} it gets what a stock master would send."""
        self.ledger.first_sync = FirstSync.LAST_FILE
        self.assertEqual(self.ledger.open("a", "a").first(0), 800)

    def test_negative(self) -> None:
        """No log ends below 0."""
        for offset in (-1, -(1 << 63)):
            self.refused(self.ledger.open("a", "a"), offset, "negative", 0)

    def test_ahead(self) -> None:
        """A peer whose log is longer than ours is not fed, whatever it really is."""
        for offset in (1001, 0x474554202F204854, (1 << 63) - 1):
            self.refused(self.ledger.open("a", "a"), offset, "ahead", 1000)

    def test_below_min(self) -> None:
        """What was deleted cannot be sent; a slave that ends where we begin lacks none of it."""
        self.log.min_offset = 400
        for offset in (1, 399):
            self.refused(self.ledger.open("a", "a"), offset, "below-min", 400)
        self.assertEqual(self.ledger.open("a", "a").first(400), 400)

    def test_does_not_become_right_by_waiting(self) -> None:
        """A slave that was ahead is refused when our log has grown past it, too."""
        self.refused(self.ledger.open("a", "a"), 1500, "ahead", 1000)
        self.log.put(bytes(1000))
        self.refused(self.ledger.open("a", "a"), 1500, "unproven", 1000)

    def test_override(self) -> None:
        """C{haAcceptUnproven} feeds it nevertheless."""
        self.log.put(bytes(1000))
        self.ledger.accept_unproven = True
        self.assertEqual(self.ledger.open("a", "a").first(1500), 1500)

    def test_mark_proves(self) -> None:
        """What an address was sent in this epoch, it may have, and not a byte more."""
        self.log.put(bytes(1000))
        claim = self.ledger.open("a", "a")
        claim.first(900)
        claim.sent = 1400
        claim.close()
        self.refused(self.ledger.open("a", "a"), 1401, "unproven", 1400)
        self.assertEqual(self.ledger.open("a", "a").first(1400), 1400)
        self.refused(self.ledger.open("b", "b"), 1400, "unproven", 1000)

    def test_marks_only_rise(self) -> None:
        """A slave that starts over keeps its mark."""
        self.log.put(bytes(1000))
        self.fed().close()
        again = self.ledger.open("10.0.0.1", "10.0.0.1")
        again.first(0)
        self.assertEqual(self.ledger.mark("10.0.0.1"), 2000)
        self.assertEqual(self.ledger.all_marks(), {"10.0.0.1": 2000})
        again.close()
        self.assertEqual(self.ledger.all_marks(), {"10.0.0.1": 2000})

    def test_mark_of_a_live_claim(self) -> None:
        """A ghost of the slave proves it while it hangs on, and is kept with lasting marks."""
        self.log.put(bytes(1000))
        self.assertEqual(self.ledger.mark("10.0.0.1"), -1)
        self.fed()
        self.assertEqual(self.ledger.all_marks(), {"10.0.0.1": 2000})
        self.assertEqual(self.ledger.open("x", "10.0.0.1").first(1700), 1700)

    def test_marks_are_bounded(self) -> None:
        """The address unseen for longest is forgotten first."""
        self.patch(ledger, "MOST_MARKS", 2)
        for host in ("a", "b", "a", "c"):
            self.fed(host=host).close()
        self.assertEqual(list(self.ledger.marks), ["a", "c"])


class ReportTests(LedgerCase):
    def test_counts_what_was_sent(self) -> None:
        """A report is believed up to what the connection was sent."""
        begin, end = self.log.put(bytes(100))
        claim = self.ledger.open("a", "a")
        claim.first(1000)
        self.refused_later(claim, end)
        claim = self.fed()
        claim.report(end - 1)
        self.assertEqual((self.ledger.covers(begin, end), claim.covers(begin, end)), (0, False))
        claim.report(end)
        self.assertEqual((self.ledger.covers(begin, end), claim.covers(begin, end)), (1, True))

    def refused_later(self, claim: Claim, end: int) -> None:
        """A report of bytes that were never sent is C{above-sent}."""
        self.refused(claim, end, "above-sent", 1000)

    def test_above_max(self) -> None:
        """Above our end is its own reason."""
        self.refused(self.fed(), 1001, "above-max", 1000)

    def test_negative(self) -> None:
        """Also later."""
        for offset in (-1, -5):
            self.refused(self.fed(), offset, "negative", 0)

    def test_decreasing(self) -> None:
        """A log does not shrink while connected, nor become empty."""
        self.log.put(bytes(100))
        for offset in (1049, 0):
            claim = self.fed()
            claim.report(1050)
            self.refused(claim, offset, "decreasing", 1050)

    def test_repeats(self) -> None:
        """Saying the same again is legal, and credits nothing."""
        begin, end = self.log.put(bytes(100))
        claim = self.fed()
        for _ in range(10):
            claim.report(1000)
        self.assertEqual(self.ledger.covers(begin, end), 0)

    def test_flood(self) -> None:
        """A thousand repeats within a second are garbage; over seconds they are not."""
        claim = self.fed()
        for _ in range(3):
            for _ in range(ledger.MOST_REPEATS):
                claim.report(1000)
            claim.breathe()
        for _ in range(ledger.MOST_REPEATS):
            claim.report(1000)
        self.refused(claim, 1000, "flood", ledger.MOST_REPEATS)

    def test_middle_of_a_record(self) -> None:
        """A write counts when its end is covered, wherever the report lies."""
        first = self.log.put(bytes(100))
        second = self.log.put(bytes(100))
        self.fed().report(1150)
        self.assertEqual(self.ledger.covers(*first), 1)
        self.assertEqual(self.ledger.covers(*second), 0)

    def test_dies_with_its_connection(self) -> None:
        """Who left holds nothing for us."""
        write = self.log.put(bytes(100))
        claim = self.fed()
        claim.report(1100)
        claim.close()
        claim.close()
        self.assertEqual(self.ledger.covers(*write), 0)
        self.assertFalse(claim.covers(*write))

    def test_last_file_start_is_no_acknowledgement(self) -> None:
        """An empty stock slave reports the last file's start off a heartbeat alone."""
        self.ledger.first_sync = FirstSync.LAST_FILE
        begin, end = self.log.put(bytes(300))  # 1000..1300; the last file starts at 1200
        claim = self.ledger.open("a", "a")
        self.assertEqual(claim.first(0), 1200)
        claim.report(0)
        claim.report(1200)
        self.assertEqual(self.ledger.covers(begin, 1200), 0)
        claim.sent = 1300
        claim.report(1300)
        self.assertEqual(self.ledger.covers(begin, end), 0)
        self.assertEqual(self.ledger.covers(1200, 1300), 1)

    def test_below_where_it_was_started(self) -> None:
        """An empty slave holds nothing, or something above where it was started."""
        self.log.min_offset = 400
        claim = self.fed(0)
        self.refused(claim, 399, "below-min", 400)


class ObserverTests(LedgerCase):
    """Who only compares is shown the log, and is no replica."""

    def setUp(self) -> None:
        super().setUp()
        self.log.min_offset = 400

    def test_from_where_it_asks(self) -> None:
        """It is shown the log from its report on; all of it, if it has nothing."""
        self.ledger.start = 500
        for offset, origin in ((0, 400), (400, 400), (401, 401), (1000, 1000)):
            claim = self.ledger.open("a", "a")
            self.assertEqual(claim.look(offset), origin)
            self.assertEqual((claim.sent, claim.live), (origin, True))
        for offset, reason in ((-1, "negative"), (1, "below-min"), (1001, "ahead")):
            claim = self.ledger.open("a", "a")
            error = self.assertRaises(ReportRejected, claim.look, offset)
            self.assertEqual((error.reason, claim.live), (reason, False))

    def test_reports(self) -> None:
        """What it says is checked as a replica's, and counts for nothing."""
        claim = self.ledger.open("a", "a")
        claim.look(0)
        claim.sent = 1000
        for offset in (0, 400, 1000):
            claim.report(offset)
        self.assertFalse(claim.covers(400, 1000) or claim.trusted or list(self.ledger))
        claim.close()
        self.assertEqual((claim.live, self.ledger.all_marks()), (False, {}))
        claim = self.ledger.open("a", "a")
        claim.look(0)
        claim.sent = 1000
        self.refused(claim, 399, "below-min", 400)


class DoubtTests(LedgerCase):
    """Whether a member of a set counts is not for its reports alone to say."""

    def test_doubt(self) -> None:
        """A claim that is doubted holds no write, and one that is trusted all that lies below its
        report, from byte 0 on; neither before the first report nor after the end.
        """
        claim = self.ledger.open("a", "a")
        self.assertFalse(claim.trusted)
        claim.first(500)
        claim.sent = 1000
        claim.report(1000)
        self.assertEqual((claim.trusted, self.ledger.covers(500, 1000)), (True, 1))
        claim.doubt()
        self.assertEqual((claim.trusted, self.ledger.covers(500, 1000)), (False, 0))
        claim.trust()
        self.assertEqual((claim.trusted, self.ledger.covers(0, 1000)), (True, 1))
        claim.close()
        self.assertEqual((claim.trusted, self.ledger.covers(0, 1000)), (False, 0))


class ReconnectTests(LedgerCase):
    """A slave that comes back holds what it was sent before."""

    def setUp(self) -> None:
        """A write was sent to a slave that left without acknowledging it."""
        super().setUp()
        self.write = self.log.put(bytes(100))
        self.before = self.fed()
        self.before.close()

    def test_waiting_write(self) -> None:
        """Its first report acknowledges it, whoever else is connected."""
        self.fed(host="10.0.0.2")
        claim = self.ledger.open("10.0.0.1", "10.0.0.1")
        claim.first(1100)
        self.assertEqual(claim.start, 1000)
        self.assertEqual(self.ledger.covers(*self.write), 1)

    def test_part_of_it(self) -> None:
        """A write it holds half of, it acknowledges once it has the rest."""
        claim = self.ledger.open("10.0.0.1", "10.0.0.1")
        claim.first(1050)
        self.assertEqual(self.ledger.covers(*self.write), 0)
        claim.sent = 1100
        claim.report(1100)
        self.assertEqual(self.ledger.covers(*self.write), 1)

    def test_handed_on(self) -> None:
        """The interval goes on through any number of connections."""
        for offset in (1050, 1020, 1100):
            claim = self.fed(offset)
            self.assertEqual(claim.start, 1000)
            claim.close()

    def test_cut_below(self) -> None:
        """A slave that lost more than it was sent starts where it reports."""
        self.assertEqual(self.fed(999).start, 999)

    def test_empty_now(self) -> None:
        """A slave that reports 0 has lost what it was sent."""
        self.ledger.first_sync = FirstSync.LAST_FILE
        self.fed(0).close()
        self.assertEqual(self.fed(1100).start, 800)

    def test_another_address(self) -> None:
        """What one slave was sent, another does not hold."""
        self.ledger.accept_unproven = True
        claim = self.fed(1100, host="10.0.0.2")
        self.assertEqual(self.ledger.covers(*self.write), 0)
        self.assertEqual(claim.start, 1100)

    def test_two_behind_one_address(self) -> None:
        """Where two slaves share an address, neither inherits, whichever left last."""
        for host, order in (("a", (0, 1)), ("b", (1, 0))):
            both = self.fed(500, host), self.fed(1100, host)
            self.assertEqual(both[1].start, 1100)
            for which in order:
                both[which].close()
            self.assertEqual(self.fed(1100, host).start, 1100)
            self.assertEqual(self.ledger.covers(*self.write), 0)

    def test_after_a_wrong_report(self) -> None:
        """Who was closed for a wrong report proves nothing by coming back."""
        self.assertRaises(ReportRejected, self.fed(1050).report, 5)
        self.assertEqual(self.fed(1100).start, 1100)


class CountingTests(LedgerCase):
    """Replicas are counted, not connections."""

    def test_one_address_is_one_replica(self) -> None:
        """Two connections of one identity count once, the better one for both."""
        write = self.log.put(bytes(100))
        for report in (1100, 1000, 1100):
            self.fed().report(report)
        self.assertEqual(self.ledger.covers(*write), 1)
        self.fed(host="10.0.0.2").report(1100)
        self.assertEqual(self.ledger.covers(*write), 2)

    def test_quorum(self) -> None:
        """The n-th best replica bounds what n replicas hold."""
        self.log.put(bytes(100))
        self.assertEqual(self.ledger.quorum(1), -1)
        for host, report in (("a", 1100), ("a", 1090), ("b", 1050), ("c", 1000)):
            self.fed(host=host).report(report)
        quorums = [self.ledger.quorum(count) for count in (1, 2, 3, 4)]
        self.assertEqual(quorums, [1100, 1050, 1000, -1])

    def test_eligible(self) -> None:
        """Worth waiting for is who has reported and is not too far behind."""
        self.ledger.open("silent", "silent")
        self.assertEqual(self.ledger.eligible(1000, 500, 9), 0)
        for host, offset in (("a", 1000), ("a", 600), ("b", 501), ("c", 500)):
            self.fed(offset, host=host)
        self.assertEqual(self.ledger.eligible(1000, 500, 9), 2)
        self.assertEqual(self.ledger.eligible(1000, 501, 9), 3)
        self.assertEqual(self.ledger.eligible(1000, 501, 2), 2)

    def test_mute(self) -> None:
        """Who is sent bytes and never acknowledges any is waited for only a while, and so are the
        connections that follow from there; until something is acknowledged.
        """
        self.log.put(bytes(100))
        deaf = self.fed(0, host="b")
        self.fed(host="a").report(1100)
        self.ledger.breathe(PATIENCE - 0.5)
        self.assertEqual(self.ledger.eligible(1100, 2000, 9), 2)
        self.ledger.breathe(0.5)
        self.assertEqual(self.ledger.eligible(1100, 2000, 9), 1)
        deaf.close()
        again = self.fed(0, host="b")
        self.assertEqual(self.ledger.eligible(1100, 2000, 9), 1)
        again.report(0)
        self.assertEqual(self.ledger.eligible(1100, 2000, 9), 1)
        again.report(1)
        self.assertEqual(self.ledger.eligible(1100, 2000, 9), 2)
        again.close()
        self.fed(host="b")
        self.assertEqual(self.ledger.eligible(1100, 2000, 9), 2)

    def test_mute_until_it_is_heard(self) -> None:
        """The first acknowledgement from a mute address ends that at once, for all there."""
        self.log.put(bytes(100))
        self.fed(0, host="nat")
        self.ledger.breathe(PATIENCE)
        waiting = self.fed(1100 - 1, host="nat", identity="second")
        self.assertEqual(self.ledger.eligible(1100, 2, 9), 0)
        self.fed(host="nat", identity="third").report(1050)
        self.assertTrue(waiting.live)
        self.assertEqual(self.ledger.eligible(1100, 2, 9), 1)

    def test_mute_counts_all_the_same(self) -> None:
        """What an address acknowledges counts, mute or not, in the same call."""
        write = self.log.put(bytes(100))
        deaf = self.fed(host="b")
        self.ledger.breathe(PATIENCE)
        self.assertEqual(self.ledger.covers(*write), 0)
        deaf.report(1100)
        self.assertEqual((self.ledger.covers(*write), self.ledger.quorum(1)), (1, 1100))

    def test_idle_is_not_mute(self) -> None:
        """A slave that was sent nothing has nothing to acknowledge."""
        self.fed(host="a")
        self.ledger.breathe(100 * PATIENCE)
        self.assertEqual(self.ledger.eligible(1000, 500, 9), 1)

    def test_beside_a_good_one(self) -> None:
        """An address with a slave that acknowledges is not mute, whoever else is there."""
        self.log.put(bytes(100))
        good, deaf = self.fed(host="a"), self.fed(0, host="a")
        good.report(1100)
        self.ledger.breathe(PATIENCE)
        self.assertEqual(self.ledger.eligible(1100, 2000, 9), 1)
        good.close()
        self.ledger.breathe(PATIENCE)
        self.assertEqual((self.ledger.eligible(1100, 2000, 9), deaf.live), (0, True))

    def test_mutes_are_bounded(self) -> None:
        """Many addresses do not fill the memory; the one heard of longest ago is forgotten."""
        self.patch(ledger, "MOST_MARKS", 3)
        self.log.put(bytes(100))
        for number in range(6):
            claim = self.fed(0, host=f"10.0.0.{number}")
            self.ledger.breathe(PATIENCE)
            claim.close()
        self.assertEqual(list(self.ledger._mute), ["10.0.0.3", "10.0.0.4", "10.0.0.5"])

    def test_held_from(self) -> None:
        """Retention hears of the replica that is furthest behind."""
        self.assertIsNone(self.ledger.held_from())
        self.log.min_offset = 400
        self.fed(700)
        behind = self.fed(0, host="b")
        self.assertEqual(self.ledger.held_from(), 400)
        behind.report(600)
        self.assertEqual(self.ledger.held_from(), 600)
        behind.close()
        self.assertEqual(self.ledger.held_from(), 700)


class Slave:
    """An honest slave: what it holds, byte for byte, and whether it is ours."""

    def __init__(self, host: str, held: list[bool | None]) -> None:
        self.host = host
        self.held = held
        self.claim: Claim | None = None
        self.wire = 0
        self.said = 0

    def has(self, begin: int, end: int) -> bool:
        """Whether it holds all of a write."""
        return len(self.held) >= end and all(self.held[begin:end])


ANY_REPORT = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 90)
SIZES = st.just(99) | st.integers(0, 30)


class LedgerMachine(RuleBasedStateMachine):
    """Honest slaves and garbage: no write counts that no live honest connection holds."""

    slaves: Bundle[Slave] = Bundle("slaves")

    @initialize(target=slaves, last_file=st.booleans())
    def begin(self, last_file: bool) -> object:
        """A log of 40 bytes; full, empty and foreign slaves."""
        self.log = MemoryLog(end=40, file_size=16)
        self.ledger = Ledger(
            log=self.log,
            start=40,
            first_sync=FirstSync.LAST_FILE if last_file else FirstSync.BEGINNING,
        )
        self.writes: list[tuple[int, int]] = []
        # For how long each address has acknowledged nothing new, at the most.
        self.quiet: dict[str, float] = {}
        self.all = [
            Slave("full", [True] * 40),
            Slave("behind", [True] * 25),
            Slave("empty", []),
            Slave("was-ahead", [True] * 30 + [False] * 25),
        ]
        if not last_file:
            self.all += [Slave("nat", [True] * 40), Slave("nat", [True] * 33)]
        return multiple(*self.all)

    @rule(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4))
    def write(self, sizes: list[int]) -> None:
        self.writes += [self.log.put(bytes(size)) for size in sizes]

    def connected(self, slave: Slave) -> Claim | None:
        """A slave connects, if it is not, and reports its end; a foreign one is never taken."""
        if slave.claim is not None:
            return slave.claim
        claim = self.ledger.open(slave.host, slave.host)
        offset = len(slave.held)
        try:
            origin = claim.first(offset)
        except ReportRejected as error:
            assert slave.host == "was-ahead", error
            assert error.reason in ("ahead", "unproven"), error
            return None
        assert False not in slave.held, "a foreign slave was taken"
        assert origin == offset or not offset
        slave.claim, slave.wire, slave.said = claim, origin, offset
        return claim

    @rule(slave=slaves, sent=SIZES, arrived=SIZES, back=st.none() | st.integers(0, 8))
    def feed(self, slave: Slave, sent: int, arrived: int, back: int | None) -> None:
        """Bytes are given to the transport, some of them arrive (an empty slave's log begins
        where they do), and the slave may report its end, or less where it acknowledges
        what is on its disk only.
        """
        claim = self.connected(slave)
        if claim is None:
            return
        claim.sent = min(self.log.end, claim.sent + sent)
        arrived = min(arrived, claim.sent - slave.wire)
        if arrived:
            slave.held += [None] * (slave.wire - len(slave.held)) + [True] * arrived
        slave.wire += arrived
        if back is None or not slave.held:
            return
        slave.said = max(slave.said, claim.origin, len(slave.held) - back)
        claim.report(slave.said)
        if claim.acked > claim.origin:
            self.quiet[slave.host] = 0.0
        for begin, end in self.writes:
            if begin >= claim.origin and end <= slave.said:
                assert claim.covers(begin, end), "an honest report did not count"

    @rule(slave=slaves)
    def disconnect(self, slave: Slave) -> None:
        """The connection ends, with bytes under way."""
        if slave.claim is not None:
            slave.claim.close()
            slave.claim = None

    @rule(slave=slaves, lost=st.integers(1, 20))
    def crash(self, slave: Slave, lost: int) -> None:
        """A slave loses its tail, or all of it."""
        self.disconnect(slave)
        if slave.host != "was-ahead":
            del slave.held[max(0, len(slave.held) - lost) :]
            if not any(slave.held):
                slave.held.clear()

    @rule(
        host=st.sampled_from(["garbage", "garbage", "full", "empty"]),
        first=ANY_REPORT,
        later=ANY_REPORT,
    )
    def garbage(self, host: str, first: int, later: int) -> None:
        """Bytes that were never meant for us, from anywhere: they end in a rejection."""
        claim = self.ledger.open(host, host)
        try:
            claim.first(first)
            if later != first:
                claim.report(later)
        except ReportRejected:
            assert not claim.live
        else:
            assert later in (first, claim.origin), "it was sent nothing"
        claim.close()

    @rule(seconds=st.floats(0.1, 1.0))
    def breathe(self, seconds: float) -> None:
        self.ledger.breathe(seconds)
        for host in {slave.host for slave in self.all}:
            self.quiet[host] = self.quiet.get(host, 0.0) + seconds

    @invariant()
    def who_acknowledges_is_waited_for(self) -> None:
        """No claim that has acknowledged what it was sent, and no address that did so lately, is
        left out; nobody is waited for who was not before.
        """
        if not hasattr(self, "ledger"):
            return
        end = self.log.end
        for most in (1, 10, 1000):
            near = [claim for claim in self.ledger if end - claim.acked < most]
            surely = {
                claim.identity
                for claim in near
                if claim.proven or self.quiet.get(claim.host, 0.0) < PATIENCE
            }
            waited = self.ledger.eligible(end, most, 1000)
            assert len(surely) <= waited <= len({claim.identity for claim in near})

    @invariant()
    def nothing_is_invented(self) -> None:
        """Counted replicas are live, honest and hold the write."""
        for begin, end in getattr(self, "writes", []):
            holders = {s.host for s in self.all if s.claim is not None and s.has(begin, end)}
            counted = self.ledger.covers(begin, end)
            assert counted <= len(holders), f"[{begin}, {end}): {counted} counted, {holders}"


class MachineTests(SynchronousTestCase):
    def test_two_behind_one_address(self) -> None:
        """One that was silent is waited for as soon as another behind its address acknowledges."""
        machine = LedgerMachine()
        slaves = machine.begin(last_file=False).values  # type: ignore[attr-defined]
        first, second = slaves[-2:]
        machine.crash(first, lost=1)
        machine.feed(first, sent=99, arrived=99, back=None)
        for _ in range(3):
            machine.breathe(1.0)
        machine.disconnect(first)
        machine.feed(first, sent=99, arrived=99, back=None)
        machine.feed(second, sent=99, arrived=99, back=1)
        machine.who_acknowledges_is_waited_for()
        machine.nothing_is_invented()

    def test_machine(self) -> None:
        """No order of honest and hostile steps makes a write count that nobody holds."""
        run_machine(LedgerMachine, count=150, steps=60)
