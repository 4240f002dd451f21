"""A node without metrics, for L{lab.bench.busy_master}; its command line is twistd's.

Functions are replaced before the node is made.  The statistics that mqadmin shows go too: they are
what some of the metrics are made of.
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


def _nothing(*_: object, **__: object) -> None:
    pass


def _put(timed: TimedPuts, message: Any, **how: bool) -> Any:
    return timed.writer.put(message, **how)


def _put_run(timed: TimedPuts, run: Any, born_host: bytes, done: Any) -> None:
    timed.writer.put_run(run, born_host, done)


def _later(calls: Calls, code: int, begun: float, answer: Any) -> Any:
    return answer


REPLACED: tuple[tuple[type, str, Callable[..., Any]], ...] = (
    (TimedPuts, "put", _put),
    (TimedPuts, "put_run", _put_run),
    (Durations, "add", _nothing),
    (Meters, "watch", _nothing),
    (Calls, "add", _nothing),
    (Calls, "failed", _nothing),
    (Calls, "later", _later),
)
"""Whose function, which, and what stands in for it."""


if __name__ == "__main__":
    for owner, name, instead in REPLACED:
        setattr(owner, name, instead)
    sys.exit(run())
