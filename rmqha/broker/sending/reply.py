"""Replies to requests of one client by another: 324 and 325 from the one, 326 to the other.

Source: docs/protocol/remoting.md, Request and reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.logger import Logger

from rmqha.broker.access.needs import SUB, Stated, Wanted, sends
from rmqha.broker.clients.registry import Member
from rmqha.broker.messages import read_properties
from rmqha.broker.sending.admission import Admission
from rmqha.broker.state import BrokerState
from rmqha.errors import FlushFailed, HeaderFieldInvalid, RequestRefused, RmqhaError, StoreError
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Message
from rmqha.wire.names import REPLY_ARRIVED, REPLY_CLIENT
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.send import (
    PushReplyRequest,
    SendMessageAnswer,
    SendMessageRequest,
    SendMessageV2Request,
    SendRefusedAnswer,
)

PATIENCE = 10.0
"""Seconds it has to take the reply."""


@define(eq=False)
class Replies:
    """Brings replies to who waits for them.

    @ivar may_see: Whether a client's account permits something of a topic.
    """

    state: BrokerState
    admission: Admission
    may_see: Callable[[Member, Wanted], bool]

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: (sends("topic"), self.reply),
            RequestCode.SEND_REPLY_MESSAGE_V2: (sends("b"), self.reply),
        }

    def reply(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """Bring a reply, and keep it."""
        return Deferred.fromCoroutine(self._reply(connection, command))

    async def _reply(self, connection: RemotingProtocol, command: Command) -> Command:
        old = command.code == RequestCode.SEND_REPLY_MESSAGE
        broker = self.state.current.settings.broker
        try:
            header = from_ext(SendMessageRequest if old else SendMessageV2Request, command.ext)
            config = self.admission.topic(header)
            queue_id = self.admission.queue(header, config, connection.address)
            properties = read_properties(header.properties or "")
        except (RequestRefused, HeaderFieldInvalid) as error:
            code, remark = ResponseCode.SYSTEM_ERROR.value, str(error)
            if isinstance(error, RequestRefused):
                code, remark = error.code, error.remark or ""
            always = SendRefusedAnswer(region=broker.region, trace_on=broker.trace_on)
            return command.answer(code, remark, always)
        fault = await self._push(connection, command, header, queue_id, properties)
        answer = SendMessageAnswer(
            msg_id="0",
            queue_id=queue_id,
            queue_offset=0,
            region=broker.region,
            trace_on=broker.trace_on,
        )
        if broker.store_replies and self.state.writer is not None:
            message = Message(
                topic=header.topic,
                queue_id=queue_id,
                body=bytes(command.body),
                properties=encode(properties),
                flag=header.flag,
                born_timestamp=header.born_timestamp,
                born_host=connection.peer,
                store_host=self.state.messages.host,
                reconsume_times=header.reconsume_times or 0,
            )
            try:
                receipt = (await self.state.writer.put(message)).receipt
                answer = answer.but(msg_id=receipt.message_id, queue_offset=receipt.queue_offset)
            except (StoreError, FlushFailed) as error:
                self._log.warn("A reply message was not stored: {error}", error=error)
        code = ResponseCode.SYSTEM_ERROR if fault else ResponseCode.SUCCESS
        return command.answer(code, fault or None, answer)

    async def _push(
        self,
        connection: RemotingProtocol,
        command: Command,
        header: SendMessageRequest,
        queue_id: int,
        properties: dict[str, str],
    ) -> str:
        """326: give it to the client.

        @return: What went wrong, or C{""}.
        """
        client = properties.get(REPLY_CLIENT)
        if not client:
            return f"reply message properties[{REPLY_CLIENT}] is null"
        member = self.state.producers.client(client)
        if (
            member is None
            or not member.connection.opened
            or not self.may_see(member, (header.topic, SUB))
        ):
            return f"push reply message fail, channel of <{client[:256]}> not found."
        now = self.admission.now_ms()
        host, port = self.state.messages.host
        told = PushReplyRequest(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode(properties | {REPLY_ARRIVED: str(now)}).decode(),
            reconsume_times=header.reconsume_times or 0,
            unit_mode=header.unit_mode,
            born_host=connection.address,
            store_host=f"{host}:{port}",
            store_timestamp=now,
        )
        request = Command.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, told, bytes(command.body)
        )
        try:
            taken = await member.connection.request(request, PATIENCE)
        except (RmqhaError, ConnectionLost):
            return f"push reply message to {client[:256]}fail."
        if taken.code != ResponseCode.SUCCESS:
            return f"push reply message to {client[:256]}fail."
        return ""
