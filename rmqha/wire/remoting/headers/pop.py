"""POP: a broker hands out single messages, and takes back what is not acknowledged in time.

What is absent counts as 0, false or empty; stock brokers refuse none of these requests for it.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header, Long, ext
from rmqha.wire.remoting.headers.offsets import GroupQueueRequest


class PollingInfoRequest(Header):
    """Code 200055: how many wait for messages of a queue."""

    consumer_group: str = ""
    topic: str = ""
    queue_id: int = 0


class PopMessageRequest(PollingInfoRequest):
    """Code 200050.

    @ivar queue_id: -1 is any queue of the topic.
    @ivar invisible_time: How many milliseconds the messages are nobody else's.
    @ivar poll_time: How many milliseconds it may wait for a message.
    @ivar born_time: When it was sent, in milliseconds since 1970; 0 is now.
    @ivar init_mode: Where a group begins that has no offset: 0 at the first message, 1 at the last.
    @ivar expression_type: C{TAG} or C{SQL92}.
    @ivar attempt_id: What a consumer asks again by that got no answer; of ordered messages.
    """

    max_msg_nums: int = 0
    invisible_time: Long = 0
    poll_time: Long = 0
    born_time: Long = 0
    init_mode: int = 0
    expression_type: str = ext("expType", default="")
    expression: str = ext("exp", default="")
    order: bool = False
    attempt_id: str = ""


class PopMessageAnswer(Header):
    """Goes with codes 0 and 210, and with refusals.

    @ivar pop_time: When the messages were handed out, in milliseconds since 1970.
    @ivar revive_queue: Where their check points go.
    @ivar rest: How many more there are.
    @ivar start_offsets: For each queue with messages kind of topic, queue id and where reading
        began.
    @ivar offsets: The same with the messages' queue offsets.
    @ivar order_counts: How often ordered messages were handed out before.
    """

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_queue: int = ext("reviveQid", default=0)
    rest: Long | None = ext("restNum", default=0)
    start_offsets: str | None = ext("startOffsetInfo", default=None)
    offsets: str | None = ext("msgOffsetInfo", default=None)
    order_counts: str | None = ext("orderCountInfo", default=None)


class AckMessageRequest(GroupQueueRequest):
    """Code 200051.

    @ivar topic: Where the message is, which may be a retry topic.
    @ivar handle: What the consumer was given with it.
    """

    handle: str = ext("extraInfo")
    offset: Long


class ChangeInvisibleTimeRequest(AckMessageRequest):
    """Code 200053.

    @ivar invisible_time: How many milliseconds from now the message is nobody else's.
    """

    invisible_time: Long


class PeekMessageRequest(PollingInfoRequest):
    """Code 200052."""

    max_msg_nums: int = 0


class NotificationRequest(PollingInfoRequest):
    """Code 200054: wait until there is something to pop."""

    poll_time: Long = 0
    born_time: Long = 0
    order: bool = False
    attempt_id: str = ""


class NotificationAnswer(Header):
    """Whether there is something, and whether too many wait already."""

    has_msg: bool
    polling_full: bool


class PollingInfoAnswer(Header):
    """How many wait."""

    polling_num: int
