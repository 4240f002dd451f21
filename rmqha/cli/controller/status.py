"""C{rmqha controller status}: who leads the controllers, and how sets are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.table import Table

from rmqha.cli.common import FAILED, JSON, TLS, UNREACHABLE, complain, stdout
from rmqha.cli.controller.asking import ADDRESSES, addresses_of, ask
from rmqha.controller.overview import ControllerStatus, Overview, look, members
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.wire.remoting.bodies.controller import ReplicasInfo

YES = {True: "yes", False: "no", None: "?"}


def tables_of(seen: Overview) -> Iterator[tuple[str, Table]]:
    """One of the controllers, and one of each set, with a line above it."""
    table = Table("controller", "state", box=None, pad_edge=False)
    for each in seen.controllers:
        table.add_row(each.address, _state(each))
    yield "", table
    for name, found in seen.sets.items():
        if found is not None:
            yield f"\n{set_title(name, found)}", set_table(found, {})


def set_title(name: str, found: ReplicasInfo) -> str:
    """The line above its members."""
    epochs = f"master epoch {found.master_epoch}, SyncStateSet epoch {found.sync_state_set_epoch}"
    return f"set {name}: {epochs}"


def set_table(found: ReplicasInfo, more: Mapping[str, Mapping[int, object]]) -> Table:
    """A set's members.

    @param more: Further columns, by their name: what is known of each id.
    """
    table = Table("id", "address", "role", "alive", "in sync", *more, box=None, pad_edge=False)
    in_sync = {each.broker_id for each in found.in_sync_replicas}
    for each in members(found):
        table.add_row(
            str(each.broker_id),
            each.broker_address,
            "master" if each.broker_id == found.master_broker_id else "slave",
            YES[each.alive],
            YES[each.broker_id in in_sync],
            *(str(column.get(each.broker_id, "-")) for column in more.values()),
        )
    return table


def _state(seen: ControllerStatus) -> str:
    if seen.trouble:
        return seen.trouble
    if seen.leads:
        return "leads"
    return f"follows {seen.leader}" if seen.leader else "knows no leader"


def json_of(seen: Overview) -> dict[str, Any]:
    """All that was told."""
    return {
        "leader": seen.leader or None,
        "controllers": [
            {"address": each.address, "leads": each.leads, "state": _state(each)}
            for each in seen.controllers
        ],
        "sets": {
            name: None if found is None else set_json(found, {})
            for name, found in seen.sets.items()
        },
        "problems": list(seen.problems()),
    }


def set_json(found: ReplicasInfo, more: Mapping[str, Mapping[int, object]]) -> dict[str, Any]:
    """The same for programs."""
    in_sync = {each.broker_id for each in found.in_sync_replicas}
    return {
        "masterId": found.master_broker_id,
        "masterAddress": found.master_address,
        "masterEpoch": found.master_epoch,
        "syncStateSetEpoch": found.sync_state_set_epoch,
        "members": [
            {
                "id": each.broker_id,
                "address": each.broker_address,
                "alive": each.alive,
                "inSync": each.broker_id in in_sync,
                **{key: column.get(each.broker_id) for key, column in more.items()},
            }
            for each in members(found)
        ],
    }


@click.command()
@ADDRESSES
@click.option(
    "--set",
    "names",
    multiple=True,
    metavar="NAME",
    help="Show this set, by its brokerName; may be given several times.",
)
@TLS
@JSON
def status(addresses: tuple[str, ...], names: tuple[str, ...], tls: ToolTls, as_json: bool) -> int:
    """Show who leads the controllers at ADDRESSES, and the members of sets.

    Controllers do not list the sets that they know: name each with --set.  Exit code 1 if a
    set is not known or has no living master, 3 if no controller answers or nobody leads.
    """
    asked = tuple(dict.fromkeys(names))
    seen = ask(addresses_of(addresses), lambda group: look(group, asked), tls=tls.requests)
    return show(seen, as_json=as_json)


def show(seen: Overview, *, as_json: bool) -> int:
    """Print it.

    @return: The exit code.
    """
    problems = list(seen.problems())
    if as_json:
        click.echo(json.dumps(json_of(seen), ensure_ascii=False))
    else:
        for title, table in tables_of(seen):
            if title:
                click.echo(title)
            stdout().print(table, markup=False)
        for problem in problems:
            complain(problem)
    if not seen.leader:
        return UNREACHABLE
    return FAILED if problems else 0
