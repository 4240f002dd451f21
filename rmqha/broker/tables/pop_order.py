"""What groups that pop in order have been given and not acknowledged: as long as that is so, nobody
else gets anything of the queue.

All of it is about single queues of a topic in a group; times are milliseconds since 1970.  Nothing
here knows of the broker: who calls it commits offsets, and keeps the table
(L{rmqha.broker.tables.consumer_offsets}).

Source: docs/protocol/remoting.md, Popping in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import pairwise

from attrs import define, evolve, field

from rmqha.wire.remoting.bodies.pop_order import OrderedBatch, OrderTable

FORGOTTEN = 24 * 3600 * 1000
"""Milliseconds after which a queue from which nobody pops any more is forgotten."""

MOST = 63
"""Most messages of one batch: Java has a bit for each in a C{long}."""

Batches = dict[str, dict[int, OrderedBatch]]
"""By C{topic@group} and queue id."""


class NotTaken(Enum):
    """Why an acknowledgement, or a change, moves nothing."""

    STALE = "it is of another pop, or of none"
    FOREIGN = "its message was not in the pop"


# --- one batch ------------------------------------------------------------------------


def made(
    before: OrderedBatch | None,
    now: int,
    pop_time: int,
    invisible: int,
    attempt: str | None,
    offsets: Sequence[int],
) -> OrderedBatch:
    """A batch that is given now.

    @param before: The one before it.
    @raise ValueError: If there are too many messages, or their offsets do not grow.
    """
    if not 0 < len(offsets) <= MOST or any(a >= b for a, b in pairwise(offsets)):
        raise ValueError(f"no batch of growing offsets: {list(offsets)[:MOST]}")
    given: dict[int, int] = {}
    if before is not None:
        known, repeated = before.given or {}, _repeats(before, attempt)
        # Who asks again has not got it before.
        more = 0 if repeated else 1
        counts = {offset: known.get(offset, 0) + more for offset in before.offsets}
        given = {offset: counts[offset] for offset in offsets if counts.get(offset)}
    first = offsets[0]
    return OrderedBatch(
        pop_time=pop_time,
        invisible=invisible,
        places=(first, *(offset - first for offset in offsets[1:])),
        visible={},
        given=given,
        attempt=attempt,
        asked=now,
    )


def _repeats(batch: OrderedBatch, attempt: str | None) -> bool:
    return attempt is not None and attempt == batch.attempt


def free_at(batch: OrderedBatch) -> int:
    """From when on all that is not acknowledged may be given again; 0 if there is nothing."""
    default, changed = batch.pop_time + batch.invisible, batch.visible or {}
    return max(
        (
            changed.get(offset, default)
            for place, offset in enumerate(batch.offsets)
            if not batch.acked >> place & 1
        ),
        default=0,
    )


def next_offset(batch: OrderedBatch) -> int:
    """The first message that is not acknowledged, or just past the last."""
    for place, offset in enumerate(batch.offsets):
        if not batch.acked >> place & 1:
            return offset
    return batch.offsets[-1] + 1


# --- all of them ------------------------------------------------------------------------


@define(eq=False)
class PopOrder:
    """The batches of all queues.  Their values are never changed, so threads may read the table.

    @ivar batches: The table itself.
    @ivar changed: Each is called with C{topic@group} and a queue id after a change of it.
    """

    batches: Batches = field(factory=dict)
    changed: list[Callable[[str, int], None]] = field(factory=list)

    def get(self, topic: str, group: str, queue_id: int) -> OrderedBatch | None:
        """What is known of a queue."""
        return self.batches.get(f"{topic}@{group}", {}).get(queue_id)

    def blocked(self, topic: str, group: str, queue_id: int, now: int, attempt: str | None) -> bool:
        """Whether a pop gets nothing of a queue.

        @param attempt: Who asks: it is not kept from what it was given itself.
        """
        batch = self.get(topic, group, queue_id)
        return batch is not None and not _repeats(batch, attempt) and now < free_at(batch)

    def free_at(self, topic: str, group: str, queue_id: int) -> int | None:
        """From when on a queue is not blocked, if nothing more is acknowledged; C{None} if nothing
        of it waits for that.
        """
        batch = self.get(topic, group, queue_id)
        return None if batch is None else free_at(batch) or None

    def on_pop(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        now: int,
        pop_time: int,
        invisible: int,
        attempt: str | None,
        offsets: Sequence[int],
    ) -> str:
        """Messages are given.

        @param offsets: Their queue offsets, which grow.
        @return: How often each was given before, for C{orderCountInfo}.
        @raise ValueError: If there is none, or there are too many.
        """
        before = self.get(topic, group, queue_id)
        batch = made(before, now, pop_time, invisible, attempt, offsets)
        self._set(f"{topic}@{group}", queue_id, batch)
        return count_info(queue_id, batch)

    def ack(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int
    ) -> int | NotTaken:
        """A message is acknowledged.

        @param pop_time: Of the pop that gave it.
        @return: The group's next offset in the queue.
        """
        found = self._of(topic, group, queue_id, offset, pop_time)
        if isinstance(found, NotTaken):
            return found
        batch, place = found
        after = evolve(batch, acked=batch.acked | 1 << place)
        if after != batch:
            self._set(f"{topic}@{group}", queue_id, after)
        return next_offset(after)

    def change(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, visible_at: int
    ) -> NotTaken | None:
        """A message is to be given again at another time.

        @param pop_time: Of the pop that gave it.
        """
        found = self._of(topic, group, queue_id, offset, pop_time)
        if isinstance(found, NotTaken):
            return found
        batch, _ = found
        visible = {**(batch.visible or {}), offset: visible_at}
        self._set(f"{topic}@{group}", queue_id, evolve(batch, visible=visible))
        return None

    def _of(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int
    ) -> tuple[OrderedBatch, int] | NotTaken:
        batch = self.get(topic, group, queue_id)
        if batch is None or batch.pop_time != pop_time:
            return NotTaken.STALE
        if offset not in batch.offsets:
            return NotTaken.FOREIGN
        return batch, batch.offsets.index(offset)

    # --- forgetting ---------------------------------------------------------------------

    def forget(self, topic: str, group: str, queue_id: int) -> None:
        """Nothing of a queue is given any more: the group was set back there, or forward."""
        self._drop(f"{topic}@{group}", (queue_id,))

    def forget_topic(self, topic: str) -> None:
        """A topic is deleted."""
        self._drop_all(key for key in self.batches if key.partition("@")[0] == topic)

    def forget_group(self, group: str) -> None:
        """A group is deleted."""
        self._drop_all(key for key in self.batches if key.partition("@")[2] == group)

    def sweep(self, now: int) -> None:
        """Forget the queues from which nobody has popped for a day."""
        for key, batches in tuple(self.batches.items()):
            old = [at for at, batch in batches.items() if now - batch.asked > FORGOTTEN]
            self._drop(key, old)

    def bring_back(self, end: Callable[[str, int], int | None]) -> None:
        """Forget batches with messages that a queue has not got: a crash has cost the log its end,
        and others come to their places.

        @param end: Just past a queue's last message, by topic and queue id; C{None} if there is no
            such topic.
        """
        for key, batches in tuple(self.batches.items()):
            topic = key.partition("@")[0]
            for queue_id, batch in tuple(batches.items()):
                most = end(topic, queue_id)
                if most is not None and batch.offsets[-1:] >= (most,):
                    self._drop(key, (queue_id,))

    # --- the table as a whole -------------------------------------------------------------

    def put(self, key: str, queue_id: int, batch: OrderedBatch | None) -> None:
        """Set what is known of a queue, or forget it, as another broker did."""
        if batch is None:
            self._drop(key, (queue_id,))
        elif batch != self.batches.get(key, {}).get(queue_id):
            self._set(key, queue_id, batch)

    def table(self) -> OrderTable:
        """All batches as they are now; it is not changed any more."""
        return OrderTable(table={key: dict(batches) for key, batches in self.batches.items()})

    def _set(self, key: str, queue_id: int, batch: OrderedBatch) -> None:
        self.batches.setdefault(key, {})[queue_id] = batch
        self._tell(key, queue_id)

    def _drop_all(self, keys: Iterable[str]) -> None:
        for key in tuple(keys):
            self._drop(key, tuple(self.batches[key]))

    def _drop(self, key: str, queue_ids: Iterable[int]) -> None:
        batches = self.batches.get(key, {})
        for queue_id in queue_ids:
            if batches.pop(queue_id, None) is not None:
                if not batches:
                    del self.batches[key]
                self._tell(key, queue_id)

    def _tell(self, key: str, queue_id: int) -> None:
        for listener in self.changed:
            listener(key, queue_id)


def count_info(queue_id: int, batch: OrderedBatch) -> str:
    """How often the messages of a batch were given before, as 5.x's clients read it: of each that
    was, and for older ones the least of all.
    """
    given: Mapping[int, int] = batch.given or {}
    rows = [f"0 qo{queue_id}%{offset} {count}" for offset, count in given.items()]
    least = min(given.get(offset, 0) for offset in batch.offsets)
    return ";".join([*rows, f"0 {queue_id} {least}"])
