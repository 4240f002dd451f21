"""C{rmqha clone} and C{reinit}: a store that has all of a running master, for a slave on it."""

from __future__ import annotations

from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import click
import treq
from rich.filesize import decimal

from rmqha.cli.common import TLS, F, Unreachable, Whole, bar, in_reactor
from rmqha.cli.local_nodes import LocalNodeFailed, LocalNodes
from rmqha.cli.nodes.arguments import checked
from rmqha.cli.reach import Access
from rmqha.config.broker_settings import BrokerRole
from rmqha.config.values import ENDPOINT
from rmqha.errors import Refused
from rmqha.ha.states import SyncState
from rmqha.logfiles import json_table
from rmqha.logfiles.offline_log import Progress
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.nodes.any_port import AskedNode, broker_of
from rmqha.nodes.poll import NodeClient
from rmqha.store.files.lock import is_locked
from rmqha.wire.store_layout import LOCK

OF_THE_MASTER = (
    *("brokerName", "brokerClusterName", "namesrvAddr", "messageDelayLevel"),
    *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"),
)
"""Keys that a slave has as its master has them."""

TABLES = ("topics", "groups", "requestModes", "consumerOffsets", "delayOffsets")
"""Parts of a slave's C{metadata} that a copy waits for."""

PATIENCE = 10.0
"""Seconds that the master may take to say who it is."""

SPELL = 30.0
"""Seconds between two lines of how far it is, where there is no terminal; and that a table may be
refused."""


_CONF = click.option(
    "--conf",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The configuration that is made for the slave. Default: DIR.conf.",
)
_ID = click.option(
    "--id",
    "number",
    type=Whole(1),
    default=1,
    show_default=True,
    metavar="N",
    help="The slave's brokerId, which no other slave of that master has.",
)
_MASTER = click.argument("master", metavar="HOST[:PORT]")
_STORE = click.argument("store", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


def _of_a_copy(command: F) -> F:
    """Give a command what says which master is copied, and where."""
    return _MASTER(_STORE(_CONF(_ID(TLS(command)))))


@click.command()
@_of_a_copy
def clone(master: str, store: Path, conf: Path | None, number: int, tls: ToolTls) -> None:
    """Copy all that a running master has into DIR, for a slave that is started on it then.

    HOST:PORT is the master's client port or its HA port, of rmqha or of a stock broker; HOST alone
    is port 10911.  A slave on loopback copies log and tables, ends when it is in sync, and leaves
    FILE, with what the master says of name, cluster, name servers and file sizes.  Whatever ends
    the command, run it again: it goes on with what is there.
    """
    _clone(master, store, conf, number, tls, anew=False)


@click.command()
@_of_a_copy
def reinit(master: str, store: Path, conf: Path | None, number: int, tls: ToolTls) -> None:
    """Make a slave of a running master in place of what DIR had: an old master, whose log parted.

    DIR and FILE are moved to DIR.before-reinit-N and FILE.before-reinit-N first; the rest is as in
    `rmqha clone`, which goes on if this is interrupted.
    """
    _clone(master, store, conf, number, tls, anew=True)


def _clone(
    master: str, store: Path, conf: Path | None, number: int, tls: ToolTls, *, anew: bool
) -> None:
    root = store.absolute()
    file = root.with_name(f"{root.name}.conf") if conf is None else conf.absolute()
    address = checked(master)
    begun: list[LocalNodes] = []

    async def run(reactor: Any, shown: Progress | None) -> None:
        async with Access(tls=tls).client(reactor) as client:
            broker = await broker_of(client, address, PATIENCE)
        if broker is None:
            raise Unreachable(f"{address} gives no answer as a broker's client port or HA port")
        keys = _keys(broker, root, number)
        if anew:
            _aside(root, file)
        _write(file, keys)
        begun.append(LocalNodes(reactor, file.parent, inf))
        await _copy(begun[0], file, broker, shown)

    try:
        with bar(f"copying {root.name}") as shown:
            in_reactor(lambda reactor: run(reactor, shown))
    finally:
        for each in begun:
            each.end_all()
    click.echo(f"start the slave: rmqha run --conf {file}")


def _aside(root: Path, file: Path) -> None:
    """Move a store, which no node runs on, and its configuration, where they are there.

    @raise Refused: If one does.
    """
    if is_locked(root / LOCK):
        raise Refused("reinit", f"a node runs on {root}: stop it")
    for each in (root, file):
        if each.exists():
            places = (each.with_name(f"{each.name}.before-reinit-{n}") for n in count(1))
            kept = each.rename(next(place for place in places if not place.exists()))
            click.echo(f"what was there is in {kept}")


def _keys(broker: AskedNode, root: Path, number: int) -> dict[str, str]:
    """The configuration of its slave.

    @raise Refused: If it does not tell its own, or is a slave itself.
    """
    if "brokerName" not in broker.keys:
        raise Refused("clone", f"{broker.client} does not tell its configuration to us")
    if broker.keys.get("brokerRole") == BrokerRole.SLAVE:
        raise Refused("clone", f"{broker.client} is a slave: name its master")
    same = {key: broker.keys[key] for key in OF_THE_MASTER if broker.keys.get(key)}
    return {
        **same,
        "brokerRole": BrokerRole.SLAVE.value,
        "brokerId": str(number),
        "storePathRootDir": str(root),
        "haMasterAddress": ENDPOINT.show((broker.host, broker.ha_port)),
        "haMasterClientAddress": broker.client,
    }


def _write(file: Path, keys: dict[str, str]) -> None:
    """@raise Refused: If there is another file in its place."""
    text = "".join(f"{key}={value}\n" for key, value in keys.items()).encode()
    if file.exists() and file.read_bytes() != text:
        raise Refused("clone", f"{file} is another one: name a new one with --conf")
    file.parent.mkdir(parents=True, exist_ok=True)
    json_table.replace_text(file, text, looks_whole=lambda path: False)


async def _copy(nodes: LocalNodes, file: Path, broker: AskedNode, shown: Progress | None) -> None:
    """@raise LocalNodeFailed: If the slave ends, or cannot go on."""
    port = next(nodes.ports)
    # Until it is started for good nobody is to be sent to it.
    words = ("slave", "--conf", str(file), "--set", "namesrvAddr=")
    slave = nodes.node(f"{file.stem}-clone", port, *words)
    look = NodeClient(treq, slave.admin, nodes.reactor)
    total = int(broker.table.get("commitLogMaxOffset") or 0)
    told = well = nodes.seconds

    def tell(done: int, most: int) -> None:
        nonlocal told
        if shown is not None:
            shown(done, most)
        elif nodes.seconds - told >= SPELL:
            told = nodes.seconds
            click.echo(f"{decimal(done)} of {decimal(most)} are copied")

    async def whole() -> dict[str, Any] | None:
        nonlocal well
        status = (await look.once()).status or {}
        upstream = status.get("upstream") or {}
        tables = {name: (status.get("metadata") or {}).get(name) or {} for name in TABLES}
        refused = "; ".join(
            f"{name}: {table.get('reason')}"
            for name, table in tables.items()
            if table.get("state") == "refused"
        )
        well = well if refused else nodes.seconds
        see_that_it_goes_on(upstream, refused, nodes.seconds - well)
        first, end = (status.get(name) or 0 for name in ("minOffset", "maxOffset"))
        tell(end - first, max(total, end) - first)
        adopted = all(table.get("state") in ("adopted", "unknown") for table in tables.values())
        return status if adopted and upstream.get("state") == SyncState.IN_SYNC else None

    status = await nodes.until(whole, f"{file.stem} was not copied")
    assert status is not None, "it is waited for"
    await nodes.stop(slave)
    first, end = status["minOffset"], status["maxOffset"]
    click.echo(
        f"{broker.keys['brokerName']} at {broker.client}: bytes {first} to {end} "
        f"({decimal(end - first)}), topics, groups and offsets are copied"
    )


def see_that_it_goes_on(upstream: dict[str, Any], refused: str, seconds: float) -> None:
    """See that the copy may still come to an end.

    @param refused: Which tables of the master are not taken over, and why.
    @param seconds: For how long that has been so: a round may fail by chance.
    @raise LocalNodeFailed: If it may not.
    """
    state = upstream.get("state")
    if state and SyncState(state).is_stop:
        raise LocalNodeFailed(
            f"the copy stands still, {state}: {upstream.get('reason')}; `rmqha reinit` begins with "
            "nothing"
        )
    if refused and seconds >= SPELL:
        raise LocalNodeFailed(f"tables of the master are refused: {refused}")
