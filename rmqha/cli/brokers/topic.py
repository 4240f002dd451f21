"""C{rmqha topic}: the topics of running brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from rmqha.cli.brokers.asking import BrokerSite, Way, ask, asks_brokers
from rmqha.cli.brokers.entries import PERMISSIONS, TOPICS, alike, forget, topic_row
from rmqha.cli.brokers.shown import moment_at, show
from rmqha.cli.common import Commands, Whole, flag, note
from rmqha.nodes.broker_admin import BrokerAdmin, BrokerFacts
from rmqha.wire.names import BROKERS_TOPIC_PREFIX, DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX
from rmqha.wire.remoting.bodies.tables import TopicConfig

QUEUES = 8
"""Queues of a topic where nothing is said, as with mqadmin."""

OTHERS = (RETRY_PREFIX, DLQ_PREFIX, BROKERS_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX)
"""How topics begin that are no user's."""


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--read", type=Whole(0), metavar="N", help="Queues that are read."),
        click.option("--write", type=Whole(0), metavar="N", help="Queues that are written to."),
        click.option("--perm", type=click.Choice(list(PERMISSIONS)), help="What clients may do."),
        click.option(
            "--attribute",
            "attributes",
            multiple=True,
            metavar="+NAME=VALUE|-NAME",
            help="Set or take away an attribute of RocketMQ 5; may be repeated.",
        ),
    ):
        command = option(command)
    return command


@click.group(cls=Commands)
def topic() -> None:
    """List, show, make, change and delete topics of running brokers."""


@topic.command("list")
@flag("--all", "The brokers' and groups' own too.", "everything")
@asks_brokers
def list_(way: Way, everything: bool, as_json: bool) -> None:
    """List topics, one row for brokers where a topic is the same."""

    async def run(site: BrokerSite) -> tuple[list[tuple[dict[str, Any], str]], set[str]]:
        found, others = [], set[str]()
        for broker in await site.readable():
            topics = await broker.topics()
            found += [(topic_row(config), broker.address) for config in topics.values()]
            others |= {name for name in topics if name.startswith(OTHERS)}
            others |= await broker.own_topics()
        return found, others

    told, others = ask(way, run)
    found = alike(told)
    rows = [each for each in found if everything or each["topic"] not in others]
    show({"topics": rows}, as_json=as_json)
    if len(rows) < len(found):
        note(f"{len(found) - len(rows)} more are the brokers' and groups' own: --all lists them")


@topic.command("show")
@click.argument("name", metavar="TOPIC")
@asks_brokers
def show_(way: Way, name: str, as_json: bool) -> None:
    """Show a topic's settings, queues and consumer groups."""

    async def run(site: BrokerSite) -> dict[str, list[dict[str, Any]]]:
        there = await TOPICS.at(await site.readable(), name)
        queues, groups = [], set[str]()
        for broker in there:
            table = (await broker.topic_stats(name)).offset_table
            for queue, place in sorted(table.items(), key=lambda item: item[0].queue_id):
                queues.append(
                    {
                        "broker": broker.address,
                        "queue": queue.queue_id,
                        "first": place.min_offset,
                        "end": place.max_offset,
                        "lastMessage": moment_at(place.last_update_timestamp),
                    }
                )
            groups.update(await broker.groups_of(name))
        return {
            "settings": TOPICS.rows(there),
            "queues": queues,
            "groups": [{"group": group} for group in sorted(groups)],
        }

    show(ask(way, run), as_json=as_json)


@topic.command()
@click.argument("name", metavar="TOPIC")
@_settings
@asks_brokers
def create(way: Way, name: str, as_json: bool, **wanted: Any) -> None:
    """Make a topic, with 8 queues unless told otherwise.

    With -n it is made at every master of the cluster.  Brokers that have it keep it as it is.
    """

    values = {"read_queue_nums": QUEUES, "write_queue_nums": QUEUES, **_changes(wanted)}
    entry = TopicConfig(topic_name=name, **values)
    put = _put(wanted)
    rows = ask(way, lambda site: TOPICS.create(site, name, entry, put))
    show({"topics": rows}, as_json=as_json)


@topic.command()
@click.argument("name", metavar="TOPIC")
@_settings
@asks_brokers
def change(way: Way, name: str, as_json: bool, **wanted: Any) -> None:
    """Change a topic where it is; what no option names stays as it is."""
    changes = _changes(wanted)
    if not changes and not wanted["attributes"]:
        raise click.UsageError("nothing to change: give --read, --write, --perm or --attribute")
    rows = ask(way, lambda site: TOPICS.change(site, name, changes, _put(wanted)))
    show({"topics": rows}, as_json=as_json)
    if any(each["order"] for each in rows) and "write_queue_nums" in changes:
        note(f"topic {name} is ordered: mqadmin updateOrderConf tells name servers of its queues")


def _changes(wanted: dict[str, Any]) -> dict[str, Any]:
    values = {
        "read_queue_nums": wanted["read"],
        "write_queue_nums": wanted["write"],
        "perm": PERMISSIONS.get(wanted["perm"] or ""),
    }
    return {key: value for key, value in values.items() if value is not None}


def _put(wanted: dict[str, Any]) -> Callable[[BrokerAdmin, TopicConfig], Awaitable[None]]:
    """Writes a topic, with the changes of attributes that options name."""
    return lambda broker, entry: broker.put_topic(entry, ",".join(wanted["attributes"]))


@topic.command()
@click.argument("name", metavar="TOPIC")
@asks_brokers
def delete(way: Way, name: str, as_json: bool) -> None:
    """Delete a topic in the whole cluster: its messages, offsets and routes.

    A broker that is given with -b says which cluster and name servers are its own.
    """

    async def run(site: BrokerSite) -> list[dict[str, Any]]:
        masters = await site.whole_cluster()
        there = [each for each in masters if name in await each.topics()]
        if not there and not await _routed(site, masters, name):
            raise TOPICS.absent(name, masters)
        return await forget(site, masters, there, name)

    show({"deleted": ask(way, run)}, as_json=as_json)


async def _routed(site: BrokerSite, masters: dict[BrokerAdmin, BrokerFacts], name: str) -> bool:
    """Whether a name server knows the topic in the masters' cluster, after a deletion by halves."""
    clusters = {facts.cluster for facts in masters.values()}
    return any(
        [
            name in await site.at(server).topics_in(cluster)
            for server in site.name_servers(masters)
            for cluster in clusters
        ]
    )
