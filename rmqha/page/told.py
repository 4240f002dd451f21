"""What nodes tell each other for their pages: one answer of C{/page/node}.

What another node tells is read by these types, so that the page gets what it can show.

Source: docs/guide/page.rst.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from rmqha.event_file import Event
from rmqha.nodes.facts import Fact, Refusal


@frozen(kw_only=True)
class Series:
    """A number over the last quarter of an hour.

    @ivar values: At each of the page's C{times}; C{None} where it was not known.
    """

    name: str
    unit: str
    values: tuple[Any, ...] = ()


@frozen(kw_only=True)
class GroupRow:
    """How far a consumer group is behind in a topic.

    @ivar messages: What it has not consumed.
    @ivar seconds: How long the oldest of it has been stored; C{None} where that is not known.
    """

    group: str
    topic: str
    messages: int
    seconds: float | None = None


@frozen(kw_only=True)
class NodePage:
    """All that the page tells of one node.

    @ivar name: C{brokerName/brokerId}, or where a name server is asked.
    @ivar broker_name: The set it is in; empty for a name server.
    @ivar problem: Why it is unhealthy, or cannot be asked; empty if it is well.
    @ivar times: Of the L{Series}, in milliseconds since 1970.
    @ivar groups: The furthest behind first.
    @ivar refused: The commonest first.
    @ivar events: The latest first.
    """

    name: str
    role: str = ""
    cluster: str = ""
    broker_name: str = ""
    broker_id: int = 0
    problem: str = ""
    facts: tuple[Fact, ...] = ()
    times: tuple[int, ...] = ()
    series: tuple[Series, ...] = ()
    groups: tuple[GroupRow, ...] = ()
    refused: tuple[Refusal, ...] = ()
    events: tuple[Event, ...] = ()


@frozen(kw_only=True)
class ClusterPage:
    """What C{/page/cluster} answers.

    @ivar own: The name of the node that was asked.
    @ivar note: Why it knows no others, or not all; empty if it does.
    @ivar nodes: Itself, and those that a name server knows.
    """

    own: str
    note: str = ""
    nodes: tuple[NodePage, ...] = ()
