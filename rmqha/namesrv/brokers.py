"""
What a broker says when it registers, and what comes of it.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field, frozen

from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.tables import TopicConfig

EXPIRY = 120.0
"""Seconds without a registration after which a broker is taken for dead."""

MASTER = 0
"""The id of a master."""


@frozen(kw_only=True)
class BrokerRegistration:
    """
    What a broker says of itself.

    @ivar address: C{host:port} for clients.
    @ivar ha_address: C{host:port} for slaves.
    @ivar topics: All its topics, or those that changed: what is missing stays.
    @ivar version: Of its topics.
    @ivar expiry: Seconds it may be silent.
    @ivar channel: What it came over; see L{RouteTable.closed}.
    """

    cluster: str
    name: str
    id: int
    address: str
    ha_address: str
    topics: Iterable[TopicConfig] = ()
    version: DataVersion = field(factory=DataVersion)
    filter_servers: tuple[str, ...] = ()
    acting_master: bool | None = None
    expiry: float = EXPIRY
    channel: object = None


@frozen(kw_only=True)
class Registered:
    """
    What a registration is answered, and what it changed.

    @ivar master: For a slave whose master is live: the master's address.
    @ivar ha: For such a slave: where the master's log comes from.
    @ivar new: Whether this address was not live before.
    @ivar replaced: Another live address that had the same name and id.
    """

    master: str | None = None
    ha: str | None = None
    new: bool = False
    replaced: str | None = None


@frozen
class Gone:
    """
    A broker that is no longer live.

    @ivar channel: What it had registered over.
    """

    name: str
    address: str
    channel: object
