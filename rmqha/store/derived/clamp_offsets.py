"""
Offsets that point behind a queue's end are brought back to it.

A log that was cut, or one that got less than the master that is gone, gives queue offsets
again that were given before.  A consumer that had read further than the queue goes now would pass
over the messages that get them.  So this is the one case in which an offset moves back, and
each one that does is told.

Source: docs/operations.rst, Changing roles.
"""

from __future__ import annotations

from pathlib import Path

from attrs import evolve, frozen

from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.offset_table import read_offsets, write_offsets
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets, DelayOffsets
from rmqha.wire.remoting.json_body import from_json, to_json
from rmqha.wire.store_layout import DELAY_OFFSETS


@frozen
class Clamped:
    """
    An offset that was moved.

    @ivar who: Whose it is.
    @ivar topic: The topic of the queue.
    @ivar queue_id: The queue.
    @ivar before: What it was, in messages.
    @ivar after: What it is.
    """

    who: str
    topic: str
    queue_id: int
    before: int
    after: int

    def __str__(self) -> str:
        return (
            f"{self.who} in queue {self.queue_id} of {self.topic}: "
            f"offset {self.before} is now {self.after}"
        )


def clamp_consumers(
    root: Path,
    queues: ConsumeQueues,
    *,
    change: bool = True,
    planned: ConsumerOffsets | None = None,
) -> tuple[Clamped, ...]:
    """
    Let no group's offset be above its queue's next one.  Blocking.

    An offset below a queue's first one stays: who pulls there is told where the queue begins.

    @param root: The store's root.
    @param change: Whether the table is written; without it the answer is all there is.
    @param planned: What the table would hold by then, if not what it does.
    @raise FileUnreadable: If the system does not let it be read.
    @raise TableUnreadable: If there is a table and it makes no sense.
    @raise BodyInvalid: If it is no table of offsets.
    """
    tables = CheckedTables(root)
    table = planned if planned is not None else read_offsets(tables).offsets
    if table is None:
        return ()
    offsets = {key: dict(of_queues) for key, of_queues in table.offset_table.items()}
    clamped = []
    for key, of_queues in offsets.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in of_queues.items():
            most = _range(queues, topic, queue_id)[1]
            if offset > most:
                clamped.append(Clamped(f"group {group}", topic, queue_id, offset, most))
                of_queues[queue_id] = most
    if clamped and change:
        read = read_offsets(tables, own=True)
        write_offsets(tables, evolve(table, offset_table=offsets), read)
    return tuple(clamped)


def clamp_delays(
    root: Path,
    queues: ConsumeQueues,
    *,
    change: bool = True,
    planned: DelayOffsets | None = None,
) -> tuple[Clamped, ...]:
    """
    Let each delay level go on inside its queue.  Blocking.

    @param root: The store's root.
    @param change: Whether the table is written.
    @param planned: As in L{clamp_consumers}.
    @raise FileUnreadable: If the system does not let it be read.
    @raise TableUnreadable: If there is a table and it makes no sense.
    @raise BodyInvalid: If it is no table of offsets.
    """
    tables = CheckedTables(root)
    path = tables.path(DELAY_OFFSETS)
    found = tables.read(path).table
    if found is None and planned is None:
        return ()
    table = planned if planned is not None else from_json(DelayOffsets, found or {})
    offsets, clamped = dict(table.offset_table), []
    for level, offset in offsets.items():
        least, most = _range(queues, SCHEDULE_TOPIC, level - 1)
        inside = min(max(offset, least), most)
        if inside != offset:
            who = f"delay level {level}"
            clamped.append(Clamped(who, SCHEDULE_TOPIC, level - 1, offset, inside))
            offsets[level] = inside
    if clamped and change:
        tables.load(path)
        tables.replace(path, to_json(evolve(table, offset_table=offsets)))
        tables.settle()
    return tuple(clamped)


def _range(queues: ConsumeQueues, topic: str, queue_id: int) -> tuple[int, int]:
    """
    A queue's first offset, and the one that its next message gets.
    """
    queue = queues.get(topic, queue_id)
    return (0, 0) if queue is None else (queue.min_offset, queue.next_offset)
