"""A node that tells its page what a test wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from rmqha.health import HealthReason
from rmqha.net.remoting.client import RemotingClient
from rmqha.nodes.poll import NodeClient
from rmqha.page.cluster import MOST_BYTES, ClusterPages
from rmqha.page.history import History
from rmqha.page.own import OwnPage
from rmqha.page.site import PageSite
from rmqha.page.told import GroupRow
from rmqha.wire.remoting.bodies.route import ClusterInfo
from tests.nodes.test_summary import MASTER

NOW = 1_800_000_000_000


def at_once(function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    """Runs on the reactor what would run in a thread."""
    return succeed(function(*arguments))


@define
class ToldNode:
    """A node that says what the test wants."""

    described: dict[str, Any] = field(factory=lambda: dict(MASTER))
    wrong: list[HealthReason] = field(factory=list)
    groups: list[GroupRow | None] = field(factory=list)
    events: list[dict[str, Any]] = field(factory=list)
    looked_up: int = 0

    def status(self) -> dict[str, Any]:
        return self.described

    def looked(self) -> Deferred[None]:
        return succeed(None)

    def metrics(self) -> Deferred[bytes]:
        return succeed(b"")

    def happened(self) -> list[dict[str, Any]]:
        return self.events

    def health(self) -> Iterator[HealthReason]:
        return iter(self.wrong)

    def drop_slot(self, address: str) -> bool:
        return False

    def groups_behind(self) -> Iterator[GroupRow | None]:
        """The groups, and how often they were looked up."""
        self.looked_up += 1
        return iter(self.groups)


def own_page(
    node: ToldNode, clock: IReactorTime, now_ms: Callable[[], int] = lambda: NOW
) -> OwnPage:
    """What gathers its page, with a history that begins empty."""
    return OwnPage(node, History(node.status, clock, now_ms), clock, now_ms)


def page_site(
    node: ToldNode,
    clock: Any,
    *,
    http: Any = None,
    servers: tuple[str, ...] = (),
    table: ClusterInfo | None = None,
    connect: Callable[[], RemotingClient] | None = None,
    own: OwnPage | None = None,
) -> PageSite:
    """Its admin port's root."""
    own = own or own_page(node, clock, lambda: int(time.time() * 1000))
    cluster = ClusterPages(
        own=own,
        clock=clock,
        ask=lambda address: NodeClient(http, address, clock, MOST_BYTES),
        connect=connect or (lambda: RemotingClient(clock)),
        servers=lambda: servers,
        table=lambda: table,
    )
    return PageSite(node, own=own.told, cluster=cluster.told, in_thread=at_once)
