"""Writes of stock producers through a stock pair and through ours, in turn.

A write counts from the producer's C{send} to its return, so the producer's own work is in it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

from attrs import frozen

from lab.bench.beside import GIB, Field
from lab.bench.facts import disk_folder
from lab.bench.report import Row, compared
from lab.bench.sends import BATCH, BATCHES, BODY, MANY, Round, Sends, cost_row, of, sends
from lab.bench.serving import Pair, pairs, turns

ROUNDS = 5

ON_DISK = 8 * GIB
"""Bytes that both pairs write to a disk."""


@frozen(kw_only=True)
class Goals:
    """What the rows of one kind of writes should be.

    @ivar rate: Of many threads, in parts of the stock pair's, at least.
    @ivar slow: Their p99, in the same way, at most; C{p50} and C{p99} likewise, of one producer.
    @ivar costs: Most microseconds of processor time a message with many threads.
    """

    rate: float
    slow: float | None
    p50: float
    p99: float | None
    costs: dict[str, float] | None = None


SYNC_GOALS = Goals(rate=1.5, slow=0.8, p50=1.0, p99=1.0, costs={"master": 10.0, "slave": 6.0})
ASYNC_GOALS = Goals(rate=1.5, slow=0.8, p50=1.0, p99=1.0, costs={"master": 8.0, "slave": 6.0})
DISK_GOALS = Goals(rate=1.2, slow=None, p50=0.95, p99=None)

BATCH_GOAL = 1.3


def sync(field: Field, until: float) -> list[Row]:
    """Writes that are answered when the slave has them.

    @param until: Seconds of the run after which no more rounds begin.
    """
    both = _rounds(field, until, pairs(field.folder, field.tool, sync=True))
    return _rows(f"SYNC_MASTER and a slave, {BODY} bytes", SYNC_GOALS, *both)


def asynchronous(field: Field, until: float) -> list[Row]:
    """Writes that are answered when the master has them; its slave follows."""
    both = _rounds(field, until, pairs(field.folder, field.tool), batches=True)
    what = f"ASYNC_MASTER and a slave, batches of {BATCH} x {BODY} bytes, {BATCHES} threads"
    ours, java = sends("batches", *both)
    rates = [found.rate * BATCH for found in ours], [found.rate * BATCH for found in java]
    return [
        *_rows(f"ASYNC_MASTER and a slave, {BODY} bytes", ASYNC_GOALS, *both),
        compared(what, "messages/s", *rates, BATCH_GOAL),
        compared(f"{what}, p99", "us", *of("batches.p99", *both), None),
        cost_row(what, ours, java),
    ]


def flushed(field: Field, until: float) -> list[Row]:
    """Writes that are answered when they are on the master's disk, which is a real one."""
    folder = disk_folder(ON_DISK)
    if folder is None:
        print("no disk with enough room", flush=True)
        return []
    try:
        opened = pairs(folder / "pairs", field.tool, flushDiskType="SYNC_FLUSH")
        both = _rounds(field, until, opened)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _rows(f"SYNC_FLUSH on a disk, ASYNC_MASTER and a slave, {BODY} bytes", DISK_GOALS, *both)


def _rows(what: str, goals: Goals, ours: Sequence[Round], java: Sequence[Round]) -> list[Row]:
    both = ours, java
    one, many = f"{what}, one producer thread", f"{what}, {MANY} threads"
    return [
        compared(many, "writes/s", *of("many.rate", *both), goals.rate),
        compared(f"{many}, p99", "us", *of("many.p99", *both), goals.slow, most=True),
        cost_row(many, *sends("many", *both), goals.costs),
        compared(f"{one}, p50", "us", *of("one.p50", *both), goals.p50, most=True),
        compared(f"{one}, p99", "us", *of("one.p99", *both), goals.p99, most=True),
        cost_row(one, *sends("one", *both)),
    ]


def _rounds(
    field: Field,
    until: float,
    opened: AbstractContextManager[Sequence[Pair]],
    *,
    batches: bool = False,
) -> tuple[list[Round], list[Round]]:
    found: dict[str, list[Round]] = {}
    with opened as both:
        for pair in both:
            # What is measured is a JVM that has compiled, on both ends.
            pair.warm_up(field.quick)
            _round(pair, field.quick, batches)
        for number in range(1 if field.quick else ROUNDS):
            if number and time.monotonic() - field.begun > until:
                break
            for pair in turns(both, number):
                seen = _round(pair, field.quick, batches)
                found.setdefault(pair.name, []).append(seen)
                print(f"{pair.name}: {seen}", flush=True)
    return found["Ours"], found["Java"]


def _round(pair: Pair, quick: bool, batches: bool) -> Round:
    many = pair.send(20_000 if quick else 40_000, MANY)
    one = pair.send(3000 if quick else 10_000, 1)
    several: Sends | None = None
    if batches:
        several = pair.send(400 if quick else 1000, BATCHES, BATCH)
    return Round(one, many, several)
