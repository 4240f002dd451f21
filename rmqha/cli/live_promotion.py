"""What C{rmqha failover} and C{rmqha promote} have a running slave do: become the master.

The node looks whether it may, then its configuration is changed here, by who may write it, and then
the node is told to begin (L{rmqha.roles.live_promotion}).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import click
import treq

from rmqha.cli.common import Unreachable, in_reactor, note
from rmqha.cli.nodes.arguments import checked
from rmqha.cli.reach import Access
from rmqha.config import properties
from rmqha.config.broker_settings import BrokerRole
from rmqha.config.load import BEFORE, OF_A_SLAVE, load
from rmqha.config.settings import Settings
from rmqha.config.values import ENDPOINT
from rmqha.errors import Refused
from rmqha.logfiles.json_table import fsync_folder
from rmqha.nodes.any_port import AnyPortClient
from rmqha.nodes.poll import TIMEOUT, UNREACHED, unreached
from rmqha.nodes.summary import duration

LOST = (
    "lost is what the master acknowledged without a replica: as ASYNC_MASTER, or with "
    "SLAVE_NOT_AVAILABLE or a time-out to a sender"
)
"""What an operator has to know before."""

CUT_OFF = (
    "whether it is dead or only cut off cannot be told from here: see that nothing starts it "
    "as a master again. The new one has a higher master epoch, by which our nodes refuse it"
)
"""The same of a master that gives no answer."""


# --- the file --------------------------------------------------------------------------


def is_slaves(settings: Settings) -> bool:
    """Whether a configuration makes a slave."""
    return settings.broker.role is BrokerRole.SLAVE or settings.ha.master is not None


def masters_file(conf: Path, role: str) -> Path:
    """What the file of a slave becomes, beside it; a master's file stays as it is."""
    before = conf.read_bytes()
    if not is_slaves(load(conf)):
        return conf
    text = properties.commented(properties.decode(before), OF_A_SLAVE)
    made = conf.with_name(f"{conf.name}.failover")
    write(conf.with_name(conf.name + BEFORE), before, conf)
    write(made, f"{text}brokerRole={role}\nbrokerId=0\n".encode(), conf)
    return made


def take(conf: Path, made: Path) -> None:
    """Make the file a master's."""
    os.replace(made, conf)
    fsync_folder(conf.parent)
    click.echo(f"{conf} is a master's now; what it was is {conf}{BEFORE}")


def write(path: Path, data: bytes, like: Path) -> None:
    """Write a file at once, durable on return, for whoever may read another one."""
    kept, new = like.stat(), path.with_name(f"{path.name}.new")
    with open(new, "wb") as file:
        os.fchmod(file.fileno(), kept.st_mode & 0o777)
        if os.geteuid() == 0:
            os.fchown(file.fileno(), kept.st_uid, kept.st_gid)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    fsync_folder(path.parent)


# --- the node --------------------------------------------------------------------------


def admin_at(address: str) -> str:
    """The admin port of a node that is named by any of its ports, or its host.

    @raise Unreachable: If it gives no answer.
    """

    async def find(reactor: Any) -> str:
        async with Access().client(reactor) as client:
            try:
                return await AnyPortClient(treq, checked(address), reactor, remoting=client).admin()
            except (*UNREACHED, ValueError) as error:
                raise Unreachable(unreached(address, error)) from error

    return in_reactor(find)


def admin_of(settings: Settings) -> str:
    """Where this machine reaches the admin port of a node with a configuration."""
    host = str(settings.admin.listen_address)
    local = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return ENDPOINT.show((local, settings.admin.listen_port))


def role_at(admin: str) -> str:
    """The role of the node there; empty if none answers."""
    try:
        return str(_ask(admin, "status").get("role"))
    except Unreachable:
        return ""


def promote_live(
    admin: str,
    *,
    role: str = BrokerRole.SYNC_MASTER.value,
    epoch: int | None = None,
    unverified: bool = False,
    dry_run: bool = False,
    timeout: float = 120.0,
) -> None:
    """Have a running slave become the master.  Blocking.

    @param admin: Its admin port.
    @param role: What its file says of it then.
    @param epoch: Its master epoch, C{None} for the next one.
    @param unverified: Whether it need not read its whole log first.
    @param dry_run: Whether it is only looked.
    @param timeout: Seconds that it may take to serve again.
    @raise Refused: If it may not.
    @raise Unreachable: If it gives no answer.
    """
    wishes = {"verify": str(not unverified).lower(), "dryRun": str(dry_run).lower()}
    if epoch is not None:
        wishes["epoch"] = str(epoch)
    conf = Path(_ask(admin, "promotion", wishes)["conf"])
    for line in _checked(admin):
        click.echo(line)
    note(CUT_OFF)
    if unverified:
        note("the log was not verified as a whole: run `rmqha verify`")
    if dry_run:
        click.echo(f"it would become the master in its process, and {conf} a master's")
        return
    before, made = conf.read_bytes(), masters_file(conf, role)
    if made != conf:
        take(conf, made)
    try:
        _ask(admin, "promotion", {"begin": "true"})
    except Refused:
        if made != conf:
            write(conf, before, conf)
            click.echo(f"{conf} is a slave's again")
        raise
    except Unreachable as error:
        # It may have begun, so the file stays.
        note(f"{error.message}: waiting whether it becomes the master")
    wait(timeout, lambda: serves(admin), f"the node of {conf} does not serve as a master")


def _checked(admin: str) -> Iterator[str]:
    """Wait until the node has looked.

    @return: What it found, and what may be lost.
    """
    while (found := _ask(admin, "status"))["promotion"]["state"] == "checking":
        time.sleep(0.2)
    *said, last = found["promotion"]["said"]
    yield from said
    if found["promotion"]["state"] == "refused":
        raise Refused("failover", last.removeprefix("promotion refused: "))
    yield last
    yield lags(found)
    yield LOST


def lags(status: dict[str, Any]) -> str:
    """Where a slave's log ends, and how old that is."""
    upstream = status.get("upstream") or {}
    silent, age = (upstream.get(key) for key in ("secondsSilent", "lagSeconds"))
    return (
        f"this log ends at byte {status.get('maxOffset')}, its last message is "
        f"{duration(age)} old; the master was last heard {duration(silent)} ago"
    )


def wait(timeout: float, over: Callable[[], bool], what: str) -> None:
    """Wait for something.  Blocking.

    @raise Refused: If it does not come.
    """
    end = time.monotonic() + timeout
    while not over():
        if time.monotonic() > end:
            raise Refused("failover", f"{what} after {timeout:g} s")
        time.sleep(0.2)


def serves(admin: str) -> bool:
    """Whether the node serves as a master; says from where on."""
    try:
        status = _ask(admin, "status")
    except Unreachable:
        return False
    found = bool(status.get("role") == "master" and status.get("state") == "serving")
    if found:
        click.echo(f"serving as a master, from byte {status.get('maxOffset')} on")
    return found


def _ask(admin: str, path: str, wishes: dict[str, str] | None = None) -> dict[str, Any]:
    query, method = (f"?{urlencode(wishes)}", "PUT") if wishes else ("", "GET")
    asked = Request(f"http://{admin}/{path}{query}", method=method)
    try:
        with urlopen(asked, timeout=TIMEOUT) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except HTTPError as error:
        why = json.load(error).get("error", error.reason)
        raise Refused("failover", str(why).removeprefix("promotion refused: ")) from error
    except (OSError, ValueError) as error:
        raise Unreachable(f"{admin} gives no answer: {error}") from error
