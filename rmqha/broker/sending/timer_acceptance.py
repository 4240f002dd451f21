"""Which messages wait for a time of their own, until when, and what is refused.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from attrs import define

from rmqha.config.broker_settings import TimerSettings
from rmqha.errors import RequestRefused
from rmqha.wire.names import (
    REAL_QUEUE,
    REAL_TOPIC,
    TIMER_CANCELS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER,
    TIMER_OUT,
    TIMER_TOPIC,
)
from rmqha.wire.remoting.codes import ResponseCode

_NUMBER = re.compile("[+-]?[0-9]{1,18}")

OWN = (TIMER_OUT, TIMER_DELIVER, TIMER_CANCELS, REAL_TOPIC, REAL_QUEUE)
"""What a broker says of a message that waits: of a batch each message would say it by itself."""


@define(eq=False)
class TimerAcceptance:
    """Decides about messages with one of
    L{TIMER_PROPERTIES<rmqha.wire.names.TIMER_PROPERTIES>}.

    @ivar now_ms: Milliseconds since 1970.
    """

    settings: TimerSettings
    now_ms: Callable[[], int]

    def place(self, topic: str, queue_id: int, properties: dict[str, str]) -> tuple[str, int]:
        """Where a message is stored: what is not over yet waits.

        One that says C{TIMER_OUT_MS} has waited already: a consumer sends on what it got.

        @param properties: With one of those; are told when it is due, and the real place.
        @return: Topic and queue id.
        @raise RequestRefused: If it may not wait.
        """
        settings = self.settings
        if not settings.enabled:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
        if TIMER_OUT in properties:
            return topic, queue_id
        now = self.now_ms()
        due, cancels = _due(properties, now), properties.get(TIMER_CANCELS)
        most = settings.max_delay * 1000
        if due is None or due - now > most or (cancels is not None and due <= now):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{most}ms; or if set del msg, the delay time should be bigger than the current "
                "time",
            )
        if due <= now:
            return topic, queue_id
        if cancels is not None and not cancels.startswith(f"{topic}+"):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{TIMER_CANCELS} names no message of topic {topic}: it begins with {topic}+",
            )
        precision = settings.precision
        properties[TIMER_DELIVER] = str(due)
        properties[TIMER_OUT] = str((due - 1) // precision * precision)
        properties[REAL_TOPIC], properties[REAL_QUEUE] = topic, str(queue_id)
        return TIMER_TOPIC, 0

    def place_batch(
        self, topic: str, queue_id: int, properties: dict[str, str], body: bytes
    ) -> tuple[str, int]:
        """Where the messages of a batch are stored, whose properties are the batch's.

        @param body: The batch.
        @raise RequestRefused: If none of it may wait, or one of its messages says itself what only
            a broker may.
        """
        place = self.place(topic, queue_id, properties)
        for name in OWN if place[0] == TIMER_TOPIC else ():
            if f"{name}\x01".encode() in body:
                raise RequestRefused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"timer message illegal, a message of the batch has its own {name}",
                )
        return place


def _due(properties: dict[str, str], now: int) -> int | None:
    """When a message is due, by the first property that is there; C{None} if that is no number."""
    for name, unit in ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1), (TIMER_DELIVER, 0)):
        if name in properties:
            number = properties[name]
            if _NUMBER.fullmatch(number) is None:
                return None
            return now + int(number) * unit if unit else int(number)
    return None
