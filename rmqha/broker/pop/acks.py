"""What consumers say of messages that they were handed: requests 200051, 200151 and 200053.

A client that has several acks of one check point on their way sends the others soon: of all that
come within L{GATHERING} one record is made.  An ack is answered 0 when that is as safe as any
write.  One of a message that nobody was handed, or that is done with, is answered 0 as stock
brokers do, and leaves no trace; a change of its time is refused then: it would bring it back.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from rmqha.broker.access.accounts import Grant
from rmqha.broker.access.needs import CONSUMES, Stated, Wanted, in_group, of
from rmqha.broker.consuming.queue_reader import QueueReader
from rmqha.broker.pop.check_points import CheckPointLog, OpenCheckPoint
from rmqha.broker.pop.handles import NORMAL, ORDERED, REVIVE_QUEUES, PopHandle, retry_topic
from rmqha.broker.pop.ordered import OrderedPops, is_ordered, place_of
from rmqha.broker.pop.pop import no_master
from rmqha.broker.pop.positions import PopPositions
from rmqha.broker.pop.revive import Revival
from rmqha.broker.sending.admission import HELP
from rmqha.broker.state import BrokerState
from rmqha.errors import FlushFailed, MessageIllegal, NotWritable, RequestRefused
from rmqha.ha.master.put_service import PutResult, at_once
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.calls import Calls
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.log.pop_record import MOST, NOWHERE, PointKey
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer, failed
from rmqha.wire.remoting.bodies.pop import BatchAck, BatchAckBody
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.frame import FrameDecoder, successes
from rmqha.wire.remoting.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageAnswer,
)

if TYPE_CHECKING:
    from rmqha.wire.lane.send_run import SendRun

AckKey = tuple[bytes, bytes, int, bytes]
"""What names a check point in a run of acks: group, topic, queue id, and fields of a handle."""

GATHERING = 0.005
"""Seconds within which acks of one check point are stored together, if they come in a burst."""


@define(kw_only=True)
class _Gathered:
    """Acks of one check point.

    @ivar until: When they are stored, in the clock's seconds, if not all have come before.
    @ivar seen: How many had come before this moment.
    @ivar waiting: Who is told what became of them.
    @ivar runs: Of acks that came in runs, when those came, from whom, their answers and how many.
    """

    found: OpenCheckPoint
    until: float
    seen: int = 0
    offsets: set[int] = field(factory=set)
    waiting: list[Deferred[PutStatus]] = field(factory=list)
    runs: list[tuple[float, RemotingProtocol, bytes, int]] = field(factory=list)


def _wants(group: str, topic: str) -> Iterator[Wanted]:
    """What an ack needs: of a retry topic that it is the group's own."""
    yield in_group(group)
    own = f"{RETRY_PREFIX}{group}"
    if topic.startswith((f"{own}_", f"{own}+")):
        topic = topic[len(own) + 1 :]
    yield topic, Grant.SUB


def _batch_wants(command: Command) -> Iterator[Wanted]:
    for each in _batch(command).acks:
        yield from _wants(each.group, each.topic)


def _batch(command: Command) -> BatchAckBody:
    return json_body.read(BatchAckBody, command.body) if command.body else BatchAckBody()


ACKS_MESSAGE = of(CONSUMES.said, lambda command: _wants(*_named(command)))
"""What a group's consumers do with messages that they were handed."""


def _named(command: Command) -> tuple[str, str]:
    return command.ext.get("consumerGroup", ""), command.ext.get("topic", "")


@define(eq=False, kw_only=True)
class AckRequests:
    """Answers acks.

    @ivar log: Stores them; C{None} on a slave.
    @ivar calls: Is told of those that came in runs.
    """

    state: BrokerState
    log: CheckPointLog | None
    reader: QueueReader
    positions: PopPositions
    revival: Revival
    ordered: OrderedPops
    calls: Calls = field(factory=Calls, init=False)
    # How deep we are in requests that came together, what is acknowledged and not stored, the first
    # to be stored first, and what of it came now.
    _depth: int = field(default=0, init=False)
    _gathered: dict[PointKey, _Gathered] = field(factory=dict, init=False)
    _now: dict[PointKey, None] = field(factory=dict, init=False)
    # The groups whose acks come in bursts.
    _bursts: set[str] = field(factory=set, init=False)
    _call: IDelayedCall | None = field(default=None, init=False)

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.ACK_MESSAGE: (ACKS_MESSAGE, self._ack),
            RequestCode.BATCH_ACK_MESSAGE: (of(CONSUMES.said, _batch_wants), self._ack_batch),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (ACKS_MESSAGE, self._change),
        }

    def _ack(self, connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        """200051: a message is done with."""
        self._open_log()
        request = from_ext(AckMessageRequest, command.ext)
        self._check(connection, request, 1)
        handle = self._handle(request)
        if is_ordered(handle):
            self.ordered.ack(place_of(request), request.offset, handle.pop_time, connection.address)
            return command.answer()
        found = self._find(request, handle)
        if found is None:
            return command.answer()
        done: Deferred[PutStatus] = Deferred()
        with self.together():
            each = self._gather(found)
            each.offsets.add(request.offset)
            each.waiting.append(done)
        return done.addCallback(_answer, command)

    def take(self, connection: RemotingProtocol, run: SendRun) -> int:
        """Take acks that were read as a run.

        @return: How many of them; the next one is to be looked at more closely.
        """
        count = run.count
        if self.log is None or not self.revival.ready or not connection.takes(count):
            return 0
        begun = self.state.clock.seconds()
        while count:
            try:
                acked = [(self._named(connection, *each), each) for each in run.acked(count)]
                break
            except RequestRefused:
                # It may be one behind them.
                count //= 2
        else:
            return 0
        with self.together():
            for found, (_, offsets, numbers) in acked:
                if found is None:
                    frames = successes(numbers)
                    self._tell(PutStatus.PUT_OK, begun, connection, frames, len(numbers))
                    continue
                each = self._gather(found)
                each.offsets.update(offsets)
                each.runs.append((begun, connection, successes(numbers), len(numbers)))
                connection.in_runs += len(numbers)
        return count

    def _named(
        self, connection: RemotingProtocol, key: AckKey, offsets: list[int], _: list[int]
    ) -> OpenCheckPoint | None:
        """The check point that acks of a run name; C{None} if they are done with.

        @raise RequestRefused: If it cannot be one, or only some of them are.
        """
        group, topic, queue_id, text = key
        request = AckMessageRequest(
            consumer_group=group.decode(),
            topic=topic.decode(),
            queue_id=queue_id,
            handle=text.decode(),
            offset=offsets[0],
        )
        low, high = self._bounds(connection, request)
        handle = self._handle(request)
        found = self._open_point(request, handle)
        left = found is not None and found.left.issuperset(offsets)
        done = found is None or found.left.isdisjoint(offsets)
        within = low <= min(offsets) and max(offsets) <= high
        if is_ordered(handle) or not within or not (left or done):
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "each is to be looked at")
        return found if left else None

    def _tell(
        self,
        result: PutStatus | Failure,
        begun: float,
        connection: RemotingProtocol,
        frames: bytes,
        count: int,
    ) -> None:
        """Answer acks of a run.

        @param frames: The answers if they are stored.
        """
        code = ResponseCode.SYSTEM_ERROR
        if isinstance(result, Failure):
            for each in FrameDecoder().receive(frames):
                connection.send(failed(each, result.value))
        elif result in _SAFE:
            code = ResponseCode.SUCCESS
            connection.send_frames(frames)
        else:
            for each in FrameDecoder().receive(frames):
                connection.send(_answer(result, each))
        self.calls.add(RequestCode.ACK_MESSAGE, code, begun, count=count)

    def _ack_batch(
        self, connection: RemotingProtocol, command: Command
    ) -> Answer | Deferred[Answer]:
        """200151: several messages are done with.  What there is not is passed over."""
        self._open_log()
        self.store_gathered()
        acks = _batch(command).acks
        if not acks:
            return command.answer(ResponseCode.NO_MESSAGE)
        waits = []
        for each in acks:
            if each.revive_queue == ORDERED:
                self._ack_in_order(each, connection.address)
                continue
            found = self._find_batch(each)
            offsets = () if found is None else _marked(each, found.left)
            if found is not None and offsets:
                waits.append(_told(self._done(found, offsets)))
        done = DeferredList(waits, fireOnOneErrback=True, consumeErrors=True)
        return done.addCallback(_worst).addCallback(_answer, command)

    def _change(self, connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        """200053: a message is nobody else's for another time, from now on."""
        log = self._open_log()
        self.store_gathered()
        request = from_ext(ChangeInvisibleTimeRequest, command.ext)
        try:
            self._check(connection, request, 0)
        except RequestRefused as refusal:
            return command.answer(refusal.code, refusal.remark, PopMessageAnswer(rest=None))
        handle = self._handle(request)
        if is_ordered(handle):
            told = self.ordered.change(
                place_of(request), request, handle.pop_time, connection.address
            )
            return command.answer(header=told)
        found = self._find(request, handle)
        if found is None:
            return command.answer(
                ResponseCode.NO_MESSAGE,
                "the message is done with, or was not handed out",
                PopMessageAnswer(rest=None),
            )
        old = found.point
        point = evolve(
            old,
            start=request.offset,
            pop_time=self.positions.pop_time(
                [(old.group, old.topic, old.queue_id)], self.state.now_ms()
            ),
            invisible=max(0, request.invisible_time),
            offsets=(request.offset,),
            behind=None,
        )
        opened = _told(_stored(lambda: log.open(point)))
        self.revival.points.add(point, log.place)
        header = PopMessageAnswer(
            pop_time=point.pop_time,
            invisible_time=request.invisible_time,
            revive_queue=point.revive_queue,
            rest=None,
        )
        done = DeferredList(
            [opened, _told(self._done(found, (request.offset,)))],
            fireOnOneErrback=True,
            consumeErrors=True,
        )
        return done.addCallback(_worst).addCallback(_answer, command, header)

    # --- what comes together ----------------------------------------------------------

    @contextmanager
    def together(self) -> Generator[None]:
        """Surround requests that came together: of acks of one check point one record is made."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth and self._now:
                self._store_or_wait()

    def _gather(self, found: OpenCheckPoint) -> _Gathered:
        """Acknowledge messages with all others of this moment."""
        key = found.point.key
        each = self._gathered.get(key)
        if each is None:
            until = self.state.clock.seconds() + GATHERING
            each = self._gathered[key] = _Gathered(found=found, until=until)
        self._now[key] = None
        return each

    def _store_or_wait(self) -> None:
        """Store what came alone, and what is complete; more of the rest comes soon."""
        now, self._now = self._now, {}
        ready = []
        for key in now:
            each = self._gathered[key]
            group = each.found.point.group
            if len(each.offsets) > each.seen + 1:
                self._bursts.add(group)
            each.seen = len(each.offsets)
            if group not in self._bursts or each.seen == len(each.found.left):
                ready.append(self._gathered.pop(key))
        if self._gathered and self._call is None:
            self._call = self.state.clock.callLater(GATHERING, self._store_due)
        for each in ready:
            self._store(each)

    def _store_due(self) -> None:
        now, self._call = self.state.clock.seconds(), None
        for key, each in tuple(self._gathered.items()):
            if each.until > now:
                self._call = self.state.clock.callLater(each.until - now, self._store_due)
                break
            del self._gathered[key]
            if each.seen == 1:
                self._bursts.discard(each.found.point.group)
            self._store(each)

    def store_gathered(self) -> None:
        """Store what is acknowledged, as what comes now must stand behind it."""
        self._now.clear()
        while self._gathered:
            self._store(self._gathered.pop(next(iter(self._gathered))))
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _store(self, each: _Gathered) -> None:
        def tell(result: PutStatus | Failure) -> None:
            for done in each.waiting:
                done.callback(result)
            for run in each.runs:
                run[1].in_runs -= run[3]
                self._tell(result, *run)

        try:
            stored = self._done(each.found, tuple(sorted(each.offsets)))
        except RequestRefused:
            tell(Failure())
            return
        done = at_once(stored)
        if done is None:
            _told(stored).addBoth(tell)
        else:
            tell(done.status)

    # --- what they name -------------------------------------------------------------

    def _open_log(self) -> CheckPointLog:
        """@raise RequestRefused: On a slave, and before it is known what is open."""
        if self.log is None:
            raise no_master(self.state.settings.broker.ip1)
        if not self.revival.ready:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, "the broker still reads which messages were handed out"
            )
        return self.log

    def _check(self, connection: RemotingProtocol, request: AckMessageRequest, beyond: int) -> None:
        """@param beyond: How far behind the last message the offset may be.
        @raise RequestRefused: If there is no such queue or message.
        """
        low, high = self._bounds(connection, request)
        if not low <= request.offset < high + beyond:
            raise RequestRefused(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{request.topic}@{request.queue_id}, "
                f"commit:{request.offset}, store:{low}~{high}",
            )

    def _bounds(self, connection: RemotingProtocol, request: AckMessageRequest) -> tuple[int, int]:
        """@raise RequestRefused: If there is no such queue."""
        topic, queue_id = request.topic, request.queue_id
        config = self.state.topics.get(topic)
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic[:256]}] not exist, apply first please! \n{HELP}",
            )
        if not 0 <= queue_id < config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}] "
                f"consumer:[/{connection.address}]",
            )
        return self.reader.bounds(topic, queue_id)

    @staticmethod
    def _handle(request: AckMessageRequest) -> PopHandle:
        """@raise RequestRefused: If the handle is none."""
        handle = PopHandle.decode(request.handle, request.queue_id, request.offset)
        if handle.revive_queue >= REVIVE_QUEUES and not is_ordered(handle):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"extraInfo names revive queue {handle.revive_queue} of {REVIVE_QUEUES}",
            )
        return handle

    def _find(self, request: AckMessageRequest, handle: PopHandle) -> OpenCheckPoint | None:
        """The check point of a message; C{None} if the message is done with."""
        found = self._open_point(request, handle)
        return found if found is not None and request.offset in found.left else None

    def _open_point(self, request: AckMessageRequest, handle: PopHandle) -> OpenCheckPoint | None:
        return self.revival.points.get(
            (
                request.topic,
                request.queue_id,
                request.consumer_group,
                handle.start,
                handle.pop_time,
                handle.broker,
            )
        )

    def _ack_in_order(self, each: BatchAck, who: str) -> None:
        for offset in _marked(each, range(each.start, each.start + MOST)):
            try:
                self.ordered.ack(
                    (each.group, each.topic, each.queue_id), offset, each.pop_time, who
                )
            except RequestRefused:
                continue

    def _find_batch(self, each: BatchAck) -> OpenCheckPoint | None:
        topic = each.topic
        if each.kind != NORMAL:
            topic = retry_topic(each.group, topic, each.kind)
        return self.revival.points.get(
            (topic, each.queue_id, each.group, each.start, each.pop_time, self.state.name)
        )

    def _done(self, found: OpenCheckPoint, offsets: tuple[int, ...]) -> Deferred[PutResult]:
        """Store that messages are done with.

        @raise RequestRefused: If the store takes no writes; they come again.
        """
        log, point = self._open_log(), found.point
        stored = _stored(lambda: log.ack(point, offsets))
        self.revival.points.done(found, offsets)
        if not found.left:
            done = at_once(stored)
            if done is None:
                stored.addCallback(self._settle, found)
            else:
                self._settle(done, found)
        return stored

    def _settle(self, result: PutResult, found: OpenCheckPoint) -> PutResult:
        if result.status in _SAFE and found.place != NOWHERE:
            self.revival.on_settled(found.point.due, found.place)
        return result


def _stored(put: Callable[[], Deferred[PutResult]]) -> Deferred[PutResult]:
    """@raise RequestRefused: If nothing was stored."""
    try:
        return put()
    except (NotWritable, MessageIllegal) as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"it is not stored: {error}") from None


def _told(stored: Deferred[PutResult]) -> Deferred[PutStatus]:
    return stored.addCallbacks(
        lambda result: result.status,
        lambda failure: failure.trap(FlushFailed) and PutStatus.SERVICE_NOT_AVAILABLE,
    )


def _worst(results: Iterable[tuple[bool, PutStatus]]) -> PutStatus:
    statuses = [status for _, status in results]
    return next((status for status in statuses if status not in _SAFE), PutStatus.PUT_OK)


_SAFE = (PutStatus.PUT_OK, PutStatus.SLAVE_NOT_AVAILABLE)
"""Without a replica an ack is as safe as the message was."""


def _answer(status: PutStatus, command: Command, header: PopMessageAnswer | None = None) -> Command:
    if status in _SAFE:
        return command.answer(header=header)
    return command.answer(ResponseCode.SYSTEM_ERROR, status.value, header)


def _marked(each: BatchAck, left: Collection[int]) -> tuple[int, ...]:
    """Which of the open messages of a check point an ack names.

    @raise RequestRefused: If its bits are none: nothing is taken for acknowledged.
    """
    try:
        bits = b64decode(each.bits, validate=True)
    except ValueError:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL, f"the bits of an ack are no base64: {each.bits[:64]!r}"
        ) from None
    number = int.from_bytes(bits, "little")
    return tuple(offset for offset in sorted(left) if number >> (offset - each.start) & 1)
