"""How a slave calls its master: what C{ClientService} needs besides an address."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen
from twisted.application.internet import ClientService
from twisted.internet.defer import Deferred
from twisted.internet.error import NoProtocol
from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger, LogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.errors import MasterUnidentified
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.net.tls.errors import TlsRefused
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls, TlsEndpoint
from rmqha.net.tls.refusals import tls_refusal
from rmqha.net.zero_copy_receive import zero_copy_endpoint

FIRST_BACKOFF = 1.0
"""Least seconds before a reconnect; doubled up to C{haReconnectBackoffMax}."""

JITTER = 1.25
"""Most a delay is stretched by, so that slaves do not all come back at once."""

NEXT_QUESTION = 0.05
"""Seconds between two questions of one search."""


CONNECT_TIMEOUT = 5.0
"""Seconds a connection attempt may take, as in stock slaves."""


WANTS_TLS = (
    "haTlsEnable=true wants TLS of a master's HA port, which a stock broker never speaks, and one "
    "of ours with haTlsCertPath and a haTlsMode other than disabled"
)
"""What a slave says when a master seems to speak no TLS."""


def ha_endpoint(
    reactor: Any, host: str, port: int, *, local_address: str = "", tls: OutgoingTls = IN_CLEAR_TEXT
) -> IStreamClientEndpoint:
    """What connects to an HA port.

    @param local_address: C{haLocalAddress}.
    """
    bind = (local_address, 0) if local_address else None
    return tls.wrap(host, zero_copy_endpoint(reactor, host, port, CONNECT_TIMEOUT, bind))


@define
class Backoff:
    """How long to wait before the next connection.

    @ivar longest: Most seconds.
    @ivar at_once: Whether the next one is a search's next question.
    """

    longest: float
    at_once: bool = False
    _failures: int = field(default=0, init=False)

    def delay(self) -> float:
        """Wait longer each time, by a random factor so that slaves do not come back all at once.

        @return: Seconds to the next try.
        """
        if self.at_once:
            self.at_once = False
            return NEXT_QUESTION
        least = min(FIRST_BACKOFF * 2.0 ** min(self._failures, 10), self.longest / JITTER)
        self._failures += 1
        return least * random.uniform(1.0, JITTER)

    def reset(self) -> None:
        """A connection was worth it."""
        self._failures = 0


@implementer(IStreamClientEndpoint)
@frozen
class Dialling:
    """An endpoint that connects as a function does."""

    connect: Callable[[IProtocolFactory], Deferred[IProtocol]]


def reporting(
    endpoint: IStreamClientEndpoint, failed: Callable[[Failure], Failure]
) -> IStreamClientEndpoint:
    """An endpoint that tells why it could not connect: C{ClientService} keeps that to itself.

    @param failed: What it makes of a failure is the failure of connecting.
    """
    return Dialling(lambda factory: endpoint.connect(factory).addErrback(failed))


def bounds_first(
    endpoint: IStreamClientEndpoint, ask: Callable[[], Deferred[None]]
) -> IStreamClientEndpoint:
    """An endpoint that connects, asks, and only then lets a protocol begin.

    In this order because what was asked must be true of who reads our first words: a
    process that is replaced while it is asked takes the connection with it.

    @param ask: Its Deferred fires when there is nothing more to learn; the protocol is
        built then.
    """

    def connect(factory: IProtocolFactory) -> Deferred[IProtocol]:
        connecting: Deferred[Any] = endpoint.connect(_HeldFactory())
        return connecting.addCallback(lambda held: held.hold(ask(), factory))

    return Dialling(connect)


def ours_alone(port: MasterClientPort) -> IStreamClientEndpoint:
    """An endpoint that begins TLS with a master of ours alone: the HA port of a stock one would
    take the first bytes for an acknowledgement of all that it ever writes, and believe that until
    it is restarted.

    So the client port has to have said just now who it is.  What it said before is worth nothing:
    another process may be there, and a stock one opens its HA port first.  Connecting fails then
    with L{TlsRefused} or L{MasterUnidentified}.

    @param port: Its client port; one that is not to be asked keeps nobody from connecting.
    """
    endpoint = port.endpoint
    assert endpoint is not None, "it is known where that is"
    if not isinstance(endpoint, TlsEndpoint):
        return endpoint

    def connect(factory: IProtocolFactory) -> Deferred[IProtocol]:
        def dial(_: None) -> Deferred[IProtocol]:
            bounds = port.bounds
            if bounds is None and port.ask is not None:
                raise MasterUnidentified(port.state)
            if bounds is not None and not bounds.identity.run_id:
                raise TlsRefused("stock-master", f"it is a stock broker: {WANTS_TLS}")
            return endpoint.connect(factory)

        return port.look().addCallback(dial)

    return Dialling(connect)


def guarded_endpoint(port: MasterClientPort) -> IStreamClientEndpoint:
    """An endpoint of an HA port that asks the client port, if that is to be asked, before anything
    is said to it.
    """
    return bounds_first(ours_alone(port), port.look)


def ha_refusal(transport: Any, reason: Failure) -> TlsRefused | None:
    """What the end of a connection to an HA port has to do with TLS, as
    L{tls_refusal <rmqha.net.tls.refusals.tls_refusal>} says it, and with which key.
    """
    refused = tls_refusal(transport, reason)
    if refused is None or refused.reason != "tls-handshake":
        return refused
    return TlsRefused(refused.reason, f"{refused.detail}; {WANTS_TLS}")


class _Held(Protocol):
    """A connection on which nothing is said yet; later it only passes on what happens."""

    transport: ITCPTransport
    _protocol: IProtocol | None = None
    _asking: Deferred[None] | None = None
    _lost: Failure | None = None

    def hold(self, asking: Deferred[None], factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Wait for the answer.

        @return: Fires with the protocol; fails if there is none, or if the connection is
            lost meanwhile.
        """
        self._asking = asking
        return asking.addCallback(lambda _: self._begin(factory)).addErrback(self._give_up)

    def _begin(self, factory: IProtocolFactory) -> IProtocol:
        protocol = factory.buildProtocol(self.transport.getPeer())
        if protocol is None:
            raise NoProtocol()
        self._protocol = protocol
        protocol.makeConnection(self.transport)
        return protocol

    def _give_up(self, failure: Failure) -> Failure:
        self.transport.abortConnection()
        return self._lost or failure

    def dataReceived(self, data: bytes) -> None:
        """Pass it on; a peer that speaks unasked is no master."""
        if self._protocol is None:
            self.transport.abortConnection()
        else:
            self._protocol.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Pass it on, or ask no longer."""
        refused = ha_refusal(self.transport, reason)
        self._lost = reason if refused is None else Failure(refused)
        if self._protocol is not None:
            self._protocol.connectionLost(reason)
        elif self._asking is not None:
            self._asking.cancel()


class _HeldFactory(Factory):
    noisy = False
    protocol = _Held


class QuietClientService(ClientService):
    """Says nothing of its retries: Twisted's line shows the endpoint as Python does, with no
    address of the master in it.  Whoever gives the delays tells of them.
    """

    _log = Logger(observer=LogPublisher())


class SingleConnection(Factory):
    """Makes each connection's protocol, or none when there can be none now."""

    noisy = False

    def __init__(self, protocol: Callable[[], Protocol | None]) -> None:
        self._make = protocol

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """The protocol of the connection, wherever it leads."""
        return self._make()
