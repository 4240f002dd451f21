"""Tests for L{rmqha.controller.group}."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.controller.group import ControllerGroup
from rmqha.errors import ControllerRefused, ControllerUnanswered, NoController
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ControllerResponseCode as Answered
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import ONEWAY, Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.controller import (
    AlterSyncStateSetRequest,
    ElectMasterRequest,
    MemberHeartbeatRequest,
)
from tests.controller.fake_controllers import FakeControllers, Handler

A, B, C = "h:1", "h:2", "h:3"
NOW = 1_795_308_906_369
T = TypeVar("T")
ONE = ElectedMember(1, "127.0.0.1:35100")
LED = SetState(master=ONE, master_epoch=1, in_sync=frozenset({1}), set_epoch=1)


def said(ext: dict[str, str], body: bytes = b"", code: int = 0) -> Handler:
    """Answer so."""

    def answer(command: Command) -> Command:
        found = command.answer(code, body=body)
        found.ext = ext
        return found

    return answer


def refused(code: int, remark: str = "no") -> Handler:
    """Refuse."""
    return lambda command: command.answer(code, remark)


class GroupTestCase(SynchronousTestCase):
    """Three controllers, of which the second leads."""

    def setUp(self) -> None:
        self.controllers = FakeControllers((A, B, C), B)
        self.group = ControllerGroup(
            addresses=(A, B, C), client=self.controllers, cluster="C", name="a", now_ms=lambda: NOW
        )

    def result(self, asked: Deferred[T] | Coroutine[Any, Any, T]) -> T:
        if not isinstance(asked, Deferred):
            asked = Deferred.fromCoroutine(asked)
        return self.successResultOf(asked)

    def failed(
        self, asked: Deferred[T] | Coroutine[Any, Any, T], error: type[Exception]
    ) -> Exception:
        if not isinstance(asked, Deferred):
            asked = Deferred.fromCoroutine(asked)
        return self.failureResultOf(asked, error).value


class LeaderTests(GroupTestCase):
    def setUp(self) -> None:
        super().setUp()
        ext = {"masterBrokerId": "1", "masterAddress": ONE.address, "masterEpoch": "1"}
        body = b'{"syncStateSet":[1],"syncStateSetEpoch":1}'
        self.controllers.handlers[Code.GET_REPLICA_INFO] = said(ext, body)

    def test_found_once(self) -> None:
        """A follower says who leads, and it is not asked again."""
        self.assertEqual(self.result(self.group.current()), LED)
        self.assertEqual(
            self.controllers.codes(), [(A, Code.GET_METADATA_INFO), (B, Code.GET_REPLICA_INFO)]
        )
        self.result(self.group.current())
        self.assertEqual(self.controllers.codes(), [(B, Code.GET_REPLICA_INFO)])

    def test_another(self) -> None:
        """Another one leads now: the request goes there."""
        self.result(self.group.current())
        self.controllers.leader = C
        self.assertEqual((self.result(self.group.current()), self.group.leader), (LED, C))

    def test_dies(self) -> None:
        """One that cannot be reached is replaced by its successor."""
        self.result(self.group.current())
        self.controllers.gone.add(B)
        self.controllers.leader = C
        self.assertEqual(self.result(self.group.current()), LED)

    def test_followers_know_the_dead_one_only(self) -> None:
        """While followers name one that is gone there is none, and both are said."""
        self.controllers.gone.add(B)
        error = self.failed(self.group.current(), NoController)
        self.assertIn(f"no controller of {A}, {B}, {C} leads", str(error))
        self.assertIn(f"{B} leads, and", str(error))

    def test_nobody_leads(self) -> None:
        """What each said is told."""
        self.controllers.leader = ""
        self.controllers.gone.add(C)
        error = str(self.failed(self.group.current(), NoController))
        self.assertIn(f"{A}: it knows no leader; {B}: it knows no leader; {C}: ", error)
        self.assertIn("connection refused", error)

    def test_they_disagree(self) -> None:
        """Two that say of each other that they lead do not keep a member busy for ever."""
        self.controllers.leader, self.controllers.stale = "", A
        error = self.failed(self.group.current(), NoController)
        self.assertIn(f"{A} leads no more", str(error))
        self.assertLess(len(self.controllers.asked), 10)

    def test_frozen(self) -> None:
        """R4: those that stand still keep nobody waiting who finds one that answers."""
        self.controllers.frozen |= {A, C}
        self.assertEqual(self.result(self.group.current()), LED)

    def test_silent(self) -> None:
        """One that was asked and is silent may have done it: the request is not sent to another."""
        self.result(self.group.current())
        self.controllers.silent.add(B)
        error = self.failed(self.group.current(), ControllerUnanswered)
        self.assertIn(f"{B} did not answer request 1004", str(error))
        self.controllers.leader = C
        self.assertEqual(self.result(self.group.current()), LED)


class CoordinatorTests(GroupTestCase):
    def test_no_master(self) -> None:
        """A set without a master has an epoch all the same."""
        body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":4}'
        self.controllers.handlers[Code.GET_REPLICA_INFO] = said({"masterEpoch": "5"}, body)
        state = SetState(master=None, master_epoch=5, in_sync=frozenset({1, 2}), set_epoch=4)
        self.assertEqual(self.result(self.group.current()), state)

    def test_unknown_set(self) -> None:
        """A refusal has its code."""
        self.controllers.handlers[Code.GET_REPLICA_INFO] = refused(
            Answered.BROKER_METADATA_NOT_EXIST
        )
        error = self.failed(self.group.current(), ControllerRefused)
        assert isinstance(error, ControllerRefused)
        self.assertEqual((error.address, error.code, error.remark), (B, 2008, "no"))

    def test_garbled(self) -> None:
        """A body that is none is no answer to believe."""
        self.controllers.handlers[Code.GET_REPLICA_INFO] = said({"masterEpoch": "5"}, b"[]")
        self.failed(self.group.current(), ControllerRefused)

    def test_elect(self) -> None:
        """An election names the master; so does the answer that there is one."""
        ext = {
            "masterBrokerId": "1",
            "masterAddress": ONE.address,
            "masterEpoch": "1",
            "syncStateSetEpoch": "1",
        }
        for code in (0, Answered.MASTER_STILL_EXIST):
            handler = said(ext, b'{"syncStateSet":[1]}', code)
            self.controllers.handlers[Code.ELECT_MASTER] = handler
            self.assertEqual(self.result(self.group.elect(2, designated=True)), LED)
        _, command = self.controllers.asked[-1]
        self.assertEqual(
            from_ext(ElectMasterRequest, command.ext),
            ElectMasterRequest(
                cluster_name="C",
                broker_name="a",
                broker_id=2,
                designate_elect=True,
                invoke_time=NOW,
            ),
        )

    def test_not_elected(self) -> None:
        """Nobody lives that may be elected."""
        self.controllers.handlers[Code.ELECT_MASTER] = refused(Answered.ELECT_MASTER_FAILED)
        self.failed(self.group.elect(1), ControllerRefused)

    def test_alter(self) -> None:
        """A change names the set that it replaces, and gives the new one."""
        body = b'{"syncStateSet":[2,1],"syncStateSetEpoch":2}'
        handler = said({"newSyncStateSetEpoch": "2"}, body)
        self.controllers.handlers[Code.ALTER_SYNC_STATE_SET] = handler
        found = self.result(self.group.alter(LED, frozenset({2, 1})))
        wanted = SetState(master=ONE, master_epoch=1, in_sync=frozenset({1, 2}), set_epoch=2)
        self.assertEqual(found, wanted)
        _, command = self.controllers.asked[-1]
        self.assertEqual(command.body, b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}')
        asked = AlterSyncStateSetRequest(
            broker_name="a", master_broker_id=1, master_epoch=1, invoke_time=NOW
        )
        self.assertEqual(from_ext(AlterSyncStateSetRequest, command.ext), asked)

    def test_outcome_unknown(self) -> None:
        """A change sent and not answered, or whose raft entry failed, may have been made."""
        self.result(self.group.find_leader())
        self.controllers.handlers[Code.ALTER_SYNC_STATE_SET] = refused(1, "append failed")
        error = self.failed(self.group.alter(LED, frozenset({1, 2})), ControllerUnanswered)
        self.assertIn("append failed", str(error))
        self.controllers.silent.add(B)
        self.failed(self.group.alter(LED, frozenset({1, 2})), ControllerUnanswered)
        sent = [address for address, code in self.controllers.codes() if code == 1001]
        self.assertEqual(sent, [B, B])

    def test_fenced(self) -> None:
        """A master of an older epoch is told so."""
        handler = said({"newSyncStateSetEpoch": "0"}, code=Answered.FENCED_MASTER_EPOCH)
        self.controllers.handlers[Code.ALTER_SYNC_STATE_SET] = handler
        error = self.failed(self.group.alter(LED, frozenset({1, 2})), ControllerRefused)
        assert isinstance(error, ControllerRefused)
        self.assertEqual(error.code, 2000)


class MembershipTests(GroupTestCase):
    """An id, an address, signs of life."""

    def test_join(self) -> None:
        """A new member asks for an id, applies for it and says where it is."""
        handlers = self.controllers.handlers
        names = {"clusterName": "C", "brokerName": "a"}
        handlers[Code.GET_NEXT_BROKER_ID] = said({**names, "nextBrokerId": "2"})
        handlers[Code.APPLY_BROKER_ID] = said(names)
        master = {"masterBrokerId": "1", "masterAddress": ONE.address, "masterEpoch": "1"}
        handlers[Code.REGISTER_BROKER] = said(
            {**names, **master, "syncStateSetEpoch": "1"},
            b'{"syncStateSet":[1],"syncStateSetEpoch":1}',
        )
        self.assertEqual(self.result(self.group.next_id()), 2)
        self.result(self.group.apply(2, "127.0.0.1:35200;1"))
        self.assertEqual(self.result(self.group.register(2, "127.0.0.1:35200")), LED)
        _, command = self.controllers.asked[-2]
        self.assertEqual(command.ext["registerCheckCode"], "127.0.0.1:35200;1")

    def test_taken(self) -> None:
        """The id is somebody else's."""
        self.controllers.handlers[Code.APPLY_BROKER_ID] = refused(Answered.BROKER_ID_INVALID)
        self.failed(self.group.apply(2, "x;1"), ControllerRefused)

    def test_beat(self) -> None:
        """All controllers get a sign of life, one-way; one that is away stops no other."""
        self.controllers.gone.add(A)
        beat = MemberHeartbeatRequest(
            cluster_name="C",
            broker_addr="127.0.0.1:35200",
            broker_name="a",
            broker_id=2,
            epoch=1,
            max_offset=614,
            confirm_offset=307,
            heartbeat_timeout_mills=10_000,
            election_priority=0x7FFFFFFF,
        )
        self.group.beat(beat)
        self.assertEqual(
            [(address, command.code, command.flag) for address, command in self.controllers.asked],
            [(B, RequestCode.BROKER_HEARTBEAT, ONEWAY), (C, RequestCode.BROKER_HEARTBEAT, ONEWAY)],
        )
        self.assertEqual(from_ext(MemberHeartbeatRequest, self.controllers.asked[0][1].ext), beat)
