"""What processes cost, as the kernel counts it, and the descriptors they may open.

Processor time is the user's and the kernel's of all threads of a process, also of those that have
ended; the kernel tells it in ticks, of which there are a hundred a second on Linux.  A span
should be so long that one tick of error is nothing.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from lab.harness.nodes import stat_of, ticks


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    return ticks(stat_of(pid)) / os.sysconf("SC_CLK_TCK")


def processor(pid: int, which: int = 0) -> float:
    """Seconds of processor time that a process's threads have used, to the nanosecond: what
    C{/proc/PID/stat} counts are hundredths.

    @param which: 1 for how long they could have run, and had no core.
    """
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text(encoding="ascii").split()[which]) for each in threads) / 1e9


@frozen
class Span:
    """A span of time in which processes are watched; it begins when this is made."""

    pids: Mapping[str, int]
    _before: Mapping[str, float] = field(init=False)

    @_before.default
    def _now(self) -> Mapping[str, float]:
        return {name: processor_seconds(pid) for name, pid in self.pids.items()}

    def used(self) -> Mapping[str, float]:
        """Seconds of processor time that each has used since the span's begin."""
        return {name: now - self._before[name] for name, now in self._now().items()}


@define
class Sampler:
    """Watches processes from news C{"span": "begin"} of another one to C{"span": "end"}."""

    pids: Mapping[str, int]
    _span: Span | None = field(init=False, default=None)
    _used: Mapping[str, float] | None = field(init=False, default=None)
    _error: OSError | None = field(init=False, default=None)

    def heard(self, said: Mapping[str, Any]) -> None:
        """Look at the processes, if this is one of the two news; called in a reader's thread."""
        try:
            if said.get("span") == "begin":
                self._span = Span(self.pids)
            elif said.get("span") == "end" and self._span is not None:
                self._used = self._span.used()
        except OSError as error:
            self._error = error

    def result(self) -> Mapping[str, float]:
        """Seconds of processor time that each has used; all have to be there, and both news."""
        if self._used is None:
            raise AssertionError(f"the span did not begin or end: {self._error}") from self._error
        return self._used


@contextmanager
def all_descriptors() -> Iterator[int]:
    """As many descriptors as we may have, for us and those we start; and how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
