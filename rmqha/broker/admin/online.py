"""Who is connected: requests 203, 204 and 328.

Source: docs/protocol/remoting.md, Clients.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from rmqha.broker.access.needs import TELLS_ALL, Stated, reads
from rmqha.broker.clients.registry import Group, Member
from rmqha.broker.state import BrokerState
from rmqha.errors import RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.clients import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.clients import ConsumerGroupRequest, ProducerGroupRequest


@define(eq=False)
class Online:
    """Answers about clients."""

    state: BrokerState

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: (
                reads(groups="consumerGroup"),
                self.consumer_group,
            ),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: (TELLS_ALL, self.producer_group),
            RequestCode.GET_ALL_PRODUCER_INFO: (TELLS_ALL, self.all_producers),
        }

    def consumer_group(self, connection: RemotingProtocol, command: Command) -> Answer:
        """203: a group's consumers, and what they want."""
        name = from_ext(ConsumerGroupRequest, command.ext).consumer_group
        group = self.state.consumers.group(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name[:256]}] not online"
            )
        body = ConsumerConnection(
            connection_set=_connections(group),
            subscription_table={topic: wish.data for topic, wish in group.subscriptions().items()},
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return command.answer(body=json_body.write(body))

    def producer_group(self, connection: RemotingProtocol, command: Command) -> Answer:
        """204: the connections of a producer group."""
        name = from_ext(ProducerGroupRequest, command.ext).producer_group
        group = self.state.producers.group(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{name[:256]}] not exist"
            )
        body = ProducerConnection(connection_set=_connections(group))
        return command.answer(body=json_body.write(body))

    def all_producers(self, connection: RemotingProtocol, command: Command) -> Answer:
        """328: all producers by group."""
        data = {
            group.name: tuple(self._info(member) for member in group.members.values())
            for group in self.state.producers
        }
        return command.answer(body=json_body.write(ProducerTable(data=data)))

    def _info(self, member: Member) -> ProducerInfo:
        ago = self.state.clock.seconds() - member.seen
        return ProducerInfo(
            client_id=member.client_id,
            remote_ip=f"/{member.connection.address}",
            language=member.language.name,
            version=member.version,
            last_update_timestamp=self.state.now_ms() - int(ago * 1000),
        )


def _connections(group: Group) -> tuple[Connection, ...]:
    return tuple(
        Connection(
            client_id=member.client_id,
            client_addr=member.connection.address,
            language=member.language.name,
            version=member.version,
        )
        for member in group.members.values()
    )
