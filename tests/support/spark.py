"""One local Spark session for all tests of a process that want one."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from rmqha.pipeline.spark.session import builder
from tests.support.spark_needs import not_idle

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
    # A Python that stands still is killed, after it said where: no test waits for ever.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "180",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@cache
def folder() -> Path:
    """Where the session and its tests write, until the process ends.

    Sockets of Unix have short names, so it lies where paths are short.
    """
    made = Path(tempfile.mkdtemp(prefix="rmqha-spark-"))
    atexit.register(_remove, made, os.getpid())
    return made


@cache
def session() -> SparkSession:
    """The session, started when it is first asked for."""
    place = folder()
    places = {
        "spark.local.dir": str(place / "local"),
        "spark.python.unix.domain.socket.dir": str(place),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    not_idle()
    started = builder("local[2]", "rmqha tests", {**SETTINGS, **places}).getOrCreate()
    atexit.register(started.stop)
    return started


def _remove(made: Path, owner: int) -> None:
    # A forked child inherits the registration, not the folder.
    if os.getpid() == owner:
        shutil.rmtree(made, ignore_errors=True)
