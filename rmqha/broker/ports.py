"""The ports clients connect to.  They are open before there is anything to serve, so that one in
use is noticed at once; until then each request is answered that the service is not available.

Source: docs/protocol/remoting.md, Ports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IListeningPort

from rmqha.config.settings import RemotingSettings
from rmqha.net.allowed_peers import Network
from rmqha.net.connection_shares import ConnectionShares
from rmqha.net.remoting.calls import name_of, refused_rows
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Lane, Registry
from rmqha.net.remoting.server import RemotingFactory, listen_twice
from rmqha.net.tls.gate import CLEAR_TEXT, TlsGate
from rmqha.periodic import NodePart
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command

NOT_ON_VIP = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
"""What the VIP port does not serve: it is there so that nothing waits behind pulls."""


CLOSED = "service not available now: the message store is not open"
"""The remark of all answers, with C{SERVICE_NOT_AVAILABLE}, while there is nothing to serve."""


class ServedPort(Registry):
    """What one port serves: another registry's requests, once it is open.

    @ivar served: How many requests came that are served, by code.
    """

    def __init__(self, without: Iterable[int] = ()) -> None:
        """@param without: Codes that are not served here."""
        super().__init__()
        self._without = frozenset(without)
        self._inner: Registry | None = None
        self._lanes: Sequence[Lane] = ()
        self.served: Counter[int] = Counter()

    @property
    def is_open(self) -> bool:
        """Whether requests are answered with more than L{CLOSED}."""
        return self._inner is not None

    def open(self, inner: Registry) -> None:
        """Answer requests from now on; until then each is answered L{CLOSED}."""
        self._inner = inner
        self._lanes = [lane for lane in inner.lanes if self._without.isdisjoint(lane.serves)]

    def shut(self) -> None:
        """Answer no more requests."""
        self._inner, self._lanes = None, ()

    def together(self) -> AbstractContextManager[None]:
        """Surround requests that came together."""
        return super().together() if self._inner is None else self._inner.together()

    def serve_run(
        self, connection: RemotingProtocol, data: bytes, at: int, stop: int
    ) -> tuple[int, int]:
        """Have frames answered in one go, and count them."""
        for lane in self._lanes:
            count, end = lane.serve_run(connection, data, at, stop)
            if count:
                for code, requests in lane.codes:
                    self.served[code] += requests
                return count, end
        return 0, at

    def serve(self, connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        """Have a request answered, and count it."""
        inner = self._inner
        code = command.code
        if inner is None:
            return command.answer(ResponseCode.SERVICE_NOT_AVAILABLE, CLOSED)
        if code in self._without or not inner.handles(code):
            return super().serve(connection, command)
        self.served[code] += 1
        return inner.serve(connection, command)


class ClientPorts(NodePart):
    """C{listenPort} and, two below it, the VIP port."""

    def __init__(
        self,
        settings: RemotingSettings,
        port: int,
        reactor: Any,
        shares: ConnectionShares,
        gate: Callable[[], TlsGate] = lambda: CLEAR_TEXT,
    ) -> None:
        """@param port: C{listenPort}; 0 for none.
        @param gate: Gives what is accepted, once the certificates are read.
        @param shares: How many connections both ports may have together.
        """
        self._settings = settings
        self._shares = shares
        self._port = port
        self._gate = gate
        self._reactor = reactor
        self._doors = (ServedPort(), ServedPort(NOT_ON_VIP))
        self._connections: tuple[Connections[RemotingProtocol], ...] = ()

    @property
    def serving(self) -> bool:
        """Whether clients are answered; without a port there is nobody to notice."""
        return all(door.is_open for door in self._doors)

    def listen(self) -> list[IListeningPort]:
        """Open both ports, if they are wanted.

        @raise CannotListenError: If one is in use.
        """
        if not self._port:
            return []
        gate = self._gate()
        names = "client port", "VIP port"
        first, vip = (
            RemotingFactory(
                door,
                self._reactor,
                gate=gate,
                name=name,
                allowed=self._settings.allowed_peers,
                limits=ConnectionLimits(connections=partial(self._most, number)),
            )
            for number, (door, name) in enumerate(zip(self._doors, names, strict=True))
        )
        self._connections = (first.connections, vip.connections)
        first.connections.door.relief = vip.connections.door.expel
        vip.connections.door.relief = first.connections.door.expel
        return listen_twice(self._reactor, first, vip, self._port, self._settings.bind_address)

    def _most(self, number: int) -> int:
        """How many connections one of the ports may have: what the other one leaves."""
        others = self._connections[:number] + self._connections[number + 1 :]
        return self._shares.clients - sum(len(each.live) for each in others)

    def open(self, registry: Registry, lost: Callable[[RemotingProtocol], None]) -> None:
        """Serve.

        @param lost: Called with each connection that ends from now on.
        """
        for door in self._doors:
            door.open(registry)
        for connections in self._connections:
            connections.lost.append(lost)

    def shut(self) -> None:
        """Serve no more; what is in progress goes on."""
        for door in self._doors:
            door.shut()
        for connections in self._connections:
            connections.lost.clear()

    def allow(self, networks: Iterable[Network]) -> None:
        """Let only these connect from now on, or everybody; who may not any more goes."""
        for connections in self._connections:
            connections.door.allow(networks)

    def release(self) -> None:
        """Close the connections of clients that have not read all their answers: the log those
        show is about to be cut.
        """
        for connections in self._connections:
            connections.release()

    def close(self) -> Deferred[None]:
        """Close all connections, letting them have what was written."""
        closing = [connections.stop() for connections in self._connections]
        return DeferredList(closing, consumeErrors=True).addCallback(lambda _: None)

    def refused(self) -> Counter[tuple[int, str]]:
        """How many requests came that nothing here serves, by code and the client's host."""
        return sum((door.refused.counts for door in self._doors), Counter())

    def status(self) -> dict[str, Any]:
        """What C{/status} says of them."""
        served: Counter[int] = sum((door.served for door in self._doors), Counter())
        closed: Counter[str] = sum((each.closed for each in self._connections), Counter())
        return {
            "port": self._port,
            "connections": sum(len(each.live) for each in self._connections),
            "requests": {name_of(code): count for code, count in sorted(served.items())},
            "refusedRequests": refused_rows(self.refused()),
            "unasked": sum(each.unasked for each in self._connections),
            "closed": dict(sorted(closed.items())),
        }
