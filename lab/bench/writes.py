"""
Writes of stock producers through a stock pair and through ours, in turn.

A write counts from the producer's C{send} to its return, so the producer's own work is in it.
"""

from __future__ import annotations

import time

from attrs import frozen

from lab.bench.beside import Field
from lab.bench.report import Row
from lab.bench.serving import BATCH, BODY, Pair, Sends, compared, pairs, turns

MANY = 64
BATCHES = 4
"""Threads that send batches."""

ROUNDS = 5


@frozen
class Round:
    """
    What the producers saw of one pair: one thread, many threads, batches.
    """

    one: Sends
    many: Sends
    batches: Sends | None


def sync(field: Field, until: float) -> list[Row]:
    """
    Writes that are answered when the slave has them.

    @param until: Seconds of the run after which no more rounds begin.
    """
    ours, java = _rounds(field, until, wait=True)
    what = f"SYNC_MASTER and a slave, {BODY} bytes"
    one = f"{what}, one producer thread"
    return [
        compared(f"{one}, p50", "us", *_of("one.p50", ours, java), 0.8, most=True),
        compared(f"{one}, p99", "us", *_of("one.p99", ours, java), 1.0, most=True),
        compared(f"{what}, {MANY} threads", "writes/s", *_of("many.rate", ours, java), 2.0),
        compared(f"{what}, {MANY} threads, p99", "us", *_of("many.p99", ours, java), None),
    ]


def asynchronous(field: Field, until: float) -> list[Row]:
    """
    Writes that are answered when the master has them; its slave follows.
    """
    ours, java = _rounds(field, until, wait=False)
    what = f"ASYNC_MASTER and a slave, {BODY} bytes"
    one = f"{what}, one producer thread"
    batches = f"ASYNC_MASTER and a slave, batches of {BATCH} x {BODY} bytes, {BATCHES} threads"
    messages = [
        [BATCH * found.batches.rate for found in rounds if found.batches] for rounds in (ours, java)
    ]
    return [
        compared(f"{what}, {MANY} threads", "writes/s", *_of("many.rate", ours, java), 2.0),
        compared(f"{what}, {MANY} threads, p99", "us", *_of("many.p99", ours, java), None),
        compared(f"{one}, p50", "us", *_of("one.p50", ours, java), None),
        compared(f"{one}, p99", "us", *_of("one.p99", ours, java), None),
        compared(batches, "messages/s", *messages, 1.0),
    ]


def _of(path: str, *both: list[Round]) -> list[list[float]]:
    kind, value = path.split(".")
    return [[getattr(getattr(found, kind), value) for found in rounds] for rounds in both]


def _rounds(field: Field, until: float, *, wait: bool) -> tuple[list[Round], list[Round]]:
    found: dict[str, list[Round]] = {}
    with pairs(field.folder, field.tool, sync=wait) as both:
        for pair in both:
            # What is measured is a JVM that has compiled, on both ends.
            _round(pair, field.quick, wait)
        for number in range(1 if field.quick else ROUNDS):
            if number and time.monotonic() - field.begun > until:
                break
            for pair in turns(both, number):
                seen = _round(pair, field.quick, wait)
                found.setdefault(pair.name, []).append(seen)
                batches = f", batches {seen.batches.rate:.0f}/s" if seen.batches else ""
                print(
                    f"{pair.name}: one p50 {seen.one.p50:.0f} us, p99 {seen.one.p99:.0f} us;"
                    f" many {seen.many.rate:.0f}/s, p99 {seen.many.p99:.0f} us{batches}",
                    flush=True,
                )
    return found["Ours"], found["Java"]


def _round(pair: Pair, quick: bool, wait: bool) -> Round:
    many = pair.send(20_000 if quick else 40_000, MANY)
    one = pair.send(3000 if quick else 10_000, 1)
    batches = None if wait else pair.send(400 if quick else 1000, BATCHES, BATCH)
    return Round(one, many, batches)
