"""Handing out messages: requests 200050, 200052, 200054 and 200055.

A group's position moves when messages are handed out, and a check point says which they were; it
is stored before they are sent.  What is not acknowledged until its time is over comes again by the
group's retry topic.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import randrange

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmqha.broker.access.needs import CONSUMES, Stated
from rmqha.broker.clients.subscriptions import Subscription, parse, require_understood
from rmqha.broker.consuming.queue_reader import QueueReader, ReadStatus
from rmqha.broker.pop.check_points import CheckPointLog, all_stored
from rmqha.broker.pop.handles import (
    NORMAL,
    ORDERED,
    RETRY_V1,
    RETRY_V2,
    REVIVE_QUEUES,
    PopHandle,
    retry_topic,
)
from rmqha.broker.pop.ordered import OrderedPops
from rmqha.broker.pop.polling import Place as Door
from rmqha.broker.pop.polling import Polling
from rmqha.broker.pop.positions import Move, Place, PopPositions
from rmqha.broker.pop.revive import Revival
from rmqha.broker.sending.admission import HELP
from rmqha.broker.state import BrokerState
from rmqha.errors import FlushFailed, MessageIllegal, NotWritable, RequestRefused
from rmqha.ha.master.put_service import PutResult, at_once
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.log.layout import struct_of
from rmqha.wire.log.pop_record import MOST, CheckPoint, handed
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting.answers import Answer, Scattered
from rmqha.wire.remoting.bodies.tables import READ, TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.pop import (
    NotificationAnswer,
    NotificationRequest,
    PeekMessageRequest,
    PollingInfoAnswer,
    PollingInfoRequest,
    PopMessageAnswer,
    PopMessageRequest,
)

LATE = 500
"""Milliseconds behind its deadline at which a pop is not served any more."""

RETRY_FIRST = 20
"""In how many of a hundred pops messages that come again go first; in the others they go last."""

FRUITLESS = 0.1
"""Seconds for which a pop goes on behind messages that it does not want."""

MOVED = (
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.OFFSET_OVERFLOW_BADLY,
    ReadStatus.MESSAGE_WAS_REMOVING,
)

_HEAD = struct_of("size", "queue_offset")


@define(kw_only=True)
class _Part:
    """Messages of one queue.

    @ivar kind: Of which kind their topic is.
    @ivar pieces: Whole records, one or more each.
    """

    place: Place
    kind: str
    start: int
    pieces: Sequence[memoryview]
    offsets: list[int]

    @property
    def after(self) -> int:
        """Where the group goes on."""
        return self.offsets[-1] + 1

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(map(len, self.pieces))


@define
class _Found:
    """What a pop has found so far.

    @ivar room: For how many messages more.
    @ivar rest: How many more there are.
    @ivar again: Of which kind the messages are that come again; L{NORMAL} if there are none.
    """

    room: int
    rest: int = 0
    parts: list[_Part] = field(factory=list)
    again: str = NORMAL

    def lets(self, kind: str) -> bool:
        """Whether messages of such a topic may be in the answer too: a handle cannot tell one retry
        topic from the other.
        """
        return self.room > 0 and (kind == NORMAL or self.again in (NORMAL, kind))

    def add(self, part: _Part) -> None:
        """Something was found."""
        self.parts.append(part)
        self.room -= len(part.offsets)
        if part.kind != NORMAL:
            self.again = part.kind


@define(eq=False, kw_only=True)
class Pops:
    """Answers pops, now or when there is something.

    @ivar log: Stores check points; C{None} on a slave, which hands out nothing: it could not tell
        what.
    """

    state: BrokerState
    log: CheckPointLog | None
    reader: QueueReader
    polling: Polling
    positions: PopPositions
    revival: Revival
    ordered: OrderedPops
    _turn: int = field(default=0, init=False)

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.POP_MESSAGE: (CONSUMES, self._pop),
            RequestCode.PEEK_MESSAGE: (CONSUMES, self._peek),
            RequestCode.NOTIFICATION: (CONSUMES, self._notify),
            RequestCode.POLLING_INFO: (CONSUMES, self._polling_info),
        }

    # --- pop ----------------------------------------------------------------------

    def _pop(self, connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        """200050: hand out messages."""
        request = from_ext(PopMessageRequest, command.ext)
        try:
            self._check_pop(connection, request)
            subscription = parse(request.topic, request.expression, request.expression_type)
            require_understood(subscription, filters=self.state.settings.pull.property_filter)
        except RequestRefused as refusal:
            return command.answer(refusal.code, refusal.remark, PopMessageAnswer())
        self.positions.asked.add((request.consumer_group, request.topic))
        again = partial(self._take, connection, command, request, subscription)
        wait = self._seconds(request.born_time, request.poll_time)
        found = again(wait <= 0)
        if found is not None:
            return found
        door = request.consumer_group, request.topic, request.queue_id
        if not self.polling.has_room(door):
            return self._empty(command, request, 0, ResponseCode.POLLING_FULL)
        wish = request.expression_type, request.expression, request.order
        return self.polling.hold(door, wish, wait, again)

    def _check_pop(self, connection: RemotingProtocol, request: PopMessageRequest) -> None:
        """@raise RequestRefused: In the order of stock brokers."""
        own = self.state.settings.broker
        if request.born_time and self.state.now_ms() - request.born_time - request.poll_time > LATE:
            raise RequestRefused(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{own.ip1}] pop message is timeout too much",
            )
        if self.log is None:
            raise no_master(own.ip1)
        if not own.permission & READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{own.ip1}] pop message is forbidden"
            )
        if request.max_msg_nums > MOST:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{own.ip1}] pop message's num is greater than {MOST}",
            )
        if not self.state.settings.timers.enabled:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{own.ip1}] pop message is forbidden because timerWheelEnable is false",
            )
        self._check(connection, request.consumer_group, request.topic, request.queue_id)

    def _check(
        self, connection: RemotingProtocol, group: str, topic: str, queue_id: int
    ) -> TopicConfig:
        """@raise RequestRefused: If there is nothing to read, or it may not be read."""
        config = self.state.topics.get(topic)
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic[:256]}] not exist, apply first please! \n{HELP}",
            )
        if not config.perm & READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden"
            )
        if queue_id >= config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}] "
                f"consumer:[/{connection.address}]",
            )
        known = self.state.groups.find(group)
        if known is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group[:256]}] does not exist, {HELP}",
            )
        if not known.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}"
            )
        return config

    def _seconds(self, born: int, poll: int) -> float:
        """How long a request may wait."""
        now = self.state.now_ms()
        return ((born or now) + poll - now) / 1000

    def _take(
        self,
        connection: RemotingProtocol,
        command: Command,
        request: PopMessageRequest,
        subscription: Subscription,
        last: bool,
    ) -> Answer | Deferred[Answer]:
        """@param last: Whether there is an answer in any case.
        @return: C{None} if there is nothing.
        """
        found = _Found(request.max_msg_nums)
        if self.revival.ready:
            for place, kind in self._visits(request):
                if found.lets(kind):
                    self._visit(found, place, kind, request, subscription, connection.address)
                else:
                    start = self._position(place, request.init_mode)
                    found.rest += max(0, self.reader.next_offset(*place[1:]) - start)
        if found.parts and request.order:
            return self._hand_out_in_order(command, request, found)
        if found.parts:
            return self._hand_out(command, request, found)
        return self._empty(command, request, found.rest) if last else None

    def _empty(
        self,
        command: Command,
        request: PopMessageRequest,
        rest: int,
        code: ResponseCode = ResponseCode.POLLING_TIMEOUT,
    ) -> Answer:
        header = PopMessageAnswer(
            pop_time=self.state.now_ms(),
            invisible_time=request.invisible_time,
            revive_queue=ORDERED if request.order else self._next_turn(),
            rest=rest,
            start_offsets="",
            offsets="",
            order_counts="" if request.order else None,
        )
        return command.answer(code, ReadStatus.NO_MESSAGE_IN_QUEUE.value, header)

    def _next_turn(self) -> int:
        self._turn = (self._turn + 1) % REVIVE_QUEUES
        return self._turn

    def _visits(self, request: PopMessageRequest) -> Iterator[tuple[Place, str]]:
        group, topic = request.consumer_group, request.topic
        if request.order:
            for queue_id in self._queues(topic, request.queue_id):
                if not self.ordered.blocked((group, topic, queue_id), request.attempt_id):
                    yield (group, topic, queue_id), NORMAL
            return
        again = list(self._retries(group, topic))
        first = randrange(100) < RETRY_FIRST
        if first:
            yield from again
        yield from (
            ((group, topic, queue_id), NORMAL) for queue_id in self._queues(topic, request.queue_id)
        )
        if not first:
            yield from again

    def _retries(self, group: str, topic: str) -> Iterator[tuple[Place, str]]:
        for kind in (RETRY_V1, RETRY_V2):
            name = retry_topic(group, topic, kind)
            if self.state.topics.get(name) is not None:
                yield (group, name, 0), kind

    def _queues(self, topic: str, queue_id: int) -> list[int]:
        """The queues that are meant by one, in the order in which they are looked at."""
        config = self.state.topics.get(topic)
        if queue_id >= 0 or config is None:
            return [queue_id]
        count = config.read_queue_nums
        start = randrange(count) if count else 0
        return [(start + at) % count for at in range(count)]

    # --- reading ------------------------------------------------------------------

    def _visit(
        self,
        found: _Found,
        place: Place,
        kind: str,
        request: PopMessageRequest,
        subscription: Subscription,
        who: str,
    ) -> None:
        _, topic, queue_id = place
        at = start = self._position(place, request.init_mode)
        until = self.state.clock.seconds() + FRUITLESS
        while True:
            reading = self.reader.read(
                topic, queue_id, at, found.room, subscription.codes, None, subscription.passing
            )
            if reading.status in MOVED and reading.next_offset != at:
                at = start = reading.next_offset
                self.positions.offsets.commit(*place, at, who)
                continue
            if reading.status is not ReadStatus.NO_MATCHED_MESSAGE:
                break
            at = reading.next_offset
            if self.state.clock.seconds() > until:
                break
        found.rest += max(0, reading.max_offset - reading.next_offset)
        if reading.body:
            offsets = _offsets(reading.body)
            part = _Part(place=place, kind=kind, start=start, pieces=reading.body, offsets=offsets)
            found.add(part)
        elif at > start:
            self.positions.skip(place, at)

    def _position(self, place: Place, init_mode: int) -> int:
        """Where a group goes on; one that never was there begins."""
        found = self.positions.get(place)
        if found is not None:
            return found
        group, topic, queue_id = place
        low, high = self.reader.bounds(topic, queue_id)
        begin = low
        if init_mode and not topic.startswith(RETRY_PREFIX):
            young = not low and (not high or not self.reader.begins_on_disk(topic, queue_id))
            begin = 0 if young else max(low, high - 1)
        self.positions.offsets.advance(group, topic, queue_id, begin)
        return begin

    # --- handing out --------------------------------------------------------------

    def _hand_out(
        self, command: Command, request: PopMessageRequest, found: _Found
    ) -> Answer | Deferred[Answer]:
        """Store what is handed out, then send it."""
        log = self.log
        assert log is not None, "only a master hands out"
        places = [part.place for part in found.parts]
        pop_time = self.positions.pop_time(places, self.state.now_ms())
        turn = self._next_turn()
        moves, waits = [], []
        for part in tuple(found.parts):
            group, topic, queue_id = part.place
            point = CheckPoint(
                topic=topic,
                queue_id=queue_id,
                group=group,
                start=part.start,
                pop_time=pop_time,
                invisible=max(0, request.invisible_time),
                broker=self.state.name,
                offsets=tuple(part.offsets),
                revive_queue=turn,
                behind=self.positions.behind(part.place),
            )
            try:
                opened = log.open(point)
            except (NotWritable, MessageIllegal) as error:
                # Its position has not moved; nothing of it is sent.
                found.parts.remove(part)
                if not found.parts:
                    raise RequestRefused(
                        ResponseCode.SYSTEM_ERROR, f"the check point is not stored: {error}"
                    ) from None
                continue
            self.revival.points.add(point, log.place)
            move = self.positions.move(part.place, part.after)
            moves.append(move)
            done = at_once(opened)
            if done is None:
                waits.append(opened.addCallback(_require_held, move))
            else:
                _require_held(done, move)
        header = _header(request, found, pop_time, turn)
        body = [
            record for part in found.parts for record in self._sent(part, header, request.topic)
        ]
        answer = Scattered(
            command.answer(ResponseCode.SUCCESS, ReadStatus.FOUND.value, header), body
        )

        def stored(_: object) -> Answer:
            for move in moves:
                self.positions.land(move)
            for part in found.parts:
                self.state.counts.went(*part.place, part.start, part.after, part.size)
            return answer

        if not waits:
            return stored(None)
        # Who asked may be gone by then: it is handed out all the same.
        answered: Deferred[Answer] = Deferred()
        all_stored(waits).addCallbacks(stored, _disk_failed).chainDeferred(answered)
        return answered

    def _hand_out_in_order(
        self, command: Command, request: PopMessageRequest, found: _Found
    ) -> Answer:
        """Note what is handed out; its position moves when it is acknowledged."""
        places = [part.place for part in found.parts]
        pop_time = self.positions.pop_time(places, self.state.now_ms())
        counts = [
            self.ordered.on_pop(part.place, request, pop_time, part.offsets) for part in found.parts
        ]
        header = _header(request, found, pop_time, ORDERED, ";".join(counts))
        for part in found.parts:
            self.state.counts.went(*part.place, part.start, part.after, part.size)
        body = [piece for part in found.parts for piece in part.pieces]
        answer = command.answer(ResponseCode.SUCCESS, ReadStatus.FOUND.value, header)
        return Scattered(answer, body)

    def _sent(self, part: _Part, header: PopMessageAnswer, topic: str) -> Iterator[memoryview]:
        if part.kind == NORMAL:
            yield from part.pieces
            return
        for record, offset in _records(part.pieces):
            handle = PopHandle(
                start=part.start,
                pop_time=header.pop_time,
                invisible=header.invisible_time,
                revive_queue=header.revive_queue,
                kind=part.kind,
                broker=self.state.name,
                queue_id=part.place[2],
                offset=offset,
            )
            yield memoryview(handed(record, topic, str(handle)))

    # --- peek, notification -------------------------------------------------------

    def _peek(self, connection: RemotingProtocol, command: Command) -> Answer:
        """200052: read from a group's position without moving it."""
        request = from_ext(PeekMessageRequest, command.ext)
        group, topic = request.consumer_group, request.topic
        try:
            self._check(connection, group, topic, request.queue_id)
        except RequestRefused as refusal:
            return command.answer(refusal.code, refusal.remark, PopMessageAnswer())
        body: list[memoryview] = []
        rest, count = 0, 0
        places = [(group, topic, queue_id) for queue_id in self._queues(topic, request.queue_id)]
        for place in [*places, *(place for place, _ in self._retries(group, topic))]:
            room = request.max_msg_nums - count
            start = self._standing(place)
            if room > 0:
                reading = self.reader.read(place[1], place[2], start, room)
                body += reading.body
                count += sum(1 for _ in _records(reading.body))
            rest += max(0, self.reader.bounds(place[1], place[2])[1] - start)
        if not body:
            header = PopMessageAnswer(rest=rest)
            return command.answer(
                ResponseCode.PULL_NOT_FOUND, ReadStatus.NO_MESSAGE_IN_QUEUE.value, header
            )
        header = PopMessageAnswer(rest=rest)
        return Scattered(command.answer(ResponseCode.SUCCESS, ReadStatus.FOUND.value, header), body)

    def _standing(self, place: Place) -> int:
        """Where a group is in a queue, or would begin."""
        found = self.positions.get(place)
        return self.reader.bounds(place[1], place[2])[0] if found is None else found

    def _notify(self, connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        """200054: say when there is something to pop."""
        request = from_ext(NotificationRequest, command.ext)
        group, topic = request.consumer_group, request.topic
        self._check(connection, group, topic, request.queue_id)

        def answer(has: bool, full: bool = False) -> Answer:
            return command.answer(header=NotificationAnswer(has_msg=has, polling_full=full))

        def again(last: bool) -> Answer:
            has = self._has_messages(request)
            return answer(has) if has or last else None

        wait = self._seconds(request.born_time, request.poll_time)
        found = again(wait <= 0)
        door: Door = group, topic, request.queue_id
        if found is not None:
            return found
        if not self.polling.has_room(door):
            return answer(False, True)
        return self.polling.hold(door, "notification", wait, again)

    def _has_messages(self, request: NotificationRequest) -> bool:
        group, topic = request.consumer_group, request.topic
        places = [(group, topic, queue_id) for queue_id in self._queues(topic, request.queue_id)]
        if request.order:
            blocked, attempt = self.ordered.blocked, request.attempt_id
            places = [place for place in places if not blocked(place, attempt)]
        else:
            places += [place for place, _ in self._retries(group, topic)]
        return any(
            self.reader.bounds(place[1], place[2])[1] > self._standing(place) for place in places
        )

    def _polling_info(self, connection: RemotingProtocol, command: Command) -> Answer:
        """200055: how many wait."""
        request = from_ext(PollingInfoRequest, command.ext)
        self._check(connection, request.consumer_group, request.topic, request.queue_id)
        door = request.consumer_group, request.topic, request.queue_id
        return command.answer(header=PollingInfoAnswer(polling_num=self.polling.waiting(door)))


def _header(
    request: PopMessageRequest,
    found: _Found,
    pop_time: int,
    revive_queue: int,
    counts: str | None = None,
) -> PopMessageAnswer:
    """What is said of messages that are handed out."""
    return PopMessageAnswer(
        pop_time=pop_time,
        invisible_time=request.invisible_time,
        revive_queue=revive_queue,
        rest=found.rest,
        start_offsets=";".join(f"{part.kind} {part.place[2]} {part.start}" for part in found.parts),
        offsets=";".join(
            f"{part.kind} {part.place[2]} {','.join(map(str, part.offsets))}"
            for part in found.parts
        ),
        order_counts=counts,
    )


def no_master(address: str) -> RequestRefused:
    """A slave is asked what only a master may answer."""
    return RequestRefused(
        ResponseCode.NO_PERMISSION,
        f"the broker[{address}] is a slave: it cannot keep what was handed out, ask its master",
    )


def _offsets(pieces: Iterable[memoryview]) -> list[int]:
    """The queue offset of each record; L{_records} takes three times as long."""
    unpack, found = _HEAD.unpack_from, []
    for piece in pieces:
        at, end = 0, len(piece)
        while at < end:
            size, offset = unpack(piece, at)
            found.append(offset)
            at += size
    return found


def _records(pieces: Iterable[memoryview]) -> Iterator[tuple[memoryview, int]]:
    """Each record by itself, and its queue offset."""
    unpack = _HEAD.unpack_from
    for piece in pieces:
        at, end = 0, len(piece)
        while at < end:
            size, offset = unpack(piece, at)
            yield piece[at : at + size], offset
            at += size


def _require_held(result: PutResult, move: Move) -> None:
    """Tell where a check point ends.

    @raise RequestRefused: If the master ends: its log may be cut off where the check point is,
    and acks would be answered that nobody knows what to do with.
    """
    if result.status is PutStatus.SERVICE_NOT_AVAILABLE:
        raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the store is closing")
    move.end = result.receipt.end


def _disk_failed(failure: Failure) -> Answer:
    failure.trap(FlushFailed)
    raise RequestRefused(
        ResponseCode.SYSTEM_ERROR, f"the check point is not stored: {failure.value}"
    )
