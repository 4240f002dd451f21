"""
What a crash took from a master's tables, or from its log behind them, made good before it serves.

Topics are written after their messages, so a topic may be missing that has some.  The log may have
lost its last messages, and offsets point at them still.
"""

from __future__ import annotations

from collections.abc import Generator

from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.broker.tables.topics import Topics
from rmqha.store.store import Store


def bring_back(
    topics: Topics, offsets: ConsumerOffsetTable, store: Store
) -> Generator[None, None, None]:
    """
    Make the tables agree with the queues, a topic or an offset before each C{yield}: there may be
    a hundred thousand.

    Offsets stay where it is not known yet where queues end, as they lack what the log has.
    """
    queues = store.queues
    for topic in tuple(queues.topics):
        if topics.get(topic) is None:
            used = (queue.queue_id for queue in queues.of(topic) if queue.max_offset)
            topics.bring_back(topic, used)
        yield

    def end(topic: str, queue_id: int) -> int | None:
        # One that has lost all its messages is there, and ends where it begins.
        found = store.next_offset(topic, queue_id)
        return found if found or queues.get(topic, queue_id) is not None else None

    if store.knows_ends:
        yield from offsets.bring_back(end)
