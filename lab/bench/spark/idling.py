"""What a trigger costs that finds nothing new: a stream of fifty stores, as Spark asks it."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from lab.bench.report import Row, spread
from lab.bench.spark.field import Field
from lab.bench.spark.made import Maker, make
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.tables import schema_of
from rmqha.pipeline.spark.stream import StreamReader
from rmqha.pipeline.spark.types import spark_schema

STORES = 50
RECORDS = 200
FILE_SIZE = 1 << 20
TRIGGERS = 101

MOST_TIME, MOST_OPENS = 0.010, 200

_EVENTS = {"open", "os.listdir", "os.scandir"}


class Opens:
    """Counts what is opened and listed in this process from now on.

    @ivar count: How often that was, found or not.
    """

    def __init__(self) -> None:
        self.count = 0
        # It cannot be taken away again.
        sys.addaudithook(self._heard)

    def _heard(self, event: str, details: tuple[Any, ...]) -> None:
        self.count += event in _EVENTS


def part(field: Field) -> list[Row]:
    """The planner's part of a trigger: how far the next batch goes, and what progress says.  Where
    that is what was before, Spark does nothing else.
    """
    top = field.folder / "idle"
    paths, size = {}, RECORDS * Maker().size
    for number in range(STORES):
        name = f"broker-{number}"
        made = make(top / name, size, file_size=FILE_SIZE, name=name, first=number * RECORDS)
        paths[name] = str(made.root)
    try:
        times, opens = _triggers(paths)
    finally:
        shutil.rmtree(top)
    middle = statistics.median(times)
    return [
        Row(
            what=f"an idle trigger of {STORES} stores",
            ours=spread([1000 * each for each in times], "ms"),
            goal=f"<= {1000 * MOST_TIME:g} ms",
            met=middle <= MOST_TIME,
        ),
        Row(
            what="files that it opens, folders that it lists",
            ours=f"{opens}",
            goal=f"<= {MOST_OPENS}",
            met=opens <= MOST_OPENS,
        ),
    ]


def _triggers(paths: dict[str, str]) -> tuple[list[float], int]:
    """@return: The seconds of each trigger, and the opens of one."""
    options = ReadOptions.parse(
        {"stores": json.dumps(paths), "startingOffsets": "latest"}, streaming=True
    )
    reader = StreamReader(options, spark_schema(schema_of(options)))
    place, limit = reader.initialOffset(), ReadAllAvailable()

    def trigger() -> None:
        if reader.latestOffset(place, limit) != place:
            raise AssertionError("nothing has come, and the stream goes on")
        reader.reportLatestOffset()

    trigger()  # the first one looks at the stores
    times = []
    for _ in range(TRIGGERS):
        begun = time.perf_counter()
        trigger()
        times.append(time.perf_counter() - begun)
    opens = Opens()
    trigger()
    return times, opens.count
