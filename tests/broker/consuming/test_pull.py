"""Pulls, held or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.consuming.chosen_units import choose
from rmqha.broker.consuming.long_polling import SKIP
from rmqha.broker.consuming.queue_reader import SCAN
from rmqha.config.broker_settings import PullSettings
from rmqha.store.paced_dispatch import LIVE_PAUSE
from rmqha.wire.columnar.queue_units import BLANK_UNIT, UNIT
from rmqha.wire.log.hashing import tags_code
from rmqha.wire.remoting.bodies.clients import MessageModel
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from tests.broker.consumer_side import (
    GROUP,
    TOPIC,
    ConsumingTestCase,
    bodies,
    commit,
    heartbeat,
    pull,
    records,
    wants,
)
from tests.net.remoting.support import Peer

SUSPEND = 4 | 2


class ReadingTests(ConsumingTestCase):
    def setUp(self) -> None:
        self.broker = self.consuming()
        self.peer = self.broker.peer()

    def put(self, *all_bodies: bytes, **more: str) -> None:
        for body in all_bodies:
            self.broker.put(body, **more)
        self.broker.dispatch()

    def test_messages(self) -> None:
        """Stored messages come back whole and in order, with bounds and where to go on."""
        self.put(b"one", b"two", b"three")
        answer = self.assert_answer(self.ask(self.peer, pull()), ResponseCode.SUCCESS, "FOUND")
        self.assertEqual(bodies(answer), [b"one", b"two", b"three"])
        self.assertEqual([record.queue_offset for record in records(answer)], [0, 1, 2])
        self.assertEqual(
            answer.ext,
            {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": "3",
                "minOffset": "0",
                "maxOffset": "3",
            },
        )

    def test_of_several_queues(self) -> None:
        """Messages that do not stand side by side in the log come all the same."""
        for number in range(6):
            self.broker.put(b"%d" % number, queue_id=number % 2)
        self.broker.dispatch()
        self.assertEqual(bodies(self.ask(self.peer, pull(queue_id=1))), [b"1", b"3", b"5"])

    def test_lite(self) -> None:
        """A lite pull is a pull."""
        self.put(b"one")
        command = pull()
        command.code = RequestCode.LITE_PULL_MESSAGE
        self.assertEqual(bodies(self.ask(self.peer, command)), [b"one"])

    def test_count(self) -> None:
        """The asked number is kept to; 0, a negative one and too big ones are no error."""
        self.put(*(b"%d" % number for number in range(40)))
        for most, got in ((1, 1), (5, 5), (0, 1), (-3, 1), (1 << 30, 32)):
            answer = self.ask(self.peer, pull(max_msg_nums=most))
            self.assertEqual(len(bodies(answer)), got)
            self.assertEqual(answer.ext["nextBeginOffset"], str(got))

    def test_bytes(self) -> None:
        """The first message is always sent, the next ones as far as there is room."""
        self.put(bytes(1000), bytes(1000), bytes(1000))
        for room, got in ((1, 1), (2100, 1), (2300, 2), (9999, 3)):
            self.assertEqual(len(bodies(self.ask(self.peer, pull(max_msg_bytes=room)))), got)

    def test_on_disk(self) -> None:
        """Far behind the log's end fewer messages are sent."""
        self.broker = self.consuming(memory=2000)
        self.peer = self.broker.peer()
        self.put(*(bytes(200) for _ in range(20)))
        self.assertEqual(len(bodies(self.ask(self.peer, pull()))), 8)
        self.assertEqual(len(bodies(self.ask(self.peer, pull(18)))), 2)

    def test_tags(self) -> None:
        """Only messages with the wanted tags come, and the others are passed over."""
        for number in range(12):
            self.broker.put(b"%d" % number, tags="ABC"[number % 3])
        self.broker.dispatch()
        answer = self.ask(self.peer, pull(subscription="A || C", max_msg_nums=3))
        self.assertEqual(bodies(answer), [b"0", b"2", b"3"])
        self.assertEqual(answer.ext["nextBeginOffset"], "5")
        answer = self.ask(self.peer, pull(subscription="D"))
        self.assert_answer(answer, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        self.assertEqual(answer.ext["nextBeginOffset"], "12")

    def test_offsets_outside(self) -> None:
        """Where there is no message, the answer says how it can go on."""
        not_found, moved = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED
        for offset, code, remark, following in (
            (0, not_found, "NO_MESSAGE_IN_QUEUE", "0"),
            (7, moved, "NO_MESSAGE_IN_QUEUE", "0"),
        ):
            answer = self.ask(self.peer, pull(offset))
            self.assert_answer(answer, code, remark)
            self.assertEqual(answer.ext["nextBeginOffset"], following)
        self.put(b"one", b"two")
        for offset, code, remark, following in (
            (2, not_found, "OFFSET_OVERFLOW_ONE", "2"),
            (3, moved, "OFFSET_OVERFLOW_BADLY", "2"),
            (-1, moved, "OFFSET_TOO_SMALL", "0"),
        ):
            answer = self.ask(self.peer, pull(offset))
            self.assert_answer(answer, code, remark)
            self.assertEqual(answer.ext["nextBeginOffset"], following)

    def test_not_to_be_seen_yet(self) -> None:
        """A master that leads on in its epoch may have lost what it wrote of its queues in a power
        cut: a consumer that has read further waits where it is, and its offset is taken.
        """
        self.put(b"one")
        store = self.broker.store
        store.dispatcher.limit = store.log.end
        self.put(b"two", b"three")
        not_found, moved = ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED
        for offset, code, following in ((1, not_found, 1), (3, not_found, 3), (4, moved, 1)):
            answer = self.ask(self.peer, pull(offset))
            self.assertEqual((answer.code, answer.ext["nextBeginOffset"]), (code, str(following)))
        self.assertEqual(self.ask(self.peer, commit(3)).code, ResponseCode.SUCCESS)
        self.assertEqual(self.ask(self.peer, commit(4)).code, ResponseCode.INVALID_PARAMETER)
        self.peer.send(pull(2, sys_flag=SUSPEND | 4))
        self.assertEqual(self.peer.sent(), [])
        store.confirm(store.log.end)
        self.broker.dispatch()
        self.assertEqual(bodies(self.peer.sent()[0]), [b"three"])

    def test_slave_is_not_sure(self) -> None:
        """A slave, which may be behind, does not tell a consumer to move."""
        self.broker = self.consuming(slave=True)
        self.peer = self.broker.peer()
        self.put(b"one", b"two")
        answer = self.ask(self.peer, pull(9))
        self.assert_answer(answer, ResponseCode.PULL_RETRY_IMMEDIATELY, "OFFSET_OVERFLOW_BADLY")
        self.assertEqual(
            (answer.ext["nextBeginOffset"], answer.ext["suggestWhichBrokerId"]), ("9", "0")
        )

    def test_slave_does_not_spin(self) -> None:
        """A consumer that asks the same again is told so after a second, not as fast as it asks."""
        self.broker = self.consuming(slave=True)
        self.peer = self.broker.peer()
        self.put(b"one", b"two")
        self.ask(self.peer, pull(9, sys_flag=SUSPEND))
        self.peer.send(pull(9, sys_flag=SUSPEND))
        self.put(b"three")
        self.assertEqual(self.peer.sent(), [])
        self.broker.clock.advance(1.0)
        self.broker.flush()
        (answer,) = self.peer.sent()
        self.assertEqual(answer.code, ResponseCode.PULL_RETRY_IMMEDIATELY)

    def test_between_slave_and_master(self) -> None:
        """A consumer that gets on at the master does not wait each time at a slave behind it."""
        self.broker = self.consuming(slave=True)
        self.peer = self.broker.peer()
        self.put(b"one", b"two")
        for offset in (9, 17, 25):
            answer = self.ask(self.peer, pull(offset, sys_flag=SUSPEND))
            self.assertEqual(answer.code, ResponseCode.PULL_RETRY_IMMEDIATELY)

    def test_slave_that_checks(self) -> None:
        """It can be told to be sure."""
        self.broker = self.consuming(slave=True, settings=PullSettings(check_in_slave=True))
        self.peer = self.broker.peer()
        self.put(b"one", b"two")
        answer = self.ask(self.peer, pull(9))
        self.assertEqual(answer.code, ResponseCode.PULL_OFFSET_MOVED)
        self.assertEqual(answer.ext["nextBeginOffset"], "2")

    def test_suggestion(self) -> None:
        """A consumer is sent to a slave when it lags and slaves may be read, and back."""
        self.broker = self.consuming(memory=2000, settings=PullSettings(slave_read=True))
        self.peer = self.broker.peer()
        self.put(*(bytes(200) for _ in range(20)))
        self.assertEqual(self.ask(self.peer, pull()).ext["suggestWhichBrokerId"], "1")
        self.assertEqual(self.ask(self.peer, pull(18)).ext["suggestWhichBrokerId"], "0")

    def test_deleted_files(self) -> None:
        """What retention deletes on its way still arrives; then the queue begins later."""
        broker = self.consuming(store={"settings": {"file_size": 4096}})
        peer = broker.peer()
        for number in range(30):
            broker.put(bytes([number]) * 800)
        broker.dispatch()
        peer.transport.producer.pauseProducing()
        peer.send(pull(max_msg_nums=3))
        broker.store.log.drop_first().remove()
        gone = self.ask_paused(peer)
        self.assertEqual(bodies(gone), [bytes([number]) * 800 for number in range(3)])
        answer = self.ask(peer, pull(1))
        self.assertEqual(answer.code, ResponseCode.PULL_RETRY_IMMEDIATELY)
        self.assertEqual(answer.remark, "MESSAGE_WAS_REMOVING")
        following = int(answer.ext["nextBeginOffset"])
        self.assertEqual(bodies(self.ask(peer, pull(following)))[0], bytes([following]) * 800)

    def ask_paused(self, peer: Peer) -> Command:
        """Let a client that did not read go on."""
        peer.transport.producer.resumeProducing()
        (answer,) = peer.sent()
        return answer


class CheckTests(ConsumingTestCase):
    def setUp(self) -> None:
        self.broker = self.consuming()
        self.peer = self.broker.peer()
        self.broker.put()
        self.broker.dispatch()

    def refused(self, code: int, text: str, **more: object) -> None:
        """A pull is answered with this code, and a text with this in it."""
        answer = self.ask(self.peer, pull(**more))
        self.assertEqual(answer.code, code, answer.remark)
        self.assertIn(text, answer.remark or "")

    def test_topic(self) -> None:
        """Of a topic that is not there, or may not be read."""
        self.refused(ResponseCode.TOPIC_NOT_EXIST, "topic[nope] not exist", topic="nope")
        self.broker.topics.put(TopicConfig(topic_name="shut", perm=2))
        self.refused(ResponseCode.NO_PERMISSION, "the topic[shut]", topic="shut")

    def test_queue(self) -> None:
        """Of a queue that is not there."""
        for queue_id in (-1, 4):
            self.refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[TopicA] topicConfig.readQueueNums:[4]",
                queue_id=queue_id,
            )

    def test_group(self) -> None:
        """For a group that may not consume, or cannot be one."""
        self.broker.groups.put(GroupConfig(group_name="shut", consume_enable=False))
        self.refused(
            ResponseCode.NO_PERMISSION,
            "subscription group no permission, shut",
            consumer_group="shut",
        )
        self.refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "does not exist", consumer_group="a@b"
        )

    def test_broker(self) -> None:
        """Of a broker that may not be read."""
        self.broker = self.consuming(permission=2)
        self.peer = self.broker.peer()
        self.refused(ResponseCode.NO_PERMISSION, "pulling message is forbidden")

    def test_expressions(self) -> None:
        """By what cannot be applied, or names nothing."""
        self.refused(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
            expression_type="SQL92",
            subscription="a > 1",
        )
        self.refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
            subscription=" || ",
        )

    def test_without_heartbeat(self) -> None:
        """Without an expression of its own, and no heartbeat that had one."""
        self.refused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist", sys_flag=0
        )
        self.peer.send(heartbeat("c1", wants(topic="other")))
        self.peer.sent()
        self.refused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not", sys_flag=0
        )

    def test_old_heartbeat(self) -> None:
        """When the heartbeat's expression is older than the pull's; one for all never is."""
        self.peer.send(heartbeat("c1", wants("TagA", version=5)))
        self.peer.sent()
        self.refused(
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
            sys_flag=0,
            sub_version=6,
        )
        self.peer.send(heartbeat("c1", wants("*", version=5)))
        self.peer.sent()
        answer = self.ask(self.peer, pull(sys_flag=0, sub_version=6))
        self.assertEqual(answer.code, ResponseCode.SUCCESS)

    def test_broadcast(self) -> None:
        """By broadcast, where the group may not."""
        self.broker.groups.put(GroupConfig(group_name=GROUP, consume_broadcast_enable=False))
        self.peer.send(heartbeat("c1", wants(), model=MessageModel.BROADCASTING))
        self.peer.sent()
        self.refused(ResponseCode.NO_PERMISSION, "can not consume by broadcast way", sys_flag=0)

    def test_fields(self) -> None:
        """Without a field it needs, or with a bad one: the answer names it."""
        for name in ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag"):
            command = pull()
            del command.ext[name]
            answer = self.ask(self.peer, command)
            self.assert_answer(
                answer, ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null"
            )

    def test_members_differ(self) -> None:
        """Members of one group that want different things each get their own."""
        other = self.broker.peer()
        self.peer.send(heartbeat("c1", wants("TagA")))
        other.send(heartbeat("c2", wants("TagB", version=2)))
        for peer in (self.peer, other):
            peer.sent()
        for tag in ("TagA", "TagB"):
            self.broker.put(tag.encode(), tags=tag)
        self.broker.dispatch()
        for peer, tag in ((self.peer, b"TagA"), (other, b"TagB")):
            self.assertEqual(bodies(self.ask(peer, pull(sys_flag=0))), [tag])


class CommitTests(ConsumingTestCase):
    def test_forward(self) -> None:
        """A pull moves its group's offset forward, never back, nor beyond the queue."""
        broker = self.consuming()
        peer = broker.peer()
        for _ in range(5):
            broker.put()
        broker.dispatch()
        for offset, after in ((3, 3), (2, 3), (6, 3), (5, 5), (-1, 5)):
            self.ask(peer, pull(5, sys_flag=5, commit_offset=offset))
            self.assertEqual(broker.offsets.get(GROUP, TOPIC, 0), after)

    def test_not_on_a_slave(self) -> None:
        """On a slave it does not."""
        broker = self.consuming(slave=True)
        broker.put()
        broker.dispatch()
        self.ask(broker.peer(), pull(sys_flag=5, commit_offset=1))
        self.assertIsNone(broker.offsets.get(GROUP, TOPIC, 0))


class HoldTests(ConsumingTestCase):
    def setUp(self) -> None:
        self.broker = self.consuming()
        self.clock = self.broker.clock
        self.peer = self.broker.peer()
        self.broker.put(b"first")
        self.broker.dispatch()

    def held(self, offset: int = 1, **more: object) -> None:
        before = self.broker.holds.count
        self.peer.send(pull(offset, **{"sys_flag": SUSPEND, **more}))
        self.assertEqual((self.peer.sent(), self.broker.holds.count), ([], before + 1))

    def test_arrival(self) -> None:
        """A message wakes a pull in the turn that dispatches it."""
        self.held()
        self.broker.put(b"second")
        self.clock.advance(LIVE_PAUSE)
        self.assertEqual(self.broker.holds.count, 0)
        self.broker.flush()
        (answer,) = self.peer.sent()
        self.assertEqual((bodies(answer), answer.ext["nextBeginOffset"]), ([b"second"], "2"))

    def test_awaited(self) -> None:
        """Dispatch knows whether a pull waits, or was just answered and comes again."""
        awaited = self.broker.store.dispatcher.awaited
        self.assertFalse(awaited())
        self.held()
        self.clock.advance(1)
        self.assertTrue(awaited())
        self.broker.put(b"second")
        self.broker.dispatch()
        self.assertEqual(self.broker.holds.count, 0)
        self.assertTrue(awaited())
        self.clock.advance(SKIP)
        self.assertFalse(awaited())

    def test_arrivals_together(self) -> None:
        """What is dispatched together is answered together, and once."""
        self.held()
        for number in range(5):
            self.broker.put(b"%d" % number)
        self.broker.dispatch()
        (answer,) = self.peer.sent()
        self.assertEqual(bodies(answer), [b"%d" % number for number in range(5)])

    def test_new_queue(self) -> None:
        """The first message of a queue wakes a pull."""
        self.held(0, queue_id=3)
        self.broker.put(b"new", queue_id=3)
        self.broker.dispatch()
        self.assertEqual(bodies(self.peer.sent()[0]), [b"new"])

    def test_other_queue(self) -> None:
        """A message of another queue does not."""
        self.held()
        self.broker.put(queue_id=1)
        self.broker.dispatch()
        self.assertEqual(self.peer.sent(), [])

    def test_deadline(self) -> None:
        """Without a message it is answered at its very deadline."""
        self.held(suspend_timeout_millis=2000)
        self.clock.advance(1.999)
        self.broker.flush()
        self.assertEqual(self.peer.sent(), [])
        self.clock.advance(0.0011)
        self.broker.flush()
        (answer,) = self.peer.sent()
        self.assert_answer(answer, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        self.assertEqual(answer.ext["nextBeginOffset"], "1")

    def test_unwanted(self) -> None:
        """Messages with other tags do not wake it, but it is soon told to go on behind them."""
        self.held(subscription="TagA")
        self.broker.put(tags="TagB")
        self.broker.dispatch()
        self.clock.advance(4.9)
        self.broker.flush()
        self.assertEqual(self.peer.sent(), [])
        self.clock.advance(0.2)
        self.broker.flush()
        (answer,) = self.peer.sent()
        self.assert_answer(answer, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        self.assertEqual(answer.ext["nextBeginOffset"], "2")

    def test_wanted_behind_unwanted(self) -> None:
        """The wanted message behind them wakes it at once."""
        self.held(subscription="TagA")
        self.broker.put(tags="TagB")
        self.broker.dispatch()
        self.broker.put(b"this", tags="TagA")
        self.broker.dispatch()
        self.assertEqual(bodies(self.peer.sent()[0]), [b"this"])

    def test_many_unwanted(self) -> None:
        """After as many as one pull looks at, it is answered at once."""
        self.held(subscription="TagA")
        for _ in range(SCAN):
            self.broker.put(tags="TagB")
        while self.broker.store.dispatcher.behind:
            self.broker.dispatch()
        (answer,) = self.peer.sent()
        self.assertEqual(answer.ext["nextBeginOffset"], str(SCAN + 1))

    def test_newest_replaces(self) -> None:
        """Who pulls the same again has the older pull answered; another group's stays."""
        self.held()
        self.held(consumer_group="other")
        self.peer.send(pull(1, sys_flag=SUSPEND))
        (answer,) = self.peer.sent()
        self.assertEqual(answer.code, ResponseCode.PULL_NOT_FOUND)
        self.assertEqual(self.broker.holds.count, 2)

    def test_closed_connection(self) -> None:
        """A hold ends with its connection, and nothing of it is left."""
        self.held()
        self.peer.connection.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.broker.holds.count, 0)
        self.broker.put()
        self.broker.dispatch()
        self.assertEqual(self.peer.sent(), [])
        self.broker.clock.advance(20)

    def test_closing_store(self) -> None:
        """When the store closes, nobody is left waiting."""
        self.held()
        self.broker.holds.stop()
        self.broker.flush()
        self.assertEqual(self.peer.sent()[0].code, ResponseCode.SERVICE_NOT_AVAILABLE)
        self.assertEqual(self.broker.holds.count, 0)

    def test_short_polling(self) -> None:
        """Where long polling is off, it waits for a second."""
        self.broker = self.consuming(settings=PullSettings(long_polling=False))
        self.clock, self.peer = self.broker.clock, self.broker.peer()
        self.held(0)
        self.clock.advance(1.0)
        self.broker.flush()
        self.assertEqual(self.peer.sent()[0].code, ResponseCode.PULL_NOT_FOUND)

    def test_no_time(self) -> None:
        """Who waits for no time is answered at once."""
        for millis in (0, -5):
            answer = self.ask(self.peer, pull(1, sys_flag=SUSPEND, suspend_timeout_millis=millis))
            self.assertEqual(answer.code, ResponseCode.PULL_NOT_FOUND)

    def test_many(self) -> None:
        """All who wait for a message get it."""
        peers = [self.broker.peer() for _ in range(50)]
        for peer in peers:
            peer.send(pull(1, sys_flag=SUSPEND))
        self.broker.put(b"all")
        self.broker.dispatch()
        self.assertEqual([bodies(peer.sent()[0]) for peer in peers], [[b"all"]] * 50)


class ChooseTests(SynchronousTestCase):
    @given(
        st.lists(
            st.tuples(st.integers(1, 500), st.sampled_from("ABCD"), st.integers(0, 2)),
            min_size=1,
            max_size=200,
        ),
        st.integers(1, 40),
        st.integers(1, 4000),
        st.one_of(st.none(), st.frozensets(st.sampled_from("ABCDE"), min_size=1)),
    )
    def test_like_one_by_one(
        self,
        rows: list[tuple[int, str, int]],
        most: int,
        most_bytes: int,
        tags: frozenset[str] | None,
    ) -> None:
        """The messages chosen are those one would choose one after the other."""
        codes = None if tags is None else frozenset(map(tags_code, tags))
        raw, position = b"", 0
        wanted: list[tuple[int, int, int]] = []
        for number, (size, tag, gap) in enumerate(rows):
            position += 100 * gap
            raw += BLANK_UNIT if gap == 2 else UNIT.pack(position, size, tags_code(tag))
            if gap != 2 and (tags is None or tag in tags):
                wanted.append((number, position, size))
            position += size
        chosen, total, following = [], 0, len(rows)
        for number, start, size in wanted:
            total += size
            if len(chosen) == most or (chosen and total > most_bytes):
                following = number
                break
            chosen.append((number, start, size))
        found = choose(raw, most, most_bytes, codes)
        done, runs = found.done, found.runs
        self.assertEqual(list(zip(found.rows, found.starts, found.sizes, strict=True)), chosen)
        self.assertEqual(sum(found.counts), len(chosen))
        self.assertEqual(
            [byte for start, size in runs for byte in range(start, start + size)],
            [byte for _, start, size in chosen for byte in range(start, start + size)],
        )
        # What is passed over is at most what nobody wants.
        self.assertLessEqual(done, following)
        self.assertGreater(done, max((number for number, *_ in chosen), default=-1))
