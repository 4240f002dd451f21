"""The consumers' side of a broker: a real store in a folder, connections without sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rmqha.broker.clients.heartbeats import Heartbeats
from rmqha.broker.clients.registry import ClientRegistry, Consumers, Producers
from rmqha.broker.consuming.consumer_progress import Progress
from rmqha.broker.consuming.long_polling import LongPolling
from rmqha.broker.consuming.lookups import Lookups
from rmqha.broker.consuming.offset_changes import OffsetChanges
from rmqha.broker.consuming.pull import Pulls
from rmqha.broker.consuming.queue_locks import Locks
from rmqha.broker.consuming.queue_reader import QueueReader
from rmqha.broker.consuming.served_records import ServedRecords
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.broker.tables.subscription_groups import Groups
from rmqha.broker.tables.topics import Topics
from rmqha.config.broker_settings import BrokerSettings, PullSettings
from rmqha.config.settings import Settings
from rmqha.ha.master_epoch import MasterEpochs
from rmqha.net.remoting.handlers import Registry
from rmqha.store.paced_dispatch import BUSY_PAUSE
from rmqha.store.store import Receipt, Store
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.log.properties import encode as encode_properties
from rmqha.wire.log.record import Message, Record, decode
from rmqha.wire.remoting.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.offsets import (
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rmqha.wire.remoting.headers.pull import PullMessageRequest
from rmqha.wire.remoting.json_body import write
from tests.broker.support import FakeWriter
from tests.net.remoting.support import Peer
from tests.support.logs import HOST, STORED, LogTestCase, now

GIB = 1 << 30
TOPIC, GROUP = "TopicA", "group-a"


@define(eq=False)
class FakeThread:
    """A thread whose work is done when the test says so.

    @ivar asked: What it was asked to do.
    """

    asked: list[tuple[Any, ...]] = field(factory=list)
    done: list[Deferred[None]] = field(factory=list)

    def call(self, *work: Any) -> Deferred[None]:
        self.asked.append(work)
        self.done.append(Deferred())
        return self.done[-1]


@define(eq=False)
class Consuming:
    """All parts, put together."""

    store: Store
    clock: Clock
    settings: PullSettings = field(factory=PullSettings)
    slave: bool = False
    memory: int = GIB
    permission: int = 6
    registry: Registry = field(init=False, factory=Registry)
    producers: Producers = field(init=False, factory=Producers)
    consumers: Consumers = field(init=False, factory=Consumers)
    peers: list[Peer] = field(init=False, factory=list)
    state: BrokerState = field(init=False)
    reader: QueueReader = field(init=False)
    topics: Topics = field(init=False)
    groups: Groups = field(init=False)
    offsets: ConsumerOffsetTable = field(init=False)
    heartbeats: Heartbeats = field(init=False)
    holds: LongPolling = field(init=False)
    locks: Locks = field(init=False)
    pulls: Pulls = field(init=False)
    served: ServedRecords = field(init=False)
    cold: FakeThread = field(init=False, factory=FakeThread)

    def __attrs_post_init__(self) -> None:
        store, clock = self.store, self.clock
        self.state = BrokerState(
            Settings(
                broker=BrokerSettings(permission=self.permission),
                pull=self.settings,
                store=store.settings,
            ),
            store,
            None if self.slave else FakeWriter(store),
            clock,
            now,
            files=CheckedTables(store.settings.root),
            present=ClientRegistry(self.producers, self.consumers),
            epochs=MasterEpochs(store.settings.root, now),
        )
        self.topics, self.groups = self.state.topics, self.state.groups
        self.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        self.offsets = self.state.offsets
        self.heartbeats, self.locks = Heartbeats(self.state), Locks(self.state)
        self.holds = LongPolling(clock, store.queues, store.dispatcher)
        self.served = ServedRecords(store.log)
        self.reader = QueueReader(self.state, self.served, self.memory)
        self.pulls = Pulls(self.state, self.reader, self.holds, self.cold)
        parts = (
            self.heartbeats,
            self.locks,
            self.pulls,
            Progress(self.state, self.reader),
            OffsetChanges(self.state),
            Lookups(self.state, self.served),
        )
        for part in parts:
            for code, (_, handler) in part.handlers().items():
                self.registry.register(code, handler)

    def apply(self, settings: PullSettings) -> None:
        """Serve by other settings from now on."""
        current = self.state.current
        current.settings = evolve(current.settings, pull=settings)
        self.reader.apply(settings)

    def peer(self) -> Peer:
        peer = Peer(registry=self.registry, clock=self.clock)
        peer.connections.lost.append(self.heartbeats.lost)
        self.peers.append(peer)
        return peer

    def put(
        self,
        body: bytes = b"body",
        *,
        queue_id: int = 0,
        topic: str = TOPIC,
        tags: str = "",
        **properties: str,
    ) -> Receipt:
        """Store a message; dispatch comes later."""
        given = {"TAGS": tags, **properties} if tags else properties
        return self.store.put(
            Message(
                topic=topic,
                queue_id=queue_id,
                body=body,
                properties=encode_properties(given),
                born_timestamp=STORED,
                born_host=("127.0.0.1", 40000),
                store_host=HOST,
            )
        )

    def dispatch(self) -> None:
        """Let dispatch, and what waits for it, have its turns."""
        self.clock.advance(BUSY_PAUSE)
        self.flush()

    def flush(self) -> None:
        self.clock.advance(0)


class ConsumingTestCase(LogTestCase):
    def consuming(
        self, root: Path | None = None, store: dict[str, Any] | None = None, **more: Any
    ) -> Consuming:
        """A broker with an empty store."""
        clock = Clock()
        clock.advance(1000)
        opened = self.opened(root or self.folder() / "store", clock=clock, **(store or {}))
        return Consuming(opened, clock, **more)

    def ask(self, peer: Peer, command: Command) -> Command:
        """Send a request and take its answer, which must be there at once."""
        peer.send(command)
        answers = [sent for sent in peer.sent() if sent.is_response]
        self.assertEqual(len(answers), 1)
        return answers[0]

    def assert_answer(self, answer: Command, code: int, remark: str | None = None) -> Command:
        """An answer is of this code, and says this."""
        self.assertEqual((answer.code, answer.remark), (code, remark))
        return answer


def pull(offset: int = 0, **more: Any) -> Command:
    """A pull of everything, that does not wait."""
    request = PullMessageRequest(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=15000,
        subscription="*",
        sub_version=1,
    )
    return Command.request(RequestCode.PULL_MESSAGE, evolve(request, **more))


def heartbeat(
    client_id: str,
    *subscriptions: SubscriptionData,
    group: str = GROUP,
    producer: str = "",
    model: MessageModel = MessageModel.CLUSTERING,
) -> Command:
    """A heartbeat of a consumer, or of a producer."""
    consumers: tuple[ConsumerData, ...] = ()
    if subscriptions:
        consumers = (
            ConsumerData(
                group_name=group, message_model=model, subscription_data_set=subscriptions
            ),
        )
    producers = (ProducerData(group_name=producer),) if producer else ()
    body = HeartbeatData(
        client_id=client_id, consumer_data_set=consumers, producer_data_set=producers
    )
    return Command.request(RequestCode.HEART_BEAT, body=write(body))


def wants(expression: str = "*", *, topic: str = TOPIC, version: int = 1) -> SubscriptionData:
    """A subscription."""
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version)


def commit(offset: int, **more: Any) -> Command:
    """A client says how far it is."""
    request = UpdateConsumerOffsetRequest(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset
    )
    return Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, evolve(request, **more))


def progress(**more: Any) -> Command:
    """A client asks how far its group is."""
    request = QueryConsumerOffsetRequest(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    return Command.request(RequestCode.QUERY_CONSUMER_OFFSET, evolve(request, **more))


def records(answer: Command) -> list[Record]:
    """The messages of an answer."""
    found, body = [], bytes(answer.body)
    position = 0
    while position < len(body):
        found.append(decode(body, position, position))
        position += found[-1].size
    return found


def bodies(answer: Command) -> list[bytes]:
    """The bodies of an answer's messages."""
    return [bytes(record.body) for record in records(answer)]
