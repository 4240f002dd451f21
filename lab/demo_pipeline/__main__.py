"""From a client into a Delta table: a name server, a master and a slave, a stock client that
sends, and Spark, which reads the slave's files while the master is killed and comes back.

Run it with C{make demo-pipeline}.  It exits with 1 when anything is not as it should be, and
leaves the table and a picture in C{.demo-pipeline}.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lab.demo.traffic import possible
from lab.demo_pipeline.story import PipelineStory
from lab.harness.demo_end import demo_console, told
from lab.harness.nodes import ROOT


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
    console = demo_console(100)
    if not possible(console, "The pipeline works without it: see docs/guide/pipeline.rst."):
        sys.exit(1)
    story = PipelineStory(console, out.resolve(), seconds)
    sys.exit(told(console, story, "Every message is in the table, once.", end=story.end))


if __name__ == "__main__":
    main()
