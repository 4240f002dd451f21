"""Which half messages are still open.

A half message is told by its offset in the half queue, and ended by a record of the op queue
that names this offset; both are ordinary queues of the log.  How far both are done with is
kept as the offsets of a consumer group, as stock brokers keep it.  Unlike theirs, a check
does not write the half message again: it stays where it is until it is ended, so there is
one place to look at when its producer's word comes, early, late or twice.

Source: docs/protocol/remoting.md, Transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import define, field
from twisted.logger import Logger

from rmqha.broker.tables.consumer_offsets import ConsumerOffsetTable
from rmqha.store.derived.clamp_offsets import Clamped
from rmqha.store.derived.lookup import Lookup
from rmqha.store.derived.outcomes import QUEUE, ended_by, told_by_op
from rmqha.wire.log.record import Record
from rmqha.wire.names import HALF_DONE_TOPIC, HALF_TOPIC, TRANSACTION_GROUP

TOPICS = (HALF_TOPIC, HALF_DONE_TOPIC)


@define(eq=False)
class HalfMessages:
    """The half queue and the op queue.

    @ivar first: The first half message that may be open; all before it are ended.
    @ivar stored: Where those are that the write lane has stored, and that are open.
    """

    lookup: Lookup
    offsets: ConsumerOffsetTable
    first: int = field(default=0, init=False)
    stored: dict[int, int] = field(factory=dict, init=False)
    _ended: set[int] = field(factory=set, init=False)
    # Ops by their own offset, from _op on: which half messages each one ends.
    _ops: dict[int, tuple[int, ...]] = field(factory=dict, init=False)
    _op: int = field(default=0, init=False)
    _next_op: int = field(default=0, init=False)

    _log = Logger()

    def begin(self) -> None:
        """Go on where the log was; it is dispatched.

        The table may be newer, as it came from another node, or a crash cost the log its last
        records.  So what counts is what the last op says of it; where that is of a stock broker,
        the table, unless it is surely newer.
        """
        half, op = (self.offsets.get(TRANSACTION_GROUP, topic, QUEUE) or 0 for topic in TOPICS)
        (least, end), (_, op_end) = (self.lookup.bounds(each, QUEUE) or (0, 0) for each in TOPICS)
        told = told_by_op(self.lookup, op)
        if told is not None:
            self.first, self._op = told.first, told.op
        elif half <= end and 0 < op <= op_end and self._has_op(op_end - 1):
            self.first, self._op = half, op
        self.first = max(self.first, least)
        self._next_op = self._op
        self._read_ops()
        self._pass_ended()
        waiting = sum(map(self.is_open, range(self.first, min(half, end))))
        lower = half > self.first
        self._back(HALF_TOPIC, half, min(half, self.first), waiting)
        self._back(HALF_DONE_TOPIC, op, min(op, self._op if lower else op_end), 0)

    def _has_op(self, op: int) -> bool:
        # A queue goes on where a table counts on it, also if the log never had its messages.
        return self.lookup.by_queue_offset(HALF_DONE_TOPIC, QUEUE, op) is not None

    def _back(self, topic: str, before: int, after: int, waiting: int) -> None:
        if after < before:
            moved = Clamped.halves(topic, before, after, waiting)
            self._log.warn("Moved an offset that the log does not bear out: {moved}", moved=moved)
            self.offsets.commit(TRANSACTION_GROUP, topic, QUEUE, after, "this broker")

    def is_open(self, offset: int) -> bool:
        """Whether a half message is neither committed nor rolled back.

        @param offset: Its offset in the half queue.
        """
        self._read_ops()
        return offset >= self.first and offset not in self._ended

    def count(self) -> int:
        """How many are open."""
        bounds = self.lookup.bounds(HALF_TOPIC, QUEUE)
        if bounds is None:
            return 0
        self._read_ops()
        first = max(self.first, bounds[0])
        return max(0, bounds[1] - first - sum(offset >= first for offset in self._ended))

    def end(self, offset: int, op: int) -> None:
        """Note that one was ended.

        @param op: The offset of the op that says so.
        """
        self._ops[op] = (offset,)
        self.stored.pop(offset, None)
        self._note(offset)
        self._pass_ended()

    def firsts(self, offsets: Iterable[int]) -> list[int]:
        """What L{first} is before each of some is ended, in this order."""
        first, ended, found = self.first, set[int](), []
        for offset in offsets:
            found.append(first)
            ended.add(offset)
            while first in ended or first in self._ended:
                first += 1
        return found

    def each(self) -> Iterator[Record]:
        """The open ones, oldest first.  Others may be ended while this goes on."""
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
        """Say how far both queues are done with."""
        self._pass_ended()
        self.offsets.advance(TRANSACTION_GROUP, HALF_TOPIC, QUEUE, self.first)
        self.offsets.advance(TRANSACTION_GROUP, HALF_DONE_TOPIC, QUEUE, self._op)

    def _pass_ended(self) -> None:
        while self.first in self._ended:
            self._ended.remove(self.first)
            self.first += 1
        while self._op in self._ops and max(self._ops[self._op], default=-1) < self.first:
            del self._ops[self._op]
            self._op += 1

    def _note(self, offset: int) -> None:
        if offset >= self.first:
            self._ended.add(offset)

    def _read_ops(self) -> None:
        """Read what others than this process wrote, before it was started."""
        bounds = self.lookup.bounds(HALF_DONE_TOPIC, QUEUE)
        if bounds is None or self._next_op >= bounds[1]:
            return
        self._op = max(self._op, bounds[0])
        for op in range(max(self._next_op, self._op), bounds[1]):
            if op not in self._ops:
                ended = self._ops[op] = ended_by(self.lookup, op)
                for offset in ended:
                    self._note(offset)
        self._next_op = bounds[1]
