"""C{rmqha spark rewind}: take rows off a table that a log has lost."""

from __future__ import annotations

from pathlib import Path

import click

from rmqha.cli.common import Whole
from rmqha.cli.spark.tables import TABLE, iceberg_options
from rmqha.pipeline.jobs import rewind as job
from rmqha.pipeline.sinks.table import IcebergPlace


@click.command()
@TABLE
@click.option(
    "--to", required=True, type=Whole(0), metavar="OFFSET", help="Physical offset of the cut."
)
@click.option(
    "--store", metavar="NAME", help="The store whose rows are removed, if the table has several."
)
@iceberg_options
def rewind(table: Path | str, to: int, store: str | None, iceberg: IcebergPlace | None) -> None:
    """Remove the rows of a table from a physical offset on.

    For a log that was cut back: the error of its stream names the offset.  A stream goes on
    from there with --resume-from-table.
    """
    taken = job.rewind(table, to, store=store, iceberg=iceberg)
    ends = ", ".join(f"{name} up to {end}" for name, end in taken.to.items())
    click.echo(f"{taken.rows} rows removed; the table has {ends}")
