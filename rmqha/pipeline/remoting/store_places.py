"""Where the stores of brokers are, by a pattern: C{/mnt/{broker}/store}.

A broker with several members has several copies of its log.  Where a pattern tells them apart,
the copy of a slave is read before the master's, which has other work to do.

Source: docs/guide/pipeline.rst, Brokers that a name server knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attrs import frozen

from rmqha.config.values import ENDPOINT
from rmqha.pipeline.remoting.errors import BrokerUnplaced
from rmqha.pipeline.remoting.name_servers import RegisteredBrokers
from rmqha.wire.remoting.bodies.route import BrokerData

ANY = "*"
"""Stands for all brokers that have no pattern of their own."""

BROKER, CLUSTER, HOST, ID = "broker", "cluster", "host", "id"
"""What a pattern may ask for in braces: names, and a member's host and broker id."""

_ASKED = re.compile(r"\{([^{}]*)\}")
_MEMBER = {HOST, ID}


def asked(pattern: str) -> set[str]:
    """What stands in braces in a pattern."""
    return set(_ASKED.findall(pattern))


def filled(pattern: str, values: Mapping[str, str | None]) -> str:
    """A pattern with its values.

    @raise BrokerUnplaced: If one cannot be the name of a folder.
    """
    for name in sorted(asked(pattern)):
        value = values.get(name)
        if not value or value in (".", "..") or "/" in value or "\0" in value:
            raise BrokerUnplaced(values[BROKER] or "", name, value or "")
    return _ASKED.sub(lambda found: str(values[found[1]]), pattern)


@frozen
class StorePlaces:
    """Says where stores are.

    @ivar patterns: By broker name, and L{ANY}'s.
    """

    patterns: Mapping[str, str]

    @property
    def tell_apart(self) -> bool:
        """Whether no two brokers have one place, and nothing is asked for that there is not."""
        common = asked(self.patterns.get(ANY, ""))
        return bool(common & {BROKER, HOST}) and all(
            asked(pattern) <= {BROKER, CLUSTER, HOST, ID} for pattern in self.patterns.values()
        )

    def of(self, brokers: Mapping[str, BrokerData]) -> tuple[tuple[str, Path], ...]:
        """The stores of brokers by name, sorted; without those that have no members now, if a
        pattern asks for one.

        @raise BrokerUnplaced: If a broker has a name that cannot be a folder's.
        """
        return tuple(
            (name, place)
            for name, broker in sorted(brokers.items())
            if (place := self._place(name, broker)) is not None
        )

    def _place(self, name: str, broker: BrokerData) -> Path | None:
        pattern = self.patterns.get(name, self.patterns[ANY])
        common = {BROKER: name, CLUSTER: broker.cluster}
        if not asked(pattern) & _MEMBER:
            gone = not broker.broker_addrs and broker.cluster is None and CLUSTER in asked(pattern)
            return None if gone else Path(filled(pattern, common))
        places = [Path(filled(pattern, {**common, **each})) for each in _members(broker)]
        there = (place for place in places if os.path.exists(place))
        return next(there, places[0] if places else None)


@frozen
class RegisteredStores:
    """The stores of the brokers that name servers know."""

    brokers: RegisteredBrokers
    places: StorePlaces

    def stores(self, known: Iterable[str]) -> tuple[tuple[str, Path], ...]:
        """The stores by name, sorted, as they are now.

        @param known: Brokers that are read from already.
        @raise NameServersSilent: If no name server has answered yet.
        @raise BrokerUnplaced: As L{StorePlaces.of}.
        """
        return self.places.of(self.brokers.with_known(known))


def _members(broker: BrokerData) -> Iterator[dict[str, str]]:
    """A broker's members, the master last."""
    slaves_first = sorted(broker.broker_addrs.items(), key=lambda each: (each[0] == 0, each))
    for number, address in slaves_first:
        try:
            host, _ = ENDPOINT.parse(address)
        except (ValueError, TypeError):
            continue  # a member without an address has no place
        yield {HOST: host, ID: str(number)}
