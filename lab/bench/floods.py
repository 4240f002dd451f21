"""What a good producer notices of clients that ask as much as the broker takes.

The producer sends one message at a time over a connection of its own.  Each flood is a process
beside it.  With two processors the three share them, so a part of what is measured is that.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from lab.bench.report import Row
from lab.harness.flood import Flood, prepare, sends
from lab.harness.nodes import Node

KEYS: dict[str, object] = {"mappedFileSizeCommitLog": 1 << 26, "messageIndexEnable": "false"}

FLOODS = (("long-loose", 1), ("loose", 1), ("loose", 20), ("pulls", 1), ("pulls", 20))
"""What there is beside the producer, and on how many connections."""

GOAL = 3.0
"""The producer's p99 beside a flood, to that alone."""


def p99(taken: list[float]) -> float:
    """The longest but for one in a hundred."""
    return sorted(taken)[int(len(taken) * 0.99)]


def run(folder: Path, seconds: float, rounds: int) -> list[Row]:
    """Measure alone and beside each flood in turn."""
    broker = Node(folder, "master", **KEYS).start()
    try:
        prepare(broker.port)
        sends(broker.port, 1.0)
        return [_row(folder, broker, *flood, seconds, rounds) for flood in FLOODS]
    finally:
        broker.kill9()


def _row(
    folder: Path, broker: Node, kind: str, connections: int, seconds: float, rounds: int
) -> Row:
    alone, beside, middle = [], [], []
    for _ in range(rounds):
        alone.append(p99(sends(broker.port, seconds)))
        with Flood(folder, broker.port, kind, connections).running_beside():
            time.sleep(1.0)
            taken = sends(broker.port, seconds)
        beside.append(p99(taken))
        middle.append(statistics.median(taken))
    ratio = statistics.median(beside) / statistics.median(alone)
    return Row(
        what=f"p99 of a producer beside {kind} on {connections} connections",
        ours=f"{statistics.median(beside) * 1e3:.2f} ms",
        beside=f"{statistics.median(alone) * 1e3:.2f} ms alone",
        ratio=f"{ratio:.1f}",
        goal=f"<= {GOAL:.0f}",
        met=ratio <= GOAL,
        notes=[f"- Beside {kind} x {connections}: median {statistics.median(middle) * 1e3:.2f} ms"],
    )
