"""Tests for L{rmqha.controller.etcd.etcd_set}, with an etcd in memory."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.coordinator import SetState
from rmqha.controller.etcd.client import EtcdRefused, EtcdUnanswered
from rmqha.controller.etcd.etcd_set import BALLOT, EtcdSet, Lease, Living, Vote
from rmqha.wire.remoting.codes import ControllerResponseCode as Code
from tests.controller.etcd.fake_etcd import FakeEtcd, Kept

ETCD = "10.1.0.1:2379"


class Member:
    """One, with what it has to say in an election."""

    def __init__(self, etcd: FakeEtcd, number: int, end: int = 0) -> None:
        self.set = EtcdSet.named(etcd.client(ETCD), "/rmqha", "C", "a")
        self.number, self.end = number, end
        self.set.own = number
        self.set.vote = self.vote

    def vote(self, after: int) -> Vote:
        """Its vote."""
        return Vote(after=after, label=1, end=self.end, priority=0)


class EtcdSetTests(SynchronousTestCase):
    """Elections and changes of the SyncStateSet."""

    def setUp(self) -> None:
        """Three members."""
        self.clock = Clock()
        self.etcd = FakeEtcd(self.clock)
        self.one, self.two, self.three = (Member(self.etcd, number) for number in (1, 2, 3))

    def result(self, asked: Deferred[Any]) -> Any:
        """What came of it, at once."""
        return self.successResultOf(asked)

    def lives(self, *members: Member) -> None:
        """They do."""
        for each in members:
            lease = f"7{each.number}"
            value = Living(token="t", address=f"10.0.0.{each.number}:10911").render()
            self.etcd.revision += 1
            at = self.etcd.revision
            self.etcd.keys[f"/rmqha/C/a/live/{each.number}"] = Kept(value, at, at, lease)
            self.etcd.leases[lease] = self.clock.seconds() + 1e6, 10
            each.set.lease = Lease(lease, 1e6)

    def dies(self, member: Member) -> None:
        """Its lease is over."""
        self.etcd.end(f"7{member.number}")

    def elect(self, member: Member, **how: Any) -> SetState:
        """Ask for an election."""
        return self.result(member.set.elect(member.number, **how))

    def first(self) -> SetState:
        """A set of which the first is master, with all in sync."""
        self.lives(self.one, self.two, self.three)
        self.elect(self.one)
        self.clock.advance(BALLOT)
        state = self.elect(self.one)
        state = self.result(self.one.set.alter(state, frozenset({1, 2})))
        return self.result(self.one.set.alter(state, frozenset({1, 2, 3})))

    def test_first(self) -> None:
        """Who asks first leads, in epoch 1, and is alone in sync."""
        self.lives(self.one)
        state = self.elect(self.one)
        self.assertEqual((state.master_epoch, state.set_epoch, state.in_sync), (1, 1, {1}))
        assert state.master is not None
        self.assertEqual((state.master.id, state.master.address), (1, "10.0.0.1:10911"))
        assert self.one.set.lease is not None
        self.assertEqual(self.one.set.lease.led, 1)

    def test_master_lives(self) -> None:
        """Nothing changes while there is a master."""
        before = self.first()
        self.assertEqual(self.elect(self.two), before)

    def test_longest(self) -> None:
        """The one with the longest log leads, whoever asks first."""
        self.first()
        self.dies(self.one)
        self.two.end, self.three.end = 100, 200
        self.assertIsNone(self.elect(self.two).master)
        state = self.elect(self.three)
        assert state.master is not None
        self.assertEqual((state.master.id, state.master_epoch, state.in_sync), (3, 2, {3}))
        self.assertEqual(self.elect(self.two), state)

    def test_silent_rival(self) -> None:
        """One that lives and says nothing is waited for, but not for long."""
        self.first()
        self.dies(self.one)
        self.assertIsNone(self.elect(self.two).master)
        self.clock.advance(BALLOT)
        self.assertIsNotNone(self.elect(self.two).master)

    def test_idle_rival(self) -> None:
        """One that has more and does not take the lead is not waited for for long."""
        self.first()
        self.dies(self.one)
        self.three.end = 10
        self.assertIsNone(self.elect(self.three).master)
        self.assertIsNone(self.elect(self.two).master)
        self.clock.advance(2 * BALLOT)
        self.assertIsNotNone(self.elect(self.two).master)

    def test_not_in_sync(self) -> None:
        """Others lead if they live; if not, it is told that no other member may."""
        state = self.first()
        self.result(self.one.set.alter(state, frozenset({1, 2})))
        self.dies(self.one)
        self.assertIsNone(self.elect(self.three).master)
        self.dies(self.two)
        asked = self.three.set.elect(3)
        error = self.failureResultOf(asked, EtcdRefused).value
        self.assertEqual(error.code, Code.ELECT_MASTER_FAILED)
        self.assertIn("only [1, 2] may be elected", str(error))

    def test_master_is_back(self) -> None:
        """The transaction is refused if the old master lives again by then."""
        self.first()
        self.dies(self.one)
        view = self.result(Deferred.fromCoroutine(self.two.set.view()))
        self.lives(self.one)
        compare = [self.two.set.lives(2), self.two.set.absent("live/1")]
        state = self.result(Deferred.fromCoroutine(self.two.set._lead(view, 2, compare)))
        self.assertEqual((state.master_epoch, state.master.id), (1, 1))

    def test_lifeless(self) -> None:
        """Without a lease, or with a vote that says nothing, none asks."""
        self.first()
        self.dies(self.one)
        self.two.set.vote = lambda _: None
        self.assertIsNone(self.elect(self.two).master)
        self.three.set.lease = None
        self.assertIsNone(self.elect(self.three).master)

    def test_designated(self) -> None:
        """An operator may choose another one that lives and is in sync, and no other."""
        state = self.first()
        state = self.result(self.one.set.alter(state, frozenset({1, 2})))
        self.assertEqual(self.elect(self.two, designated=True).in_sync, {2})
        error = self.failureResultOf(self.three.set.elect(3, designated=True), EtcdRefused).value
        self.assertEqual(error.code, Code.ELECT_MASTER_FAILED)

    def test_led(self) -> None:
        """A lease leads as long as the key of the master has it."""
        self.first()
        lease = self.one.set.lease
        assert lease is not None
        self.result(self.one.set.current())
        self.assertEqual(lease.led, 1)
        self.one.set.lease = Lease("99", 1e6)
        self.result(self.one.set.current())
        self.assertIsNone(self.one.set.lease.led)

    # --- the SyncStateSet ---------------------------------------------------------

    def test_alter(self) -> None:
        """Each change has the next set epoch."""
        state = self.first()
        self.assertEqual((state.set_epoch, state.in_sync, state.master_epoch), (3, {1, 2, 3}, 1))

    def test_alter_old(self) -> None:
        """What names a set that is not in force any more is refused, and changes nothing."""
        state = self.first()
        now = self.result(self.one.set.alter(state, frozenset({1, 2})))
        error = self.failureResultOf(self.one.set.alter(state, frozenset({1})), EtcdRefused).value
        self.assertEqual(error.code, Code.FENCED_SYNC_STATE_SET_EPOCH)
        self.assertEqual(self.result(self.two.set.current()), now)

    def test_alter_of_old_master(self) -> None:
        """Nor may a master that was replaced change anything."""
        state = self.first()
        self.elect(self.two, designated=True)
        error = self.failureResultOf(self.one.set.alter(state, frozenset({1})), EtcdRefused).value
        self.assertEqual(error.code, Code.FENCED_MASTER_EPOCH)

    def test_alter_without_lease(self) -> None:
        """Nor one whose lease is over."""
        state = self.first()
        self.dies(self.one)
        error = self.failureResultOf(self.one.set.alter(state, frozenset({1})), EtcdRefused).value
        self.assertEqual(error.code, Code.INVALID_MASTER)

    def test_alter_dead(self) -> None:
        """Nor is a member taken in that does not live."""
        state = self.first()
        state = self.result(self.one.set.alter(state, frozenset({1, 2})))
        self.dies(self.three)
        error = self.failureResultOf(
            self.one.set.alter(state, frozenset({1, 2, 3})), EtcdRefused
        ).value
        self.assertEqual(error.code, Code.BROKER_NOT_ALIVE)

    def test_alter_late(self) -> None:
        """A change whose answer is lost may be made; asked for again it is refused then, and what
        is decided is told.
        """
        state = self.first()
        self.etcd.late = {"kv/txn"}
        asked = self.one.set.alter(state, frozenset({1, 2}))
        self.clock.advance(self.one.set.client.patience)
        self.failureResultOf(asked, EtcdUnanswered)
        self.etcd.late = set()
        asked = self.one.set.alter(state, frozenset({1, 2}))
        self.failureResultOf(asked, EtcdRefused)
        self.assertEqual(self.result(self.one.set.current()).in_sync, {1, 2})

    # --- what is read ---------------------------------------------------------------

    def test_unreadable(self) -> None:
        """What is no set of ours is told, and not guessed at."""
        self.etcd.keys["/rmqha/C/a/set"] = Kept("{}", 1, 1, "")
        error = self.failureResultOf(self.one.set.current(), EtcdRefused).value
        self.assertIn("what is below /rmqha/C/a/ cannot be read", str(error))

    def test_followed(self) -> None:
        """Changes are told, until it is closed."""
        told: list[int] = []
        self.one.set.follow(lambda: told.append(1))
        flush = self.etcd.flush
        self.lives(self.two)
        self.dies(self.two)
        flush()
        self.assertEqual(len(told), 2)
        self.one.set.look()
        self.result(self.one.set.close())
        flush()
        self.assertEqual(self.etcd.began, [0])
