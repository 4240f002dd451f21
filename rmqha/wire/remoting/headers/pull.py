"""Reading messages: pulls, and look-ups by key and by offset.

Source: docs/protocol/remoting.md, Pulling.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header, Long, ext
from rmqha.wire.remoting.headers.offsets import GroupQueueRequest, QueueRequest


class PullMessageRequest(GroupQueueRequest):
    """Codes 11 and 361.

    @ivar queue_offset: The first one wanted, in messages.
    @ivar sys_flag: Bits: 1 commits C{commit_offset}, 2 may wait, 4 brings a subscription,
        8 wants class filters, 16 is a lite pull.
    @ivar commit_offset: In messages.
    @ivar suspend_timeout_millis: How long it may wait for a message.
    @ivar subscription: An expression; used with bit 4.
    @ivar sub_version: Which of the group's subscriptions is meant.
    @ivar expression_type: C{TAG} or C{SQL92}; absent or empty means C{TAG}.
    @ivar max_msg_bytes: Most bytes wanted; 5.x only.
    """

    queue_offset: Long
    max_msg_nums: int
    sys_flag: int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: int | None = None


class PullMessageAnswer(Header):
    """Goes with codes 0, 19, 20 and 21; offsets are in messages.

    @ivar suggest_which_broker_id: Where to pull next time; 0 is the master.
    @ivar next_begin_offset: Where to go on from.
    @ivar offset_delta: 5.x only, as are the flags behind it.
    """

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


class QueryMessageRequest(Header):
    """Code 12: messages by key and time.

    @ivar begin_timestamp: In milliseconds since the epoch, as the end.
    @ivar unique_key_query: Whether the key is a message's own id.
    """

    topic: str
    key: str
    max_num: int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool = ext("_UNIQUE_KEY_QUERY", default=False)


class QueryMessageAnswer(Header):
    """How far the index is."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequest(Header):
    """Code 33.

    @ivar offset: Physical offset of the message, in bytes.
    """

    offset: Long
    topic: str | None = None


class QueryConsumeQueueRequest(QueueRequest):
    """Code 321: units of a consume queue, from an index on."""

    index: Long
    count: int
    consumer_group: str | None = None
