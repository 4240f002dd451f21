"""Log lines about bad peers, without letting them fill the disk.

A peer that can reach a port can make it complain.  Of each cause and peer at most one line a
second is written; the next one says how many were held back (fault invariant I6).
"""

from __future__ import annotations

from typing import Any

from attrs import define, field
from twisted.logger import Logger, LogLevel

INTERVAL = 1.0
"""
Least seconds between two lines of one cause and peer.
"""

MOST_PEERS = 1024
"""
Most causes and peers told apart; beyond that all peers of a cause share one entry.
"""

OTHERS = "other peers"
"""
The peer's name in a shared entry.
"""


@define
class _Entry:
    written: float
    held: int = field(default=0)


class RateLimitedLog:
    """Warn about peers at a bounded rate and with bounded memory.

    There is no timer in here: the owner's sweep calls L{sweep}, which tells what was held back when
    nothing else of that kind followed.

    @ivar _entries: By cause and peer: when a line was written last, and how many were held since.
    """

    def __init__(self, log: Logger, clock: Any) -> None:
        """@param log: Where lines go, under the owner's namespace.
        @param clock: An C{IReactorTime}; only C{seconds} is used.
        """
        self._log = log
        self._clock = clock
        self._entries: dict[tuple[str, str], _Entry] = {}

    def warn(self, cause: str, peer: str, message: str, **fields: Any) -> bool:
        """Write one line, or hold it back.

        @param cause: What kind of complaint this is: a constant, such as an error class's name.
        @param peer: Whose doing it is: the host without the port, which is new each time.
        @param message: A constant format; C{cause}, C{peer} and C{held} are there for it as well.
        @return: Whether it was written.
        """
        now = self._clock.seconds()
        entry = self._entry(cause, peer, now)
        if now - entry.written < INTERVAL:
            entry.held += 1
            return False
        held, entry.held, entry.written = entry.held, 0, now
        if held:
            message += " ({held} more like it were held back)"
        self._log.emit(LogLevel.warn, message, cause=cause, peer=peer, held=held, **fields)
        return True

    def sweep(self) -> None:
        """Tell and forget what is older than L{INTERVAL}."""
        self._sweep(self._clock.seconds() - INTERVAL)

    def flush(self) -> None:
        """Tell and forget everything; for a stop."""
        self._sweep(float("inf"))

    def _entry(self, cause: str, peer: str, now: float) -> _Entry:
        key = (cause, peer)
        if key not in self._entries and len(self._entries) >= MOST_PEERS:
            self._sweep(now - INTERVAL)
            if len(self._entries) >= MOST_PEERS:
                key = (cause, OTHERS)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(float("-inf"))
        return entry

    def _sweep(self, before: float) -> None:
        for key, entry in list(self._entries.items()):
            if entry.written > before:
                continue
            del self._entries[key]
            if entry.held:
                cause, peer = key
                self._log.warn(
                    "Held back {held} more log lines about {peer}: {cause}",
                    held=entry.held,
                    cause=cause,
                    peer=peer,
                )
