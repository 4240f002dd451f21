"""TLS and clear text on one port, told apart by a connection's first byte (C{tlsMode},
C{haTlsMode}).

RocketMQ makes a certificate of its own where none is configured and its clients then trust
anything; here a port without a certificate speaks no TLS.

Source: docs/protocol/remoting.md, TLS.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.config.settings import TlsMode
from rmqha.net.tls.errors import TlsRefused

INTERVAL = 60.0
"""Least seconds between two lines of one port."""

MOST_HOSTS = 256
"""Most addresses told apart; connections of others are counted together."""

OTHERS = "others"
"""What those are called."""


@define(eq=False)
class ClearText:
    """Connections of one port that were taken in clear text: peers to be found before the port
    takes TLS alone.

    @ivar port: C{clients} or C{ha}.
    @ivar connections: How many there were, by address.
    @ivar last: When the last one came, in seconds of the clock, by address.
    """

    port: str
    clock: IReactorTime
    connections: Counter[str] = field(factory=Counter, init=False)
    last: dict[str, float] = field(factory=dict, init=False)
    _unsaid: Counter[str] = field(factory=Counter, init=False)
    _said: float | None = field(default=None, init=False)

    _log = Logger()

    def on_connection(self, host: str, key: str) -> None:
        """@param key: The key that would refuse it."""
        name = host if host in self.connections or len(self.connections) < MOST_HOSTS else OTHERS
        now = self.clock.seconds()
        self.connections[name] += 1
        self.last[name] = now
        self._unsaid[name] += 1
        if self._said is None or now - self._said >= INTERVAL:
            self._log.info(
                "Clear text at the port of {port}, where {key}=permissive takes TLS too: {peers}",
                port=self.port,
                key=key,
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


HANDSHAKE = 0x16
"""
The first byte of a TLS connection.  In clear text it would begin a frame of 369 MB, far above
any limit, or a report of more bytes than any log has.
"""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds a handshake may take; the default of the library RocketMQ uses."""

TOO_SLOW = f"it did not end the TLS handshake in {HANDSHAKE_TIMEOUT:.0f} s"


@frozen
class TlsGate:
    """Decide by the first byte.

    @ivar mode: What is accepted.
    @ivar context: Makes the TLS side of each connection, as C{startTLS} needs it; C{None} has
        permissive accept clear text alone.
    @ivar key: The key that sets the mode, for the log.
    @ivar clear_text: Where connections in clear text are counted that could be TLS.
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    context: Any = field(default=None)
    key: str = "tlsMode"
    clear_text: ClearText | None = None

    def __attrs_post_init__(self) -> None:
        if self.mode is TlsMode.ENFORCING and self.context is None:
            raise ValueError(f"{self.key} enforcing needs a certificate")

    @property
    def waits_for_hello(self) -> bool:
        """Whether a connection is nothing before its handshake is done, so that its time for that
        begins when it is there, and not with its first byte.
        """
        return self.mode is TlsMode.ENFORCING

    def refusal(self, hello: bool, host: str) -> TlsRefused | None:
        """Why a connection cannot stay; C{None} when it may.

        @param hello: Whether it begins with L{HANDSHAKE}.
        @param host: Where it comes from.
        """
        if not hello:
            if self.mode is not TlsMode.ENFORCING:
                if self.clear_text is not None:
                    self.clear_text.on_connection(host, self.key)
                return None
            return TlsRefused("clear-text", f"it speaks clear text, and {self.key} is enforcing")
        if self.mode is TlsMode.DISABLED:
            return TlsRefused("tls-disabled", f"it speaks TLS, and {self.key} is disabled")
        if self.context is None:
            return TlsRefused("tls-disabled", "it speaks TLS, and this port has no certificate")
        return None


CLEAR_TEXT = TlsGate(TlsMode.DISABLED)
"""Of a port that speaks no TLS."""
