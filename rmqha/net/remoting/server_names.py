"""Name servers by name: all addresses that a resolver knows of it, looked up again and again.

A name may stand for several name servers, and for others later.  Each lookup is on its own: one
that takes long delays no other, and one that fails changes nothing.

Source: docs/guide/brokers.rst, A name server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from attrs import define, field
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IAddress, IHostResolution, IReactorTime, IResolutionReceiver
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.config.values import ENDPOINT
from rmqha.net.door import host_of
from rmqha.net.remoting.client import split_address
from rmqha.periodic import Watch

PERIOD = 30.0
"""Seconds between two lookups: as often as a broker registers."""

LookUp = Callable[[str], "Deferred[tuple[str, ...]]"]
"""Asks for a host's addresses; there are none if it is not known."""


@implementer(IResolutionReceiver)
@define(eq=False)
class _Receiver:
    """Takes one answer.

    @ivar done: Fires with it.
    """

    done: Deferred[tuple[str, ...]] = field(factory=Deferred)
    _hosts: set[str] = field(factory=set, init=False)

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Its end is what counts."""

    def addressResolved(self, address: IAddress) -> None:
        self._hosts.add(host_of(address))

    def resolutionComplete(self) -> None:
        found = sorted(self._hosts, key=lambda host: (isIPv6Address(host), ip_address(host)))
        of_four = [host for host in found if isIPAddress(host)]
        self.done.callback(tuple(of_four or found))


def look_up(reactor: Any, host: str) -> Deferred[tuple[str, ...]]:
    """Ask the reactor's resolver for a host's addresses.

    @return: By number.  Of a host that has both kinds those of IPv4, as stock brokers take: the
        others are most often the same servers, and not reached where one of both sides has no IPv6.
    """
    receiver = _Receiver()
    reactor.nameResolver.resolveHostName(receiver, host)
    return receiver.done


@define(eq=False)
class ServerNames(Watch):
    """The addresses of some name servers, of which some are given by name.

    C{localhost} is left to who connects: it is this machine, whatever its addresses.

    @ivar configured: C{host:port} of each, as an operator wrote it.
    @ivar changed: Called when a name has other addresses than before.
    """

    look_up: LookUp
    clock: IReactorTime
    configured: Callable[[], Sequence[str]]
    changed: Callable[[], None] = lambda: None
    job: str = "looking up name servers"
    _found: dict[str, tuple[str, ...]] = field(factory=dict, init=False)
    _asking: set[str] = field(factory=set, init=False)
    # Names whose last lookup failed.
    _failed: set[str] = field(factory=set, init=False)

    every = PERIOD
    at_once = True
    _log = Logger()

    @property
    def servers(self) -> tuple[str, ...]:
        """C{host:port} of each: of a name all addresses, or the name while none is known."""
        known = (each for text in self.configured() for each in self._addresses(text))
        return tuple(dict.fromkeys(known))

    def dialled(self, address: str) -> str:
        """The name that an address was found by, which its certificate has; empty if by none."""
        for text in self.configured():
            if address != text and address in self._addresses(text):
                return _name(text)
        return ""

    def start(self) -> None:
        """Look now, and every L{PERIOD} seconds; without a name there is nothing to look for."""
        if self._names():
            super().start()

    def look(self) -> None:
        """Look once, and do not wait: the next look is for those that have an answer by then."""
        self.looked()

    def looked(self) -> Deferred[None]:
        """Look once.

        @return: Fires when there is an answer for each name.
        """
        over: Deferred[None] = Deferred()
        asked = [self._ask(name) for name in self._names() - self._asking]
        DeferredList(asked).addCallback(lambda _: over.callback(None))
        return over

    def _names(self) -> set[str]:
        return set(filter(None, map(_name, self.configured())))

    def _addresses(self, text: str) -> tuple[str, ...]:
        found = self._found.get(_name(text))
        if found is None:
            return (text,)
        _, port = split_address(text)
        return tuple(ENDPOINT.show((host, port)) for host in found)

    def _ask(self, name: str) -> Deferred[None]:
        self._asking.add(name)
        asked = maybeDeferred(self.look_up, name)
        return asked.addCallbacks(
            self._answered, self._unanswered, callbackArgs=(name,), errbackArgs=(name,)
        )

    def _answered(self, found: tuple[str, ...], name: str) -> None:
        self._asking.discard(name)
        if not found:
            self._fail(name, "no address is known")
            return
        failed, known = name in self._failed, self._found.get(name)
        self._failed.discard(name)
        self._found[name] = found
        if failed or found != known:
            self._log.info(
                "Addresses of {name}: {addresses}", name=name, addresses=", ".join(found)
            )
        if found != known:
            self.changed()

    def _unanswered(self, failure: Failure, name: str) -> None:
        self._asking.discard(name)
        self._fail(name, failure.getErrorMessage())

    def _fail(self, name: str, why: str) -> None:
        if name in self._failed:
            return
        self._failed.add(name)
        self._log.warn(
            "Cannot look up {name}, going on with {known}: {why}",
            name=name,
            known=", ".join(self._found.get(name, ())) or "its name",
            why=why,
        )


def _name(text: str) -> str:
    """The name in C{host:port}; empty if that is an address, or this machine."""
    try:
        host, _ = split_address(text)
    except ValueError:
        return ""  # whoever is to connect says so
    return "" if host == "localhost" or isIPAddress(host) or isIPv6Address(host) else host
