"""
The door of a port: who may come in, how many, and how all leave when it closes.

The HA port and the ports of clients each have one.  Peers that are refused, or that end badly,
are counted by reason, and logged at a bounded rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmqha.net.allowed_peers import Allowed, Network
from rmqha.net.rate_limited_log import RateLimitedLog

FAREWELL = 1.0
"""Seconds a connection has at a stop to take what was written to it."""


def host_of(address: IAddress | None) -> str:
    """
    The network address of a peer, without the port.  An IPv4 peer of an IPv6 socket is the same
    host as without.
    """
    host = str(getattr(address, "host", None) or address)
    return host.removeprefix("::ffff:")


def peer_of(address: IAddress | None) -> str:
    """
    The same with the port, if there is one, for people.
    """
    host, port = host_of(address), getattr(address, "port", None)
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Visitor(Protocol):
    """
    What a door asks of a connection.
    """

    transport: Any

    def close(self, reason: str, error: Exception | None = None, *, gently: bool = False) -> None:
        """
        Give it up.  Doing it twice is the same as once.

        @param gently: Let the peer have what was written.
        """


Inside = TypeVar("Inside", bound=Visitor)


class Door(Generic[Inside]):
    """
    Let connections in and out.

    @ivar inside: The open ones, in the order they came.
    @ivar closed: How many ended, or were refused, by reason; the door itself counts
        C{not-allowed}, C{too-many} and C{stopped}.
    @ivar stopping: Whether nobody is let in any more.
    @ivar quiet: Writes lines about peers.
    """

    def __init__(
        self, clock: IReactorTime, log: Logger, most: int, allowed: Iterable[Network] = ()
    ) -> None:
        """
        @param log: Where lines go, under the owner's namespace.
        @param most: Most connections at once.
        @param allowed: Who may come in; empty is everybody.
        """
        self.inside: dict[Inside, None] = {}
        self.closed: Counter[str] = Counter()
        self.stopping = False
        self.quiet = RateLimitedLog(log, clock)
        self._clock = clock
        self._most = most
        self._allowed = Allowed(allowed)
        self._farewell: IDelayedCall | None = None
        self._waiting: list[Deferred[None]] = []

    def admits(self, host: str, shut: Callable[[], str] = lambda: "") -> bool:
        """
        Decide about a peer before anything is read from it.  A refusal is counted and logged.

        @param shut: Why nobody may come in just now, in one word; C{""} if they may.
        """
        if not self._allowed.permits(host):
            refusal = "not-allowed"
        elif self.stopping:
            refusal = "stopped"
        else:
            refusal = shut() or ("too-many" if len(self.inside) >= self._most else "")
        if refusal:
            self.closed[refusal] += 1
            self.quiet.warn(
                refusal,
                host,
                "Refused a connection from {peer}: {cause} (open connections: {open})",
                open=len(self.inside),
            )
        return not refusal

    def entered(self, connection: Inside) -> None:
        """
        One is open.
        """
        self.inside[connection] = None

    def left(self, connection: Inside) -> None:
        """
        One's socket is closed.
        """
        self.inside.pop(connection, None)
        self._check_empty()

    def shut(self) -> None:
        """
        Let nobody in any more.
        """
        self.stopping = True

    def stop(self, *, gently: bool = True) -> Deferred[None]:
        """
        Let nobody in any more, and close all.  Who does not leave in L{FAREWELL} is cut off.

        @param gently: Let peers have what was written to them.
        @return: Fires when the last one is gone.
        """
        self.shut()
        empty: Deferred[None] = Deferred()
        self._waiting.append(empty)
        for connection in tuple(self.inside):
            connection.close("stopped", gently=gently)
        if self.inside and self._farewell is None:
            self._farewell = self._clock.callLater(FAREWELL, self._abort_all)
        self._check_empty()
        return empty

    def _check_empty(self) -> None:
        if not self.stopping or self.inside:
            return
        if self._farewell is not None and self._farewell.active():
            self._farewell.cancel()
        waiting, self._waiting = self._waiting, []
        for empty in waiting:
            empty.callback(None)

    def _abort_all(self) -> None:
        for connection in tuple(self.inside):
            connection.transport.abortConnection()
