"""RocketMQ's own names: topics, consumer groups, and properties of messages.

A name means the same on the wire, in a log and in a table, so all who know one take it from
here; what a broker or a reader does about it is its own affair.

Source: docs/protocol/remoting.md, Tables and Sending; docs/protocol/store.rst, Properties.
"""

from __future__ import annotations

# --- topics -------------------------------------------------------------------

RETRY_PREFIX = "%RETRY%"
"""Of the topic in which a group's messages come again."""

DLQ_PREFIX = "%DLQ%"
"""Of the topic in which those end that came too often."""

TEMPLATE_TOPIC = "TBW102"
"""The topic others are made after, where topics may be made by sending to them."""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Where delayed messages wait, one queue a level."""

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Where messages of 5.x brokers wait that name the time of their delivery."""

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
"""Of the topic to which stock brokers copy check points of POP that are due; the cluster's name is
behind it."""

SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_DONE_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
HALF_GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where half messages wait, where it is noted that they were ended, and where those go whose
producer does not answer."""

SYSTEM_TOPICS = frozenset(
    {
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        HALF_DONE_TOPIC,
        HALF_GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics that are not a user's, on every broker."""

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
"""Of those that 5.x brokers have besides."""

BROKERS_TOPIC_PREFIX = "RMQ_SYS_"
"""Of topics that brokers make by themselves."""


def is_system_topic(topic: str) -> bool:
    """Whether a topic is a broker's own."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


# --- consumer groups ----------------------------------------------------------

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
"""Of groups brokers consume with; they may always be made."""

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets say how far the half messages are done with."""

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offsets say which check points of the revive topic are done with: the last of
them, not the next."""

TOOLS_GROUP = "TOOLS_CONSUMER"
"""The group that tools read with."""

TOOLS_PRODUCER = "TOOLS_PRODUCER"
"""The one they send with, which no broker has to know."""

PRESET_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
"""Groups that are there from the start."""

# --- properties of messages ---------------------------------------------------

TAGS = "TAGS"
KEYS = "KEYS"
UNIQUE_KEY = "UNIQ_KEY"
"""What dispatch reads: the tags, the keys with blanks between them, and the id that the
producer gave the message."""

BORN_TIMESTAMP = "BORN_TIMESTAMP"
"""When a message that a broker makes by itself was made, in milliseconds since 1970."""

CHECK_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
"""By it a producer puts off the first question about its transaction."""
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
"""Tells a producer how often it was asked."""
CLUSTER = "CLUSTER"
CRC = "__CRC32#"
"""The CRC of the record before it, which 5.x brokers write if they are told to."""
DELAY = "DELAY"
"""The delay level."""
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
FIRST_POP_TIME = "1ST_POP_TIME"
"""When a message that comes again was handed out for the first time."""
POP_HANDLE = "POP_CK"
"""By what a consumer names a message that it was handed."""
PRODUCER_GROUP = "PGROUP"
REAL_QUEUE = "REAL_QID"
REAL_TOPIC = "REAL_TOPIC"
"""Where a message goes that waits elsewhere."""
REPLY_ARRIVED = "PUSH_REPLY_TIME"
"""Tells who waits for a reply when it came by its broker, in milliseconds since 1970."""
REPLY_CLIENT = "REPLY_TO_CLIENT"
"""Names the client who waits for a reply."""
RETRY_TOPIC = "RETRY_TOPIC"
"""The topic a message had before it went to a retry topic."""
TIMER_OUT = "TIMER_OUT_MS"
"""When a message in L{TIMER_TOPIC} is due, in milliseconds since 1970."""
TRANSACTION_PREPARED = "TRAN_MSG"
WAIT = "WAIT"
"""Whether a producer waits for the flush and the replicas; so it is without it."""

TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER = (
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
)
TIMER_PROPERTIES = frozenset({TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER})
"""What a 5.x client says of a message that is to be delivered at a time of its own choice; the
first one counts.  Stock 4.9 brokers take no notice and deliver it at once."""

TIMER_ENQUEUED, TIMER_DEQUEUED, TIMER_ROLLS = (
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
)
"""What a broker says of a timer message that has waited: since when, until when, and how often it
was stored anew meanwhile."""

TIMER_CANCELS = "TIMER_DEL_UNIQKEY"
"""Names the timer message that this one cancels: its topic, a plus, and its L{UNIQUE_KEY}."""

MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION")
"""The kinds of messages that 5.x lets a topic be for."""
