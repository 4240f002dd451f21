"""Finding messages and places in queues: codes 12, 29 to 33.

Source: docs/protocol/remoting.md, Offsets, and Pulling.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from rmqha.broker.access.needs import KNOWS, TELLS_ALL, Stated, reads
from rmqha.broker.consuming.served_records import ServedRecords
from rmqha.broker.state import BrokerState
from rmqha.errors import RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.store.derived.lookup import ByKey
from rmqha.wire.log.layout import MIN_RECORD
from rmqha.wire.log.record import Record
from rmqha.wire.remoting.answers import Answer, Scattered
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.offsets import (
    MaxOffsetRequest,
    OffsetAnswer,
    QueueRequest,
    SearchOffsetRequest,
    StoreTimeAnswer,
)
from rmqha.wire.remoting.headers.pull import (
    QueryMessageAnswer,
    QueryMessageRequest,
    ViewMessageRequest,
)

ROOM = 12 << 20
"""Most bytes of messages in one answer: a frame holds 16 MiB."""

LOWER = "lower"
"""The wish for the first message at or after a time, instead of the nearest; of 5.x clients."""


@define(eq=False)
class Lookups:
    """Answers about single messages and places."""

    state: BrokerState
    served: ServedRecords

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.QUERY_MESSAGE: (reads(topics="topic"), self._by_key),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (KNOWS, self._by_time),
            RequestCode.GET_MAX_OFFSET: (KNOWS, self._max),
            RequestCode.GET_MIN_OFFSET: (KNOWS, self._min),
            RequestCode.GET_EARLIEST_MSG_STORETIME: (KNOWS, self._earliest),
            RequestCode.VIEW_MESSAGE_BY_ID: (TELLS_ALL, self._view),
        }

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, lower: bool) -> int:
        """The place of a time in a queue.

        @param timestamp: Milliseconds since 1970.
        @param lower: Whether the first message at or after it is wanted, not the nearest.
        """
        offset = self.state.lookup.by_time(topic, queue_id, timestamp)
        stored = self._stored(topic, queue_id, offset) if lower else None
        return offset + (stored is not None and stored < timestamp)

    def _stored(self, topic: str, queue_id: int, offset: int) -> int | None:
        record = self.state.lookup.by_queue_offset(topic, queue_id, offset)
        return None if record is None else record.store_timestamp

    def _by_time(self, connection: RemotingProtocol, command: Command) -> Command:
        request = from_ext(SearchOffsetRequest, command.ext)
        offset = self.offset_by_time(
            request.topic,
            request.queue_id,
            request.timestamp,
            lower=(request.boundary_type or "").lower() == LOWER,
        )
        return command.answer(header=OffsetAnswer(offset=offset))

    def _max(self, connection: RemotingProtocol, command: Command) -> Command:
        request = from_ext(MaxOffsetRequest, command.ext)
        bounds = self.state.lookup.bounds(request.topic, request.queue_id)
        return command.answer(header=OffsetAnswer(offset=0 if bounds is None else bounds[1]))

    def _min(self, connection: RemotingProtocol, command: Command) -> Command:
        request = from_ext(QueueRequest, command.ext)
        bounds = self.state.lookup.bounds(request.topic, request.queue_id)
        return command.answer(header=OffsetAnswer(offset=0 if bounds is None else bounds[0]))

    def _earliest(self, connection: RemotingProtocol, command: Command) -> Command:
        request = from_ext(QueueRequest, command.ext)
        bounds = self.state.lookup.bounds(request.topic, request.queue_id)
        stored = None
        if bounds is not None:
            stored = self._stored(request.topic, request.queue_id, bounds[0])
        return command.answer(header=StoreTimeAnswer(timestamp=-1 if stored is None else stored))

    def _view(self, connection: RemotingProtocol, command: Command) -> Command:
        offset = from_ext(ViewMessageRequest, command.ext).offset
        record = self.state.lookup.claimed(offset)
        what = f"the message at byte {offset}"
        if record is None:
            # Whether there ever was one is for the queue to say, if as much is left of it.
            harmed = self.state.lookup.record(offset)
            if harmed is not None and self._knows(harmed):
                raise self.served.refusal(offset, harmed.size, what)
            if self.served.doubted(offset, offset + 1):
                raise self.served.refusal(offset, 1, what)
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        if self.served.doubted(offset, offset + record.size):
            raise self.served.refusal(offset, record.size, what)
        return command.answer(body=self.state.store.log.read(offset, record.size))

    def _knows(self, record: Record) -> bool:
        queue = self.state.lookup.queues.get(record.topic, record.queue_id)
        unit = None if queue is None else queue.unit(record.queue_offset)
        return unit is not None and unit[:2] == (record.offset, record.size)

    def _sound(self, found: ByKey) -> list[Record]:
        """Those that may be sent.

        @raise RequestRefused: If there are some, and none may be.
        """
        sound, refusal = [], None
        for record in found.records:
            doubted = self.served.doubted(record.offset, record.offset + record.size)
            if record.body_holds and not doubted:
                sound.append(record)
            else:
                what = f"the message at byte {record.offset}"
                refusal = self.served.refusal(record.offset, record.size, what)
        for offset in found.bad:
            what = f"the message that the index has at byte {offset}"
            refusal = self.served.refusal(offset, MIN_RECORD, what)
        if refusal is not None and not sound:
            raise refusal
        return sound

    def _by_key(self, connection: RemotingProtocol, command: Command) -> Answer:
        request = from_ext(QueryMessageRequest, command.ext)
        wanted = (
            self.state.settings.pull.query_most if request.unique_key_query else request.max_num
        )
        found = self._sound(
            self.state.lookup.by_key(
                request.topic,
                request.key,
                max_num=min(wanted, self.state.settings.store.max_msgs_num_batch),
                begin=request.begin_timestamp,
                end=request.end_timestamp,
            )
        )
        index = self.state.lookup.index
        header = QueryMessageAnswer(
            index_last_update_timestamp=0 if index is None else index.last_timestamp,
            index_last_update_phyoffset=0 if index is None else max(0, index.end_offset),
        )
        if not found:
            return command.answer(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                header,
            )
        read = self.state.store.log.read
        body = [read(record.offset, record.size) for record in _fitting(found)]
        return Scattered(command.answer(header=header), body)


def _fitting(found: list[Record]) -> list[Record]:
    """The newest of them that an answer has room for, one at least."""
    size = 0
    for count, record in enumerate(reversed(found)):
        size += record.size
        if count and size > ROOM:
            return found[-count:]
    return found
