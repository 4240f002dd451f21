"""What a node tells of itself on its page.

Source: docs/guide/page.rst.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from attrs import define, field
from twisted.internet.interfaces import IReactorTime

from rmqha.admin.http import Node
from rmqha.event_file import Event
from rmqha.health import HealthProbe, failing
from rmqha.nodes.facts import facts_of, refusals_of
from rmqha.nodes.summary import Status, name_of
from rmqha.page.history import History
from rmqha.page.told import GroupRow, NodePage
from rmqha.periodic import in_slices

HOURS = 24
"""How old an event may be."""

MOST_EVENTS = 200
"""Events that are told, the latest."""

MOST_GROUPS = 50
"""Groups that are told, those that are furthest behind."""

MOST_REFUSALS = 50
"""Refusals that are told, the commonest."""

GROUPS_FOR = 10.0
"""Seconds after which groups are looked up again: ten thousand of them take some 50 ms."""


class OwnNode(Node, Protocol):
    """A node as what its page needs."""

    def groups_behind(self) -> Iterator[GroupRow | None]:
        """How far each group is; C{None} where a turn of the reactor may end."""


@define(eq=False)
class OwnPage:
    """Gathers it.

    @ivar history: The last quarter of an hour.
    @ivar now_ms: Milliseconds since 1970.
    """

    node: OwnNode
    history: History
    clock: IReactorTime
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    _groups: tuple[GroupRow, ...] = field(default=(), init=False)
    _looked: float = field(default=float("-inf"), init=False)

    async def told(self) -> NodePage:
        groups = await self._behind()
        status = self.node.status()
        wrong = failing(self.node.health(), HealthProbe.HEALTH)
        return of_status(
            status,
            "; ".join(map(str, wrong)),
            times=self.history.times(),
            series=self.history.series(),
            groups=groups,
            refused=tuple(refusals_of(status)[:MOST_REFUSALS]),
            events=self._events(),
        )

    def _events(self) -> tuple[Event, ...]:
        since = self.now_ms() - HOURS * 3_600_000
        rows = [Event(**row) for row in self.node.happened() if row["time"] >= since]
        return tuple(rows[: -MOST_EVENTS - 1 : -1])

    async def _behind(self) -> tuple[GroupRow, ...]:
        now = self.clock.seconds()
        if now - self._looked >= GROUPS_FOR:
            # Whoever asks meanwhile gets those that are known.
            self._looked = now
            rows: list[GroupRow] = []
            await in_slices(self.clock, self._gathered(rows))
            rows.sort(key=lambda row: (-row.messages, row.group, row.topic))
            self._groups = tuple(rows[:MOST_GROUPS])
        return self._groups

    def _gathered(self, rows: list[GroupRow]) -> Iterator[None]:
        for row in self.node.groups_behind():
            if row is not None:
                rows.append(row)
            yield


def of_status(status: Status, problem: str, *, name: str = "", **more: Any) -> NodePage:
    """What a status tells.

    @param problem: Why the node is unhealthy, empty if it is not.
    @param name: What a node is called that has no C{brokerName}.
    @param more: Fields of L{NodePage} that a status does not tell.
    """
    return NodePage(
        name=name_of(status) or name or "name server",
        role=str(status.get("role", "")),
        cluster=str(status.get("clusterName") or ""),
        broker_name=str(status.get("brokerName") or ""),
        broker_id=int(status.get("brokerId") or 0),
        problem=problem,
        facts=facts_of(status),
        **more,
    )
