"""Messages for the tests of L{rmqha.wire}, and a short way to store one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rmqha.wire.log.encode import MAX_TOPIC_V2, encode, place
from rmqha.wire.log.record import Message

MAX_MESSAGE = 4 * 1024 * 1024
"""The stock C{maxMessageSize}, in bytes."""

PLAIN = Message(
    topic="TopicA",
    queue_id=3,
    body=b"hello",
    flag=7,
    born_timestamp=1_700_000_000_000,
    born_host=("10.1.2.3", 40001),
    store_host=("10.9.8.7", 10911),
    reconsume_times=2,
)
"""What the stock vectors have in common."""

_signed_32 = st.integers(-(1 << 31), (1 << 31) - 1)
_signed_64 = st.integers(-(1 << 63), (1 << 63) - 1)
_hosts = st.tuples(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535)
)
_short = st.text(min_size=1, max_size=40)
_long = st.integers(128, MAX_TOPIC_V2).map("t".__mul__)


def messages(**fixed: Any) -> st.SearchStrategy[Message]:
    """Every kind of message: short and long topics, either kind of address, any numbers."""
    usual: dict[str, Any] = {
        "topic": st.one_of(_short, _long),
        "queue_id": _signed_32,
        "body": st.binary(max_size=300),
        "properties": st.binary(max_size=300),
        "flag": _signed_32,
        "sys_flag": _signed_32,
        "born_timestamp": _signed_64,
        "born_host": _hosts,
        "store_host": _hosts,
        "reconsume_times": _signed_32,
        "prepared_transaction_offset": _signed_64,
    }
    return st.builds(Message, **(usual | fixed))


def stored(
    message: Message, *, queue_offset: int = 0, offset: int = 0, store_timestamp: int = 0
) -> bytes:
    """The bytes of a record at its place."""
    record = encode(message, max_message_size=MAX_MESSAGE)
    place(record, queue_offset=queue_offset, offset=offset, store_timestamp=store_timestamp)
    return bytes(record)
