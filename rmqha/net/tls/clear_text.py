"""Who speaks clear text to a port that takes TLS too: peers to be found before C{tlsMode} or
C{haTlsMode} becomes C{enforcing}.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

INTERVAL = 60.0
"""Least seconds between two lines of one port."""

MOST_HOSTS = 256
"""Most addresses told apart; connections of others are counted together."""

OTHERS = "others"
"""What those are called."""


@define(eq=False)
class ClearText:
    """Connections of one port that were taken in clear text.

    @ivar port: C{clients} or C{ha}.
    @ivar key: The key that would refuse them.
    @ivar connections: How many there were, by address.
    @ivar last: When the last one came, in seconds of the clock, by address.
    """

    port: str
    key: str
    clock: IReactorTime
    connections: Counter[str] = field(factory=Counter, init=False)
    last: dict[str, float] = field(factory=dict, init=False)
    _unsaid: Counter[str] = field(factory=Counter, init=False)
    _said: float | None = field(default=None, init=False)

    _log = Logger()

    def on_connection(self, host: str) -> None:
        name = host if host in self.connections or len(self.connections) < MOST_HOSTS else OTHERS
        now = self.clock.seconds()
        self.connections[name] += 1
        self.last[name] = now
        self._unsaid[name] += 1
        if self._said is None or now - self._said >= INTERVAL:
            self._log.info(
                "Clear text at the port of {port}, where {key}=permissive takes TLS too: {peers}",
                port=self.port,
                key=self.key,
                peers=", ".join(f"{host} ({count})" for host, count in self._unsaid.most_common()),
            )
            self._said = now
            self._unsaid.clear()

    def status(self) -> dict[str, Any]:
        """A row of C{clearText} of the status."""
        now = self.clock.seconds()
        return {
            "port": self.port,
            "connections": self.connections.total(),
            "peers": [
                {
                    "host": host,
                    "connections": count,
                    "secondsSince": round(now - self.last[host], 1),
                }
                for host, count in self.connections.most_common()
            ],
        }
