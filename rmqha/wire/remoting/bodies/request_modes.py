"""How the groups of 5.x consume each topic, and which queues their members are given.

Source: docs/protocol/remoting.md, Consuming by POP.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from attrs import field, frozen

from rmqha.wire.remoting.bodies.clients import MessageModel
from rmqha.wire.remoting.bodies.common import DataVersion, MessageQueue


class RequestMode(IntEnum):
    """Whether queues are shared out among the members of a group, or single messages."""

    PULL = 0
    POP = 1


@frozen(kw_only=True)
class GroupMode:
    """Code 401, and a row of L{RequestModes}: how a group consumes a topic.

    @ivar pop_share_queue_num: With POP, of how many members after it each has the queues too; 0 or
        less: all queues are everybody's.
    """

    topic: str
    consumer_group: str
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: int = 0
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class RequestModes:
    """Answers code 402, and is C{messageRequestMode.json}: by topic and group, of those that were
    set.

    @ivar data_version: Ours: stock brokers neither write it nor look at it.
    """

    message_request_mode_map: dict[str, dict[str, GroupMode]] = field(factory=dict)
    data_version: DataVersion = field(factory=DataVersion)
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class AssignmentQuery:
    """Code 400: a client asks what it is to consume of a topic.

    @ivar strategy_name: How PULL shares queues out: C{AVG} or C{AVG_BY_CIRCLE}.
    """

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING


@frozen(kw_only=True)
class QueueAssignment:
    """A queue that a client is to consume, and how; queue id -1 stands for all of a broker's."""

    message_queue: MessageQueue
    mode: RequestMode


@frozen(kw_only=True)
class QueueAssignments:
    """Answers code 400; C{None} leaves the client with what it has."""

    message_queue_assignments: tuple[QueueAssignment, ...] | None = None
