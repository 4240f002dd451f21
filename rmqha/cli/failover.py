"""C{rmqha failover}: the master's machine is dead, and its slave becomes the master.

Each step looks first whether it was done, so whatever ends the command, it is run again.
"""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import click
import treq
from twisted.internet.task import deferLater

from rmqha.cli.common import MERGED_TABLES, flag, in_reactor, note, seconds
from rmqha.cli.live_promotion import (
    CUT_OFF,
    LOST,
    admin_at,
    admin_of,
    is_slaves,
    lags,
    masters_file,
    promote_live,
    role_at,
    serves,
    take,
    wait,
)
from rmqha.cli.nodes.arguments import checked
from rmqha.cli.promote import promote
from rmqha.cli.reach import Access, access_options
from rmqha.config.broker_settings import BrokerRole
from rmqha.config.load import BEFORE, load
from rmqha.config.settings import Settings
from rmqha.config.values import ENDPOINT
from rmqha.errors import Refused
from rmqha.net.remoting.client import split_address
from rmqha.nodes.any_port import broker_at
from rmqha.nodes.poll import NodeClient
from rmqha.store.files.lock import is_locked
from rmqha.wire.store_layout import LOCK

SWITCHOVER = "`rmqha switchover` changes the roles without a loss"

LOOKS = 3
"""How often the master is looked for, a second apart: one connection may fail by chance."""


@click.command()
@click.argument("slave", metavar="FILE|HOST[:PORT]")
@click.option(
    "--stop",
    metavar="COMMAND",
    help="Stops the slave's node, if it runs; without it the node becomes the master as it runs.",
)
@click.option("--start", metavar="COMMAND", help="Starts the node of FILE, and returns.")
@click.option(
    "--master",
    metavar="HOST:PORT",
    help="The master's client port, where FILE has no haMasterAddress.",
)
@click.option(
    "--role",
    type=click.Choice([BrokerRole.SYNC_MASTER.value, BrokerRole.ASYNC_MASTER.value]),
    default=BrokerRole.SYNC_MASTER.value,
    show_default=True,
    help="What the new master is to be.",
)
@MERGED_TABLES
@flag("--unverified", "Do not read the whole log first.")
@seconds("--timeout", 120.0, "How long the node may take to stop, and to serve again.", least=1)
@flag("--dry-run", "Say what would be done and lost; change nothing.")
@access_options
@click.pass_context
def failover(
    context: click.Context,
    slave: str,
    stop: str | None,
    start: str | None,
    master: str | None,
    role: str,
    tables: Path | None,
    unverified: bool,
    timeout: float,
    dry_run: bool,
    access: Access,
) -> None:
    """Make a slave the master, because its master is dead.

    It is named by its configuration FILE, or by any port of its node.  It is refused while the
    master answers: then `rmqha switchover` changes the roles without a loss.  A node that runs
    becomes the master in its process: run it on the node's machine, as who may write FILE.  With
    --stop, or if it does not run, its store is promoted as by `rmqha promote`, and the node
    started.  FILE is made a master's (what it was stays beside it).  Whatever ends the command, run
    it again.  The old master, when it is back, is started as a slave of this one.
    """
    conf = Path(slave)
    live = partial(promote_live, role=role, unverified=unverified, dry_run=dry_run, timeout=timeout)
    if not conf.is_file():
        if conf.parent != Path():
            raise click.UsageError(f"there is no file {slave}")
        if stop or start or master or tables:
            raise click.UsageError(
                f"{slave} is no file: --stop, --start, --master, --tables need one"
            )
        live(admin_at(slave))
        return
    settings = load(conf)
    if settings.controller.enabled:
        raise Refused(
            "failover",
            f"{conf} is that of a set's member, whose controllers elect the master: look with "
            "`rmqha controller explain`",
        )
    root = settings.store.root
    running = is_locked(root / LOCK)
    admin = admin_of(settings)
    if running and not (stop or tables) and role_at(admin) == "slave":
        if master:
            named = split_address(checked(master))
            in_reactor(lambda reactor: _look(reactor, settings, named, access))
        live(admin)
        return
    slaves = is_slaves(settings)
    if slaves:
        gone = split_address(checked(master)) if master else settings.ha.master_client
        if gone is None:
            raise Refused("failover", f"{conf} names no master: give --master HOST:PORT")
        in_reactor(lambda reactor: _look(reactor, settings, gone, access))
    elif (before := conf.with_name(conf.name + BEFORE)).exists():
        click.echo(f"{conf} is a master's already: going on")
        old = split_address(checked(master)) if master else load(before).ha.master_client
        if old is not None and not running:
            again = f"`mv {before} {conf}` makes a slave of this node again, or stop that one"
            in_reactor(lambda reactor: _look(reactor, settings, old, access, again))
    else:
        raise Refused("failover", f"{conf} is a master's: it takes the file of a slave")
    if dry_run:
        if running:
            click.echo(f"a node runs on {root}: it would be stopped, and promoted then")
        else:
            _promote(context, settings, None, tables, unverified=unverified, dry_run=True)
        return
    ready = running and not slaves
    if running and not ready:
        if stop is None:
            raise Refused("failover", f"a node runs on {root}: stop it, or give --stop COMMAND")
        _run("--stop", stop)
        wait(timeout, lambda: not is_locked(root / LOCK), f"the node on {root} still runs")
    if not ready:
        made = masters_file(conf, role)
        _promote(context, settings, made, tables, unverified=unverified, dry_run=False)
        if made != conf:
            take(conf, made)
        if start is None:
            click.echo(f"now you: start the node of {conf}, and name it to its clients")
            return
        _run("--start", start)
    wait(timeout, lambda: serves(admin), f"the node of {conf} does not serve as a master")


async def _look(
    reactor: Any,
    settings: Settings,
    master: tuple[str, int],
    access: Access,
    instead: str = SWITCHOVER,
) -> None:
    """See that the master is gone, and say what may be lost with it.

    @raise Refused: If it answers.
    """
    address = ENDPOINT.show(master)
    async with access.client(reactor) as client:
        for look in range(LOOKS):
            if look:
                await deferLater(reactor, 1.0)
            if await broker_at(client, *master) is not None:
                raise Refused(
                    "failover",
                    f"the master at {address} answers: {instead}; a second master would part the "
                    "logs",
                )
    click.echo(f"the master at {address} gives no answer in {LOOKS} looks")
    note(CUT_OFF)
    seen = await NodeClient(treq, admin_of(settings), reactor).once()
    if seen.status is not None:
        click.echo(lags(seen.status))
    click.echo(LOST)


def _promote(
    context: click.Context,
    settings: Settings,
    conf: Path | None,
    tables: Path | None,
    *,
    unverified: bool,
    dry_run: bool,
) -> None:
    context.invoke(
        promote,
        store=settings.store.root,
        conf=conf,
        dry_run=dry_run,
        repair=False,
        unverified=unverified,
        epoch=None,
        tables=tables,
        as_json=False,
    )


def _run(option: str, command: str) -> None:
    """@raise Refused: If it fails."""
    click.echo(f"running {command}")
    done = subprocess.run(["sh", "-c", command], check=False)
    if done.returncode:
        raise Refused("failover", f"the command of {option} ended with {done.returncode}")
