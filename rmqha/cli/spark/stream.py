"""C{rmqha spark stream}: messages to a table as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from rmqha.cli.common import flag
from rmqha.cli.spark.common import Spark, spark_options, stores_argument
from rmqha.cli.spark.tables import table_options
from rmqha.pipeline.jobs import stream as job
from rmqha.pipeline.jobs.lag import Lag, Told
from rmqha.pipeline.jobs.spark_work import Stores
from rmqha.pipeline.spark.failures import is_ours, reason_of

TOPICS = 3
"""Topics whose lag is shown, those with the most bytes."""

STEADY = 30.0
"""Seconds that a stream has to run to be begun again when Spark fails."""


@click.command()
@stores_argument
@table_options
@click.option(
    "--trigger",
    "every",
    default=job.EVERY,
    show_default=True,
    metavar="TIME",
    help="Time between two batches.",
)
@flag("--available-now", "Read what the log has now, and end.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where Spark keeps its position.  [default: beside the table]",
)
@flag("--resume-from-table", "Begin a new checkpoint where the table ends.")
@spark_options
def stream(
    stores: Stores,
    table: dict[str, Any],
    options: dict[str, Any],
    every: str,
    available_now: bool,
    checkpoint: Path | None,
    resume_from_table: bool,
    on: Spark,
) -> None:
    """Write the messages of STORE to a table as they arrive, each once.

    The command may be killed at any time, and continues when it is started again.
    """
    with on.running("stream") as session, shown() as told:
        begin = partial(
            job.stream,
            session,
            stores,
            **table,
            checkpoint=checkpoint,
            every=None if available_now else every,
            told=told,
            **options,
        )
        follow(begin, resume_from_table)


def follow(begin: Callable[..., StreamingQuery], resume_from_table: bool) -> None:
    """Wait for a stream to end, and begin it again when Spark has lost a process that it needs.

    @raise StreamingQueryException: If it ended for another reason, or too soon.
    """
    query = begin(resume_from_table=resume_from_table)
    while True:
        begun = time.monotonic()
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if is_ours(error) or time.monotonic() - begun < STEADY:
                raise
            click.echo(f"beginning again: {reason_of(error)}", err=True)
        query = begin(resume_from_table=False)


@contextmanager
def shown() -> Iterator[Told]:
    """Show after each batch how far the stream is: on a terminal in one line that changes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda lag: click.echo(line(lag))
        return
    with console.status("starting") as status:
        yield lambda lag: status.update(line(lag))


def line(lag: Lag) -> str:
    """A batch in one line."""
    ends = ", ".join(f"{name} at {end}" for name, end in lag.ends.items())
    waits = "" if lag.seconds is None else f" and {lag.seconds:.1f} s"
    known = lag.ends.keys() - lag.held_up.keys()
    batch = f"{lag.ranges} ranges in {lag.took:.1f} s"
    held_up = "".join(f"; {name} is held up: {why}" for name, why in lag.held_up.items())
    topics = "".join(f", {size} of {topic}" for topic, size in islice(lag.topics.items(), TOPICS))
    behind = f"{lag.bytes} bytes{topics}{waits} behind" if known else "lag unknown"
    return f"{ends}: {behind}; last batch {batch}{held_up}"
