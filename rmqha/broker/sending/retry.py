"""Messages that come again: a group's retry topic, and in the end its dead letters.

A consumer sends a message back by its place in the log (request 36), or sends a copy of its
own to the retry topic.

Source: docs/protocol/remoting.md, Sending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from random import randrange

from attrs import define, field
from twisted.internet.defer import Deferred

from rmqha.broker.access.needs import SUB, Stated, Wanted, in_group, of
from rmqha.broker.sending.admission import HELP, Admission
from rmqha.broker.sending.put_status import illegal, unavailable
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.topics import UNIT_SUBSCRIBED, is_forbidden
from rmqha.errors import MessageIllegal, NotWritable, RequestRefused
from rmqha.ha.master.put_service import PutResult
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.calls import Calls
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.log import properties as property_string
from rmqha.wire.log.record import Record, offset_msg_id
from rmqha.wire.names import DELAY, DLQ_PREFIX, ORIGIN_MESSAGE_ID, RETRY_PREFIX, RETRY_TOPIC
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.tables import WRITE, GroupConfig
from rmqha.wire.remoting.codes import V3_4_9, RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.frame import FrameDecoder
from rmqha.wire.remoting.headers.send import FIRST_DELAY, SendBackRequest, SendMessageRequest

MOST_TIMES = (1 << 31) - 1
"""What a record can say of how often it came; its sender may have begun there."""

_KEPT = frozenset((PutStatus.PUT_OK, PutStatus.SLAVE_NOT_AVAILABLE))
"""With what a consumer goes on, and commits: nothing else would know of it."""


@define(eq=False)
class Retries:
    """Sends what could not be consumed around once more, or puts it aside.

    @ivar calls: Is told of what came in runs.
    @ivar dead: How many became dead letters, by group.
    """

    state: BrokerState
    admission: Admission
    calls: Calls
    dead: Counter[str] = field(factory=Counter, init=False)

    def handlers(self) -> Mapping[RequestCode, Stated]:
        need = of("SUB: group, topic of the message", self._wanted)
        return {RequestCode.CONSUMER_SEND_MSG_BACK: (need, self.send_back)}

    # --- a copy of the consumer's own ---------------------------------------------

    def redirect(
        self, header: SendMessageRequest, version: int, queue_id: int, properties: dict[str, str]
    ) -> tuple[str, int]:
        """Where a message to a retry topic goes: there, or to the dead letters.

        @param version: The client's.
        @param properties: Dead letters have no delay any more.
        @return: Topic and queue id.
        @raise RequestRefused: If there is no such group.
        """
        group = self._group(header.topic.removeprefix(RETRY_PREFIX))
        limit = self._limit(group, version, header.max_reconsume_times)
        if (header.reconsume_times or 0) < limit:
            return header.topic, queue_id
        properties.pop(DELAY, None)
        return self._dead_letters(group.group_name)

    # --- sent back by its place ----------------------------------------------------

    def send_back(
        self, connection: RemotingProtocol, command: Command
    ) -> Answer | Deferred[Answer]:
        """Store a copy of a message for its group's next try."""
        header = from_ext(SendBackRequest, command.ext)
        writer = self.state.writer
        if writer is None:
            raise unavailable(self.state.store)
        group = self._group(header.group)
        self.admission.check_broker()
        record = self._record(header)
        retry = self._retry_queue(group, header)
        properties = record.properties | {}
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, offset_msg_id(record.store_host, record.offset))
        limit = self._limit(group, command.version, header.max_reconsume_times)
        if record.reconsume_times >= limit or header.delay_level < 0:
            properties.pop(DELAY, None)
            place = self._dead_letters(group.group_name)
        else:
            properties[DELAY] = str(header.delay_level or FIRST_DELAY + record.reconsume_times)
            place = self.state.messages.place(*retry, properties)
        message = self.state.messages.from_record(
            record,
            topic=place[0],
            queue_id=place[1],
            properties=property_string.encode(properties),
            reconsume_times=min(record.reconsume_times + 1, MOST_TIMES),
        )
        try:
            stored = writer.put(message)
        except MessageIllegal as error:
            raise illegal(error, self.state.store.settings.max_message_size) from None
        except NotWritable:
            raise unavailable(self.state.store) from None
        return stored.addCallback(self._stored, command, group.group_name, properties[RETRY_TOPIC])

    def _stored(self, result: PutResult, command: Command, group: str, topic: str) -> Answer:
        if result.status in _KEPT:
            self.state.counts.sent_back(group, topic)
            return command.answer()
        return command.answer(ResponseCode.SYSTEM_ERROR, result.status.value)

    # --- the same in runs -----------------------------------------------------------

    def usual(self, name: str) -> tuple[bytes, int] | None:
        """The retry topic of a group, if it is there and has one queue, and how often a message
        comes again.
        """
        group, topic = self.state.groups.get(name), self.state.topics.get(RETRY_PREFIX + name)
        if group is None or topic is None:
            return None
        permitted = self.admission.settings.permission & topic.perm & WRITE
        if not permitted or min(group.retry_queue_nums, topic.write_queue_nums) > 1:
            return None
        return topic.topic_name.encode(), group.retry_max_times

    def may_return(
        self, topic: bytes, queue_id: int, queue_offset: int, offset: int, size: int
    ) -> bool:
        """Whether a sound record is one that a consumer could have pulled."""
        name = topic.decode("ascii", "replace")
        known = self.state.lookup.knows(name, queue_id, queue_offset, offset, size)
        return known and topic.isascii() and not is_forbidden(name)

    def tell(
        self,
        connection: RemotingProtocol,
        begun: float,
        given: list[tuple[bytes, bytes]],
        frames: bytes,
        status: PutStatus,
    ) -> None:
        """Answer a run.

        @param begun: When it came, in the seconds of L{calls}.
        @param given: The groups, and where the messages were sent first.
        @param frames: The answers if they are stored.
        """
        code = ResponseCode.SUCCESS if status in _KEPT else ResponseCode.SYSTEM_ERROR
        self.calls.add(RequestCode.CONSUMER_SEND_MSG_BACK, code, begun, count=len(given))
        if status in _KEPT:
            for group, topic in given:
                self.state.counts.sent_back(group.decode(), topic.decode())
            connection.send_frames(frames)
            return
        for answer in FrameDecoder().receive(frames):
            answer.code, answer.remark = code, status.value
            connection.send(answer)

    def _retry_queue(self, group: GroupConfig, header: SendBackRequest) -> tuple[str, int]:
        # A group with no retry queues has one: stock brokers drop its messages, and say success.
        queues = max(1, group.retry_queue_nums)
        sys_flag = UNIT_SUBSCRIBED if header.unit_mode else 0
        name = RETRY_PREFIX + group.group_name
        config = self.state.topics.ensure(name, queues, sys_flag=sys_flag)
        if not config.perm & WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden"
            )
        return name, randrange(max(1, min(queues, config.write_queue_nums)))

    def _record(self, header: SendBackRequest) -> Record:
        record = self.state.lookup.claimed(header.offset)
        if record is None or is_forbidden(record.topic):
            # What only the broker may read must not become readable by being sent back.
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        return record

    def _wanted(self, command: Command) -> Iterator[Wanted]:
        """A message must be one that its consumer could have pulled: where it is, and of where it
        came from.
        """
        header = from_ext(SendBackRequest, command.ext)
        yield in_group(header.group)
        record = self.state.lookup.claimed(header.offset)
        if record is not None:
            yield record.topic, SUB
            if record.topic.startswith(RETRY_PREFIX) and RETRY_TOPIC in record.properties:
                yield record.properties[RETRY_TOPIC], SUB

    # --- both ---------------------------------------------------------------------------

    def _group(self, name: str) -> GroupConfig:
        found = self.state.groups.find(name)
        if found is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name} \n{HELP}",
            )
        return found

    @staticmethod
    def _limit(group: GroupConfig, version: int, wanted: int | None) -> int:
        if wanted is not None and version >= V3_4_9:
            return wanted
        return group.retry_max_times

    def _dead_letters(self, group: str) -> tuple[str, int]:
        self.dead[group] += 1
        return self.state.topics.ensure(DLQ_PREFIX + group, 1).topic_name, 0
