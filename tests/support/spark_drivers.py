"""Spark's drivers as child processes, and the one cluster that they share.

A process can have one Spark context, and none beside a session of Connect, so each driver
is a process of its own: L{tests.spark.driving}.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Self

from lab.bench.corpus import write_log
from lab.harness.json_child import Piped
from lab.harness.nodes import ROOT, Folder
from lab.spark_cluster.members import LOOPBACK, SparkCluster
from lab.spark_cluster.sessions import end_session, in_session
from rmqha.pipeline.scan import scan
from tests.support.rows import publish

LONG = 240.0
"""Seconds that a driver has for one command."""

FILE = 4 << 20
"""Bytes of a log file."""


DRIVER = {
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    # Tasks begin when both workers are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    # What fails here fails again.
    "spark.task.maxFailures": "2",
}


@cache
def cluster() -> SparkCluster:
    """The cluster of this process, without a Connect server yet; it ends with the process."""
    place = Folder("rmqha-cluster-")
    made = SparkCluster(place.path, serving=False)
    try:
        made.start()
    except BaseException:
        made.stop()
        raise
    # The other way round than they are called.
    atexit.register(place.remove)
    atexit.register(_stop, made, os.getpid())
    return made


def _stop(made: SparkCluster, owner: int) -> None:
    # A forked child inherits the registration, not the cluster.
    if os.getpid() == owner:
        made.stop()


@cache
def log() -> tuple[Path, int]:
    """A store with 24 MiB of messages, as a node of ours leaves it, not to be changed."""
    place = Folder("rmqha-log-")
    return place.path, write(place.path)


def write(store: Path, total: int = 24 << 20) -> int:
    """Make a store of so many bytes, no two equal, and return its log's end."""
    end = write_log(store / "commitlog", total, file_size=FILE, bodies=(1000, 3000))
    publish(store, end)
    return end


def truth(store: Path) -> list[int]:
    """Rows, other rows, and the sum of where they begin, without Spark."""
    columns = {"columns": "physical_offset", "visibility": "log"}
    offsets = scan(store, **columns).read_all()["physical_offset"].to_pylist()
    return [len(offsets), len(set(offsets)), sum(offsets)]


class Driver(Piped):
    """The parent's side of one."""

    def __init__(
        self, name: str, environment: dict[str, str] | None = None, cwd: Path = ROOT
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rmqha-driver-"))
        super().__init__(name, self.folder / f"{name}.log")
        self.environment = environment
        self.cwd = cwd
        self._owner = os.getpid()

    def start(self) -> Self:
        """Start it, and wait until it takes commands."""
        alone = [] if self.environment is None else ["-i"]
        here = {"SPARK_LOCAL_IP": LOOPBACK, "PYTHONPATH": str(ROOT)}
        environment = {**here, **(self.environment or {})}
        given = [f"{key}={value}" for key, value in environment.items()]
        self.open(["/usr/bin/env", *alone, *given, sys.executable, "-m", "tests.spark.driving"])
        self.until_news("ready", LONG)
        return self

    def spawn(self, command: Any, *, piped: bool = False, session: bool = False) -> None:
        """Start it in a session of its own: what it starts is found there."""
        super().spawn(command, piped=piped, session=True)

    def stop(self) -> None:
        """End it and all it has started."""
        if not self.running or self._owner != os.getpid():
            return  # a forked child inherits the registration, not the driver
        pid = self.pid
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.wait(20)
        except AssertionError:
            self.kill9()
        end_session(pid)
        shutil.rmtree(self.folder, ignore_errors=True)

    def do(self, do: str, timeout: float = LONG, **content: Any) -> Any:
        """Give a command and wait for its answer; a failure tells what all its threads do."""
        asked = self.ask(do, **content)
        deadline = time.monotonic() + timeout
        while not asked.done and time.monotonic() < deadline:
            time.sleep(0.02)
        if not asked.done:
            self.dump()
        return asked.wait(0.1)

    def dump(self) -> None:
        """Let Python and Java write what their threads do into the log."""
        for pid in in_session(self.pid):
            name = Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
            if pid == self.pid or name == "java":
                os.kill(pid, signal.SIGUSR1 if pid == self.pid else signal.SIGQUIT)
        time.sleep(2)
        kept = Path(tempfile.gettempdir()) / f"rmqha-hang-{self.pid}.log"
        shutil.copyfile(self.log_path, kept)
        sys.stderr.write(f"{self.name} hangs: see {kept}\n")


def without_java(folder: Path) -> dict[str, str]:
    """An environment, with programs of a folder, in which no Java is found."""
    for place in reversed(os.environ.get("PATH", "").split(os.pathsep)):
        for program in Path(place).glob("*") if place else ():
            if not program.name.startswith("java"):
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    return {"PATH": str(folder), "HOME": str(folder), "PYTHONPATH": str(ROOT)}


@cache
def driver() -> Driver:
    """A driver with a session on the cluster; it holds both workers until L{release}."""
    made = Driver("driver").start()
    atexit.register(made.stop)
    made.do("start", where=cluster().url, settings={**cluster().settings, **DRIVER})
    return made


def release() -> None:
    """End that driver, so that others get the workers."""
    if driver.cache_info().currsize:
        driver().stop()
        driver.cache_clear()
