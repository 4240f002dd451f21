"""A driver that is told what to do: the child's side of L{tests.support.spark_drivers.Driver}."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rmqha.pipeline.jobs.progress import counted
from rmqha.pipeline.jobs.spark_work import ranges_of, run, working
from rmqha.pipeline.jobs.stream import stream
from rmqha.pipeline.spark.session import builder
from tests.spark.tallying import SCHEMA, Tallied

COLUMNS = "physical_offset,topic,body"


class Commands:
    """What a driver can do; each method is a command."""

    spark: Any

    def start(self, where: str, settings: dict[str, str]) -> dict[str, Any]:
        """Begin a session as anybody would."""
        self.spark = builder(where, "driver", settings).getOrCreate()
        return {"version": self.spark.version, "java": os.environ.get("JAVA_HOME")}

    def connect(self, where: str) -> dict[str, Any]:
        """Begin a session of Connect, with a server of its own in this process."""
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self.spark = SparkSession.Builder().remote(where).getOrCreate()
        return {"version": self.spark.version}

    def read(self, path: str, **options: str) -> DataFrame:
        reader = self.spark.read.format("rmqha").option("columns", COLUMNS)
        frame: DataFrame = reader.options(path=path, visibility="log", **options).load()
        return frame

    def batch(self, path: str) -> list[int]:
        """Count rows, other rows, and add up where they begin, by Spark."""
        frame = self.read(path)
        offset = F.col("physical_offset")
        row = frame.agg(F.count(offset), F.count_distinct(offset), F.sum(offset)).collect()[0]
        return list(row)

    def arrow(self, path: str) -> list[int]:
        offsets = self.read(path).select("physical_offset").toArrow()["physical_offset"]
        found = offsets.to_pylist()
        return [len(found), len(set(found)), sum(found)]

    def sql(self, path: str) -> int:
        self.spark.sql("DROP TABLE IF EXISTS log")
        self.spark.sql(f"CREATE TABLE log USING rmqha OPTIONS (path '{path}', columns 'topic')")
        found: int = self.spark.sql("SELECT count(*) FROM log").collect()[0][0]
        self.spark.sql("DROP TABLE log")
        return found

    def job(self, path: str, marks: str, pause: float = 0.0) -> dict[str, Any]:
        """Do a piece of work over all ranges."""
        told: list[tuple[int, int]] = []
        table = run(
            ranges_of(self.spark, path),
            Tallied.of(path, marks, pause),
            SCHEMA,
            lambda spark: counted(spark, lambda done, total: told.append((done, total))),
        )
        return {"rows": table.to_pylist(), "told": told}

    def more(self, path: str, marks: str) -> list[int]:
        """The same as a DataFrame, with more of Spark behind it."""
        frame = working(ranges_of(self.spark, path), Tallied.of(path, marks, 0.0), SCHEMA)
        row = frame.agg(F.sum("count"), F.sum("total")).collect()[0]
        return list(row)

    def stream(self, path: str, place: str, limit: str) -> dict[str, Any]:
        """A stream of what is there into Parquet files."""
        reader = self.spark.readStream.format("rmqha").option("columns", COLUMNS)
        frame = reader.options(path=path, visibility="log", maxBytesPerTrigger=limit).load()
        writer = frame.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{place}/checkpoint")
        query = writer.start(f"{place}/rows")
        ended = query.awaitTermination(90)
        found = self.spark.read.parquet(f"{place}/rows").select("physical_offset").toArrow()
        offsets = found["physical_offset"].to_pylist()
        batches = len(list(Path(place, "checkpoint", "commits").glob("[0-9]*")))
        return {
            "ended": ended,
            "batches": batches,
            "rows": [len(offsets), len(set(offsets)), sum(offsets)],
        }

    def registered(self, path: str, server: str, place: str) -> dict[str, Any]:
        """A stream of the brokers that a name server knows into a Delta table."""
        query = stream(
            self.spark,
            path,
            f"{place}/table",
            format="delta",
            every=None,
            nameServer=server,
            columns=f"broker_name,{COLUMNS}",
            visibility="log",
        )
        ended = query.awaitTermination(200)
        batches = len(list(Path(place, "table").glob("**/commits/[0-9]*")))
        return {"ended": ended, "batches": batches}

    def plan(self, path: str) -> int:
        """Plan a job and keep the ranges."""
        found = ranges_of(self.spark, path).collect()
        self.kept = self.spark.createDataFrame(found)
        return len(found)

    def go(self, path: str, marks: str) -> str:
        """Read what was planned, and return why it was not."""
        try:
            run(self.kept, Tallied.of(path, marks, 0.0), SCHEMA)
        except Exception as error:
            return str(error)
        return ""

    def stop(self) -> None:
        self.spark.stop()


def serve(commands: Commands, out: TextIO) -> None:
    """Do what stdin says until it ends, each command in a thread."""
    lock = threading.Lock()

    def say(**content: Any) -> None:
        with lock:
            out.write(json.dumps(content) + "\n")
            out.flush()

    def answer(number: int, do: Callable[..., Any], given: dict[str, Any]) -> None:
        try:
            say(number=number, done=True, answer=do(**given))
        except BaseException as error:
            traceback.print_exc()
            say(number=number, done=True, error=f"{type(error).__name__}: {error}")

    say(news="ready")
    for line in sys.stdin:
        given = json.loads(line)
        number, do = given.pop("number"), getattr(commands, given.pop("do"))
        threading.Thread(target=answer, args=(number, do, given), daemon=True).start()


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    # Java writes to stdout what it likes; answers go another way.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(Commands(), answers)
    os._exit(0)
