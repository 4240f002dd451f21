"""What clients say about themselves, and ask about each other.

Source: docs/protocol/remoting.md, Clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define, field
from twisted.logger import Logger

from rmqha.broker.access.needs import SUB, Stated, Wanted, in_group, of, reads
from rmqha.broker.clients.registry import Member
from rmqha.broker.clients.subscriptions import Subscription, require_understood, subscribe
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.topics import UNIT_SUBSCRIBED
from rmqha.errors import RequestRefused
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting.bodies.clients import (
    CheckClientConfig,
    ConsumerData,
    ConsumerIds,
    HeartbeatData,
)
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.clients import ConsumerGroupRequest, UnregisterClientRequest
from rmqha.wire.remoting.json_body import read, write
from rmqha.wire.remoting.signature import ACCESS_KEY

SWEEP = 10.0
"""Seconds between two looks for members that expired."""


def _consumers(command: Command) -> Iterator[Wanted]:
    for consumer in read(HeartbeatData, command.body).consumer_data_set:
        yield in_group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield subscription.topic, SUB


def _checked(command: Command) -> Iterator[Wanted]:
    asked = read(CheckClientConfig, command.body)
    yield in_group(asked.group)
    yield asked.subscription_data.topic, SUB


_CONSUMERS = of("SUB: topics and groups it consumes", _consumers)
_CHECKED = of("SUB: topic, group", _checked)


@define(eq=False)
class Heartbeats:
    """Keeps the tables of clients."""

    state: BrokerState
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.state.clock)

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.HEART_BEAT: (_CONSUMERS, self._heartbeat),
            RequestCode.UNREGISTER_CLIENT: (reads(groups="consumerGroup"), self._unregister),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: (reads(groups="consumerGroup"), self._list),
            RequestCode.CHECK_CLIENT_CONFIG: (_CHECKED, self._check),
        }

    def lost(self, connection: RemotingProtocol) -> None:
        """A connection has ended: its client is gone from all groups."""
        self.state.producers.lost(connection)
        for group in self.state.consumers.lost(connection):
            self._changed(group.name)

    def forget_ended(self) -> None:
        """Forget clients whose connections ended while the broker was not serving."""
        for connection in {
            *self.state.producers.connections(),
            *self.state.consumers.connections(),
        }:
            if not connection.opened:
                self.lost(connection)

    def sweep(self) -> None:
        """Forget clients that have not been heard of for long.  Their connections are left to
        the idle limit: another group of the same client may be well.
        """
        now = self.state.clock.seconds()
        self.state.producers.expire(now)
        for group in self.state.consumers.expire(now):
            self._changed(group.name)
        self._quiet.sweep()

    def _heartbeat(self, connection: RemotingProtocol, command: Command) -> None:
        heartbeat = read(HeartbeatData, command.body)
        for producer in heartbeat.producer_data_set:
            self.state.producers.heard(
                producer.group_name, self._member(connection, command, heartbeat)
            )
        for consumer in heartbeat.consumer_data_set:
            member = self._member(connection, command, heartbeat)
            self._consumes(consumer, member, keep=heartbeat.without_sub)

    def _member(
        self, connection: RemotingProtocol, command: Command, heartbeat: HeartbeatData
    ) -> Member:
        return Member(
            connection=connection,
            client_id=heartbeat.client_id,
            language=command.language,
            version=command.version,
            seen=self.state.clock.seconds(),
            account=command.ext.get(ACCESS_KEY, ""),
        )

    def _consumes(self, data: ConsumerData, member: Member, *, keep: bool) -> None:
        """@param keep: Whether the subscriptions are those of the last heartbeat."""
        name = data.group_name
        config = self.state.groups.find(name)
        if config is not None and config.retry_queue_nums > 0:
            flag = UNIT_SUBSCRIBED if data.unit_mode else 0
            self.state.topics.ensure(RETRY_PREFIX + name, config.retry_queue_nums, sys_flag=flag)
        before = self.state.consumers.group(name)
        last = None if before is None else before.members.get(member.connection)
        if keep and last is not None:
            member.subscriptions = last.subscriptions
        else:
            member.subscriptions = self._subscriptions(data, member)
        group, changed = self.state.consumers.heard(name, member)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        if changed:
            self._changed(name)

    def _subscriptions(self, data: ConsumerData, member: Member) -> dict[str, Subscription]:
        found = {}
        for asked in data.subscription_data_set:
            try:
                subscription = found[asked.topic] = subscribe(asked)
                fault = subscription.fault and str(subscription.fault)
            except RequestRefused as error:
                fault = error.remark
            if fault:
                # The rest of the heartbeat counts; pulls of this topic are told.
                self._quiet.warn(
                    "subscription",
                    member.connection.host,
                    "Ignoring a subscription of group {group} from {address}: {remark}",
                    group=data.group_name,
                    address=member.connection.address,
                    remark=fault,
                )
        return found

    def _changed(self, group: str) -> None:
        config = self.state.groups.get(group)
        if (
            self.state.settings.pull.notify
            and config is not None
            and config.notify_consumer_ids_changed_enable
        ):
            self.state.consumers.notify(group)

    def _unregister(self, connection: RemotingProtocol, command: Command) -> None:
        """The connection counts, not the client id, which another client could send too."""
        request = from_ext(UnregisterClientRequest, command.ext)
        if request.producer_group:
            self.state.producers.leave(request.producer_group, connection)
        if request.consumer_group:
            group = self.state.consumers.leave(request.consumer_group, connection)
            if group is not None:
                self._changed(group.name)

    def _list(self, connection: RemotingProtocol, command: Command) -> Command:
        name = from_ext(ConsumerGroupRequest, command.ext).consumer_group
        group = self.state.consumers.group(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name[:256]}"
            )
        return command.answer(body=write(ConsumerIds(consumer_id_list=group.client_ids())))

    def _check(self, connection: RemotingProtocol, command: Command) -> None:
        subscription = subscribe(read(CheckClientConfig, command.body).subscription_data)
        require_understood(subscription, filters=self.state.current.settings.pull.property_filter)
