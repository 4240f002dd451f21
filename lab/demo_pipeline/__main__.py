"""
From a client into a Delta table: a name server, a master and a slave, a stock client that
sends, and Spark, which reads the slave's files while the master is killed and comes back.

Run it with C{make demo-pipeline}.  It exits with 1 when anything is not as it should be, and
leaves the table and a picture in C{.demo-pipeline}.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from lab.demo.traffic import why_not
from lab.demo_pipeline.story import PipelineStory
from lab.harness.nodes import ROOT, end_all
from rmqha.errors import RmqhaError


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=ROOT / ".demo-pipeline",
    help="Folder for the table (messages) and the picture.  [default: .demo-pipeline]",
)
@click.option("--seconds", type=click.FloatRange(5, 600), default=20.0, show_default=True)
def main(out: Path, seconds: float) -> None:
    """From a client through a pair of brokers into a Delta table."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 100
    console = Console(width=wide, soft_wrap=False)
    reason = why_not()
    if reason:
        console.print(
            "The demo needs RocketMQ's C++ client, which is not installed here: its wheel is for "
            f"x86-64 Linux with glibc and libstdc++. {reason}\n"
            "Nothing was tried. The pipeline works without it: see docs/guide/pipeline.rst.",
            highlight=False,
        )
        sys.exit(1)
    begun = time.monotonic()
    story = PipelineStory(console, out.resolve(), seconds)
    try:
        well = story.run()
    except (AssertionError, RmqhaError) as error:
        console.print(f"failed: {error}", highlight=False, markup=False, style="bold red")
        well = False
    except KeyboardInterrupt:
        console.print("interrupted")
        well = False
    finally:
        story.end()
        end_all()
        story.folder.remove()
    took = time.monotonic() - begun
    if well:
        console.print(f"[bold green]Every message is in the table, once.[/] {took:.0f} s")
    else:
        console.print(f"[bold red]Something differs or is missing, see above.[/] {took:.0f} s")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
