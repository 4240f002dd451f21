"""C{rmqha switchover}: two brokers change their roles, planned."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rmqha.cli.common import flag, in_reactor, seconds
from rmqha.cli.reach import Access, access_options
from rmqha.config.broker_settings import DEFAULT_LISTEN_PORT
from rmqha.config.values import ENDPOINT
from rmqha.net.remoting.client import split_address, with_port
from rmqha.switchover.acts import Act, Hands
from rmqha.switchover.asked_broker import AskedBroker
from rmqha.switchover.errors import Interrupted
from rmqha.switchover.journal import SwitchoverJournal
from rmqha.switchover.switchover import Switchover
from rmqha.switchover.waiting import Patience

JOURNAL = "rmqha-switchover.json"


def _address(context: click.Context, option: click.Parameter, text: str) -> str:
    try:
        return ENDPOINT.show(split_address(with_port(text, DEFAULT_LISTEN_PORT)))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _act(act: Act, does: str) -> Callable[[Any], Any]:
    """The option for what is done on a machine."""
    return click.option(
        act.value,
        metavar="COMMAND",
        help=f"{does}. Without it you are told to do that, and waited for.",
    )


@click.command()
@click.argument("master", callback=_address)
@click.argument("slave", callback=_address)
@_act(Act.STOP, "Stops MASTER, and keeps it from being started as a master")
@_act(Act.PROMOTE, "Stops SLAVE, makes its store a master's, and starts it as one")
@_act(Act.FOLLOW, "Starts what was MASTER as a slave")
@_act(Act.RESTORE, "With --back: starts MASTER as it was, once promoted to $RMQHA_EPOCH")
@flag("--check", "Look whether it can be done, and change nothing.")
@flag("--back", "Go back, while SLAVE has not started as a master.")
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    default=JOURNAL,
    show_default=True,
    help="Remembers how far it is; removed at the end.",
)
@seconds(
    "--timeout",
    120.0,
    "How long a step may take; what you have to do yourself is waited for without limit.",
    least=1,
)
@access_options
def switchover(
    master: str,
    slave: str,
    check: bool,
    back: bool,
    journal: Path,
    timeout: float,
    access: Access,
    **commands: str | None,
) -> None:
    """Let MASTER and SLAVE, a pair, change their roles.

    Both are HOST:PORT of client ports, or HOST alone, of rmqha or of stock brokers.  Writes are
    refused until SLAVE has every byte and offset; then MASTER is stopped, SLAVE is promoted, and
    MASTER follows it.  Each step says how to go back.  Whatever ends the command, run it again to
    go on, or with --back.  Commands find the master epoch of the change in $RMQHA_EPOCH.  See
    docs/guide/switchover.rst.
    """
    if check and back:
        raise click.UsageError("--check and --back exclude each other")
    given = {act: commands[act.name.lower()] for act in Act}
    begun = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - begun:7.1f} s  {text}")

    async def done(reactor: Any) -> None:
        async with access.client(reactor) as client:
            old, new = (AskedBroker(address, client) for address in (master, slave))
            process = journal.with_name(f"{journal.name}.pid")
            hands = Hands({act: each for act, each in given.items() if each}, process, reactor, say)

            def interrupt() -> None:
                if hands.interrupt():
                    reactor.stop()

            signal.signal(signal.SIGINT, lambda *_: reactor.callFromThread(interrupt))
            change = Switchover(
                old=old,
                new=new,
                journal=SwitchoverJournal(journal),
                hands=hands,
                say=say,
                waiting=Patience(clock=reactor, say=say, timeout=timeout),
                now_ms=lambda: int(time.time() * 1000),
            )
            try:
                await (change.check() if check else change.back() if back else change.run())
            except Interrupted as error:
                say(str(error))
                raise click.Abort from error

    in_reactor(done)
