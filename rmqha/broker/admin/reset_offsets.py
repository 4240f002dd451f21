"""Moving a group to another time: request 222 from an administrator, 220 to the consumers.

The broker only works out where to; its consumers stop, move and commit.  If none is there, 4.9's
tool commits itself, of a group that has consumed something, while 5.x's leaves it to the broker;
as all do for a group that is to begin somewhere.

Source: docs/protocol/remoting.md, Offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define

from rmqha.broker.access.needs import CHANGES, Stated
from rmqha.broker.clients.registry import Member
from rmqha.broker.state import BrokerState
from rmqha.errors import RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.offsets import ResetOffsets
from rmqha.wire.remoting.codes import V3_0_7, LanguageCode, RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.offsets import ResetOffsetPush, ResetOffsetRequest

TO_END = -1
"""The time that means the end of the queue."""


@define(eq=False)
class Resets:
    """Works out offsets and tells consumers.

    @ivar pops: Whether a group is handed the messages of a topic.
    """

    state: BrokerState
    pops: Callable[[str, str], bool] = lambda group, topic: False

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (CHANGES, self.reset)}

    def reset(self, connection: RemotingProtocol, command: Command) -> Answer:
        """222: have a group's consumers move."""
        header = from_ext(ResetOffsetRequest, command.ext)
        table = ResetOffsets(
            offset_table={
                MessageQueue(self.state.name, queue_id, header.topic): self._target(
                    header, queue_id
                )
                for queue_id in self._queues(header)
            }
        )
        if self.state.groups.find(header.group) is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"the consumer group[{header.group[:256]}] not exist",
            )
        group = self.state.consumers.group(header.group)
        members = [] if group is None else list(group.members.values())
        tool_commits = "queueId" not in command.ext
        popped = self.pops(header.group, header.topic)
        if popped:
            # Their consumers have no positions to move: the broker has.
            self._commit(header.group, table, connection.address)
        elif members or (tool_commits and self.state.offsets.queues(header.group, header.topic)):
            self._push(header, table, members)
        else:
            self._commit(header.group, table, connection.address)
        return command.answer(body=json_body.write(table))

    def _commit(self, group: str, table: ResetOffsets, who: str) -> None:
        for queue, offset in table.offset_table.items():
            self.state.offsets.commit(group, queue.topic, queue.queue_id, offset, who)

    def _queues(self, header: ResetOffsetRequest) -> range:
        config = self.state.topics.get(header.topic)
        if config is None:
            raise _wrong(
                "[reset-offset] reset offset failed, no topic in this broker. "
                f"topic={header.topic[:256]}"
            )
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if header.queue_id < 0:
            return range(queues)
        if header.queue_id >= queues:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"topic {header.topic} has no queue {header.queue_id}",
            )
        return range(header.queue_id, header.queue_id + 1)

    def _target(self, header: ResetOffsetRequest, queue_id: int) -> int:
        topic = header.topic
        now = self.state.offsets.get(header.group, topic, queue_id)
        first, end = self.state.lookup.bounds(topic, queue_id) or (0, 0)
        if header.queue_id >= 0 and header.offset is not None and header.offset >= 0:
            return min(max(first, header.offset), end)
        at_end = header.timestamp == TO_END
        target = end if at_end else self.state.lookup.by_time(topic, queue_id, header.timestamp)
        return target if now is None or header.is_force or target < now else now

    def _push(self, header: ResetOffsetRequest, table: ResetOffsets, members: list[Member]) -> None:
        """220: tell all consumers, each in the form it reads."""
        if not members:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group[:256]} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        for member in members:
            if member.version < V3_0_7:
                raise _wrong(f"the client does not support this feature. version={member.version}")
        told = ResetOffsetPush(
            topic=header.topic,
            group=header.group,
            timestamp=header.timestamp,
            is_force=header.is_force,
        )
        plain = json_body.write(table)
        for member in members:
            cpp = member.language is LanguageCode.CPP
            body = json_body.write(table.for_c()) if cpp else plain
            member.connection.oneway(
                Command.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body)
            )


def _wrong(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
