"""What a producer is given of a message that waits, to recall it by.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Self

from attrs import frozen

from rmqha.errors import RequestRefused
from rmqha.wire.names import REAL_TOPIC, TIMER_OUT, UNIQUE_KEY
from rmqha.wire.remoting.codes import ResponseCode

_VERSION = "v1"


@frozen
class RecallHandle:
    """A message that waits.

    @ivar due: A time of its slot that is its own, in milliseconds since 1970.
    @ivar key: What its producer calls it.
    """

    topic: str
    broker: str
    due: int
    key: str

    @classmethod
    def of(cls, broker: str, properties: Mapping[str, str]) -> Self:
        """The handle of a message that a broker has taken."""
        due, key = int(properties[TIMER_OUT]) + 1, properties.get(UNIQUE_KEY, "")
        return cls(properties[REAL_TOPIC], broker, due, key)

    def encode(self) -> str:
        """It as text."""
        text = f"{_VERSION} {self.topic} {self.broker} {self.due} {self.key}"
        return urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read one.

        @raise RequestRefused: If it is none.
        """
        try:
            version, topic, broker, due, key = urlsafe_b64decode(text).decode().split(" ")[:5]
            if version == _VERSION and key and due.isascii() and due.isdigit() and len(due) < 19:
                return cls(topic, broker, int(due), key)
        except ValueError:
            pass
        raise RequestRefused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
