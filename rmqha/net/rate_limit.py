"""Bytes a second: a limit for sending and for receiving, and what they are.

A bootstrap reads a whole log and so evicts the page cache of a live master; a limit on either side
keeps that bearable.
"""

from __future__ import annotations

from typing import Any

BURST_SECONDS = 0.1
"""
How much of a second may go out at once after a rest.
"""

LEAST_BURST = 64 * 1024
"""
Least burst in bytes, so that a low rate does not cut single frames.
"""


class TokenBucket:
    """Bytes that may pass now, refilled with time.

    What is taken may exceed what is there: the debt is the wait.  So a frame is never split, and
    the average still holds.

    @ivar _rate: Bytes a second; 0 is no limit.
    @ivar _burst: The most that is saved up, in bytes.
    @ivar _level: Bytes that may pass now; negative while in debt.
    @ivar _filled: When C{_level} was right, in the clock's seconds.
    """

    def __init__(self, rate: float, clock: Any) -> None:
        """@param rate: Bytes a second; 0 never waits.
        @param clock: An C{IReactorTime}; only C{seconds} is used.
        """
        self._rate = rate
        self._clock = clock
        self._burst = max(rate * BURST_SECONDS, float(LEAST_BURST))
        self._level = self._burst
        self._filled = clock.seconds()

    def take(self, count: int) -> float:
        """Account for bytes that pass now.

        @param count: How many.
        @return: Seconds to wait before anything more should pass; 0.0 when it may at once.
        """
        if self._rate <= 0:
            return 0.0
        now = self._clock.seconds()
        gained = max(0.0, now - self._filled) * self._rate
        self._filled = now
        self._level = min(self._burst, self._level + gained) - count
        return max(0.0, -self._level / self._rate)


class Speed:
    """How many bytes passed in a second."""

    def __init__(self, clock: Any) -> None:
        """@param clock: An C{IReactorTime}; only C{seconds} is used."""
        self._clock = clock
        self._second = int(clock.seconds())
        self._passed = 0
        self._before = 0

    def count(self, size: int) -> None:
        """So many bytes pass now."""
        if int(self._clock.seconds()) != self._second:
            self._turn()
        self._passed += size

    def last(self) -> int:
        """What passed in the last whole second."""
        self._turn()
        return self._before

    def _turn(self) -> None:
        now = int(self._clock.seconds())
        if now != self._second:
            self._before = self._passed if now == self._second + 1 else 0
            self._second, self._passed = now, 0
