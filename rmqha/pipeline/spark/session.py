"""A Spark session that reads logs as fast as it can.

The data source works in any session; these settings are what it gains most from.
"""

from __future__ import annotations

import os
import re
import sys

from pyspark.sql import SparkSession

from rmqha.pipeline.spark.java import java_home

SETTINGS = {
    # Rows go from Python to Java through a socket; TCP on loopback stalls each task.
    "spark.python.unix.domain.socket.enabled": "true",
    # Times of a log are moments; a session's zone would only change how they print.
    "spark.sql.session.timeZone": "UTC",
}
"""What a session gets unless the caller says otherwise."""

CONNECT = "sc://"

TRIES = 4
"""How often a task is tried, as on a cluster: by default a local session gives up with the first
worker that is killed."""

_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")


def _patient(master: str) -> str:
    """A local master that tries tasks again."""
    local = _LOCAL.fullmatch(master)
    return master if local is None else f"local[{local[1] or 1},{TRIES}]"


def builder(
    master: str | None = None, name: str = "rmqha", settings: dict[str, str] | None = None
) -> SparkSession.Builder:
    """Begin a session: C{builder("local[2]").getOrCreate()}.

    @param master: Where it runs, as Spark says it; without it, what Spark is configured for.
        A C{sc://} address is a server of Spark Connect, which has its own settings and Java.
    @param name: What Spark's pages call it.
    @param settings: More settings, which win over L{SETTINGS}.
    @raise JavaMissing: If a Java is needed, and there is none.
    """
    if master is not None and master.startswith(CONNECT):
        return SparkSession.Builder().appName(name).remote(master)
    home = java_home(os.environ)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    made = SparkSession.Builder().appName(name)
    if master is not None:
        made = made.master(_patient(master))
    for key, value in {**SETTINGS, **(settings or {})}.items():
        made = made.config(key, value)
    return made
