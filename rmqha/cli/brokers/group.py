"""C{rmqha group}: the consumer groups of running brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rmqha.cli.brokers.asking import BrokerSite, Way, ask, asks_brokers, at_each
from rmqha.cli.brokers.entries import GROUPS, alike, forget, group_row, lag_rows, members_at
from rmqha.cli.brokers.shown import show
from rmqha.cli.common import Commands, Whole, flag, note
from rmqha.nodes.broker_admin import BrokerAdmin
from rmqha.wire.names import DLQ_PREFIX, PRESET_GROUPS, RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from rmqha.wire.remoting.bodies.tables import GroupConfig


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--consume/--no-consume", default=None, help="Whether it is served."),
        click.option(
            "--broadcast/--no-broadcast",
            default=None,
            help="Whether each member may get all messages.",
        ),
        click.option(
            "--retries",
            type=Whole(0),
            metavar="N",
            help="How often a message comes again before it is a dead letter.",
        ),
        click.option("--retry-queues", type=Whole(1), metavar="N", help="Queues to come again by."),
        click.option(
            "--slow-broker",
            type=Whole(0),
            metavar="ID",
            help="The id of the broker that readers far behind go to; 1 is the first slave.",
        ),
    ):
        command = option(command)
    return command


@click.group(cls=Commands)
def group() -> None:
    """List, show, make, change and delete consumer groups of running brokers."""


@group.command("list")
@flag("--all", "The brokers' own too.", "everything")
@asks_brokers
def list_(way: Way, everything: bool, as_json: bool) -> None:
    """List consumer groups, one row for brokers where a group is the same."""

    async def run(site: BrokerSite) -> list[tuple[dict[str, Any], str]]:
        return [
            (group_row(config), broker.address)
            for broker in await site.readable()
            for config in (await broker.groups()).values()
        ]

    found = alike(ask(way, run))
    rows = [each for each in found if everything or not _is_preset(each["group"])]
    show({"groups": rows}, as_json=as_json)
    if len(rows) < len(found):
        note(f"{len(found) - len(rows)} more are the brokers' own: --all lists them")


def _is_preset(name: str) -> bool:
    return name in PRESET_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


@group.command("show")
@click.argument("name", metavar="GROUP")
@asks_brokers
def show_(way: Way, name: str, as_json: bool) -> None:
    """Show a group's settings, the members that are online, and its lag in each queue."""

    async def run(site: BrokerSite) -> dict[str, list[dict[str, Any]]]:
        there = await GROUPS.at(await site.readable(), name)
        members = []
        for broker in there:
            online = await broker.consumers(name)
            for each in online.connection_set:
                model = online.message_model
                members.append(
                    {
                        "broker": broker.address,
                        "client": each.client_id,
                        "from": each.client_addr,
                        "language": each.language,
                        "model": "-" if model is None else model.name.lower(),
                        "topics": sorted(online.subscription_table),
                    }
                )
        return {
            "settings": GROUPS.rows(there),
            "members": members,
            "offsets": await lag_rows(list(there), name),
        }

    found = ask(way, run)
    show(found, as_json=as_json)
    if not found["members"]:
        note(f"group {name} has no members online")
    if not as_json and found["offsets"]:
        click.echo(f"lag of all queues: {sum(each['lag'] for each in found['offsets'])}")


@group.command()
@click.argument("name", metavar="GROUP")
@_settings
@asks_brokers
def create(way: Way, name: str, as_json: bool, **wanted: Any) -> None:
    """Make a consumer group.

    With -n it is made at every master of the cluster.  Brokers that have it keep it as it is.
    """

    entry = GroupConfig(group_name=name, **_changes(wanted))
    rows = ask(way, lambda site: GROUPS.create(site, name, entry, BrokerAdmin.put_group))
    show({"groups": rows}, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP")
@_settings
@asks_brokers
def change(way: Way, name: str, as_json: bool, **wanted: Any) -> None:
    """Change a consumer group where it is; what no option names stays as it is."""
    changes = _changes(wanted)
    if not changes:
        raise click.UsageError("nothing to change: give an option that says what")
    rows = ask(way, lambda site: GROUPS.change(site, name, changes, BrokerAdmin.put_group))
    show({"groups": rows}, as_json=as_json)


def _changes(wanted: dict[str, Any]) -> dict[str, Any]:
    values = {
        "consume_enable": wanted["consume"],
        "consume_broadcast_enable": wanted["broadcast"],
        "retry_max_times": wanted["retries"],
        "retry_queue_nums": wanted["retry_queues"],
        "which_broker_when_consume_slowly": wanted["slow_broker"],
    }
    return {key: value for key, value in values.items() if value is not None}


@group.command()
@click.argument("name", metavar="GROUP")
@flag("--offsets", "What it has committed too.")
@asks_brokers
def delete(way: Way, name: str, offsets: bool, as_json: bool) -> None:
    """Delete a consumer group in the whole cluster, with its retry topic and its dead letters.

    Refused while it has members online: the brokers would make it anew.  Without --offsets a
    group of this name goes on where it was.
    """

    async def run(site: BrokerSite) -> list[dict[str, Any]]:
        masters = await site.whole_cluster()
        there = await GROUPS.at(masters, name)
        online = [member for each in there for member in await members_at(each, name)]
        if online:
            raise click.ClickException(
                f"group {name} has members online ({', '.join(online)}): stop them first"
            )
        rows = []
        for topic in (f"{RETRY_PREFIX}{name}", f"{DLQ_PREFIX}{name}"):
            has = [each for each in masters if topic in await each.topics()]
            if has:
                rows += await forget(site, masters, has, topic)
        # Last, so that a deletion by halves finds it again.
        await at_each(
            list(there), lambda each: each.delete_group(name, offsets=offsets), f"{name} is deleted"
        )
        return [*rows, *({"name": name, "at": each.address, "is": "group"} for each in there)]

    show({"deleted": ask(way, run)}, as_json=as_json)
