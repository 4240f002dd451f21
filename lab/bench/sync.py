"""SYNC_MASTER writes of a stock producer through a stock master, whose slave is a stock one or
ours, in turn.

A write counts from the producer's C{send} to its return, so most of it is the producer's
and the master's own; what a slave adds is the same path in both, and only the slave differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.bench.catchup import STOCK
from lab.bench.report import Row, compared
from lab.bench.sends import BODY, MANY, PATIENCE, WARM_MESSAGES, Round, Target, cost_row, of, sends
from lab.bench.stock import SYNC, Peer, Stock
from lab.harness.nodes import Node, until

TOPIC = "BenchSync"

GOAL = 1.0

SLAVE_COST = {"slave": 6.0}
"""Microseconds of processor time that a message may cost our slave."""

WARM_UP = 100_000
"""Messages that warm up a new slave, when its master and the producers are warm."""


def run(folder: Path, tool: Peer, writes: int, rounds: int, stop: float) -> list[Row]:
    """Measure the rows about a stock master's SYNC writes.

    @param writes: Writes of one producer in one round.
    @param stop: When to begin no more rounds, in the monotonic clock's seconds.
    """
    master = Stock(folder / "master", tool, "master", **SYNC)
    java = Stock(folder / "java", tool, "slave", role="SLAVE", master=master.address)
    ours = Node(folder / "ours", "slave", master=master.address, **STOCK)
    slaves: dict[str, tuple[Node | Stock, Callable[[], Any], Callable[[], Any]]] = {
        "Java": (java, java.launch, java.stop),
        "ours": (ours, ours.launch, ours.term),
    }
    found: dict[str, list[Round]] = {name: [] for name in slaves}
    try:
        master.start()
        targets = {
            name: Target(tool=tool, topic=TOPIC, master=master, slave=slave)
            for name, (slave, _, _) in slaves.items()
        }
        targets["Java"].make(master.client_address, queues=8)
        for number in range(rounds):
            if number and time.monotonic() > stop:
                break
            # In either order: what runs later finds a warmer master.
            warm = WARM_UP if number else WARM_MESSAGES
            for name, (_, start, end) in list(slaves.items())[:: -1 if number % 2 else 1]:
                start()
                found[name].append(_round(targets[name], writes, warm))
                print(f"{name}: {found[name][-1]}", flush=True)
                end()
    finally:
        for process in (java, ours, master):
            process.kill9()
    return _rows(found["ours"], found["Java"])


def _round(target: Target, writes: int, warm: int) -> Round:
    until(target.answered, "writes are acknowledged", PATIENCE, tell=target.slave.tail, pause=0.2)
    # Many first: they warm up every JVM for the one.
    target.warm_up(min(warm, 30 * writes))
    many = target.send(2 * writes, MANY)
    target.send(writes // 4, 1)
    return Round(target.send(writes, 1), many)


def _rows(ours: list[Round], java: list[Round]) -> list[Row]:
    what = "SYNC writes through a Java master with our slave"
    one, many = f"{what}, one producer, {BODY} bytes", f"{what}, {MANY} producers"
    beside = "with a Java slave"
    rows = [
        compared(f"{one}, p50", "us", *of("one.p50", ours, java), GOAL, most=True, beside=beside),
        compared(f"{one}, p99", "us", *of("one.p99", ours, java), None, beside=beside),
        cost_row(one, *sends("one", ours, java), beside=beside),
        compared(many, "writes/s", *of("many.rate", ours, java), None, beside=beside),
        compared(f"{many}, p99", "us", *of("many.p99", ours, java), None, beside=beside),
    ]
    return [*rows, cost_row(many, *sends("many", ours, java), SLAVE_COST, beside=beside)]
