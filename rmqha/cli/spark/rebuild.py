"""
C{rmqha spark rebuild}: consume queues from a log.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from rmqha.cli.common import JSON, STORE, Whole, note
from rmqha.cli.spark.common import POINT_FILE, Spark, spark_options
from rmqha.logfiles.listing import root_of
from rmqha.pipeline.jobs.progress import bar
from rmqha.pipeline.jobs.rebuild.queue_files import FILE_SIZE
from rmqha.pipeline.jobs.rebuild.rebuild import rebuild as make
from rmqha.store.offline.detect_sizes import queue_file_size
from rmqha.wire.log.delay_levels import DEFAULT_DELAY_LEVELS
from rmqha.wire.store_layout import CONSUMEQUEUE

MOST_NOTES = 20
"""Problems of the log that are printed; C{--json} has all."""


@click.command()
@click.argument("store", type=STORE)
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where to make the folder consumequeue; not in a store.",
)
@click.option(
    "--file-size",
    type=Whole(1),
    metavar="BYTES",
    help=f"Bytes of a queue file.  [default: that of the store, or {FILE_SIZE}]",
)
@click.option(
    "--delay-levels",
    default=DEFAULT_DELAY_LEVELS,
    metavar="LEVELS",
    help="messageDelayLevel of the broker.",
)
@POINT_FILE
@JSON
@spark_options
def rebuild(
    store: Path,
    on: Spark,
    out: Path,
    file_size: int | None,
    delay_levels: str,
    point_file: str,
    as_json: bool,
) -> None:
    """Make the consume queues of STORE from its log, in the folder --out.

    The store is only read, and a node may be running on it.  `rmqha rebuild` replaces the
    queues and the index of a stopped store.
    """
    size = file_size or queue_file_size(root_of(store) / CONSUMEQUEUE) or FILE_SIZE
    made = make(
        on.session("rebuild"),
        store,
        out,
        file_size=size,
        delay_levels=delay_levels,
        point_file=point_file,
        shown=bar("rebuilding"),
    )
    for each in made.problems[:MOST_NOTES]:
        note(f"{each.topic}/{each.queue_id} {each.first} to {each.end}: {each.reason}")
    if len(made.problems) > MOST_NOTES:
        note(f"and {len(made.problems) - MOST_NOTES} more like this")
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=2, ensure_ascii=False))
        return
    click.echo(
        f"{made.folder}: {made.records} records, {made.units} units and {made.blanks} blanks in "
        f"{made.queues} queues, {made.files} files of {size} bytes"
    )
