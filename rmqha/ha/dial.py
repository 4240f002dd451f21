"""
How a slave calls its master: what C{ClientService} needs besides an address.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IAddress,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.ha.slave import SlaveProtocol

FIRST_BACKOFF = 1.0
"""Least seconds before a reconnect; doubled up to C{haReconnectBackoffMax}."""

JITTER = 1.25
"""Most a delay is stretched by, so that slaves do not all come back at once."""

NEXT_QUESTION = 0.05
"""Seconds between two questions of one search."""


@define
class Backoff:
    """
    How long to wait before the next connection.

    @ivar longest: Most seconds.
    @ivar at_once: Whether the next one is a search's next question.
    """

    longest: float
    at_once: bool = False
    _failures: int = field(default=0, init=False)

    def delay(self) -> float:
        """
        Seconds; longer each time.
        """
        if self.at_once:
            self.at_once = False
            return NEXT_QUESTION
        least = min(FIRST_BACKOFF * 2.0 ** min(self._failures, 10), self.longest / JITTER)
        self._failures += 1
        return least * random.uniform(1.0, JITTER)

    def reset(self) -> None:
        """
        A connection was worth it.
        """
        self._failures = 0


@implementer(IStreamClientEndpoint)
@frozen
class Watched:
    """
    An endpoint that tells why it could not connect: C{ClientService} keeps that to itself.
    """

    endpoint: IStreamClientEndpoint
    failed: Callable[[Failure], Failure]

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """
        Connect.
        """
        connecting: Deferred[IProtocol] = self.endpoint.connect(protocolFactory)
        return connecting.addErrback(self.failed)


class OneByOne(Factory):
    """
    Makes each connection's protocol, or none when there can be none now.
    """

    noisy = False

    def __init__(self, protocol: Callable[[], SlaveProtocol | None]) -> None:
        self._make = protocol

    def buildProtocol(self, addr: IAddress | None) -> SlaveProtocol | None:
        """
        The next one.
        """
        return self._make()
