"""C{rmqha spark export}: messages to Parquet files, a Delta or an Iceberg table."""

from __future__ import annotations

from typing import Any

import click

from rmqha.cli.common import flag
from rmqha.cli.spark.common import Spark, spark_options, stores_argument
from rmqha.cli.spark.tables import table_options
from rmqha.pipeline.jobs import export as job
from rmqha.pipeline.jobs.progress import bar
from rmqha.pipeline.jobs.spark_work import Stores


@click.command()
@stores_argument
@table_options
@flag("--topics", "Print the rows and bytes of each topic.")
@spark_options
def export(
    stores: Stores, table: dict[str, Any], options: dict[str, Any], topics: bool, on: Spark
) -> None:
    """Write the messages of STORE to a table.

    Run it again to add the messages that arrived since; no message is written twice.
    """
    with on.running("export") as session:
        done = job.export(session, stores, **table, shown=bar("exporting"), **options)
    if topics:
        for name, (rows, size) in done.topics.items():
            click.echo(f"{name}\t{rows}\t{size}")
    ends = ", ".join(f"{name} up to {end}" for name, end in done.ends.items()) or "nothing"
    click.echo(f"{done.rows} rows in {done.files} files, {done.bytes} bytes; the table has {ends}")
