"""Show how far Spark's tasks are, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event, Thread, Timer
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Shown = Callable[[SparkSession], AbstractContextManager[object]]
"""What shows a session's tasks while a block runs."""

Told = Callable[[int, int], None]
"""Takes tasks that are done and tasks in all."""

_EVERY = 0.2
"""Seconds between two looks at the tasks."""

PATIENCE = 30.0
"""Seconds without a finished task after which that is said."""

SLOW = (
    f"no task has finished in {PATIENCE:.0f} s; where other programs need the processors, tasks "
    "get what these leave, and their share with --priority normal"
)


def silent(spark: SparkSession) -> AbstractContextManager[object]:
    """The C{shown} of a job that shows no progress."""
    return nullcontext()


def bar(title: str) -> Shown:
    """Show a bar on stderr, if that is a terminal; in any case say so once when nothing gets
    done.
    """
    console = Console(stderr=True)

    @contextmanager
    def shown(spark: SparkSession) -> Iterator[None]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tasks"),
            TimeElapsedColumn(),
        )
        drawing = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        with drawing as drawn:
            task = drawn.add_task(title, total=None)
            waiting = Timer(PATIENCE, console.print, [f"{title}: {SLOW}"], {"soft_wrap": True})
            waiting.daemon = True

            def told(done: int, total: int) -> None:
                drawn.update(task, completed=done, total=total)
                if done:
                    waiting.cancel()

            waiting.start()
            try:
                with counted(spark, told):
                    yield
            finally:
                waiting.cancel()

    return shown


def counted(spark: SparkSession, told: Told) -> AbstractContextManager[None]:
    """Count a session's tasks while a block runs.

    @param told: Called from another thread.
    """
    # A session of Connect is another class, with the same methods.
    return _by_tracker(spark, told) if isinstance(spark, SparkSession) else _by_server(spark, told)


@contextmanager
def _by_tracker(spark: SparkSession, told: Told) -> Iterator[None]:
    """Ask Spark's own status, which knows the stages that run."""
    tracker = spark.sparkContext.statusTracker()
    ended = Event()

    def look() -> None:
        while not ended.wait(_EVERY):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            stages = [info for info in infos if info is not None]
            if stages:
                done = sum(info.numCompletedTasks for info in stages)
                told(done, sum(info.numTasks for info in stages))

    thread = Thread(target=look, name="rmqha-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _by_server(spark: SparkSession, told: Told) -> Iterator[None]:
    """Let a Connect server tell."""

    def take(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        found = list(stages or ())
        if found:
            told(sum(s.num_completed_tasks for s in found), sum(s.num_tasks for s in found))

    spark.registerProgressHandler(take)  # type: ignore[arg-type]
    try:
        yield
    finally:
        spark.removeProgressHandler(take)  # type: ignore[arg-type]
