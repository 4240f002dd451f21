"""What the commands of jobs share: how stores are named, and where Spark runs."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import click
from attrs import frozen
from pyspark.core import context as spark_context
from pyspark.sql import SparkSession

from rmqha.cli.common import PRIORITY, choice
from rmqha.pipeline.jobs.spark_work import Stores
from rmqha.pipeline.log.options import PointFile
from rmqha.pipeline.spark.failures import reasons
from rmqha.pipeline.spark.session import CONNECT, builder
from rmqha.priority import VARIABLE, Priority, step_back

POINT_FILE = choice(
    "--point-file",
    PointFile.USE,
    "Stop at a store's published point, or ignore it and read to the last whole record.",
)

UNTIL = click.option(
    "--until", "endingTimestamp", metavar="TIME", help="Only messages stored before this time."
)

QUIET = {
    # Errors are printed once, in one line.
    "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of a command's session, unless C{--set} says otherwise."""

LOCAL = "local"
"""How the masters begin that run tasks in the driver's own Java."""

_SPARKS = "SQLQueryContextLogger"
"""Where PySpark writes, with all of Java's stack, what it raises as well."""


@frozen
class Spark:
    """Where a job runs.

    @ivar master: As Spark says it; or a C{sc://} address of Spark Connect.
    @ivar settings: Settings of Spark by name.
    @ivar priority: Of the driver, if Spark runs on this machine, and of tasks.
    """

    master: str
    settings: dict[str, str]
    priority: Priority

    def session(self, name: str) -> SparkSession:
        """Start the session, or take the one that runs."""
        logging.getLogger(_SPARKS).disabled = "spark.log.level" not in self.settings
        if self.priority is Priority.NORMAL:
            os.environ[VARIABLE] = self.priority
        settings = {**QUIET, **self.settings}
        if not self.master.startswith(CONNECT):
            settings.setdefault(f"spark.executorEnv.{VARIABLE}", self.priority.value)
        return builder(self.master, f"rmqha {name}", settings).getOrCreate()

    @contextmanager
    def running(self, name: str) -> Iterator[SparkSession]:
        """A session for the time of a block; one that was there before stays."""
        before = SparkSession.getActiveSession()
        if before is None and self.master.startswith(LOCAL):
            step_back(self.priority)  # Java, which is started now, does so too
        if before is not None:
            yield self.session(name)
            return
        with interruptible():
            session = self.session(name)
            try:
                yield session
            finally:
                session.stop()


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C end a block without tracebacks.  The handler that PySpark sets with each session
    asks Java to cancel all jobs, in the middle of what is being asked then, and Py4J tells of both.
    """
    before = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: object) -> NoReturn:
        logging.disable()
        raise KeyboardInterrupt

    if before is not signal.SIG_IGN:  # as in the background of a shell's script
        signal.signal(signal.SIGINT, interrupted)
    unheard = SimpleNamespace(SIGINT=signal.SIGINT, signal=lambda number, handler: None)
    theirs = vars(spark_context)["signal"]
    vars(spark_context)["signal"] = unheard
    try:
        yield
    finally:
        vars(spark_context)["signal"] = theirs
        signal.signal(signal.SIGINT, before)
        logging.disable(logging.NOTSET)


class Setting(click.ParamType[tuple[str, str]]):
    """An option of the form C{key=value}."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, str]:
        """Split it at the first equals sign."""
        key, sign, text = str(value).partition("=")
        if not sign or not key.strip():
            self.fail(f"{value!r} is not key=value", param, context)
        return key.strip(), text


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command C{--master}, C{--set} and C{--priority}, as one argument C{on}: a L{Spark}.

    What fails inside Spark then ends the command with the reason in one line.
    """

    @click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs: local[N], spark://..., yarn, k8s://..., or sc://... of Connect.",
    )
    @click.option(
        "--set",
        "settings",
        type=Setting(),
        multiple=True,
        help="A setting of Spark; may be repeated.",
    )
    @PRIORITY
    @wraps(command)
    def given(
        master: str, settings: tuple[tuple[str, str], ...], priority: str, **others: Any
    ) -> Any:
        with reasons():
            return command(on=Spark(master, dict(settings), Priority(priority)), **others)

    return given


def stores_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command C{STORE...}: one store's root, several as C{NAME=PATH}, or C{@} and a file
    that lists them.
    """

    @click.argument("store", nargs=-1, required=True, metavar="STORE | NAME=STORE... | @FILE")
    @wraps(command)
    def given(store: tuple[str, ...], **others: Any) -> Any:
        return command(stores=stores_named(store), **others)

    return given


def stores_named(given: tuple[str, ...]) -> Stores:
    """Read the stores of a command line.

    @raise click.UsageError: If they are not one path, or several with names.
    """
    if len(given) == 1 and ("=" not in given[0] or Path(given[0]).exists()):
        return given[0]
    found: dict[str, str] = {}
    for text in given:
        name, sign, path = text.partition("=")
        if not sign or not name or not path:
            raise click.UsageError(f"several stores need names: NAME=STORE, not {text!r}")
        if name in found:
            raise click.UsageError(f"two stores are named {name}")
        found[name] = path
    return found
