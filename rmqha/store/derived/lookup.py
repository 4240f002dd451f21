"""Finding messages: by queue offset, by time, by key.

Queue units and index entries are claims.  Every record found through one is held
against what was asked for before it is given out.

Source: docs/protocol/store.rst, Consume queues and Index files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from attrs import define, frozen

from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.index import Index
from rmqha.store.derived.record_at import RecordAt, RecordReader
from rmqha.wire.log.record import Record, RecordProperties, decode, record_properties
from rmqha.wire.store_layout import BLANK_SIZE

_ROUNDS = 3
"""How often a key is looked for again, behind hits that were another key's."""


@frozen
class ByKey:
    """What was found by a key.

    @ivar records: In the order of the log.
    @ivar bad: Physical offsets where the index has a message of this key, or of one with the same
        hash, and the log has no valid record.
    """

    records: tuple[Record, ...]
    bad: tuple[int, ...]


@define(eq=False)
class Lookup:
    """Looks things up in one store, running or not.

    @ivar records: The records of its log.
    @ivar queues: Its queues, loaded.
    @ivar index: Its index, loaded; C{None} if it has none.
    """

    records: RecordReader
    queues: ConsumeQueues
    index: Index | None

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The smallest queue offset with a message, and the one just past the last.

        @return: C{None} if there is no such queue.
        """
        queue = self.queues.get(topic, queue_id)
        return None if queue is None else (queue.min_offset, queue.max_offset)

    def record(self, offset: int) -> Record | None:
        """The record at a physical offset, C{None} if no whole, valid one stands there."""
        buf = self.records.whole(offset)
        return None if buf is None else decode(buf, 0, offset)

    def claimed(self, offset: int) -> Record | None:
        """The record at a physical offset that a peer claims is one.

        A body can be made to look like records, down to their places in the log and their
        checksums; so a record's queue must know it as well, if dispatch has reached it.
        """
        record = self.record(offset)
        if record is None or not record.body_holds:
            return None
        place = record.topic, record.queue_id, record.queue_offset
        return record if not record.has_unit or self.knows(*place, offset, record.size) else None

    def knows(self, topic: str, queue_id: int, queue_offset: int, offset: int, size: int) -> bool:
        """Whether a queue has a record at its place, or dispatch has not reached it."""
        queue = self.queues.get(topic, queue_id)
        if queue is None or queue.max_offset <= queue_offset:
            return True
        unit = queue.unit(queue_offset)
        return unit is not None and unit[:2] == (offset, size)

    def by_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> Record | None:
        """The message of a queue offset.

        @return: C{None} outside the queue, where it has no message, and where the unit
            points to anything but this queue's own record.
        """
        found = self._in_queue(topic, queue_id, queue_offset)
        return None if found is None else decode(found[1], 0, found[0])

    def properties(self, topic: str, queue_id: int, queue_offset: int) -> RecordProperties | None:
        """The properties of the message of a queue offset, as L{by_queue_offset} finds it."""
        found = self._in_queue(topic, queue_id, queue_offset)
        return None if found is None else found[2]

    def _in_queue(
        self, topic: str, queue_id: int, queue_offset: int
    ) -> tuple[int, memoryview, RecordProperties] | None:
        """Where the message of a queue offset is, its bytes, and some of what they say."""
        queue = self.queues.get(topic, queue_id)
        unit = None if queue is None or queue_offset < 0 else queue.unit(queue_offset)
        if unit is None or unit[1] == BLANK_SIZE:
            return None
        buf = self.records.whole(unit[0])
        if buf is None or len(buf) != unit[1]:
            return None
        told = record_properties(buf)
        if (told.topic, told.queue_id, told.queue_offset) != (topic, queue_id, queue_offset):
            return None
        return unit[0], buf, told

    def by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The place of a time in a queue: the message that was stored nearest to it.

        @param timestamp: Milliseconds since 1970.
        @return: See L{offset_by_time}; the end, if all
            messages are older or none is left: going there means to read none of them again.
            Stock brokers give the last message.  0 if there is no such queue.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        last = None if low == high else self.by_queue_offset(topic, queue_id, high - 1)
        if low == high or (last is not None and last.store_timestamp < timestamp):
            return high
        return max(low, offset_by_time(queue, timestamp, self.stored_at))

    def by_key(
        self, topic: str, key: str, *, max_num: int = 32, begin: int = 0, end: int = (1 << 63) - 1
    ) -> ByKey:
        """Look for the messages of a topic that have a key: a unique key or one of C{KEYS}.

        @param max_num: The most wanted; C{maxMsgsNumBatch} is the upper limit.
        @param begin: Earliest store time, milliseconds since 1970.
        @param end: Latest store time, milliseconds since 1970.
        @return: The newest C{max_num} of them.
        """
        found: dict[int, RecordAt] = {}
        seen: set[int] = set()
        bad: list[int] = []
        if self.index is None or max_num <= 0:
            return ByKey((), ())
        log, until = self.records.log, end
        for _ in range(_ROUNDS):
            hits = self.index.query(topic, key, max_num, begin, until)
            fresh = [offset for offset in dict.fromkeys(hits) if offset not in seen]
            for offset in fresh:
                seen.add(offset)
                peeked = self.records.at(offset)
                if peeked is None and log.min_offset <= offset < log.confirmed:
                    bad.append(offset)
                elif peeked is not None and _is_wanted(peeked, topic, key, begin, end):
                    found[offset] = peeked
            # Fewer than asked for: there are no more.  Else some may hide behind others.
            if len(found) >= max_num or len(hits) < min(max_num, self.index.max_num) or not fresh:
                break
            oldest = self.stored_at(min(hits))
            if oldest is None:
                break
            until = min(until, oldest)
        newest = sorted(found)[-max_num:]
        return ByKey(tuple(self._decoded(found[offset]) for offset in newest), tuple(bad))

    def stored_at(self, offset: int) -> int | None:
        """When the record at a physical offset was stored, in milliseconds since 1970; C{None} if
        there is none.
        """
        found = self.records.at(offset)
        return None if found is None else found.fields.store_timestamp

    def _decoded(self, found: RecordAt) -> Record:
        buf = self.records.log.read(found.offset, found.size)
        return decode(buf, 0, found.offset)


def _is_wanted(found: RecordAt, topic: str, key: str, begin: int, end: int) -> bool:
    fields = found.fields
    return (
        fields.topic == topic
        and key in fields.keys
        and fields.indexable
        and begin <= fields.store_timestamp <= end
    )


def offset_by_time(
    queue: ConsumeQueue, timestamp: int, store_time: Callable[[int], int | None]
) -> int:
    """Give the queue offset whose message was stored nearest to a time.

    @param timestamp: Milliseconds since the epoch.
    @param store_time: Store time in milliseconds of the record at a physical offset,
        C{None} when it cannot be read (taken for "too early").
    @return: The first message of exactly that time; else the nearer neighbour, the
        earlier one on a tie; 0 in an empty queue.
    """
    times: dict[int, int] = {}
    low, high = queue.min_offset, queue.max_offset

    def time_of(offset: int) -> int | None:
        unit = queue.unit(offset)
        return store_time(unit[0]) if unit is not None and unit[1] != BLANK_SIZE else None

    last = time_of(high - 1) if high > low else None

    def early(offset: int) -> bool:
        time = time_of(offset)
        if time is not None and last is not None and time > last:
            # Of a moment when the clock was ahead: those behind that moment tell.
            ends = bisect_left(
                range(offset, high), True, key=lambda later: (time_of(later) or 0) <= last
            )
            time = time_of(offset + ends)
            if time is not None and time <= timestamp:
                return True
        if time is None:
            return True
        times[offset] = time
        return time < timestamp

    while low < high:
        middle = (low + high) // 2
        if early(middle):
            low = middle + 1
        else:
            high = middle
    before, after = times.get(low - 1), times.get(low)
    if after is None:
        return 0 if before is None else low - 1
    if before is not None and timestamp - before <= after - timestamp:
        return low - 1
    return low
