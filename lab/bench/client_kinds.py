"""Each kind of send that stock producers know, through a stock pair and through ours, in turn.

Both masters wait for their slaves.  A transaction counts until its producer goes on, so its end,
which is one-way, costs the next one.  Of one-way messages every 32nd of a thread is waited for.
"""

from __future__ import annotations

import time

from attrs import frozen

from lab.bench.beside import Field
from lab.bench.report import Row, compared
from lab.bench.sends import BODY, Sends, cost_row
from lab.bench.serving import pairs, turns

ROUNDS = 5

WARM = 10_000
"""Sends of each kind before what counts, of as many messages as they have."""


@frozen(kw_only=True)
class Kind:
    """One kind of send.

    @ivar what: In words.
    @ivar kind: As C{Timings.java} knows it.
    @ivar count: Sends of a round.
    @ivar goal: Least rate, in parts of the stock pair's.
    """

    what: str
    kind: str = "single"
    count: int
    threads: int = 32
    each: int = 1
    size: int = BODY
    goal: float = 1.0


KINDS = (
    Kind(what="plain", count=40_000),
    Kind(what="transactions, committed", kind="transaction", count=10_000, goal=1.2),
    Kind(what="transactions, rolled back", kind="transaction-rollback", count=10_000, goal=1.2),
    Kind(what="batches of 32", count=4_000, threads=8, each=32, goal=1.2),
    Kind(what="batches of 200", count=1_000, threads=8, each=200, goal=1.2),
    Kind(what="delayed", kind="delay", count=20_000),
    Kind(what="ordered", kind="ordered", count=40_000),
    Kind(what="one-way", kind="oneway", count=40_000),
    Kind(what="keys, tag and ten properties", kind="rich", count=40_000),
    Kind(what="compressed, 8 KiB of text", count=20_000, size=8 << 10),
)


def run(field: Field, until: float) -> list[Row]:
    """Measure the rows about kinds of sends.

    @param until: Seconds of the run after which no more rounds begin.
    """
    found: dict[str, dict[Kind, list[Sends]]] = {}
    with pairs(field.folder, field.tool, sync=True) as both:
        for pair in both:
            pair.warm_up(field.quick)
            for kind in KINDS:
                pair.send_kind(kind.kind, WARM // kind.each, kind.threads, kind.each, kind.size)
        for number in range(1 if field.quick else ROUNDS):
            if number and time.monotonic() - field.begun > until:
                break
            for kind in KINDS:
                for pair in turns(both, number):
                    count = kind.count // 4 if field.quick else kind.count
                    seen = pair.send_kind(kind.kind, count, kind.threads, kind.each, kind.size)
                    found.setdefault(pair.name, {}).setdefault(kind, []).append(seen)
                    told = f"{pair.name}, {kind.what}: {seen.rate:.0f}/s, {seen.told()}"
                    print(told, flush=True)
    return [row for kind in KINDS for row in _rows(kind, found["Ours"][kind], found["Java"][kind])]


def _rows(kind: Kind, ours: list[Sends], java: list[Sends]) -> list[Row]:
    what = f"{kind.what}, SYNC_MASTER and a slave, {kind.threads} threads"
    rates = [one.rate for one in ours], [one.rate for one in java]
    return [compared(what, "sends/s", *rates, kind.goal), cost_row(what, ours, java)]
