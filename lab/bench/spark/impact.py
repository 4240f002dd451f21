"""What a cold scan of a slave's files costs the clients of its master: SYNC writes of a pair,
with a session reading the slave's files from the disk, and without.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from lab.bench.latency import percentile
from lab.bench.report import Row, spread
from lab.bench.spark.field import Field
from lab.bench.spark.pair import beside, loaded_pair
from lab.bench.spark.peers import Peer

GOAL = 1.2
ROUNDS = 3

POLITE = ("nice", "-n", "19", "ionice", "-c", "3")
"""A scan with the lowest priority for processor and disk."""


def part(field: Field) -> list[Row]:
    """The rows about SYNC writes."""
    total, writes = (128 << 20, 2000) if field.quick else (1 << 30, 10_000)
    found: dict[str, list[list[float]]] = {"alone": [], "scan": [], "polite": []}
    scans: dict[str, Peer] = {}
    with loaded_pair(total) as pair:
        root = pair.slave.root
        try:
            scans["scan"] = field.session("scan", 2)
            scans["polite"] = field.session("polite", 2, prefix=POLITE)
            for scan in scans.values():
                scan.ask("count", store=str(root))
            pair.writes(writes // 4)
            for number in range(field.rounds(ROUNDS)):
                for name in list(found)[:: -1 if number % 2 else 1]:
                    peer = scans.get(name)
                    scan_it = None if peer is None else lambda peer=peer: cold(peer, root)
                    with beside(scan_it) as passes:
                        found[name].append(pair.writes(writes))
                    p99 = percentile(found[name][-1], 0.99)
                    print(f"{name}: p99 {p99:.0f} us, {passes[0]} scans", flush=True)
        finally:
            for scan in scans.values():
                scan.end()
    return _rows(found)


def cold(session: Peer, root: Path) -> None:
    """Scan a store from the disk."""
    forget(root)
    session.ask("count", store=str(root))


def forget(root: Path) -> None:
    """Drop a log's pages from the cache, as far as they are not mapped."""
    for path in (root / "commitlog").iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _rows(found: dict[str, list[list[float]]]) -> list[Row]:
    p99 = {name: [percentile(each, 0.99) for each in runs] for name, runs in found.items()}
    alone = statistics.median(p99["alone"])
    rows = []
    for name, words in (("polite", "by nice and ionice"), ("scan", "as it is started")):
        ratio = statistics.median(p99[name]) / alone
        rows.append(
            Row(
                what=f"SYNC write p99 while a cold scan of the slave's files runs, {words}",
                ours=spread(p99[name], "us"),
                beside="without " + spread(p99["alone"], "us"),
                ratio=f"{ratio:.2f}",
                goal=f"<= {GOAL:g}x",
                met=ratio <= GOAL,
            )
        )
    return rows
