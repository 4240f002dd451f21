"""
What a request wants of topics and groups, and whether only an administrator may send it.

Stock brokers look into nine kinds of requests and let any account send all others, so that one
that may not send to a topic can do so with a batch.  Here batches, offsets and locks are looked
into too, and whatever changes the broker needs an administrator.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqha.broker.access.accounts import Grant
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.clients import HeartbeatData, QueueLocks
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

Wanted = Iterator[tuple[str, Grant]]
"""Topics, and groups under the names of their retry topics, with what is wanted of each."""

PUB, SUB, EITHER = Grant.PUB, Grant.SUB, Grant.EITHER


def wanted(command: Command) -> Wanted:
    """
    What a request wants.

    @raise BodyInvalid: If its body is not of its kind.
    @raise JsonInvalid: If that is no JSON.
    """
    look = _LOOKS.get(command.code)
    return iter(()) if look is None else look(command)


def _group(name: str) -> tuple[str, Grant]:
    return RETRY_PREFIX + name, SUB


def _sent(field: str) -> Callable[[Command], Wanted]:
    """
    A message: who sends it to a retry topic acts for the group.

    @param field: Where its topic stands.
    """

    def look(command: Command) -> Wanted:
        topic = command.ext.get(field, "")
        yield topic, SUB if topic.startswith(RETRY_PREFIX) else PUB

    return look


def _fields(
    *, group: str = "", topic: str = "", of_topic: Grant = SUB
) -> Callable[[Command], Wanted]:
    """
    Fields that name a group and a topic.
    """

    def look(command: Command) -> Wanted:
        if group and group in command.ext:
            yield _group(command.ext[group])
        if topic:
            yield command.ext.get(topic, ""), of_topic

    return look


def _heartbeat(command: Command) -> Wanted:
    for consumer in json_body.read(HeartbeatData, command.body).consumer_data_set:
        yield _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield subscription.topic, SUB


def _locks(command: Command) -> Wanted:
    locks = json_body.read(QueueLocks, command.body)
    yield _group(locks.consumer_group)
    for queue in locks.mq_set:
        yield queue.topic, SUB


_queue = _fields(topic="topic", of_topic=EITHER)

_LOOKS: dict[int, Callable[[Command], Wanted]] = {
    RequestCode.SEND_MESSAGE: _sent("topic"),
    RequestCode.SEND_MESSAGE_V2: _sent("b"),
    RequestCode.SEND_BATCH_MESSAGE: _sent("b"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _fields(group="group"),
    RequestCode.PULL_MESSAGE: _fields(group="consumerGroup", topic="topic"),
    RequestCode.LITE_PULL_MESSAGE: _fields(group="consumerGroup", topic="topic"),
    RequestCode.QUERY_MESSAGE: _fields(topic="topic"),
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _fields(group="consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _fields(group="consumerGroup"),
    RequestCode.QUERY_CONSUMER_OFFSET: _fields(group="consumerGroup", topic="topic"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _fields(group="consumerGroup", topic="topic"),
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _queue,
    RequestCode.GET_MAX_OFFSET: _queue,
    RequestCode.GET_MIN_OFFSET: _queue,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _queue,
}
