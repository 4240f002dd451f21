"""A member that is started again, and leads in the epoch in which the process before it led."""

from __future__ import annotations

import errno
import json
from typing import Any

from rmqha.config.broker_settings import BrokerRole
from rmqha.controller.member_state import MemberState
from rmqha.controller.set_watch import LOOK
from rmqha.ha.master.master import GATHERING
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.roles.member import AGAIN
from rmqha.wire import ha_v2
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from tests.broker.pop.support import PopTestCase, bodies
from tests.broker.support import Client
from tests.roles.test_member import OTHER, OURS, MemberCase
from tests.support.logs import message
from tests.support.unreadable import make_unreadable


class AgainCase(MemberCase):
    """A member, and another one in its set."""

    def led(self, role: BrokerRole = BrokerRole.SYNC_MASTER) -> Any:
        """It leads, and the other one has all of its log, a message: the other one's connection."""
        self.member(role)
        protocol = self.in_sync()
        self.write()
        self.reactor.advance(GATHERING)
        protocol.dataReceived(ha_v2.encode_report(self.node.store.log.end))
        self.pass_time(1.0)
        return protocol


class HandedOutTests(AgainCase):
    """Messages that were handed out (POP) as the other one, which may be elected, hears of it."""

    def assert_not_ahead(self, role: BrokerRole, given_up: float) -> None:
        """The other one gets a message, and is not heard of when it is handed out."""
        protocol = self.led(role)
        broker = self.node.broker
        broker.topics.put(TopicConfig(topic_name="TopicA", read_queue_nums=1, write_queue_nums=1))
        who = Client(Connections(self.reactor, broker.registry, ConnectionLimits()))
        popping = PopTestCase.popping(topic="TopicA", pollTime=100)
        request = {name: str(value) for name, value in popping.items()}
        answer = who.ask(RequestCode.POP_MESSAGE, request)
        self.pass_time(given_up)
        (found,) = [answer] if answer else who.heard()
        self.assertEqual(len(bodies(found)), 1)
        self.assertEqual(broker.offsets.get("G", "TopicA", 0), 0)
        again = who.ask(RequestCode.POP_MESSAGE, request)
        self.assertIsNone(again, "handed out twice")
        protocol.dataReceived(ha_v2.encode_report(self.node.store.log.end))
        self.pass_time(1.0)
        self.assertEqual(broker.offsets.get("G", "TopicA", 0), 1)

    def test_not_waited_for(self) -> None:
        """Nobody is told that a group is behind a message before all that may be elected have the
        check point, or it would never come again; it is handed out once all the same.
        """
        self.assert_not_ahead(BrokerRole.ASYNC_MASTER, 0.0)

    def test_given_up(self) -> None:
        """So where the check point was waited for, in vain."""
        self.assert_not_ahead(BrokerRole.SYNC_MASTER, 6.0)


class SetTests(MemberCase):
    def test_restart(self) -> None:
        """It comes back with its id, and leads in the epoch that it still has."""
        self.member()
        self.successResultOf(self.write())
        self.stop()
        self.member()
        self.assert_state(MemberState.LEADING, "in master epoch 1")
        self.assertEqual(self.node.membership.id, OURS)
        self.assertEqual(self.node.epochs.journal.text(), "1-0")
        self.assertEqual(self.node.status()["dispatchedOffset"], self.node.store.log.end)

    def test_started_again_in_one_epoch(self) -> None:
        """It ended with a change of the set on its way, and is master still when it is started
        again: whoever that change would let in has to hold what is acknowledged.
        """
        self.member()
        self.joined()
        growth = json.loads((self.root / "rmqha" / "growth.json").read_text())
        self.assertEqual(growth, {"masterEpoch": 1, "setEpoch": 1, "sets": [[OURS, OTHER]]})
        # The controller has it, and has not made it yet.
        self.set.in_sync, self.set.set_epoch = (OURS,), 1
        self.stop()
        self.member()
        self.assert_state(MemberState.LEADING, "in master epoch 1")
        self.assertEqual(self.node.status()["controller"]["set"]["mayAlsoBe"], [[OURS, OTHER]])
        written = self.write()
        self.turn()
        self.assertNoResult(written)

    def test_growth_unreadable(self) -> None:
        """It does not lead on without knowing its set; a new epoch ends that."""
        self.member()
        self.stop()
        (self.root / "rmqha" / "growth.json").write_text("{}")
        self.member()
        self.assert_state(MemberState.REFUSED, "growth: ")
        self.set.make_master(OURS)
        self.pass_time(LOOK)
        self.assert_state(MemberState.LEADING, "in master epoch 2")

    def test_not_to_be_read(self) -> None:
        """Nor does it lead, or join, when the system does not let it read its set."""
        for name, why in (("rmqha/growth.json", "growth"), ("rmqha/held.json", "epochs")):
            self.member()
            self.joined()
            self.stop()
            unreadable = make_unreadable(self, self.root / name)
            self.member()
            self.assert_state(MemberState.REFUSED, f"{why}: cannot read {self.root / name}: ")
            self.stop()
            unreadable.restore()

    def test_no_descriptor(self) -> None:
        """Want of a descriptor passes: it joins as soon as there is one."""
        self.member()
        self.joined()
        self.stop()
        unreadable = make_unreadable(self, self.root / "rmqha" / "held.json", errno.EMFILE)
        self.member()
        self.assert_state(MemberState.REFUSED, "epochs: ")
        self.pass_time(2 * AGAIN)
        self.assert_state(MemberState.REFUSED, "epochs: ")
        unreadable.restore()
        self.pass_time(2 * AGAIN)
        self.assert_state(MemberState.LEADING, "in master epoch 1")


class ConfirmTests(AgainCase):
    """What it wrote for itself alone: nobody has that; another may be elected without."""

    def leave_tail(self) -> int:
        """It wrote what its set has not got, and starts again: how far the set has the log."""
        self.led()
        confirm: int = self.node.store.log.end
        self.assert_seen(confirm, 1)
        self.write()
        self.write()
        self.pass_time(1.0)
        self.assert_seen(confirm, 1)
        self.stop()
        self.member()
        self.assert_state(MemberState.LEADING, "in master epoch 1")
        self.assertGreater(self.node.store.log.end, confirm)
        return confirm

    def assert_seen(self, confirm: int, messages: int) -> None:
        """What readers of the queue and of the files get, and what the other members are told."""
        said = self.node.status()
        self.assertEqual(said["controller"]["confirmOffset"], confirm)
        self.assertEqual(said["dispatchedOffset"], confirm)
        self.assertEqual(self.node.acknowledged(), confirm)
        self.assertEqual(self.node.lead.master.confirm, confirm)
        self.assertEqual(self.node.store.queues.end("TopicA", 0), messages)

    def test_not_seen(self) -> None:
        """Readers do not see it before the other one has it."""
        confirm = self.leave_tail()
        self.pass_time(1.0)
        self.assert_seen(confirm, 1)
        end = self.node.store.log.end
        protocol, _ = self.joined()
        self.pass_time(1.0)
        self.assert_seen(confirm, 1)
        protocol.dataReceived(ha_v2.encode_report(end))
        self.pass_time(1.0)
        self.assert_seen(end, 3)

    def test_written_behind_it(self) -> None:
        """A message has the next place in its queue, though others are not in it yet."""
        self.leave_tail()
        written = self.write()
        end = self.node.store.log.end
        protocol, _ = self.joined()
        protocol.dataReceived(ha_v2.encode_report(end))
        self.pass_time(1.0)
        stored = self.successResultOf(written)
        self.assertIs(stored.status, PutStatus.PUT_OK)
        self.assertEqual(stored.receipt.queue_offset, 3)
        self.assert_seen(end, 4)
        self.assertEqual(self.node.status()["derivedFaults"], 0)

    def test_the_other_one_stays_away(self) -> None:
        """It leaves after C{haMaxTimeSlaveNotCatchup}; then none is elected without it."""
        confirm = self.leave_tail()
        self.pass_time(14.0)
        self.assert_seen(confirm, 1)
        self.pass_time(3.0)
        self.assertEqual(self.set.in_sync, (OURS,))
        self.assert_seen(self.node.store.log.end, 3)

    def test_the_other_one_may_enter(self) -> None:
        """It is not in the set, but was to be: the controller may have it enter still."""
        confirm = self.leave_tail()
        self.stop()
        growth = {"masterEpoch": 1, "setEpoch": 9, "sets": [[OURS, OTHER]]}
        (self.root / "rmqha" / "growth.json").write_text(json.dumps(growth))
        self.set.in_sync, self.set.set_epoch = (OURS,), 9
        self.member()
        self.assert_state(MemberState.LEADING, "in master epoch 1")
        self.pass_time(1.0)
        self.assert_seen(confirm, 1)

    def test_consumer_offsets(self) -> None:
        """No consumer's offset is taken back that the log has a message for, whether readers see it
        or not; one above all of them is, or the group would pass over what comes.
        """
        self.leave_tail()
        offsets = self.node.broker.offsets
        for group, offset in (("seen", 1), ("unseen", 2), ("lost", 9)):
            offsets.advance(group, "TopicA", 0, offset)
        self.stop()
        self.member()
        offsets = self.node.broker.offsets
        found = [offsets.get(group, "TopicA", 0) for group in ("seen", "unseen", "lost")]
        self.assertEqual(found, [1, 2, 3])

    def test_alone(self) -> None:
        """Nobody else is in the set: readers see all of it at once."""
        self.leave_tail()
        self.stop()
        self.set.in_sync, self.set.set_epoch = (OURS,), 9
        self.member()
        self.assert_seen(self.node.store.log.end, 3)

    def test_in_a_new_epoch(self) -> None:
        """It is elected again: only it is in the set."""
        self.leave_tail()
        self.stop()
        self.set.make_master(OURS)
        self.member()
        self.assert_state(MemberState.LEADING, "in master epoch 2")
        self.assert_seen(self.node.store.log.end, 3)


class TopicTests(MemberCase):
    """Topics that the master before this one had no time to tell of."""

    def test_made_again(self) -> None:
        """Messages delayed or in transactions come while this one leads, in each queue."""
        self.member()
        for queue_id in (0, 3):
            self.node.broker.writer.put(message(300, topic="Late", queue_id=queue_id))
            self.pass_time(1.0)
        topics = self.node.broker.topics
        self.assertEqual(topics.get("Late").read_queue_nums, 4)
        self.assertEqual(topics.get("Late").write_queue_nums, 4)


class LostEndTests(AgainCase):
    """The other one of the set is asked where its log ends."""

    def led_before(self, more: int) -> None:
        """It is started again, and the other one has some bytes beyond its end."""
        self.led()
        self.set.theirs = self.node.store.log.end + more
        self.stop()
        self.beats()
        self.member()

    def test_lost(self) -> None:
        """It has more: a power cut took that from our log.  It may be acknowledged, and other bytes
        must not come to its place: readers are served, and the other one has to be elected.
        """
        self.led_before(300)
        self.assert_state(MemberState.REFUSED, "lost-log")
        self.assertIsNone(self.node.lead.master)
        self.assertTrue(self.node.clients.serving)
        self.beats()
        self.pass_time(LOOK + 1)
        self.assertEqual(self.beats(), [])
        self.stop()
        self.member()
        self.assert_state(MemberState.REFUSED, "lost-log")
        self.assertTrue(self.node.clients.serving)
        self.set.make_master(OTHER)
        self.pass_time(LOOK)
        self.assert_state(MemberState.FOLLOWING, "lost-log")

    def test_whole(self) -> None:
        """It has no more."""
        self.led_before(0)
        self.assert_state(MemberState.LEADING, "in master epoch 1")

    def test_not_asked(self) -> None:
        """It is away: readers are served, and it is waited for as long as in the set."""
        self.led_before(0)
        self.stop()
        self.set.theirs = None
        self.member()
        self.assert_state(MemberState.WAITING, "[2]")
        self.assertTrue(self.node.clients.serving)
        self.pass_time(14.0)
        self.assert_state(MemberState.WAITING, "[2]")
        self.assertNotEqual(self.beats(), [])
        self.pass_time(2.0)
        self.assert_state(MemberState.LEADING, "in master epoch 1")

    def test_comes_back(self) -> None:
        """It is away, and back with all."""
        self.led_before(0)
        end = self.set.theirs
        self.stop()
        self.set.theirs = None
        self.member()
        self.pass_time(5.0)
        self.set.theirs = end
        self.pass_time(1.0)
        self.assert_state(MemberState.LEADING, "in master epoch 1")
