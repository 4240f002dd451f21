"""A node that leaves out what has no key, the child of L{lab.bench.busy_master}:
C{python -m lab.bench.without_child NAME}, and twistd's own command line.

Its functions are replaced before the node is made.  Without metrics, the statistics that mqadmin
shows go too: they are what some of the metrics are made of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from twisted.scripts.twistd import run

from rmqha.broker.meters.latency import TimedPuts
from rmqha.broker.meters.meters import Meters
from rmqha.durations import Durations
from rmqha.net.remoting.calls import Calls
from rmqha.store.derived.dispatch import Dispatcher


def _nothing(*_: object, **__: object) -> None:
    pass


def _put(timed: TimedPuts, message: Any, **how: bool) -> Any:
    return timed.writer.put(message, **how)


def _put_run(timed: TimedPuts, run: Any, born_host: bytes, done: Any) -> None:
    timed.writer.put_run(run, born_host, done)


def _later(calls: Calls, code: int, begun: float, answer: Any) -> Any:
    return answer


REPLACED: dict[str, tuple[tuple[type, str, Callable[..., Any]], ...]] = {
    "metrics": (
        (TimedPuts, "put", _put),
        (TimedPuts, "put_run", _put_run),
        (Durations, "add", _nothing),
        (Meters, "came", _nothing),
        (Calls, "answered", _nothing),
        (Calls, "failed", _nothing),
        (Calls, "later", _later),
    ),
    "checksums": ((Dispatcher, "_checksums", lambda *_: b""), (Dispatcher, "_sum", _nothing)),
}
"""Whose function, which, and what stands in for it, by what is left out."""


if __name__ == "__main__":
    for owner, name, instead in REPLACED[sys.argv.pop(1)]:
        setattr(owner, name, instead)
    sys.exit(run())
