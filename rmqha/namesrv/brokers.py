"""What a broker says when it registers, and what comes of it.

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
    """What a broker says of itself.

    @ivar address: C{host:port} for clients.
    @ivar ha_address: C{host:port} for slaves.
    @ivar topics: All its topics, or those that changed: what is missing stays.
    @ivar version: Of its topics.
    @ivar expiry: Seconds it may be silent.
    @ivar channel: What it came over; see L{RouteTable.closed}.
    @ivar epoch: Its master epoch; a stock broker, which tells none, has 0.
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
    epoch: int = 0


@frozen(kw_only=True)
class Registered:
    """What a registration is answered, and what it changed.

    @ivar master: For a slave whose master is live, and for a master that is refused: the live
        master's address.
    @ivar ha: For such a broker: where that master's log comes from.
    @ivar epoch: That master's epoch.
    @ivar new: Whether this address was not live before, or not refused before.
    @ivar replaced: Another live address that had the same name and id.
    @ivar replaced_epoch: Its master epoch.
    @ivar refused: Whether it is a master and was not taken into the routes, because the live one
        has a higher epoch.
    """

    master: str | None = None
    ha: str | None = None
    epoch: int | None = None
    new: bool = False
    replaced: str | None = None
    replaced_epoch: int = 0
    refused: bool = False


@frozen
class Gone:
    """A broker that is no longer live.

    @ivar channel: What it had registered over.
    """

    name: str
    address: str
    channel: object
