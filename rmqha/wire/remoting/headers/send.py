"""Sending: messages, batches, replies, and messages that come back from a consumer.

Source: docs/protocol/remoting.md, Sending.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header, Long, ext, lettered


class SentMessage(Header):
    """What is said of a message besides its body.

    @ivar topic: May be a retry topic.
    @ivar default_topic: The topic a new one is made after.
    @ivar default_topic_queue_nums: Queues wanted for a new topic.
    @ivar queue_id: Negative to let the broker choose.
    @ivar sys_flag: See docs/protocol/store.rst, Records.
    @ivar flag: The sender's own.
    @ivar properties: A property string.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: Long
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool = False


class SendMessageRequest(SentMessage):
    """Codes 10 and 324.

    @ivar batch: Whether the body holds several messages; nothing else says so.
    @ivar broker_name: Whom the sender means.
    """

    max_reconsume_times: int | None = None
    batch: bool = False
    broker_name: str | None = ext("bname", default=None)


class SendMessageV2Request(SendMessageRequest, field_transformer=lettered):
    """Codes 310, 320 and 325: the same with one letter a field."""


class SendMessageAnswer(Header):
    """Where a message, or the first of a batch, went.

    @ivar msg_id: Its offset id; those of a batch with commas between.
    @ivar queue_offset: In messages.
    @ivar batch_uniq_id: 5.x only.
    @ivar recall_handle: 5.x only.
    """

    msg_id: str
    queue_id: int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str = ext("MSG_REGION", default="DefaultRegion")
    trace_on: bool = ext("TRACE_ON", default=True)


class RecallRequest(Header):
    """Code 370: a timer message is not to be delivered.

    @ivar recall_handle: What its producer was given.
    """

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallAnswer(Header):
    """Which message that is.

    @ivar msg_id: The unique key that its producer gave it.
    """

    msg_id: str
    region: str = ext("MSG_REGION", default="DefaultRegion")


class SendRefusedAnswer(Header):
    """What even an answer with an error says."""

    region: str = ext("MSG_REGION", default="DefaultRegion")
    trace_on: bool = ext("TRACE_ON", default=True)


FIRST_DELAY = 3
"""The delay level of a first retry, if its consumer does not choose one."""


class SendBackRequest(Header):
    """Code 36: a consumer could not use a message and wants it again later.

    @ivar offset: Physical offset of the message, in bytes.
    @ivar group: The consumer's group.
    @ivar delay_level: 0 lets the broker choose, negative means the dead letters.
    @ivar origin_msg_id: The message's id at its first try.
    """

    offset: Long
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None


class PushReplyRequest(SentMessage):
    """Code 326: a broker brings a reply to the one who asked.

    @ivar born_host: C{ip:port}.
    @ivar store_host: C{ip:port}.
    """

    born_host: str
    store_host: str
    store_timestamp: Long
