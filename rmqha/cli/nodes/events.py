"""C{rmqha events}: what happened to a node lately."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import treq
from rich.table import Table

from rmqha import event_file
from rmqha.cli.common import UNREACHABLE, Number, complain, flag, in_reactor, stdout
from rmqha.cli.nodes.arguments import DEFAULT_ADDRESS, checked
from rmqha.cli.reach import Access
from rmqha.event_file import Event
from rmqha.nodes.any_port import AnyPortClient
from rmqha.nodes.poll import UNREACHED, NodeClient, unreached

HOURS = 24.0
"""How far back, by default."""


async def asked(look: NodeClient) -> list[Event]:
    """Ask a node for its events.

    @raise ValueError: If what answers has none.
    """
    code, content = await look.get("events")
    rows = content.get("events")
    if code != 200 or not isinstance(rows, list):
        raise ValueError("it has no events: it is of an older version")
    return [Event(int(row["time"]), str(row["kind"]), str(row["text"])) for row in rows]


def table_of(events: list[Event]) -> Table:
    """A row for each, with the local time."""
    table = Table("time", "what", "", box=None, pad_edge=False)
    for event in events:
        when = datetime.fromtimestamp(event.time / 1000).astimezone()
        table.add_row(when.isoformat(sep=" ", timespec="seconds"), event.kind, event.text)
    return table


def tell(events: list[Event], hours: float, *, as_json: bool, now: float) -> None:
    """Print those of the last hours, oldest first.

    @param now: Seconds since 1970.
    """
    since = (now - hours * 3600) * 1000
    latest = [event for event in events if event.time >= since]
    if as_json:
        for event in latest:
            row = {"time": event.time, "kind": event.kind, "text": event.text}
            click.echo(json.dumps(row, ensure_ascii=False))
    elif latest:
        stdout().print(table_of(latest), markup=False)
    else:
        click.echo(f"nothing happened in the last {hours:g} hours")


@click.command()
@click.argument("source", default=DEFAULT_ADDRESS, metavar="[HOST:PORT|STORE]")
@click.option(
    "--hours",
    type=Number(0, min_open=True),
    metavar="HOURS",
    default=HOURS,
    show_default=True,
    help="How far back.",
)
@flag("--json", "Print one JSON object a line.", "as_json")
def events(source: str, hours: float, as_json: bool) -> int:
    """Show what happened to a node: role and state edges, cuts, promotions, repairs.

    HOST:PORT is any of its ports, by default 127.0.0.1:10914.  Of a node that is stopped give
    its STORE.  Exit code 3 if it gives no answer.
    """
    if Path(source).is_dir():
        found = event_file.read(event_file.event_path(Path(source)))
        tell(found, hours, as_json=as_json, now=time.time())
        return 0
    try:
        address = checked(source)
    except click.UsageError as error:
        raise click.UsageError(f"{source} is neither HOST:PORT nor a store's folder") from error

    async def run(reactor: Any) -> int:
        try:
            async with Access().client(reactor) as client:
                look = AnyPortClient(treq, address, reactor, remoting=client)
                await look.admin()
                found = await asked(look)
        except (*UNREACHED, ValueError, KeyError, TypeError) as error:
            complain(unreached(address, error))
            return UNREACHABLE
        tell(found, hours, as_json=as_json, now=time.time())
        return 0

    return in_reactor(run)
