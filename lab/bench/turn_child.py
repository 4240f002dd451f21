"""A node whose reactor turns are measured: what runs between two looks at its sockets.

It is twistd, with a clock around the reactor's wait for events.  How long each phase took, and the
longest turn, are written as JSON at the end.

Run it as C{python -m lab.bench.turn_child RESULTS}, and what twistd takes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.scripts.twistd import run

from rmqha.roles import tap


@define(eq=False)
class Turns:
    """The turns of one reactor: the longest of each phase, wall and processor time."""

    phase: str = "start"
    seconds: dict[str, float] = field(factory=dict)
    longest: tuple[float, float] = (0.0, 0.0)
    _since: float = field(factory=time.perf_counter)
    _began: float = 0.0
    _used: float = 0.0

    def enter(self, phase: str) -> None:
        """The phase is over, and another begins."""
        now = time.perf_counter()
        self.seconds[self.phase] = now - self._since
        self.phase, self._since = phase, now

    def began(self) -> None:
        self._used = time.thread_time()
        self._began = time.perf_counter()

    def over(self) -> None:
        if self._began:
            took, used = time.perf_counter() - self._began, time.thread_time() - self._used
            self.longest = max(self.longest, (took, used))


@define(eq=False)
class _Poller:
    """The reactor's C{epoll}, with a look at the clock before and behind it."""

    inner: Any
    turns: Turns

    def poll(self, timeout: float, most: int) -> Any:
        """Wait for events: a turn is over, and the next begins."""
        self.turns.over()
        try:
            return self.inner.poll(timeout, most)
        finally:
            self.turns.began()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def watch(node: Any, turns: Turns, results: Path) -> None:
    """Measure a node that has been made, and write the results when it has stopped."""
    from twisted.internet import reactor as installed

    reactor: Any = installed
    reactor._poller = _Poller(reactor._poller, turns)

    def serving() -> None:
        if node.clients.serving:
            turns.enter("serving")
        else:
            reactor.callLater(0.01, serving)

    def ended() -> None:
        turns.enter("end")
        found = {"seconds": turns.seconds, "longest": turns.longest}
        results.write_text(json.dumps(found), encoding="utf-8")

    serving()
    reactor.addSystemEventTrigger("before", "shutdown", turns.enter, "stop")
    reactor.addSystemEventTrigger("after", "shutdown", ended)


def main() -> None:
    """Be twistd, and watch the node that it makes."""
    turns, results, make = Turns(), Path(sys.argv.pop(1)), tap.makeService

    def made(options: Any) -> Any:
        node = make(options)
        watch(node, turns, results)
        return node

    tap.makeService = made
    run()


if __name__ == "__main__":
    main()
