"""C{rmqha status}: the state of running nodes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from math import isnan
from typing import Any

import click
import treq
from attrs import define, field
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from twisted.internet.defer import ensureDeferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rmqha.cli.common import TLS, UNREACHABLE, Number, Whole, complain, in_reactor, stdout
from rmqha.cli.nodes.arguments import DEFAULT_ADDRESS, checked, exit_code
from rmqha.cli.nodes.brief import several, shown
from rmqha.cli.nodes.detail import Copying, table_of
from rmqha.config.load import NAMESRV
from rmqha.errors import RmqhaError
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.nodes.find import known_to
from rmqha.nodes.poll import Look, Seen

FASTEST, SLOWEST = 0.2, 3600.0
"""Bounds of C{--watch}, in seconds."""


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

    def of(self, all_seen: Sequence[tuple[str, Seen]], now: float) -> RenderableType:
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

    def show(self, all_seen: Sequence[tuple[str, Seen]], now: float) -> None:
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


class ServerLook(Look):
    """Asks a name server that has told its brokers.  RocketMQ's has no admin port."""

    async def once(self) -> Seen:
        """Ask for its health and its status; without an admin port all there is to tell is that it
        answers.
        """
        seen = await super().once()
        if seen.status is not None:
            return seen
        row = {"role": NAMESRV, "state": "answers", "reason": f"no admin port: {seen.problem}"}
        return Seen("", row)


async def polled(looks: Sequence[Look]) -> list[tuple[str, Seen]]:
    """Ask several nodes at once."""
    answers = await gatherResults([ensureDeferred(look.once()) for look in looks])
    return [(look.address, seen) for look, seen in zip(looks, answers, strict=True)]


async def watch(
    looks: Callable[[], Awaitable[Sequence[Look]]],
    view: View,
    clock: IReactorTime,
    *,
    interval: float | None,
    times: int | None,
) -> list[tuple[str, Seen]]:
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
@click.argument("addresses", nargs=-1, metavar="[HOST:PORT]...")
@click.option(
    "--name-server",
    metavar="HOST:PORT",
    help="Show the brokers that this name server knows, and itself; admin ports are taken to be "
    "three above client ports.",
)
@TLS
@click.option("--all", "everything", is_flag=True, help="Show every field of the status.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the status as JSON, one line per node and poll."
)
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
@click.pass_context
def status(
    context: click.Context,
    addresses: tuple[str, ...],
    name_server: str | None,
    tls: ToolTls,
    everything: bool,
    as_json: bool,
    interval: float | None,
    times: int | None,
) -> None:
    """Show the state of the nodes whose admin ports are HOST:PORT.

    The default is 127.0.0.1:10914.  One node is six lines, several are one table.  Exit code 1
    if any is unhealthy, 3 if any gives no answer.
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
        async def looks() -> list[Look]:
            if server is None:
                return [Look(treq, address, reactor) for address in named]
            own, *brokers = await known_to(server, reactor, tls.requests)
            return [
                ServerLook(treq, own, reactor),
                *(Look(treq, address, reactor) for address in brokers),
            ]

        view = View(console=stdout(), as_json=as_json, everything=everything)
        try:
            last = await watch(looks, view, reactor, interval=interval, times=times)
        except (RmqhaError, OSError, ValueError) as error:
            complain(f"name server {server}: {str(error).rstrip('.')}")
            return UNREACHABLE
        return max(exit_code(seen) for _, seen in last)

    context.exit(in_reactor(run))
