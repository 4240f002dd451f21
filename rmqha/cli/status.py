"""
C{rmqha status}: the state of a running node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isnan
from typing import Any

import click
import treq
from attrs import define, frozen
from rich.console import Console
from rich.filesize import decimal
from rich.progress_bar import ProgressBar
from rich.table import Table
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.error import ConnectError, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater, react
from twisted.web.client import ResponseFailed

from rmqha.cli.common import FAILED, complain, stdout

DEFAULT_ADDRESS = "127.0.0.1:10914"
"""C{adminListenAddress} and C{adminListenPort} of a node with no configuration."""

TIMEOUT = 5.0
"""Seconds a node has for an answer."""

UNREACHED = (CancelledError, TimeoutError, ConnectError, OSError, ResponseFailed)
"""How an answer may fail to come."""

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")

FASTEST, SLOWEST = 0.2, 3600.0
"""Bounds of C{--watch}, in seconds."""


@frozen
class Seen:
    """
    The result of one poll of a node.

    @ivar problem: Why the node is unhealthy, or cannot be reached; empty if it is healthy.
    @ivar status: What C{/status} answered; C{None} without an answer.
    """

    problem: str
    status: dict[str, Any] | None


@define
class Look:
    """
    Asks one node.

    @ivar client: C{treq}, or what looks like it.
    @ivar address: C{host:port} of its admin port.
    @ivar clock: For the time an answer may take.
    """

    client: Any
    address: str
    clock: IReactorTime

    async def once(self) -> Seen:
        """
        Ask for its health and its status.
        """
        try:
            code, health = await self._get("healthz")
            status_code, status = await self._get("status")
        except (*UNREACHED, ValueError) as error:
            return Seen(unreached(self.address, error), None)
        if status_code != 200:
            return Seen(f"{self.address} answers /status with {status_code}", None)
        if code == 200:
            return Seen("", status)
        reason = health.get("reason") or f"/healthz answers {code}"
        return Seen(f"{self.address} is unhealthy: {reason}", status)

    async def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        url = f"http://{self.address}/{path}"
        answer: Deferred[Any] = self.client.get(url, timeout=TIMEOUT)
        response = await answer
        body: Deferred[bytes] = self.client.content(response)
        content = json.loads(await body.addTimeout(TIMEOUT, self.clock))
        if not isinstance(content, dict):
            raise ValueError(f"/{path} is not a JSON object")
        return response.code, content


def unreached(address: str, error: BaseException) -> str:
    """
    Why a node gave no answer, in words.

    @param error: One of L{UNREACHED}, or a C{ValueError} about what it answered.
    """
    if isinstance(error, (CancelledError, TimeoutError)):
        return f"{address} did not answer within {TIMEOUT:.0f} seconds"
    if isinstance(error, ValueError):
        return f"{address} is not an admin port of rmqha: {error}"
    return f"{address} cannot be reached: {_reason(error)}"


def _reason(error: BaseException) -> str:
    """
    The text of a network error, the operating system's where there is one.
    """
    if isinstance(error, ResponseFailed) and error.reasons:
        return str(error.reasons[0].getErrorMessage()).rstrip(".")
    return str(error).rstrip(".")


def table_of(status: Mapping[str, Any]) -> list[Table]:
    """
    A status as tables: the node, then its replicas, brokers, readers.
    """
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
    """
    Show one field: in a row of the node's table, in several, or in a table of its own.
    """
    if _is_rows(value):
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


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


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


def show(seen: Seen, as_json: bool, console: Console) -> None:
    """
    Print the result of a poll: the status on stdout, a problem on stderr.
    """
    if seen.status is not None:
        if as_json:
            click.echo(json.dumps(seen.status, ensure_ascii=False))
        else:
            for table in table_of(seen.status):
                console.print(table, markup=False)
    if seen.problem:
        complain(seen.problem)


@define
class Copying:
    """
    Shows the progress of a slave's first copy: how many bytes, and how fast.

    The replication protocol does not tell the total, so the bar only pulses.
    """

    _before: tuple[float, int] | None = None

    def bar(self, status: Mapping[str, Any], now: float) -> Table | None:
        """
        One line for a terminal; C{None} if nothing is being copied.

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


async def watch(
    look: Look,
    *,
    interval: float | None,
    times: int | None,
    as_json: bool,
    console: Console,
) -> Seen:
    """
    Poll a node once, or repeatedly.

    @param interval: Seconds between polls; C{None} for one poll.
    @param times: How many polls; C{None} for no end.
    @return: The result of the last poll.
    """
    count = 0
    copying = Copying()
    live = interval is not None and not as_json and console.is_terminal
    while True:
        seen = await look.once()
        if live:
            console.clear()
        show(seen, as_json, console)
        bar = copying.bar(seen.status or {}, look.clock.seconds())
        if live and bar is not None:
            console.print(bar)
        count += 1
        if interval is None or count == times:
            return seen
        await deferLater(look.clock, interval)


@click.command()
@click.argument("address", default=DEFAULT_ADDRESS, metavar="[HOST:PORT]")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the status as JSON, one line per poll."
)
@click.option(
    "--watch",
    "interval",
    type=click.FloatRange(FASTEST, SLOWEST),
    metavar="SECONDS",
    help=f"Poll again every SECONDS ({FASTEST} to {SLOWEST:.0f}).",
)
@click.option("--times", type=click.IntRange(1), help="With --watch: stop after this many polls.")
@click.pass_context
def status(
    context: click.Context, address: str, as_json: bool, interval: float | None, times: int | None
) -> None:
    """Show the state of the node whose admin port is HOST:PORT.

    The default is 127.0.0.1:10914.  Exit code 1 if it is unhealthy or cannot be reached.
    """
    if times is not None and interval is None:
        raise click.UsageError("--times needs --watch")
    if interval is not None and isnan(interval):
        raise click.UsageError("--watch nan is not a number of seconds")
    match = ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise click.UsageError(f"{address} is not HOST:PORT")
    outcome: list[Seen] = []

    async def run(reactor: Any) -> None:
        look = Look(treq, address, reactor)
        outcome.append(
            await watch(look, interval=interval, times=times, as_json=as_json, console=stdout())
        )

    try:
        react(lambda reactor: ensureDeferred(run(reactor)))
    except SystemExit as ended:
        if not outcome:
            raise click.Abort() from ended
    context.exit(FAILED if outcome[0].problem else 0)
