"""C{rmqha status}: the state of running nodes.  One is six lines, or tables of all that it says;
of several each is a row.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isnan
from typing import Any

import click
import treq
from attrs import define, field
from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from twisted.internet.defer import ensureDeferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rmqha.cli.common import TLS, UNREACHABLE, Number, Whole, complain, flag, in_reactor, stdout
from rmqha.cli.nodes.arguments import DEFAULT_ADDRESS, checked, exit_code
from rmqha.cli.reach import Access
from rmqha.errors import RmqhaError
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.nodes.any_port import AnyPortClient
from rmqha.nodes.find import known_to
from rmqha.nodes.poll import NodeClient, PollResult
from rmqha.nodes.summary import (
    attention,
    behind_of,
    duration,
    lines,
    name_of,
    replicas_in_sync,
    state_of,
)

FASTEST, SLOWEST = 0.2, 3600.0
"""Bounds of C{--watch}, in seconds."""


COLUMNS = (
    *("node", "role", "state", "version", "up", "log ends at", "behind", "replicas"),
    "attention",
)


def shown(seen: PollResult) -> Table:
    """The six lines of a node."""
    table = Table.grid(padding=(0, 2))
    for name, text in lines(seen):
        table.add_row(name, text)
    return table


def several(all_seen: Sequence[tuple[str, PollResult]]) -> Table:
    """A row for each of several nodes.

    @param all_seen: Each node's address, and what it answered.
    """
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for address, seen in all_seen:
        status = seen.status
        if status is None:
            table.add_row(address, *[""] * (len(COLUMNS) - 2), seen.problem)
            continue
        wrong = [*([seen.problem] if seen.problem else []), *attention(status)]
        end = status.get("maxOffset")
        table.add_row(
            name_of(status) or address,
            str(status.get("role", "")),
            state_of(status),
            str(status.get("version", "")),
            duration(status.get("uptimeSeconds")),
            "" if end is None else str(end),
            behind_of(status),
            replicas_in_sync(status),
            "; ".join(wrong),
        )
    return table


def table_of(status: Mapping[str, Any]) -> list[Table]:
    """A status as tables: the node, then its replicas, brokers, readers."""
    node = Table("", "", box=None, show_header=False, pad_edge=False)
    more: list[Table] = []
    for name, value in status.items():
        if name == "periodicJobs":
            # A dozen of them go well nearly always; --json has them all.
            value = [row for row in value if row.get("failures")]
            if not value:
                continue
        _add(node, more, name, value)
    return [node, *more]


def _add(node: Table, more: list[Table], name: str, value: Any) -> None:
    """Show one field: in a row of the node's table, in several, or in a table of its own."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        more.append(_rows(name, value))
    elif isinstance(value, dict) and value:
        inner = {key: item for key, item in value.items() if isinstance(item, dict) and item}
        flat = all(not isinstance(item, dict) for row in inner.values() for item in row.values())
        if flat and len(inner) == len(value):
            more.append(_rows("", [{name: key, **row} for key, row in inner.items()]))
            return
        plain = [f"{key} {_text(item)}" for key, item in value.items() if key not in inner]
        if plain:
            node.add_row(name, ", ".join(plain))
        for key, item in inner.items():
            _add(node, more, f"{name} {key}", item)
    else:
        node.add_row(name, _text(value))


def _rows(name: str, rows: list[dict[str, Any]]) -> Table:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, title=name or None, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_text(row.get(key)) for key in columns))
    return table


def _text(value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@define
class Copying:
    """Shows the progress of a slave's first copy: how many bytes, and how fast.

    The replication protocol does not tell the total, so the bar only pulses.
    """

    _before: tuple[float, int] | None = None

    def bar(self, status: Mapping[str, Any], now: float) -> Table | None:
        """One line for a terminal; C{None} if nothing is being copied.

        @param now: Seconds of any clock.
        """
        upstream = status.get("upstream") or {}
        if not upstream.get("bootstrapping"):
            return None
        received = int(upstream.get("received") or 0)
        since, had = self._before or (now, received)
        self._before = now, received
        rate = f"{decimal(int((received - had) / (now - since)))}/s" if now > since else ""
        line = Table.grid(padding=(0, 1))
        line.add_row("copying", ProgressBar(None, width=30, pulse=True), decimal(received), rate)
        return line


@define(kw_only=True)
class View:
    """How what nodes say is shown.

    @ivar console: Where.
    @ivar as_json: As a line of JSON for each node.
    @ivar everything: Every field, and not only what matters.
    """

    console: Console
    as_json: bool = False
    everything: bool = False
    _copying: Copying = field(factory=Copying, init=False)

    def of(self, all_seen: Sequence[tuple[str, PollResult]], now: float) -> RenderableType:
        """What there is to see.

        @param all_seen: Each node's address, and what it answered.
        @param now: Seconds of any clock.
        """
        if len(all_seen) > 1:
            return several(all_seen)
        ((_, seen),) = all_seen
        if seen.status is None:
            return Text()
        tables = table_of(seen.status) if self.everything else [shown(seen)]
        bar = self._copying.bar(seen.status, now)
        return Group(*tables, *([bar] if bar is not None and self.console.is_terminal else []))

    def show(self, all_seen: Sequence[tuple[str, PollResult]], now: float) -> None:
        """Print it; on stderr what it does not tell, why a node is unhealthy or was not reached."""
        if self.as_json:
            for address, seen in all_seen:
                one = len(all_seen) == 1
                if seen.status is not None:
                    row = seen.status if one else {"address": address, **seen.status}
                    click.echo(json.dumps(row, ensure_ascii=False))
        elif any(seen.status is not None for _, seen in all_seen) or len(all_seen) > 1:
            self.console.print(self.of(all_seen, now), markup=False)
        for _, seen in all_seen:
            told = not self.as_json and (
                len(all_seen) > 1 or (seen.status is not None and not self.everything)
            )
            if seen.problem and not told:
                complain(seen.problem)


async def polled(looks: Sequence[NodeClient]) -> list[tuple[str, PollResult]]:
    """Ask several nodes at once."""
    answers = await gatherResults([ensureDeferred(look.once()) for look in looks])
    return [(look.address, seen) for look, seen in zip(looks, answers, strict=True)]


async def watch(
    looks: Callable[[], Awaitable[Sequence[NodeClient]]],
    view: View,
    clock: IReactorTime,
    *,
    interval: float | None,
    times: int | None,
) -> list[tuple[str, PollResult]]:
    """Poll nodes once, or repeatedly; on a terminal what is shown stays in its place.

    @param looks: Finds the nodes, each time.
    @param interval: Seconds between polls; C{None} for one poll.
    @param times: How many polls; C{None} for no end.
    @return: The result of the last poll.
    """
    live = None
    if interval is not None and not view.as_json and view.console.is_terminal:
        live = Live(console=view.console, auto_refresh=False)
        live.start()
    count = 0
    try:
        while True:
            all_seen = await polled(await looks())
            if live is None:
                view.show(all_seen, clock.seconds())
            else:
                problems = [seen.problem for _, seen in all_seen if seen.status is None]
                rest = [Text(text, style="red") for text in problems] if len(all_seen) == 1 else []
                live.update(Group(view.of(all_seen, clock.seconds()), *rest), refresh=True)
            count += 1
            if interval is None or count == times:
                return all_seen
            await deferLater(clock, interval)
    finally:
        if live is not None:
            live.stop()


@click.command()
@click.argument("addresses", nargs=-1, metavar="[HOST[:PORT]]...")
@click.option(
    "--name-server",
    metavar="HOST:PORT",
    help="Show the brokers that this name server knows, and itself.",
)
@TLS
@flag("--all", "Show every field of the status.", "everything")
@flag("--json", "Print the status as JSON, one line per node and poll.", "as_json")
@click.option(
    "--watch",
    "interval",
    type=Number(FASTEST, SLOWEST),
    metavar="SECONDS",
    help=f"Poll again every SECONDS ({FASTEST} to {SLOWEST:.0f}).",
)
@click.option(
    "--times", type=Whole(1), metavar="COUNT", help="With --watch: stop after this many polls."
)
def status(
    addresses: tuple[str, ...],
    name_server: str | None,
    tls: ToolTls,
    everything: bool,
    as_json: bool,
    interval: float | None,
    times: int | None,
) -> int:
    """Show the state of nodes.

    HOST:PORT is any port of a node, HOST alone its client port 10911; the default is
    127.0.0.1:10914.  Of a stock broker it is shown what it tells its clients.  One node is six
    lines, several are one table.  Exit code 1 if any is unhealthy, 3 if any gives no answer.
    """
    if times is not None and interval is None:
        raise click.UsageError("--times needs --watch")
    if interval is not None and isnan(interval):
        raise click.UsageError("--watch nan is not a number of seconds")
    if name_server is not None and addresses:
        raise click.UsageError("--name-server knows the nodes: leave HOST:PORT out")
    named = [checked(address) for address in addresses or (DEFAULT_ADDRESS,)]
    server = None if name_server is None else checked(name_server)

    async def run(reactor: Any) -> int:
        at: dict[str, AnyPortClient] = {}
        async with Access(tls=tls).client(reactor) as client:

            def look(address: str) -> AnyPortClient:
                if address not in at:
                    at[address] = AnyPortClient(
                        *(treq, address, reactor), remoting=client, is_client=server is not None
                    )
                return at[address]

            async def looks() -> list[AnyPortClient]:
                if server is None:
                    return [look(address) for address in named]
                return [look(address) for address in [server, *await known_to(server, client)]]

            view = View(console=stdout(), as_json=as_json, everything=everything)
            try:
                last = await watch(looks, view, reactor, interval=interval, times=times)
            except (RmqhaError, OSError, ValueError) as error:
                complain(f"name server {server}: {str(error).rstrip('.')}")
                return UNREACHABLE
            return max(exit_code(seen) for _, seen in last)

    return in_reactor(run)
