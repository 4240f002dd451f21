"""C{rmqha run}: a node in the foreground, for those who do not know twistd."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rmqha.config.load import ROLE_NAMES


@click.command()
@click.argument("role", metavar="ROLE", type=click.Choice(ROLE_NAMES))
@click.option(
    "--conf",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The role's file to read; RocketMQ's defaults when absent.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key; it wins over FILE."
)
@click.option(
    "--repair",
    is_flag=True,
    help="Cut a damaged log at the damage; what followed is kept in a quarantine file.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Start a master although another one of its brokerName is live, or was met.",
)
def run(
    role: str, conf: Path | None, overrides: tuple[str, ...], repair: bool, force: bool
) -> None:
    """Run a node in the foreground, until SIGTERM or Ctrl-C.

    ROLE is master, slave, member (of a set with a controller) or namesrv (a name server).
    SIGHUP has it read FILE again.  The same as `twistd -n --pidfile= rmqha --role ROLE`, which has
    options for pid files, log files and daemons.

    Exit code 78 if only a person can mend what keeps it from starting, such as a mistake in FILE.
    """
    from twisted.scripts.twistd import run as twistd

    words = ["twistd", "--nodaemon", "--pidfile=", "rmqha", "--role", role]
    if conf is not None:
        words += ["--conf", str(conf)]
    for override in overrides:
        words += ["--set", override]
    words += ["--repair"] * repair + ["--force"] * force
    sys.argv = words
    twistd()
