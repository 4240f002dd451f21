"""C{rmqha controller elect}: makes one member of a set its master."""

from __future__ import annotations

import json

import click

from rmqha.cli.common import FAILED, JSON, TLS, Unreachable, Whole, complain
from rmqha.cli.controller.asking import ADDRESSES, addresses_of, ask
from rmqha.controller.coordinator import SetState
from rmqha.controller.group import ControllerGroup
from rmqha.errors import ControllerRefused, ControllerUnanswered
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.wire.remoting.codes import ControllerResponseCode as Code

_LOOK = "`rmqha controller explain --set` says who can be"
_UNKNOWN = "the controllers know no such set, or no member of it with that id: check --set and --id"

WHAT_TO_DO = {
    Code.ELECT_MASTER_FAILED: f"only a member that is alive and in sync can be elected: {_LOOK}",
    Code.MASTER_NOT_AVAILABLE: f"no member is alive and in sync: {_LOOK}",
    Code.BROKER_NEED_TO_BE_REGISTERED: _UNKNOWN,
    Code.BROKER_METADATA_NOT_EXIST: _UNKNOWN,
}
"""By what the controllers answer."""


async def elected(group: ControllerGroup, member: int) -> SetState:
    """Have a member elected, in the place of one that lives too.

    @raise click.ClickException: If it was not, or nobody knows; saying what to do.
    @raise NoController: If nobody leads.
    """
    try:
        return await group.elect(member, designated=True)
    except ControllerRefused as error:
        known = error.code in Code.__members__.values()
        hint = WHAT_TO_DO.get(Code(error.code), "") if known else ""
        raise click.ClickException(f"{error}; {hint}" if hint else str(error)) from error
    except ControllerUnanswered as error:
        raise Unreachable(
            f"{error}; it may have been elected: look with `rmqha controller status --set`"
        ) from error


def show(state: SetState, name: str, member: int, *, as_json: bool) -> int:
    """Print what came of it.

    @return: The exit code.
    """
    master = state.master
    if as_json:
        found = {
            "set": name,
            "masterId": None if master is None else master.id,
            "masterAddress": None if master is None else master.address,
            "masterEpoch": state.master_epoch,
            "syncStateSet": sorted(state.in_sync),
            "syncStateSetEpoch": state.set_epoch,
        }
        click.echo(json.dumps(found, ensure_ascii=False))
    if master is None or master.id != member:
        there = "it has no master" if master is None else f"id {master.id} is its master"
        complain(f"id {member} was not elected in set {name}: {there}; {_LOOK}")
        return FAILED
    if not as_json:
        click.echo(
            f"set {name}: id {master.id} at {master.address} is master, "
            f"in master epoch {state.master_epoch}"
        )
    return 0


@click.command()
@ADDRESSES
@click.option("--cluster", required=True, metavar="NAME", help="The set's brokerClusterName.")
@click.option("--set", "name", required=True, metavar="NAME", help="The set's brokerName.")
@click.option(
    "--id", "member", required=True, type=Whole(1), metavar="N", help="The member's controller id."
)
@TLS
@JSON
def elect(
    addresses: tuple[str, ...], cluster: str, name: str, member: int, tls: ToolTls, as_json: bool
) -> int:
    """Have the controllers at ADDRESSES make member N the master of a set.

    The present master follows it then.  Only a member that is alive and in sync can be elected.
    """
    controllers = addresses_of(addresses)
    state = ask(
        controllers,
        lambda group: elected(group, member),
        cluster=cluster,
        name=name,
        tls=tls.requests,
    )
    return show(state, name, member, as_json=as_json)
