"""A member whose role changes while something else is under way, or does not succeed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionLost

from rmqha.broker.broker import Broker
from rmqha.broker.state import TABLES
from rmqha.config.broker_settings import BrokerRole
from rmqha.controller.member_state import MemberState
from rmqha.controller.set_watch import LOOK, TICK
from rmqha.errors import DiskFull, FlushFailed, TableUnreadable
from rmqha.ha.master.transfer import PutStatus
from rmqha.roles.leading import HANDOVER, HEARD
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.store import Store
from rmqha.store.tables import checked_table, epoch_file
from rmqha.store.tables.growth_file import Growth
from rmqha.wire import ha_v2
from rmqha.wire.ha_v2 import EpochLabel, SlaveHandshake
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.command import Command
from tests.roles.nodes import PuppetMember
from tests.roles.test_learner import SetMaster
from tests.roles.test_member import OTHER, OTHER_ADDRESS, OURS, MemberCase
from tests.support.health import unhealthy
from tests.support.logs import Held, content, now

FIRST_LABEL = EpochLabel(1, 0)


class MemberChangeCase(MemberCase):
    def shake(self, *labels: EpochLabel) -> SetMaster:
        """It connects, says who it is, and is answered."""
        master = SetMaster(self.accept(within=2.0))
        self.assertEqual(master.heard, ha_v2.encode_handshake(SlaveHandshake(id=OURS)))
        master.answer(self.theirs, *labels)
        return master

    def follow(self) -> SetMaster:
        """It has all that the other one has, and readers see it."""
        self.set.make_master(OTHER)
        self.member()
        master = self.shake(FIRST_LABEL)
        master.feed(self.theirs, 0, self.theirs.end)
        self.pass_time(1.0)
        self.assertEqual(content(self.node.store.log), content(self.theirs))
        return master

    def part(
        self, *, labelled: bool = True
    ) -> tuple[SetMaster, CommitLog, tuple[EpochLabel, ...], int]:
        """It has more than readers see, of a master that is gone; the next one has not got that,
        nor maybe a
        label of its own, as a stock one where the one before it was elected and wrote nothing: the
        next
        one's connection, its log, its labels, and where the logs part.
        """
        master = self.follow()
        common, whole = self.theirs.end, content(self.theirs)
        self.set.in_sync = (OURS, OTHER)
        self.node.elected.watch.hurry()
        self.put(self.theirs, 300)
        second = EpochLabel(2, common)
        tail = (FIRST_LABEL,) if labelled else (FIRST_LABEL, second)
        master.feed(self.theirs, common, common, *tail)
        self.pass_time(2.0)
        other = self.log()
        room = other.reserve(0, len(whole))
        at = 0
        while at < len(whole):
            room = other.reserve(at, len(whole) - at)
            room[:] = whole[at : at + len(room)]
            other.staged(len(room))
            other.accept()
            at += len(room)
        other.verify()
        self.put(other, 100, topic="Others")
        for _ in tail:
            self.set.make_master(OTHER)
        master.connection.close()
        labels = (FIRST_LABEL, second)
        self.theirs = other
        return self.shake(*labels), other, labels, common

    def labels(self, master: SetMaster) -> int:
        """From where it asked last."""
        rest = master.heard[len(ha_v2.encode_handshake(SlaveHandshake(id=OURS))) :]
        return int.from_bytes(rest[-8:])


class PromotionTests(MemberChangeCase):
    """Elected, while or although."""

    def test_during_a_repair(self) -> None:
        """Elected while its store is closed for a cut, it leads after that, and follows nobody."""
        master, other, labels, common = self.part()
        held = Held()

        def run(*call: Any, **keys: Any) -> Any:
            opens = self.node.store_service.opened is None and not held.calls
            return (held if opens else now)(*call, **keys)

        self.node.run = run
        master.feed(other, self.labels(master), common, *labels)
        self.pass_time(1.0)
        self.assertIsNone(self.node.store_service.opened, "the store is closed")
        self.assertIsNone(self.node.status()["upstream"]["controller"]["confirmOffset"])
        self.set.make_master(OURS)
        self.pass_time(2.0)
        self.node.run = now
        while held.calls:
            held.work()
        self.pass_time(3.0)
        self.assert_state(MemberState.LEADING, "in master epoch 3")
        self.assertIsNone(self.node.following.follower)
        self.assertFalse(self.node.endpoint.waiting)
        self.assertIsNone(self.node.following.repairs)
        self.assertIs(self.successResultOf(self.write()).status, PutStatus.SLAVE_NOT_AVAILABLE)

    def elected(self, *, after: float = 0.0) -> SetMaster:
        """Chosen while it follows a master that writes on, and that it heard some seconds ago."""
        master = self.follow()
        master.heartbeat(self.theirs.end, self.theirs.end)
        self.put(self.theirs, 300)
        self.pass_time(after)
        self.set.make_master(OURS)
        self.node.elected.watch.hurry()
        self.turn()
        return master

    def test_takes_what_was_sent(self) -> None:
        """What the former master sent, to others too, is in its log when it leads: no cut."""
        master = self.elected()
        end = self.node.store.log.confirmed
        self.assert_state(MemberState.PROMOTING)
        master.feed(self.theirs, end, end)
        master.connection.close()
        self.pass_time(TICK)
        self.assert_state(MemberState.LEADING)
        self.assertEqual(content(self.node.store.log)[: self.theirs.end], content(self.theirs))

    def test_a_master_that_stays(self) -> None:
        """It may be cut off from what elects: it is waited for a while."""
        self.elected()
        self.pass_time(HANDOVER - TICK)
        self.assert_state(MemberState.PROMOTING)
        self.pass_time(2 * TICK)
        self.assert_state(MemberState.LEADING)

    def test_a_master_that_stands_still(self) -> None:
        """It was not heard for a while: it is not waited for."""
        self.elected(after=2 * HEARD)
        self.assert_state(MemberState.LEADING)

    def test_led_again_while_growth_is_written(self) -> None:
        """A promotion ends half-way while it is written down how its set is to grow: what leads on
        in the same epoch begins behind that, and the controller is not asked by what ended.
        """
        self.member()
        held = Held()

        def run(call: Any, *more: Any, **keys: Any) -> Any:
            writes = getattr(call, "__func__", None) is Growth.write
            return (held if writes else now)(call, *more, **keys)

        self.node.run = run
        self.joined(self.node.store.log.end)
        self.assertEqual(len(held.calls), 1)
        demoted = Deferred.fromCoroutine(self.node.lead.demote("the promotion did not succeed"))
        self.pass_time(1.0)
        self.assertNoResult(demoted)
        held.work()
        self.pass_time(1.0)
        self.successResultOf(demoted)
        self.assertEqual(self.set.in_sync, (OURS,))

    def test_tables(self) -> None:
        """A thread reads the tables before following and leading, after cuts, and on a change."""
        threads, reads = [0], list[int]()
        in_thread, look_at = PuppetMember._in_thread, checked_table.look_at

        def run(node: Any, function: Any, *args: Any, **more: Any) -> Deferred[Any]:
            def called() -> Any:
                threads[0] += 1
                try:
                    return function(*args, **more)
                finally:
                    threads[0] -= 1

            return in_thread(node, called)

        def look(path: Path, *args: Any) -> Any:
            if path.name in TABLES:
                reads.append(threads[0])
            return look_at(path, *args)

        self.patch(PuppetMember, "_in_thread", run)
        self.patch(checked_table, "look_at", look)
        master, other, labels, common = self.part()
        master.feed(other, self.labels(master), common, *labels)
        self.pass_time(3.0)
        self.set.make_master(OURS)
        self.pass_time(3.0)
        self.assert_state(MemberState.LEADING)
        self.set.make_master(OTHER)
        self.pass_time(3.0)
        self.assert_state(MemberState.FOLLOWING)
        self.assertGreaterEqual(len(reads), 4 * len(TABLES))
        self.assertEqual(set(reads), {1}, "on the reactor")

    def test_without_a_table(self) -> None:
        """The broker cannot be opened: it does not lead, takes nobody in, and tries again."""
        self.follow()
        self.set.make_master(OURS)
        failing = patch.object(Broker, "prepare", side_effect=TableUnreadable("topics.json", "no"))
        with failing:
            self.node.elected.watch.hurry()
            self.pass_time(LOOK + 1)
            self.assertNotEqual(self.node.member, MemberState.LEADING)
            self.assertIsNone(self.node.lead.master)
            self.assertIsNone(self.node.serving.gate.inner)
        self.pass_time(LOOK + 1)
        self.assert_state(MemberState.LEADING, "in master epoch 2")
        self.successResultOf(self.write())

    def test_without_room_for_the_epoch(self) -> None:
        """The epoch cannot be written: no sign of life, so another leads; with room this does."""
        self.follow()
        self.set.make_master(OURS)
        full = DiskFull("epochFileCheckpoint", 100)
        with patch("rmqha.roles.member.epoch_file.write", side_effect=full):
            self.node.elected.watch.hurry()
            self.pass_time(1.0)
            self.assert_state(MemberState.REFUSED, "epochs")
            self.beats()
            changes = self.node.status()["controller"]["changes"]
            self.pass_time(3.0)
            self.assertEqual(self.beats(), [])
            self.assertEqual(self.node.status()["controller"]["changes"], changes)
        self.pass_time(LOOK)
        self.assert_state(MemberState.LEADING, "in master epoch 2")

    def test_a_lost_log_asks_for_no_election(self) -> None:
        """No master, and this member has less than it counted for: it asks for no election."""
        self.follow()
        self.stop()
        lost = {"id": OURS, "epoch": 1, "offset": self.theirs.end + 1}
        (self.root / "rmqha").mkdir(exist_ok=True)
        (self.root / "rmqha" / "held.json").write_text(json.dumps(lost))
        self.set.master = ""
        self.set.asked.clear()
        self.member()
        self.pass_time(LOOK)
        asked = [command.code for _, command in self.set.asked]
        self.assertNotIn(Code.ELECT_MASTER, asked)
        self.assert_state(MemberState.WAITING, "lost-log")


class FollowTests(MemberChangeCase):
    """A member that follows, from nothing on."""

    def test_nobody_behind(self) -> None:
        """When its first copy is whole it feeds nobody: only a master has members behind it."""
        self.follow()
        self.assertFalse(self.marker.exists())
        self.assertIsNone(self.node.serving.gate.inner)
        self.pass_time(10.0)
        self.assertNotIn("too-few-replicas", unhealthy(self.node))

    def test_label_before_its_bytes_are_reported(self) -> None:
        """While a new label is on its way to the disk no byte is reported that lies under it: a
        crash could take the label, and the byte would have counted.
        """
        master = self.follow()
        common = self.theirs.end
        self.put(self.theirs, 300)
        held: Any = Held()

        def run(*call: Any, **keys: Any) -> Any:
            return (held if call[0] == self.node.epochs._write else now)(*call, **keys)

        self.node.run = run
        master.feed(self.theirs, common, common, FIRST_LABEL, EpochLabel(2, common))
        self.pass_time(6.0)
        self.assertEqual(content(self.node.store.log), content(self.theirs))
        self.assertEqual(self.labels(master), common)
        held.work()
        self.assertEqual(self.labels(master), self.theirs.end)
        kept = epoch_file.read(self.root / "epochFileCheckpoint").labels
        self.assertEqual(kept, (FIRST_LABEL, EpochLabel(2, common)))

    def test_a_master_that_ends(self) -> None:
        """It ends before it tells its HA port: it is asked again, without a logged error."""
        answer = self.set.request

        def request(address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
            if address == OTHER_ADDRESS:
                return fail(ConnectionLost())
            return answer(address, command, timeout)

        self.member(BrokerRole.SLAVE)
        self.node.elected.client.request = request
        self.set.make_master(OTHER)
        self.pass_time(2.0)
        watch = self.node.elected.watch
        self.assertIn(OTHER_ADDRESS, watch.trouble)
        self.assertEqual(watch.looking.failures, 0)
        self.node.elected.client.request = answer
        self.pass_time(2.0)
        self.assertEqual(watch.trouble, "")


class EpochFileTests(MemberChangeCase):
    """RocketMQ's epoch file is damaged, and so is the one before it."""

    def test_torn(self) -> None:
        """Our own labels tell the same: the member goes on with them, the file is whole."""
        self.follow()
        self.stop()
        torn = self.root / "epochFileCheckpoint"
        torn.write_bytes(torn.read_bytes()[:5])
        torn.with_name("epochFileCheckpoint.bak").write_bytes(b"?")
        self.member()
        self.shake(FIRST_LABEL)
        self.set.make_master(OURS)
        self.node.elected.watch.hurry()
        self.pass_time(2.0)
        self.assert_state(MemberState.LEADING, "in master epoch 2")
        kept = epoch_file.read(torn).labels
        self.assertEqual(kept, (FIRST_LABEL, EpochLabel(2, self.theirs.end)))


class StopTests(MemberChangeCase):
    def test_while_promoting(self) -> None:
        """The stop waits for the promotion, and leaves nothing behind."""
        self.follow()
        held: Any = Held()
        self.node.run = held
        self.set.make_master(OURS)
        self.node.elected.watch.hurry()
        self.pass_time(TICK * 2)
        self.assert_state(MemberState.PROMOTING)
        stopped = self.node.stopService()
        for _ in range(50):
            self.reactor.advance(0.1)
            while held.calls:
                held.work()
        self.successResultOf(stopped)
        self.assert_state(MemberState.STOPPED)


class CutTests(MemberChangeCase):
    """What was counted on, and was cut off rightly."""

    def test_no_lost_log(self) -> None:
        """A tail that no reader saw was reported and is cut: the log is whole after a restart."""
        master, other, labels, common = self.part()
        held = json.loads((self.root / "rmqha" / "held.json").read_text())
        self.assertGreater(held["offset"], common)
        master.feed(other, self.labels(master), common, *labels)
        self.pass_time(3.0)
        self.assertEqual(self.node.store.log.end, common)
        self.stop()
        self.beats()
        self.member()
        self.pass_time(2.0)
        self.assert_state(MemberState.FOLLOWING)
        self.assertEqual(self.node.why, "")
        self.assertNotEqual(self.beats(), [])

    def test_other_bytes_under_one_label(self) -> None:
        """A stock master is elected where the one before it has begun, and has no label of its own:
        its bytes lie under the same one as those that we have of the one before.  They are
        compared, ours go, and what comes is filed under its epoch.
        """
        master, other, labels, common = self.part(labelled=False)
        master.feed(other, self.labels(master), common, *labels)
        self.pass_time(3.0)
        self.assertEqual(self.node.store.log.end, common)
        master = self.shake(*labels)
        master.feed(other, self.labels(master), common, *labels)
        self.pass_time(1.0)
        self.assertEqual(content(self.node.store.log), content(other))
        kept = [(one.epoch, one.start, one.label) for one in self.node.epochs.journal.starts]
        self.assertEqual(kept, [(1, 0, 1), (3, common, 2)])


class YoungSetTests(MemberChangeCase):
    """The first master of a set is cut off before anything that it wrote is confirmed."""

    def replaced(self, common: int) -> CommitLog:
        """The other one is elected with some common records, and has written as well."""
        self.member()
        self.in_sync()
        for _ in range(common + 1):
            self.write()
        log = self.node.store.log
        self.pass_time(0.2)
        other = self.theirs = self.log()
        if common:
            whole = bytes(log.read(0, log.end // 2))
            other.reserve(0, len(whole))[:] = whole
            other.staged(len(whole))
            other.accept()
        for _ in range(2):
            self.put(other, 500, topic="Others")
        self.set.make_master(OTHER)
        self.node.elected.watch.hurry()
        self.pass_time(0.4)
        return other

    def assert_mended(self, other: CommitLog, common: int) -> None:
        """It cuts off what it has alone, keeps that, and follows."""
        end, label = self.node.store.log.end, EpochLabel(2, common)
        labels = (FIRST_LABEL, label) if common else (label,)
        master = self.shake(*labels)
        master.feed(other, self.labels(master), common, *labels)
        self.pass_time(3.0)
        self.assertEqual(self.node.store.log.end, common)
        kept = self.root / "rmqha" / "quarantine" / f"{common:020d}-{end:020d}.log"
        self.assertEqual(kept.stat().st_size, end - common)
        master = self.shake(*labels)
        master.feed(other, self.labels(master) if common else 0, other.end, *labels)
        self.pass_time(1.0)
        self.assertEqual(content(self.node.store.log), content(other))
        self.assert_state(MemberState.FOLLOWING)
        self.assertEqual(self.node.store.readable, other.end)

    def test_nothing_common(self) -> None:
        """All that it has goes."""
        self.assert_mended(self.replaced(0), 0)

    def test_first_record_common(self) -> None:
        """The one record that both have is enough to tell where they part."""
        self.assert_mended(self.replaced(1), self.node.store.log.end // 2)


class FailureTests(MemberChangeCase):
    def test_while_leading(self) -> None:
        """A failed store can take nothing: no sign of life, so that another is elected."""
        self.member()
        self.in_sync()
        self.pass_time(1.0)
        self.beats()
        store: Store = self.node.store
        store._flush_failed(FlushFailed("commitlog", "Input/output error"))
        self.pass_time(3.0)
        self.assertEqual(self.beats(), [])
