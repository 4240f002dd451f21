"""C{rmqha spark check}: prove a table, row by row."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from rmqha.cli.common import FAILED, note
from rmqha.cli.spark.common import Setting, stores_argument
from rmqha.cli.spark.tables import TABLE, iceberg_options, known
from rmqha.pipeline.jobs import check as job
from rmqha.pipeline.jobs.spark_work import Stores
from rmqha.pipeline.sinks.table import IcebergPlace

MOST = 20
"""Offsets of one kind that are printed."""


@click.command()
@stores_argument
@TABLE
@click.option(
    "--option",
    "options",
    type=Setting(),
    multiple=True,
    help="An option that the table was written with, like topic=orders; may be repeated.",
)
@iceberg_options
def check(
    stores: Stores,
    table: Path | str,
    options: tuple[tuple[str, str], ...],
    iceberg: IcebergPlace | None,
) -> int:
    """Compare a table with the logs of STORE, and with their tiers: each record is one row.

    Names the offsets of records that have no row, or several.  Exit code 1 if there are any.
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as drawn:
        task = drawn.add_task("comparing", total=None)
        found = job.check(
            stores,
            table,
            iceberg=iceberg,
            told=lambda done, total: drawn.update(task, completed=done, total=total),
            **known(options),
        )
    for each in found:
        for start, end in each.uncompared:
            note(
                f"{each.store}: bytes {start} to {end} are not in the log any more and were not "
                "compared; name a tier that has them (--option tier=URL)"
            )
        for offsets, what in (
            (each.missing, "have no row"),
            (each.double, "have several rows"),
            (each.foreign, "are rows without a record"),
        ):
            if offsets:
                few = ", ".join(map(str, offsets[:MOST]))
                more = f" and {len(offsets) - MOST} more" if len(offsets) > MOST else ""
                click.echo(f"{each.store}: {len(offsets)} {what}: {few}{more}")
        verdict = "right" if each.right else "wrong"
        click.echo(f"{each.store}: {verdict}; {each.rows} rows, bytes {each.start} to {each.end}")
    return 0 if all(each.right for each in found) else FAILED
