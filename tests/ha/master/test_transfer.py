"""SYNC writes waiting for replicas."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.broker_settings import BrokerRole
from rmqha.config.ha_settings import FirstSync
from rmqha.ha.master.ledger import Claim, Ledger
from rmqha.ha.master.transfer import GroupTransfer, PutStatus, replicas_needed
from tests.support.sending_log import MemoryLog

OK = PutStatus.PUT_OK


class TransferCase(SynchronousTestCase):
    """A log of 1000 bytes, writes waiting for one replica."""

    needed = 1

    def setUp(self) -> None:
        self.build()

    def build(self, needed: int = 1) -> None:
        self.clock = Clock()
        self.log = MemoryLog(end=1000)
        self.ledger = Ledger(log=self.log, start=1000)
        self.transfer = GroupTransfer(
            ledger=self.ledger, clock=self.clock, needed=needed, timeout=3.0, fallbehind_max=5000
        )

    def fed(self, host: str, offset: int = 1000) -> Claim:
        claim = self.ledger.open(host, host)
        claim.first(offset)
        claim.sent = self.log.end
        return claim

    def put(self, size: int = 100) -> Deferred[PutStatus]:
        """Write, send it to everybody, and wait."""
        begin, end = self.log.put(bytes(size))
        for claim in self.ledger:
            claim.sent = end
        return self.transfer.wait(begin, end)

    def ack(self, claim: Claim, offset: int) -> None:
        claim.report(offset)
        self.transfer.acked(claim)


class NeededTests(SynchronousTestCase):
    """How many replicas a write waits for."""

    def test_roles(self) -> None:
        """A SYNC_MASTER waits for one replica whatever C{inSyncReplicas} says, others for none."""
        for in_sync, needed in ((0, 1), (1, 1), (2, 1), (3, 2), (5, 4)):
            self.assertEqual(replicas_needed(BrokerRole.SYNC_MASTER, in_sync), needed)
            self.assertEqual(replicas_needed(BrokerRole.ASYNC_MASTER, in_sync), 0)


class OneReplicaTests(TransferCase):
    def test_each_in_its_time(self) -> None:
        """Of writes that nobody acknowledges each is answered when its own time is over, also if
        nobody wants to know any more what became of a later one.
        """
        for cancelled in (False, True):
            self.build()
            self.fed("a")
            writes = []
            for _ in range(3):
                self.clock.advance(1)
                writes.append(self.put())
            if cancelled:
                writes[-1].cancel()
                self.failureResultOf(writes.pop(), CancelledError)
            self.clock.advance(1)
            while writes:
                write = writes.pop(0)
                self.assertEqual(self.successResultOf(write), PutStatus.FLUSH_SLAVE_TIMEOUT)
                for later in writes:
                    self.assertNoResult(later)
                self.clock.advance(1)
            self.assertEqual(self.transfer.pending, 0)

    def test_waited(self) -> None:
        """The metrics say how long each write waited, and not of those that did not."""
        claim = self.fed("a")
        self.clock.advance(100)
        first = self.put()
        self.clock.advance(1)
        self.ack(claim, 1100)
        self.assertEqual(self.successResultOf(first), OK)
        self.assertEqual((self.transfer.waited.total, self.transfer.waited.count), (1.0, 1))
        self.successResultOf(self.transfer.wait(1000, 1100))
        self.put()
        self.clock.advance(3)
        self.assertEqual((self.transfer.waited.total, self.transfer.waited.count), (4.0, 2))

    def test_several_together(self) -> None:
        """Writes that lie together are answered at once or together; each is counted."""
        told: list[PutStatus] = []
        self.transfer.tell(*self.log.put(bytes(100)), 3, told.append)
        self.assertEqual(told, [PutStatus.SLAVE_NOT_AVAILABLE])
        claim = self.fed("a", 1000)
        self.transfer.tell(1000, 1100, 3, told.append)
        self.assertEqual((told[1:], self.transfer.pending), ([], 3))
        self.ack(claim, 1099)
        self.assertEqual(told[1:], [])
        self.ack(claim, 1100)
        self.assertEqual((told[1:], self.transfer.waited.count), ([OK], 3))

    def test_hurries(self) -> None:
        """Replicas are sent each write at once where writes wait for them, and only there."""
        for needed, hurries in ((0, False), (1, True), (2, True)):
            self.build(needed)
            self.assertEqual(self.transfer.hurries, hurries)

    def test_nobody_needed(self) -> None:
        """An ASYNC_MASTER's write is answered at once."""
        self.build(needed=0)
        self.assertEqual(self.successResultOf(self.put()), OK)

    def test_acknowledged(self) -> None:
        """A write resolves in the call that takes its report."""
        claim = self.fed("a")
        first, second = self.put(), self.put()
        self.assertNoResult(first)
        self.ack(claim, 1199)
        self.assertEqual(self.successResultOf(first), OK)
        self.assertNoResult(second)
        self.ack(claim, 1200)
        self.assertEqual((self.successResultOf(second), self.transfer.pending), (OK, 0))

    def test_already_held(self) -> None:
        """A write that was acknowledged before anybody asked is answered at once."""
        claim = self.fed("a")
        begin, end = self.log.put(bytes(100))
        claim.sent = end
        self.ack(claim, end)
        self.assertEqual(self.successResultOf(self.transfer.wait(begin, end)), OK)

    def test_nobody_there(self) -> None:
        """Without an eligible replica the answer comes at once: none, silent, too far, gone."""
        unavailable = PutStatus.SLAVE_NOT_AVAILABLE
        self.assertEqual(self.successResultOf(self.put()), unavailable)
        self.ledger.open("silent", "silent")
        self.assertEqual(self.successResultOf(self.put()), unavailable)
        self.log.put(bytes(4900))
        behind = self.fed("behind", 1000)
        self.assertEqual(self.successResultOf(self.put()), unavailable)
        self.ack(behind, self.log.end)
        self.assertNoResult(self.put())
        behind.close()
        self.assertEqual(self.successResultOf(self.put()), unavailable)

    def test_deadline(self) -> None:
        """Each write has its own deadline, and one timer serves them all."""
        claim = self.fed("a")
        first = self.put()
        self.clock.advance(2)
        second = self.put()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.clock.advance(1)
        self.assertEqual(self.successResultOf(first), PutStatus.FLUSH_SLAVE_TIMEOUT)
        self.assertNoResult(second)
        self.clock.advance(1.9)
        self.assertNoResult(second)
        self.ack(claim, 1200)
        self.assertEqual(self.successResultOf(second), OK)
        self.clock.advance(10)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_timer_begins_again(self) -> None:
        """After a quiet time the next write is watched as the first was."""
        self.fed("a")
        for _ in range(3):
            write = self.put()
            self.clock.advance(3)
            self.assertEqual(self.successResultOf(write), PutStatus.FLUSH_SLAVE_TIMEOUT)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cancelled(self) -> None:
        """A cancelled write is forgotten, and holds up nobody."""
        claim = self.fed("a")
        first, second = self.put(), self.put()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertEqual(self.transfer.pending, 1)
        self.ack(claim, 1200)
        self.assertEqual(self.successResultOf(second), OK)

    def test_leaving_replica(self) -> None:
        """When the replica leaves, a write waits on for it, or another, to come."""
        claim = self.fed("a")
        write = self.put()
        claim.close()
        self.clock.advance(1)
        again = self.ledger.open("a", "a")
        again.first(1100)
        self.transfer.acked(again)
        self.assertEqual(self.successResultOf(write), OK)

    def test_stop(self) -> None:
        """A stop answers what waits and what comes, and leaves no timer."""
        self.fed("a")
        first = self.put()
        self.transfer.stop()
        self.assertEqual(self.successResultOf(first), PutStatus.SERVICE_NOT_AVAILABLE)
        self.assertEqual(self.successResultOf(self.put()), PutStatus.SERVICE_NOT_AVAILABLE)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.transfer.stop()

    def test_callback_that_writes(self) -> None:
        """What a callback puts while writes are being resolved waits for its own turn."""
        claim = self.fed("a")
        nested: list[Deferred[PutStatus]] = []
        first = self.put().addCallback(lambda status: nested.append(self.put()))
        second = self.put()
        self.ack(claim, 1200)
        self.successResultOf(first)
        self.assertEqual(self.successResultOf(second), OK)
        self.assertNoResult(nested[0])
        self.ack(claim, 1300)
        self.assertEqual(self.successResultOf(nested[0]), OK)

    def test_any_order(self) -> None:
        """Writes that begin to wait out of order resolve as they are held."""
        claim = self.fed("a")
        first, second = self.log.put(bytes(100)), self.log.put(bytes(100))
        claim.sent = self.log.end
        later, earlier = self.transfer.wait(*second), self.transfer.wait(*first)
        self.ack(claim, 1100)
        self.assertEqual(self.successResultOf(earlier), OK)
        self.assertNoResult(later)

    def test_head_does_not_hold_up(self) -> None:
        """A write below a claim's start waits aside for another claim, or its deadline."""
        self.ledger.first_sync = FirstSync.LAST_FILE
        self.log.file_size = 1100
        good = self.fed("good")
        below, lost = self.put(100), self.put(1)
        late = self.fed("late", 0)
        self.assertEqual(late.origin, 1100)
        above = self.put(100)
        self.ack(late, 1201)
        self.assertEqual((self.successResultOf(lost), self.successResultOf(above)), (OK, OK))
        self.assertNoResult(below)
        self.assertEqual(self.transfer.pending, 1)
        self.ack(good, 1100)
        self.assertEqual(self.successResultOf(below), OK)

    def test_only_the_later_of_two_aside(self) -> None:
        """A replica that lacks the first of two writes that wait aside completes the second."""
        self.ledger.first_sync, self.ledger.accept_unproven = FirstSync.LAST_FILE, True
        self.log.file_size = 1200
        self.fed("good")
        first, second = self.put(), self.put()
        late = self.fed("late", 0)
        self.put()
        self.ack(late, 1300)
        self.ack(self.fed("between", 1100), 1200)
        self.assertNoResult(first)
        self.assertEqual(self.successResultOf(second), OK)

    def test_aside_ends_too(self) -> None:
        """What waits aside has its deadline, and is forgotten when cancelled."""
        self.ledger.first_sync = FirstSync.LAST_FILE
        self.log.file_size = 1200
        good = self.fed("good")
        first, second = self.put(), self.put()
        late = self.fed("late", 0)
        write = self.put()
        self.ack(late, self.log.end)
        self.assertEqual(self.successResultOf(write), OK)
        self.assertNoResult(first)
        second.cancel()
        self.failureResultOf(second, CancelledError)
        self.ack(good, 1050)
        self.assertEqual(self.transfer.pending, 1)
        self.clock.advance(3)
        self.assertEqual(self.successResultOf(first), PutStatus.FLUSH_SLAVE_TIMEOUT)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class TwoReplicasTests(TransferCase):
    def setUp(self) -> None:
        self.build(needed=2)

    def test_distinct(self) -> None:
        """One replica on two connections is one; the second replica completes the write."""
        one, ghost, other = self.fed("a"), self.fed("a"), self.fed("b")
        write = self.put()
        self.ack(one, 1100)
        self.ack(ghost, 1100)
        self.assertNoResult(write)
        self.ack(other, 1100)
        self.assertEqual(self.successResultOf(write), OK)

    def test_report_above_a_write_is_not_enough(self) -> None:
        """A replica started above a write does not hold it, whatever it reports."""
        self.ledger.first_sync = FirstSync.LAST_FILE
        self.log.file_size = 1100
        good, other = self.fed("good"), self.fed("other")
        write = self.put()
        late = self.fed("late", 0)
        self.put()
        self.ack(late, 1200)
        self.ack(good, 1200)
        self.assertNoResult(write)
        self.ack(other, 1100)
        self.assertEqual(self.successResultOf(write), OK)

    def test_not_enough(self) -> None:
        """One replica is too few, at once."""
        self.fed("a")
        self.fed("a")
        self.assertEqual(self.successResultOf(self.put()), PutStatus.SLAVE_NOT_AVAILABLE)

    @given(st.data())
    def test_any_interleaving(self, data: st.DataObject) -> None:
        """With reports in any order a write resolves exactly when two replicas hold it."""
        self.build(needed=2)
        claims = [self.fed(host) for host in "abc"]
        writes: list[tuple[int, Deferred[PutStatus]]] = []
        for _ in range(data.draw(st.integers(1, 25))):
            if data.draw(st.booleans()):
                write = self.put(data.draw(st.integers(1, 50)))
                writes.append((self.log.end, write))
            else:
                claim = data.draw(st.sampled_from(claims))
                self.ack(claim, data.draw(st.integers(claim.acked, claim.sent)))
            for end, write in writes:
                holders = sum(claim.acked >= end for claim in claims)
                self.assertEqual(write.called, holders >= 2)
