"""
SYNC_MASTER writes of a stock producer through a stock master, whose slave is a stock one or
ours, in turn.

A write counts from the producer's C{send} to its return, so most of it is the producer's
and the master's own; what a slave adds is the same path in both, and only the slave differs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen

from lab.bench.catchup import STOCK
from lab.bench.latency import percentile
from lab.bench.report import Row, spread
from lab.bench.stock import SYNC, Peer, Stock
from lab.harness.nodes import Node, until

TOPIC = "BenchSync"
BODY = 1024
MANY = 64

TOLERANCE = 1.1

PATIENCE = 60.0


@frozen
class Round:
    """
    What the producer saw with one slave.

    @ivar p50: Of one producer, in microseconds; C{p99} likewise.
    @ivar rate: Writes a second of L{MANY} producers.
    """

    p50: float
    p99: float
    rate: float


def run(folder: Path, tool: Peer, writes: int, rounds: int, stop: float) -> list[Row]:
    """
    Measure the rows about a stock master's SYNC writes.

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
        tool.do("topic", address=master.client_address, topic=TOPIC, queues=8)
        for number in range(rounds):
            if number and time.monotonic() > stop:
                break
            # In either order: what runs later finds a warmer master.
            for name, (slave, start, end) in list(slaves.items())[:: -1 if number % 2 else 1]:
                start()
                found[name].append(_round(tool, slave, writes))
                print(f"{name}: {found[name][-1]}", flush=True)
                end()
    finally:
        for process in (java, ours, master):
            process.kill9()
    return _rows(found["ours"], found["Java"])


def _round(tool: Peer, slave: Node | Stock, writes: int) -> Round:
    # A stock slave is silent for its first five seconds.
    until(
        lambda: set(_send(tool, 4, 1)["statuses"]) == {"SEND_OK"},
        "writes are acknowledged",
        PATIENCE,
        tell=slave.tail,
        pause=0.2,
    )
    # Many first: they warm up every JVM for the one.
    _kept(_send(tool, writes, MANY))
    many = _kept(_send(tool, 2 * writes, MANY))
    _kept(_send(tool, writes // 4, 1))
    one = _kept(_send(tool, writes, 1))
    micros = one["micros"]
    return Round(statistics.median(micros), percentile(micros, 0.99), 2 * writes / many["seconds"])


def _send(tool: Peer, count: int, threads: int) -> dict[str, Any]:
    found: dict[str, Any] = tool.do(
        "time",
        PATIENCE,
        namesrv=tool.names,
        topic=TOPIC,
        kind="single",
        size=BODY,
        count=count,
        threads=threads,
        wait=True,
    )
    return found


def _kept(found: dict[str, Any]) -> dict[str, Any]:
    if set(found["statuses"]) != {"SEND_OK"}:
        raise AssertionError(f"not all were acknowledged: {found['statuses']}")
    return found


def _rows(ours: list[Round], java: list[Round]) -> list[Row]:
    parts: tuple[tuple[str, str, float | None, Callable[[Round], float]], ...] = (
        (f"one producer, {BODY} bytes, p50", "us", TOLERANCE, lambda found: found.p50),
        (f"one producer, {BODY} bytes, p99", "us", None, lambda found: found.p99),
        (f"{MANY} producers", "writes/s", None, lambda found: found.rate),
    )
    rows = []
    for what, unit, goal, of in parts:
        a, b = ([of(found) for found in rounds] for rounds in (ours, java))
        ratio = statistics.median(a) / statistics.median(b)
        rows.append(
            Row(
                what=f"SYNC writes through a Java master with our slave, {what}",
                ours=spread(a, unit),
                beside="with a Java slave " + spread(b, unit),
                ratio=f"{ratio:.2f}",
                goal="" if goal is None else f"<= {goal:g}x",
                met=None if goal is None else ratio <= goal,
            )
        )
    return rows
