"""Delay levels: C{messageDelayLevel} and when a delayed message is due.

Source: docs/protocol/store.rst, Delayed messages.
"""

from __future__ import annotations

import re
from typing import Self

from attrs import frozen

from rmqha.errors import BadValue

_NUMBER = re.compile(rb"[+-]?[0-9]{1,10}")

UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of each unit."""

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""C{messageDelayLevel} of a stock broker: the delays of levels 1 to 18."""

UNKNOWN_DELAY = 1000
"""Milliseconds of a level that is not configured."""


@frozen
class DelayLevels:
    """The configured delays.

    @ivar delays: Milliseconds of level 1, 2, ...
    """

    delays: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read RocketMQ's form: numbers with a unit, separated by single blanks.

        @raise BadValue: If a part is not a number with a unit of s, m, h or d.
        """
        delays = []
        for part in text.split(" "):
            number, unit = part[:-1], part[-1:]
            if unit not in UNITS or not number.isascii() or not number.isdigit():
                raise BadValue("messageDelayLevel", text, f"{part!r} is not like 30s, 5m, 2h or 1d")
            delays.append(int(number) * UNITS[unit])
        return cls(tuple(delays))

    @property
    def count(self) -> int:
        """The highest level; they begin at 1."""
        return len(self.delays)

    def level(self, text: bytes | None) -> int:
        """The level a record's DELAY property asks for: at most the highest one, 0 for none."""
        return max(0, min(delay_level(text), len(self.delays)))

    def deliver_time(self, level: int, store_timestamp: int) -> int:
        """When a message is due, in milliseconds since 1970.

        @param level: As in the message; above the highest one it is the highest.
        @param store_timestamp: When it was stored, in milliseconds since 1970.
        """
        known = min(level, len(self.delays))
        return store_timestamp + (self.delays[known - 1] if known > 0 else UNKNOWN_DELAY)


def delay_level(text: bytes | None) -> int:
    """The number in a DELAY property; 0 if there is none."""
    if text is None or not _NUMBER.fullmatch(text):
        return 0
    return int(text)
