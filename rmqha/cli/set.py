"""C{rmqha set}: one set, whatever coordinates it: its members and elections, another master, a
pause, and a member that is gone for good.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from attrs import asdict, frozen
from rich.table import Table

from rmqha.cli.common import (
    FAILED,
    JSON,
    UNREACHABLE,
    Commands,
    Unreachable,
    Whole,
    complain,
    flag,
    in_reactor,
    note,
    stdout,
)
from rmqha.cli.controller.status import set_json, set_table, set_title
from rmqha.cli.reach import Access
from rmqha.config.load import load
from rmqha.config.settings import Settings
from rmqha.controller.coordinator import SetState
from rmqha.controller.etcd.etcd_set import EtcdSet
from rmqha.controller.etcd.set_keys import ELECTION, Election, Paused
from rmqha.controller.group import ControllerGroup
from rmqha.controller.other_members import MemberLabels, told_by
from rmqha.controller.overview import members
from rmqha.errors import ControllerRefused, ControllerUnanswered, Refused
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.remoting.credentials import read_credentials
from rmqha.net.tls.node_tls import etcd_identity, outgoing, requests_identity
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.roles.elected_upstream import controllers, set_in_etcd
from rmqha.wire.remoting.bodies.controller import ReplicasInfo

T = TypeVar("T")

CONF = click.argument(
    "conf", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)


INSTEAD = {
    "init": "RocketMQ's controllers make a set as its first member joins; "
    "`rmqha controller status` says whether they answer",
    "pause": "RocketMQ's controllers elect whenever a master is gone, and cannot be told not to; "
    "`rmqha set elect` puts the master back where it was",
    "resume": "RocketMQ's controllers are never paused",
    "history": "RocketMQ's controllers keep none; their own log has their elections, and each "
    "member's log those that it followed",
    "remove": "RocketMQ's controllers let go of a dead member with `mqadmin cleanBrokerMetadata`, "
    "and with its -l of the whole set",
}
"""What a set with controllers has in the place of a command."""


def coordinator(
    settings: Settings, reactor: Any, client: RemotingClient
) -> ControllerGroup | EtcdSet:
    """Who coordinates the set of a member.

    @param client: Asks controllers.
    """
    tls = settings.tls
    if not settings.controller.etcd:
        return controllers(settings, client, lambda: int(time.time() * 1000))
    shown = None if tls.etcd_trusted is None else etcd_identity(tls)
    if shown is not None:
        shown.load()
    found = set_in_etcd(settings, reactor, OutgoingTls(identity=shown, names=True))
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"  # as in a container that has no name for it
    found.operator = f"{user}@{socket.gethostname()}"
    return found


def ask(
    settings: Settings,
    run: Callable[[ControllerGroup | EtcdSet, RemotingClient], Coroutine[Any, Any, T]],
) -> T:
    """Ask it something while a reactor runs; once in a process.

    @param run: Is given what asks the members, too.
    """
    tls = settings.tls

    async def asked(reactor: Any) -> T:
        identity = requests_identity(tls) if tls.enabled else None
        if identity is not None:
            identity.load()
        access = Access(
            credentials=read_credentials(settings.access.credentials),
            tls=ToolTls(requests=outgoing(identity, tls)),
        )
        async with access.client(reactor) as client:
            group = coordinator(settings, reactor, client)
            try:
                return await run(group, client)
            finally:
                await group.close()

    return in_reactor(asked)


def ask_etcd(conf: Path, command: str, run: Callable[[EtcdSet], Coroutine[Any, Any, T]]) -> T:
    """Ask the set in etcd.

    @raise Refused: If it is not there, saying what to use.
    """
    settings = of_a_set(conf)
    if not settings.controller.etcd:
        raise Refused(f"set {command}", f"{conf} has no controllerType=etcd: {INSTEAD[command]}")

    async def asked(group: ControllerGroup | EtcdSet, _: RemotingClient) -> T:
        assert isinstance(group, EtcdSet)
        return await run(group)

    return ask(settings, asked)


def of_a_set(conf: Path) -> Settings:
    """Read a member's configuration.

    @raise Refused: If it is none.
    """
    settings = load(conf)
    if not settings.controller.enabled:
        raise Refused("set", f"{conf} has no enableControllerMode=true: its node is in no set")
    return settings


@frozen(kw_only=True)
class Listed:
    """One set, and what its members say.

    @ivar name: Its C{brokerName}.
    @ivar found: What its coordinator knows of it.
    @ivar told: What members that live say of their logs, or why they do not, by id.
    @ivar leases: Seconds that leases go on, by id; C{None} where there are none.
    @ivar paused: C{None} if it is not, or cannot be.
    """

    name: str
    found: ReplicasInfo
    told: Mapping[int, MemberLabels | str]
    leases: Mapping[int, int] | None = None
    paused: Paused | None = None

    def columns(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        """What is known of members beside what all coordinators know: titles for people and for
        programs, and it by id.
        """
        if self.leases is not None:
            yield "lease", "leaseSeconds", dict(self.leases)
        told = [(number, each) for number, each in self.told.items() if not isinstance(each, str)]
        yield "epoch", "epoch", {n: each.labels[-1].label for n, each in told if each.labels}
        ends = {number: each.end for number, each in told}
        yield "log end", "logEnd", ends
        # The master was asked as well, a moment before or after.
        most = ends.get(self.found.master_broker_id or 0)
        behind = (
            {} if most is None else {number: max(0, most - end) for number, end in ends.items()}
        )
        yield "behind", "behind", behind

    def silent(self) -> Iterator[str]:
        """Who lives and says nothing."""
        for each in members(self.found):
            said = self.told.get(each.broker_id)
            if isinstance(said, str):
                where = f"id {each.broker_id} at {each.broker_address}"
                yield f"{where} says nothing of its log: {said}"


async def listed(group: ControllerGroup | EtcdSet, client: Any, name: str) -> Listed:
    """Ask a coordinator, and then the members that live.

    @param client: Asks members.
    @param name: The set's C{brokerName}.
    @raise click.ClickException: If there is no such set.
    """
    found = (await group.sets((name,))).get(name)
    if found is None:
        raise click.ClickException(f"there is no set {name} yet: none of its members has joined")
    alive = {each.broker_id: each.broker_address for each in members(found) if each.alive}
    told = await told_by(client, name, alive)
    if isinstance(group, ControllerGroup):
        return Listed(name=name, found=found, told=told)
    leases = await group.lease_seconds()
    return Listed(name=name, found=found, told=told, leases=leases, paused=group.paused)


def show(seen: Listed, *, as_json: bool) -> int:
    """Print it.

    @return: The exit code.
    """
    found, paused = seen.found, seen.paused
    if as_json:
        more = {key: column for _, key, column in seen.columns()}
        table = {
            "set": seen.name,
            "paused": None if paused is None else asdict(paused),
            **set_json(found, more),
        }
        click.echo(json.dumps(table, ensure_ascii=False))
    else:
        click.echo(set_title(seen.name, found))
        if paused is not None:
            click.echo(f"paused {paused}: no member is elected by itself")
        more = {title: column for title, _, column in seen.columns()}
        stdout().print(set_table(found, more), markup=False)
    silent = list(seen.silent())
    for each in silent:
        complain(each)
    if all(each.broker_id != found.master_broker_id or not each.alive for each in members(found)):
        complain(f"set {seen.name} has no living master")
        return FAILED
    return UNREACHABLE if silent else 0


@click.group(cls=Commands)
def set() -> None:
    """Show the set that the node of FILE is in, and change it.

    FILE is the configuration of one of its members; controllers or etcd are asked as it says.
    """


@set.command()
@CONF
def init(conf: Path) -> int:
    """See that etcd is ready for a new set, and print what the files of its members need.

    Nothing is written: the first member that joins makes the set.  Refused if there is one of
    that name.
    """
    settings = of_a_set(conf)
    broker, etcd = settings.broker, settings.etcd

    async def looked(group: EtcdSet) -> str:
        if (await group.view()).ids:
            why = f"there is a set {broker.name} below {group.prefix}; rmqha set list shows it"
            raise Refused("set init", why)
        await group.try_to_write()
        return group.prefix

    prefix = ask_etcd(conf, "init", looked)
    click.echo(f"etcd answers and can be written to; there is nothing below {prefix} yet")
    click.echo("each member needs:")
    shared: dict[str, object] = {
        "brokerClusterName": broker.cluster,
        "brokerName": broker.name,
        "enableControllerMode": "true",
        "controllerType": "etcd",
        "etcdAddresses": ";".join(etcd.addresses),
        "etcdPrefix": etcd.prefix,
        "etcdLeaseSeconds": etcd.lease,
    }
    for key, value in shared.items():
        click.echo(f"  {key}={value}")
    click.echo("and brokerIP1, listenPort and storePathRootDir of its own")
    note("a member whose brokerRole is SLAVE does not win the first election")
    return 0


@set.command("list")
@CONF
@JSON
def list_members(conf: Path, as_json: bool) -> int:
    """Show the members of the set: who leads, lives and is in sync, and where their logs end.

    Members that live are asked at their client ports.  Exit code 1 if the set has no living
    master, 3 if the coordinator or a member that lives does not answer.
    """
    settings = of_a_set(conf)
    name = settings.broker.name
    return show(ask(settings, lambda group, client: listed(group, client, name)), as_json=as_json)


@set.command()
@CONF
@JSON
def history(conf: Path, as_json: bool) -> int:
    """Show the last elections of a set in etcd, oldest first: when, from whom to whom, and why."""

    async def read(group: EtcdSet) -> list[Election]:
        try:
            return (await group.view()).elections()
        except ValueError as error:
            raise click.ClickException(
                f"{group.prefix}history cannot be read: {error}; the next election begins it anew"
            ) from None

    return show_history(ask_etcd(conf, "history", read), as_json=as_json)


def show_history(elections: list[Election], *, as_json: bool) -> int:
    """Print it.

    @return: The exit code.
    """
    if as_json:
        click.echo(json.dumps({"elections": elections}))
    elif not elections:
        click.echo("there was no election yet")
    else:
        titles = ("when", "from", "to", "master epoch", "set epoch", "why")
        table = Table(*titles, box=None, pad_edge=False)
        for each in elections:
            table.add_row(*(str(each[name] or "-") for name in ELECTION))
        stdout().print(table, markup=False)
    return 0


@set.command()
@CONF
def pause(conf: Path) -> int:
    """Have no member of a set in etcd elected by itself, until `rmqha set resume`.

    Its master goes on, also after a restart, and may be replaced by `rmqha set elect`.  A master
    whose lease may be over acknowledges nothing, as ever.
    """
    paused = ask_etcd(conf, "pause", EtcdSet.pause)
    click.echo(f"the set is paused {paused}: no member is elected by itself")
    return 0


@set.command()
@CONF
def resume(conf: Path) -> int:
    """Have members of a set in etcd elected by themselves again."""
    paused = ask_etcd(conf, "resume", EtcdSet.resume)
    click.echo("the set was not paused" if paused is None else f"the set was paused {paused}")
    return 0


@set.command()
@CONF
@click.option("--id", "member", type=Whole(1), metavar="N", help="The member's id.")
@flag("--in-sync", "Also if it could be elected.")
@flag("--all", "The whole set instead.", "whole")
def remove(conf: Path, member: int | None, in_sync: bool, whole: bool) -> int:
    """Take member N, which is gone for good, out of a set in etcd.

    Its id is never given again.  Refused while it lives or is master; and if it is in the
    SyncStateSet, without --in-sync: it has all that was acknowledged.  With --all etcd forgets a
    set of which no member lives.
    """
    if whole == (member is not None) or (whole and in_sync):
        raise click.UsageError("one of --id and --all is needed; --in-sync is for --id alone")

    async def removed(group: EtcdSet) -> str:
        if member is None:
            return f"etcd knows nothing of the set any more; it had the ids {await group.forget()}"
        state = await group.remove(member, in_sync=in_sync)
        return f"id {member} is no member any more; {sorted(state.in_sync)} may be elected"

    try:
        click.echo(ask_etcd(conf, "remove", removed))
    except ControllerUnanswered as error:
        raise Unreachable(f"{error}; it may be removed: look with `rmqha set list`") from error
    if whole:
        note("each store needs `rmqha controller reset` before it joins a set again")
    else:
        note("`rmqha slots` on the master shows what it still keeps for it; --drop lets go of that")
    return 0


@set.command()
@CONF
@click.option("--id", "member", required=True, type=Whole(1), metavar="N", help="Its id.")
def elect(conf: Path, member: int) -> int:
    """Make member N the master of the set.

    The present master follows it then.  Only a member that is alive and in sync can be elected.
    """
    settings = of_a_set(conf)
    name = settings.broker.name

    async def chosen(group: ControllerGroup | EtcdSet, _: RemotingClient) -> SetState:
        return await group.elect(member, designated=True)

    try:
        state = ask(settings, chosen)
    except ControllerRefused as error:
        raise click.ClickException(f"{error}; `rmqha set list` shows who can be") from error
    except ControllerUnanswered as error:
        raise Unreachable(
            f"{error}; it may have been elected: look with `rmqha set list`"
        ) from error
    if state.master is None or state.master.id != member:
        complain(f"id {member} was not elected in set {name}: something else was decided meanwhile")
        return FAILED
    click.echo(
        f"set {name}: id {member} at {state.master.address} is master, "
        f"in master epoch {state.master_epoch}"
    )
    return 0
