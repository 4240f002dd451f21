"""Questions that clients answer: 307, 309 and 223 are passed on to them.

Source: docs/protocol/remoting.md, Requests to clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from rmqha.broker.access.needs import CHANGES, READS, Stated
from rmqha.broker.clients.registry import Member
from rmqha.broker.sending.transactions import offset_in
from rmqha.broker.state import BrokerState
from rmqha.errors import RemotingTimeout, RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.offsets import ConsumerStatus
from rmqha.wire.remoting.codes import V3_0_7, V3_1_8, RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.admin import TopicGroupRequest
from rmqha.wire.remoting.headers.clients import ConsumeDirectlyRequest, RunningInfoRequest
from rmqha.wire.remoting.headers.offsets import ConsumerStatusRequest

PATIENCE = 10.0
"""Seconds a client has to answer."""

STATUS_PATIENCE = 5.0
"""The same for its offsets."""


@define(eq=False)
class Forwarding:
    """Passes questions on."""

    state: BrokerState

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: (READS, self.running_info),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: (CHANGES, self.consume),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (READS, self.status),
        }

    def running_info(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """307: what a consumer is doing."""
        header = from_ext(RunningInfoRequest, command.ext)
        return self._pass(command, header.consumer_group, header.client_id, dict(command.ext), b"")

    def consume(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """309: have a consumer take one message now, and say how it went."""
        header = from_ext(ConsumeDirectlyRequest, command.ext)
        text = header.msg_id or ""
        record = self.state.lookup.claimed(offset_in(text))
        if record is None:
            raise _wrong(f"no message has the id {text[:64]!r}")
        body = bytes(self.state.store.log.read(record.offset, record.size))
        ext = command.ext | {"brokerName": self.state.name}
        return self._pass(command, header.consumer_group, header.client_id or "", ext, body)

    def _pass(
        self, command: Command, group: str, client_id: str, ext: dict[str, str], body: bytes
    ) -> Deferred[Answer]:
        who = f"<{group[:256]}> <{client_id[:256]}>"
        member = next(iter(self._members(group, client_id)), None)
        if member is None:
            raise _wrong(f"The Consumer {who} not online")
        _check_version(member, V3_1_8)
        request = Command(code=command.code, ext=ext, body=body)

        def answered(theirs: Command) -> Answer:
            answer = command.answer(theirs.code, theirs.remark, body=theirs.body)
            answer.ext = theirs.ext
            return answer

        def failed(failure: Failure) -> Answer:
            failure.trap(RemotingTimeout, ConnectionLost)
            raise RequestRefused(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer {who} Timeout: {failure.getErrorMessage()}",
            )

        return member.connection.request(request, PATIENCE).addCallbacks(answered, failed)

    def status(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """223: the offsets each consumer of a group stands at."""
        header = from_ext(ConsumerStatusRequest, command.ext)
        members = self._members(header.group, header.client_addr or "")
        if not members:
            raise _wrong(f"No Any Consumer online in the consumer group: [{header.group[:256]}]")
        for member in members:
            _check_version(member, V3_0_7)
        question = TopicGroupRequest(topic=header.topic, group=header.group)
        asked = [
            member.connection.request(
                Command.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question),
                STATUS_PATIENCE,
            ).addCallback(_offsets)
            for member in members
        ]

        def answered(results: list[tuple[bool, Any]]) -> Answer:
            # Who does not answer is left out.
            table = {
                member.client_id: offsets
                for member, (told, offsets) in zip(members, results, strict=True)
                if told
            }
            return command.answer(body=json_body.write(ConsumerStatus(consumer_table=table)))

        return DeferredList(asked, consumeErrors=True).addCallback(answered)

    def _members(self, group: str, client_id: str) -> list[Member]:
        found = self.state.consumers.group(group)
        members = [] if found is None else reversed(list(found.members.values()))
        return [
            member
            for member in members
            if member.connection.opened and client_id in ("", member.client_id)
        ]


def _offsets(answer: Command) -> dict[MessageQueue, int]:
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, answer.remark)
    return json_body.read(ConsumerStatus, answer.body).message_queue_table


def _check_version(member: Member, least: int) -> None:
    if member.version < least:
        raise _wrong(
            f"the client {member.client_id[:256]} does not support this feature. "
            f"version={member.version}"
        )


def _wrong(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
