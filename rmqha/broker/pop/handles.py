"""What a consumer names a message by that it was handed, and where messages come again.

Source: docs/protocol/remoting.md, POP.
"""

from __future__ import annotations

from typing import Self

from attrs import frozen

from rmqha.errors import RequestRefused
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting.codes import ResponseCode

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
"""The kinds of topics that messages are handed out of."""

REVIVE_QUEUES = 8
"""How many queues the revive topic has."""

ORDERED = 999
"""The revive queue of ordered messages, which have no check point."""

_LEAST_FIELDS = 6

_DIGITS = 19
"""Most digits of a number of 64 bits."""


def retry_topic(group: str, topic: str, kind: str) -> str:
    """Where the messages of a topic come again for a group."""
    return f"{RETRY_PREFIX}{group}{'+' if kind == RETRY_V2 else '_'}{topic}"


@frozen(kw_only=True)
class PopHandle:
    """A message that was handed out.

    @ivar kind: Of which kind its topic is.
    """

    start: int
    pop_time: int
    invisible: int
    revive_queue: int
    kind: str
    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        head = f"{self.start} {self.pop_time} {self.invisible} {self.revive_queue}"
        return f"{head} {self.kind} {self.broker} {self.queue_id} {self.offset}"

    @classmethod
    def decode(cls, text: str, queue_id: int, offset: int) -> Self:
        """Read one; proxies put more behind it.

        @param queue_id: Of the message, as the request says it.
        @param offset: The same.
        @raise RequestRefused: If it is none.
        """
        fields = text.split(" ")
        numbers = all(each.isdecimal() and len(each) <= _DIGITS for each in fields[:4])
        if len(fields) < _LEAST_FIELDS or not numbers:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"extraInfo is no handle of a message: {text[:256]!r}"
            )
        start, pop_time, invisible, revive_queue = map(int, fields[:4])
        kind, broker = fields[4:6]
        return cls(
            start=start,
            pop_time=pop_time,
            invisible=invisible,
            revive_queue=revive_queue,
            kind=kind,
            broker=broker,
            queue_id=queue_id,
            offset=offset,
        )
