"""A member of a set, whose controller and fellow members are played by hand."""

from __future__ import annotations

import json
from typing import Any

from attrs import define, evolve, field
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed

from lab.harness.ports import client_port
from rmqha.config.broker_settings import BrokerRole
from rmqha.config.controller_settings import ControllerSettings
from rmqha.controller.group import ControllerGroup
from rmqha.controller.member_state import MemberState
from rmqha.controller.set_watch import LOOK, TICK
from rmqha.errors import ElectionPaused, NotWritable, RemotingUnreachable
from rmqha.ha.master.master import GATHERING
from rmqha.ha.master.put_service import PutResult
from rmqha.ha.master.transfer import PutStatus
from rmqha.store.tables import epoch_file
from rmqha.wire import ha_v2
from rmqha.wire.ha_v2 import EpochLabel, SlaveHandshake
from rmqha.wire.remoting.bodies.controller import (
    EpochCache,
    EpochRange,
    ReplicasInfo,
    SetMember,
    SyncStateData,
    SyncStateSet,
)
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ControllerResponseCode, RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import (
    AlterSyncStateSetAnswer,
    ElectMasterAnswer,
    EpochCacheRequest,
    MemberHeartbeatRequest,
    NextBrokerIdAnswer,
    RegisterMemberAnswer,
    RoleChangedRequest,
)
from rmqha.wire.remoting.json_body import read, write
from tests.roles.nodes import PuppetMember, settings
from tests.roles.test_learner import CONTROLLER, FakeSet, SetMaster
from tests.roles.test_slave import SlaveCase
from tests.support.health import unhealthy
from tests.support.logs import content, message
from tests.support.scripted_master import PuppetTransport

OURS, OTHER = 1, 2
OTHER_ADDRESS = "10.0.0.2:10911"


@define(eq=False)
class WholeSet(FakeSet):
    """A controller that a member can join, and one other member.

    @ivar set_epoch: How often the SyncStateSet was changed.
    @ivar lives_at: Where another node lives under our member's id, if one does.
    @ivar generation: Which log that one has.
    @ivar theirs: Where the other member says that its log ends; C{None} if it says nothing.
    """

    address: str = ""
    in_sync: tuple[int, ...] = ()
    set_epoch: int = 0
    unknown: bool = field(default=False)
    lives_at: str = ""
    generation: str = ""
    theirs: int | None = 0

    def __attrs_post_init__(self) -> None:
        self.handlers |= {
            Code.GET_NEXT_BROKER_ID: lambda command: command.answer(
                header=NextBrokerIdAnswer(cluster_name="C", broker_name="a", next_broker_id=OURS)
            ),
            Code.APPLY_BROKER_ID: lambda command: command.answer(),
            Code.REGISTER_BROKER: self._registered,
            Code.ELECT_MASTER: self._elect,
            Code.ALTER_SYNC_STATE_SET: self._alter,
            Code.GET_SYNC_STATE_DATA: self._members,
        }

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        """Answer as the controller or the other member."""
        if self.lives_at and address == self.lives_at:
            living = EpochCache(
                broker_id=0, broker_name=self.names[0], max_offset=0, generation=self.generation
            )
            return succeed(command.answer(body=write(living)))
        asked = address == OTHER_ADDRESS and command.code == Code.GET_BROKER_EPOCH_CACHE
        if asked and address not in self.serving:
            if self.theirs is None:
                return fail(RemotingUnreachable(address, "connection refused"))
            cache = EpochCache(
                broker_id=OTHER,
                broker_name=self.names[0],
                epoch_list=(EpochRange(epoch=1, start_offset=0),),
                max_offset=self.theirs,
                compares_bytes=True,
            )
            return succeed(command.answer(body=write(cache)))
        return super().request(address, command, timeout)

    def make_master(self, number: int) -> None:
        self.elect(self.address if number == OURS else OTHER_ADDRESS)
        self.in_sync, self.set_epoch = (number,), self.set_epoch + 1

    @property
    def number(self) -> int | None:
        if not self.master:
            return None
        return OTHER if self.master == OTHER_ADDRESS else OURS

    def _body(self) -> bytes:
        return write(SyncStateSet(sync_state_set=self.in_sync, sync_state_set_epoch=self.set_epoch))

    def _replicas(self, command: Command) -> Command:
        answer = super()._replicas(command)
        if self.number is not None:
            answer.ext["masterBrokerId"] = str(self.number)
        return evolve(answer, body=self._body())

    def _registered(self, command: Command) -> Command:
        if self.unknown:
            return command.answer(ControllerResponseCode.BROKER_NEED_TO_BE_REGISTERED, "who?")
        header = RegisterMemberAnswer(cluster_name="C", broker_name="a")
        return command.answer(header=header, body=self._body())

    def _elect(self, command: Command) -> Command:
        if not self.master:
            self.make_master(OURS)
        header = ElectMasterAnswer(
            master_broker_id=self.number,
            master_address=self.master,
            master_epoch=self.epoch,
            sync_state_set_epoch=self.set_epoch,
        )
        body = json.dumps({"syncStateSet": list(self.in_sync)}).encode()
        return command.answer(header=header, body=body)

    def _alter(self, command: Command) -> Command:
        new = read(SyncStateSet, command.body)
        self.in_sync, self.set_epoch = new.sync_state_set, self.set_epoch + 1
        header = AlterSyncStateSetAnswer(new_sync_state_set_epoch=self.set_epoch)
        return command.answer(header=header, body=self._body())

    def _members(self, command: Command) -> Command:
        both = tuple(
            SetMember(broker_name="a", broker_id=number, broker_address=address, alive=alive)
            for number, address, alive in (
                (OURS, self.lives_at or self.address, bool(self.lives_at)),
                (OTHER, OTHER_ADDRESS, None),
            )
        )
        table = {self.names[0]: ReplicasInfo(not_in_sync_replicas=both)}
        return command.answer(body=write(SyncStateData(replicas_info_table=table)))

    names: tuple[str, ...] = ("",)


class MemberCase(SlaveCase):
    def setUp(self) -> None:
        super().setUp()
        self.set = WholeSet((CONTROLLER,), CONTROLLER)
        # Clients' ports are real ones.
        self.port = client_port()

    def member(self, role: BrokerRole = BrokerRole.SYNC_MASTER, **keys: Any) -> PuppetMember:
        made = settings(self.root, master=None, listen_port=10912, **keys)
        broker = evolve(made.broker, role=role, ip1="10.0.0.1", listen_port=self.port)
        mode = ControllerSettings(enabled=True, addresses=CONTROLLER)
        self.set.address = f"10.0.0.1:{self.port}"
        self.set.names = (made.broker.name,)
        made = evolve(made, controller=mode, broker=broker)
        self.node: Any = PuppetMember(made, self.reactor)
        for client in (self.node.elected.client, self.node.membership.beats.client):
            client.request, client.oneway = self.set.request, self.set.oneway
        self.node.startService()
        self.addCleanup(self.end)
        self.successResultOf(self.node.ready)
        self.turn()
        return self.node

    def pass_time(self, seconds: float) -> None:
        """In steps of a look."""
        for _ in range(round(seconds / TICK)):
            self.reactor.advance(TICK)

    def assert_state(self, state: MemberState, reason: str = "") -> None:
        said = self.node.status()["controller"]
        self.assertEqual(said["state"], state.value, said)
        self.assertIn(reason, said["reason"])

    def write(self, size: int = 300) -> Deferred[PutResult]:
        return self.node.broker.writer.put(message(size, topic="TopicA"))

    def joined(self, end: int = 0) -> tuple[Any, PuppetTransport]:
        """The other member connects to our HA port, and reports."""
        address = IPv4Address("TCP", "10.0.0.2", 40000)
        protocol = self.node.serving.gate.buildProtocol(address)
        assert protocol is not None, "it was refused"
        transport = PuppetTransport(self.reactor)
        transport.peerAddr, transport.protocol = address, protocol
        protocol.makeConnection(transport)
        protocol.dataReceived(ha_v2.encode_handshake(SlaveHandshake(id=OTHER)))
        self.turn()
        protocol.dataReceived(ha_v2.encode_report(end))
        return protocol, transport

    def in_sync(self) -> Any:
        """The other member has all, and is one of the SyncStateSet."""
        protocol, _ = self.joined()
        protocol.dataReceived(ha_v2.encode_report(self.node.store.log.end))
        self.pass_time(3.0)
        self.assertEqual(self.set.in_sync, (OURS, OTHER))
        return protocol

    def beats(self) -> list[MemberHeartbeatRequest]:
        """The signs of life since the last time."""
        asked, self.set.asked = self.set.asked, []
        return [
            command.custom(MemberHeartbeatRequest)
            for _, command in asked
            if command.code == RequestCode.BROKER_HEARTBEAT
        ]


class LeadTests(MemberCase):
    def test_first(self) -> None:
        """A set's first member is elected, its epoch in the epoch file before a write."""
        self.member()
        self.assert_state(MemberState.LEADING, "in master epoch 1")
        kept = epoch_file.read(self.root / "epochFileCheckpoint")
        self.assertEqual(kept.labels, (EpochLabel(1, 0),))
        self.assertEqual(self.node.broker.topics.version.state_version, 1)
        self.assertEqual(self.node.settings.broker.id, 0)
        self.assertIs(self.successResultOf(self.write()).status, PutStatus.SLAVE_NOT_AVAILABLE)

    def test_not_first(self) -> None:
        """One with brokerRole=SLAVE waits for the member that has the data."""
        self.member(BrokerRole.SLAVE)
        self.assert_state(MemberState.WAITING, "must not be a set's first")
        self.set.make_master(OTHER)
        self.pass_time(1.0)
        self.assert_state(MemberState.FOLLOWING)
        self.assertEqual(self.node.settings.broker.id, OURS)

    def test_acknowledged(self) -> None:
        """A write is answered when the SyncStateSet's other member holds it; then readers see."""
        self.member()
        protocol = self.in_sync()
        written = self.write()
        self.turn()
        self.assertNoResult(written)
        end = self.node.store.log.end
        self.pass_time(1.0)
        self.assertLess(self.node.status()["dispatchedOffset"], end)
        protocol.dataReceived(ha_v2.encode_report(end))
        self.assertIs(self.successResultOf(written).status, PutStatus.PUT_OK)
        self.pass_time(1.0)
        self.assertEqual(self.node.status()["dispatchedOffset"], end)
        self.assertEqual(self.node.status()["controller"]["confirmOffset"], end)

    def test_members_first(self) -> None:
        """Members get a write before it is answered if the answer waits for them, by C{brokerRole};
        a slave by its configuration that is elected promises what C{SYNC_MASTER} does.
        """
        for role in BrokerRole:
            self.member(role)
            protocol, transport = self.joined()
            protocol.dataReceived(ha_v2.encode_report(self.node.store.log.end))
            self.pass_time(3.0)
            transport.clear()
            self.write()
            waits = role is not BrokerRole.ASYNC_MASTER
            self.assertEqual(bool(transport.value()), waits, role)
            self.reactor.advance(GATHERING)
            self.assertTrue(transport.value())
            self.stop()

    def test_another_is_elected(self) -> None:
        """Waiting writes are answered 12, no other is taken, and the other one is followed."""
        self.member()
        self.in_sync()
        waiting = self.write()
        self.set.make_master(OTHER)
        self.node.elected.watch.hurry()
        self.pass_time(1.0)
        self.assertIs(self.successResultOf(waiting).status, PutStatus.FLUSH_SLAVE_TIMEOUT)
        self.assert_state(MemberState.FOLLOWING)
        self.assertIsNone(self.node.broker.writer)
        self.assertIsNone(self.node.serving.gate.inner)
        self.assertTrue(self.node.endpoint.waiting)

    def test_elected_while_following(self) -> None:
        """It follows, is elected, and goes on behind what it has, with its own label."""
        self.set.make_master(OTHER)
        self.member()
        master = SetMaster(self.accept(within=2.0))
        shaken = ha_v2.encode_handshake(SlaveHandshake(id=OURS))
        self.assertEqual(master.heard, shaken)
        master.answer(self.theirs, EpochLabel(1, 0))
        master.feed(self.theirs, 0, 0)
        self.pass_time(1.0)
        self.assertEqual(self.node.status()["dispatchedOffset"], 0)
        self.set.make_master(OURS)
        master.connection.close()
        self.pass_time(2.0)
        self.assert_state(MemberState.LEADING, "in master epoch 2")
        self.assertEqual(content(self.node.store.log), content(self.theirs))
        self.assertEqual(self.node.status()["dispatchedOffset"], self.theirs.end)
        kept = epoch_file.read(self.root / "epochFileCheckpoint").labels
        self.assertEqual(kept, (EpochLabel(1, 0), EpochLabel(2, self.theirs.end)))
        self.successResultOf(self.write())
        self.assertGreater(self.node.store.log.end, self.theirs.end)

    def test_again_in_a_new_epoch(self) -> None:
        """The same member is elected again: connections end, for members to hear the label."""
        self.member()
        _, transport = self.joined()
        self.set.make_master(OURS)
        self.pass_time(LOOK)
        self.turn()
        self.assert_state(MemberState.LEADING, "in master epoch 2")
        self.assertTrue(transport.disconnecting)

    def test_news_of_an_election(self) -> None:
        """Whoever tells of one: the controller is asked, and only that counts."""
        self.member()
        (part,) = self.node.broker_parts()
        told = RoleChangedRequest(master_epoch=9, sync_state_set_epoch=1)
        request = Command.request(Code.NOTIFY_BROKER_ROLE_CHANGED, told)
        part.role_changed(None, request)
        self.pass_time(TICK)
        self.assert_state(MemberState.LEADING)
        answered = part.epochs(None, Command.request(Code.GET_BROKER_EPOCH_CACHE))
        cache = read(EpochCache, answered.body)
        self.assertEqual((cache.broker_id, cache.epoch_list[0].epoch), (0, 1))
        self.assertIsNone(cache.token_told)
        asked = Command.request(Code.GET_BROKER_EPOCH_CACHE, EpochCacheRequest(token=5))
        cache = read(EpochCache, part.epochs(None, asked).body)
        self.assertIs(cache.token_told, False, "it leads, and has no connection to a master")


class SafetyTests(MemberCase):
    """When it does not lead, though it could."""

    def test_fence(self) -> None:
        """No controller answers, and a member is away that could have been elected: no write is
        taken until a controller says that this is still the master.
        """
        self.member()
        protocol = self.in_sync()
        self.set.gone.add(CONTROLLER)
        self.pass_time(15.0)
        self.assert_state(MemberState.LEADING)
        protocol.connectionLost()
        self.pass_time(2.0)
        self.assert_state(MemberState.FENCED, "no controller has answered")
        with self.assertRaises(NotWritable):
            self.write()
        self.assertIn("member-fenced", unhealthy(self.node))
        self.set.gone.clear()
        self.pass_time(LOOK)
        self.assert_state(MemberState.LEADING)
        self.write()

    def test_controllers_that_forgot(self) -> None:
        """A set that they do not know, though this node was in it, and an epoch below the log's."""
        self.member()
        self.stop()
        self.beats()
        self.set.unknown = True
        self.member()
        self.assert_state(MemberState.REFUSED, "unknown-set")
        self.assertEqual(self.beats(), [])
        self.assertTrue(self.node.clients.serving)
        self.assertIsNone(self.node.broker.writer)
        self.stop()
        self.set.unknown, self.set.epoch, self.set.master = False, 0, ""
        self.member()
        self.pass_time(1.0)
        self.assert_state(MemberState.REFUSED, "epoch-behind")
        self.assertIn("member-refused", unhealthy(self.node))

    def test_controllers_that_forget(self) -> None:
        """While this node leads: another may be elected, so it takes no more writes."""
        self.member()
        self.set.epoch, self.set.master = 0, OTHER_ADDRESS
        self.pass_time(LOOK)
        self.assert_state(MemberState.REFUSED, "epoch-behind")
        with self.assertRaises(NotWritable):
            self.write()

    def test_id_at_another_address(self) -> None:
        """Its id is told elsewhere, by a copy: it takes no writes, nor leads after a restart."""
        self.member()
        copy = "10.0.0.9:10911"
        self.set.master = copy
        self.pass_time(LOOK)
        self.assert_state(MemberState.REFUSED, f"same-id: the controllers have id 1 at {copy}")
        with self.assertRaises(NotWritable):
            self.write()
        self.beats()
        self.pass_time(3.0)
        self.assertEqual(self.beats(), [])
        self.stop()
        self.member()
        self.pass_time(1.0)
        self.assert_state(MemberState.REFUSED, "same-id")
        self.assertIsNone(self.node.lead.master)

    def test_copy_of_a_living_disk(self) -> None:
        """A node on a copy of a living member's disk does not join, and names that member."""
        self.member()
        self.stop()
        generation = json.loads((self.root / "rmqha" / "published.json").read_text())["generation"]
        self.set.lives_at, self.set.generation = "10.0.0.9:10911", generation
        self.set.asked.clear()
        self.member()
        self.assert_state(MemberState.REFUSED, "identity: id 1 lives at 10.0.0.9:10911")
        self.assertNotIn(Code.REGISTER_BROKER, [command.code for _, command in self.set.asked])
        self.stop()
        self.set.generation = "another"
        self.member()
        self.assert_state(MemberState.JOINING, "id 1 is alive at 10.0.0.9:10911: waiting")
        self.set.lives_at = ""
        self.pass_time(LOOK)
        self.assert_state(MemberState.LEADING)

    def test_nobody_can_be_elected(self) -> None:
        """With the only member in sync dead, the reason names it, and where the ways out are."""
        self.set.elect("")
        self.set.in_sync = (OTHER,)
        self.set.handlers[Code.ELECT_MASTER] = lambda command: command.answer(
            ControllerResponseCode.ELECT_MASTER_FAILED, "no"
        )
        self.member()
        self.pass_time(2.0)
        self.assert_state(MemberState.WAITING, "only [2] may be elected, and none of them is alive")
        self.assert_state(MemberState.WAITING, "rmqha controller explain")

    def test_paused(self) -> None:
        """While a set is paused it waits, and says since when and by whom."""
        self.set.elect("")
        paused = ElectionPaused("etcd", 0, "since noon by kim@desk")
        self.patch(ControllerGroup, "elect", lambda _, member: fail(paused))
        self.member()
        self.pass_time(2.0)
        self.assert_state(MemberState.WAITING, "paused, since noon by kim@desk: no member is")

    def test_a_lost_log(self) -> None:
        """A member that counted and has less gives no sign of life, until it has the rest."""
        self.member()
        self.in_sync()
        end = self.node.store.log.end
        self.stop()
        held = self.root / "rmqha" / "held.json"
        held.write_text(json.dumps({"id": OURS, "epoch": 1, "offset": end + self.theirs.end}))
        self.set.make_master(OTHER)
        self.beats()
        self.member()
        self.pass_time(2.0)
        self.assert_state(MemberState.FOLLOWING, "lost-log")
        self.assertEqual(self.beats(), [])

    def test_identity_of_another_set(self) -> None:
        """It does not join with it."""
        self.root.mkdir(parents=True)
        (self.root / "brokerIdentity").write_text("C#another#4")
        self.member()
        self.assert_state(MemberState.REFUSED, "identity")
        self.assertEqual(self.beats(), [])

    def test_no_controller(self) -> None:
        """It waits, and joins when one is there."""
        self.set.gone.add(CONTROLLER)
        self.member()
        self.assert_state(MemberState.NO_CONTROLLER, "no controller of")
        self.set.gone.clear()
        self.pass_time(2.0)
        self.assert_state(MemberState.LEADING)
