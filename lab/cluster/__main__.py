"""Start the cluster, show how it is, stop it, at Ctrl-C or after C{--seconds}: C{make cluster}.
The exit code is 0 when every node started, ran and stopped as it should.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import click
from rich.console import Console

from lab.cluster.members import Cluster, Unusable
from lab.cluster.view import View, addresses, row_of
from lab.harness.nodes import ROOT, end_all
from rmqha.config.errors import ConfigProblems

LOOK = 1.0
"""Seconds between looks."""


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(0), help="Stop after so many seconds.  [default: at Ctrl-C]"
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / ".cluster",
    help="Folder for stores and logs.  [default: .cluster]",
)
@click.option(
    "--set", "more", multiple=True, metavar="KEY=VALUE", help="A setting for all brokers."
)
def main(seconds: float | None, folder: Path, more: tuple[str, ...]) -> None:
    """Two masters, two slaves and a name server, as conf/2m-2s-sync has them."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        sys.exit(run(Cluster.of(folder.resolve(), more), console, asked, seconds))
    except ConfigProblems as error:
        for problem in error.problems:
            console.print(str(problem), style="red", markup=False)
        sys.exit(2)
    finally:
        end_all()


def run(cluster: Cluster, console: Console, asked: threading.Event, seconds: float | None) -> int:
    """Start, watch until it is to end, and stop."""
    code = 0
    console.print(addresses(cluster))
    console.print(f"\nClients' name server: {cluster.names}. Ctrl-C stops all five.\n")
    try:
        cluster.start()
        watch(cluster, console, asked, seconds)
    except Unusable as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        code = 1
    console.print("stopping: masters, slaves, name server")
    for problem in cluster.stop():
        console.print(problem, style="red", markup=False, highlight=False)
        code = 1
    console.print("stopped; the next start continues from here" if code == 0 else "stopped")
    return code


def watch(
    cluster: Cluster, console: Console, asked: threading.Event, seconds: float | None
) -> None:
    """Show how it is, until it is to end."""
    looks = 0
    with View(console) as view:
        while True:
            view.show([row_of(member, member.status()) for member in cluster.members])
            looks += 1
            left = LOOK if seconds is None else min(LOOK, seconds - (looks - 1) * LOOK)
            if left <= 0 or asked.wait(left):
                return


if __name__ == "__main__":
    main()
