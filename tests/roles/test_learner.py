"""A slave behind a master that a controller elects."""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, fail, succeed

from rmqha.config.controller_settings import ControllerSettings, CutPolicy
from rmqha.controller.set_watch import LOOK, TICK
from rmqha.errors import RemotingUnreachable
from rmqha.ha.states import SyncState
from rmqha.roles.elected_upstream import ALARM, ElectedUpstream
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire import ha_v2
from rmqha.wire.ha_v2 import EpochLabel, TransferHeader
from rmqha.wire.remoting.bodies.controller import EpochCache, EpochRange, SyncStateSet
from rmqha.wire.remoting.codes import ControllerRequestCode, RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import ReplicaInfoAnswer
from rmqha.wire.remoting.headers.slave import HaInfo
from rmqha.wire.remoting.json_body import write
from tests.controller.fake_controllers import FakeControllers
from tests.roles.nodes import PuppetSlave, settings
from tests.roles.test_slave import SlaveCase
from tests.support.health import unhealthy
from tests.support.logs import content
from tests.support.scripted_master import Connection

CONTROLLER = "10.1.0.1:9878"
FIRST_LABEL = EpochLabel(1, 0)
SHAKEN = ha_v2.encode_handshake(ha_v2.SlaveHandshake(id=-1, learner=True))


def ha_port(member: str) -> str:
    """Where a member's slaves connect."""
    host, _, port = member.rpartition(":")
    return f"{host}:{int(port) + 1}"


@define(eq=False)
class FakeSet(FakeControllers):
    """A controller, and members that answer what a slave asks.

    @ivar master: The client port of who is elected; empty for nobody.
    @ivar serving: Members that take themselves for master, and maybe say that they take tokens.
    """

    master: str = ""
    epoch: int = 0
    serving: set[str] = field(factory=set)
    takes_tokens: bool = False

    def elect(self, master: str) -> None:
        """Another one is master, and knows it."""
        self.master, self.serving = master, {master}
        self.epoch += 1

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        """Answer as the controller or a member."""
        if address in self.addresses:
            self.handlers[ControllerRequestCode.GET_REPLICA_INFO] = self._replicas
            return super().request(address, command, timeout)
        if address in self.gone:
            return fail(RemotingUnreachable(address, "connection refused"))
        self.asked.append((address, command))
        serves = address in self.serving
        if command.code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            found = HaInfo()
            if serves:
                takes = self.takes_tokens or None
                found = HaInfo(master_ha_address=ha_port(address), takes_tokens=takes)
            return succeed(command.answer(header=found))
        if command.code == ControllerRequestCode.GET_BROKER_EPOCH_CACHE:
            known = EpochCache(
                broker_id=0 if serves else 2,
                epoch_list=(EpochRange(epoch=1, start_offset=0),),
                max_offset=0,
            )
            return succeed(command.answer(body=write(known)))
        return succeed(command.answer(1, "no"))

    def _replicas(self, command: Command) -> Command:
        header = ReplicaInfoAnswer(
            master_broker_id=1 if self.master else None,
            master_address=self.master or None,
            master_epoch=self.epoch,
        )
        body = write(SyncStateSet(sync_state_set=(1, 2), sync_state_set_epoch=3))
        return command.answer(header=header, body=body)


class SetMaster:
    """The master's end of one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def heard(self) -> bytes:
        """All that the slave said."""
        return self.connection.transport.value()

    def answer(self, log: CommitLog, *labels: EpochLabel) -> None:
        self.connection.send(ha_v2.encode_answer(log.end, labels))

    def reports(self) -> list[int]:
        """What was reported behind the handshake."""
        rest = self.heard[len(SHAKEN) :]
        return [int.from_bytes(rest[at + 4 : at + 12]) for at in range(0, len(rest), 12)]

    def feed(self, log: CommitLog, start: int, confirm: int, *labels: EpochLabel) -> None:
        """Send a log from a place on, each label where its bytes are, and a heartbeat."""
        known = labels or (FIRST_LABEL,)
        while start < log.end:
            label = [each for each in known if each.start <= start][-1]
            later = [each.start for each in known if each.start > start]
            body = bytes(log.read(start, min([1000, *(each - start for each in later)])))
            head = TransferHeader(len(body), start, label.label, label.start, confirm)
            self.connection.send(ha_v2.encode_transfer_header(head) + body)
            start += len(body)
        self.heartbeat(log.end, confirm, [each for each in known if each.start < log.end][-1])

    def heartbeat(self, at: int, confirm: int, label: EpochLabel = FIRST_LABEL) -> None:
        head = TransferHeader(0, at, label.label, label.start, confirm)
        self.connection.send(ha_v2.encode_transfer_header(head))


class LearnerTests(SlaveCase):
    FIRST, SECOND = "10.0.0.1:10911", "10.0.0.2:10911"

    def setUp(self) -> None:
        """The first member is master."""
        super().setUp()
        self.set = FakeSet((CONTROLLER,), CONTROLLER)
        self.set.elect(self.FIRST)

    def learn(self, cut: CutPolicy = CutPolicy.UNCONFIRMED, **keys: Any) -> PuppetSlave:
        made = settings(self.root, master=None, **keys)
        mode = ControllerSettings(enabled=True, learner=True, addresses=CONTROLLER, cut_policy=cut)
        self.node = PuppetSlave(evolve(made, controller=mode), self.reactor)
        assert isinstance(self.node.following.upstream, ElectedUpstream)
        self.node.following.upstream.client.request = self.set.request  # type: ignore[method-assign]
        self.node.startService()
        self.addCleanup(self.end)
        self.successResultOf(self.node.ready)
        return self.node

    def shake(self, theirs: CommitLog | None = None, *labels: EpochLabel) -> SetMaster:
        """The learner connects, and is answered."""
        master = SetMaster(self.accept(within=2.0))
        self.assertEqual(master.heard, SHAKEN)
        master.answer(theirs or self.theirs, *(labels or (FIRST_LABEL,)))
        return master

    def test_follows(self) -> None:
        """It asks controller and member, shakes hands once, gets all; readers see the confirmed."""
        self.learn()
        master = self.shake()
        self.assertEqual(master.reports(), [0])
        master.feed(self.theirs, 0, confirm=0)
        self.turn()
        self.assertEqual(master.reports()[-1], self.theirs.end)
        self.assertEqual(content(self.node.store.log), content(self.theirs))
        self.assertEqual(self.upstream["state"], "in-sync")
        self.reactor.advance(1.0)
        self.assertEqual(self.node.status()["dispatchedOffset"], 0)
        master.heartbeat(self.theirs.end, confirm=self.theirs.end - 1)
        self.reactor.advance(1.0)
        dispatched = self.node.status()["dispatchedOffset"]
        self.assertTrue(0 < dispatched < self.theirs.end - 1)
        self.assertEqual(self.upstream["controller"]["confirmOffset"], self.theirs.end - 1)
        self.assertEqual(self.node.store.publisher.point.confirm, 0)
        master.heartbeat(self.theirs.end, confirm=self.theirs.end)
        self.reactor.advance(1.0)
        self.assertEqual(self.node.status()["dispatchedOffset"], self.theirs.end)
        self.assertEqual(self.node.epochs.journal.text(), "1-0")

    def test_epoch(self) -> None:
        """Its master's epoch is asked anew each time: it may have been replaced silently."""
        self.learn()
        self.shake()
        upstream = self.node.following.upstream
        assert isinstance(upstream, ElectedUpstream)

        def asked() -> int | None:
            found: int | None = self.successResultOf(Deferred.fromCoroutine(upstream.epoch()))
            return found

        self.assertEqual(asked(), 1)
        self.set.elect(self.SECOND)
        self.assertIsNone(asked(), "another one leads")
        self.set.elect(self.FIRST)
        self.assertEqual(asked(), 3)
        self.set.gone.add(CONTROLLER)
        self.assertIsNone(asked(), "nobody knows")

    def test_token(self) -> None:
        """A token is told on its connection to a master that takes tokens, once it has reported
        there; to any other it would be a report.
        """
        for takes in (False, True):
            self.set.takes_tokens = takes
            upstream = self.learn().following.upstream
            assert isinstance(upstream, ElectedUpstream)
            self.assertFalse(upstream.tell_token(7), "nobody is connected")
            master = SetMaster(self.accept(within=2.0))
            self.assertFalse(upstream.tell_token(7), "the handshake is not answered")
            master.answer(self.theirs, FIRST_LABEL)
            self.assertEqual(upstream.tell_token(7), takes)
            told = master.heard[len(SHAKEN) :]
            self.assertEqual(told, ha_v2.encode_report(0) + ha_v2.encode_token(7) * takes)
            self.stop()

    def test_restart(self) -> None:
        """What readers saw they see again, and no more."""
        self.learn()
        self.shake().feed(self.theirs, 0, confirm=self.theirs.end - 1)
        self.reactor.advance(1.0)
        before = self.node.status()["dispatchedOffset"]
        self.stop()
        self.learn()
        self.reactor.advance(1.0)
        self.assertEqual(self.node.status()["dispatchedOffset"], before)
        self.assertGreater(before, 0)
        self.assertEqual(self.node.store.readable, self.theirs.end - 1)

    def test_an_unanswered_handshake(self) -> None:
        """It is not sent again: the connection is given up, and nothing is concluded from it."""
        self.learn()
        first = SetMaster(self.accept(within=2.0))
        first.answer(self.theirs, FIRST_LABEL)
        first.feed(self.theirs, 0, confirm=0)
        first.connection.close()
        silent = SetMaster(self.accept(within=2.0))
        self.reactor.pump([1.0] * 8)
        self.assertEqual(silent.heard, SHAKEN)
        self.assertFalse(silent.connection.open)
        self.assertEqual(self.shake().reports(), [1])

    def test_switch(self) -> None:
        """Another is elected and followed; what the first alone had, unread, is cut and kept."""
        self.learn()
        master = self.shake()
        common = self.theirs.end
        whole = content(self.theirs)
        for size in (300, 200):
            self.put(self.theirs, size)
        master.feed(self.theirs, 0, confirm=common)
        self.reactor.advance(1.0)
        self.assertEqual(self.node.status()["dispatchedOffset"], common)
        other = self.log_of(whole)
        for size in (250, 100, 180):
            self.put(other, size, topic="Others")
        self.set.elect(self.SECOND)
        master.connection.close()
        labels = (FIRST_LABEL, EpochLabel(2, common))
        second = self.shake(other, *labels)
        self.assertEqual(self.upstream["controller"]["masterEpoch"], 2)
        second.feed(other, second.reports()[-1], common, *labels)
        for _ in range(40):
            self.reactor.advance(TICK)
        self.assertEqual(self.node.store.log.end, common)
        again = self.shake(other, *labels)
        again.feed(other, again.reports()[-1], other.end, *labels)
        self.reactor.advance(1.0)
        self.assertEqual(content(self.node.store.log), content(other))
        self.assertEqual(self.node.status()["dispatchedOffset"], other.end)
        self.assertEqual(self.node.epochs.journal.text(), f"1-0,2-{common}")
        cut = self.root / "rmqha" / "quarantine" / f"{common:020d}-{self.theirs.end:020d}.log"
        self.assertEqual(cut.read_bytes(), content(self.theirs)[common:])

    def parted(self, master: SetMaster, common: bytes) -> tuple[CommitLog, tuple[EpochLabel, ...]]:
        """Another, with another log behind what is common, is elected and feeds: log and labels."""
        other = self.log_of(common)
        self.put(other, 250, topic="Others")
        self.set.elect(self.SECOND)
        master.connection.close()
        labels = (FIRST_LABEL, EpochLabel(2, len(common)))
        second = self.shake(other, *labels)
        second.feed(other, second.reports()[-1], len(common), *labels)
        return other, labels

    def test_a_cut_that_readers_would_notice(self) -> None:
        """What lies below the confirm offset is not cut off, unless the operator says so."""
        self.learn()
        master = self.shake()
        whole = content(self.theirs)
        self.put(self.theirs, 300)
        master.feed(self.theirs, 0, confirm=self.theirs.end)
        self.reactor.advance(1.0)
        before = content(self.node.store.log)
        self.parted(master, whole)
        for _ in range(10):
            self.reactor.advance(TICK)
        self.assertEqual(content(self.node.store.log), before)
        self.assertEqual(self.upstream["state"], SyncState.DIVERGED.value)
        self.assertIn(f"up to the confirm offset {len(before)}", self.upstream["reason"])

    def test_a_cut_within_the_last_record(self) -> None:
        """A confirm offset may lie within a record: stock members report the end of each frame, and
        one that is elected cuts off what it has of a record.  No reader has seen any of it.
        """
        self.learn()
        master = self.shake()
        common = self.theirs.end
        whole = content(self.theirs)
        self.put(self.theirs, 300)
        master.feed(self.theirs, 0, confirm=common + 100)
        self.reactor.advance(1.0)
        self.assertEqual(self.upstream["controller"]["confirmOffset"], common + 100)
        other, labels = self.parted(master, whole)
        for _ in range(40):
            self.reactor.advance(TICK)
        again = self.shake(other, *labels)
        again.feed(other, again.reports()[-1], other.end, *labels)
        self.reactor.advance(1.0)
        self.assertEqual(content(self.node.store.log), content(other))
        self.assertEqual(self.node.status()["dispatchedOffset"], other.end)

    def test_a_master_that_is_none_yet(self) -> None:
        """Who is elected and has not changed its role is asked again."""
        self.set.serving.clear()
        self.learn()
        self.turn()
        self.assertEqual(self.node.endpoint.waiting, [])
        self.assertIn("not master yet", self.upstream["controller"]["trouble"])
        self.set.serving.add(self.FIRST)
        self.shake()
        self.assertEqual(self.upstream["controller"]["trouble"], "")

    def test_no_controller(self) -> None:
        """While none answers, the master that is there is followed; without a master it is said."""
        self.learn()
        master = self.shake()
        master.feed(self.theirs, 0, confirm=0)
        self.set.gone.add(CONTROLLER)
        for _ in range(int((ALARM + 2 * LOOK) / TICK)):
            self.reactor.advance(TICK)
            master.heartbeat(self.theirs.end, 0)
        self.assertTrue(master.connection.open)
        self.assertIn("no-controller", unhealthy(self.node))

    def test_controllers_that_forgot(self) -> None:
        """A master epoch below the log's own is not followed."""
        self.set.epoch = 5
        self.learn()
        self.shake(None, EpochLabel(5, 0)).feed(self.theirs, 0, 0, EpochLabel(5, 0))
        self.stop()
        self.set.epoch = 1
        self.learn()
        self.reactor.advance(ALARM)
        self.assertEqual(self.node.endpoint.waiting, [])
        self.assertIn(
            "master epoch 1, and this log follows 5", self.upstream["controller"]["trouble"]
        )

    def log_of(self, data: bytes) -> CommitLog:
        log = self.log()
        at = 0
        while at < len(data):
            room = log.reserve(at, len(data) - at)
            room[:] = data[at : at + len(room)]
            log.staged(len(room))
            log.accept()
            at += len(room)
        log.verify()
        return log
