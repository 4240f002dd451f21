"""Tests for L{rmqha.controller.etcd.etcd_membership}, with an etcd in memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.broker_settings import BrokerSettings
from rmqha.config.controller_settings import ControllerSettings
from rmqha.config.settings import EtcdSettings, Settings
from rmqha.config.store_settings import StoreSettings
from rmqha.controller.coordinator import SetState, SignOfLife
from rmqha.controller.etcd.client import EtcdRefused, NoEtcd
from rmqha.controller.etcd.etcd_membership import ALARMS_EVERY, INTERVAL, EtcdMembership, margin
from rmqha.controller.etcd.etcd_set import EtcdSet
from rmqha.controller.identity import IdentityFiles, IdentityInvalid
from rmqha.controller.other_members import MemberLivesElsewhere
from rmqha.wire.remoting.bodies.controller import EpochCache
from rmqha.wire.remoting.codes import ControllerRequestCode
from rmqha.wire.remoting.codes import ControllerResponseCode as Code
from rmqha.wire.remoting.json_body import write
from tests.controller.etcd.fake_etcd import FakeEtcd
from tests.controller.fake_controllers import FakeControllers
from tests.support.logs import now

ETCD, OTHER = "10.1.0.1:2379", "10.1.0.2:2379"
HERE, THERE = "10.0.0.1:10911", "10.0.0.9:10911"
TTL = 10


class EtcdMembershipTests(SynchronousTestCase):
    def setUp(self) -> None:
        """An etcd that knows nobody."""
        self.clock = Clock()
        self.etcd = FakeEtcd(self.clock)
        self.addresses: tuple[str, ...] = (ETCD,)
        self.sign: SignOfLife | None = SignOfLife(epoch=None, end=0, confirm=0)
        self.changed = 0
        self.members = FakeControllers((), "")
        self.members.gone = {HERE, THERE}
        self.root = Path(self.mktemp())
        self.root.mkdir()

    def membership(self, root: Path | None = None, address: str = HERE) -> EtcdMembership:
        """That of a node with a store."""
        root = self.root if root is None else root

        def changed() -> None:
            self.changed += 1

        return EtcdMembership(
            set=EtcdSet.named(self.etcd.client(*self.addresses), "/rmqha", "C", "a"),
            settings=Settings(
                broker=BrokerSettings(name="a"),
                store=StoreSettings(root=root),
                controller=ControllerSettings(priority=1),
                etcd=EtcdSettings(lease=TTL),
            ),
            files=IdentityFiles.of(root, "C", "a"),
            address=address,
            sign=lambda: self.sign,
            generation=lambda: "g",
            client=self.members,
            clock=self.clock,
            in_thread=now,
            changed=changed,
        )

    def asked(self, membership: EtcdMembership) -> Deferred[SetState]:
        return Deferred.fromCoroutine(membership.join())

    def joined(self, *args: Any) -> EtcdMembership:
        """One that has, and gives signs of life."""
        made = self.membership(*args)
        self.successResultOf(self.asked(made))
        made.start()
        self.addCleanup(made.stop)
        return made

    def key(self, name: str) -> Any:
        kept = self.etcd.keys.get(f"/rmqha/C/a/{name}")
        return None if kept is None else json.loads(kept.value)

    def elect(self, membership: EtcdMembership) -> SetState:
        """It asks for an election."""
        return self.successResultOf(membership.set.elect(membership.id))

    # --- to join --------------------------------------------------------------------

    def test_first_time(self) -> None:
        """It gets an id that no other has, keeps it with a token, and says where it is."""
        one = self.joined()
        store = self.root / "rmqha" / "registered.json"
        token = json.loads(store.read_text())["token"]
        self.assertEqual(one.id, 1)
        self.assertEqual((self.root / "brokerIdentity").read_text(), "C#a#1")
        entry = {"token": token, "run": 1, "address": HERE, "left": "", "removed": ""}
        self.assertEqual(self.key("ids/1"), entry)
        self.assertEqual(self.key("live/1"), {"token": token, "address": HERE, "vote": None})
        other = Path(self.mktemp())
        other.mkdir()
        self.assertEqual(self.joined(other, THERE).id, 2)
        self.assertEqual(self.successResultOf(one.set.members()), {1: HERE, 2: THERE})

    def test_lost_answer(self) -> None:
        """Who applied for an id and was not answered gets the same one."""
        self.etcd.late = {"kv/txn"}
        asked = self.asked(self.membership())
        self.clock.advance(5)
        self.failureResultOf(asked)
        self.etcd.late = set()
        self.assertEqual(self.joined().id, 1)
        self.assertIsNone(self.key("ids/2"))

    def test_race(self) -> None:
        """Two that apply for one id: the other one applies for the next."""
        other = Path(self.mktemp())
        other.mkdir()
        self.etcd.gone = {ETCD}
        IdentityFiles.of(other, "C", "a").apply(1, "t")
        self.etcd.gone = set()
        self.joined()
        late = self.membership(other, THERE)
        error = self.failureResultOf(self.asked(late), EtcdRefused).value
        self.assertEqual(error.code, Code.BROKER_ID_INVALID)
        self.assertEqual(self.joined(other, THERE).id, 2)

    def test_again(self) -> None:
        """A process that ended cleanly is back at once, under its id."""
        self.successResultOf(self.joined().stop())
        self.assertIsNone(self.key("live/1"))
        self.assertEqual((self.joined().id, self.key("ids/1")["run"]), (1, 2))

    def test_stopped_without_an_answer(self) -> None:
        """Whether etcd took the end of the lease is asked once more, of another member."""
        one = self.joined()
        one.set.client.addresses = (ETCD, "10.1.0.2:2379")
        self.etcd.late = {"lease/revoke"}
        stopped = one.stop()
        self.etcd.late = set()
        self.assertNoResult(stopped)
        self.clock.advance(one.set.client.patience)
        self.successResultOf(stopped)
        asked = [address for address, path in self.etcd.asked if path == "lease/revoke"]
        self.assertEqual(asked, list(one.set.client.addresses))

    def test_killed(self) -> None:
        """One that was killed waits until the lease of the process before it is over."""
        self.joined()._beating.stop()
        again = self.membership()
        self.failureResultOf(self.asked(again), MemberLivesElsewhere)
        self.clock.advance(TTL)
        self.successResultOf(self.asked(again))

    def test_copy(self) -> None:
        """A copy of the disk of one that lives is refused as that, and takes nothing from it."""
        self.joined()
        copy = Path(self.mktemp())
        shutil.copytree(self.root, copy)
        cache = EpochCache(broker_id=0, broker_name="a", max_offset=9, generation="g")
        self.members.gone = {THERE}
        self.members.leader = HERE
        self.members.handlers = {
            ControllerRequestCode.GET_BROKER_EPOCH_CACHE: lambda command: command.answer(
                body=write(cache)
            )
        }
        error = self.failureResultOf(
            self.asked(self.membership(copy, THERE)), MemberLivesElsewhere
        ).value
        self.assertTrue(error.copied)
        self.assertEqual(self.key("live/1")["address"], HERE)

    def test_older_disk(self) -> None:
        """A disk as it was before the last start is refused: others know of more."""
        one = self.joined()
        older = Path(self.mktemp())
        shutil.copytree(self.root, older)
        self.successResultOf(one.stop())
        self.successResultOf(self.joined().stop())
        error = self.failureResultOf(self.asked(self.membership(older)), IdentityInvalid).value
        self.assertIn("it is an older state of that disk, or a copy of it", str(error))

    def test_crash_while_registering(self) -> None:
        """What was written down and not told does no harm."""
        self.successResultOf(self.joined().stop())
        self.etcd.refused = {"lease/grant": (429, "full")}
        self.failureResultOf(self.asked(self.membership()), EtcdRefused)
        self.etcd.refused = {}
        self.assertEqual(self.joined().id, 1)

    def test_other_store(self) -> None:
        """An id that etcd gave to another store is not taken over."""
        self.successResultOf(self.joined().stop())
        path = self.root / "rmqha" / "registered.json"
        path.write_text(path.read_text().replace('"token":"', '"token":"x'))
        table = json.loads(path.read_text())
        path.write_text(json.dumps({**table, "token": "other"}))
        error = self.failureResultOf(self.asked(self.membership()), IdentityInvalid).value
        self.assertIn("id 1 is that of another store in etcd", str(error))
        path.unlink()
        self.failureResultOf(self.asked(self.membership()), IdentityInvalid)

    def test_wiped_etcd(self) -> None:
        """An etcd that has lost what it knew is told apart from one that never knew it."""
        self.successResultOf(self.joined().stop())
        self.etcd.keys.clear()
        error = self.failureResultOf(self.asked(self.membership()), EtcdRefused).value
        self.assertEqual(error.code, Code.BROKER_NEED_TO_BE_REGISTERED)

    def test_no_etcd(self) -> None:
        """Without etcd nobody joins."""
        self.etcd.gone = {ETCD}
        self.failureResultOf(self.asked(self.membership()), NoEtcd)

    # --- the lease ------------------------------------------------------------------

    def leader(self) -> EtcdMembership:
        """A member that leads in epoch 1."""
        one = self.joined()
        self.assertEqual((self.elect(one).master_epoch, one.doubt(1)), (1, ""))
        return one

    def test_sure(self) -> None:
        """With signs of life a master is sure of it for good; of another epoch it is not."""
        one = self.leader()
        self.clock.pump([INTERVAL] * 60)
        self.assertEqual(one.doubt(1), "")
        self.assertIn("master epoch 2 goes on", one.doubt(2))

    def test_doubt(self) -> None:
        """Without an answer it is sure for less than its lease, and again if that still lived."""
        one = self.leader()
        self.etcd.gone = {ETCD}
        self.clock.advance(TTL - margin(TTL) - 0.01)
        self.assertEqual(one.doubt(1), "")
        self.clock.advance(0.02)
        self.assertIn("may be over", one.doubt(1))
        self.etcd.gone = set()
        self.changed = 0
        self.etcd.leases = dict.fromkeys(self.etcd.leases, (1000000.0, TTL))
        self.clock.advance(INTERVAL)
        self.assertEqual((one.doubt(1), self.changed), ("", 1))

    def test_counted_from_sending(self) -> None:
        """An answer long on its way gives no more time than was left when it was asked for."""
        one = self.leader()
        self.etcd.late = {"lease/keepalive"}
        self.clock.pump([0.5] * 25)
        self.assertIn("may be over", one.doubt(1))

    def test_mute(self) -> None:
        """A sign of life that is not answered when the next one is due has that go to another
        member of etcd: a short lease does not wait for the end of anybody's patience.
        """
        self.addresses = ETCD, OTHER
        one = self.leader()
        self.etcd.mute = {ETCD}
        self.etcd.asked.clear()
        self.clock.pump([INTERVAL, INTERVAL])
        path = "lease/keepalive"
        self.assertEqual(self.etcd.asked, [(ETCD, path), (OTHER, path)])
        self.clock.advance(INTERVAL)
        self.assertEqual(one.set.client.address, OTHER)

    def test_over(self) -> None:
        """Frozen for longer than that, it knows at once when it wakes; it registers again, and is
        not sure before it has seen under the new lease that it leads still.
        """
        one = self.leader()
        self.clock.rightNow += TTL + 5  # type: ignore[attr-defined]
        self.assertIn("may be over", one.doubt(1))
        self.changed = 0
        self.clock.advance(0)
        self.assertGreater(self.changed, 0)
        self.assertEqual((self.key("ids/1")["run"], one.doubt(1)), (2, ""))

    def test_replaced_while_frozen(self) -> None:
        """If another member was elected meanwhile it is never sure of its own epoch again."""
        one = self.leader()
        other = Path(self.mktemp())
        other.mkdir()
        two = self.joined(other, THERE)
        state = self.successResultOf(one.set.current())
        self.successResultOf(one.set.alter(state, frozenset({1, 2})))
        one._beating.stop()
        self.clock.pump([INTERVAL] * (TTL + 1))
        self.assertEqual(self.elect(two).master_epoch, 2)
        self.assertIn("may be over", one.doubt(1))
        one.beat()
        self.assertIn("master epoch 1 goes on", one.doubt(1))
        self.successResultOf(one.set.current())
        self.assertIn("master epoch 1 goes on", one.doubt(1))

    def test_no_sign(self) -> None:
        """Who must not be elected lets its lease go, and says so; then it is registered again."""
        one = self.leader()
        sign, self.sign = self.sign, None
        self.clock.advance(INTERVAL)
        self.assertIsNone(self.key("live/1"))
        self.assertIn("must not be elected", one.doubt(1))
        self.assertEqual([each.name for each in one.health()], ["no-lease"])
        self.sign = sign
        self.clock.advance(INTERVAL)
        self.assertIsNotNone(self.key("live/1"))
        self.assertEqual(list(one.health()), [])

    def test_id_is_taken(self) -> None:
        """Another node with our id has registered while we had no lease: we stay without."""
        one = self.leader()
        self.sign, sign = None, self.sign
        self.clock.advance(INTERVAL)
        one._beating.stop()
        self.sign = sign
        self.joined()
        one.beat()
        self.assertIn("id 1", one.trouble)
        self.assertIn("id 1", one.doubt(1))

    def test_status(self) -> None:
        """It tells how long the lease surely lives, if it leads under it, and who answers."""
        one = self.joined()
        left, member = TTL - margin(TTL), {"address": ETCD, "answers": True, "failures": 0}
        self.assertEqual(
            one.status(),
            {
                "lease": {"secondsLeft": left, "leads": False, "trouble": ""},
                "paused": None,
                "etcd": {"latencySeconds": 0.0, "members": [member], "alarms": []},
            },
        )
        self.elect(one)
        self.assertTrue(one.status()["lease"]["leads"])  # type: ignore[index]

    def test_left(self) -> None:
        """Who lets its lease go says why, in the step in which it goes; who is killed does not."""
        one = self.joined()
        self.sign, sign = None, self.sign
        self.clock.advance(INTERVAL)
        self.assertEqual((self.key("ids/1")["left"], self.etcd.leases), ("not fit to lead", {}))
        self.sign = sign
        self.clock.advance(INTERVAL)
        self.assertEqual(self.key("ids/1")["left"], "")
        self.etcd.refused = {"lease/revoke": (500, "no leader")}
        self.successResultOf(one.stop())
        self.assertEqual((self.key("ids/1")["left"], self.key("live/1")), ("clean stop", None))

    def test_leave_full(self) -> None:
        """etcd takes no change: the lease goes all the same."""
        one = self.joined()
        self.etcd.refused = {"kv/txn": (429, "etcdserver: mvcc: database space exceeded")}
        self.successResultOf(one.stop())
        self.assertEqual((self.key("ids/1")["left"], self.key("live/1")), ("", None))

    def test_removed(self) -> None:
        """Who was removed is none any more; whoever joins gets another id."""
        other, third = Path(self.mktemp()), Path(self.mktemp())
        other.mkdir()
        third.mkdir()
        one, two = self.leader(), self.joined(other, THERE)
        self.successResultOf(two.stop())
        self.successResultOf(Deferred.fromCoroutine(one.set.remove(2)))
        asked = self.asked(self.membership(other, THERE))
        said = str(self.failureResultOf(asked, IdentityInvalid).value)
        self.assertIn("id 2 was removed from the set at 20", said)
        self.assertEqual(self.joined(third, THERE).id, 3)

    def test_paused(self) -> None:
        """It is a reason; a master whose lease may be over is not sure of it then either, and one
        that comes back in time goes on in its epoch.
        """
        one = self.leader()
        one.set.operator = "kim@desk"
        self.successResultOf(Deferred.fromCoroutine(one.set.pause()))
        self.assertEqual([each.name for each in one.health()], ["paused"])
        self.assertIn("by kim@desk: no member is elected by itself", next(one.health()).text)
        self.assertEqual(one.status()["paused"]["by"], "kim@desk")  # type: ignore[index]
        self.assertEqual(one.doubt(1), "")
        self.etcd.gone = {ETCD}
        self.clock.advance(TTL)
        self.assertIn("may be over", one.doubt(1))
        self.etcd.gone = set()
        self.clock.pump([INTERVAL] * 3)
        self.assertEqual((one.doubt(1), self.key("set")["masterEpoch"]), ("", 1))
        self.successResultOf(Deferred.fromCoroutine(one.set.resume()))
        self.assertEqual(list(one.health()), [])

    def test_alarm(self) -> None:
        """One of etcd's own is a reason while it lasts; what etcd does not tell is not known."""
        one = self.joined()
        self.etcd.alarms = ["NOSPACE", "NOSPACE"]
        self.clock.pump([INTERVAL] * int(ALARMS_EVERY))
        self.assertEqual([each.name for each in one.health()], ["etcd-alarm"])
        self.assertIn("the alarm NOSPACE:", next(one.health()).text)
        self.etcd.refused = {"maintenance/alarm": (403, "permission denied")}
        self.clock.pump([INTERVAL] * int(ALARMS_EVERY))
        self.assertEqual((one.alarms, list(one.health())), (None, []))
        self.assertEqual(self.etcd.asked.count((ETCD, "maintenance/alarm")), 3)
