"""Topics and groups: entries of tables of brokers, alike at all masters, and how far groups are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

import click
from attrs import evolve, frozen

from rmqha.cli.brokers.asking import BrokerSite, addresses, at_each
from rmqha.cli.brokers.shown import moment_at
from rmqha.cli.common import note
from rmqha.nodes.broker_admin import BrokerAdmin, BrokerFacts
from rmqha.wire.remoting.bodies.tables import READ, WRITE, GroupConfig, TopicConfig

PERMISSIONS = {"rw": READ | WRITE, "r": READ, "w": WRITE, "none": 0}
"""What a person calls them."""

E = TypeVar("E", bound=Any)

Put = Callable[[BrokerAdmin, E], Awaitable[None]]
"""Writes one."""


def alike(rows: Iterable[tuple[dict[str, Any], str]]) -> list[dict[str, Any]]:
    """One row for brokers that say the same, with their addresses."""
    found: dict[str, dict[str, Any]] = {}
    for each, address in rows:
        found.setdefault(repr(each), {**each, "brokers": []})["brokers"].append(address)
    return [found[key] for key in sorted(found)]


@frozen(kw_only=True)
class EntryKind(Generic[E]):
    """One kind of them.

    @ivar noun: What a person calls it, and the command.
    @ivar table: Asks a broker for all of them.
    @ivar row: What is shown of one.
    """

    noun: str
    table: Callable[[BrokerAdmin], Awaitable[dict[str, E]]]
    row: Callable[[E], dict[str, Any]]

    def absent(self, name: str, brokers: Iterable[BrokerAdmin]) -> click.ClickException:
        """Says that one is not there."""
        return click.ClickException(
            f"{self.noun} {name} is not at {addresses(brokers)}; `rmqha {self.noun} list` names "
            f"those that are, `rmqha {self.noun} create {name}` makes it"
        )

    async def at(self, brokers: Iterable[BrokerAdmin], name: str) -> dict[BrokerAdmin, E]:
        """One as the brokers have it that do.

        @raise click.ClickException: If none has it.
        """
        found = {broker: (await self.table(broker)).get(name) for broker in brokers}
        there = {broker: entry for broker, entry in found.items() if entry is not None}
        if not there:
            raise self.absent(name, found)
        return there

    def rows(self, there: dict[BrokerAdmin, E]) -> list[dict[str, Any]]:
        """What is shown of one, a row for brokers where it is the same."""
        return alike((self.row(entry), broker.address) for broker, entry in there.items())

    async def create(
        self, site: BrokerSite, name: str, entry: E, put: Put[E]
    ) -> list[dict[str, Any]]:
        """Make one where it is not.

        @return: What is shown of it then.
        """
        masters = await site.masters()
        lack = [each for each in masters if name not in await self.table(each)]
        has = [each for each in masters if each not in lack]
        if not lack:
            raise click.ClickException(
                f"{self.noun} {name} is already at {addresses(has)}; "
                f"`rmqha {self.noun} change {name}` changes it"
            )
        if has:
            note(f"{addresses(has)} had {self.noun} {name} before; it was not changed there")
        await at_each(lack, lambda broker: put(broker, entry), f"{name} is made")
        return self.rows(await self.at(lack, name))

    async def change(
        self, site: BrokerSite, name: str, changes: dict[str, Any], put: Put[E]
    ) -> list[dict[str, Any]]:
        """Change one where it is: it is read, and written whole.

        @return: What is shown of it then.
        """
        there = await self.at(await site.masters(), name)
        await at_each(
            list(there),
            lambda broker: put(broker, evolve(there[broker], **changes)),
            f"{name} is changed",
        )
        return self.rows(await self.at(there, name))


def topic_row(topic: TopicConfig) -> dict[str, Any]:
    """A topic's settings."""
    return {
        "topic": topic.topic_name,
        "readQueues": topic.read_queue_nums,
        "writeQueues": topic.write_queue_nums,
        "perm": next((n for n, bits in PERMISSIONS.items() if bits == topic.perm), topic.perm),
        "order": topic.order,
        "attributes": topic.attributes or {},
    }


TOPICS = EntryKind(noun="topic", table=BrokerAdmin.topics, row=topic_row)


def group_row(group: GroupConfig) -> dict[str, Any]:
    """A group's settings."""
    return {
        "group": group.group_name,
        "consume": group.consume_enable,
        "broadcast": group.consume_broadcast_enable,
        "retries": group.retry_max_times,
        "retryQueues": group.retry_queue_nums,
        "slowBroker": group.which_broker_when_consume_slowly,
    }


GROUPS = EntryKind(noun="group", table=BrokerAdmin.groups, row=group_row)


async def lag_rows(
    brokers: list[BrokerAdmin], group: str, topic: str | None = None
) -> list[dict[str, Any]]:
    """How far a group is in each queue."""
    rows = []
    for broker in brokers:
        table = (await broker.consume_stats(group, topic)).offset_table
        for queue, place in sorted(
            table.items(), key=lambda item: (item[0].topic, item[0].queue_id)
        ):
            rows.append(
                {
                    "broker": broker.address,
                    "topic": queue.topic,
                    "queue": queue.queue_id,
                    "end": place.broker_offset,
                    "offset": place.consumer_offset,
                    "lag": place.broker_offset - place.consumer_offset,
                    "lastMessage": moment_at(place.last_timestamp),
                }
            )
    return rows


async def members_at(broker: BrokerAdmin, group: str) -> list[str]:
    """The ids of a group's members that are online."""
    return [each.client_id for each in (await broker.consumers(group)).connection_set]


async def forget(
    site: BrokerSite, masters: dict[BrokerAdmin, BrokerFacts], there: list[BrokerAdmin], name: str
) -> list[dict[str, Any]]:
    """Delete a topic, first at brokers, then at the name servers of the cluster.

    @param there: Those that have it.
    @return: Where it was deleted.
    """
    servers = [site.at(address) for address in site.name_servers(masters)]
    clusters = sorted({facts.cluster for facts in masters.values()})

    async def told(one: BrokerAdmin) -> None:
        if one not in servers:
            await one.delete_topic(name)
            return
        for cluster in clusters:
            await one.forget_topic(name, cluster)

    await at_each([*there, *servers], told, f"{name} is deleted")
    return [{"name": name, "at": each.address, "is": "topic"} for each in there] + [
        {"name": name, "at": each.address, "is": "route"} for each in servers
    ]
