"""
What a cold scan of a slave's files costs the clients of its master: SYNC writes of a pair,
with a session reading the slave's files from the disk, and without.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import threading
from pathlib import Path
from typing import Any

from lab.bench.catchup import STOCK
from lab.bench.latency import percentile
from lab.bench.report import Row, spread
from lab.bench.spark.field import Field
from lab.bench.spark.made import make
from lab.bench.spark.peers import Peer
from lab.harness.nodes import Node
from lab.harness.writer import Driver

BODY = 1024
FILE_SIZE = 64 << 20
GOAL = 1.2
ROUNDS = 3

PATIENCE = 180.0
#: Where a disk is, and not memory.
DISK = os.environ.get("RMQHA_BENCH_DISK") or tempfile.gettempdir()

POLITE = ("nice", "-n", "19", "ionice", "-c", "3")
"""A scan with the lowest priority for processor and disk."""


def part(field: Field) -> list[Row]:
    """
    The rows about SYNC writes.
    """
    folder = Path(tempfile.mkdtemp(prefix="rmqha-bench-", dir=DISK))
    total, writes = (128 << 20, 2000) if field.quick else (1 << 30, 10_000)
    found: dict[str, list[list[float]]] = {"alone": [], "scan": [], "polite": []}
    scans: dict[str, Peer] = {}
    keys: dict[str, Any] = {**STOCK, "mappedFileSizeCommitLog": FILE_SIZE}
    master = Driver(folder, "master", **keys, brokerRole="SYNC_MASTER")
    try:
        for node in ("master", "slave"):
            root = folder / node / "store"
            make(root, total, file_size=FILE_SIZE, name="broker-a")
            shutil.rmtree(root / "rmqha")  # the nodes make their own
        slave = Node(folder, "slave", master=master.address, **keys)
        # Twice, so that the second time the old files are not mapped.
        for _ in range(2):
            master.start(PATIENCE)
            slave.start(PATIENCE)
            slave.until(lambda now: now["dispatchedOffset"] >= total * 0.9, "built", PATIENCE)
            if not scans:
                scans["scan"] = field.session("scan", 2)
                scans["polite"] = field.session("polite", 2, prefix=POLITE)
                for scan in scans.values():
                    scan.ask("count", store=str(slave.root))
                slave.term()
                master.term()
        master.put(1, tell=False).wait(PATIENCE)
        slave.until_upstream("in-sync", timeout=PATIENCE)
        _writes(master, writes // 4)
        passes = []
        for number in range(field.rounds(ROUNDS)):
            for name in list(found)[:: -1 if number % 2 else 1]:
                with Scanning(scans.get(name), slave.root) as scanning:
                    found[name].append(_writes(master, writes))
                passes.append(scanning.passes)
                p99 = percentile(found[name][-1], 0.99)
                print(f"{name}: p99 {p99:.0f} us, {scanning.passes} scans", flush=True)
    finally:
        for scan in scans.values():
            scan.end()
        slave.kill9()
        master.kill9()
        shutil.rmtree(folder, ignore_errors=True)
    return _rows(found)


class Scanning:
    """
    Scans a store again and again, each time from the disk, in a thread of its own.

    @ivar passes: How often it did.
    """

    def __init__(self, session: Peer | None, root: Path) -> None:
        self.passes = 0
        self._session = session
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while self._session is not None and not self._stop.is_set():
            forget(self._root)
            self._session.ask("count", store=str(self._root))
            self.passes += 1

    def __enter__(self) -> Scanning:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def forget(root: Path) -> None:
    """
    Drop a log's pages from the cache, as far as they are not mapped.
    """
    for path in (root / "commitlog").iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _writes(master: Driver, count: int) -> list[float]:
    found = master.put(count, size=BODY, concurrency=1, tell=False).summary(PATIENCE)
    if found is None or found["statuses"] != {"PUT_OK": count}:
        raise AssertionError(f"not all were acknowledged: {found and found['statuses']}")
    return list(found["micros"])


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
                goal=f"<= {GOAL:g}x" if name == "polite" else "",
                met=ratio <= GOAL if name == "polite" else None,
            )
        )
    return rows
