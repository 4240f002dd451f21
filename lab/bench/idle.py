"""A pair with nothing to do: processor time and memory.

A slave has caught up with a master of 1 GiB; then nobody writes.  Processor time is
that of the whole process (C{/proc/PID/stat}), memory is RssAnon: pages of the mapped
log are the page cache's.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from lab.bench.catchup import FILE_SIZE, STOCK
from lab.bench.corpus import write_log
from lab.bench.processes import Span
from lab.bench.report import Row
from lab.harness.nodes import Node

LIMIT = 180.0
SETTLE = 5.0
CPU_GOAL = 0.5
"""Percent of a core that a node of an idle pair may use."""

MEMORY_GOAL = 80 << 20
"""Bytes of RssAnon that a node may have."""


def run(folder: Path, total: int, seconds: float) -> list[Row]:
    """Measure the idle rows.

    @param total: Bytes of the log.
    @param seconds: How long the pair is watched.
    """
    master = Node(folder, "master", **STOCK)
    end = write_log(master.root / "commitlog", total, file_size=FILE_SIZE, bodies=(1024,))
    try:
        # Dispatched and stopped once: what is measured is an ordinary start.
        master.start(LIMIT)
        master.until(lambda status: status["dispatchedOffset"] >= end, "dispatched", LIMIT)
        master.term()
        return _rows(*_pair(folder, master, end, seconds))
    finally:
        master.kill9()


def _pair(
    folder: Path, master: Node, end: int, seconds: float
) -> tuple[list[float], list[int], int]:
    """@return: Percents of a core, and bytes of RssAnon, of master and slave; the slave's bytes
    when it had just copied the log.
    """
    slave = Node(folder, "slave", master=master.address, **STOCK)
    try:
        master.launch()
        master.until(lambda status: status["dispatchedOffset"] == end, "open", LIMIT)
        slave.launch()
        slave.until_synced(end, LIMIT)
        slave.until(lambda status: status["dispatchedOffset"] == end, "dispatched", LIMIT)
        followed = slave.memory()
        # A slave that has been restarted since it caught up, as most have.
        slave.term()
        slave.launch()
        slave.until_synced(end, LIMIT)
        time.sleep(SETTLE)
        span = Span({"master": master.pid, "slave": slave.pid})
        time.sleep(seconds)
        percent = [100 * used / seconds for used in span.used().values()]
        memory = [node.memory() for node in (master, slave)]
    finally:
        slave.kill9()
        if master.running:
            master.term()
        shutil.rmtree(slave.root.parent, ignore_errors=True)
    return percent, memory, followed


def _rows(percent: list[float], memory: list[int], followed: int) -> list[Row]:
    mib = [f"{size / (1 << 20):.0f}" for size in (*memory, followed)]
    return [
        Row(
            what="idle pair, processor",
            ours=f"master {percent[0]:.2f} %, slave {percent[1]:.2f} %",
            beside="stock Java pair 3.6 % and 3.1 % (measured elsewhere)",
            goal=f"< {CPU_GOAL:g} % of a core each",
            met=max(percent) < CPU_GOAL,
        ),
        Row(
            what="idle pair, RssAnon with a 1 GiB log",
            ours=f"master {mib[0]} MiB, slave {mib[1]} MiB",
            goal=f"<= {MEMORY_GOAL >> 20} MiB each",
            met=max(memory) <= MEMORY_GOAL,
        ),
        Row(
            what="the same, a slave that has just copied all of it",
            ours=f"{mib[2]} MiB",
            goal=f"<= {MEMORY_GOAL >> 20} MiB",
            met=followed <= MEMORY_GOAL,
        ),
    ]
