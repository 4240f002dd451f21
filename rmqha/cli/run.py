"""C{rmqha run}: a node in the foreground, for those who do not know twistd."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rmqha.cli.common import OVERRIDES, flag
from rmqha.config.load import ROLE_NAMES


@click.command()
@click.argument("role", metavar="[ROLE]", required=False, type=click.Choice(ROLE_NAMES))
@click.option(
    "--store",
    metavar="DIR",
    help="The folder of the store, like --set storePathRootDir=DIR; it is made if it is not there.",
)
@click.option(
    "--slave-of",
    metavar="HOST[:PORT]",
    help="Run a slave of the master there.  PORT is its client port or its HA port, 10911 when "
    "absent.",
)
@click.option(
    "--conf",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The role's file to read; RocketMQ's defaults when absent.",
)
@OVERRIDES
@flag("--repair", "Cut a damaged log at the damage; what followed is kept in a quarantine file.")
@flag("--force", "Start a master although another one of its brokerName is live, or was met.")
def run(
    role: str | None,
    store: str | None,
    slave_of: str | None,
    conf: Path | None,
    overrides: tuple[str, ...],
    repair: bool,
    force: bool,
) -> None:
    """Run a node in the foreground, until SIGTERM or Ctrl-C.

    ROLE is master, slave, member (of a set with a controller) or namesrv (a name server).  It may
    be left out: --slave-of runs a slave, brokerRole in FILE says it, and --store alone runs a
    master.  So two commands are a pair: `rmqha run --store DIR`, and on another machine
    `rmqha run --slave-of HOST --store DIR`.

    SIGHUP has it read FILE again.  The same as `twistd -n --pidfile= rmqha --role ROLE`, which has
    options for pid files, log files and daemons.

    Exit code 78 if only a person can mend what keeps it from starting, such as a mistake in FILE.
    """
    from twisted.scripts.twistd import run as twistd

    if role is None and store is None and slave_of is None and conf is None:
        raise click.UsageError(
            f"what is to run is not said: give a ROLE ({', '.join(ROLE_NAMES)}), or --store DIR "
            "for a master, or --slave-of HOST for a slave"
        )
    words = ["twistd", "--nodaemon", "--pidfile=", "rmqha"]
    named = {"--role": role, "--store": store, "--slave-of": slave_of, "--conf": conf}
    for option, value in named.items():
        if value is not None:
            words += [option, str(value)]
    for override in overrides:
        words += ["--set", override]
    words += ["--repair"] * repair + ["--force"] * force
    sys.argv = words
    twistd()
