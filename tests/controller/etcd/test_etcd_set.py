"""Tests for L{rmqha.controller.etcd.etcd_set}, with an etcd in memory."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.coordinator import SetState
from rmqha.controller.etcd.client import EtcdRefused, EtcdUnanswered
from rmqha.controller.etcd.etcd_set import BALLOT, KEPT, EtcdSet, Lease
from rmqha.controller.etcd.set_keys import IdEntry, Living, Vote
from rmqha.errors import ElectionPaused, Refused
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
        return Vote(after=after, label=1, end=self.end, priority=0)


class EtcdSetTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.etcd = FakeEtcd(self.clock)
        self.one, self.two, self.three = (Member(self.etcd, number) for number in (1, 2, 3))

    def result(self, asked: Deferred[Any]) -> Any:
        """What came of it, at once."""
        return self.successResultOf(asked)

    def lives(self, *members: Member) -> None:
        for each in members:
            lease = f"7{each.number}"
            value = Living(token="t", address=f"10.0.0.{each.number}:10911").render()
            self.etcd.revision += 1
            at = self.etcd.revision
            self.etcd.keys[f"/rmqha/C/a/live/{each.number}"] = Kept(value, at, at, lease)
            self.etcd.leases[lease] = self.clock.seconds() + 1e6, 10
            each.set.lease = Lease(lease, 1e6)

    def dies(self, member: Member) -> None:
        self.etcd.end(f"7{member.number}")

    def elect(self, member: Member, **how: Any) -> SetState:
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
        error = self.failureResultOf(self.three.set.elect(3), EtcdRefused).value
        self.assertEqual(error.code, Code.ELECT_MASTER_FAILED)
        self.assertIn("only [1, 2] may be elected", str(error))

    def test_master_is_back(self) -> None:
        """The transaction is refused if the old master lives again by then."""
        self.first()
        self.dies(self.one)
        view = self.result(Deferred.fromCoroutine(self.two.set.view()))
        self.lives(self.one)
        compare = [self.two.set.lives(2), self.two.set.absent("live/1")]
        state = self.result(Deferred.fromCoroutine(self.two.set._lead(view, 2, compare, "")))
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
        """A change whose answer is lost may be made; asked for again it is refused, and told."""
        state = self.first()
        self.etcd.late = {"kv/txn"}
        asked = self.one.set.alter(state, frozenset({1, 2}))
        self.clock.advance(self.one.set.client.patience)
        self.failureResultOf(asked, EtcdUnanswered)
        self.etcd.late = set()
        asked = self.one.set.alter(state, frozenset({1, 2}))
        self.failureResultOf(asked, EtcdRefused)
        self.assertEqual(self.result(self.one.set.current()).in_sync, {1, 2})

    # --- what operators do ------------------------------------------------------------

    def done(self, asked: Coroutine[Any, Any, Any]) -> Any:
        return self.result(Deferred.fromCoroutine(asked))

    def refused(self, asked: Coroutine[Any, Any, Any]) -> str:
        return str(self.failureResultOf(Deferred.fromCoroutine(asked), Refused).value)

    def known(self, *members: Member, left: str = "") -> None:
        for each in members:
            value = IdEntry(token="t", address=f"10.0.0.{each.number}:10911", left=left).render()
            self.etcd.revision += 1
            at = self.etcd.revision
            self.etcd.keys[f"/rmqha/C/a/ids/{each.number}"] = Kept(value, at, at, "")

    def history(self) -> list[tuple[Any, ...]]:
        return [tuple(each.values()) for each in self.done(self.one.set.view()).elections()]

    def test_history(self) -> None:
        """Each election is remembered: who was followed by whom, when, and why."""
        for each in (self.one, self.two, self.three):
            each.set.now = lambda: "noon"
        self.known(self.one, self.two, self.three)
        state = self.first()
        self.assertEqual(self.history(), [("noon", 0, 1, 1, 1, "first")])
        self.one.set.operator = "kim@desk"
        self.result(self.one.set.elect(2, designated=True))
        self.assertEqual(self.history()[1:], [("noon", 1, 2, 2, 4, "chosen by kim@desk")])
        state = self.result(self.two.set.current())
        self.result(self.two.set.alter(state, frozenset({2, 3})))
        self.dies(self.two)
        self.three.end = 10
        self.elect(self.three)
        self.assertEqual(self.history()[2:], [("noon", 2, 3, 3, 6, "lease over")])
        self.known(self.three, left="clean stop")
        state = self.result(self.three.set.current())
        self.result(self.three.set.alter(state, frozenset({1, 3})))
        self.dies(self.three)
        self.elect(self.one)
        self.assertEqual(self.history()[3][5], "clean stop")

    def test_long_history(self) -> None:
        """The last twenty are, and none where an election was not made."""
        self.first()
        for number in range(KEPT + 5):
            self.elect((self.two, self.one)[number % 2], designated=True)
            now = self.result(self.one.set.current())
            leads = self.two if now.master.id == 2 else self.one
            self.result(leads.set.alter(now, frozenset({1, 2})))
        self.elect(self.three)
        found = self.history()
        self.assertEqual([each[3] for each in found], list(range(7, 27)))

    def test_unreadable_history(self) -> None:
        """What is no history is told, and keeps nobody from being elected."""
        self.first()
        self.etcd.keys["/rmqha/C/a/history"] = Kept('[{"at": 1}]', 1, 1, "")
        self.assertRaises(ValueError, self.done(self.one.set.view()).elections)
        self.dies(self.one)
        self.two.end = 10
        self.elect(self.three)
        self.elect(self.two)
        self.assertEqual([each[2] for each in self.history()], [2])

    def test_paused(self) -> None:
        """None is elected by itself; who is chosen is, and the old master may come back."""
        before = self.first()
        self.one.set.operator, self.one.set.now = "kim@desk", lambda: "noon"
        self.done(self.one.set.pause())
        self.one.set.operator, self.one.set.now = "another", lambda: "midnight"
        self.assertEqual(str(self.done(self.one.set.pause())), "since noon by kim@desk")
        self.assertEqual(self.elect(self.two), before)
        self.dies(self.one)
        self.clock.advance(2 * BALLOT)
        error = self.failureResultOf(self.two.set.elect(2), ElectionPaused).value
        self.assertIn("paused, since noon by kim@desk: no member is", str(error))
        self.lives(self.one)
        self.assertEqual(self.result(self.two.set.current()), before)
        self.assertEqual(self.elect(self.two, designated=True).master_epoch, 2)
        self.assertIsNotNone(self.done(self.one.set.resume()))
        self.assertIsNone(self.done(self.one.set.resume()))
        self.result(self.two.set.alter(self.result(self.two.set.current()), frozenset({1, 2})))
        self.dies(self.two)
        self.one.end = 10
        self.assertEqual(self.elect(self.one).master_epoch, 3)

    def test_paused_meanwhile(self) -> None:
        """Nor is one elected by what was read before."""
        self.first()
        self.dies(self.one)
        self.two.end = 10
        change = EtcdSet.change

        async def paused_first(one: EtcdSet, compare: Any, puts: Any, lease: str = "") -> Any:
            if "set" in puts:
                await self.one.set.pause()
            return await change(one, compare, puts, lease)

        self.elect(self.three)
        self.patch(EtcdSet, "change", paused_first)
        self.assertIsNone(self.elect(self.two).master)
        self.assertIsNotNone(self.two.set.paused)
        self.assertEqual(len(self.history()), 1)

    def test_paused_by_hand(self) -> None:
        """Whatever is written there, the set is paused, and nothing else happens to it."""
        before = self.first()
        self.etcd.keys["/rmqha/C/a/paused"] = Kept("yes", 1, 1, "")
        self.assertEqual(self.result(self.one.set.current()), before)
        self.assertIn("by who wrote 'yes'", str(self.one.set.paused))

    def test_remove(self) -> None:
        """Who is gone for good is no member any more, and its id is that of nobody else."""
        self.known(self.one, self.two, self.three)
        state = self.result(self.one.set.alter(self.first(), frozenset({1, 2})))
        self.dies(self.three)
        self.assertEqual(self.done(self.one.set.remove(3)), state)
        self.assertEqual(list(self.result(self.one.set.members())), [1, 2])
        found = self.done(self.one.set.sets(["a"]))["a"]
        self.assertEqual(found.not_in_sync_replicas, ())
        self.assertIn(3, self.done(self.one.set.view()).ids)
        self.assertIn("no member with id 3: there are [1, 2]", self.refused(self.one.set.remove(3)))

    def test_remove_refused(self) -> None:
        """Not who lives, nor the master, nor who is about to leave the SyncStateSet."""
        self.known(self.one, self.two, self.three)
        self.first()
        self.assertIn("id 2 at 10.0.0.2:10911 lives", self.refused(self.one.set.remove(2)))
        self.dies(self.three)
        self.assertIn("about to leave it out", self.refused(self.one.set.remove(3, in_sync=True)))
        self.dies(self.one)
        self.assertIn("id 1 is the set's master", self.refused(self.two.set.remove(1)))
        self.dies(self.two)
        self.assertIn("only [1, 2] may be", self.refused(self.two.set.remove(3)))
        state = self.done(self.two.set.remove(3, in_sync=True))
        self.assertEqual((state.in_sync, state.set_epoch, state.master_epoch), ({1, 2}, 4, 1))

    def test_remove_late(self) -> None:
        """Not one that comes back at that moment."""
        self.known(self.one, self.two, self.three)
        self.result(self.one.set.alter(self.first(), frozenset({1, 2})))
        self.dies(self.three)
        change = EtcdSet.change

        async def back_first(one: EtcdSet, compare: Any, puts: Any) -> Any:
            self.lives(self.three)
            return await change(one, compare, puts)

        self.patch(EtcdSet, "change", back_first)
        self.assertIn("decided meanwhile", self.refused(self.one.set.remove(3)))
        self.assertEqual(list(self.result(self.one.set.members())), [1, 2, 3])

    def test_forget(self) -> None:
        """Nothing is left of a set of which nobody lives; of another one all is."""
        self.known(self.one, self.two)
        self.first()
        self.etcd.keys["/rmqha/C/ab/set"] = Kept("{}", 1, 1, "")
        self.dies(self.one)
        self.assertIn("[2, 3] live", self.refused(self.two.set.forget()))
        self.dies(self.two)
        self.dies(self.three)
        self.assertEqual(self.done(self.two.set.forget()), [1, 2])
        self.assertEqual(list(self.etcd.keys), ["/rmqha/C/ab/set"])
        self.assertIn("nothing below /rmqha/C/a/", self.refused(self.two.set.forget()))

    def test_try_to_write(self) -> None:
        """Whether a change would be taken is seen without one."""
        before = self.etcd.revision
        self.done(self.one.set.try_to_write())
        self.assertEqual((self.etcd.keys, self.etcd.revision), ({}, before))
        self.etcd.refused = {"kv/txn": (403, "permission denied")}
        asked = Deferred.fromCoroutine(self.one.set.try_to_write())
        self.assertIn("permission denied", str(self.failureResultOf(asked, EtcdRefused).value))

    def test_lease_seconds(self) -> None:
        """How long the leases of those that live go on."""
        self.lives(self.one, self.two)
        self.etcd.leases["71"] = self.clock.seconds() + 7, 10
        del self.etcd.leases["72"]
        self.assertEqual(self.done(self.one.set.lease_seconds()), {1: 7})

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
