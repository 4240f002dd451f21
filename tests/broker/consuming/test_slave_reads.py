"""Which broker a consumer is sent to, and what a slave gives it."""

from __future__ import annotations

from itertools import product

from attrs import evolve
from twisted.internet.task import Clock

from rmqha.broker.consuming.pull import UNCERTAIN
from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.config.broker_settings import PullSettings
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from tests.broker.consumer_side import (
    GROUP,
    TOPIC,
    Consuming,
    ConsumingTestCase,
    bodies,
    commit,
    progress,
    pull,
)
from tests.broker.support import SEND_V2, BrokerTestCase, sending
from tests.support.logs import now

SUSPEND = 4 | 2

COUNT = 20
"""Messages of each test, of 300 bytes and more each."""

BEHIND = 3000
"""Bytes that memory holds: about half of them."""

SLOWLY, HOME = 2, 7
"""Where a group goes when it lags, and when it does not; neither is the default."""


class SuggestionTests(ConsumingTestCase):
    def start(
        self, *, slave: bool = False, slave_read: bool = True, check_in_slave: bool = False
    ) -> Consuming:
        """A broker with messages half of which memory holds, and a group with ids of its own."""
        self.broker = self.consuming(
            store={"settings": {"file_size": 4096}},
            slave=slave,
            settings=PullSettings(
                slave_read=slave_read, check_in_slave=check_in_slave, memory_size=BEHIND
            ),
        )
        self.broker.groups.put(
            GroupConfig(group_name=GROUP, broker_id=HOME, which_broker_when_consume_slowly=SLOWLY)
        )
        for number in range(COUNT):
            self.broker.put(b"%03d" % number * 70, tags="A")
        self.broker.dispatch()
        self.peer = self.broker.peer()
        return self.broker

    def suggested(self, command: Command) -> tuple[str | None, int]:
        """How a pull goes that is answered at once, and where it sends its consumer."""
        answer = self.ask(self.peer, command)
        return answer.remark, int(answer.ext["suggestWhichBrokerId"])

    def test_found(self) -> None:
        """Who lags goes where its group wants it to, until caught up; a slave sends it back so."""
        for slave, slave_read in product((False, True), repeat=2):
            self.start(slave=slave, slave_read=slave_read)
            slowly, home = (SLOWLY, HOME) if slave_read else (0, 0)
            self.assertEqual(self.suggested(pull(0)), ("FOUND", slowly))
            self.assertEqual(self.suggested(pull(COUNT - 2)), ("FOUND", home))

    def test_where_it_stops(self) -> None:
        """It is the last message looked at that counts, wanted or not."""
        self.start()
        self.assertEqual(self.suggested(pull(0, max_msg_nums=1)), ("FOUND", SLOWLY))
        self.assertEqual(self.suggested(pull(COUNT // 2, max_msg_nums=COUNT)), ("FOUND", HOME))
        none = "NO_MATCHED_MESSAGE"
        self.assertEqual(self.suggested(pull(0, subscription="B")), (none, HOME))

    def test_to_the_byte(self) -> None:
        """A consumer lags if its last message begins more than so many bytes before the end."""
        broker = self.start()
        unit = broker.store.queues.get(TOPIC, 0)
        assert unit is not None
        place = unit.unit(5)
        assert place is not None
        behind = broker.store.log.end - place[0]
        for size, wanted in ((behind - 1, SLOWLY), (behind, HOME)):
            self.broker.apply(PullSettings(slave_read=True, memory_size=size))
            self.assertEqual(self.suggested(pull(5, max_msg_nums=1)), ("FOUND", wanted))

    def test_nothing_found(self) -> None:
        """So say all other answers: nothing yet, the offset has moved, or it was deleted."""
        for slave in (False, True):
            broker = self.start(slave=slave, check_in_slave=slave)
            self.assertEqual(self.suggested(pull(COUNT)), ("OFFSET_OVERFLOW_ONE", HOME))
            self.assertEqual(self.suggested(pull(COUNT + 9)), ("OFFSET_OVERFLOW_BADLY", HOME))
            self.assertEqual(self.suggested(pull(-1)), ("OFFSET_TOO_SMALL", HOME))
            self.assertEqual(self.suggested(pull(queue_id=1)), ("NO_MESSAGE_IN_QUEUE", HOME))
            broker.store.log.drop_first().remove()
            self.assertEqual(self.suggested(pull(0)), ("MESSAGE_WAS_REMOVING", SLOWLY))

    def test_held(self) -> None:
        """An answer that had to wait says it as well, whether or not anything came."""
        for slave in (False, True):
            self.start(slave=slave)
            self.peer.send(pull(COUNT, sys_flag=SUSPEND))
            self.broker.put(b"new")
            self.broker.dispatch()
            (answer,) = self.peer.sent()
            self.assertEqual(
                (answer.remark, int(answer.ext["suggestWhichBrokerId"])), ("FOUND", HOME)
            )
            self.peer.send(pull(COUNT + 1, sys_flag=SUSPEND))
            self.broker.clock.advance(15)
            self.broker.flush()
            (answer,) = self.peer.sent()
            self.assertEqual(answer.ext["suggestWhichBrokerId"], str(HOME))

    def test_uncertain(self) -> None:
        """A slave that may be behind sends a consumer home, at once or after a second."""
        self.start(slave=True)
        again = pull(COUNT + 9, sys_flag=SUSPEND)
        self.assertEqual(self.suggested(again), ("OFFSET_OVERFLOW_BADLY", HOME))
        self.peer.send(again)
        self.broker.clock.advance(UNCERTAIN)
        self.broker.flush()
        (answer,) = self.peer.sent()
        self.assertEqual(answer.code, ResponseCode.PULL_RETRY_IMMEDIATELY)
        self.assertEqual(answer.ext["suggestWhichBrokerId"], str(HOME))

    def test_not_of_other_groups(self) -> None:
        """A group that nobody changed goes to 1, and back to 0."""
        self.start()
        other = {"consumer_group": "other"}
        self.assertEqual(self.suggested(pull(0, **other)), ("FOUND", 1))
        self.assertEqual(self.suggested(pull(COUNT - 1, **other)), ("FOUND", 0))


class MemoryTests(BrokerTestCase):
    def suggested(self) -> str:
        """Where a consumer is sent that begins at the first of some messages."""
        answer = self.client().ask(RequestCode.PULL_MESSAGE, pull(0, max_msg_nums=1).ext)
        assert answer is not None and answer.code == 0, answer
        return answer.ext["suggestWhichBrokerId"]

    def test_at_run_time(self) -> None:
        """The amount, and slave reads, change while the broker runs; 0 goes by memory again."""
        self.broker().topics.put(TopicConfig(topic_name=TOPIC))
        sender = self.client()
        for _ in range(3):
            sender.ask(SEND_V2, sending(TOPIC), bytes(500))
        self.clock.advance(0.01)
        self.assertEqual(self.suggested(), "0")
        for text, wanted in (
            ("slaveReadEnable=true", "0"),
            ("accessMessageInMemoryBytes=1000", "1"),
            ("accessMessageInMemoryBytes=100000", "0"),
            ("accessMessageInMemoryBytes=1000", "1"),
            ("accessMessageInMemoryBytes=0", "0"),
            ("accessMessageInMemoryBytes=1", "1"),
            ("slaveReadEnable=false", "0"),
        ):
            answer = self.client().ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
            assert answer is not None
            self.assertEqual((answer.code, self.suggested()), (0, wanted), text)


class UntoldTests(ConsumingTestCase):
    """A slave whose tables are behind its log."""

    def setUp(self) -> None:
        """It has messages of a topic, and of a queue, that it has not heard of."""
        self.broker = self.consuming(slave=True)
        self.broker.put(b"one", topic="Untold")
        self.broker.put(b"two", queue_id=6)
        self.broker.dispatch()
        self.peer = self.broker.peer()

    def test_pull(self) -> None:
        """They can be read, and what comes wakes who waits; what it has nothing of is not there."""
        self.assertEqual(bodies(self.ask(self.peer, pull(topic="Untold"))), [b"one"])
        self.assertEqual(bodies(self.ask(self.peer, pull(queue_id=6))), [b"two"])
        self.peer.send(pull(1, topic="Untold", sys_flag=SUSPEND))
        self.broker.put(b"more", topic="Untold")
        self.broker.dispatch()
        self.assertEqual(bodies(self.peer.sent()[0]), [b"more"])
        for more, code in (
            ({"topic": "Untold", "queue_id": 1}, ResponseCode.TOPIC_NOT_EXIST),
            ({"topic": "Other"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"queue_id": 7}, ResponseCode.INVALID_PARAMETER),
        ):
            self.assertEqual(self.ask(self.peer, pull(**more)).code, code)

    def test_shut(self) -> None:
        """What may not be read is not."""
        self.broker.topics.put(TopicConfig(topic_name=TOPIC, perm=2))
        self.assertEqual(self.ask(self.peer, pull(queue_id=6)).code, ResponseCode.NO_PERMISSION)

    def test_commit(self) -> None:
        """Consumers commit there, even further than the slave is, in a group it may not make."""
        groups = self.broker.groups
        groups._settings = evolve(groups._settings, auto_create_groups=False)
        for more in ({"topic": "Untold"}, {"queue_id": 6}):
            self.assert_answer(self.ask(self.peer, commit(9, **more)), ResponseCode.SUCCESS)
            self.assertEqual(self.ask(self.peer, progress(**more)).ext, {"offset": "9"})
        for more, code in (
            ({"topic": "Other"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ({"topic": "Untold", "consumer_group": "g@x"}, ResponseCode.INVALID_PARAMETER),
            ({"topic": "Untold", "commit_offset": -1}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ):
            self.assertEqual(self.ask(self.peer, commit(**{"offset": 1, **more})).code, code, more)

    def test_kept(self) -> None:
        """What was said to a slave is there after its restart."""
        self.ask(self.peer, commit(1, topic="Untold"))
        self.broker.clock.advance(5)
        files = CheckedTables(self.broker.store.settings.root)
        again = ConsumerOffsetTable(files, Clock(), now)
        again.load()
        self.assertEqual(again.get(GROUP, "Untold", 0), 1)

    def test_on_a_master(self) -> None:
        """A master knows its topics."""
        self.broker = self.consuming()
        self.broker.put(b"one", topic="Untold")
        self.broker.dispatch()
        peer = self.broker.peer()
        for command in (pull(topic="Untold"), commit(1, topic="Untold")):
            self.assertEqual(self.ask(peer, command).code, ResponseCode.TOPIC_NOT_EXIST)
