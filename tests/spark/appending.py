"""A process that adds to a table what a store has, batch after batch, until it is killed: what
Spark's driver and tasks do, without Spark.

    python -m tests.spark.appending STORE TABLE FORMAT CATALOG [once]

CATALOG is a JSON object of the properties of an Iceberg table's catalog, empty for one beside the
files.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rmqha.pipeline.sinks.table import IcebergPlace
from rmqha.pipeline.sinks.target import Format, Target
from tests.support.lake import append

EVERY = 0.05
"""Seconds between two batches."""


def main(store: str, table: str, format: str, catalog: str, how: str = "") -> None:
    """Add until the end, or once."""
    properties = tuple(json.loads(catalog).items())
    place = IcebergPlace("tests", properties) if properties else IcebergPlace()
    target = Target.at(table, format=Format(format), iceberg=place)
    while True:
        append(target, Path(store))
        if how:
            break
        time.sleep(EVERY)


if __name__ == "__main__":
    main(*sys.argv[1:])
