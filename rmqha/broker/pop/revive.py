"""What was handed out and is not done with in time comes again: a copy goes to the retry topic of
its group and topic.

Check points and acks are records of the timer topic, as a stock broker writes them; but where that
copies each of them to the revive topic when it is due, and reads them there, here the timer itself
tells which check point is due.  What a stock broker has copied is read at the start.

A copy that is in the log already is not made twice, wherever a master was killed: at the start it
is looked for.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from operator import itemgetter

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rmqha.broker.pop.check_points import CheckPoints, OpenCheckPoint, all_stored
from rmqha.broker.pop.handles import RETRY_V1, RETRY_V2, REVIVE_QUEUES, retry_topic
from rmqha.broker.pop.positions import Place
from rmqha.broker.sending.retry import MOST_TIMES
from rmqha.broker.state import BrokerState
from rmqha.errors import FlushFailed, MessageIllegal, NotWritable
from rmqha.ha.master.put_service import PutResult
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.store.derived.lookup import Lookup
from rmqha.wire.log.encode import MAX_PROPERTIES
from rmqha.wire.log.hashing import tags_code
from rmqha.wire.log.pop_record import (
    ACK_TAG,
    ACKS_TAG,
    CHECK_POINT_TAG,
    NOWHERE,
    Acks,
    CheckPoint,
    PointKey,
)
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Message, Record
from rmqha.wire.names import (
    FIRST_POP_TIME,
    REAL_QUEUE,
    REAL_TOPIC,
    RETRY_PREFIX,
    REVIVE_GROUP,
    REVIVE_PREFIX,
    TAGS,
    TIMER_DEQUEUED,
    TIMER_TOPIC,
    UNIQUE_KEY,
)

AGAIN = 1.0
"""Seconds after which what the store did not take is tried again."""

SNAPSHOT = 10_000
"""How many milliseconds older than the log's end the offsets may be that a start has: what was
handed out since is not handed out again."""

_Marks = tuple[int, int, int, str]


_Message = tuple[str, str, int, int]


def _messages(point: CheckPoint) -> Iterator[_Message]:
    """What was handed out: group, topic, queue and offset."""
    return ((point.group, point.topic, point.queue_id, offset) for offset in point.offsets)


@define(eq=False)
class _RetryCopies:
    """Finds the copies of messages in retry topics.

    Each counts once: messages that are alike come as often as they were sent.
    """

    lookup: Lookup
    _read: dict[str, int] = field(factory=dict, init=False)
    _found: Counter[tuple[str, _Marks]] = field(factory=Counter, init=False)

    def take(self, topic: str, record: Record, due: int) -> bool:
        """Whether a message has a copy that is no other's, stored when it was due or later."""
        _, end = self.lookup.bounds(topic, 0) or (0, 0)
        start = self.lookup.by_time(topic, 0, due) if end else 0
        for offset in range(start, self._read.get(topic, end)):
            copy = self.lookup.by_queue_offset(topic, 0, offset)
            if copy is not None:
                self._found[topic, self._marks(copy, 0)] += 1
        self._read[topic] = min(start, self._read.get(topic, end))
        wanted = topic, self._marks(record, 1)
        if not self._found[wanted]:
            return False
        self._found[wanted] -= 1
        return True

    @staticmethod
    def _marks(record: Record, more: int) -> _Marks:
        key = record.properties.get(UNIQUE_KEY, "")
        return record.body_crc, record.born_timestamp, record.reconsume_times + more, key


@define(eq=False)
class _Met:
    """What a start has met.

    @ivar acked: What acks say whose check points were not met yet, from the end of the log.
    @ivar copied: The check points that are in the revive topic.
    @ivar handed: When each message was handed out last: that check point alone counts.  Of one
        whose time was changed a kill may have cost the ack of the one before.
    """

    copies: _RetryCopies = field(converter=_RetryCopies)
    acked: dict[PointKey, set[int]] = field(factory=dict, init=False)
    copied: set[PointKey] = field(factory=set, init=False)
    handed: dict[_Message, int] = field(factory=dict, init=False)


@define(eq=False)
class Revival:
    """Copies what comes again, on a master.

    @ivar ready: Whether it is known which check points are open.
    @ivar revived: How many messages came again.
    @ivar on_ready: Called when that is known.
    @ivar on_settled: Called when all acks of a check point are as safe as any write, with the
        time when it is due and the queue offset where it waits.
    @ivar on_due: Called before messages come again: what is acknowledged by then does not.
    @ivar lost: How many were deleted or damaged before they could come again.
    @ivar recent: Of which queues messages were handed out shortly before the log ended.
    """

    state: BrokerState
    ready: bool = field(default=False, init=False)
    revived: int = field(default=0, init=False)
    lost: int = field(default=0, init=False)
    recent: set[Place] = field(factory=set, init=False)
    on_ready: Callable[[], None] = field(default=lambda: None, init=False)
    on_settled: Callable[[int, int], None] = field(default=lambda due, place: None, init=False)
    on_due: Callable[[], None] = field(default=lambda: None, init=False)
    points: CheckPoints = field(factory=CheckPoints, init=False)
    _met: _Met = field(init=False)
    # Of the revive topic: the check points that are not finished, and the last one, by queue.
    _old: dict[int, set[PointKey]] = field(factory=dict, init=False)
    _last_old: dict[int, int] = field(factory=dict, init=False)
    _calls: dict[PointKey, IDelayedCall] = field(factory=dict, init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._met = _Met(self.state.lookup)
        self._quiet = RateLimitedLog(self._log, self.state.clock)

    @property
    def topic(self) -> str:
        """The revive topic."""
        return REVIVE_PREFIX + self.state.cluster

    # --- the start, from the log's end to its beginning -------------------------------

    def catch_up(self, last: int) -> Generator[None]:
        """Hand out no message again that was handed out since the offsets were written: where a
        group was when a check point was made tells which of them followed each other.  That is on
        the disk before anything else: the next start may be long after this one's end.

        @param last: When the last record of the log was stored, in milliseconds since 1970.
        """
        self.points, self._met = CheckPoints(), _Met(self.state.lookup)
        self._old.clear()
        self._last_old.clear()
        lookup, offsets, code = self.state.lookup, self.state.offsets, tags_code(CHECK_POINT_TAG)
        places, points = [(self.topic, number) for number in range(REVIVE_QUEUES)], []
        set_back: dict[Place, int] = {}
        # What a stock broker stored late is in the revive topic alone.
        for place in (TIMER_TOPIC, 0), *places:
            queue, first = (
                self.state.store.queues.get(*place),
                lookup.by_time(*place, last - SNAPSHOT),
            )
            for at in range(first, first if queue is None else queue.max_offset):
                unit = None if queue is None else queue.unit(at)
                wanted = unit is not None and unit[2] == code
                record = lookup.by_queue_offset(*place, at) if wanted else None
                told = {} if record is None else record.properties
                mine = told.get(REAL_TOPIC, place[0]) == self.topic and TIMER_DEQUEUED not in told
                point = self._read(record) if record is not None and mine else None
                if record and isinstance(point, CheckPoint) and point.behind is not None:
                    self._bring_back(point, record.offset, young=True)
                    where = point.group, point.topic, point.queue_id
                    begin = (*point.offsets, point.start)[0]
                    points.append((begin, point.behind, record.offset, where, point))
                    if not point.offsets:
                        set_back[where] = max(record.offset, set_back.get(where, 0))
                yield
        self.recent = {where for _, _, _, where, _ in points}
        for begin, behind, stored, where, point in sorted(points, key=itemgetter(0)):
            now = offsets.get(*where)
            known = self.state.topics.get(point.topic) and self.state.groups.get(point.group)
            counts = known and stored >= set_back.get(where, 0)
            if counts and (now is None or behind <= now <= begin):
                offsets.advance(*where, point.next_offset)
            yield
        # Where it fails the log says so.
        saved = offsets.save().addErrback(lambda _: None)
        while not saved.called:
            yield

    def note(self, record: Record, *, finished: bool) -> None:
        """Tell of a record that was met in the timer topic.

        @param finished: Of a check point, whether what was not done with came again.
        """
        found = self._read(record)
        if isinstance(found, Acks):
            self._met.acked.setdefault(found.key, set()).update(found.offsets)
        elif found is not None:
            take = self._met.acked.get if found.key in self._met.copied else self._met.acked.pop
            acked = take(found.key, set())
            for message in _messages(found):
                if found.pop_time < self._met.handed.setdefault(message, found.pop_time):
                    acked = acked | {message[-1]}
            if not finished and not self.state.store.queues.outlived(found.topic, record.offset):
                self._bring_back(found, record.offset)
                waits = record.topic == TIMER_TOPIC
                self.points.add(found, record.queue_offset if waits else NOWHERE, acked)

    def _bring_back(self, point: CheckPoint, stored: int, *, young: bool = False) -> None:
        """Know a group that a former master handed messages: a slave that takes over has offsets of
        a moment ago, and groups of seconds ago.  One that has no offset was deleted.

        @param stored: Physical offset of the record of the check point.
        @param young: Whether the group may have been made after the offsets were copied, too.
        """
        starts = self.state.epochs.journal.starts
        if not starts or stored >= starts[-1].start:
            return
        if young or self.state.offsets.get(point.group, point.topic, point.queue_id) is not None:
            self.state.groups.bring_back(point.group)

    def is_finished(self, record: Record) -> bool:
        """Whether nothing is left of a check point that was due when the log ended: what has its
        copy in the log does not come again.
        """
        found = self._read(record)
        point = self.points.get(found.key) if isinstance(found, CheckPoint) else None
        if point is None:
            return True
        self._look_for_copies(point)
        return not point.left

    def drop(self, record: Record) -> None:
        """A stock broker has copied a check point to the revive topic: what it says there
        counts.
        """
        found = self._read(record)
        if isinstance(found, CheckPoint):
            self.points.remove(found.key)

    def read_copied(self) -> Generator[None]:
        """Read which check points a stock broker has copied and not finished: what their acks say,
        that may wait yet, counts there too.
        """
        for _, _, record in self._unfinished():
            found = None if record is None else self._read(record)
            if isinstance(found, CheckPoint):
                self._met.copied.add(found.key)
                for message in _messages(found):
                    self._met.handed[message] = max(
                        found.pop_time, self._met.handed.get(message, 0)
                    )
            yield

    def _unfinished(self) -> Iterator[tuple[int, int, Record | None]]:
        """What lies in the revive topic, each queue from its end: queue, offset and record."""
        for queue_id in range(REVIVE_QUEUES):
            first, end = self.state.lookup.bounds(self.topic, queue_id) or (0, 0)
            done = self.state.offsets.get(REVIVE_GROUP, self.topic, queue_id)
            for offset in reversed(range(max(first, 0 if done is None else done + 1), end)):
                record = self.state.lookup.by_queue_offset(self.topic, queue_id, offset)
                yield queue_id, offset, record

    def read_revive_topic(self) -> Generator[None]:
        """Read what a stock broker had not finished; then it is known what is open."""
        waiting = []
        for queue_id, offset, record in self._unfinished():
            if record is None:
                self._not_understood(f"{offset} of queue {queue_id} of {self.topic}", "damaged")
                continue
            found = self._read(record)
            self.note(record, finished=False)
            if isinstance(found, CheckPoint):
                self._last_old.setdefault(queue_id, offset)
                self._old.setdefault(queue_id, set()).add(found.key)
                waiting.append((found.key, queue_id, record.offset))
            yield
        for key, _, _ in waiting:
            point = self.points.get(key)
            if point is not None:
                self._look_for_copies(point)
            yield
        for key, queue_id, stored in waiting:
            point = self.points.get(key)
            wait = 0 if point is None else point.point.due - self.state.now_ms()
            self._finish_old(key, queue_id, stored, max(0, wait) / 1000)
        self._met, self.ready = _Met(self.state.lookup), True
        self.on_ready()

    def _look_for_copies(self, point: OpenCheckPoint) -> None:
        told = point.point
        copied = []
        for offset in sorted(point.left, reverse=True):
            record = self.state.lookup.by_queue_offset(told.topic, told.queue_id, offset)
            # What is gone or damaged is told of when it is due.
            if record is not None and any(
                self._met.copies.take(topic, record, told.due) for topic in self._retry_topics(told)
            ):
                copied.append(offset)
        self.points.done(point, copied)

    # --- what is due ------------------------------------------------------------------

    def finish(self, record: Record) -> Deferred[None] | None:
        """Let what is not done with come again, as its time is over.

        @param record: Of the check point.
        @return: Fires when the copies are as safe as any write; C{None} if there are none.
        @raise NotWritable: If the store takes no writes; then it may be called again.
        """
        found = self._read(record)
        if not isinstance(found, CheckPoint):
            self.lost += 1
            return None
        point = self.points.get(found.key)
        return None if point is None else self._finish(point, record.offset)

    def _finish(self, point: OpenCheckPoint, stored: int) -> Deferred[None] | None:
        """@param stored: Physical offset of the record of the check point."""
        self.on_due()
        told, writer = point.point, self.state.writer
        assert writer is not None, "only a master revives"
        known = self.state.topics.get(told.topic) and self.state.groups.get(told.group)
        if known is None or self.state.store.queues.outlived(told.topic, stored):
            self.points.remove(told.key)
            return None
        waits: list[Deferred[PutResult]] = []
        for offset in sorted(point.left):
            message = self._copy(told, offset)
            if message is not None:
                try:
                    put = writer.put(message)
                except MessageIllegal as error:
                    self._set_aside(told, offset, str(error))
                else:
                    self.revived += 1
                    waits.append(put)
            self.points.done(point, (offset,))
        waits = [put for put in waits if not (put.called and isinstance(put.result, PutResult))]
        if not waits:
            return None
        return all_stored(waits)

    def _copy(self, point: CheckPoint, offset: int) -> Message | None:
        record = self.state.lookup.by_queue_offset(point.topic, point.queue_id, offset)
        if record is None or not record.body_holds:
            self._set_aside(point, offset, "it was deleted, or is damaged")
            return None
        told = dict(record.properties)
        if not record.reconsume_times or FIRST_POP_TIME not in told:
            told[FIRST_POP_TIME] = str(point.pop_time)
        properties = encode(told)
        return self.state.messages.from_record(
            record,
            topic=self.state.topics.ensure(self._retry_topics(point)[0], 1).topic_name,
            queue_id=0,
            # Rather without that time than never.
            properties=properties if len(properties) <= MAX_PROPERTIES else record.raw_properties,
            reconsume_times=min(record.reconsume_times + 1, MOST_TIMES),
            born_host=self.state.messages.host,
            store_host=self.state.messages.host,
        )

    def _retry_topics(self, point: CheckPoint) -> list[str]:
        """Where the messages of a check point come again, those of a retry topic in the same; and
        where they did when that was set otherwise.
        """
        if point.topic.startswith(RETRY_PREFIX):
            return [point.topic]
        kinds = (RETRY_V2, RETRY_V1) if self.state.settings.pop.retry_v2 else (RETRY_V1, RETRY_V2)
        return [retry_topic(point.group, point.topic, kind) for kind in kinds]

    def _finish_old(self, key: PointKey, queue_id: int, stored: int, wait: float) -> None:
        """Finish a check point of the revive topic; when none is left there the revive group's
        offset says so.
        """
        self._calls[key] = self.state.clock.callLater(wait, self._try_old, key, queue_id, stored)

    def _try_old(self, key: PointKey, queue_id: int, stored: int) -> None:
        del self._calls[key]
        point = self.points.get(key)
        try:
            landed = None if point is None else self._finish(point, stored)
        except NotWritable:
            self._finish_old(key, queue_id, stored, AGAIN)
            return
        flush = self.state.store.flusher.flush
        (landed or succeed(None)).addCallback(lambda _: flush()).addCallbacks(
            lambda _: self._finished_old(key, queue_id),
            # The disk failed: a start looks for the copies.
            lambda failure: failure.trap(FlushFailed, NotWritable) and None,
        )

    def _finished_old(self, key: PointKey, queue_id: int) -> None:
        self._old[queue_id].discard(key)
        if not self._old[queue_id]:
            self.state.offsets.advance(REVIVE_GROUP, self.topic, queue_id, self._last_old[queue_id])

    def stop(self) -> None:
        """Finish nothing more."""
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()

    def _set_aside(self, point: CheckPoint, offset: int, reason: str) -> None:
        self.lost += 1
        self._quiet.warn(
            "not revived",
            point.topic,
            "Message {offset} of queue {queue_id} of {topic} does not come again for group "
            "{group}: {reason}",
            offset=offset,
            queue_id=point.queue_id,
            topic=point.topic,
            group=point.group,
            reason=reason,
        )

    def _read(self, record: Record) -> CheckPoint | Acks | None:
        """What a record says; C{None} if it makes no sense."""
        tag = record.properties.get(TAGS)
        try:
            if not record.body_holds:
                raise ValueError("its body is not what its checksum says")
            if tag == CHECK_POINT_TAG:
                # One that was due when a stock broker made it lies in its queue at once.
                queue = int(record.properties.get(REAL_QUEUE, record.queue_id))
                return CheckPoint.read(record.body, self.state.name, queue)
            if tag in (ACK_TAG, ACKS_TAG):
                return Acks.read(record.body, self.state.name)
        except ValueError as error:
            self._not_understood(f"at {record.offset}", str(error))
        return None

    def _not_understood(self, place: str, reason: str) -> None:
        self._quiet.warn(
            "not understood",
            "",
            "The record {place} is no check point of POP and no ack, or damaged; what it says of "
            "messages that were handed out is not known: {reason}",
            place=place,
            reason=reason,
        )
