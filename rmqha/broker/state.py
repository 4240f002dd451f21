"""What the parts of a broker share, made good after a crash before it serves.

Topics are written after their messages, so a topic may be missing that has some.  The log may have
lost its last messages, and offsets point at them still.  What waits in the log, and belongs to a
topic that nobody knows any more, has that made again when it comes.

Source: docs/architecture.rst, The broker.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from attrs import AttrsInstance, define, evolve, field
from twisted.internet.interfaces import IReactorTime

from rmqha.broker.clients.registry import ClientRegistry
from rmqha.broker.messages import Messages
from rmqha.broker.meters.latency import TimedPuts
from rmqha.broker.meters.meters import Meters
from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.broker.tables.current_settings import CurrentSettings
from rmqha.broker.tables.pop_order import PopOrder
from rmqha.broker.tables.request_modes import ModeTable
from rmqha.broker.tables.subscription_groups import Groups
from rmqha.broker.tables.topics import Topics
from rmqha.config.settings import Settings
from rmqha.ha.master.put_service import Putter
from rmqha.ha.master_epoch import MasterEpochs
from rmqha.store.derived.consume_queues import Moves
from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.files.allocate import InThread
from rmqha.store.store import Store
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets, DelayOffsets
from rmqha.wire.remoting.bodies.pop_order import OrderTable
from rmqha.wire.remoting.bodies.request_modes import RequestModes
from rmqha.wire.remoting.bodies.tables import GroupTable, TopicTable
from rmqha.wire.store_layout import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    POP_ORDER,
    REQUEST_MODES,
    SUBSCRIPTION_GROUPS,
    TOPICS,
)

TABLES: Mapping[str, type[AttrsInstance]] = {
    TOPICS: TopicTable,
    SUBSCRIPTION_GROUPS: GroupTable,
    CONSUMER_OFFSETS: ConsumerOffsets,
    DELAY_OFFSETS: DelayOffsets,
    REQUEST_MODES: RequestModes,
    POP_ORDER: OrderTable,
}
"""The files that a broker reads when it is made, and what is in them."""


class BrokerState:
    """What a broker knows: each part of it is given this one object.

    @ivar settings: As they were when it was made; C{current} has what was changed since.
    @ivar writer: Stores messages; C{None} on a slave.
    @ivar clock: Its C{seconds} must not jump; C{now_ms} is milliseconds since 1970.
    @ivar slave: Whether the log may be behind another's.
    @ivar files: The store's files of tables.
    @ivar topics: The table of topics.
    @ivar groups: The table of groups.
    @ivar offsets: The table of consumers' offsets.
    @ivar modes: The table of how groups consume topics.
    @ivar order: What groups pop in order.
    @ivar counts: How much happens.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        writer: Putter | None,
        clock: IReactorTime,
        in_thread: InThread,
        *,
        files: CheckedTables,
        present: ClientRegistry,
        epochs: MasterEpochs,
    ) -> None:
        """@raise FileUnreadable: If the system does not let one of the tables be read.
        @raise TableUnreadable: If one of them makes no sense.
        @raise BodyInvalid: If one is not of its kind.
        """
        self.settings, self.current = settings, CurrentSettings(settings)
        self.store, self.clock, self.now_ms = store, clock, store.now_ms
        self.in_thread = in_thread
        self.files, self.epochs = files, epochs
        self.producers, self.consumers = present.producers, present.consumers
        self.counts = Meters(clock, settings.broker.cluster)
        self.writer = (
            None if writer is None else TimedPuts(writer, clock.seconds, self.counts.puts_took)
        )
        self.slave = writer is None
        self.topics = Topics(files, settings.broker, clock, in_thread, store.now_ms)
        self.groups = Groups(files, settings.broker, clock, in_thread, store.now_ms)
        pause = settings.store.offset_journal_interval
        self.offsets = ConsumerOffsetTable(files, clock, in_thread, pause)
        self.modes = ModeTable(files, settings.pop, clock, in_thread, store.now_ms)
        self.tables = (self.topics, self.groups, self.offsets, self.modes)
        for table in self.tables:
            table.load()
        self.order = PopOrder()
        self.messages = Messages.of(settings)
        records = RecordReader(store.log, self.messages.levels)
        self.lookup = Lookup(records, store.queues, store.index)

    @property
    def name(self) -> str:
        """The C{brokerName}."""
        return self.settings.broker.name

    @property
    def cluster(self) -> str:
        """The C{brokerClusterName}."""
        return self.settings.broker.cluster

    def knows(self, topic: str, group: str) -> bool:
        """Whether there are both."""
        return self.topics.get(topic) is not None and self.groups.get(group) is not None

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether a topic has a queue that is read."""
        config = self.topics.get(topic)
        return config is not None and 0 <= queue_id < config.read_queue_nums

    def is_unread(self, topic: str, queue_id: int) -> bool:
        """Whether a topic has shrunk, and this queue of it is no longer read."""
        config = self.topics.get(topic)
        return config is not None and queue_id >= config.read_queue_nums

    def bring_back(self) -> Generator[None]:
        """Make the tables agree with the queues, a topic or an offset before each C{yield}: there
        may be a hundred thousand.  A queue of which nothing is left begins where its furthest group
        is: none of them may pass over what comes.

        Offsets stay where it is not known yet where queues end, as they lack what the log has.
        """
        topics, store, queues = self.topics, self.store, self.store.queues
        for topic in tuple(queues.topics):
            if topics.get(topic) is None:
                used = (queue.queue_id for queue in queues.of(topic) if queue.end_physical)
                topics.bring_back(topic, used)
            yield

        def end(topic: str, queue_id: int, offset: int) -> int | None:
            return None if topics.get(topic) is None else store.begin(topic, queue_id, offset)

        def last(topic: str, queue_id: int) -> int | None:
            return None if topics.get(topic) is None else queues.end(topic, queue_id)

        if store.knows_ends:
            yield from self.offsets.bring_back(end)
            self.order.bring_back(last)


@define(eq=False)
class LateTopics:
    """Makes topics again whose first messages come to queues while the broker serves: they had
    waited, delayed or in a transaction, and the master before this one was lost before it told of
    them.

    A topic that was deleted stays so: what was sent before that never comes, but to queues that are
    being deleted.
    """

    state: BrokerState
    _made: set[str] = field(factory=set, init=False)

    def start(self) -> None:
        """Look at what comes."""
        self.state.store.dispatcher.on_units.append(self._came)

    def stop(self) -> None:
        """Look no more; doing it again changes nothing."""
        if self._came in self.state.store.dispatcher.on_units:
            self.state.store.dispatcher.on_units.remove(self._came)

    def _came(self, moves: Moves) -> None:
        came = {topic for topic, _ in moves}
        if self._made.isdisjoint(came) and self.state.topics.has_all(came):
            return
        for topic, queue_id in moves:
            if topic in self._made or self.state.topics.get(topic) is None:
                self._late(topic, queue_id)

    def _late(self, topic: str, queue_id: int) -> None:
        found, queues = self.state.topics.get(topic), self.state.store.queues
        if found is None:
            if topic in queues.deletions:
                return
            self._made.add(topic)
            self.state.topics.bring_back(topic, (each.queue_id for each in queues.of(topic)))
        elif queue_id >= found.read_queue_nums:
            count = queue_id + 1
            writable = max(count, found.write_queue_nums)
            self.state.topics.put(evolve(found, read_queue_nums=count, write_queue_nums=writable))
