"""
Which half messages are still open.

A half message is told by its offset in the half queue, and ended by a record of the op queue
that names this offset; both are ordinary queues of the log.  How far both are done with is
kept as the offsets of a consumer group, as stock brokers keep it.  Unlike theirs, a check
does not write the half message again: it stays where it is until it is ended, so there is
one place to look at when its producer's word comes, early, late or twice.

Source: docs/protocol/remoting.md, Transactions.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.store.derived.lookup import Lookup
from rmqha.wire.log.record import Record
from rmqha.wire.names import HALF_DONE_TOPIC, HALF_TOPIC, TRANSACTION_GROUP

QUEUE = 0
"""The one queue of each topic."""


@define(eq=False)
class HalfMessages:
    """
    The half queue and the op queue.

    @ivar first: The first half message that may be open; all before it are ended.
    """

    lookup: Lookup
    offsets: ConsumerOffsetTable
    first: int = field(default=0, init=False)
    _ended: set[int] = field(factory=set, init=False)
    # Ops by their own offset, from _op on: which half messages each one ends.
    _ops: dict[int, tuple[int, ...]] = field(factory=dict, init=False)
    _op: int = field(default=0, init=False)
    _next_op: int = field(default=0, init=False)

    def begin(self) -> None:
        """
        Go on where the last run was; the log is dispatched.
        """
        self.first = self._was_at(HALF_TOPIC)
        self._op = self._next_op = self._was_at(HALF_DONE_TOPIC)

    def _was_at(self, topic: str) -> int:
        """
        How far a queue was done with.

        A crash may cost the log's last records, and others come to their places then: those
        must not pass for done with, now or after the next start.
        """
        offset = self.offsets.get(TRANSACTION_GROUP, topic, QUEUE) or 0
        bounds = self.lookup.bounds(topic, QUEUE)
        end = 0 if bounds is None else bounds[1]
        if offset > end:
            offset = end
            self.offsets.commit(TRANSACTION_GROUP, topic, QUEUE, end, "this broker")
        return offset

    def is_open(self, offset: int) -> bool:
        """
        Whether a half message is neither committed nor rolled back.

        @param offset: Its offset in the half queue.
        """
        self._read_ops()
        return offset >= self.first and offset not in self._ended

    def count(self) -> int:
        """
        How many are open.
        """
        bounds = self.lookup.bounds(HALF_TOPIC, QUEUE)
        if bounds is None:
            return 0
        self._read_ops()
        first = max(self.first, bounds[0])
        return max(0, bounds[1] - first - sum(offset >= first for offset in self._ended))

    def end(self, offset: int, op: int) -> None:
        """
        Note that one was ended.

        @param op: The offset of the op that says so.
        """
        self._ops[op] = (offset,)
        self._note(offset)

    def each(self) -> Iterator[Record]:
        """
        The open ones, oldest first.  Others may be ended while this goes on.
        """
        self._read_ops()
        bounds = self.lookup.bounds(HALF_TOPIC, QUEUE)
        if bounds is None:
            return
        self.first = max(self.first, bounds[0])
        for offset in range(self.first, bounds[1]):
            if offset in self._ended:
                continue
            record = self.lookup.by_queue_offset(HALF_TOPIC, QUEUE, offset)
            if record is None:
                # Nothing that could be ended: a hole.
                self._note(offset)
            else:
                yield record

    def commit(self) -> None:
        """
        Say how far both queues are done with.
        """
        while self.first in self._ended:
            self._ended.remove(self.first)
            self.first += 1
        while self._op in self._ops and max(self._ops[self._op], default=-1) < self.first:
            del self._ops[self._op]
            self._op += 1
        self.offsets.advance(TRANSACTION_GROUP, HALF_TOPIC, QUEUE, self.first)
        self.offsets.advance(TRANSACTION_GROUP, HALF_DONE_TOPIC, QUEUE, self._op)

    def _note(self, offset: int) -> None:
        if offset >= self.first:
            self._ended.add(offset)

    def _read_ops(self) -> None:
        """
        Read what others than this process wrote, before it was started.
        """
        bounds = self.lookup.bounds(HALF_DONE_TOPIC, QUEUE)
        if bounds is None or self._next_op >= bounds[1]:
            return
        self._op = max(self._op, bounds[0])
        for op in range(max(self._next_op, self._op), bounds[1]):
            if op not in self._ops:
                record = self.lookup.by_queue_offset(HALF_DONE_TOPIC, QUEUE, op)
                ended = () if record is None else _named(record.body)
                self._ops[op] = ended
                for offset in ended:
                    self._note(offset)
        self._next_op = bounds[1]


def _named(body: bytes) -> tuple[int, ...]:
    """
    The offsets an op names; 5.x puts several into one, with commas.
    """
    return tuple(int(word) for word in body.decode("ascii", "replace").split(",") if word.isdigit())
