"""The processes: what the wheel of PySpark has of Spark's standalone cluster, each on ports of
its own.

There is no start-master.sh in the wheel, but all it would start.  A worker starts executors,
and those start Python; all that a process of ours has started is in its session, so what
outlives it is found there and ended by its id.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pyspark
from attrs import define, field

from lab.harness.nodes import Process, until
from lab.harness.ports import free_ports
from lab.spark_cluster.sessions import command, end, end_session, in_session
from rmqha.pipeline.spark.session import SETTINGS, java_home

HOME = Path(pyspark.__file__).resolve().parent
"""Where the wheel has put Spark."""

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"

LOOPBACK = "127.0.0.1"

START = 180.0
"""Seconds a process has to start: a Java on a busy machine."""

SOCKET_FOLDER_MOST = 61
"""Bytes of a folder in which Spark makes sockets: the path of one has at most 104 on some
systems, and its name takes the others."""

DRIVER = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}

SHARING = {
    # The server is one application for all its clients.  It must not hold every core while
    # nobody asks, because applications of a standalone cluster wait for each other.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "15s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "15s",
}


class Unusable(Exception):
    """The cluster did not start."""


@define(eq=False)
class SparkCluster:
    """A master, its workers, and maybe a Connect server, from C{with} to its end.

    @ivar cores: Of each worker, as C{memory}, which Spark says so: C{1g}.
    @ivar serving: Whether there is a Connect server from the start.
    @ivar environment: More for all processes, by name.
    """

    folder: Path
    count: int = 2
    cores: int = 1
    memory: str = "1g"
    serving: bool = True
    environment: Mapping[str, str] = field(factory=dict)
    sockets: Path = field(init=False)
    master: Process = field(init=False)
    workers: list[Process] = field(init=False)
    connect: Process = field(init=False)
    _ports: dict[str, int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.master = self._process("master")
        self.workers = [self._process(f"worker-{n}") for n in range(1, self.count + 1)]
        self.connect = self._process("connect")
        names = [process.name for process in (self.master, *self.workers, self.connect)]
        ports = free_ports(2 * len(names))
        pairs = zip(ports[::2], ports[1::2], strict=True)
        self._ports = {
            key: port
            for name, (port, pages) in zip(names, pairs, strict=True)
            for key, port in ((name, port), (f"{name} pages", pages))
        }

    def _process(self, name: str) -> Process:
        return Process(name, self.folder / f"{name}.log")

    @property
    def processes(self) -> list[Process]:
        """Those that should run, in the order of their start."""
        return [self.master, *self.workers, *([self.connect] if self.serving else [])]

    # --- addresses ----------------------------------------------------------

    @property
    def url(self) -> str:
        return f"spark://{LOOPBACK}:{self._ports['master']}"

    @property
    def remote(self) -> str:
        """The same for a client of Connect."""
        return f"sc://{LOOPBACK}:{self._ports['connect']}"

    def pages(self, name: str = "master") -> str:
        """Where a process shows itself to a browser."""
        return f"http://{LOOPBACK}:{self._ports[f'{name} pages']}"

    @property
    def settings(self) -> dict[str, str]:
        """What a driver on this machine should say besides L{url}."""
        return {**DRIVER, "spark.python.unix.domain.socket.dir": str(self.sockets)}

    # --- from start to end --------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all, and wait until each can be used; L{Unusable} or C{JavaMissing} if not."""
        self.sockets = _short_folder()
        self._spawn(self.master, MASTER, *self._listen("master"))
        self._until(self.master, lambda: self._listens("master"))
        for worker in self.workers:
            work = ("--work-dir", str(self.folder / worker.name))
            size = ("--cores", str(self.cores), "--memory", self.memory)
            self._spawn(worker, WORKER, *self._listen(worker.name), *size, *work, self.url)
        if self.serving:
            self._spawn(self.connect, SUBMIT, *self._submit())
        for worker in self.workers:
            self._until(worker, lambda: len(self.alive()) >= self.count)
        if self.serving:
            self._until(self.connect, lambda: self._listens("connect"))

    def serve(self) -> None:
        """Start the Connect server, if it was left out."""
        if not self.serving:
            self.serving = True
            self._spawn(self.connect, SUBMIT, *self._submit())
            self._until(self.connect, lambda: self._listens("connect"))

    def stop(self) -> list[str]:
        """End workers' users, workers, and the master; say what did not end as it should."""
        wrong = []
        for group in ([self.connect], self.workers, [self.master]):
            started = [process for process in group if process.process is not None]
            ended = [process for process in started if not process.running]
            for process in started:
                process.signal(signal.SIGTERM)
            for process in ended:
                wrong.append(f"{process.name} ended by itself with {process.wait()}")
                end_session(process.pid)
            for process in started:
                if process not in ended:
                    wrong += end(process)
        if hasattr(self, "sockets"):
            shutil.rmtree(self.sockets, ignore_errors=True)
        return wrong

    def alive(self) -> list[dict[str, Any]]:
        """The workers that the master counts on, as it tells; none if it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.pages()}/json/", timeout=5) as answer:
                workers: list[dict[str, Any]] = json.load(answer)["workers"]
        except (OSError, ValueError):
            return []
        return [worker for worker in workers if worker["state"] == "ALIVE"]

    def executors(self) -> list[int]:
        """Process ids of the executors that run now."""
        return [
            pid
            for worker in self.workers
            if worker.running
            for pid in in_session(worker.pid)
            if b"CoarseGrainedExecutorBackend" in command(pid)
        ]

    # --- processes ----------------------------------------------------------

    def _spawn(self, process: Process, kind: str, *arguments: str) -> None:
        environment = {
            # Whatever else is installed: this is the Spark of the wheel, on loopback.
            "SPARK_HOME": str(HOME),
            "SPARK_CONF_DIR": str(self._conf()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "1g" if process is self.connect else "256m",
            "PYSPARK_PYTHON": sys.executable,
            **self.environment,
        }
        home = java_home({**os.environ, **environment})
        if home is not None:
            environment["JAVA_HOME"] = str(home)
        given = [f"{name}={value}" for name, value in environment.items()]
        program = str(HOME / "bin" / "spark-class")
        process.spawn(["env", *given, program, kind, *arguments], session=True)

    def _conf(self) -> Path:
        """The folder with what all of them are configured with."""
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        # A port where any client may submit programs, and which is not needed.
        rest = {"spark.master.rest.enabled": "false"}
        lines = [f"{name} {value}" for name, value in rest.items()]
        (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return conf

    def _listen(self, name: str) -> list[str]:
        port, pages = self._ports[name], self._ports[f"{name} pages"]
        return ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(pages)]

    def _submit(self) -> list[str]:
        settings = {
            **SETTINGS,
            **self.settings,
            **SHARING,
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": self.memory,
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self._ports["connect"]),
            "spark.ui.port": str(self._ports["connect pages"]),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        given = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
        return ["--class", CONNECT, "--name", "rmqha connect", "--master", self.url, *given]

    def _listens(self, name: str) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex((LOOPBACK, self._ports[name])) == 0

    def _until(self, process: Process, ready: Any) -> None:
        """Wait until a process can be used; L{Unusable} if it ends before, or takes too long."""

        def look() -> bool:
            if not process.running:
                raise Unusable(f"{process.name} did not start\n{process.tail(8)}")
            return bool(ready())

        try:
            until(look, f"{process.name} can be used", START, tell=process.tail, pause=0.1)
        except AssertionError as error:
            raise Unusable(str(error)) from error


def _short_folder() -> Path:
    """A new folder whose path leaves room for a socket's name."""
    made = Path(tempfile.mkdtemp(prefix="rmqha-spark-"))
    if len(os.fsencode(made)) > SOCKET_FOLDER_MOST:
        made.rmdir()
        made = Path(tempfile.mkdtemp(prefix="rmqha-spark-", dir="/tmp"))
    return made
