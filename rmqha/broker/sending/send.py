"""Sending: requests 10, 310 and 320.

Source: docs/protocol/remoting.md, Sending.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmqha.broker.access.needs import Stated, sends
from rmqha.broker.messages import read_properties
from rmqha.broker.sending.admission import Admission
from rmqha.broker.sending.put_status import STORED, illegal, unavailable
from rmqha.broker.sending.recall_handle import RecallHandle
from rmqha.broker.sending.retry import Retries
from rmqha.broker.sending.timer_acceptance import TimerAcceptance
from rmqha.broker.state import BrokerState
from rmqha.errors import (
    FlushFailed,
    HeaderFieldInvalid,
    MessageIllegal,
    NotWritable,
    RequestRefused,
    TooFewInSync,
)
from rmqha.ha.master.put_service import PutResult, at_once
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Message
from rmqha.wire.log.sys_flag import COMPRESSED, COMPRESSION_TYPE, MULTI_TAGS
from rmqha.wire.names import (
    CLUSTER,
    DELAY,
    HALF_TOPIC,
    RETRY_PREFIX,
    TIMER_PROPERTIES,
    TIMER_TOPIC,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT,
)
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext, to_ext
from rmqha.wire.remoting.headers.send import (
    SendMessageRequest,
    SendMessageV2Request,
    SendRefusedAnswer,
)

CLIENTS_FLAGS = COMPRESSED | COMPRESSION_TYPE
"""The bits of a client's C{sysFlag} that are stored: whether and how the body is compressed.
Addresses and transactions are the broker's to mark."""

_FALSE = "false"


@define(eq=False, kw_only=True)
class Sending:
    """Takes messages.

    @ivar always: The fields that every answer has.
    """

    state: BrokerState
    admission: Admission
    retries: Retries
    timers: TimerAcceptance
    always: dict[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.state.settings.broker
        self.always = to_ext(SendRefusedAnswer(region=settings.region, trace_on=settings.trace_on))

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.SEND_MESSAGE: (sends("topic"), self.send),
            RequestCode.SEND_MESSAGE_V2: (sends("b"), self.send),
            RequestCode.SEND_BATCH_MESSAGE: (sends("b"), self.send),
        }

    def send(self, connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        """Store a message or a batch, and tell where it is."""
        old = command.code == RequestCode.SEND_MESSAGE
        try:
            header = from_ext(SendMessageRequest if old else SendMessageV2Request, command.ext)
            stored, told = self._store(connection, command, header)
        except (RequestRefused, HeaderFieldInvalid, MessageIllegal, NotWritable) as error:
            return self._refused(error, command)
        done = at_once(stored)
        if done is not None:
            return self._stored(done, command, told)
        return stored.addCallbacks(
            self._stored, self._failed, callbackArgs=(command, told), errbackArgs=(command,)
        )

    def _store(
        self, connection: RemotingProtocol, command: Command, header: SendMessageRequest
    ) -> tuple[Deferred[PutResult], dict[str, str]]:
        """Store a message or a batch.

        @return: With what the answer says of its place.
        """
        writer, messages = self.state.writer, self.state.messages
        if writer is None:
            raise unavailable(self.state.store)
        config = self.admission.topic(header)
        queue_id = self.admission.queue(header, config, connection.address)
        properties = read_properties(header.properties or "")
        wait = not command.is_oneway and properties.get(WAIT, "").lower() != _FALSE
        if header.batch or command.code == RequestCode.SEND_BATCH_MESSAGE:
            topic, place = self._batch(header, queue_id, properties, command.body)
        else:
            properties.pop(WAIT, None)
            topic, place = self._place(header, command.version, queue_id, properties)
        properties[CLUSTER] = messages.cluster
        multi = MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
        message = Message(
            topic=topic,
            queue_id=place,
            body=bytes(command.body),
            properties=encode(properties),
            flag=header.flag,
            sys_flag=header.sys_flag & CLIENTS_FLAGS | multi,
            born_timestamp=header.born_timestamp,
            born_host=connection.peer,
            store_host=messages.host,
            reconsume_times=header.reconsume_times or 0,
        )
        told = {"queueId": str(queue_id)}
        if topic == TIMER_TOPIC:
            told["queueId"] = str(place)
            if not header.batch:
                told["recallHandle"] = RecallHandle.of(self.state.name, properties).encode()
        elif topic == HALF_TOPIC and (unique := properties.get(UNIQUE_KEY)):
            told["transactionId"] = unique
        return writer.put(message, batch=header.batch, wait=wait), told

    def _place(
        self, header: SendMessageRequest, version: int, queue_id: int, properties: dict[str, str]
    ) -> tuple[str, int]:
        topic = header.topic
        if topic.startswith(RETRY_PREFIX):
            topic, queue_id = self.retries.redirect(header, version, queue_id, properties)
        prepared = properties.get(TRANSACTION_PREPARED, _FALSE).lower() == "true"
        if prepared and not (header.reconsume_times and DELAY in properties):
            # Else it is an old client's retry of a message that once was one of a transaction.
            if not TIMER_PROPERTIES.isdisjoint(properties):
                # Stock brokers take it, and lose it: its commit finds no half message.
                raise _illegal("a timer message cannot be part of a transaction")
            own = self.state.settings.broker
            if own.reject_transactions:
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{own.ip1}] sending transaction message is forbidden",
                )
            self.state.topics.ensure(HALF_TOPIC, 1)
            return self.state.messages.half(topic, queue_id, properties)
        place = self.state.messages.place(topic, queue_id, properties)
        if TIMER_PROPERTIES.isdisjoint(properties):
            return place
        return self.timers.place(*place, properties)

    def _batch(
        self,
        header: SendMessageRequest,
        queue_id: int,
        properties: dict[str, str],
        body: bytes | memoryview,
    ) -> tuple[str, int]:
        """Where a batch is stored, if it may be one."""
        if not header.batch:
            # Stock brokers store the batch's bytes as one message.
            raise _illegal("a batch that does not say it is one")
        if header.topic.startswith(RETRY_PREFIX):
            raise _illegal("a batch cannot be a retry")
        if TRANSACTION_PREPARED in properties:
            raise _illegal("a batch cannot be part of a transaction")
        if TIMER_PROPERTIES.isdisjoint(properties):
            return header.topic, queue_id
        return self.timers.place_batch(header.topic, queue_id, properties, bytes(body))

    # --- answers ----------------------------------------------------------------------

    def _stored(self, result: PutResult, command: Command, told: dict[str, str]) -> Answer:
        code = STORED.get(result.status)
        if code is None:
            return self.unavailable(command)
        receipt = result.receipt
        answer = command.answer(code)
        answer.ext = {
            "msgId": receipt.message_id,
            **told,
            "queueOffset": str(receipt.queue_offset),
            **self.always,
        }
        return answer

    def _failed(self, failure: Failure, command: Command) -> Answer:
        failure.trap(FlushFailed)
        return self.unavailable(command)

    def unavailable(self, command: Command) -> Answer:
        """Answer that no message is taken now, or that it is not known what became of one."""
        return self._refused(unavailable(self.state.store), command)

    def _refused(self, error: Exception, command: Command) -> Answer:
        if isinstance(error, MessageIllegal):
            error = illegal(error, self.state.store.settings.max_message_size)
        elif isinstance(error, TooFewInSync):
            error = RequestRefused(ResponseCode.SYSTEM_ERROR, error.reason)
        elif isinstance(error, NotWritable):
            error = unavailable(self.state.store)
        if isinstance(error, RequestRefused):
            answer = command.answer(error.code, error.remark)
        else:
            answer = command.answer(ResponseCode.SYSTEM_ERROR, str(error))
        answer.ext = self.always
        return answer


def _illegal(reason: str) -> RequestRefused:
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {reason}")
