"""The door of a port: who may come in, how many, and how all leave when it closes.

The HA port and the ports of clients each have one.  Peers that are refused, or that end badly,
are counted by reason, and logged at a bounded rate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmqha.net.allowed_peers import Allowed, Network
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.periodic import cancelled

FAREWELL = 1.0
"""Seconds a connection has at a stop to take what was written to it."""

LEAVING = 8
"""Most connections that may be on their way out to make room: their sockets are open until the
reactor's next turn."""


def host_of(address: IAddress | None) -> str:
    """The network address of a peer, without the port.  An IPv4 peer of an IPv6 socket is the same
    host as without.
    """
    return str(getattr(address, "host", None) or address).removeprefix("::ffff:")


def peer_of(address: IAddress | None) -> str:
    """The same with the port, if there is one, for people."""
    host, port = host_of(address), getattr(address, "port", None)
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


CROWDED_OUT = "crowded-out"
"""Why a connection was closed that had to make room for another one."""


class Connection(Protocol):
    """What a door asks of a connection.

    @ivar host: The peer's address without the port.
    """

    host: str
    transport: Any

    def close(self, reason: str, error: Exception | None = None, *, gently: bool = False) -> None:
        """Give it up.  Doing it twice is the same as once.

        @param gently: Let the peer have what was written.
        """


Inside = TypeVar("Inside", bound=Connection)


class Door(Generic[Inside]):
    """Let connections in and out.

    Who comes is a I{stranger} until the owner says that it is known.  When there is no room for
    another one, a stranger goes, so that those who only take up room can keep nobody out: of the
    address that has most of them the one that has been there longest.  So a crowd of one address
    makes room for itself, and whoever comes alone is left in peace.

    @ivar inside: The open ones, in the order they came.
    @ivar closed: How many ended, or were refused, by reason; the door itself counts
        C{not-allowed}, C{too-many} and C{stopped}, and names C{crowded-out} to who goes to
        make room.
    @ivar stopping: Whether nobody is let in any more.
    @ivar quiet: Writes lines about peers.
    @ivar relief: Makes room at another door that shares its limit with this one.
    """

    def __init__(
        self,
        *,
        clock: IReactorTime,
        log: Logger,
        most: Callable[[], int],
        allowed: Iterable[Network] = (),
        strangers: int = 0,
    ) -> None:
        """@param log: Where lines go, under the owner's namespace.
        @param most: Most connections at once, as it is now.
        @param allowed: Who may come in; empty is everybody.
        @param strangers: Most strangers of one address; 0 is any number.
        """
        self.inside: dict[Inside, None] = {}
        self.closed: Counter[str] = Counter()
        self.stopping = False
        self.relief: Callable[[str], bool] = lambda host: False
        self.quiet = RateLimitedLog(log, clock)
        self._clock = clock
        self._most = most
        self._allowed = Allowed(allowed)
        self._most_strangers = strangers
        # In the order they came: all that may have to make room, and those of each address.
        self._strangers: dict[Inside, None] = {}
        self._crowds: Counter[str] = Counter()
        self._of_host: defaultdict[str, dict[Inside, None]] = defaultdict(dict)
        self._leaving: set[Inside] = set()
        self._farewell: IDelayedCall | None = None
        self._waiting: list[Deferred[None]] = []

    def admits(self, host: str, shut: Callable[[], str] = lambda: "") -> bool:
        """Decide about a peer before anything is read from it.  A refusal is counted and logged.

        @param shut: Why nobody may come in just now, in one word; C{""} if they may.
        """
        if not self._allowed.permits(host):
            refusal = "not-allowed"
        elif self.stopping:
            refusal = "stopped"
        else:
            refusal = shut() or ("" if self._make_room(host) else "too-many")
        if refusal:
            self.closed[refusal] += 1
            self.quiet.warn(
                refusal,
                host,
                "Refused a connection from {peer}: {cause} (open connections: {open})",
                open=len(self.inside),
            )
        return not refusal

    def allow(self, networks: Iterable[Network]) -> None:
        """Let others in from now on; who is inside and is not in the list goes.

        @param networks: Who may come in; empty is everybody.
        """
        self._allowed.change(networks)
        for connection in tuple(self.inside):
            if not self._allowed.permits(connection.host):
                connection.close("not-allowed")

    def _make_room(self, host: str) -> bool:
        """See that one more has room; if need be, a stranger goes.

        @param host: Where it comes from.
        """
        alike = self._of_host.get(host, {})
        if self._most_strangers and len(alike) >= self._most_strangers:
            return self._expel(next(iter(alike)), host)
        if len(self.inside) - len(self._leaving) < self._most():
            return True
        return self.expel(host) or self.relief(host)

    def expel(self, host: str) -> bool:
        """Close a stranger: of the address with most of them the one that has been here longest.

        @param host: Where who needs the room comes from.
        @return: Whether there is one.
        """
        if not self._strangers:
            return False
        most = max(self._crowds.values())
        oldest = next(each for each in self._strangers if self._crowds[each.host] == most)
        return self._expel(oldest, host)

    def _expel(self, oldest: Inside, host: str) -> bool:
        if len(self._leaving) >= LEAVING:
            return False
        self.known(oldest)
        self._leaving.add(oldest)
        self.quiet.warn(
            CROWDED_OUT,
            oldest.host,
            "Closed an old connection of {peer} to make room for one of {host}: {cause} "
            "(open connections: {open})",
            host=host,
            open=len(self.inside),
        )
        oldest.close(CROWDED_OUT)
        return True

    def entered(self, connection: Inside, *, expected: bool = False) -> None:
        """One is open, a stranger so far.

        @param expected: Whether it comes from where a friend does: it makes room for others from
            there only.
        """
        self.inside[connection] = None
        if not expected:
            self._strangers[connection] = None
            self._crowds[connection.host] += 1
        if self._most_strangers:
            self._of_host[connection.host][connection] = None

    def known(self, connection: Inside) -> None:
        """One is no stranger any longer.  Saying it twice is the same as once."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._crowds[connection.host] -= 1
            if not self._crowds[connection.host]:
                del self._crowds[connection.host]
        alike = self._of_host.get(connection.host)
        if alike is not None:
            alike.pop(connection, None)
            if not alike:
                del self._of_host[connection.host]

    def left(self, connection: Inside) -> None:
        """One's socket is closed."""
        self.inside.pop(connection, None)
        self.known(connection)
        self._leaving.discard(connection)
        self._check_empty()

    def shut(self) -> None:
        """Let nobody in any more."""
        self.stopping = True

    def stop(self, *, gently: bool = True) -> Deferred[None]:
        """Let nobody in any more, and close all.  Who does not leave in L{FAREWELL} is cut off.

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
        self._farewell = cancelled(self._farewell)
        waiting, self._waiting = self._waiting, []
        for empty in waiting:
            empty.callback(None)

    def _abort_all(self) -> None:
        for connection in tuple(self.inside):
            connection.transport.abortConnection()
