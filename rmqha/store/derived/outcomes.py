"""What became of messages that waited for their time, as the log itself says it.

A table says how far delayed messages are delivered and half messages are ended.  It may be newer
than the log it stands beside: of another node that had more, of a later moment, or the log lost
its end.  What it calls done may then be behind the log's end, and nobody would do it again.  So
here it is read from the log: a delayed message is delivered if its copy is there, a half message
is ended if an op names it, and what was handed out comes again only if a check point says so.  What
cannot be told is not done: twice is allowed, never is not.

Source: docs/protocol/remoting.md, Transactions, Delayed messages and POP.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from heapq import merge
from operator import itemgetter

from attrs import define, field, frozen

from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.lookup import Lookup
from rmqha.wire.log.hashing import tags_code
from rmqha.wire.log.layout import struct_of
from rmqha.wire.log.pop_record import ACK_TAG, CHECK_POINT_TAG, Acks, CheckPoint
from rmqha.wire.log.record import Record
from rmqha.wire.names import (
    HALF_DONE_TOPIC,
    HALF_TOPIC,
    REAL_QUEUE,
    REAL_TOPIC,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_DEQUEUED,
    TIMER_ENQUEUED,
    TIMER_TOPIC,
    UNIQUE_KEY,
)

_SAID_BY: dict[int, Callable[[bytes, str], CheckPoint | Acks]] = {
    tags_code(CHECK_POINT_TAG): CheckPoint.read,
    tags_code(ACK_TAG): Acks.read,
}

QUEUE = 0
"""The one queue of half messages, the one of ops, and the one of check points."""

WINDOW = 64
"""Delayed messages looked at together: of those that are alike the first count as delivered."""

ORIGIN_ACK, NEAR = 5000, 1000
"""Milliseconds, and records of the timer topic, behind the check point of a message whose time was
changed within which a stock broker's ack of its old one comes: it waits for its slaves between."""

_MARKS = struct_of("body_crc", "born_timestamp")

_Marks = tuple[int, ...]

# --- delayed messages ---------------------------------------------------------------


@define(eq=False)
class _Target:
    """A queue that delayed messages go to.

    @ivar end: The queue offset behind the last one.
    @ivar read: Up to where it was read, by where that began.
    @ivar found: Queue offsets that were read and are of no message yet, by what tells most messages
        apart.
    """

    queue: ConsumeQueue
    end: int
    read: dict[int, int] = field(factory=dict)
    found: dict[_Marks, list[int]] = field(factory=dict)


@define(eq=False)
class DelayedCopies:
    """Finds the copies of delayed messages in a log.

    A level's copies are stored in the order of its queue, so before one that has its copy none
    waits.  A copy is stored when its message is due, or later: there it is looked for, in the queue
    the message was sent to.
    """

    lookup: Lookup
    # When the last message of the log was stored; before it is due none has a copy.
    _end: int = field(init=False)
    _targets: dict[tuple[str, int], _Target] = field(factory=dict, init=False)
    # Physical offsets: each is the copy of one message.
    _taken: set[int] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._end = last_stored(self.lookup)

    def first_waiting(self, level: int, end: int) -> int:
        """The first message of a level behind all that have their copies.

        @param end: The queue offset behind the last one to be looked at.
        """
        queue = self.lookup.queues.get(SCHEDULE_TOPIC, level - 1)
        while queue is not None and end > queue.min_offset:
            first = max(queue.min_offset, end - WINDOW)
            delivered = [at for at in range(first, end) if self._take(queue, at)]
            if delivered:
                return delivered[-1] + 1
            end = first
        return end

    def _take(self, queue: ConsumeQueue, at: int) -> bool:
        unit = queue.unit(at)
        if unit is None or unit[2] > self._end:
            return False
        record = self.lookup.by_queue_offset(SCHEDULE_TOPIC, queue.queue_id, at)
        return record is not None and self.has(record, unit[2])

    def has(self, record: Record, due: int) -> bool:
        """Whether a message has a copy that is no other's.

        @param due: When it was to be delivered, in milliseconds since 1970.
        """
        target = self._target(record)
        if target is None:
            return False
        topic, queue_id = target.queue.topic, target.queue.queue_id
        marks = record.body_crc, record.born_timestamp
        for place in target.found.get(marks, ()):
            if self._is_copy(record, target.queue, place):
                target.found[marks].remove(place)
                return True
        start = place = self.lookup.by_time(topic, queue_id, due)
        is_found = False
        while place < target.end and not is_found:
            if place in target.read:
                # What is there is kept, as others were sent to this queue too.
                place = target.read[place]
                continue
            found = self._marks(target.queue, place)
            is_found = found == marks and self._is_copy(record, target.queue, place)
            if not is_found:
                target.found.setdefault(found, []).append(place)
            place += 1
        target.read[start] = place
        return is_found

    def _target(self, record: Record) -> _Target | None:
        told = record.properties
        name, text = told.get(REAL_TOPIC, ""), told.get(REAL_QUEUE, "")
        if not (text.isascii() and text.isdigit()):
            return None
        place = name, int(text)
        if place not in self._targets:
            queue = self.lookup.queues.get(*place)
            if queue is None:
                return None
            self._targets[place] = _Target(queue, queue.max_offset)
        return self._targets[place]

    def _marks(self, queue: ConsumeQueue, at: int) -> _Marks:
        unit, log = queue.unit(at), self.lookup.records.log
        if unit is None or not log.min_offset <= unit[0] < log.confirmed:
            return ()
        head = log.read(unit[0], _MARKS.size)
        return _MARKS.unpack(head) if len(head) == _MARKS.size else ()

    def _is_copy(self, record: Record, queue: ConsumeQueue, at: int) -> bool:
        copy = self.lookup.by_queue_offset(queue.topic, queue.queue_id, at)
        if copy is None or copy.offset < record.offset or copy.offset in self._taken:
            return False
        if _content(copy) != _content(record):
            return False
        self._taken.add(copy.offset)
        return True


_TIMES = (TIMER_ENQUEUED, TIMER_DEQUEUED)


def _content(one: Record) -> tuple[object, ...]:
    """What a delayed message and its copy have in common."""
    return (
        one.body,
        one.flag,
        one.born_timestamp,
        one.born_host,
        one.reconsume_times,
        {name: value for name, value in one.properties.items() if name not in _TIMES},
    )


# --- half messages ------------------------------------------------------------------


@frozen
class OpenHalves:
    """Where half messages that may be open begin.

    @ivar first: The first of them; all before it are ended.
    @ivar op: The first op that may name it or a later one.
    @ivar count: How many are open, of those that were looked at.
    """

    first: int
    op: int
    count: int = 0


def told_by_op(lookup: Lookup, since: int) -> OpenHalves | None:
    """What the newest op says that tells which half messages are ended.  Those of ours do, in
    C{preparedTransactionOffset}: 1 more than how many of the queue are, from its beginning.  Stock
    brokers write 0 there.

    @param since: The op before which none is looked at; the last one is.
    """
    ops = lookup.queues.get(HALF_DONE_TOPIC, QUEUE)
    if ops is None:
        return None
    for op in reversed(range(max(ops.min_offset, min(since, ops.max_offset - 1)), ops.max_offset)):
        record = lookup.by_queue_offset(HALF_DONE_TOPIC, QUEUE, op)
        if record is not None and record.prepared_transaction_offset > 0:
            first = record.prepared_transaction_offset - 1
            return OpenHalves(first, _first_op(lookup, first))
    return None


def open_halves(lookup: Lookup, end: int) -> OpenHalves:
    """Find the first half message below one that no op in the log ends.

    A stock broker stores a half message anew when it asks about it, without an op: then the later
    one counts.
    """
    halves = lookup.queues.get(HALF_TOPIC, QUEUE)
    if halves is None or end <= halves.min_offset:
        return OpenHalves(end, _first_op(lookup, end))
    told = told_by_op(lookup, 0) or OpenHalves(0, 0)
    ended = {half for op in _ops(lookup, told.op) for half in ended_by(lookup, op)}
    later: set[str] = set()
    waiting = []
    for at in reversed(range(max(told.first, halves.min_offset), halves.max_offset)):
        half = lookup.by_queue_offset(HALF_TOPIC, QUEUE, at)
        key = "" if half is None else half.properties.get(UNIQUE_KEY, "")
        if half is not None and at < end and at not in ended and key not in later:
            waiting.append(at)
        if key:
            later.add(key)
    first = waiting[-1] if waiting else end
    return OpenHalves(first, _first_op(lookup, first), len(waiting))


def ended_by(lookup: Lookup, op: int) -> tuple[int, ...]:
    """The half messages that an op names; 5.x puts several into one, with commas."""
    record = lookup.by_queue_offset(HALF_DONE_TOPIC, QUEUE, op)
    words = () if record is None else record.body.decode("ascii", "replace").split(",")
    return tuple(int(word) for word in words if word.isdigit())


def _ops(lookup: Lookup, first: int) -> range:
    queue = lookup.queues.get(HALF_DONE_TOPIC, QUEUE)
    return range(0) if queue is None else range(max(first, queue.min_offset), queue.max_offset)


def _first_op(lookup: Lookup, half: int) -> int:
    """The first op behind a half message: those before it can name neither it nor a later one."""
    ops, halves = (lookup.queues.get(topic, QUEUE) for topic in (HALF_DONE_TOPIC, HALF_TOPIC))
    unit = None if halves is None else halves.unit(max(half, halves.min_offset))
    if ops is None or unit is None:
        return 0 if ops is None else ops.max_offset
    return _behind(ops, unit[0])


# --- messages that were handed out --------------------------------------------------


def last_stored(lookup: Lookup) -> int:
    """When the last message of all queues was stored, in milliseconds since 1970; 0 if there is
    none.
    """
    queues = [queue for queue in lookup.queues if queue.has_messages]
    last = max(queues, key=lambda queue: queue.end_physical, default=None)
    unit = None if last is None else last.unit(last.max_offset - 1)
    return (None if unit is None else lookup.stored_at(unit[0])) or 0


def next_pop_offsets(lookup: Lookup) -> dict[tuple[str, int], int]:
    """Where groups go on behind the last messages that they were handed, as the log says it, by
    C{topic@group} and queue id.

    A stock broker's check point of one message may be of one whose time was changed, as if it were
    handed out once more: then an ack of its old one follows, in the revive topic if the old time
    was over, and nobody goes on there.  Where the log ends too soon for that, it is taken for such
    a one if an older check point has the message whose time was not over.  So a group that was set
    back, and was handed one message there, goes on where it was before: what is passed over had
    been handed out.  Where no ack follows though one was changed, as it was lost, or late, the
    group is handed again what is behind the message.
    """
    found: dict[tuple[str, int], int] = {}
    late: dict[tuple[str, int], CheckPoint] = {}
    doubtful: dict[tuple[str, int], dict[int, CheckPoint]] = {}
    queues, end = [queue for queue in lookup.queues if _tells(queue)], last_stored(lookup)

    @lru_cache(4 * NEAR)
    def read(queue: ConsumeQueue, at: int) -> tuple[Record, CheckPoint | Acks] | None:
        unit = queue.unit(at)
        kind = None if unit is None else _SAID_BY.get(unit[2])
        record = kind and lookup.by_queue_offset(queue.topic, queue.queue_id, at)
        if not kind or not record or TIMER_DEQUEUED in record.properties:
            return None
        try:
            return record, kind(record.body, "")
        except ValueError:
            return None

    def is_change(record: Record, point: CheckPoint) -> bool | None:
        if len(point.offsets) > 1 or b'"behind"' in record.body:
            return False
        latest = record.store_timestamp + ORIGIN_ACK
        over, number = end > latest, record.properties.get(REAL_QUEUE, str(record.queue_id))
        for queue in queues:
            if queue.topic != TIMER_TOPIC and str(queue.queue_id) != number:
                continue
            first = _behind(queue, record.offset)
            behind = range(first, first + NEAR)
            for later, said in filter(None, (read(queue, at) for at in behind)):
                mine = isinstance(said, Acks) and said.offsets == point.offsets
                soon = later.store_timestamp <= latest
                if mine and soon and said.key[:3] == point.key[:3] and said.key[4] < point.pop_time:
                    return True
            over |= queue.topic == TIMER_TOPIC and behind.stop <= queue.max_offset
        return False if over else None

    for _, queue, at in merge(*map(_points_of, queues), key=itemgetter(0), reverse=True):
        record, point = read(queue, at) or (None, None)
        if record is None or not isinstance(point, CheckPoint):
            continue
        if lookup.queues.outlived(point.topic, record.offset):
            continue
        place = f"{point.topic}@{point.group}", point.queue_id
        rows = doubtful.setdefault(place, {})
        for offset in rows.keys() & point.offsets:
            if rows[offset].pop_time <= point.due:
                del rows[offset]
        if point.behind is not None and place not in found:
            change = is_change(record, point)
            if change is None:
                rows.setdefault(point.start, point)
            elif not change:
                last = max(point, late.pop(place, point), key=_order)
                if queue.topic == TIMER_TOPIC:
                    found[place] = last.next_offset
                else:
                    late[place] = last
    found |= {place: point.next_offset for place, point in late.items()}
    return found | {place: next(iter(rows)) + 1 for place, rows in doubtful.items() if rows}


def _tells(queue: ConsumeQueue) -> bool:
    """Whether check points and acks are in a queue."""
    return queue.topic == TIMER_TOPIC or queue.topic.startswith(REVIVE_PREFIX)


def _points_of(queue: ConsumeQueue) -> Iterator[tuple[int, ConsumeQueue, int]]:
    """The check points of a queue, from its end: where each is in the log, and there."""
    code = tags_code(CHECK_POINT_TAG)
    for at in reversed(range(queue.min_offset, queue.max_offset)):
        unit = queue.unit(at)
        if unit is not None and unit[2] == code:
            yield unit[0], queue, at


def _order(point: CheckPoint) -> tuple[int, int]:
    """In which order messages of a queue were handed out, whenever that was stored."""
    return point.pop_time, point.next_offset


def _behind(queue: ConsumeQueue, place: int) -> int:
    """The first message of a queue that lies behind a place of the log."""

    def at(offset: int) -> int:
        unit = queue.unit(offset)
        return 0 if unit is None else unit[0]

    offsets = range(queue.min_offset, queue.max_offset)
    return offsets.start + bisect_right(offsets, place, key=at)
