"""Offsets of queues and of groups, in messages.

Source: docs/protocol/remoting.md, Offsets.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header, Long
from rmqha.wire.remoting.headers.admin import TopicGroupRequest


class QueueRequest(Header):
    """Codes 31 and 32: a queue's first offset, or the store time of its first message."""

    topic: str
    queue_id: int


class GroupQueueRequest(Header):
    """What names a queue that a group consumes."""

    consumer_group: str
    topic: str
    queue_id: int


class QueryConsumerOffsetRequest(GroupQueueRequest):
    """Code 14.

    @ivar set_zero_if_not_found: False asks for "not found" where 0 would be guessed; 5.x.
    """

    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequest(GroupQueueRequest):
    """Code 15: a consumer commits its offset in a queue."""

    commit_offset: Long


class ConsumerOffsetsRequest(Header):
    """Code 43, the fields of a slave of ours; a stock slave sends none, a stock master looks at
    none.

    @ivar offsets_since: The version of the table that it has, as an answer named it; empty if it
        has none.
    @ivar wait_millis: How long it waits for a newer one.
    """

    offsets_since: str | None = None
    wait_millis: int | None = None


WHOLE = ConsumerOffsetsRequest(offsets_since="")
"""Asks for all consumer offsets, for their version, and for where idle queues go on."""


class ConsumerOffsetsAnswer(Header):
    """Answers code 43 for such a slave.

    @ivar offsets_version: Which version of the table the slave has then.
    @ivar changes_only: Whether the body has only what changed since the version it named.
    @ivar keys_gone: Whether groups' offsets in a topic were deleted since, which are not in it.
    """

    offsets_version: str | None = None
    changes_only: bool | None = None
    keys_gone: bool | None = None


class SearchOffsetRequest(QueueRequest):
    """Code 29: the offset for a store time.

    @ivar timestamp: In milliseconds since the epoch.
    @ivar boundary_type: C{lower} or C{upper}; 5.x.
    """

    timestamp: Long
    boundary_type: str | None = None


class MaxOffsetRequest(QueueRequest):
    """Code 30: where a queue ends."""

    committed: bool | None = None


class OffsetAnswer(Header):
    """Answers codes 14, 29, 30 and 31."""

    offset: Long


class StoreTimeAnswer(Header):
    """Answers code 32.

    @ivar timestamp: In milliseconds since the epoch, -1 for an empty queue.
    """

    timestamp: Long


class ResetOffsetPush(TopicGroupRequest):
    """Code 220: tell a consumer its new offsets, which are in the body."""

    timestamp: Long
    is_force: bool


class ResetOffsetRequest(ResetOffsetPush):
    """Code 222: set a group's offsets to a time.

    @ivar timestamp: In milliseconds since the epoch, -1 for the end.
    @ivar is_force: Whether offsets may grow.
    @ivar queue_id: One queue only, -1 for all; 5.x.
    @ivar offset: Instead of a time; 5.x.
    """

    queue_id: int = -1
    offset: Long | None = None


class ConsumerStatusRequest(TopicGroupRequest):
    """Code 223: the offsets a group's clients stand at.

    @ivar client_addr: A client id; absent for all.
    """

    client_addr: str | None = None
