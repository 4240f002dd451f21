"""A Spark session that is told what to do:
C{python -m lab.bench.spark.session FOLDER CPUS [SETTING=VALUE...]}.

Each action answers with its seconds, and with what it was.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lab.bench.spark.decoding import NUMBERS, RAW
from lab.bench.spark.peers import seconds, serve
from rmqha.pipeline.jobs.export import export
from rmqha.pipeline.jobs.index import index
from rmqha.pipeline.jobs.spark_work import ranges_of, run
from rmqha.pipeline.jobs.stream import stream
from rmqha.pipeline.jobs.verify.verify import verify
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.pipeline.log.reading import MessageReader, chosen_columns
from rmqha.pipeline.spark.session import builder

SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "2000",
}

COUNTED = pa.schema([("rows", pa.int64())])


def count_rows(wanted: Range) -> Iterable[pa.RecordBatch]:
    """Decode every column of a range, and drop it."""
    options = ReadOptions.parse({"path": wanted.root})
    reader = MessageReader(options, chosen_columns(options))
    yield pa.RecordBatch.from_pydict(
        {"rows": [sum(batch.num_rows for batch in reader.read(wanted))]}, COUNTED
    )


class Actions:
    """What the session can be told."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._number = 0

    def _fresh(self) -> Path:
        self._number += 1
        return self._folder / f"out{self._number}"

    def _read(self, store: str, columns: Iterable[str] | None, visibility: str) -> DataFrame:
        reader = self._spark.read.format("rmqha").option("visibility", visibility)
        if columns is not None:
            reader = reader.option("columns", ",".join(columns))
        return reader.load(store)

    def index(self, store: str) -> dict[str, Any]:
        return {"spans": index(self._spark, store).spans}

    def count(self, store: str) -> dict[str, Any]:
        frame = self._read(store, NUMBERS, "log")
        rows: list[int] = []
        took = seconds(lambda: rows.append(frame.count()))
        return {"seconds": took, "rows": rows[0]}

    def noop(self, store: str, raw: bool) -> dict[str, Any]:
        """Bring all columns to Java, and drop them there."""
        frame = self._read(store, RAW if raw else None, "log")
        took = seconds(lambda: frame.write.format("noop").mode("overwrite").save())
        return {"seconds": took}

    def decode(self, store: str) -> dict[str, Any]:
        """Decode all columns where the tasks run, and drop them there."""
        ranges = ranges_of(self._spark, store)
        return {"seconds": seconds(lambda: run(ranges, count_rows, COUNTED))}

    def export(self, store: str, compression: str) -> dict[str, Any]:
        out = self._fresh()
        level = 1 if compression == "zstd" else None
        took = seconds(
            lambda: export(
                self._spark, store, out, compression=compression, level=level, visibility="log"
            )
        )
        return {"seconds": took, "bytes": _taken(out)}

    def parquet(self, store: str, compression: str) -> dict[str, Any]:
        """Let Spark write the same rows."""
        out = self._fresh()
        frame = self._read(store, None, "log")
        writer = frame.write.option("compression", compression)
        writer = writer.option("parquet.compression.codec.zstd.level", "1")
        took = seconds(lambda: writer.parquet(str(out)))
        return {"seconds": took, "bytes": _taken(out)}

    def verify(self, one: str, other: str) -> dict[str, Any]:
        """Compare two stores with C{rmqha spark verify}'s function."""
        verdict: list[str] = []
        stores = {"one": one, "other": other}
        took = seconds(lambda: verdict.append(verify(self._spark, stores).verdict.value))
        return {"seconds": took, "verdict": verdict[0]}

    def stream(
        self,
        store: str,
        limit: str,
        table: str | None = None,
        keep: bool = False,
        most: int = 0,
        url: str = "",
    ) -> dict[str, Any]:
        """Stream what a store has into a Delta table.

        @param limit: Bytes of a batch.
        @param table: A table that is there already, or where it shall be.
        @param keep: Whether the table stays.
        @param most: Batches after which it is enough; 0 for all there are.
        @param url: Where the table shall be in an object store; nobody deletes it.
        """
        out = self._fresh() if table is None else Path(table)
        query = stream(
            self._spark,
            store,
            url or out,
            checkpoint=out if url else None,
            format="delta",
            compression="zstd",
            level=1,
            every=None if not most else "0 seconds",
            startingOffsets="earliest",
            maxBytesPerTrigger=limit,
            visibility="log",
        )
        if most:
            while query.isActive and len(query.recentProgress) < most:
                time.sleep(0.1)
            query.stop()
        else:
            query.awaitTermination()
        times = [each["batchDuration"] / 1000 for each in query.recentProgress]
        if not keep:
            _taken(out)
        return {"seconds": times}

    def follow(self, store: str, table: str, length: float) -> dict[str, Any]:
        query = stream(
            self._spark,
            store,
            table,
            format="delta",
            compression="zstd",
            level=1,
            every="0 seconds",
            startingOffsets="earliest",
            visibility="log",
        )
        time.sleep(length)
        query.stop()
        times = [each["batchDuration"] / 1000 for each in query.recentProgress]
        return {"batches": len(times), "median": statistics.median(times or [0.0])}


def _taken(out: Path) -> int:
    """Delete what was written.

    @return: How many bytes it had.
    """
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    shutil.rmtree(out)
    return size


def main() -> None:
    """Read commands from standard input and answer them."""
    folder, cpus = Path(sys.argv[1]), int(sys.argv[2])
    if cpus < (os.cpu_count() or 1):
        os.sched_setaffinity(0, set(range(cpus)))
    folder.mkdir(parents=True, exist_ok=True)
    more = dict(text.split("=", 1) for text in sys.argv[3:])
    places = {
        "spark.local.dir": str(folder / "local"),
        "spark.python.unix.domain.socket.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    spark = builder(f"local[{cpus}]", "bench", {**SETTINGS, **places, **more}).getOrCreate()
    actions = Actions(spark, folder)
    names = [name for name in dir(Actions) if not name.startswith("_")]
    try:
        serve({name: getattr(actions, name) for name in names})
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
