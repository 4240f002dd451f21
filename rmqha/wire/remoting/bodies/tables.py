"""The tables of topics and groups, on the wire and in C{config/*.json}.

What releases put into an entry that we do not know is kept in C{extra} and written back, if it
comes with a table; what comes with a request is a client's word, and is not.  Source:
docs/protocol/remoting.md, Tables.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from attrs import field, frozen

from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.json_body import SPARE

READ, WRITE, INHERIT = 4, 2, 1
"""The bits of a topic's C{perm}."""

LATER = {SPARE: True}
"""Says of an attribute that 5.x added it; C{None} is where nothing is said of it."""


@frozen(kw_only=True)
class TopicConfig:
    """A topic on a broker.

    @ivar perm: Bits: 4 read, 2 write, 1 inherit.
    @ivar topic_filter_type: C{SINGLE_TAG} or C{MULTI_TAG}.
    @ivar topic_sys_flag: Bits: 1 unit, 2 subscribed by units.
    @ivar attributes: 5.x; C{None} where the release has none.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = READ | WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = field(default=None, metadata=LATER)
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class TopicTable:
    """Answers code 21, is part of a registration, and is C{topics.json}."""

    topic_config_table: dict[str, TopicConfig] = field(factory=dict)
    data_version: DataVersion = field(factory=DataVersion)
    extra: dict[str, Any] = field(factory=dict)


DELETED_MEMBER = "deletedTopics"
"""Our own member of L{TopicTable}, for slaves of ours alone: of each topic that was deleted the
C{end}, a physical offset, and C{queues}, the queue offsets just past what they had."""


@frozen(kw_only=True)
class TopicConfigList:
    """Code 18: topics to be made or changed."""

    topic_config_list: tuple[TopicConfig, ...] = ()


class RetryPolicyKind(IntEnum):
    """Which of its two policies a group follows."""

    EXPONENTIAL = 0
    CUSTOMIZED = 1


@frozen(kw_only=True)
class ExponentialRetryPolicy:
    """The first and the longest pause before a retry, in milliseconds, and what each is multiplied
    by.
    """

    initial: int = 5000
    max: int = 7_200_000
    multiplier: int = 2


@frozen(kw_only=True)
class CustomizedRetryPolicy:
    """The pauses before retries, in milliseconds."""

    next: tuple[int, ...] = ()


@frozen(kw_only=True)
class GroupRetryPolicy:
    """When 5.x's consumers by POP are given a message again; nothing here follows it."""

    type: RetryPolicyKind = RetryPolicyKind.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@frozen(kw_only=True)
class SimpleSubscription:
    """What a group of 5.x wants of a topic."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: int = 0


@frozen(kw_only=True)
class GroupConfig:
    """A consumer group on a broker; code 200.  What 5.x added is kept for its peers; nothing here
    goes by it.

    @ivar which_broker_when_consume_slowly: The id of the broker that slow readers go to.
    @ivar consume_timeout_minute: Minutes for one message.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = field(default=None, metadata=LATER)
    consume_timeout_minute: int | None = field(default=None, metadata=LATER)
    group_retry_policy: GroupRetryPolicy | None = field(default=None, metadata=LATER)
    group_sys_flag: int | None = field(default=None, metadata=LATER)
    subscription_data_set: tuple[SimpleSubscription, ...] | None = field(
        default=None, metadata=LATER
    )
    attributes: dict[str, str] | None = field(default=None, metadata=LATER)
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class GroupTable:
    """Answers code 201, and is C{subscriptionGroup.json}."""

    subscription_group_table: dict[str, GroupConfig] = field(factory=dict)
    data_version: DataVersion = field(factory=DataVersion)
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class GroupConfigList:
    """Code 225: groups to be made or changed."""

    group_config_list: tuple[GroupConfig, ...] = ()


@frozen(kw_only=True)
class TopicList:
    """Answers codes 206, 224, 304, 305, 311 to 313 and 343.

    @ivar broker_addr: C{ip:port} of some master, in answers of 304.
    """

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


@frozen(kw_only=True)
class GroupList:
    """Answers code 300: the groups that consume a topic."""

    group_list: tuple[str, ...] = ()
