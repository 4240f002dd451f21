"""C{rmqha failover}: the master's machine is dead, and its slave becomes the master.

Each step looks first whether it was done, so whatever ends the command, it is run again.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import click
import treq
from twisted.internet.task import deferLater

from rmqha.cli.common import TLS, Number, in_reactor, note
from rmqha.cli.nodes.arguments import checked
from rmqha.cli.promote import promote
from rmqha.cli.reach import CREDENTIALS
from rmqha.config import properties
from rmqha.config.broker_settings import BrokerRole
from rmqha.config.load import load
from rmqha.config.settings import Settings
from rmqha.config.values import Endpoint
from rmqha.errors import Refused
from rmqha.logfiles import json_table
from rmqha.net.remoting.client import RemotingClient, split_address
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.nodes.any_port import broker_at
from rmqha.nodes.poll import TIMEOUT, Look
from rmqha.nodes.summary import duration
from rmqha.store.files.lock import is_locked
from rmqha.wire.remoting.signature import Credentials
from rmqha.wire.store_layout import LOCK

LOOKS = 3
"""How often the master is looked for, a second apart: one connection may fail by chance."""

OF_A_SLAVE = ("brokerRole", "brokerId", "haMasterAddress", "haMasterClientAddress")
"""Keys that are others in a master's file."""

BEFORE = ".before-failover"
"""What the name of the slave's file ends with that is kept."""


@click.command()
@click.argument(
    "conf", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--stop", metavar="COMMAND", help="Stops the slave's node, if it runs.")
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
@click.option(
    "--tables",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The old master's store, or a copy of its config folder: what it knows is merged.",
)
@click.option("--unverified", is_flag=True, help="Do not read the whole log first.")
@click.option(
    "--timeout",
    type=Number(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the node may take to stop, and to serve again.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done and lost; change nothing.")
@CREDENTIALS
@TLS
@click.pass_context
def failover(
    context: click.Context,
    conf: Path,
    stop: str | None,
    start: str | None,
    master: str | None,
    role: str,
    tables: Path | None,
    unverified: bool,
    timeout: float,
    dry_run: bool,
    credentials: Credentials | None,
    tls: ToolTls,
) -> None:
    """Make the slave whose configuration is FILE the master, because its master is dead.

    It is refused while the master answers: then `rmqha switchover` changes the roles without a
    loss.  The node is stopped, its store promoted as by `rmqha promote`, FILE made a master's (what
    it was stays beside it), and the node started.  Whatever ends the command, run it again.  The
    old master, when it is back, is started as a slave of this one.
    """
    settings = load(conf)
    if settings.controller.enabled:
        raise Refused(
            "failover",
            f"{conf} is that of a set's member, whose controllers elect the master: look with "
            "`rmqha controller explain`",
        )
    slaves = _is_slaves(settings)
    if slaves:
        gone = split_address(checked(master)) if master else settings.ha.master_client
        if gone is None:
            raise Refused("failover", f"{conf} names no master: give --master HOST:PORT")
        in_reactor(lambda reactor: _look(reactor, settings, gone, credentials, tls))
    elif conf.with_name(conf.name + BEFORE).exists():
        click.echo(f"{conf} is a master's already: going on")
    else:
        raise Refused("failover", f"{conf} is a master's: it takes the file of a slave")
    root = settings.store.root
    running = is_locked(root / LOCK)
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
        _wait(timeout, lambda: not is_locked(root / LOCK), f"the node on {root} still runs")
    if not ready:
        made = _masters_file(conf, role)
        _promote(context, settings, made, tables, unverified=unverified, dry_run=False)
        if made != conf:
            _write(conf, made.read_bytes())
            made.unlink()
            click.echo(f"{conf} is a master's now; what it was is {conf}{BEFORE}")
        if start is None:
            click.echo(f"now you: start the node of {conf}, and name it to its clients")
            return
        _run("--start", start)
    _wait(timeout, lambda: _serves(load(conf)), f"the node of {conf} does not serve as a master")


def _is_slaves(settings: Settings) -> bool:
    return settings.broker.role is BrokerRole.SLAVE or settings.ha.master is not None


async def _look(
    reactor: Any,
    settings: Settings,
    master: tuple[str, int],
    credentials: Credentials | None,
    tls: ToolTls,
) -> None:
    """See that the master is gone, and say what may be lost with it.

    @raise Refused: If it answers.
    """
    address = Endpoint().show(master)
    client = RemotingClient(
        reactor, close_on_timeout=True, credentials=credentials, tls=tls.requests
    )
    try:
        for look in range(LOOKS):
            if look:
                await deferLater(reactor, 1.0)
            if await broker_at(client, *master) is not None:
                raise Refused(
                    "failover",
                    f"the master at {address} answers: `rmqha switchover` changes the roles "
                    "without a loss; a second master would part the logs",
                )
    finally:
        await client.close()
    click.echo(f"the master at {address} gives no answer in {LOOKS} looks")
    note(
        "whether it is dead or only cut off cannot be told from here: see that nothing starts it "
        "as a master again. The new one has a higher master epoch, by which our nodes refuse it"
    )
    seen = await Look(treq, _admin(settings), reactor).once()
    upstream = (seen.status or {}).get("upstream") or {}
    if seen.status is not None:
        silent, age = (upstream.get(key) for key in ("secondsSilent", "lagSeconds"))
        click.echo(
            f"this log ends at byte {seen.status.get('maxOffset')}, its last message is "
            f"{duration(age)} old; the master was last heard {duration(silent)} ago"
        )
    click.echo(
        "lost is what the master acknowledged without a replica: as ASYNC_MASTER, or with "
        "SLAVE_NOT_AVAILABLE or a time-out to a sender"
    )


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


def _masters_file(conf: Path, role: str) -> Path:
    """What the file of a slave becomes, beside it; a master's file stays as it is."""
    before = conf.read_bytes()
    if not _is_slaves(load(conf)):
        return conf
    text = properties.commented(properties.decode(before), OF_A_SLAVE)
    made = conf.with_name(f"{conf.name}.failover")
    _write(conf.with_name(conf.name + BEFORE), before)
    _write(made, f"{text}brokerRole={role}\nbrokerId=0\n".encode())
    return made


def _write(path: Path, data: bytes) -> None:
    json_table.replace_text(path, data, looks_whole=lambda path: False)


def _run(option: str, command: str) -> None:
    """@raise Refused: If it fails."""
    click.echo(f"running {command}")
    done = subprocess.run(["sh", "-c", command], check=False)
    if done.returncode:
        raise Refused("failover", f"the command of {option} ended with {done.returncode}")


def _wait(timeout: float, over: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + timeout
    while not over():
        if time.monotonic() > end:
            raise Refused("failover", f"{what} after {timeout:g} s")
        time.sleep(0.2)


def _serves(settings: Settings) -> bool:
    """Whether the node serves as a master; says from where on."""
    try:
        with urlopen(f"http://{_admin(settings)}/status", timeout=TIMEOUT) as answer:
            status = json.load(answer)
    except (OSError, ValueError):
        return False
    serves = bool(status.get("role") == "master" and status.get("state") == "serving")
    if serves:
        click.echo(f"serving as a master, from byte {status.get('maxOffset')} on")
    return serves


def _admin(settings: Settings) -> str:
    """Where this machine reaches the node's admin port."""
    host = str(settings.admin.listen_address)
    local = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return Endpoint().show((local, settings.admin.listen_port))
