"""The asking side: one connection an address, made when it is needed.

Source: docs/protocol/remoting.md, Connections.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from attrs import frozen
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectionClosed
from twisted.internet.interfaces import IAddress, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from rmqha.errors import RemotingTimeout, RemotingUnreachable, RmqhaError
from rmqha.net.remoting.connection import REQUEST_TIMEOUT, RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls
from rmqha.periodic import NodePart
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.signature import Credentials

CONNECT_TIMEOUT = 3.0
"""Seconds a connection may take to be made; stock clients' value."""

UNREACHED = (RmqhaError, OSError, ConnectionClosed)
"""How an answer may fail to come."""

Endpoints = Callable[[str, int], IStreamClientEndpoint]
"""Where a host's port is."""


def tcp_endpoints(
    reactor: Any, timeout: float = CONNECT_TIMEOUT, tls: OutgoingTls = IN_CLEAR_TEXT
) -> Endpoints:
    """Connect by TCP, asking the resolver for names alone.

    @param timeout: Seconds.
    """

    def endpoint(host: str, port: int) -> IStreamClientEndpoint:
        plain: Any
        if isIPAddress(host):
            plain = TCP4ClientEndpoint(reactor, host, port, timeout)
        elif isIPv6Address(host):
            plain = TCP6ClientEndpoint(reactor, host, port, timeout)
        else:
            plain = HostnameEndpoint(reactor, host, port, timeout)
        return tls.wrap(host, plain)

    return endpoint


@frozen
class _Attempt:
    """One connection in the making.

    @ivar waiting: Who wants it.  Of those, some may have given up.
    """

    connecting: Deferred[Any]
    waiting: list[Deferred[RemotingProtocol]]


class _Factory(Factory):
    """Makes the protocols of a pool's connections."""

    noisy = False

    def __init__(self, connections: Connections[RemotingProtocol], close_on_timeout: bool) -> None:
        self._connections = connections
        self._close_on_timeout = close_on_timeout

    def buildProtocol(self, addr: IAddress | None) -> RemotingProtocol:
        return RemotingProtocol(self._connections, close_on_timeout=self._close_on_timeout)


class RemotingClient(NodePart):
    """Ask brokers and name servers by their addresses.

    A connection stays until it is idle, or the peer closes it; the next request makes a new
    one.  Peers may ask back: C{registry} answers them.

    @ivar connections: Those there are, with their counters.
    @ivar dialled: The host that the certificate at an address has to name; empty if that is the
        address's own.
    """

    def __init__(
        self,
        clock: Any,
        endpoints: Endpoints | None = None,
        *,
        registry: Registry | None = None,
        limits: ConnectionLimits | None = None,
        close_on_timeout: bool = False,
        credentials: Credentials | None = None,
        tls: OutgoingTls = IN_CLEAR_TEXT,
    ) -> None:
        """@param clock: A reactor, or a clock when C{endpoints} are given.
        @param endpoints: L{tcp_endpoints} of the reactor by default.
        @param tls: What connections begin with.
        @param close_on_timeout: Whether a request that is not answered in time ends the
            connection, as with stock clients, and with it all else that waits there.
        @param credentials: What requests are signed with; by default they are not.
        """
        self._clock = clock
        self._endpoint = endpoints or tcp_endpoints(clock)
        self._tls = tls
        self.dialled: Callable[[str], str] = lambda address: ""
        self.connections = Connections[RemotingProtocol](
            clock,
            registry or Registry(),
            limits or ConnectionLimits(),
            "to other nodes",
            sign=lambda command: None if credentials is None else credentials.sign(command),
        )
        self._factory = _Factory(self.connections, close_on_timeout)
        self._open: dict[str, RemotingProtocol] = {}
        self._attempts: dict[str, _Attempt] = {}
        self.connections.lost.append(self._lost)

    def request(
        self, address: str, command: Command, timeout: float = REQUEST_TIMEOUT
    ) -> Deferred[Command]:
        """Ask.

        @param address: C{host:port}, an IPv6 host in brackets.
        @param timeout: Seconds for all of it, connecting included.
        @return: The answer, whatever its code.  Fails with L{RemotingUnreachable},
            L{RemotingTimeout} or L{ConnectionEnded
            <rmqha.net.remoting.connection.ConnectionEnded>}.
        """
        connection = self._open.get(address)
        if connection is not None:
            return connection.request(command, timeout)
        deadline = self._clock.seconds() + timeout

        def late(_: object, __: float) -> RemotingProtocol:
            raise RemotingTimeout(command.code, timeout, address)

        connected = self.connect(address).addTimeout(timeout, self._clock, late)
        return connected.addCallback(
            lambda connection: connection.request(
                command, max(0.0, deadline - self._clock.seconds())
            )
        )

    def oneway(self, address: str, command: Command) -> Deferred[None]:
        """Tell.

        @return: Fires when it was given to a connection, which says nothing about its arrival.
            Fails with L{RemotingUnreachable}.
        """
        return self.connect(address).addCallback(lambda connection: connection.oneway(command))

    def connect(self, address: str) -> Deferred[RemotingProtocol]:
        """Have a connection.  All who want one while it is made share the attempt; it goes on
        when one of them gives up.
        """
        result: Deferred[RemotingProtocol] = Deferred()
        connection = self._open.get(address)
        if connection is not None:
            result.callback(connection)
            return result
        if self.connections.door.stopping:
            return fail(RemotingUnreachable(address, "this client is closed"))
        attempt = self._attempts.get(address)
        if attempt is not None:
            attempt.waiting.append(result)
            return result
        try:
            host, port = split_address(address)
            endpoint = self._tls.wrap(self.dialled(address) or host, self._endpoint(host, port))
        except ValueError as error:
            return fail(RemotingUnreachable(address, str(error)))
        attempt = self._attempts[address] = _Attempt(endpoint.connect(self._factory), [result])
        attempt.connecting.addCallbacks(self._made, self._not_made, (address,), {}, (address,), {})
        return result

    def close(self) -> Deferred[None]:
        """Close all connections and make no more.

        @return: Fires when the last one is gone.
        """
        stopped = self.connections.stop()
        for attempt in tuple(self._attempts.values()):
            attempt.connecting.cancel()
        return stopped

    def _made(self, connection: RemotingProtocol, address: str) -> None:
        if self.connections.door.stopping:
            connection.close("stopped")
        elif connection.opened:
            self._open[address] = connection
        for waiting in self._attempts.pop(address).waiting:
            waiting.callback(connection)

    def _not_made(self, failure: Failure, address: str) -> None:
        error = RemotingUnreachable(address, _reason(failure))
        for waiting in self._attempts.pop(address).waiting:
            waiting.errback(error)

    def _lost(self, connection: RemotingProtocol) -> None:
        for address, one in self._open.items():
            if one is connection:
                del self._open[address]
                return


def split_address(address: str) -> tuple[str, int]:
    """Host and port of C{host:port} or C{[host]:port}.

    @raise ValueError: If it is neither.
    """
    host, _, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host, int(port)


def with_port(address: str, port: int) -> str:
    """A host alone with a default port; else the same."""
    if ":" not in address:
        return f"{address}:{port}"
    host = address.removeprefix("[").removesuffix("]")
    try:
        ip_address(host)
    except ValueError:
        return address
    return f"[{host}]:{port}"


def _reason(failure: Failure) -> str:
    if failure.check(CancelledError):
        return "this client is closed"
    return failure.getErrorMessage()
