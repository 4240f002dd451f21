"""Clients: heartbeats, who is there, and locks on queues.

Source: docs/protocol/remoting.md, Clients.
"""

from __future__ import annotations

from enum import IntEnum

from attrs import field, frozen

from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.fields import ext


class ConsumeType(IntEnum):
    """Who asks: the application, or the client for it."""

    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = 1
    CONSUME_POP = 2


class MessageModel(IntEnum):
    """Whether each member of a group gets all messages, or its share."""

    BROADCASTING = 0
    CLUSTERING = 1


class ConsumeFromWhere(IntEnum):
    """Where a group without offsets starts."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


@frozen(kw_only=True)
class SubscriptionData:
    """What a group wants of one topic.

    @ivar sub_string: The expression; empty or C{*} is everything.
    @ivar sub_version: Grows with every change; of the client's own making.
    @ivar tags_set: The tags of a tag expression.
    @ivar code_set: Their hashes, by the client; Go's are wrong outside ASCII.
    @ivar expression_type: C{TAG} or C{SQL92}; empty or absent means C{TAG}.
    """

    topic: str
    sub_string: str = ""
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


@frozen(kw_only=True)
class ConsumerData:
    """One group a client consumes in."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@frozen(kw_only=True)
class ProducerData:
    """One group a client sends in."""

    group_name: str


@frozen(kw_only=True)
class HeartbeatData:
    """Code 34.

    @ivar heartbeat_fingerprint: 0 in a whole heartbeat.
    @ivar without_sub: Whether the subscriptions were left out; only by those who were told
        that they may.
    """

    client_id: str = ext("clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


@frozen(kw_only=True)
class ConsumerIds:
    """Answers code 38: ids of a consumer group's clients."""

    consumer_id_list: tuple[str, ...] = ()


@frozen(kw_only=True)
class QueueLocks:
    """Codes 41 and 42.

    @ivar only_this_broker: 5.x.
    """

    client_id: str
    consumer_group: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool | None = None


@frozen(kw_only=True)
class LockedQueues:
    """Answers code 41: the queues that are the client's now."""

    locked: tuple[MessageQueue, ...] = ext("lockOKMQSet", ())


@frozen(kw_only=True)
class CheckClientConfig:
    """Code 46: a client has its subscription checked."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


@frozen(kw_only=True)
class Connection:
    """A client of a group.

    @ivar client_addr: C{ip:port}.
    @ivar language: A name of L{LanguageCode<rmqha.wire.remoting.codes.LanguageCode>}.
    """

    client_id: str
    client_addr: str
    language: str
    version: int


@frozen(kw_only=True)
class ConsumerConnection:
    """Answers code 203: a consumer group's clients, and how they consume."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = field(factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@frozen(kw_only=True)
class ProducerConnection:
    """Answers code 204: a producer group's clients."""

    connection_set: tuple[Connection, ...] = ()


@frozen(kw_only=True)
class ProducerInfo:
    """A producer, as code 328 tells it.

    @ivar remote_ip: C{/ip:port}, with the slash.
    @ivar last_update_timestamp: Its last heartbeat, in milliseconds since the epoch.
    """

    client_id: str
    remote_ip: str = ext("remoteIP")
    language: str
    version: int
    last_update_timestamp: int


@frozen(kw_only=True)
class ProducerTable:
    """Answers code 328: producers by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = field(factory=dict)


@frozen(kw_only=True)
class SubscriptionAnswer:
    """Answers code 345: a group's subscription to a topic."""

    topic: str
    group: str
    subscription_data: SubscriptionData | None = None
