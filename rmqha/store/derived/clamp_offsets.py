"""Offsets that say more than the log beside them are brought back.

A log that was cut, or one that got less than the master that is gone, gives queue offsets
again that were given before.  A consumer that had read further than the queue goes now would pass
over the messages that get them.  And what waited for its time, and was done with behind the log's
end, would never be done (L{rmqha.store.derived.outcomes}).  So this is the one case in which an
offset moves back, and each one that does is told.

Source: docs/operations.rst, Changing roles.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from attrs import evolve, frozen

from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.outcomes import (
    QUEUE,
    DelayedCopies,
    last_stored,
    next_pop_offsets,
    open_halves,
)
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.offset_table import read_offsets, write_offsets
from rmqha.store.tables.order_table import read_orders
from rmqha.wire.names import (
    HALF_DONE_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
)
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets, DelayOffsets
from rmqha.wire.remoting.bodies.request_modes import RequestMode, RequestModes
from rmqha.wire.remoting.json_body import from_json, to_json
from rmqha.wire.store_layout import DELAY_OFFSETS, REQUEST_MODES

RECENT = 10_000
"""Milliseconds before the log's end from which on a group may have been handed messages for the
first time behind it."""


@frozen(kw_only=True)
class Clamped:
    """An offset that was moved.

    @ivar who: Whose it is.
    @ivar topic: The topic of the queue.
    @ivar queue_id: The queue.
    @ivar before: What it was, in messages.
    @ivar after: What it is.
    @ivar waiting: How many messages were done with, and wait again.
    """

    who: str
    topic: str
    queue_id: int
    before: int
    after: int
    waiting: int = 0

    @classmethod
    def halves(cls, topic: str, before: int, after: int, waiting: int) -> Self:
        """How far half messages, or ops, are done with."""
        who = f"group {TRANSACTION_GROUP}"
        return cls(
            who=who, topic=topic, queue_id=QUEUE, before=before, after=after, waiting=waiting
        )

    def __str__(self) -> str:
        kind = _KINDS.get(self.topic, "handed-out")
        again = f": {self.waiting} {kind} messages wait again" if self.waiting else ""
        return (
            f"{self.who} in queue {self.queue_id} of {self.topic}: "
            f"offset {self.before} is now {self.after}{again}"
        )


_KINDS = {SCHEDULE_TOPIC: "delayed", HALF_TOPIC: "half"}


def clamp_consumers(
    root: Path,
    lookup: Lookup,
    *,
    change: bool = True,
    planned: ConsumerOffsets | None = None,
    whole: bool = True,
) -> tuple[Clamped, ...]:
    """Let no group's offset be above its queue's next one, and that of half messages above none
    that is open.  Blocking.

    A queue of which nothing is left begins where its furthest group is.  An offset below a queue's
    first one stays: who pulls there is told where the queue begins.  A group that was handed
    messages (POP) goes on behind the last of which the log says so: of others it says nothing, so
    that those which were not acknowledged would never come again.  One that was told to pull since
    (C{mqadmin setConsumeMode}) goes on where its offset is.

    @param root: The store's root.
    @param change: Whether the table is written; without it the answer is all there is.
    @param planned: What the table would hold by then, if not what it does.
    @param whole: Whether queues have all that the log has; without it only half messages are
        looked at: more of them may be called open than are.
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
    handed = next_pop_offsets(lookup) if whole else {}
    pulls, pops = _request_modes(tables) if whole else (set(), set())
    pops |= {key for key, _ in handed}
    recent = last_stored(lookup) - RECENT if pops else 0
    for key, of_queues in offsets.items():
        topic, _, group = key.partition("@")
        if group == TRANSACTION_GROUP and topic in (HALF_TOPIC, HALF_DONE_TOPIC):
            continue
        for queue_id, offset in of_queues.items() if whole else ():
            after = end = min(offset, lookup.queues.begin(topic, queue_id, offset))
            if (key, queue_id) in handed and key not in pulls:
                after = min(end, handed[key, queue_id])
            elif topic.startswith((f"{RETRY_PREFIX}{group}_", f"{RETRY_PREFIX}{group}+")):
                after = min(end, _range(lookup, topic, queue_id)[0])
            elif key in pops and key not in pulls:
                after = min(end, lookup.by_time(topic, queue_id, recent))
            if after < offset:
                clamped.append(
                    Clamped(
                        who=f"group {group}",
                        topic=topic,
                        queue_id=queue_id,
                        before=offset,
                        after=after,
                        waiting=end - after,
                    )
                )
                of_queues[queue_id] = after
    for moved in _halves(offsets, lookup):
        clamped.append(moved)
        offsets[f"{moved.topic}@{TRANSACTION_GROUP}"][moved.queue_id] = moved.after
    if clamped and change:
        read = read_offsets(tables, own=True)
        write_offsets(tables, evolve(table, offset_table=offsets), read)
    return tuple(clamped)


def _request_modes(tables: CheckedTables) -> tuple[set[str], set[str]]:
    """C{topic@group} of those that were told to pull, and of those that were told to pop.  Of whose
    pops in order no check point says, goes on where its offset is, too.
    """
    path = tables.path(REQUEST_MODES)
    found = tables.read(path).table
    rows = {} if found is None else tables.body(path, RequestModes, found).message_request_mode_map
    modes = {
        f"{topic}@{group}": told.mode
        for topic, groups in rows.items()
        for group, told in groups.items()
    }
    pulls = {key for key, mode in modes.items() if mode is RequestMode.PULL}
    orders = read_orders(tables).table
    return pulls, modes.keys() - pulls - (set() if orders is None else orders.table.keys())


def _halves(offsets: dict[str, dict[int, int]], lookup: Lookup) -> Iterator[Clamped]:
    """How far half messages and ops are done with, as the log says it."""
    half, op = (
        offsets.get(f"{topic}@{TRANSACTION_GROUP}", {}).get(QUEUE, 0)
        for topic in (HALF_TOPIC, HALF_DONE_TOPIC)
    )
    end, op_end = (_range(lookup, topic, QUEUE)[1] for topic in (HALF_TOPIC, HALF_DONE_TOPIC))
    found = open_halves(lookup, min(half, end))
    op_after = min(op, op_end if found.first == half else found.op)
    for topic, before, after, count in (
        (HALF_TOPIC, half, found.first, found.count),
        (HALF_DONE_TOPIC, op, op_after, 0),
    ):
        if after < before:
            yield Clamped.halves(topic, before, after, count)


def clamp_delays(
    root: Path, lookup: Lookup, *, change: bool = True, planned: DelayOffsets | None = None
) -> tuple[Clamped, ...]:
    """Let each delay level go on inside its queue, at the first message whose copy the log does not
    have.  Blocking.

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
    clamped = tuple(levels_inside(lookup, table))
    if change and (clamped or not table.holds(lookup.records.log.confirmed)):
        offsets = table.offset_table | {one.queue_id + 1: one.after for one in clamped}
        tables.load(path)
        tables.replace(path, to_json(table.at(lookup.records.log.confirmed, offsets)))
        tables.settle()
    return clamped


def levels_inside(lookup: Lookup, table: DelayOffsets) -> Iterator[Clamped]:
    """The delay levels that have to go back, or on to where their queue begins: none of a table
    that says where the log has to end for it, if it does not end before that.
    """
    if table.holds(lookup.records.log.confirmed):
        return
    copies = DelayedCopies(lookup)
    for level, offset in table.offset_table.items():
        least, most = _range(lookup, SCHEDULE_TOPIC, level - 1)
        inside = min(max(offset, least), most)
        after = copies.first_waiting(level, inside)
        if after != offset:
            yield Clamped(
                who=f"delay level {level}",
                topic=SCHEDULE_TOPIC,
                queue_id=level - 1,
                before=offset,
                after=after,
                waiting=inside - after,
            )


def _range(lookup: Lookup, topic: str, queue_id: int) -> tuple[int, int]:
    queue = lookup.queues.get(topic, queue_id)
    return (0, 0) if queue is None else (queue.min_offset, queue.next_offset)
