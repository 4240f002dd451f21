"""What the commands share that write tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from rmqha.cli.common import PathOrUrl, choice, flag
from rmqha.cli.spark.common import Setting
from rmqha.pipeline.errors import OptionUnknown
from rmqha.pipeline.log.option_values import nearest
from rmqha.pipeline.log.options import KINDS
from rmqha.pipeline.sinks.encoding import Compression
from rmqha.pipeline.sinks.table import IcebergPlace
from rmqha.pipeline.sinks.target import Format

_OF_TABLE = "out", "format", "compression", "level", "table_per_topic", "iceberg"

TABLE = click.option(
    "--table",
    required=True,
    type=PathOrUrl("place", click.Path(exists=True, file_okay=False, path_type=Path)),
    help="The table's folder, or its s3:// or hdfs:// URL.",
)


def iceberg_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command C{--catalog}, C{--catalog-property} and C{--name}, as one argument
    C{iceberg}: an L{IcebergPlace}, or C{None}.
    """

    @click.option(
        "--catalog", metavar="NAME", help="Catalog of an Iceberg table, as pyiceberg is configured."
    )
    @click.option(
        "--catalog-property",
        "properties",
        type=Setting(),
        multiple=True,
        help="A property of that catalog; may be repeated.",
    )
    @click.option(
        "--name", metavar="NAME", help="Name of an Iceberg table in it.  [default: rmqha.messages]"
    )
    @wraps(command)
    def given(
        catalog: str | None,
        properties: tuple[tuple[str, str], ...],
        name: str | None,
        **others: Any,
    ) -> Any:
        place = None
        if catalog is not None or properties or name is not None:
            place = IcebergPlace(catalog, properties, name or IcebergPlace().table)
        return command(iceberg=place, **others)

    return given


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command all that says where rows go, as arguments of L{rmqha.pipeline.jobs.export},
    in C{table}, and options of the data source in C{options}.
    """

    @click.option(
        "--out",
        required=True,
        type=PathOrUrl("place", click.Path(path_type=Path)),
        help="The table's folder, or its s3:// or hdfs:// URL.",
    )
    @choice("--format", Format.PARQUET, "The format of the table.")
    @choice("--compression", Compression.ZSTD, "Compression of the files.")
    @click.option(
        "--level", type=int, metavar="N", help="Compression level.  [default: the codec's own]"
    )
    @click.option(
        "--partition-by", type=click.Choice(["topic"]), help="Partition by topic as well as by day."
    )
    @flag("--table-per-topic", "A table of its own for each topic; Parquet only.")
    @click.option(
        "--option",
        "options",
        type=Setting(),
        multiple=True,
        help="An option of the data source, like topic=orders; may be repeated.",
    )
    @wraps(command)
    def given(partition_by: str | None, options: tuple[tuple[str, str], ...], **others: Any) -> Any:
        table = {name: others.pop(name) for name in _OF_TABLE}
        if partition_by and table["table_per_topic"]:
            raise click.UsageError("--partition-by topic and --table-per-topic exclude each other")
        table["partition_by_topic"] = partition_by is not None
        return command(table=table, options=known(options), **others)

    return iceberg_options(given)


def known(options: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Options of the data source.

    @raise OptionUnknown: If one is none, or says what the arguments say.
    """
    names = {
        name.lower(): name
        for name in KINDS
        if name not in ("path", "paths", "stores", "storesFile")
    }
    for name, _ in options:
        if name.lower() not in names:
            raise OptionUnknown(name, nearest(name, names))
    return dict(options)
