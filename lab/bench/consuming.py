"""A stock push consumer that catches up with a topic of a stock pair and of ours, in turn."""

from __future__ import annotations

import time

from lab.bench.beside import Field
from lab.bench.report import Row, compared
from lab.bench.sends import BATCH, BATCHES, BODY
from lab.bench.serving import QUEUES, pairs, turns

MESSAGES = 1_000_000
QUICK = 100_000

ROUNDS = 3

GOAL = 1.5


def run(field: Field, until: float) -> list[Row]:
    """Fill both topics with batches, and consume them with one group after the other.

    @param until: Seconds of the run after which no more rounds begin.
    """
    count = QUICK if field.quick else MESSAGES
    found: dict[str, list[float]] = {}
    with pairs(field.folder, field.tool) as both:
        for pair in both:
            pair.send(count // BATCH, BATCHES, BATCH)
        for number in range(-1, 1 if field.quick else ROUNDS):
            if number > 0 and time.monotonic() - field.begun > until:
                break
            for pair in turns(both, number):
                # Once for nothing, and not all of it: the consumer has to be compiled.
                part = count if number >= 0 else QUICK
                rate = pair.consume(f"round{number + 1}{pair.name}", part)
                print(f"{pair.name}: {rate:.0f} messages/s of {part}", flush=True)
                if number >= 0:
                    found.setdefault(pair.name, []).append(rate)
    what = f"push consumer catching up {count:,} x {BODY} bytes in {QUEUES} queues"
    return [compared(what, "messages/s", found["Ours"], found["Java"], GOAL)]
