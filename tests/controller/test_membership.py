"""Tests for L{rmqha.controller.membership}."""

from __future__ import annotations

from pathlib import Path

from attrs import define, evolve
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.controller_settings import ControllerSettings
from rmqha.controller.coordinator import SetState, SignOfLife
from rmqha.controller.group import ControllerGroup
from rmqha.controller.identity import IdentityFiles, IdentityInvalid
from rmqha.controller.membership import Membership
from rmqha.controller.other_members import MemberLivesElsewhere
from rmqha.errors import ControllerRefused, RemotingUnreachable
from rmqha.wire.remoting.bodies.controller import (
    EpochCache,
    ReplicasInfo,
    SetMember,
    SyncStateData,
    SyncStateSet,
)
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ControllerResponseCode, RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import (
    NO_EPOCH,
    ApplyBrokerIdRequest,
    MemberHeartbeatRequest,
    NextBrokerIdAnswer,
    RegisterMemberAnswer,
)
from rmqha.wire.remoting.json_body import write
from tests.controller.fake_controllers import FakeControllers
from tests.support.logs import now

ONE, TWO = "10.1.0.1:9878", "10.1.0.2:9878"
HERE, ELSEWHERE = "10.0.0.1:10911", "10.0.0.9:10911"


@define(eq=False)
class ControllersAndMember(FakeControllers):
    """A member lives elsewhere, with a log of a generation, or does not answer."""

    generation: str | None = None

    def request(self, address: str, command: Command, timeout: float) -> Deferred[Command]:
        if address != ELSEWHERE:
            return super().request(address, command, timeout)
        if self.generation is None:
            return fail(RemotingUnreachable(address, "connection refused"))
        cache = EpochCache(
            broker_id=0, broker_name="a", max_offset=9, generation=self.generation or None
        )
        return succeed(command.answer(body=write(cache)))


class MembershipTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A group that gives the next free id to whoever asks first."""
        self.root = Path(self.mktemp())
        self.root.mkdir()
        self.clock = Clock()
        self.given: dict[int, str] = {}
        self.next = 1
        self.sign: SignOfLife | None = SignOfLife(epoch=None, end=0, confirm=0)
        self.fake = ControllersAndMember((ONE, TWO), ONE)
        self.fake.handlers = {
            Code.GET_NEXT_BROKER_ID: self.number,
            Code.APPLY_BROKER_ID: self.applied,
            Code.REGISTER_BROKER: self.registered,
            Code.GET_SYNC_STATE_DATA: self.members,
        }
        self.living: SetMember | None = None

    def number(self, command: Command) -> Command:
        header = NextBrokerIdAnswer(cluster_name="C", broker_name="a", next_broker_id=self.next)
        return command.answer(header=header)

    def applied(self, command: Command) -> Command:
        asked = command.custom(ApplyBrokerIdRequest)
        code = self.given.setdefault(asked.applied_broker_id, asked.register_check_code)
        if code != asked.register_check_code:
            return command.answer(ControllerResponseCode.BROKER_ID_INVALID, "taken")
        return command.answer()

    def members(self, command: Command) -> Command:
        known = () if self.living is None else (self.living,)
        table = {"a": ReplicasInfo(in_sync_replicas=known)} if known else {}
        return command.answer(body=write(SyncStateData(replicas_info_table=table)))

    def registered(self, command: Command) -> Command:
        body = write(SyncStateSet(sync_state_set=(), sync_state_set_epoch=0))
        header = RegisterMemberAnswer(cluster_name="C", broker_name="a")
        return command.answer(header=header, body=body)

    def membership(self, name: str = "a") -> Membership:
        """That of a node with this store."""
        group = ControllerGroup(
            addresses=(ONE, TWO), client=self.fake, cluster="C", name=name, now_ms=lambda: 77
        )
        made = Membership(
            group=group,
            beats=group,
            files=IdentityFiles.of(self.root, "C", name),
            address=HERE,
            sign=lambda: self.sign,
            settings=ControllerSettings(priority=5),
            generation=lambda: "g",
            clock=self.clock,
            in_thread=now,
        )
        self.addCleanup(made.stop)
        return made

    def join(self, membership: Membership) -> SetState:
        return self.successResultOf(Deferred.fromCoroutine(membership.join()))

    def test_first_time(self) -> None:
        """It asks for an id, applies for it, and keeps it."""
        made = self.membership()
        self.assertIsNone(self.join(made).master)
        self.assertEqual((made.id, self.given), (1, {1: f"{HERE};77"}))
        self.assertEqual((self.root / "brokerIdentity").read_text(), "C#a#1")
        self.assertFalse((self.root / "brokerIdentity-temp").exists())

    def test_again(self) -> None:
        """It only says where it is."""
        self.join(self.membership())
        self.fake.codes()
        again = self.membership()
        self.join(again)
        self.assertEqual(again.id, 1)
        codes = [code for _, code in self.fake.codes()]
        self.assertEqual(
            codes, [Code.GET_METADATA_INFO, Code.GET_SYNC_STATE_DATA, Code.REGISTER_BROKER]
        )

    def test_on_a_copy_of_a_living_disk(self) -> None:
        """An id that lives at another address is not taken from it: a store that is a copy of that
        one's is told so, and anything else is waited for.
        """
        self.join(self.membership())
        for self.fake.generation, copied in (("g", True), ("h", False), ("", False), (None, False)):
            self.living = SetMember(
                broker_name="a", broker_id=1, broker_address=ELSEWHERE, alive=True
            )
            self.fake.codes()
            failed = Deferred.fromCoroutine(self.membership().join())
            error = self.failureResultOf(failed, MemberLivesElsewhere).value
            self.assertEqual((error.id, error.address, error.copied), (1, ELSEWHERE, copied))
            self.assertNotIn(Code.REGISTER_BROKER, [code for _, code in self.fake.codes()])
        for other in (
            evolve(self.living, alive=False),
            evolve(self.living, broker_id=2),
            evolve(self.living, broker_address=HERE),
        ):
            self.living = other
            self.join(self.membership())

    def test_race(self) -> None:
        """Another got the id: what was applied for is given up, and the next try gets one."""
        self.given[1] = "another"
        made = self.membership()
        self.failureResultOf(Deferred.fromCoroutine(made.join()), ControllerRefused)
        self.assertFalse((self.root / "brokerIdentity-temp").exists())
        self.next = 2
        self.join(made)
        self.assertEqual(made.id, 2)

    def test_killed_while_applying(self) -> None:
        """Whoever comes again asks for the same id, with the same code."""
        IdentityFiles.of(self.root, "C", "a").apply(1, "earlier")
        self.given[1] = "earlier"
        made = self.membership()
        self.join(made)
        self.assertEqual(made.id, 1)

    def test_a_store_of_another_set(self) -> None:
        """It is refused, whatever the controllers say."""
        self.join(self.membership())
        failed = Deferred.fromCoroutine(self.membership("b").join())
        self.failureResultOf(failed, IdentityInvalid)

    def test_signs_of_life(self) -> None:
        """Each second to every controller, what there is to tell; nothing without an id or news."""
        made = self.membership()
        made.start()
        self.assertEqual(self.fake.codes(), [])
        self.join(made)
        self.fake.codes()
        self.sign = SignOfLife(epoch=4, end=900, confirm=800)
        self.clock.advance(1.0)
        (first, told), (second, _) = self.fake.asked
        self.assertEqual({first, second}, {ONE, TWO})
        self.assertEqual(told.code, RequestCode.BROKER_HEARTBEAT)
        beat = told.custom(MemberHeartbeatRequest)
        self.assertEqual((beat.broker_id, beat.broker_addr, beat.epoch), (1, HERE, 4))
        self.assertEqual((beat.max_offset, beat.confirm_offset), (900, 800))
        self.assertEqual((beat.heartbeat_timeout_mills, beat.election_priority), (10_000, 5))
        self.fake.codes()
        self.sign = None
        self.clock.advance(1.0)
        self.assertEqual(self.fake.codes(), [])
        self.sign = SignOfLife(epoch=None, end=0, confirm=0)
        self.clock.advance(1.0)
        beat = self.fake.asked[0][1].custom(MemberHeartbeatRequest)
        self.assertEqual(beat.epoch, NO_EPOCH)
