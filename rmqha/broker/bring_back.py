"""What a crash took from a master's tables, or from its log behind them, made good before it
serves.

Topics are written after their messages, so a topic may be missing that has some.  The log may have
lost its last messages, and offsets point at them still.  What waits in the log, and belongs to a
topic that nobody knows any more, has that made again when it comes.
"""

from __future__ import annotations

from collections.abc import Generator

from attrs import define, evolve, field

from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.broker.tables.pop_order import PopOrder
from rmqha.broker.tables.topics import Topics
from rmqha.store.derived.consume_queues import Moves
from rmqha.store.store import Store


def bring_back(
    topics: Topics, offsets: ConsumerOffsetTable, order: PopOrder, store: Store
) -> Generator[None, None, None]:
    """Make the tables agree with the queues, a topic or an offset before each C{yield}: there may
    be a hundred thousand.  A queue of which nothing is left begins where its furthest group is:
    none of them may pass over what comes.

    Offsets stay where it is not known yet where queues end, as they lack what the log has.
    """
    queues = store.queues
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
        yield from offsets.bring_back(end)
        order.bring_back(last)


@define(eq=False)
class LateTopics:
    """Makes topics again whose first messages come to queues while the broker serves: they had
    waited, delayed or in a transaction, and the master before this one was lost before it told of
    them.

    A topic that was deleted stays so: what was sent before that never comes, but to queues that are
    being deleted.
    """

    topics: Topics
    store: Store
    _made: set[str] = field(factory=set, init=False)

    def start(self) -> None:
        """Look at what comes."""
        self.store.dispatcher.on_units.append(self._came)

    def stop(self) -> None:
        """Look no more; doing it again changes nothing."""
        if self._came in self.store.dispatcher.on_units:
            self.store.dispatcher.on_units.remove(self._came)

    def _came(self, moves: Moves) -> None:
        for topic, queue_id in moves:
            if topic in self._made or self.topics.get(topic) is None:
                self._late(topic, queue_id)

    def _late(self, topic: str, queue_id: int) -> None:
        found, queues = self.topics.get(topic), self.store.queues
        if found is None:
            if topic in queues.deletions:
                return
            self._made.add(topic)
            self.topics.bring_back(topic, (each.queue_id for each in queues.of(topic)))
        elif queue_id >= found.read_queue_nums:
            count = queue_id + 1
            writable = max(count, found.write_queue_nums)
            self.topics.put(evolve(found, read_queue_nums=count, write_queue_nums=writable))
