"""Processes that measure something each time they are told to: a line with a JSON text goes in,
one comes back.  They stay up, so that what is compared may take turns and all of it is warm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from lab.bench import report
from lab.bench.report import Row

ROOT = Path(__file__).parents[3]


class Peer:
    """A process that is measured."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """@param log: Takes what it says to the error stream."""
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
            )

    @classmethod
    def python(
        cls,
        module: str,
        log: Path,
        *arguments: str,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Run a module of ours.

        @param prefix: A command that runs it.
        @param environment: What is added to ours.
        """
        return cls([*prefix, sys.executable, "-m", module, *arguments], log, environment)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: str, **more: Any) -> Any:
        """Tell it to do something, and wait for its answer.

        @raise AssertionError: If it fails or has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None, "both are pipes"
        try:
            stdin.write(json.dumps({"do": what, **more}) + "\n")
            stdin.flush()
        except BrokenPipeError:
            pass
        for line in stdout:
            if line.startswith(("{", "[")):
                return json.loads(line)
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])
        raise AssertionError(f"{what}: the process has ended\n{tail}")

    def end(self) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


def serve(actions: Mapping[str, Callable[..., Any]]) -> None:
    """The other side: do what the lines say until there are no more."""
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps(actions[asked.pop("do")](**asked)) + "\n")
        sys.stdout.flush()


def seconds(work: Callable[[], object]) -> float:
    """Measure how many seconds a call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def cat(files: Sequence[Path]) -> float:
    """What C{cat} reads, in bytes a second."""
    size = sum(path.stat().st_size for path in files)
    command = ["cat", *map(str, files)]
    return size / seconds(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))


def in_turns(
    works: Mapping[str, Callable[[], float]], rounds: int, warm: int = 1
) -> dict[str, list[float]]:
    """Measure several things alternately.

    @param works: Each gives its rate.
    @param warm: Rounds before the first one that counts.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(-warm, rounds):
        names = list(works)[:: -1 if number % 2 else 1]
        for name in names:
            rate = works[name]()
            print(f"{'warm-up ' if number < 0 else ''}{name}: {rate:.5g}", flush=True)
            if number >= 0:
                found[name].append(rate)
    return found


def compared(
    what: str,
    ours: Sequence[float],
    beside: str,
    other: Sequence[float],
    goal: float | None = None,
    *,
    unit: str = "MB/s",
    scale: float = 1e-6,
    most: bool = False,
    notes: Sequence[str] = (),
) -> Row:
    """A row of the medians' ratio.

    @param goal: What it should be at least; at most with C{most}.
    """
    first, second = ([scale * value for value in values] for values in (ours, other))
    return report.compared(what, unit, first, second, goal, most=most, beside=beside, notes=notes)
