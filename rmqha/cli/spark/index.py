"""C{rmqha spark index}: the split index of a store."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rmqha.cli.common import JSON, STORE
from rmqha.cli.spark.common import POINT_FILE, Spark, spark_options
from rmqha.pipeline.jobs.index import index as make
from rmqha.pipeline.jobs.progress import bar


@click.command()
@click.argument("store", type=STORE)
@POINT_FILE
@JSON
@spark_options
def index(store: Path, on: Spark, point_file: str, as_json: bool) -> None:
    """Make the split index of STORE, so that reads can be divided into more tasks than files.

    For stores of Java brokers, which may be running.  A running node of rmqha makes its own
    index; this command refuses its store.
    """
    made = make(on.session("index"), store, point_file=point_file, shown=bar("walking"))
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=2))
        return
    click.echo(
        f"{made.path}: {made.spans} spans of {made.files} files, {made.records} records from byte "
        f"{made.start} to {made.end}"
    )
