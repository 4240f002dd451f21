"""Heartbeats, groups of clients and locks."""

from __future__ import annotations

from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from rmqha.broker.clients.registry import EXPIRY
from rmqha.broker.consuming.queue_locks import LEASE
from rmqha.config.broker_settings import PullSettings
from rmqha.wire.remoting.bodies.clients import (
    CheckClientConfig,
    ConsumerIds,
    HeartbeatData,
    LockedQueues,
    QueueLocks,
    SubscriptionData,
)
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.tables import GroupConfig
from rmqha.wire.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.clients import ConsumerGroupRequest, UnregisterClientRequest
from rmqha.wire.remoting.json_body import read, write
from tests.broker.consumer_side import GROUP, TOPIC, ConsumingTestCase, heartbeat, wants
from tests.net.remoting.support import Peer


def unregister(consumer: str | None = None, producer: str | None = None) -> Command:
    """A client leaves."""
    header = UnregisterClientRequest(
        client_id="any", consumer_group=consumer, producer_group=producer
    )
    return Command.request(RequestCode.UNREGISTER_CLIENT, header)


class HeartbeatTests(ConsumingTestCase):
    def setUp(self) -> None:
        self.broker = self.consuming()
        self.one, self.two = self.broker.peer(), self.broker.peer()

    def tell(self, peer: Peer, command: Command) -> list[int]:
        """Send a request and give the codes of all that came back, in their order."""
        peer.send(command)
        return [sent.code for sent in peer.sent()]

    def notices(self, peer: Peer) -> int:
        """How often a client was told that its group has changed."""
        self.broker.flush()
        notices = peer.sent()
        for notice in notices:
            self.assertEqual(notice.code, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
            self.assertTrue(notice.is_oneway)
            self.assertEqual(notice.ext, {"consumerGroup": GROUP})
        return len(notices)

    def ids(self, peer: Peer) -> tuple[str, ...]:
        header = ConsumerGroupRequest(consumer_group=GROUP)
        command = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return read(ConsumerIds, self.ask(peer, command).body).consumer_id_list

    def test_new_member(self) -> None:
        """A new member is told before its heartbeat is answered, and so are the others."""
        notice = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        self.assertEqual(self.tell(self.one, heartbeat("c1", wants())), [notice, 0])
        self.assertEqual(self.tell(self.two, heartbeat("c2", wants())), [notice, 0])
        self.assertEqual(self.notices(self.one), 1)
        self.assertEqual(self.ids(self.one), ("c1", "c2"))
        self.assertEqual(self.tell(self.one, heartbeat("c1", wants(version=2))), [0])
        self.assertEqual(self.notices(self.two), 0)

    def test_topics_changed(self) -> None:
        """A member that wants another topic changes its group."""
        for peer, name in ((self.one, "c1"), (self.two, "c2")):
            self.tell(peer, heartbeat(name, wants()))
        self.notices(self.one)
        self.tell(self.two, heartbeat("c2", wants(), wants(topic="other")))
        self.assertEqual(self.notices(self.one), 1)
        self.tell(self.two, heartbeat("c2", wants()))
        self.assertEqual(self.notices(self.one), 1)

    def test_group_and_retry_topic(self) -> None:
        """A group comes to be with its first heartbeat, and so does its retry topic."""
        self.tell(self.one, heartbeat("c1", wants()))
        self.assertIsNotNone(self.broker.groups.get(GROUP))
        retry = self.broker.topics.get(f"%RETRY%{GROUP}")
        assert retry is not None
        self.assertEqual((retry.read_queue_nums, retry.perm), (1, 6))

    def test_nobody_is_told(self) -> None:
        """Notices can be switched off, for a group or for all."""
        self.broker.groups.put(
            GroupConfig(group_name=GROUP, notify_consumer_ids_changed_enable=False)
        )
        self.assertEqual(self.tell(self.one, heartbeat("c1", wants())), [0])
        self.broker = self.consuming(settings=PullSettings(notify=False))
        self.assertEqual(self.tell(self.broker.peer(), heartbeat("c1", wants())), [0])

    def test_no_members(self) -> None:
        """A group nobody is in has no members to tell."""
        header = ConsumerGroupRequest(consumer_group="nobody")
        answer = self.ask(self.one, Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header))
        self.assert_answer(answer, ResponseCode.SYSTEM_ERROR, "no consumer for this group, nobody")

    def test_twice_connected(self) -> None:
        """A client that has reconnected is one member, not two."""
        self.tell(self.one, heartbeat("c1", wants()))
        self.tell(self.two, heartbeat("c1", wants()))
        self.assertEqual(self.ids(self.two), ("c1",))

    def test_leaving(self) -> None:
        """Who unregisters or is disconnected is gone, and the others are told."""
        three = self.broker.peer()
        for peer, name in ((self.one, "c1"), (self.two, "c2"), (three, "c3")):
            self.tell(peer, heartbeat(name, wants()))
        self.notices(self.one)
        self.notices(self.two)
        self.assertEqual(self.tell(self.two, unregister(consumer=GROUP)), [0])
        self.assertEqual(self.notices(self.one), 1)
        three.connection.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.notices(self.one), 1)
        self.assertEqual(self.ids(self.one), ("c1",))
        self.assertEqual(self.tell(self.two, unregister(consumer=GROUP, producer="none")), [0])
        self.assertEqual(self.notices(self.one), 0)

    def test_expiry(self) -> None:
        """Who has not been heard of for two minutes is gone."""
        self.tell(self.one, heartbeat("c1", wants()))
        self.tell(self.two, heartbeat("c2", wants()))
        for _ in range(3):
            self.broker.clock.advance(EXPIRY / 2)
            self.tell(self.one, heartbeat("c1", wants()))
            self.broker.heartbeats.sweep()
        self.assertEqual(self.ids(self.one), ("c1",))

    def test_what_they_are(self) -> None:
        """The newest of all members' subscriptions are the group's."""
        self.tell(self.one, heartbeat("c1", wants("A", version=3), wants(topic="other")))
        command = heartbeat("c2", wants("B", version=2))
        command.language, command.version = LanguageCode.GO, 317
        self.tell(self.two, command)
        group = self.broker.consumers.group(GROUP)
        assert group is not None
        member = group.members[self.two.connection]
        self.assertEqual((member.client_id, member.language, member.version), ("c2", 9, 317))
        wishes = {topic: wish.data.sub_string for topic, wish in group.subscriptions().items()}
        self.assertEqual(wishes, {TOPIC: "A", "other": "*"})

    def test_without_subscriptions(self) -> None:
        """A heartbeat that leaves subscriptions out does not take them away."""
        self.tell(self.one, heartbeat("c1", wants("A")))
        body = read(HeartbeatData, heartbeat("c1", wants("B")).body)
        left_out = HeartbeatData(
            client_id="c1", consumer_data_set=body.consumer_data_set, without_sub=True
        )
        self.tell(self.one, Command.request(RequestCode.HEART_BEAT, body=write(left_out)))
        group = self.broker.consumers.group(GROUP)
        assert group is not None
        self.assertEqual(group.subscriptions()[TOPIC].data.sub_string, "A")

    def test_foreign_hashes(self) -> None:
        """Tags' hashes are ours, whatever a client says."""
        data = SubscriptionData(topic=TOPIC, sub_string="中文", code_set=(1,), sub_version=1)
        self.tell(self.one, heartbeat("c1", data))
        group = self.broker.consumers.group(GROUP)
        assert group is not None
        self.assertEqual(group.subscriptions()[TOPIC].codes, frozenset({646394}))

    def test_bad_body(self) -> None:
        """A heartbeat that is none is refused, and one bad expression does not spoil the others."""
        answer = self.ask(self.one, Command.request(RequestCode.HEART_BEAT, body=b"[1"))
        self.assertEqual(answer.code, ResponseCode.SYSTEM_ERROR)
        self.tell(self.one, heartbeat("c1", wants("||"), wants(topic="other")))
        group = self.broker.consumers.group(GROUP)
        assert group is not None
        self.assertEqual(group.subscriptions().keys(), {"other"})

    def test_producers(self) -> None:
        """Producers are found by group, each in its turn, and by client."""
        for peer, name in ((self.one, "p1"), (self.two, "p2")):
            self.tell(peer, heartbeat(name, producer="pg"))
        producers = self.broker.producers
        group = producers.group("pg")
        assert group is not None
        turns = [
            member.client_id
            for _ in range(4)
            if (member := group.next(lambda member: True)) is not None
        ]
        self.assertEqual(turns, ["p1", "p2", "p1", "p2"])
        found = producers.client("p2")
        assert found is not None
        self.assertIs(found.connection, self.two.connection)
        self.tell(self.one, unregister(producer="pg"))
        self.two.connection.connectionLost(Failure(ConnectionDone()))
        self.assertIsNone(producers.group("pg"))
        self.assertIsNone(producers.client("p2"))

    def test_checks(self) -> None:
        """A client can ask beforehand whether its expression is understood."""
        sql = "The broker does not support consumer to filter message by SQL92"
        for expression, kind, code, remark in (
            ("A || B", "TAG", 0, None),
            ("*", None, 0, None),
            ("a > 1", "SQL92", ResponseCode.SYSTEM_ERROR, sql),
        ):
            data = SubscriptionData(topic=TOPIC, sub_string=expression, expression_type=kind)
            body = CheckClientConfig(client_id="c", group=GROUP, subscription_data=data)
            command = Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=write(body))
            self.assert_answer(self.ask(self.one, command), code, remark)


class LockTests(ConsumingTestCase):
    def setUp(self) -> None:
        self.broker = self.consuming()
        self.peer = self.broker.peer()
        self.queues = tuple(MessageQueue("broker-a", number, TOPIC) for number in range(3))

    def lock(self, client: str, *numbers: int, group: str = GROUP) -> list[int]:
        """Ask for locks and give those one has."""
        answer = self.ask(self.peer, self.wish(RequestCode.LOCK_BATCH_MQ, client, numbers, group))
        return [queue.queue_id for queue in read(LockedQueues, answer.body).locked]

    def wish(
        self, code: RequestCode, client: str, numbers: tuple[int, ...], group: str = GROUP
    ) -> Command:
        queues = tuple(MessageQueue("broker-a", number, TOPIC) for number in numbers)
        body = QueueLocks(client_id=client, consumer_group=group, mq_set=queues)
        return Command.request(code, body=write(body))

    def test_one_at_a_time(self) -> None:
        """A queue is one client's, as long as it asks again in time."""
        self.assertEqual((self.lock("c1", 0, 1), self.lock("c2", 0, 1, 2)), ([0, 1], [2]))
        self.broker.clock.advance(LEASE - 1)
        self.assertEqual(self.lock("c1", 0), [0])
        self.broker.clock.advance(1)
        self.assertEqual(self.lock("c2", 0, 1, 2), [1, 2])

    def test_other_group(self) -> None:
        """Groups do not see each other's locks."""
        self.lock("c1", 0)
        self.assertEqual(self.lock("c2", 0, group="other"), [0])

    def test_unlock(self) -> None:
        """Only the one who has a lock gives it back."""
        self.lock("c1", 0)
        unlock = RequestCode.UNLOCK_BATCH_MQ
        self.assert_answer(self.ask(self.peer, self.wish(unlock, "c2", (0,))), 0)
        self.assertEqual(self.lock("c2", 0), [])
        self.assert_answer(self.ask(self.peer, self.wish(unlock, "c1", (0, 7))), 0)
        self.assertEqual(self.lock("c2", 0), [0])

    def test_no_such_queue(self) -> None:
        """What is no queue cannot be locked, so that nobody fills the memory with locks."""
        self.assertEqual(self.lock("c1", -1, 4, 1), [1])

    def test_sweep(self) -> None:
        """Nothing is left of leases that ended."""
        self.lock("c1", 0, 1)
        self.broker.clock.advance(LEASE)
        self.broker.locks.sweep()
        self.assertEqual(self.broker.locks._groups, {})
