"""C{rmqha slots}: the replicas that a node keeps log files for, and the end of that."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click
import treq
from rich.table import Table

from rmqha.cli.common import FAILED, JSON, UNREACHABLE, complain, in_reactor, stdout
from rmqha.cli.nodes.arguments import DEFAULT_ADDRESS, checked
from rmqha.cli.reach import Access
from rmqha.nodes.any_port import AnyPortClient
from rmqha.nodes.poll import UNREACHED, NodeClient, unreached

COLUMNS = ("address", "connected", "offset", "bytes", "since", "until")


async def rows_of(look: NodeClient) -> list[dict[str, Any]]:
    """What is kept, and for whom.

    @raise ValueError: If this is no node with slots.
    """
    code, content = await look.get("status")
    rows = content.get("retentionSlots")
    if code != 200 or not isinstance(rows, list):
        raise ValueError("it has no retention slots")
    return rows


async def drop_slot(look: NodeClient, replica: str) -> str:
    """Have no files kept any more for a replica.

    @return: Why not; empty if it was done.
    """
    code, content = await look.delete(f"slots/{replica}")
    return "" if code == 200 else str(content.get("error") or f"answered {code}")


def table_of(rows: list[dict[str, Any]]) -> Table:
    """Slots as a table for people."""
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for row in rows:
        values = {**row, "since": _time(row.get("since")), "until": _time(row.get("until"))}
        table.add_row(*(str(values.get(name)) for name in COLUMNS))
    return table


def _time(millis: int | None) -> str:
    if millis is None:
        return "-"
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@click.command()
@click.argument("address", default=DEFAULT_ADDRESS, metavar="[HOST:PORT]")
@click.option(
    "--drop",
    metavar="REPLICA",
    help="Keep no files any more for the replica with this address, which is away.",
)
@JSON
def slots(address: str, drop: str | None, as_json: bool) -> int:
    """Show the replicas that the node at HOST:PORT, any of its ports, keeps log files for.

    The default is 127.0.0.1:10914.  --drop works on the node's own machine only.  Exit code 3
    if it gives no answer.
    """
    named = checked(address)

    async def run(reactor: Any) -> int:
        try:
            async with Access().client(reactor) as client:
                admin = await AnyPortClient(treq, named, reactor, remoting=client).admin()
            look = NodeClient(treq, admin, reactor)
            why = "" if drop is None else await drop_slot(look, drop)
            if why:
                complain(f"{address}: {why}")
                return FAILED
            rows = await rows_of(look)
        except (*UNREACHED, ValueError) as error:
            complain(unreached(address, error))
            return UNREACHABLE
        if as_json:
            click.echo(json.dumps({"slots": rows}))
        else:
            stdout().print(table_of(rows), markup=False)
        return 0

    return in_reactor(run)
