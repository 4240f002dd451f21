"""C{rmqha spark stats}: what a log holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from rmqha.cli.common import JSON, Number, choice, flag, note, stdout
from rmqha.cli.spark.common import POINT_FILE, UNTIL, Spark, spark_options, stores_argument
from rmqha.pipeline.jobs.progress import bar
from rmqha.pipeline.jobs.spark_work import Stores
from rmqha.pipeline.jobs.stats.stats import Spread, Stats
from rmqha.pipeline.jobs.stats.stats import stats as count
from rmqha.pipeline.jobs.stats.stats_plots import plots, require
from rmqha.pipeline.log.options import Visibility


@click.command()
@stores_argument
@click.option("--topic", metavar="TOPIC[,...]", help="Only these topics, separated by commas.")
@choice(
    "--visibility", Visibility.LOG, "Count every record, or only messages that consumers can get."
)
@click.option(
    "--from",
    "startingTimestamp",
    metavar="TIME",
    help="Only messages stored at this time or later: 2026-01-31T12:00:00Z.",
)
@UNTIL
@click.option(
    "--step",
    type=Number(0.001),
    metavar="SECONDS",
    help="Seconds of a time step.  [default: about 200 steps]",
)
@flag("--queues", "Print a line for each queue too.")
@click.option(
    "--plot",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write plots of rates, sizes and delays into this folder.",
)
@POINT_FILE
@JSON
@spark_options
def stats(
    stores: Stores,
    on: Spark,
    step: float | None,
    queues: bool,
    plot: Path | None,
    point_file: str,
    as_json: bool,
    **options: str | None,
) -> None:
    """Count the messages of STORE by topic and queue, their rates, sizes and delays."""
    if plot is not None:
        require("--plot")
    found = count(
        on.session("stats"),
        stores,
        step=None if step is None else round(step * 1000),
        shown=bar("counting"),
        pointFile=point_file,
        **options,
    )
    if plot is not None:
        for path in plots(found, plot):
            note(f"{path} is a plot")
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        return
    console = stdout()
    _tell_topics(found, console)
    if queues:
        _tell_queues(found, console)
    click.echo(f"{found.messages} messages of {len(found.topics)} topics, {found.bytes} bytes")


def _tell_topics(found: Stats, console: Console) -> None:
    table = Table(box=None)
    table.add_column("topic")
    for name in ("queues", "messages", "MiB", "msg/s", "retried"):
        table.add_column(name, justify="right")
    for name in ("body p50", "p99", "max", "delay ms p50", "p99", "max"):
        table.add_column(name, justify="right")
    for name in ("first", "last"):
        table.add_column(name)
    for each in found.topics:
        table.add_row(
            each.topic,
            str(each.queues),
            str(each.messages),
            f"{each.bytes / (1 << 20):.1f}",
            f"{each.per_second:.1f}",
            str(each.retried),
            *_spread(each.sizes),
            *_spread(each.delays),
            _time(each.earliest),
            _time(each.latest),
        )
    console.print(table)


def _tell_queues(found: Stats, console: Console) -> None:
    table = Table("store", "topic", box=None)
    for name in ("queue", "messages", "bytes", "first offset", "last offset"):
        table.add_column(name, justify="right")
    for name in ("first", "last"):
        table.add_column(name)
    for each in found.queues:
        numbers = (each.queue_id, each.messages, each.bytes, each.first, each.last)
        table.add_row(
            each.store, each.topic, *map(str, numbers), _time(each.earliest), _time(each.latest)
        )
    console.print(table)


def _spread(found: Spread) -> tuple[str, ...]:
    return str(found.p50), str(found.p99), str(found.high)


def _time(milliseconds: int) -> str:
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return when.strftime("%Y-%m-%d %H:%M:%S")
