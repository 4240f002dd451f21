"""Start the cluster, say how to use it, end it, at Ctrl-C or after C{--seconds}: C{make
spark-cluster}.  The exit code is 0 when every process started, ran and ended as it should.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from lab.harness.nodes import ROOT, end_all
from lab.spark_cluster.members import LOOPBACK, SparkCluster, Unusable
from rmqha.errors import RmqhaError

LOOK = 1.0
"""Seconds between looks whether all still run."""


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(0), help="Stop after so many seconds.  [default: at Ctrl-C]"
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / ".spark-cluster",
    help="Folder for logs and what workers write.  [default: .spark-cluster]",
)
@click.option("--workers", type=click.IntRange(1, 8), default=2, show_default=True)
@click.option(
    "--cores", type=click.IntRange(1), default=1, show_default=True, help="Cores of each worker."
)
@click.option("--memory", default="1g", show_default=True, help="Memory of each worker.")
@click.option("--connect/--no-connect", default=True, help="Whether to serve Spark Connect.")
def main(
    seconds: float | None, folder: Path, workers: int, cores: int, memory: str, connect: bool
) -> None:
    """A Spark master, two workers and a Connect server on this machine."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    cluster = SparkCluster(folder.resolve(), workers, cores, memory, connect)
    try:
        sys.exit(run(cluster, console, asked, seconds))
    finally:
        end_all()


def run(
    cluster: SparkCluster, console: Console, asked: threading.Event, seconds: float | None
) -> int:
    """Start, watch until it is to end, and stop."""
    code = 0
    console.print("starting Spark's master, then its workers: some ten seconds")
    try:
        cluster.start()
        show(cluster, console)
        watch(cluster, asked, seconds)
    except (Unusable, RmqhaError) as error:
        console.print(str(error), style="red", markup=False)
        code = 1
    console.print("stopping")
    for problem in cluster.stop():
        console.print(problem, style="red", markup=False)
        code = 1
    console.print("stopped")
    return code


def show(cluster: SparkCluster, console: Console) -> None:
    """Say where everything is, and how it is used."""
    table = Table("process", "pid", "address", "pages", "log", box=None, pad_edge=False)
    addresses = {"master": cluster.url, "connect": cluster.remote}
    for process in cluster.processes:
        table.add_row(
            process.name,
            str(process.pid),
            addresses.get(process.name, ""),
            cluster.pages(process.name),
            str(process.log_path),
        )
    console.print(table)
    master = f"SPARK_LOCAL_IP={LOOPBACK} .venv/bin/rmqha spark stats STORE --master {cluster.url}"
    lines = ["", "Try:", f"  {master}"]
    if cluster.serving:
        lines.append(f"  .venv/bin/rmqha spark shell STORE --master {cluster.remote}")
    console.print("\n".join([*lines, "", "Ctrl-C stops all."]), markup=False, soft_wrap=True)


def watch(cluster: SparkCluster, asked: threading.Event, seconds: float | None) -> None:
    """Wait until it is to end; L{Unusable} if a process ends by itself."""
    left = float("inf") if seconds is None else seconds
    while left > 0 and not asked.wait(min(LOOK, left)):
        left -= LOOK
        for process in cluster.processes:
            if not process.running:
                raise Unusable(f"{process.name} has ended\n{process.tail(8)}")


if __name__ == "__main__":
    main()
