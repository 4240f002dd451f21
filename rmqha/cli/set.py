"""C{rmqha set}: the members of a set, and another master, whatever coordinates it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from rmqha.cli.common import (
    FAILED,
    JSON,
    Commands,
    Unreachable,
    Whole,
    complain,
    in_reactor,
    stdout,
)
from rmqha.cli.controller.status import set_json, set_table
from rmqha.config.load import load
from rmqha.config.settings import Settings
from rmqha.controller.etcd.etcd_set import EtcdSet
from rmqha.controller.group import ControllerGroup
from rmqha.errors import ControllerRefused, ControllerUnanswered, Refused
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.tls.node_tls import etcd_identity, outgoing, requests_identity
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.roles.upstream.elected import controllers, set_in_etcd

T = TypeVar("T")

CONF = click.argument(
    "conf", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)


def coordinator(settings: Settings, reactor: Any) -> ControllerGroup | EtcdSet:
    """Who coordinates the set of a member."""
    tls = settings.tls
    if settings.controller.etcd:
        shown = None if tls.etcd_trusted is None else etcd_identity(tls)
        if shown is not None:
            shown.load()
        return set_in_etcd(settings, reactor, OutgoingTls(identity=shown, names=True))
    identity = requests_identity(tls) if tls.enabled else None
    if identity is not None:
        identity.load()
    client = RemotingClient(reactor, tls=outgoing(identity, tls))
    return controllers(settings, client, lambda: int(time.time() * 1000))


def ask(
    settings: Settings, run: Callable[[ControllerGroup | EtcdSet], Coroutine[Any, Any, T]]
) -> T:
    """Ask it something while a reactor runs; once in a process."""

    async def asked(reactor: Any) -> T:
        group = coordinator(settings, reactor)
        try:
            return await run(group)
        finally:
            await group.close()

    return in_reactor(asked)


def of_a_set(conf: Path) -> Settings:
    """Read a member's configuration.

    @raise Refused: If it is none.
    """
    settings = load(conf)
    if not settings.controller.enabled:
        raise Refused("set", f"{conf} has no enableControllerMode=true: its node is in no set")
    return settings


@click.group(cls=Commands)
def set() -> None:
    """Show the set that the node of FILE is in, and choose its master.

    FILE is the configuration of one of its members; controllers or etcd are asked as it says.
    """


@set.command()
@CONF
@JSON
def members(conf: Path, as_json: bool) -> int:
    """Show the members of the set: id, address, alive, in sync.

    Exit code 1 if it has no living master, 3 if the coordinator does not answer.
    """
    settings = of_a_set(conf)
    name = settings.broker.name
    found = ask(settings, lambda group: group.sets((name,))).get(name)
    if found is None:
        raise click.ClickException(f"there is no set {name} yet: none of its members has joined")
    if as_json:
        click.echo(json.dumps(set_json(found), ensure_ascii=False))
    else:
        stdout().print(set_table(found), markup=False)
    everybody = (*found.in_sync_replicas, *found.not_in_sync_replicas)
    if any(each.alive and each.broker_id == found.master_broker_id for each in everybody):
        return 0
    complain(f"set {name} has no living master")
    return FAILED


@set.command()
@CONF
@click.option("--id", "member", required=True, type=Whole(1), metavar="N", help="Its id.")
def elect(conf: Path, member: int) -> int:
    """Make member N the master of the set.

    The present master follows it then.  Only a member that is alive and in sync can be elected.
    """
    settings = of_a_set(conf)
    name = settings.broker.name

    async def chosen(group: ControllerGroup | EtcdSet) -> Any:
        return await group.elect(member, designated=True)

    try:
        state = ask(settings, chosen)
    except ControllerRefused as error:
        raise click.ClickException(f"{error}; `rmqha set members` shows who can be") from error
    except ControllerUnanswered as error:
        raise Unreachable(
            f"{error}; it may have been elected: look with `rmqha set members`"
        ) from error
    if state.master is None or state.master.id != member:
        complain(f"id {member} was not elected in set {name}: something else was decided meanwhile")
        return FAILED
    click.echo(
        f"set {name}: id {member} at {state.master.address} is master, "
        f"in master epoch {state.master_epoch}"
    )
    return 0
