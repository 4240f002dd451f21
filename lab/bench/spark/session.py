"""A Spark session that scans stores: C{python -m lab.bench.spark.session FOLDER PRIORITY}, which
L{lab.bench.spark} starts (L{lab.harness.json_child}).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lab.stock.python.lines import serve
from rmqha.pipeline.spark.session import builder
from rmqha.priority import Priority, step_back

COLUMNS = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_timestamp")


def forget(root: Path) -> None:
    """Drop a log's pages from the cache, as far as they are not mapped."""
    for path in (root / "commitlog").iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def main() -> None:
    """Count the rows of a store from the disk, each time that a line of standard input says it."""
    folder = Path(sys.argv[1])
    step_back(Priority(sys.argv[2]))
    settings = {
        "spark.driver.memory": "3g",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = builder("local[2]", "bench", settings).getOrCreate()
    reader = spark.read.format("rmqha").option("visibility", "log").option("priority", sys.argv[2])

    def count(number: int, store: str) -> int:
        forget(Path(store))
        return reader.option("columns", ",".join(COLUMNS)).load(store).count()

    try:
        serve({"count": count})
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
