"""Recalling messages that wait: request 370.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define
from twisted.internet.defer import Deferred

from rmqha.broker.access.needs import Stated, sends
from rmqha.broker.sending.recall_handle import RecallHandle
from rmqha.broker.sending.timer_acceptance import TimerAcceptance
from rmqha.broker.state import BrokerState
from rmqha.errors import MessageIllegal, NotWritable, RequestRefused
from rmqha.ha.master.put_service import PutResult
from rmqha.ha.master.transfer import PutStatus
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Message
from rmqha.wire.names import (
    BORN_TIMESTAMP,
    PRODUCER_GROUP,
    TAGS,
    TIMER_CANCELS,
    TIMER_DELIVER,
    UNIQUE_KEY,
)
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.send import RecallAnswer, RecallRequest

TAG = "_RECALL_TAG_"
"""Of the messages that recall others."""


@define(eq=False)
class Recalls:
    """Stores messages that cancel others."""

    state: BrokerState
    acceptance: TimerAcceptance

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {RequestCode.RECALL_MESSAGE: (sends("topic"), self.recall)}

    def recall(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """370: note that a message is not to be delivered.  Whether it waits still is not said."""
        header = from_ext(RecallRequest, command.ext)
        if not self.acceptance.settings.recalls:
            raise _refused(ResponseCode.NO_PERMISSION, "operation is forbidden")
        if self.state.writer is None:
            raise _refused(ResponseCode.SLAVE_NOT_AVAILABLE, _UNAVAILABLE)
        if self.state.topics.get(header.topic) is None:
            raise _refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic[{header.topic}] not exist")
        handle = RecallHandle.decode(header.recall_handle)
        self._check(handle, header.topic)
        now = self.acceptance.now_ms()
        properties = {
            TAGS: TAG,
            UNIQUE_KEY: handle.key,
            TIMER_CANCELS: f"{handle.topic}+{handle.key}",
            TIMER_DELIVER: str(handle.due),
            BORN_TIMESTAMP: str(now),
        }
        if header.producer_group:
            properties[PRODUCER_GROUP] = header.producer_group
        topic, queue_id = self.acceptance.place(handle.topic, 0, properties)
        message = Message(
            topic=topic,
            queue_id=queue_id,
            body=b"0",
            properties=encode(properties),
            born_timestamp=now,
            born_host=connection.peer,
            store_host=self.state.messages.host,
        )
        try:
            stored = self.state.writer.put(message)
        except (NotWritable, MessageIllegal):
            raise _refused(ResponseCode.SYSTEM_ERROR, _NOT_STORED) from None
        return stored.addCallback(self._stored, command, handle)

    def _check(self, handle: RecallHandle, topic: str) -> None:
        """@raise RequestRefused: If a handle is of another topic, broker or time."""
        now, most = self.acceptance.now_ms(), self.acceptance.settings.max_delay * 1000
        wrong = ""
        if handle.topic != topic:
            wrong = "topic not match"
        elif handle.broker != self.state.name:
            wrong = _UNAVAILABLE
        elif not now < handle.due < now + most:
            wrong = "timestamp invalid"
        if wrong:
            raise _refused(ResponseCode.ILLEGAL_OPERATION, wrong)

    def _stored(self, result: PutResult, command: Command, handle: RecallHandle) -> Answer:
        # Stock brokers say success also where no replica has it: then it may come all the same.
        if result.status is not PutStatus.PUT_OK:
            refused = _refused(ResponseCode.SYSTEM_ERROR, _NOT_STORED)
            return command.answer(refused.code, refused.remark)
        return command.answer(
            header=RecallAnswer(msg_id=handle.key, region=self.state.settings.broker.region)
        )


_UNAVAILABLE = "broker service not available"

_NOT_STORED = "execute error"


def _refused(code: ResponseCode, reason: str) -> RequestRefused:
    return RequestRefused(code, f"recall failed, {reason}")
