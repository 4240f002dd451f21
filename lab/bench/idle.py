"""
A pair with nothing to do: processor time and memory.

A slave has caught up with a master of 1 GiB; then nobody writes.  Processor time is
that of the whole process (C{/proc/PID/stat}), memory is RssAnon: pages of the mapped
log are the page cache's.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from lab.bench.catchup import FILE_SIZE, STOCK, with_environment
from lab.bench.corpus import write_log
from lab.bench.report import Row
from lab.harness.nodes import Node

LIMIT = 180.0
SETTLE = 5.0
CPU_GOAL = 1.0
MEMORY_GOAL = 80 << 20


def processor_seconds(pid: int) -> float:
    """
    What a process has used so far.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, kind: str) -> int:
    """
    Bytes of a process's memory.

    @param kind: C{VmRSS} or one of its parts: C{RssAnon}, C{RssFile}, C{RssShmem}.
    """
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(rf"{kind}:\s+(\d+) kB", text)[0]) * 1024


def run(folder: Path, total: int, seconds: float) -> list[Row]:
    """
    Measure the idle rows, without and with numba.

    @param total: Bytes of the log.
    @param seconds: How long the pair is watched.
    """
    master = Node(folder, "master", **STOCK)
    end = write_log(master.root / "commitlog", total, file_size=FILE_SIZE, bodies=(1024,))
    rows: list[Row] = []
    try:
        # Dispatched and stopped once: what is measured is an ordinary start.
        master.start(LIMIT)
        master.until(lambda status: status["dispatchedOffset"] >= end, "dispatched", LIMIT)
        master.term()
        for name, more in (("base install", {"RMQHA_PURE": "1"}), ("with numba", {})):
            rows += _pair(folder, name, more, master, end, seconds)
    finally:
        master.kill9()
    return rows


def _pair(
    folder: Path, name: str, more: dict[str, str], master: Node, end: int, seconds: float
) -> list[Row]:
    slave = Node(folder, "slave", master=master.address, **STOCK)
    try:
        with_environment(master, more)
        master.until(lambda status: status["dispatchedOffset"] == end, "open", LIMIT)
        with_environment(slave, more)
        slave.until_synced(end, LIMIT)
        slave.until(lambda status: status["dispatchedOffset"] == end, "dispatched", LIMIT)
        followed = slave.memory()
        # A slave that has been restarted since it caught up, as most have.
        slave.term()
        with_environment(slave, more)
        slave.until_synced(end, LIMIT)
        time.sleep(SETTLE)
        before = [processor_seconds(node.pid) for node in (master, slave)]
        time.sleep(seconds)
        used = [processor_seconds(node.pid) for node in (master, slave)]
        percent = [100 * (b - a) / seconds for a, b in zip(before, used, strict=True)]
        memory = [node.memory() for node in (master, slave)]
    finally:
        slave.kill9()
        if master.running:
            master.term()
        shutil.rmtree(slave.root.parent, ignore_errors=True)
    mib = [f"{size / (1 << 20):.0f}" for size in (*memory, followed)]
    return [
        Row(
            what=f"idle pair, processor, {name}",
            ours=f"master {percent[0]:.2f} %, slave {percent[1]:.2f} %",
            beside="stock Java pair 3.6 % and 3.1 % (measured elsewhere)",
            goal=f"< {CPU_GOAL:g} % of a core each",
            met=max(percent) < CPU_GOAL,
        ),
        Row(
            what=f"idle pair, RssAnon with a 1 GiB log, {name}",
            ours=f"master {mib[0]} MiB, slave {mib[1]} MiB",
            goal=f"<= {MEMORY_GOAL >> 20} MiB each",
            met=max(memory) <= MEMORY_GOAL,
        ),
        Row(
            what=f"the same, a slave that has just copied all of it, {name}",
            ours=f"{mib[2]} MiB",
            goal=f"<= {MEMORY_GOAL >> 20} MiB",
            met=followed <= MEMORY_GOAL,
        ),
    ]
